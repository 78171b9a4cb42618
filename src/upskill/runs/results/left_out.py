"""Left out: what someone has seen and a later look lacks, although it has other cases or results of the same run.

It still counts: leaving out what did not fit would choose the result. A case that is gone counts however the others
were drawn, as an easy case stays easy. A result that is gone counts where others were kept.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain

from upskill.errors import UsageError
from upskill.plain import digest
from upskill.runs.planning.plan import BOTH_ARMS, Plan
from upskill.runs.planning.stored_plan import StoredPlan
from upskill.runs.stores import Look, Run, Store
from upskill.verdicts.outcome import Outcome

IN_RUN = " in run "  # between the id of a case that is gone and the run that had it
HASH = 10  # characters of the hash of a trial in a look, of which the last says whether it passed


def results_left_out(
    store: Store,
    look: Look,
    earlier: Sequence[Look],
    others: Sequence[Look],
    gone: Sequence[tuple[Look, Collection[str]]],
    reference: str | None,
) -> tuple[Outcome, ...] | None:
    """Of the `earlier` looks at this skill, and of `others` of the same model. None: they are not stored any more.

    `gone`: looks at this skill with the cases that this look lacks, oldest first. `reference`: in its baseline.
    """
    left_out: dict[tuple[str, str, int], Outcome] = {}
    for rows in _results_of_cases(store, gone, reference).values():
        left_out.update({(row.case, row.arm, row.seed): row for row in rows})
    gone_from = {each.run: cases for each, cases in gone}
    for each in earlier:
        same_version = each.skill_hash == look.skill_hash
        fewer = 0 if same_version else _rounds_gone(each, look)
        cases = cases_left_out(each, look, fewer=fewer).difference(gone_from[each.run])
        if (rows := _rows_gone(store, each, look, cases)) is None:
            return None
        ids = {identity: case for case, identity in look.cases.items()} if same_version else {}
        for row in rows:
            identity = each.cases.get(row.case, row.case)
            name = ids.get(
                identity, f"{identity} {each.skill_hash}"
            )  # further repeats, or a case of its own
            left_out.setdefault((name, row.arm, row.seed), replace(row, case=name))
    for each in others:
        # Another skill had the same baseline: of a case that was left out for it, this skill counts as failing.
        cases = cases_left_out(each, look, "baseline", fewer=_rounds_gone(each, look))
        rows = [row for row in _rows_gone(store, each, look, cases) or () if row.arm == "baseline"]
        for row in chain.from_iterable(_both_arms([row]) for row in rows):
            name = each.cases.get(row.case, row.case)
            left_out.setdefault((name, row.arm, row.seed), replace(row, case=name))
    return tuple(left_out.values())


def _results_of_cases(
    store: Store, gone: Iterable[tuple[Look, Collection[str]]], reference: str | None
) -> dict[str, list[Outcome]]:
    """Of each case that is gone, by what it asked: all that someone saw of it, each pair once, as a case of its own."""
    names, pairs = dict[str, str](), dict[str, dict[object, list[Outcome]]]()
    for each, cases in {(each.run, each.model): (each, cases) for each, cases in gone}.values():
        for case in sorted(cases):
            asked = each.cases[case].partition("-")[0]
            for pair in _pairs_seen(store, each, case, reference):
                names[asked] = f"{case}{IN_RUN}{each.run}"
                draw = (each.skill_hash, *((row.seed, row.answer, row.passed) for row in pair))
                pairs.setdefault(asked, {})[draw] = pair
    return {
        asked: [
            replace(row, case=names[asked], seed=number)
            for number, pair in enumerate(seen.values())
            for row in pair
        ]
        for asked, seen in pairs.items()
    }


def _pairs_seen(
    store: Store, before: Look, case: str, reference: str | None
) -> list[list[Outcome]]:
    """Each with the arms that were scored. An arm with another reference skill is no baseline."""
    if stored := stored_run(store, before.run):
        rows = [
            row
            for row in store.outcomes(stored, case)
            if row.model == before.model and row.passed is not None
        ]
    else:  # the look itself says what passed
        unknown = Outcome(before.model, case, "baseline", before.seed, True, 0, 0, None)
        rows = [
            replace(unknown, arm=arm, seed=seed, passed=passed == "1")
            for arm, texts in before.hashes.items()
            for seed, passed in enumerate(texts.get(case, "")[HASH - 1 :: HASH], before.seed)
        ] or [unknown]
    arms = BOTH_ARMS if stored is None or stored.plan.reference_skill == reference else ("skill",)
    pairs: dict[int, list[Outcome]] = {}
    for row in rows:
        if row.arm in arms:
            pairs.setdefault(row.seed, []).append(row)
    return list(pairs.values())


def _both_arms(rows: Iterable[Outcome]) -> list[Outcome]:
    """The results of a pair. What was not run in an arm counts against the skill."""
    by_arm = {row.arm: row for row in rows}
    one = next(by_arm[arm] for arm in BOTH_ARMS if arm in by_arm)
    return [by_arm.get(arm) or replace(one, arm=arm, passed=arm == "baseline") for arm in BOTH_ARMS]


def _rounds_gone(before: Look, now: Look) -> int:
    """How many rounds this look has fewer. Nobody chose them by their results: fewer were planned, or fewer decided."""
    rounds = [
        max((len(text) for texts in each.hashes.values() for text in texts.values()), default=0)
        // HASH
        for each in (before, now)
    ]
    return max(len({*before.seeds} - {*now.seeds}), rounds[0] - rounds[1])


def cases_left_out(before: Look, now: Look, *arms: str, fewer: int = 0) -> set[str]:
    """The cases of an earlier look whose results are not all in this one, while it has some of that look.

    `fewer`: how many results of a case may be gone.
    """
    here, cases = _all_drawn(now), set[str]()
    for arm, texts in before.hashes.items() if not now.fresh else ():
        gone = {
            case: sum(drawn not in here for drawn in _drawn(text)) for case, text in texts.items()
        }
        if (not arms or arm in arms) and any(
            gone[case] < len(text) // HASH for case, text in texts.items()
        ):
            cases.update(case for case, count in gone.items() if count > fewer)
    return cases


def _drawn(hashes: str) -> list[str]:
    """What was drawn for each trial, whatever checks said of it."""
    return [hashes[start : start + HASH - 1] for start in range(0, len(hashes), HASH)]


def _all_drawn(look: Look) -> set[str]:
    return {
        drawn for texts in look.hashes.values() for text in texts.values() for drawn in _drawn(text)
    }


def hash_of_draw(
    plan: Plan | StoredPlan, skill_hash: str, cases: Mapping[str, str], row: Outcome
) -> str:
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
        scored = (
            row
            for row in store.outcomes(stored, case)
            if row.model == before.model and row.passed is not None
        )
        rows += [
            row
            for row in scored
            if hash_of_draw(stored.plan, before.skill_hash, before.cases, row) not in here
        ]
    return rows


def stored_run(store: Store, name: str) -> Run | None:
    with suppress(UsageError):  # the run was deleted, which does not undo that somebody looked
        run = store.run(name)
        return run if run.id == name else None
    return None
