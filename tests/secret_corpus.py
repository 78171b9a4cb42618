"""How well redaction tells secrets from what looks like one: precision and recall over a corpus of invented texts.

    python tests/secret_corpus.py

The corpus is in tests/fixtures/secrets. What was wrong in every other line was looked at while the rules were written
("seen"), and not in the rest ("unseen"); found_later.txt, surroundings.txt and by_context.txt are seen. A text with
secrets counts as found when no half of any of them is left; one without is a false alarm when anything but an e-mail
address or a home folder was replaced.
"""

from __future__ import annotations

import base64
import random
import re
import string
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from upskill.traces.redaction.redact import redact

CORPUS = Path(__file__).parent / "fixtures" / "secrets"
Half = Literal["seen", "unseen"]
LATER = ("found_later.txt", "surroundings.txt", "by_context.txt")
NOT_SECRET = ("email", "home-path")
ALPHABETS = {
    "alnum": string.ascii_letters + string.digits,
    "hex": "0123456789abcdef",
    "upper": string.ascii_uppercase + "234567",
    "digits": string.digits,
    "b64": string.ascii_letters + string.digits + "+/",
}
PLACEHOLDER = re.compile(
    r"\{(alnum|hex|upper|digits|b64) (\d+)\}|\{(base64|hexof|word) ([^{}]+)\}|\{again\}"
)
SECRET = re.compile("«([^»]*)»")


@dataclass(frozen=True)
class Sample:
    """One text of the corpus, and the secrets in it; none in a near miss."""

    text: str
    secrets: tuple[str, ...]
    half: Half


def read_corpus() -> list[Sample]:
    return [
        sample
        for name in ("positives.txt", "negatives.txt", *LATER)
        for number, line in enumerate(_lines(CORPUS / name))
        for sample in [_sample(line, "seen" if number % 2 == 0 or name in LATER else "unseen")]
    ]


def _lines(path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith(("# ", "## "))]


def _sample(line: str, half: Half) -> Sample:
    text = _expand(line).replace("⏎", "\n").replace("¦", "\u200b")
    return Sample(SECRET.sub(r"\1", text), tuple(SECRET.findall(text)), half)


def _expand(line: str) -> str:
    """Random parts are drawn from the line itself, so that they are the same every time."""
    generator, last = random.Random(line), ""

    def expand(found: re.Match[str]) -> str:
        nonlocal last
        if found[1]:
            last = "".join(generator.choices(ALPHABETS[found[1]], k=int(found[2])))
            return last
        if found[3]:
            value = found[4].replace("\\n", "\n").encode()
            return {"base64": _base64, "hexof": bytes.hex, "word": bytes.decode}[found[3]](value)
        return last

    return PLACEHOLDER.sub(expand, line)


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


@dataclass(frozen=True)
class Measurement:
    positives: int
    negatives: int
    missed: tuple[Sample, ...]
    false_alarms: tuple[Sample, ...]

    @property
    def recall(self) -> float:
        return 1 - len(self.missed) / self.positives

    @property
    def precision(self) -> float:
        found = self.positives - len(self.missed)
        return found / (found + len(self.false_alarms))


def measure(
    samples: Sequence[Sample], clean: Callable[[str, Counter[str]], str] = redact
) -> Measurement:
    missed: list[Sample] = []
    false_alarms: list[Sample] = []
    for sample in samples:
        counts: Counter[str] = Counter()
        left = clean(sample.text, counts)
        if sample.secrets and _survives(sample, left):
            missed.append(sample)
        elif not sample.secrets and any(kind not in NOT_SECRET for kind in counts):
            false_alarms.append(sample)
    positives = sum(bool(sample.secrets) for sample in samples)
    return Measurement(positives, len(samples) - positives, tuple(missed), tuple(false_alarms))


def _survives(sample: Sample, left: str) -> bool:
    """Whether any of the secrets, or half of a long one, is still there."""
    return any(
        part in left
        for secret in sample.secrets
        for line in secret.split("\n")
        for part in _parts(line)
    )


def _parts(secret: str) -> Iterator[str]:
    size = len(secret) if len(secret) < 12 else max(8, len(secret) // 2)
    return (secret[start : start + size] for start in range(len(secret) - size + 1))


def main() -> None:
    corpus = read_corpus()
    for half in ("seen", "unseen"):
        found = measure([sample for sample in corpus if sample.half == half])
        print(f"{half}: recall {found.recall:.1%}, precision {found.precision:.1%}")
        if half == "seen":  # what was wrong in the other half is not to be looked at
            for sample in (*found.missed, *found.false_alarms):
                print(f"  {sample.text!r} -> {redact(sample.text)!r}")


if __name__ == "__main__":
    main()
