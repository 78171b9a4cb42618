"""Caveats: what a reader of a verdict should know of its run, in whole sentences. The one place that writes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from upskill.plain import counted, listed
from upskill.runs.planning.stored_plan import StoredPlan
from upskill.suites import FAILED_BY, are_from_memory

MAX_NAMED = 3
PROGRAMS = {"command", "compiles", "python"}  # checks that run something
PURPOSES: Mapping[str, str] = {
    "search": "Run by a search, which compares candidates and reports its own result.",
    "gate": "Run by `upskill ci`, which asks whether an edit made these cases worse.",
    "trigger": "Run by `upskill trigger`, which asks whether the skill is activated.",
}


def find_caveats(plan: StoredPlan, snapshots: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    suite = plan.suite
    if plan.replayed:
        yield f"Recorded answers, {plan.replayed}: no model was asked."
    if plan.purpose in PURPOSES:
        yield PURPOSES[plan.purpose]
    if suite.part:
        cases = f"{len(suite.cases)} of {counted(suite.part.of, 'case')} ({suite.part.chosen})"
        yield f"Only {cases}: a part of a suite gives no verdict."
    if plan.dropped:
        dropped = ", ".join(plan.dropped[:MAX_NAMED]) + (", …" if plan.dropped[MAX_NAMED:] else "")
        yield f"{counted(len(plan.dropped), 'case')} of earlier runs not in this suite: {dropped}."
    if plan.reference_skill:
        yield "The baseline is another version of the skill."
    in_own = [
        case
        for case in suite.cases
        if case.outputs is None and not PROGRAMS.isdisjoint(case.check_names)
    ]
    if in_own and plan.agent != "chat":
        yield (
            f"{counted(len(in_own), 'case')} without `outputs:` graded in the student's own workspace,"
            " where it can change what decides."
        )
    chosen = Counter(case.metadata.get(FAILED_BY) for case in suite.cases)
    del chosen[None]
    for student, number in chosen.items():
        yield (
            f"{number} of {counted(len(suite.cases), 'case')} chosen because {student} failed them without"
            " the skill."
        )
    if are_from_memory(case.metadata for case in suite.cases):
        yield (
            "The skill and its cases both come from a model's memory, so nothing here shows that"
            " either is right."
        )
    for model, names in snapshots.items():
        if len(names) > 1:
            answered = [f"{name}: {counted(number, 'trial')}" for name, number in names.items()]
            yield f"{model}: {len(names)} snapshots answered ({listed(answered)})."
