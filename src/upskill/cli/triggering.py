"""How trigger carries out an inquiry: find or write the queries, run them, improve the description, and report."""

from __future__ import annotations

import asyncio
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import RenderableType
from rich.text import Text

from upskill.agents import Bounds
from upskill.authoring.output import check_output, named_after
from upskill.authoring.structured import NoUsableAnswer
from upskill.authoring.trigger import (
    TURNS,
    Improvement,
    Tried,
    check_parts,
    estimate_improvement,
    estimate_runs,
    firings,
    improve,
    make_trigger_plan,
    write_queries,
)
from upskill.cli.console import TrialProgress, note, show, show_json, write_file
from upskill.cli.fired import (
    heading,
    indented,
    percent,
    plain_spent,
    plain_tried,
    plain_troubles,
    rate_table,
    shown_improvement,
    summary_lines,
)
from upskill.cli.options import CommonOptions, choose_students, confirm_cost, model_context
from upskill.errors import UsageError
from upskill.models import Address, CacheMode, ModelContext, Models
from upskill.models.addresses import resolve
from upskill.models.cache import track_keys
from upskill.models.keys import find_keys
from upskill.models.ledger import Ledger
from upskill.models.prices import price_of
from upskill.plain import digest
from upskill.runs.estimate import Estimate, estimate_writing
from upskill.runs.evaluate import RunOptions, evaluate
from upskill.runs.evaluation import Evaluation
from upskill.runs.events import Events
from upskill.runs.executors.local import Local
from upskill.runs.plan import Plan, Result, Trial
from upskill.runs.stores import Run, Store, open_store
from upskill.skills import Skill, load_skills
from upskill.suites.queries import PARTS, PLACES_IN_A_SKILL, Queries
from upskill.verdicts.firing import QUANTITIES, Firing, plain_estimate
from upskill.verdicts.requirements import Requirement, Ruling, check_number, parse_requirement


@dataclass
class TriggerOptions(CommonOptions):
    """What the person asked for."""

    skill: str
    models: tuple[str, ...] = ()
    base_url: str | None = None
    queries: str | None = None
    query_model: str | None = None
    count: int = 20
    runs: int = 3
    with_skills: tuple[str, ...] = ()
    agent: str = "tools"
    sandbox: str = ""
    max_turns: int | None = None
    trial_tokens: int | None = None
    trial_timeout: float | None = None
    improve: bool = False
    teacher: str | None = None
    attempts: int = 5
    write: bool = False
    output: str | None = None
    force: bool = False
    requirements: tuple[str, ...] = ()
    seed: int = 0
    temperature: float | None = None
    max_output_tokens: int | None = None
    fresh: bool = False
    no_cache: bool = False
    replay: bool = False


def run_trigger(inquiry: TriggerOptions) -> None:
    """Run and print. Exits with 3 when too many runs errored, with 1 when a requirement does not hold."""
    asked = _Asked(inquiry)
    with open_store(inquiry.store_place) as store:
        try:
            code = asked.answer(store)
        except KeyboardInterrupt:
            asked.progress.end()
            if store.location is not None:
                note("Interrupted. Every finished run is stored; the same command goes on from there.")
            raise
        finally:
            asked.progress.end()
    if code:
        raise click.exceptions.Exit(code)


class _Asked:
    """One inquiry: everything is looked up and checked when it is made, before anything is paid for."""

    def __init__(self, inquiry: TriggerOptions) -> None:
        self.inquiry = inquiry
        self._check_options()
        self.requirements = [parse_requirement(text, QUANTITIES) for text in inquiry.requirements]
        self.skill = Skill.load(inquiry.skill)
        distractors = load_skills(inquiry.with_skills)
        self.distractors = [
            other for other in distractors if other.folder != self.skill.folder
        ]  # `--with-skills ./skills`
        self.keys = find_keys()
        self.models = choose_students(inquiry.models, inquiry.settings, quiet=inquiry.silent)
        self.queries = Queries.load(inquiry.queries) if inquiry.queries else Queries.of(self.skill)
        self.teacher = self._teacher()
        self.writer = self._writer()
        self.context: ModelContext = model_context(
            inquiry.settings,
            quiet=inquiry.silent,
            offline=inquiry.offline,
            timeout=inquiry.timeout,
            connections=inquiry.concurrency or inquiry.settings.concurrency,
        )
        self.ledger = Ledger(inquiry.ceilings)
        self.executor = Local(inquiry.concurrency or inquiry.settings.concurrency)
        self.progress = _Progress(inquiry)
        if self.queries is not None:
            self._check_queries(self.queries)
        if not self.distractors:
            inquiry.tell("Only this skill is on offer. Among others it has a harder time: add some with --with-skills.")

    def _check_options(self) -> None:
        inquiry = self.inquiry
        if not inquiry.improve:
            wants = {"--teacher": inquiry.teacher, "--write": inquiry.write, "--output": inquiry.output}
            if option := next((option for option, given in wants.items() if given), ""):
                raise UsageError(f"{option} says what to do with a better description", "Look for one with --improve.")
            return
        if inquiry.requirements:
            raise UsageError("--require and --improve contradict each other", "Hold the result to it in a second run.")
        if inquiry.write and inquiry.output:
            raise UsageError("--write and --output contradict each other")
        if len(inquiry.models) > 1:
            raise UsageError("a description is improved for one student at a time", "Give one -m.")
        if inquiry.output:
            check_output(Path(inquiry.output), may_replace=inquiry.force)

    def _teacher(self) -> Address | None:
        inquiry = self.inquiry
        name = inquiry.teacher or inquiry.settings.skill_generation_model
        if not inquiry.improve:
            return None
        if not name:
            raise UsageError("nobody is named who could rewrite the description", "Name a model with --teacher.")
        return resolve(name, keys=self.keys)

    def _writer(self) -> Address | None:
        if self.queries is not None:
            return None
        settings = self.inquiry.settings
        name = self.inquiry.query_model or settings.test_gen_model or (self.teacher.name if self.teacher else None)
        if not name:
            raise UsageError(
                f"{self.skill.folder}: has no queries",
                f"Give a file with --queries, put one into the skill's folder as {PLACES_IN_A_SKILL[0]}, or have some"
                " written with --query-model MODEL.",
            )
        return resolve(name, keys=self.keys)

    def _check_queries(self, queries: Queries) -> None:
        self.plan(self.skill, queries)
        if self.inquiry.improve:
            check_parts(queries)
        elif not queries.should_trigger or not queries.should_not:
            lacking = "should trigger" if not queries.should_trigger else "should not trigger"
            self.inquiry.tell(f"No query {lacking}, so precision is not known.")

    def plan(self, skill: Skill, queries: Queries) -> Plan:
        inquiry = self.inquiry
        usual = Bounds(TURNS)
        return make_trigger_plan(
            skill,
            queries,
            self.models,
            base_url=inquiry.base_url or "",
            runs=inquiry.runs,
            seed=inquiry.seed,
            temperature=inquiry.temperature,
            max_output_tokens=inquiry.max_output_tokens,
            agent=inquiry.agent,
            distractors=self.distractors,
            bounds=Bounds(inquiry.max_turns or TURNS, inquiry.trial_tokens, inquiry.trial_timeout or usual.seconds),
            sandbox=inquiry.sandbox,
            keys=self.keys,
        )

    def answer(self, store: Store) -> int:
        """Carry it out and say what came of it; the exit code."""
        self._check_prices()
        models = Models(self.context, replies=store, cache=self._cache_mode(), ledger=self.ledger)
        return asyncio.run(self._improve(store, models) if self.inquiry.improve else self._measure(store, models))

    def _cache_mode(self) -> CacheMode:
        if self.inquiry.replay:
            return "replay"
        if self.inquiry.no_cache:
            return "off"
        return "refresh" if self.inquiry.fresh else "use"

    async def _measure(self, store: Store, models: Models) -> int:
        async with models:
            queries = await self._queries(models)
            plan = self.plan(self.skill, queries)

            def started(plan: Plan, run: Run, missing: list[Trial]) -> None:
                if len(missing) < len(plan):
                    done = len(plan) - len(missing)
                    self.inquiry.tell(f"Going on with run {run.id}: {done} of {len(plan)} runs are stored.")
                self._say_what_it_costs(estimate_runs(plan, missing, self.context.prices))
                self.progress.start(plan, missing)

            evaluation = await evaluate(
                plan,
                store=store,
                models=models,
                options=RunOptions(executor=self.executor, fresh=self.inquiry.fresh),
                events=Events(started=started, result=self.progress.watch),
            )
        self.progress.end()
        found = firings(evaluation, queries)
        rulings = [
            (firing.model, _rule(requirement, firing, evaluation))
            for firing in found
            for requirement in self.requirements
        ]
        self._report(evaluation, queries, found, rulings, stored=store.location is not None)
        if evaluation.leaked or evaluation.stopped or any(one.too_many_errors for one in found):
            return 3 if not evaluation.halted or evaluation.leaked or evaluation.stopped else 0
        return 0 if all(ruling.held for _, ruling in rulings) else 1

    async def _queries(self, models: Models) -> Queries:
        """The queries, which are written and kept with the skill where it has none."""
        if self.queries is not None:
            return self.queries
        assert self.writer is not None
        assert self.skill.folder is not None
        model = await models.get(self.writer, "test writer")
        material = sum(skill.tokens for skill in (self.skill, *self.distractors))
        self._say_what_it_costs(
            estimate_writing(self.writer, self.context.prices, material=material, items=self.inquiry.count)
        )
        self.inquiry.tell(f"Generating queries with {self.writer.name}...")
        with track_keys() as asked:
            try:
                queries = await write_queries(self.skill, model, count=self.inquiry.count, distractors=self.distractors)
            except NoUsableAnswer:
                await models.forget(asked)  # or the same command would only get the same answers again
                raise
        place = self.skill.folder / PLACES_IN_A_SKILL[0]
        write_file(str(place), json.dumps(queries.plain(), indent=2, ensure_ascii=False) + "\n")
        self.inquiry.tell(f"Wrote {len(queries)} queries to {place}")
        self.skill, self.queries = Skill.load(self.skill.folder), Queries.load(place)
        self._check_queries(self.queries)
        return self.queries

    async def _improve(self, store: Store, models: Models) -> int:
        inquiry = self.inquiry
        assert self.teacher is not None
        async with models:
            for name in self.models:
                await models.get(resolve(name, inquiry.base_url or "", self.keys))
            teacher = await models.get(self.teacher, "teacher")
            queries = await self._queries(models)
            expected = estimate_improvement(
                self.plan, self.skill, queries, self.teacher, inquiry.attempts, self.context.prices
            )
            self._say_what_it_costs(expected)
            plan = self.plan(self.skill, queries)
            found = await improve(
                self.skill,
                queries,
                self.plan,
                teacher,
                models=models,
                store=store,
                attempts=inquiry.attempts,
                search=digest(["description", self.skill.visible_hash, self.teacher.name, plan.fingerprint]),
                fresh=inquiry.fresh,
                executor=self.executor,
                begin=self.progress.begin,
                watch=self.progress.watch,
                done=self.progress.done,
            )
        self.progress.end()
        place = self._save(found)
        if inquiry.as_json:
            show_json(self._improvement(found, queries, place))
        else:
            show(*shown_improvement(found, self.ledger))
            self._say_where(found, place)
        troubled = any(one.leaked for one in found.evaluations)
        tested = [found.tested.before, found.tested.after] if found.tested else []
        return 3 if troubled or any(one.too_many_errors for one in tested) else 0

    def _save(self, found: Improvement) -> Path | None:
        """Write the better skill where it was asked for; None where it was not, or there is no better one."""
        if not found.improved or not (self.inquiry.write or self.inquiry.output) or found.halted:
            return None
        if self.inquiry.output:
            place = Path(self.inquiry.output)
            return named_after(place, found.skill).save(place, overwrite=self.inquiry.force)
        assert self.skill.folder is not None
        return _replace_manifest(self.skill.folder, found.skill)

    def _say_where(self, found: Improvement, place: Path | None) -> None:
        if place is not None:
            show(Text(f"\nSaved to {place}"))
        elif found.improved and not found.halted:
            show(Text("\nNothing was written: --write puts it into the skill, -o DIR into a copy."))

    def _check_prices(self) -> None:
        """A ceiling in dollars can only be kept where every price is known."""
        if self.inquiry.max_cost is None or self.inquiry.replay:
            return
        students = [resolve(name, self.inquiry.base_url or "", self.keys) for name in self.models]
        for address in (*students, self.teacher, self.writer):
            if address is not None and price_of(address, self.context.prices).of(1000, 1000) is None:
                raise UsageError(
                    f"--max-cost cannot be kept: nobody knows the price of {address.name}",
                    "Give it in upskill.config.yaml under `prices:` (dollars per million tokens: input, output).",
                )

    def _say_what_it_costs(self, expected: Estimate) -> None:
        """Say what it will cost before the first paid call, and ask when it may be much and a person is there."""
        if not self.inquiry.replay:
            confirm_cost(self.inquiry, expected, f"up to {expected.words}")

    # What is shown.

    def _report(
        self,
        evaluation: Evaluation,
        queries: Queries,
        found: list[Firing],
        rulings: list[tuple[str, Ruling]],
        *,
        stored: bool,
    ) -> None:
        if evaluation.leaked:
            note("INVALID: a run saw a skill that was kept from it. No number means anything.")
        if self.inquiry.as_json:
            said = self._head(queries) | {"run": evaluation.run.id, "models": [firing.plain() for firing in found]}
            show_json(
                said | plain_troubles(evaluation, rulings) | {"spent": plain_spent(self.ledger), "improvement": None}
            )
            return
        shown: list[RenderableType] = [heading(self.skill, evaluation.plan, queries)]
        for firing in found:
            if len(found) > 1:
                shown.append(Text(f"  {firing.model}", style="bold"))
            shown += [
                indented(rate_table(firing)),
                Text(""),
                *(indented(Text(line)) for line in summary_lines(firing)),
                Text(""),
            ]
        notes = [f"Note: {warning}" for warning in evaluation.warnings]
        notes += [f"{model} was given up: {message}" for model, message in evaluation.stopped.items()]
        notes += [f"{trials} runs of {model} errored: {message}" for model, message, trials in evaluation.errors[:10]]
        if stored:
            notes.append(f"Every run: upskill show {evaluation.run.id}{self.inquiry.found_with}")
        show(*shown, *(indented(Text(line, style="dim")) for line in notes))
        if evaluation.halted:
            note(f"Stopped: {evaluation.halted}. The same command with a higher ceiling goes on from here.")
        for model, ruling in rulings:
            if not ruling.held:
                note(f"Required {ruling.requirement.text!r} of {model}, but {ruling.reason}.")

    def _head(self, queries: Queries) -> dict[str, Any]:
        return {
            "skill": {
                "name": self.skill.name,
                "description": self.skill.description,
                "fingerprint": self.skill.fingerprint,
            },
            "agent": self.inquiry.agent,
            "with_skills": [skill.name for skill in self.distractors],
            "queries": {
                "source": queries.source,
                "should_trigger": len(queries.should_trigger),
                "should_not_trigger": len(queries.should_not),
                **{part: len(queries.part(part)) for part in PARTS},
            },
            "runs": self.inquiry.runs,
        }

    def _improvement(self, found: Improvement, queries: Queries, place: Path | None) -> dict[str, Any]:
        tested = found.tested
        improvement: dict[str, Any] = {
            "improved": found.improved,
            "description": found.skill.description,
            "attempts": [plain_tried(one) for one in found.tried],
            "test": None
            if tested is None
            else {
                "before": tested.before.plain(),
                "after": tested.after.plain(),
                "change": plain_estimate(tested.change),
                "p_value": None if tested.p_value is None else round(tested.p_value, 6),
            },
            "ended": found.ended,
            "saved_to": str(place) if place else None,
        }
        errors = [
            {"model": model, "message": message, "trials": trials}
            for one in found.evaluations
            for model, message, trials in one.errors
        ]
        return self._head(queries) | {
            "run": found.chosen.run,
            "models": [],
            "requirements": [],
            "errors": errors,
            "stopped": [],
            "halted": found.halted,
            "warnings": list(dict.fromkeys(line for one in found.evaluations for line in one.warnings)),
            "spent": plain_spent(self.ledger),
            "improvement": improvement,
        }


class _Progress:
    """Says what is being run, and how each description fared."""

    def __init__(self, inquiry: TriggerOptions) -> None:
        self.inquiry = inquiry
        self.watching: TrialProgress | None = None

    def start(self, plan: Plan, missing: list[Trial]) -> None:
        self.end()
        self.watching = TrialProgress(plan, quiet=self.inquiry.silent)
        self.watching.begin(len(plan) - len(missing))

    def begin(self, what: str, plan: Plan, missing: list[Trial]) -> None:
        self.inquiry.tell(f"Running {what}: {len(plan.suite.cases)} queries...")
        self.start(plan, missing)

    def watch(self, result: Result) -> None:
        if self.watching:
            self.watching(result)

    def done(self, tried: Tried) -> None:
        self.end()
        if tried.train is None or tried.validation is None:
            self.inquiry.tell(f"  not kept: {tried.note}")
            return
        said = f"  train {percent(tried.train.score)}, validation {percent(tried.validation.score)}"
        if tried.attempt:
            word = {True: "kept", False: "not kept", None: "not decided"}[tried.accepted]
            said += f": {word}" + (f" ({tried.note})" if tried.note else "")
        self.inquiry.tell(said)

    def end(self) -> None:
        if self.watching:
            self.watching.end()
            self.watching = None


def _rule(requirement: Requirement, firing: Firing, evaluation: Evaluation) -> Ruling:
    if evaluation.halted:
        return Ruling(requirement, held=False, reason="the run was stopped before its end")
    measured = firing.measured(requirement.quantity)
    return check_number(requirement, (measured.value, measured.interval) if measured else None)


def _replace_manifest(folder: Path, skill: Skill) -> Path:
    """Only SKILL.md changes, all of it or nothing."""
    name = next(file.path for file in skill.files if file.path.lower() == "skill.md")
    target = (folder / name).resolve()
    data = skill.read(name) or b""
    try:
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=".SKILL.", delete=False) as fresh:
            fresh.write(data)
        Path(fresh.name).chmod(target.stat().st_mode & 0o777)
        Path(fresh.name).replace(target)
    except OSError as error:
        raise UsageError(f"{target}: cannot be written: {error.strerror or error}") from error
    return folder
