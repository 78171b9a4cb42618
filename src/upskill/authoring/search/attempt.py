"""Attempt: one candidate of a search."""

from __future__ import annotations

from dataclasses import dataclass

from upskill.authoring.search.comparison import Comparison, Decision
from upskill.authoring.search.refiners import Proposal
from upskill.runs.results.evaluation import Evaluation
from upskill.runs.stores import Candidate
from upskill.skills import Skill


@dataclass
class Attempt:
    """The skill, its result on train cases, and what was decided."""

    number: int
    skill: Skill
    evaluation: Evaluation | None  # None: it was not worth evaluating
    decision: Decision
    note: str
    comparison: Comparison | None = None  # None: the first has nothing to be compared with
    proposal: Proposal | None = None
    stored: Candidate | None = None

    @property
    def accepted(self) -> bool | None:
        """Whether it was kept, provisionally or for good; None: nobody knows."""
        if self.decision == "not decided":
            return None
        return self.decision in ("first draft", "kept provisionally", "confirmed")
