"""Feedback as the page sends it."""

from __future__ import annotations

from typing import cast, get_args

from upskill.plain import as_mapping
from upskill.runs.planning.plan import Arm, Trial
from upskill.runs.results.feedback import LARGEST_SEED, LONGEST_NOTE
from upskill.runs.stores import Review
from upskill.runs.stores.rows import FeedbackVerdict


def read_mark(said: object) -> tuple[Trial, Review | None]:
    """The trial that is meant and what is said of it; None takes back what was said. ValueError for anything else."""
    given = as_mapping(said)
    if given is None:
        raise ValueError("it is not an object")
    case, model, arm, verdict, note = (given.get(name, "") for name in ("case", "model", "arm", "verdict", "feedback"))
    seed = given.get("seed")
    if not all(isinstance(each, str) for each in (case, model, arm, verdict, note)) or type(seed) is not int:
        raise ValueError("case, model, arm, verdict and feedback are texts, and seed is a number")
    if verdict not in get_args(FeedbackVerdict):
        raise ValueError("the verdict is right, wrong, odd or empty")
    if abs(seed) > LARGEST_SEED:
        raise ValueError(f"no seed is larger than {LARGEST_SEED}")
    if len(note) > LONGEST_NOTE:
        raise ValueError(f"a note has at most {LONGEST_NOTE} characters")
    trial = Trial(model, case, cast("Arm", arm), seed)
    return trial, Review(trial, cast("FeedbackVerdict", verdict), note.strip()) if verdict or note.strip() else None
