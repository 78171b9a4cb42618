"""Looks: how often someone has seen what a skill does on these cases, and what was edited in between.

Other flags, other seeds, other versions of the skill, more cases or more results make another look; the same results
shown again the same way do not. Comparisons of a search on its train cases do not count as looks.
"""

from __future__ import annotations

import getpass
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

from upskill.errors import UsageError
from upskill.models.addresses import resolve
from upskill.models.embedded.local_models import DEFAULT_LOCAL_MODEL, LOCAL_MODELS
from upskill.plain import digest
from upskill.runs.planning.plan import Plan
from upskill.runs.planning.stored_plan import StoredPlan
from upskill.runs.results.left_out import IN_RUN, hash_of_draw, results_left_out, stored_run
from upskill.runs.stores import Look, Run, Store
from upskill.runs.stores.rows import timestamp
from upskill.skills.changes import is_version
from upskill.suites.near_duplicates import (
    alike,
    case_identity,
    plain_text,
    shared_cases,
    telling_words,
)
from upskill.verdicts.outcome import Outcome
from upskill.version import __version__

LITTLE = 0.1  # of its cases: an unfinished run with no more pairs of results than this is no look
MAX_HASHES = 20_000  # trials of a model in a look; the results of larger runs are not used again


@dataclass(frozen=True, slots=True)
class Looks:
    """The looks before this one: of the same model, at any version of the skill, on some of the same cases."""

    earlier: tuple[Look, ...] = ()  # oldest first
    edited: int = 0  # cases that the first of them had, with other words or other checks
    added: int = 0  # cases that the first of them did not have
    removed: int = 0  # cases that only the first of them had
    revisions: int = 0  # of the `earlier`, those at other versions of the skill
    version: int = (
        1  # which of the versions this one is, in the order in which they were first looked at
    )
    logged: bool = True  # False: the store forgets this look, so none after it allows for it
    # Results that somebody has seen and that are gone from this look, while it has others of the same run, and those of
    # cases that are gone. None: not stored.
    left_out: tuple[Outcome, ...] | None = ()

    @property
    def number(self) -> int:
        return len(self.earlier) + 1

    @property
    def cases_left_out(self) -> list[tuple[str, str]]:
        """The cases that are gone, each with the last run that had it."""
        names = dict.fromkeys(row.case.rpartition(IN_RUN) for row in self.left_out or ())
        return [(case, run) for case, sign, run in names if sign]


def _had_case(_: Look, shares_case: bool) -> bool:
    return shares_case


def looks_before(
    known: Sequence[Look],
    look: Look,
    counts: Callable[[Look, bool], bool] = _had_case,
    *,
    logged: bool = True,
) -> Looks:
    """`counts`: whether a look is at a version of the same skill on some of the same cases, if it had any of them."""
    shown = _results_shown(look)
    stored = next(
        (
            each.number
            for each in known
            if each.identity == look.identity
            or (shown and _results_shown(replace(each, fresh=False)) == shown)
        ),
        None,
    )
    model = model_identity(look.model)
    earlier = tuple(
        each
        for each in _without_repeats(known)
        if (stored is None or each.number < stored)
        # The test of `--until-decided` itself allows for looks after each round.
        and not (
            look.scope
            and (each.run, each.scope, each.margin) == (look.run, look.scope, look.margin)
        )
        and model_identity(each.model) == model
        and counts(each, bool(shared_cases(each.cases, look.cases)))
    )
    versions = list(dict.fromkeys([*(each.skill_hash for each in earlier), look.skill_hash]))
    first = earlier[0] if earlier else look
    renamed = len(shared_cases(first.cases, look.cases) - first.cases.keys())
    return Looks(
        earlier,
        edited=sum(first.cases.get(case, hashed) != hashed for case, hashed in look.cases.items()),
        added=len(look.cases.keys() - first.cases.keys()) - renamed,
        removed=max(0, len(first.cases.keys() - look.cases.keys()) - renamed),
        revisions=sum(each.skill_hash != look.skill_hash for each in earlier),
        version=versions.index(look.skill_hash) + 1,
        logged=logged,
    )


def _results_shown(look: Look) -> tuple[object, ...] | None:
    """Equal where the same results were shown in the same way, in whichever runs. None: there may be no others."""
    if look.fresh or not look.hashes:
        return None
    return (
        look.model,
        look.margin,
        look.scope,
        look.skill_hash,
        *sorted(look.cases.values()),
        digest(look.hashes),
    )


def _without_repeats(known: Iterable[Look]) -> Iterator[Look]:
    seen = set[object]()
    for each in known:
        shown = _results_shown(replace(each, fresh=False))
        if each.fresh or shown is None or shown not in seen:
            yield each
        seen.add(shown)


# An edit that a student cannot tell from none makes neither another skill nor another case. What a store keeps trials
# under is stricter: there every byte counts.


def version_of(plan: Plan) -> str:
    """A hash of what the student reads of a skill: its body; for agents that act, also its description and files."""
    skill = plan.skill
    if not plan.acts:
        return digest(plain_text(skill.body))
    files = {
        path: plain_text((skill.read(path) or b"").decode("utf-8", "replace"))
        for path in skill.resources
    }
    return digest([plain_text(skill.description), plain_text(skill.body), files])


def model_identity(name: str) -> str:
    """The same for all names of a model: an alias, or with and without who serves it."""
    try:
        address = resolve(name)
    except UsageError:  # the name that a server of one's own has for it
        return name
    if address.provider == "scripted":
        return str(Path(address.model).resolve())
    model = address.model or (
        DEFAULT_LOCAL_MODEL if address.provider == "local" else address.endpoint
    )
    files = {local.file: name for name, local in LOCAL_MODELS.items()}
    model = files.get(Path(model).name, model)
    return f"{model.rpartition('/')[2]}{address.effort and '.'}{address.effort}"


def make_look(plan: Plan, run: Run, rows: Sequence[Outcome], model: str, version: str = "") -> Look:
    skill_hash = version or version_of(plan)
    cases = {case.id: case_identity(case) for case in plan.suite.cases}
    hashes: dict[str, dict[str, str]] = {}
    for row in rows if len(rows) <= MAX_HASHES else ():
        if row.passed is not None:
            of_arm = hashes.setdefault(row.arm, {})
            drawn = hash_of_draw(plan, skill_hash, cases, row)
            of_arm[row.case] = f"{of_arm.get(row.case, '')}{drawn}{row.passed:d}"
    return Look(
        run=run.id,
        model=model,
        skill=plan.skill.name,
        skill_hash=skill_hash,
        suite=plan.suite.source,
        suite_fingerprint=plan.suite.fingerprint,
        cases=cases,
        runs=plan.runs,
        seed=plan.seed,
        margin=run.plan.margin,
        scope=run.plan.scope or "",
        trials=sum(row.passed is not None for row in rows),
        version=__version__,
        hashes=hashes,
        fresh=run.plan.drawn_anew,
        asked=timestamp(),
        asked_by=_user_name(),
    )


def looks_of(store: Store, run: Run, look: Look) -> Looks:
    """The looks that the interval of this one has to allow for."""
    run_of = cache(partial(stored_run, store))

    def plan_of(name: str) -> StoredPlan | None:
        stored = run_of(name)
        return stored and stored.plan

    def counts(other: Look, shares_case: bool) -> bool:
        if other.skill != look.skill:
            plan = plan_of(other.run)
            if plan is None or not is_version(plan.skill.body, run.plan.skill.body):
                return False
        return shares_case or bool(_reworded_cases(run.plan, plan_of(other.run)))

    known = [each for each in store.looks() if not _is_of_recorded(store, run, each)]

    def gone(before: Look) -> set[str]:
        return _cases_gone(before, look, lambda: _reworded_cases(run.plan, plan_of(before.run)))

    unreported = list(_unreported_looks(store, run, look))
    unfinished = [each for each, is_unfinished in unreported if is_unfinished]
    readable = [
        each for each, _ in unreported if counts(each, bool(shared_cases(each.cases, look.cases)))
    ]
    seen = [each for each in readable if each in unfinished and _tells_something(each)]
    looks = looks_before(known, look, counts, logged=store.location is not None)
    looks = replace(looks, earlier=(*looks.earlier, *seen))
    model, counted_runs = (
        model_identity(look.model),
        {run.id, *(each.run for each in looks.earlier)},
    )
    others = [
        each
        for each in (*known, *unfinished)
        if each.run not in counted_runs and model_identity(each.model) == model
    ]
    gone_cases = [(each, gone(each)) for each in (*readable, *looks.earlier)]
    return replace(
        looks,
        left_out=results_left_out(
            store, look, looks.earlier, others, gone_cases, run.plan.reference_skill
        ),
    )


def _unreported_looks(store: Store, run: Run, look: Look) -> Iterator[tuple[Look, bool]]:
    """Runs begun before this look of which no verdict was shown, as looks: their answers could be read one by one.

    With each, whether it was left unfinished. The others are those that a search or `recheck` compares by itself.
    """
    model, kept = model_identity(look.model), {*look.cases.values()}
    until = next(
        (each.asked for each in store.looks_at(run.id) if each.model == look.model and each.asked),
        look.asked,
    )
    for other in store.unreported_runs(run, until):
        is_unfinished = (
            other.plan.analysis.reported is not False and other.passed + other.failed < other.trials
        )
        plan = other.plan.to_plan()
        if not is_unfinished and all(case_identity(case) in kept for case in plan.suite.cases):
            continue  # a search has many of these
        for name in other.models:
            if model_identity(name) == model:
                rows = [row for row in store.outcomes(other) if row.model == name]
                is_same = other.plan.skill.visible_hash == run.plan.skill.visible_hash
                version = look.skill_hash if is_same else ""
                yield (
                    replace(make_look(plan, other, rows, name, version), asked=other.created),
                    is_unfinished,
                )


def _tells_something(unfinished: Look) -> bool:
    """Whether someone could read in it how more than a few cases came out, and choose another run by that."""
    arms = [*unfinished.hashes.values()]
    pairs = sum(all(case in arm for arm in arms) for case in unfinished.cases)
    return len(arms) > 1 and pairs > LITTLE * len(unfinished.cases)


def _cases_gone(before: Look, now: Look, reworded: Callable[[], set[str]]) -> set[str]:
    """The cases of an earlier look that this one lacks. An edited case is another one, unless all were edited."""
    asked = {hashes.partition("-")[0] for hashes in now.cases.values()}
    gone = {case for case, hashes in before.cases.items() if hashes.partition("-")[0] not in asked}
    if len(gone) < len(before.cases):
        return gone
    checks = {case: hashes.partition("-")[2] for case, hashes in now.cases.items()}
    same_id = {
        case
        for case in gone & checks.keys()
        if before.cases[case].partition("-")[2] in ("", checks[case])
    }
    return gone - same_id - reworded()


def _reworded_cases(plan: StoredPlan, before: StoredPlan | None) -> set[str]:
    """Cases that a case asks nearly the same as now, with a check in common: an id may be made from the words."""
    if before is None:
        return set()
    now = [(telling_words(case.prompt), case.checks) for case in plan.suite.cases]
    return {
        case.id
        for case in before.suite.cases
        for asked, checks in now
        if alike(telling_words(case.prompt), asked)
        and any(check in checks for check in case.checks)
    }


def _is_of_recorded(store: Store, run: Run, look: Look) -> bool:
    """A replay shows nothing new unless checks have changed."""
    name, created = run.plan.replay_of or ("", "")
    if look.run != name or look.suite_fingerprint != run.plan.suite.fingerprint:
        return False
    recorded = next((other for other in store.runs(run.skill) if other.id == name), None)
    return recorded is None or recorded.created == created


def _user_name() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # nobody has this number here, or there are no users
        return ""
