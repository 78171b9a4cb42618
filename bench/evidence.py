"""How well the evidence of a trace is found: precision and recall on the traces that were labelled by hand.

    python bench/evidence.py            a table: one row for each format, and one for the traces kept aside
    python bench/evidence.py --misses   and every finding that is missing or wrong

Needs nothing but this repository; takes a second.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from upskill.authoring.evidence.evidence import TraceEvidence, evidence_of
from upskill.traces import detect_format, read_trace

CORPUS = Path(__file__).parents[1] / "tests" / "fixtures" / "evidence"
KINDS = ("fixes", "workflow", "corrections", "facts")


@dataclass
class Score:
    right: int = 0
    found: int = 0
    labelled: int = 0
    misses: list[str] = field(default_factory=list[str])

    def __iadd__(self, other: Score) -> Score:
        self.right += other.right
        self.found += other.found
        self.labelled += other.labelled
        self.misses += other.misses
        return self

    @property
    def precision(self) -> float:
        return self.right / self.found if self.found else 1.0

    @property
    def recall(self) -> float:
        return self.right / self.labelled if self.labelled else 1.0


def labels() -> dict[str, dict[str, Any]]:
    return yaml.safe_load((CORPUS / "labels.yaml").read_text(encoding="utf-8"))


def score_trace(name: str, wanted: dict[str, Any]) -> dict[str, Score]:
    """The score of one trace for each kind of finding."""
    evidence = evidence_of(read_trace(CORPUS / name))
    return {kind: _score(name, kind, list(_found(evidence, kind)), wanted[kind]) for kind in KINDS}


def _found(evidence: TraceEvidence, kind: str) -> Iterator[dict[str, str] | str]:
    if kind == "fixes":
        for fix in evidence.fixes:
            yield {"failed": fix.subcommand, "error": fix.error, "by": fix.kind, "with": fix.fix}
    elif kind == "workflow":
        yield from (item.command for item in evidence.workflow)
    elif kind == "corrections":
        yield from (item.text for item in evidence.corrections)
    else:
        yield from (item.line for item in evidence.observations)


def _score(name: str, kind: str, found: list[dict[str, str] | str], wanted: list[Any]) -> Score:
    left = list(found)
    missing: list[Any] = []
    for label in wanted:
        match = next((item for item in left if _matches(kind, item, label)), None)
        if match is None:
            missing.append(label)
        else:
            left.remove(match)
    misses = [f"{name}: {kind}: missing {label}" for label in missing]
    misses += [f"{name}: {kind}: wrong {item}" for item in left]
    return Score(len(wanted) - len(missing), len(found), len(wanted), misses)


def _matches(kind: str, item: dict[str, str] | str, label: Any) -> bool:
    if isinstance(item, str):
        return item == label if kind == "workflow" else label in item
    one, two = item["failed"].split(), label["failed"].split()
    same = one[: len(two)] == two[: len(one)]
    return same and item["by"] == label["by"] and all(label[key] in item[key] for key in ("error", "with"))


def measure() -> tuple[dict[str, Score], dict[str, Score]]:
    """Scores by format (and `all`, `kept aside`), and by kind of finding."""
    by_format: dict[str, Score] = defaultdict(Score)
    by_kind: dict[str, Score] = defaultdict(Score)
    for name, wanted in labels().items():
        for kind, score in score_trace(name, wanted).items():
            for row in (detect_format(CORPUS / name), "all", *(["kept aside"] if wanted.get("kept_aside") else [])):
                by_format[row] += score
            by_kind[kind] += score
    return by_format, by_kind


def main() -> None:
    by_format, by_kind = measure()
    last = ("kept aside", "all")
    for rows in ({name: by_format[name] for name in sorted(by_format, key=lambda name: (name in last, name))}, by_kind):
        print("| | labelled | found | right | precision | recall |\n|---|---:|---:|---:|---:|---:|")
        for name, score in rows.items():
            numbers = f"{score.labelled} | {score.found} | {score.right}"
            print(f"| {name} | {numbers} | {score.precision:.0%} | {score.recall:.0%} |")
        print()
    if "--misses" in sys.argv:
        print("\n".join(by_format["all"].misses))


if __name__ == "__main__":
    main()
