"""The Evaluation of a stored run: all that reports show, read back from the store, as it was computed when it ran."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from upskill.agents import Bounds
from upskill.errors import UsageError
from upskill.models import Address
from upskill.runs.planning.plan import Plan, Result
from upskill.runs.planning.preregistration import Registration
from upskill.runs.results.evaluation import Evaluation
from upskill.runs.results.feedback import agreement_with_people
from upskill.runs.results.looks import known_looks, looks_before, make_look
from upskill.runs.results.snapshots import mixed_snapshots
from upskill.runs.stores import Look, Page, Run, RunStore
from upskill.skills import Skill, SkillFile
from upskill.suites import Case, Suite
from upskill.suites.part import Part
from upskill.verdicts.outcome import Scope
from upskill.verdicts.requirements import parse_requirement

MOST_BUGS = 1000  # that are kept with their tracebacks


def evaluation_of(store: RunStore, run: Run, plan: Plan | None = None) -> Evaluation:
    """Everything that can be said of a run, under the settings that it was last evaluated with.

    `plan` is the one that was carried out; without it, what the store keeps of it.
    """
    plan = plan or plan_of(run)
    analysis: Mapping[str, Any] = run.plan.get("analysis") or {}
    scope: Scope | None = run.plan.get("scope")
    margin: float = run.plan.get("margin", 0.05)
    halted: str = analysis.get("halted", "")
    outcomes, snapshots = list(store.outcomes(run)), store.snapshots(run)
    known = known_looks(store, run, carried_out=not halted)
    registration = analysis.get("registration")
    evaluation = Evaluation(
        plan,
        store.run(run.id),
        outcomes,
        store.errors(run),
        store.spent(run),
        stopped=dict(analysis.get("stopped", {})),
        margin=margin,
        making_cost=analysis.get("making_cost"),
        making_source=analysis.get("making_source", ""),
        target=analysis.get("target"),
        requirements=[parse_requirement(text) for text in analysis.get("requirements", ())],
        scope=scope,
        registration=Registration(**registration, plan={}) if registration and not halted else None,
        snapshots=snapshots,
        halted=halted,
        warnings=list(dict.fromkeys([*mixed_snapshots(snapshots), *analysis.get("warnings", ())])),
        invalid=store.leaks(run),
        bugs=list(islice(store.bugs(run), MOST_BUGS)),
        people=agreement_with_people(store, run),
    )
    evaluation.looks = {
        model: looks_before(known, look_at(store, evaluation, model)) for model in evaluation.plan.addresses
    }
    return evaluation


def first_results(store: RunStore, run: Run, seeds: int) -> Iterator[Result]:
    """The results of the first so many seeds of each case, without a look at the others."""
    page = Page(seeds * len(run.plan["arms"]))
    for case in run.plan["suite"]["cases"]:
        for model in run.models:
            yield from store.results(run, case["id"], model, page=page)


def look_at(store: RunStore, evaluation: Evaluation, model: str) -> Look:
    """The look that reading an evaluation is: the stored one where somebody has seen the same before."""
    run, rows = evaluation.run, evaluation.outcomes_of(model)
    look = make_look(evaluation.plan, run, rows, model, evaluation.margin, evaluation.scope)
    stored = (each for each in store.looks_at(run.id) if each.identity == look.identity)
    return next(stored, replace(look, skill_hash=run.plan["skill"]["visible_hash"]))


def plan_of(run: Run) -> Plan:
    """The plan of a run as far as it is stored: of the skill its text and provenance, of an older one nothing."""
    said = run.plan
    suite, bounds = said["suite"], said.get("bounds")
    known = {key: suite[key] for key in ("cases", "max_output_tokens") if key in suite}
    try:
        read = Suite.parse(known, suite.get("source", ""))
    except UsageError:  # a kind of check that is not installed here
        read = Suite(tuple(map(_case_without_checks, suite["cases"])), suite.get("source", ""))
    part = suite.get("part")
    plan = Plan(
        _skill_of(said["skill"]),
        replace(read, part=Part(**part) if part else None),
        tuple(Address(**model) for model in said["models"]),
        arms=tuple(said["arms"]),
        runs=said["runs"],
        seed=said.get("seed", 0),
        agent=said.get("agent", "chat"),
        temperature=said.get("temperature"),
        max_output_tokens=said["max_output_tokens"],
        limit_is_stated=said.get("limit_is_stated", False),
        judge=Address(**said["judge"]) if said.get("judge") else None,
        reference_skill=Skill("", "", "", {}, ()) if said.get("reference_skill") else None,
        bounds=Bounds(**bounds) if bounds else Bounds(),
    )
    vars(plan)["twins"] = dict(said.get("twins", {}))  # as they were found then
    return plan


def _skill_of(said: Mapping[str, Any]) -> Skill:
    files = (SkillFile("skill_meta.json", said["meta"].encode("utf-8")),) if said.get("meta") else ()
    hashes = said.get("fingerprint", ""), said.get("visible_hash", "")
    return _StoredSkill(said["name"], said.get("description", ""), said.get("body", ""), {}, files, hashes=hashes)


@dataclass(frozen=True)
class _StoredSkill(Skill):
    """What a store keeps of a skill. Its hashes are those of the files that it had."""

    hashes: tuple[str, str] = ("", "")

    @property
    def fingerprint(self) -> str:
        return self.hashes[0]

    @property
    def visible_hash(self) -> str:
        return self.hashes[1]


def _case_without_checks(said: Mapping[str, Any]) -> Case:
    return Case(
        str(said["id"]), str(said["prompt"]), (), tags=tuple(said.get("tags", ())), held_out=bool(said.get("held_out"))
    )
