"""Left out: results that someone has seen and that a later look lacks, although it has others of the same run.

They still count: leaving out what did not fit would choose the result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from upskill.errors import UsageError
from upskill.plain import digest
from upskill.runs.planning.plan import Plan
from upskill.runs.planning.stored_plan import StoredPlan
from upskill.runs.stores import Look, Run, Store
from upskill.verdicts.outcome import Outcome

HASH = 10  # characters of the hash of a trial in a look, of which the last says whether it passed


def results_left_out(
    store: Store, look: Look, earlier: Sequence[Look], others: Sequence[Look]
) -> tuple[Outcome, ...] | None:
    """Of the `earlier` looks at this skill, and of `others` of the same model. None: they are not stored any more."""
    left_out: dict[tuple[str, str, int], Outcome] = {}
    for each in earlier:
        same_version = each.skill_hash == look.skill_hash
        fewer = 0 if same_version else _seeds_gone(each, look)
        if (rows := _rows_gone(store, each, look, cases_left_out(each, look, fewer=fewer))) is None:
            return None
        ids = {identity: case for case, identity in look.cases.items()} if same_version else {}
        for row in rows:
            identity = each.cases.get(row.case, row.case)
            name = ids.get(identity, f"{identity} {each.skill_hash}")  # further repeats, or a case of its own
            left_out.setdefault((name, row.arm, row.seed), replace(row, case=name))
    for each in others:
        # Another skill had the same baseline: of a case that was left out for it, this skill counts as failing.
        cases = cases_left_out(each, look, "baseline", fewer=_seeds_gone(each, look))
        for row in _rows_gone(store, each, look, cases) or ():
            name = each.cases.get(row.case, row.case)
            for arm in ("baseline", "skill") if row.arm == "baseline" else ():
                passed = row.passed if arm == "baseline" else False
                left_out.setdefault((name, arm, row.seed), replace(row, case=name, arm=arm, passed=passed))
    return tuple(left_out.values())


def _seeds_gone(before: Look, now: Look) -> int:
    return len({*before.seeds} - {*now.seeds})


def cases_left_out(before: Look, now: Look, *arms: str, fewer: int = 0) -> set[str]:
    """The cases of an earlier look whose results are not all in this one, while it has some of that look.

    `fewer`: how many results of a case may be gone.
    """
    here, cases = _all_drawn(now), set[str]()
    for arm, texts in before.hashes.items() if not now.fresh else ():
        gone = {case: sum(drawn not in here for drawn in _drawn(text)) for case, text in texts.items()}
        if (not arms or arm in arms) and any(gone[case] < len(text) // HASH for case, text in texts.items()):
            cases.update(case for case, count in gone.items() if count > fewer)
    return cases


def _drawn(hashes: str) -> list[str]:
    """What was drawn for each trial, whatever checks said of it."""
    return [hashes[start : start + HASH - 1] for start in range(0, len(hashes), HASH)]


def _all_drawn(look: Look) -> set[str]:
    return {drawn for texts in look.hashes.values() for text in texts.values() for drawn in _drawn(text)}


def hash_of_draw(plan: Plan | StoredPlan, skill_hash: str, cases: Mapping[str, str], row: Outcome) -> str:
    settings = [plan.agent, plan.temperature, plan.max_output_tokens]
    skill = skill_hash if row.arm == "skill" else ""
    asked = cases[row.case].partition("-")[0] if row.case in cases else row.case
    return digest([settings, skill, asked, row.arm, row.seed, row.answer])[: HASH - 1]


def _rows_gone(store: Store, before: Look, now: Look, cases: Iterable[str]) -> list[Outcome] | None:
    """Results of these cases that an earlier look had and this one has not. None: they are not stored any more."""
    rows, here = list[Outcome](), _all_drawn(now)
    for case in cases:
        if (stored := stored_run(store, before.run)) is None:
            return None
        scored = (row for row in store.outcomes(stored, case) if row.model == before.model and row.passed is not None)
        rows += [row for row in scored if hash_of_draw(stored.plan, before.skill_hash, before.cases, row) not in here]
    return rows


def stored_run(store: Store, name: str) -> Run | None:
    with suppress(UsageError):  # the run was deleted, which does not undo that somebody looked
        run = store.run(name)
        return run if run.id == name else None
    return None
