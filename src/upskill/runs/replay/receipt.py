"""A receipt: the verdicts on a skill, kept in its folder with the answers they were computed from.

`verify` needs no model. It compares every file, grades the recorded answers again and recomputes everything that
follows from them. This proves that the numbers follow from the answers, the checks and the skill, not that a model
really gave these answers. The digest finds accidents; whoever writes a receipt can write its digest, so what follows
from nothing else (`Claims`) is only the author's word.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from upskill.errors import UsageError
from upskill.inputs import read_input
from upskill.models import ModelContext
from upskill.models.addresses import identity_of
from upskill.models.cassette import Cassette
from upskill.models.pool import Models
from upskill.outputs import whole_file
from upskill.plain import as_mapping, canonical, counted, dict_or_empty, listed, load_json
from upskill.runs.planning.plan import Plan, PlanOptions, make_plan
from upskill.runs.replay.replay import as_recorded, plan_from
from upskill.runs.replay.replies import export_replies, model_row, recorded_names
from upskill.runs.results.evaluation import Evaluation
from upskill.runs.running.trial import run_trial
from upskill.runs.stores import Store, open_store
from upskill.runs.stores.rows import timestamp
from upskill.skills import BADGE, CARD, RECEIPT, REPLIES, Skill, SkillFile
from upskill.skills.seen import without_seen
from upskill.suites import Suite
from upskill.suites.suite import PATHS_IN_SKILL
from upskill.verdicts import TOLERANCE
from upskill.verdicts.outcome import Outcome
from upskill.verdicts.verdict import Verdict
from upskill.version import __version__

FORMAT, VERSION = "upskill-receipt", 2
AT_ONCE = 8  # trials that are graded
MAX_BYTES = 20_000_000
# Of a verdict, what does not follow from the answers: prices change, and so do the words of advice.
DOES_NOT_FOLLOW = (
    "caveats",
    "add",
    "cost_per_pass",
    "break_even",
    "cost_usd",
    "baseline",
    "skill",
)
MUST_SAY = ("model", "decision", "about", "lift", "interval")  # of a verdict
SETTINGS = ("agent", "runs", "seed", "temperature", "max_output_tokens")


@dataclass(frozen=True)
class Claims:
    """What nobody can compute again."""

    models: list[str]  # that gave the answers
    date: str
    seen: int  # cases of which a result had been shown with another text of the skill
    cost_usd: float | None

    @classmethod
    def of(cls, receipt: Mapping[str, Any]) -> Claims:
        costs = list(receipt["cost_usd"].values())
        return cls(
            [model["name"] for model in receipt["models"]],
            receipt["date"],
            len(receipt["seen"]),
            None if None in costs else sum(costs),
        )


@dataclass(frozen=True)
class Verified:
    """The result of verifying a receipt."""

    receipt: Mapping[str, Any]
    changes: list[str] = field(default_factory=list[str])  # what is not as it was, in words
    evaluation: Evaluation | None = None  # of the recorded answers; None: that was impossible

    @property
    def verdicts(self) -> list[Verdict]:
        """Computed anew."""
        return self.evaluation.verdicts if self.evaluation else []

    @property
    def holds(self) -> bool:
        return not self.changes

    @property
    def claims(self) -> Claims:
        return Claims.of(self.receipt)


def terms_of(receipt: Mapping[str, Any]) -> str:
    """What its verdicts rest on beside the usual, in words."""
    tolerance = dict_or_empty(receipt.get("settings")).get("tolerance")
    if not isinstance(tolerance, int | float) or tolerance == TOLERANCE:
        return ""
    return f"with a tolerance of {100 * tolerance:g} points"


def suite_of(skill: Skill, receipt: Mapping[str, Any]) -> str:
    """How many cases of which suite, in words."""
    suite = dict_or_empty(receipt.get("suite"))
    own = next((path for path in PATHS_IN_SKILL if skill.read(path) is not None), "")
    file = str(suite.get("file") or own)
    is_own = "" if file == own else ", not the skill's own suite"
    return f"{counted(len(dict_or_empty(suite.get('cases'))), 'case')} from {file}{is_own}"


def write_receipt(evaluation: Evaluation, store: Store) -> Path:
    """Write the receipt and the answers of a run into the folder of its skill. UsageError where that proves nothing."""
    plan, run = evaluation.plan, evaluation.run
    folder = plan.skill.folder
    if folder is None:
        raise UsageError(
            f"{plan.skill.name}: this skill has no folder for a receipt", "Save the skill first."
        )
    if evaluation.has_failed or evaluation.halted or evaluation.unfinished:
        raise UsageError(
            f"{run.id}: the run is not complete, so it cannot have a receipt",
            "Finish the run first.",
        )
    if plan.reference_skill or plan.distractors or plan.suite.part:
        raise UsageError(
            f"{run.id}: a receipt must cover a whole suite, with and without one skill",
            "Drop --against, --with-skills and options that select cases.",
        )
    replies = folder / REPLIES
    exported = export_replies(store, run, replies)
    suite = Path(plan.suite.source)
    names = dict(
        zip(plan.addresses, recorded_names(plan.models), strict=True)
    )  # without paths on this machine
    content: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "upskill": __version__,
        "date": timestamp()[:10],
        "run": run.id,
        "skill": {
            "name": plan.skill.name,
            "visible_hash": plan.skill.visible_hash,
            "tokens": plan.skill.tokens,
            "files": dict(_hashes(Skill.load(folder).files)),
        },
        "suite": {
            "file": Path(os.path.relpath(suite, folder)).as_posix() if suite.is_file() else "",
            "fingerprint": plan.suite.fingerprint,
            "cases": {case.id: case.fingerprint for case in plan.suite.cases},
            "held_out": len(plan.suite.held_out),
        },
        "models": [
            {"identity": identity_of(address)} | model_row(address, names[address.name])
            for address in plan.models
        ],
        "judge": plan.judge.name if plan.judge else None,
        "settings": {
            **{name: getattr(plan, name) for name in SETTINGS},
            "arms": plan.arms,
            "bounds": asdict(plan.bounds),
            "tolerance": run.plan.tolerance,
            "in_rounds": run.plan.in_rounds,
            "rounds": {names[model]: rounds for model, rounds in run.plan.rounds.items()},
            "sandbox": run.plan.sandbox,
        },
        "seen": sorted(plan.suite.by_id.keys() - run.plan.fresh),
        "verdicts": [
            verdict.to_dict() | {"model": names[verdict.model]} for verdict in evaluation.verdicts
        ],
        "cost_usd": {role: cost for role, (_, cost) in evaluation.spent.items()},
        "replies": {"file": REPLIES, "trials": exported.trials, "replies": exported.replies}
        | {"sha256": hashlib.sha256(replies.read_bytes()).hexdigest()},
    }
    content["digest"] = _digest(content)
    path = folder / RECEIPT
    with whole_file(path) as file:
        file.write(_render(content))
    return path


def _render(content: Mapping[str, Any]) -> bytes:
    return (json.dumps(content, indent=1) + "\n").encode()


def _hashes(files: tuple[SkillFile, ...]) -> Iterator[tuple[str, str]]:
    for file in filter(None, map(without_seen, files)):
        if file.path not in (RECEIPT, REPLIES, BADGE, CARD):
            kind = "link" if file.link else "run" if file.executable else "file"
            yield (
                file.path,
                f"{kind} {hashlib.sha256(file.link.encode() if file.link else file.data).hexdigest()}",
            )


def _digest(content: Mapping[str, Any]) -> str:
    kept = {name: value for name, value in content.items() if name != "digest"}
    return hashlib.sha256(canonical(json.loads(json.dumps(kept))).encode()).hexdigest()


def read_receipt(skill: Skill) -> dict[str, Any]:
    """UsageError if the skill has none, or none that can be read."""
    where = skill.folder / RECEIPT if skill.folder else Path(RECEIPT)
    if not where.is_file():
        hint = (
            f"Run `upskill eval {skill.folder} --receipt` to write one. It reuses stored answers."
        )
        raise UsageError(f"{skill.name}: no receipt ({RECEIPT})", hint)
    try:
        content = as_mapping(load_json(read_input(where, most=MAX_BYTES)))
    except ValueError as error:
        raise UsageError(
            f"{where}: cannot be read: {error}", "Restore it, or write a new one with `--receipt`."
        ) from error
    if content is None or content.get("format") != FORMAT or content.get("version") != VERSION:
        raise UsageError(
            f"{where}: not a receipt that this version can read",
            "Write a new one with `--receipt`.",
        )
    return content


async def verify(skill: Skill) -> Verified:
    """Check everything a receipt says: files, grades and verdicts."""
    receipt = read_receipt(skill)
    is_as_written = receipt.get("digest") == _digest(receipt) and skill.read(RECEIPT) == _render(
        receipt
    )
    changes = [] if is_as_written else [f"{RECEIPT}: edited"]
    changes += _changed_files(skill, receipt)
    # What was edited cannot be relied on, and nobody has answered with a skill that is another one now.
    is_other = skill.visible_hash != dict_or_empty(receipt.get("skill")).get("visible_hash")
    if is_other or any(change.startswith((RECEIPT, REPLIES)) for change in changes):
        return Verified(receipt, changes or ["skill: what students see has changed"])
    try:
        suite = _suite(skill, receipt)
        cassette = Cassette(cast("Path", skill.folder) / REPLIES)
    except UsageError as error:
        return Verified(receipt, [*changes, error.message])
    was = receipt["suite"]["cases"]
    cases = {case.id: case.fingerprint for case in suite.cases}
    for case in sorted(was.keys() | cases.keys()):
        if was.get(case) != cases.get(case):
            what = (
                "is new" if case not in was else "is gone" if case not in cases else "has changed"
            )
            changes.append(f"suite: case {case!r} {what}")
    try:
        evaluation = await _grade_again(skill, suite, cassette, receipt)
        changes += [
            *_other_facts(evaluation.plan, cassette, receipt),
            *_missing_answers(evaluation),
            *_differences(evaluation.verdicts, receipt),
        ]
    except UsageError as error:
        return Verified(receipt, [*changes, error.message])
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        return Verified(receipt, [*changes, f"{RECEIPT}: edited ({error!r})"])
    finally:
        cassette.close()
    return Verified(receipt, changes, evaluation)


def _other_facts(plan: Plan, cassette: Cassette, receipt: Mapping[str, Any]) -> Iterator[str]:
    """What the receipt says of the run beside its verdicts, and the recorded answers do not."""
    recorded, settings = cassette.settings, receipt["settings"]
    same_suite = plan.suite.fingerprint == receipt["suite"]["fingerprint"]
    facts: dict[str, tuple[object, object]] = {
        "run": (receipt["run"], recorded.run),
        "skill.name": (receipt["skill"]["name"], plan.skill.name),
        "skill.tokens": (receipt["skill"]["tokens"], plan.skill.tokens),
        "models": (
            [_address(model) for model in receipt["models"]],
            [asdict(each) for each in cassette.students],
        ),
        "replies.file": (receipt["replies"]["file"], REPLIES),
        "judge": (receipt["judge"], plan.judge.name if plan.judge else None),
        "settings.arms": (settings["arms"], list(recorded.arms)),
        "settings.bounds": (settings["bounds"], dict(recorded.bounds)),
        "replies.trials": (receipt["replies"]["trials"], cassette.trials),
        "replies.replies": (receipt["replies"]["replies"], cassette.replies),
        **{f"settings.{name}": (settings[name], getattr(recorded, name)) for name in SETTINGS},
    }
    if same_suite:  # else its cases were named
        facts["suite.held_out"] = (receipt["suite"]["held_out"], len(plan.suite.held_out))
    elif receipt["suite"]["cases"] == {case.id: case.fingerprint for case in plan.suite.cases}:
        facts["suite.fingerprint"] = (receipt["suite"]["fingerprint"], plan.suite.fingerprint)
    for name, (said, known) in facts.items():
        if said != known:
            yield f"{RECEIPT}: {name} is {said}, but should be {known}"


def _address(model: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in model.items() if name != "identity"} | {"base_url": ""}


def _missing_answers(evaluation: Evaluation) -> Iterator[str]:
    """Who leaves answers out chooses the number."""
    seen = {(row.model, row.case, row.arm, row.seed) for row in evaluation.outcomes}
    missing = sum(
        (trial.model, trial.case, trial.arm, trial.seed) not in seen
        for trial in evaluation.plan.trials()
    )
    if missing:
        yield f"{REPLIES}: the answers from {counted(missing, 'trial')} are missing"


def _changed_files(skill: Skill, receipt: Mapping[str, Any]) -> Iterator[str]:
    was, now = (
        dict_or_empty(dict_or_empty(receipt.get("skill")).get("files")),
        dict(_hashes(skill.files)),
    )
    for path in sorted(was.keys() | now.keys()):
        if was.get(path) != now.get(path):
            what = (
                "was added"
                if path not in was
                else "is missing"
                if path not in now
                else "has changed"
            )
            yield f"{'suite' if path.startswith('evals/') else 'skill'}: {path} {what}"
    replies = skill.read(REPLIES)
    if replies is None:
        yield f"{REPLIES}: missing"
    elif hashlib.sha256(replies).hexdigest() != dict_or_empty(receipt.get("replies")).get("sha256"):
        yield f"{REPLIES}: the recorded answers have changed"


def _suite(skill: Skill, receipt: Mapping[str, Any]) -> Suite:
    file = receipt["suite"]["file"]
    suite = Suite.load(cast("Path", skill.folder) / file) if file else Suite.of(skill)
    if suite is None:
        raise UsageError("suite: missing")
    return suite


async def _grade_again(
    skill: Skill, suite: Suite, cassette: Cassette, receipt: Mapping[str, Any]
) -> Evaluation:
    settings = receipt["settings"]
    options = PlanOptions(runs=cassette.settings.runs, keys={})
    plan = make_plan(skill, suite, cassette.students, as_recorded(options, cassette, suite))
    plan = replace(plan_from(plan, cassette), rounds=settings["rounds"])
    with open_store(None) as store:
        run, _ = store.start_run(plan, __version__)
        run = store.annotate(
            run,
            tolerance=settings["tolerance"],
            in_rounds=settings["in_rounds"],
            seen=dict.fromkeys(receipt["seen"], ""),
        )
        models = Models(ModelContext(), replies=store, cassette=cassette)
        slots = asyncio.Semaphore(AT_ONCE)

        async def grade(trial: Any) -> Outcome:
            async with slots:
                return (await run_trial(plan, trial, models)).outcome

        recorded = [
            trial
            for trial in plan.trials()
            if cassette.trial(trial.model, trial.case, trial.arm, trial.seed)
        ]
        async with models:
            outcomes = list(await asyncio.gather(*map(grade, recorded)))
    return Evaluation(plan, run, outcomes, [], {})


def _unlike(now: Mapping[str, Any], was: Mapping[str, Any]) -> list[str]:
    """Other versions of upskill may know more."""
    return [
        name
        for name in now
        if name in was and name not in DOES_NOT_FOLLOW and now[name] != was[name]
    ]


def _differences(verdicts: list[Verdict], receipt: Mapping[str, Any]) -> Iterator[str]:
    for verdict, was in zip(verdicts, receipt["verdicts"], strict=False):
        if missing := [name for name in MUST_SAY if name not in was]:
            yield f"{RECEIPT}: edited (a verdict without {listed(missing)})"
        now = json.loads(json.dumps(verdict.to_dict()))
        for arm in ("baseline", "skill"):
            if _unlike(now[arm], was[arm]):
                passed = f"{was[arm]['passed']} of {was[arm]['passed'] + was[arm]['failed']}"
                scored = now[arm]["passed"] + now[arm]["failed"]
                missing = ""
                if now[arm]["missing"]:
                    missing = f", {counted(now[arm]['missing'], 'trial')} missing"
                yield f"{verdict.model}, {arm}: {passed} passed, now {now[arm]['passed']} of {scored}{missing}"
        if different := _unlike(now, was):
            values = "; ".join(f"{name} was {was[name]}, now {now[name]}" for name in different[:3])
            yield f"{verdict.model}: {values}"
    if len(verdicts) != len(receipt["verdicts"]):
        yield f"the receipt has verdicts for {len(receipt['verdicts'])} models, but answers from {len(verdicts)}"
