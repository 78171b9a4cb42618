"""Reviews: what people said about answers in `upskill view`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from upskill.plain import counted
from upskill.runs.stores import Review
from upskill.runs.stores.rows import FeedbackVerdict

MAX_NOTE = 10_000  # characters


def count_marks(reviews: Sequence[Review]) -> dict[str, int]:
    """By verdict: how many answers got it; notes alone under `note`."""
    verdicts = [review.verdict for review in reviews]
    return {
        verdict or "note": verdicts.count(verdict)
        for verdict in get_args(FeedbackVerdict)
        if verdict in verdicts
    }


def describe_marks(reviews: Sequence[Review]) -> str:
    marks = [
        f"{count} with only a note" if name == "note" else f"{count} {name}"
        for name, count in count_marks(reviews).items()
    ]
    return f"People marked {counted(len(reviews), 'answer')}: {', '.join(marks)}."
