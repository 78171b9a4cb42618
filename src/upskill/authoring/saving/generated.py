"""Generated: a skill that was made and saved, with its tests and what is known about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from upskill.authoring.material.material import Material
from upskill.authoring.saving.provenance import UNPROVEN, Provenance, SearchCost, own_lines
from upskill.authoring.search.refine import Refinement
from upskill.models import Address
from upskill.models.embedded.capacity import larger_model
from upskill.plain import counted
from upskill.runs.results.evaluation import Evaluation
from upskill.skills import Skill
from upskill.suites import OWN_FACTS, Suite
from upskill.traces import NO_USAGE, Usage

ONLY_A_SENTENCE = (
    "NOTHING BUT THE MODEL'S MEMORY stands behind this skill: it is written from a sentence alone. Give what it should"
    " say with --from (a document, a trace) or -e."
)


@dataclass(frozen=True)
class Generated:
    skill: Skill
    folder: Path
    suite: Suite
    material: Material
    teacher: Address
    student: Address | None  # None: nothing was evaluated
    refinement: Refinement | None
    cost: SearchCost  # of making it, including earlier calls that were interrupted
    spent: Mapping[str, Usage]  # by this call, by role
    calls: int  # of models, by this call
    previous: Path | None = None  # where the version that it replaced is kept
    feedback: tuple[str, ...] = ()  # what became of each review, in words

    @property
    def fit(self) -> Evaluation | None:
        """On the train cases that also chose the skill."""
        return self.refinement.fit if self.refinement else None

    @property
    def held_out(self) -> Evaluation | None:
        """On cases that nothing before has seen: the number to believe."""
        return self.refinement.held_out if self.refinement else None

    @property
    def evaluations(self) -> list[Evaluation]:
        return self.refinement.evaluations if self.refinement else []

    @property
    def has_failed(self) -> bool:
        """The numbers cannot be relied on: too many errors on held-out cases, a leak, or a bug in upskill."""
        if any(evaluation.leaked or evaluation.bugs for evaluation in self.evaluations):
            return True
        return self.held_out is not None and self.held_out.too_many_errors

    @property
    def grounding_notes(self) -> list[str]:
        """How much of the skill is nothing but the teacher's memory."""
        own, lines = own_lines(self.skill)
        notes = [ONLY_A_SENTENCE] if not self.material.pieces and not self.material.skill else []
        if own and self.material.pieces:
            notes.append(
                f"{len(own)} of {counted(lines, 'line')} are the teacher's own, without evidence (`own` in --sources)."
            )
        return notes

    @property
    def student_notes(self) -> list[str]:
        """What numbers of the embedded model do not say, and which student says more."""
        evaluation = self.held_out or self.fit
        if evaluation is None or self.student is None or self.student.provider != "local":
            return []
        verdict = evaluation.verdicts[0]
        notes: list[str] = []
        if not verdict.baseline.pass_rate and not verdict.skill.pass_rate:
            notes.append("0% -> 0% on the embedded model is no evidence against the skill: it may be too small for it.")
        if larger := larger_model(self.student.model):
            memory = f"about {larger.memory() / 1e9:.1f} GB of memory"
            notes.append(
                f"The next larger model that this machine can run: --eval-model local:{larger.name} ({memory})."
            )
        return notes


def add_result(provenance: Provenance, refinement: Refinement | None) -> Provenance:
    """The provenance with the pass rate: on held-out cases where there are some, else the fit."""
    evaluation = (refinement.held_out or refinement.fit) if refinement else None
    if refinement is None or evaluation is None:
        return provenance.with_state(UNPROVEN)
    verdict = evaluation.verdicts[0]
    own_facts = any(OWN_FACTS in case.tags for case in evaluation.plan.suite.cases)
    known = {
        "test_pass_rate": verdict.skill.pass_rate,
        "baseline_pass_rate": verdict.baseline.pass_rate,
        "evaluated_on": verdict.model,
        "evaluated_cases": OWN_FACTS if own_facts else "held-out" if refinement.held_out else "fit",
        "pairs": verdict.pairs,
        "decision": verdict.decision,
    }
    return replace(provenance, metadata=dict(provenance.metadata) | known).with_state("")


def spent_on_writing(lesson: Usage, used: Iterable[tuple[str, Usage]]) -> dict[str, tuple[int, float | None]]:
    """Tokens and dollars of the teacher, with those of a lesson, and of the test writer, by their replies."""
    by_role = {"teacher": lesson, "test writer": NO_USAGE}
    for role, usage in used:
        if role in by_role:
            by_role[role] = by_role[role] + usage
    return {role: (usage.total_tokens, usage.cost_usd) for role, usage in by_role.items() if usage != NO_USAGE}
