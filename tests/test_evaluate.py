"""Evaluate: three outcomes, arms that differ by the skill alone, resuming, stopping, and counting what was used."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from conftest import BODY, HELPFUL, Upskill, evaluate, greetings, write_script, write_skill
from upskill import (
    Address,
    Check,
    Evidence,
    Finding,
    ModelContext,
    Models,
    Plan,
    Result,
    Skill,
    Suite,
    Trial,
    UsageError,
    evaluate_now,
    evaluate_skill,
    make_plan,
    open_store,
    run_trial,
)
from upskill.agents.chat import SYSTEM
from upskill.checks import SuiteCheck
from upskill.errors import ModelError, StoreError
from upskill.models import Message, Reply, Request, Role
from upskill.models.addresses import resolve
from upskill.models.ledger import Ceilings, Ledger
from upskill.reports.figures import document
from upskill.runs.planning.plan import PlanOptions
from upskill.runs.results.evaluation import evaluation_of
from upskill.runs.running.evaluate import RunOptions
from upskill.runs.running.events import Events
from upskill.runs.running.executors import Job, Session
from upskill.runs.running.executors.local import Local
from upskill.suites import Case
from upskill.suites.quality import probe_suite
from upskill.traces import Usage

Answer = Callable[[str, Request], Reply | str]


class Told(Models):
    """Models that answer by a function of their name and the request, and write down what they are asked."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self.answer = answer
        self.asked: list[tuple[str, Role, Request]] = []
        self.closed = False
        self.at_once: Counter[str] = Counter()
        self.most_at_once: Counter[str] = Counter()

    async def get(self, address: Address, role: Role = "student") -> Teller:
        return Teller(self, address.name, role)

    async def uncached(self, address: Address, role: Role = "student") -> Teller:
        """For the probe, which finds that answers differ."""
        return Teller(Told(lambda _, request: f"prose {request.seed}"), address.name, role)

    async def close(self) -> None:
        self.closed = True

    def asked_of(self, name: str) -> list[Request]:
        return [request for model, _, request in self.asked if model == name]


class Teller:
    def __init__(self, models: Told, name: str, role: Role) -> None:
        self.models = models
        self.name = name
        self.role: Role = role

    async def reply(self, request: Request) -> Reply:
        models = self.models
        models.asked.append((self.name, self.role, request))
        models.at_once[self.name] += 1
        models.most_at_once[self.name] = max(
            models.most_at_once[self.name], models.at_once[self.name]
        )
        try:
            await asyncio.sleep(0)
            said = models.answer(self.name, request)
            return Reply(said, Usage(10, 5, cost_usd=0.01)) if isinstance(said, str) else said
        finally:
            models.at_once[self.name] -= 1

    async def close(self) -> None:
        pass


def has_skill(request: Request) -> bool:
    return "ahoy" in request.messages[0].text


def helpful(_: str, request: Request) -> str:
    return "ahoy, friend" if has_skill(request) else "hello, friend"


def plan_of(
    *names: str,
    cases: int = 4,
    suite: Suite | None = None,
    provider: str = "scripted",
    **changed: Any,
) -> Plan:
    skill = Skill.new("greeter", "Greets.", BODY)
    addresses = tuple(
        Address(name, "local" if name == "local" else provider, name) for name in names or ("one",)
    )
    return replace(Plan(skill, suite or Suite.parse(greetings(cases)), addresses), **changed)


def by_arm(results: list[Result]) -> dict[str, set[bool | None]]:
    return {
        arm: {result.passed for result in results if result.trial.arm == arm}
        for arm in ("baseline", "skill")
    }


# Three outcomes.


async def test_a_trial_passes_fails_or_errors(home: Path) -> None:
    rules = [{"when": "guest 1", "error": "the line is dead"}, *HELPFUL]
    plan = make_plan(
        Skill.load(write_skill(home / "greeter")), models=[write_script(home / "model.yaml", rules)]
    )
    with open_store(home / "runs") as store:
        evaluation = await evaluate(plan, store=store)
        results = list(store.results(evaluation.run))
    outcomes = {(result.trial.case, result.trial.arm): result.passed for result in results}
    assert outcomes == {
        ("greet-1", "baseline"): None,
        ("greet-1", "skill"): None,
        **{(f"greet-{number}", "baseline"): False for number in (2, 3, 4)},
        **{(f"greet-{number}", "skill"): True for number in (2, 3, 4)},
    }
    passed = next(result for result in results if result.passed)
    assert [finding.reason for finding in passed.findings] == [
        "the answer has 'ahoy'",
        "the answer has 12 characters; more than 60 would be verbose",
    ]
    errored = next(result for result in results if result.passed is None)
    assert errored.error == "asking scripted:model.yaml: the line is dead"
    assert (errored.trace, errored.findings, errored.usage.total_tokens) == (None, (), 0)


async def test_a_broken_model_is_an_error_not_a_failure() -> None:
    def broken(_: str, request: Request) -> str:
        raise ConnectionError("no route")

    evaluation = await evaluate(plan_of(), models=Told(broken))
    assert {outcome.passed for outcome in evaluation.outcomes} == {None}
    assert evaluation.errors == [("one", "asking one: ConnectionError: no route", 8)]
    assert evaluation.too_many_errors


class Picky(Check):
    """Cannot look at an answer that says ahoy to a friend, nor at none."""

    text: str

    async def run(self, evidence: Evidence) -> Finding:
        if evidence.trace.answer in ("ahoy, friend", ""):
            raise ZeroDivisionError("division by zero")
        return Finding(self.text in evidence.trace.answer, "looked")


async def test_a_check_that_cannot_be_carried_out_is_an_error_not_a_failure() -> None:
    case = Case("greet", "Please greet.", (SuiteCheck("picky", "hello", Picky(text="hello")),))
    evaluation = await evaluate(plan_of(suite=Suite((case,))), models=Told(helpful))
    assert {outcome.arm: outcome.passed for outcome in evaluation.outcomes} == {
        "baseline": True,
        "skill": None,
    }
    ((trial, error, traceback),) = evaluation.bugs  # not one of our errors, so it is a bug of ours
    assert (trial.model, error) == (
        "one",
        "checking picky of greet: ZeroDivisionError: division by zero",
    )
    assert (evaluation.errors, "ZeroDivisionError" in traceback) == ([], True)


async def test_the_answer_of_a_trial_whose_check_broke_is_kept_with_its_usage() -> None:
    case = Case("greet", "Please greet.", (SuiteCheck("picky", "hello", Picky(text="hello")),))
    plan = plan_of(suite=Suite((case,)))
    result = await run_trial(plan, Trial("one", "greet", "skill", 0), Told(helpful))
    assert result.passed is None
    assert result.trace is not None
    assert result.trace.answer == "ahoy, friend"
    assert result.usage.total_tokens == 15


# The two arms.


async def test_the_arms_differ_by_the_skill_and_by_nothing_else() -> None:
    written = greetings(2)
    written["cases"][0]["files"] = {"guests.txt": "Ann\n"}
    models = Told(helpful)
    plan = plan_of(
        suite=Suite.parse(written),
        runs=2,
        seed=5,
        temperature=0.7,
        max_output_tokens=99,
        provider="anthropic",
    )
    await evaluate(plan, models=models)
    asked = models.asked_of("one")
    taught = [request for request in asked if has_skill(request)]
    untaught = [request for request in asked if not has_skill(request)]
    assert len(taught) == len(untaught) == 4
    for request in untaught:
        assert request.messages[0] == Message("system", SYSTEM)
        with_skill = Message("system", f"{SYSTEM}\n\n{plan.skill.body}")
        assert replace(request, messages=(with_skill, *request.messages[1:])) in taught
    assert len({request.seed for request in asked}) == 2
    assert {(request.temperature, request.max_output_tokens) for request in asked} == {(0.7, 99)}
    assert {request.messages[1].text for request in asked} == {
        "guests.txt:\n```\nAnn\n```\n\nPlease greet guest 1.",
        "Please greet guest 2.",
    }


async def test_without_a_baseline_only_the_skill_arm_is_run_and_there_is_no_lift(
    home: Path,
) -> None:
    skill = Skill.load(write_skill(home / "greeter"))
    plan = make_plan(
        skill, models=[write_script(home / "model.yaml")], options=PlanOptions(baseline=False)
    )
    evaluation = await evaluate(plan)
    (verdict,) = evaluation.verdicts
    assert {outcome.arm for outcome in evaluation.outcomes} == {"skill"}
    assert (verdict.lift, verdict.decision, verdict.reason) == (None, "undecided", "no baseline")
    assert not evaluation.too_many_errors


async def test_each_of_several_models_gets_its_own_calls_and_its_own_verdict() -> None:
    def answer(name: str, request: Request) -> str:
        return {"good": helpful(name, request), "bad": "no", "stubborn": "ahoy"}[name]

    models = Told(answer)
    evaluation = await evaluate(plan_of("good", "bad", "stubborn", cases=8), models=models)
    assert Counter(name for name, _, _ in models.asked) == {"good": 16, "bad": 16, "stubborn": 16}
    assert [(v.model, v.baseline.passed, v.skill.passed) for v in evaluation.verdicts] == [
        ("good", 0, 8),
        ("bad", 0, 0),
        ("stubborn", 8, 8),
    ]
    assert evaluation.verdicts[0].decision == "helps"


# Resuming.


async def test_a_second_run_of_the_same_plan_asks_nothing(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        first = await evaluate(plan_of(), store=store, models=Told(helpful))
        models = Told(helpful)
        second = await evaluate(plan_of(), store=store, models=models)
    assert models.asked == []
    assert second.run == first.run
    assert second.verdicts == first.verdicts


async def test_a_resumed_run_asks_for_what_is_missing_or_errored_and_for_nothing_else(
    tmp_path: Path,
) -> None:
    def shaky(name: str, request: Request) -> str:
        if "guest 2" in request.messages[1].text:
            raise ModelError("try later")
        return helpful(name, request)

    plan = plan_of()
    with open_store(tmp_path) as store:
        await evaluate(plan, store=store, models=Told(shaky))
        models = Told(helpful)
        begun: list[list[Trial]] = []
        seen: list[Result] = []
        evaluation = await evaluate(
            plan,
            store=store,
            models=models,
            events=Events(
                started=lambda _plan, _run, missing: begun.append(list(missing)), result=seen.append
            ),
        )
    assert {request.messages[1].text for request in models.asked_of("one")} == {
        "Please greet guest 2."
    }
    assert len(models.asked) == len(seen) == 2
    expected = {Trial("one", "greet-2", "baseline", 0), Trial("one", "greet-2", "skill", 0)}
    assert [{*trials} for trials in begun] == [expected]
    assert (evaluation.errors, evaluation.run.finished) == ([], True)


# Answers that were cut off.


def cut(_: str, request: Request) -> Reply:
    return Reply("ahoy, my dear", Usage(10, 5, cost_usd=0.01), "length")


def repeated(_: str, request: Request) -> Reply:
    return Reply("ahoy, ahoy, ahoy", Usage(10, 5, cost_usd=0.01), "repetition")


@pytest.mark.parametrize("stated", [False, True])
@pytest.mark.parametrize(
    ("how", "why"), [(cut, "after 5 tokens"), (repeated, "because it kept repeating itself")]
)
async def test_an_answer_that_was_cut_off_is_the_students_failure_whoever_set_the_limit(
    how: Callable[[str, Request], Reply], why: str, stated: bool
) -> None:
    found: list[Result] = []
    plan = plan_of(max_output_tokens=5, limit_is_stated=stated)
    evaluation = await evaluate(plan, models=Told(how), events=Events(result=found.append))
    assert {outcome.passed for outcome in evaluation.outcomes} == {False}
    for result in found:
        (finding,) = result.findings  # no check could change it
        assert finding.check == "complete"
        assert finding.reason.startswith(f"the answer was cut off {why}")


def test_a_limit_is_stated_by_the_person_or_by_the_suite(home: Path) -> None:
    model = write_script(home / "model.yaml")
    suite = greetings(2)
    skill = Skill.load(write_skill(home / "greeter", suite=suite))
    assert not make_plan(skill, models=[model]).limit_is_stated
    assert make_plan(
        skill, models=[model], options=PlanOptions(max_output_tokens=7)
    ).limit_is_stated
    limited = Skill.load(write_skill(home / "limited", suite=suite | {"max_output_tokens": 9}))
    plan = make_plan(limited, models=[model])
    assert (plan.max_output_tokens, plan.limit_is_stated) == (9, True)
    assert (
        make_plan(
            limited, models=[model], options=PlanOptions(max_output_tokens=7)
        ).max_output_tokens
        == 7
    )


# Stopping.


async def test_a_model_that_would_go_on_failing_is_given_up_and_its_trials_are_missing_not_errored() -> (
    None
):
    def answer(name: str, request: Request) -> str:
        if name == "bad":
            raise ModelError("the key was not accepted", status=401, fatal=True)
        return helpful(name, request)

    models = Told(answer)
    evaluation = await evaluate(
        plan_of("bad", "good"), models=models, options=RunOptions(executor=Local(1))
    )
    assert len(models.asked_of("bad")) == 1
    assert len(models.asked_of("good")) == 8
    assert evaluation.stopped == {"bad": "asking bad: the key was not accepted"}
    assert (evaluation.run.trials, len(evaluation.outcomes), evaluation.run.errored) == (16, 9, 1)
    assert evaluation.too_many_errors


async def test_what_a_given_up_model_missed_is_run_on_resume(tmp_path: Path) -> None:
    def refuse(_: str, request: Request) -> str:
        raise ModelError("no credit", fatal=True)

    with open_store(tmp_path) as store:
        await evaluate(
            plan_of(), store=store, models=Told(refuse), options=RunOptions(executor=Local(1))
        )
        models = Told(helpful)
        evaluation = await evaluate(plan_of(), store=store, models=models)
    assert len(models.asked) == 8
    assert (evaluation.run.finished, evaluation.stopped) == (True, {})


@pytest.mark.parametrize("where", ["student", "judge"])
async def test_a_model_that_cannot_be_opened_is_a_usage_error_before_any_call(
    home: Path, where: str
) -> None:
    suite = Suite.parse([{"id": "a", "prompt": "Greet.", "checks": [{"judge": "It greets."}]}])
    good, bad = write_script(home / "good.yaml"), "scripted:nowhere.yaml"
    plan = plan_of(suite=suite, judge=Address("judge", "scripted", "judge.yaml"))
    student = Address(good, "scripted", "good.yaml")
    missing = Address(bad, "scripted", "nowhere.yaml")
    plan = replace(plan, models=(student, missing), judge=student) if where == "student" else plan
    plan = replace(plan, models=(student,), judge=missing) if where == "judge" else plan
    ledger = Ledger()
    with open_store(home / "runs") as store:
        with pytest.raises(UsageError, match=r"nowhere\.yaml"):
            await evaluate(plan, store=store, models=Models(ledger=ledger))
        assert list(store.runs()) == []
    assert ledger.calls == 0


async def test_a_suite_that_an_empty_answer_passes_is_refused_before_any_call() -> None:
    models = Told(helpful)
    suite = Suite.parse([{"id": "a", "prompt": "Greet.", "checks": [{"not_contains": "sorry"}]}])
    with pytest.raises(UsageError, match="an empty answer passes"):
        await evaluate(plan_of(suite=suite), models=models)
    assert models.asked == []


async def test_cancelling_keeps_what_is_stored_and_closes_the_models(tmp_path: Path) -> None:
    seen: list[Result] = []
    arrived = asyncio.Event()

    def watch(result: Result) -> None:
        seen.append(result)
        if len(seen) == 5:
            arrived.set()

    class Slow(Told):
        async def get(self, address: Address, role: Role = "student") -> Teller:
            await asyncio.sleep(0.001)
            return await super().get(address, role)

    models = Slow(helpful)
    plan = plan_of(cases=50)
    with open_store(tmp_path) as store:
        task = asyncio.create_task(
            evaluate(
                plan,
                store=store,
                models=models,
                options=RunOptions(executor=Local(2)),
                events=Events(result=watch),
            )
        )
        await arrived.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert models.closed
        asked = len(models.asked)
        await asyncio.sleep(0.01)
        assert len(models.asked) == asked < 100
    with open_store(tmp_path) as store:
        kept = set(store.settled(store.run("last")))
        assert {result.trial for result in seen} <= kept
        models = Told(helpful)
        evaluation = await evaluate(plan, store=store, models=models)
        assert len(models.asked) == 100 - len(kept)
        assert evaluation.run.finished


async def test_a_watcher_that_fails_ends_the_run_and_no_trial_goes_on_behind_its_back() -> None:
    def watch(result: Result) -> None:
        raise ZeroDivisionError

    models = Told(helpful)
    with pytest.raises(ZeroDivisionError):
        await evaluate(
            plan_of(cases=50),
            models=models,
            options=RunOptions(executor=Local(2)),
            events=Events(result=watch),
        )
    asked = len(models.asked)
    await asyncio.sleep(0.01)
    assert models.closed
    assert len(models.asked) == asked < 100


async def test_a_result_that_cannot_be_stored_ends_the_run(tmp_path: Path) -> None:
    def huge(_: str, request: Request) -> Reply:
        return Reply("ahoy", Usage(2**70))

    with open_store(tmp_path) as store:
        with pytest.raises(StoreError, match="cannot be saved"):
            await evaluate(plan_of(), store=store, models=Told(huge))
        assert (await evaluate(plan_of(), store=store, models=Told(helpful))).run.finished


async def test_a_ceiling_ends_the_run_and_leaves_the_rest_for_later(home: Path) -> None:
    plan = make_plan(
        Skill.load(write_skill(home / "greeter")), models=[write_script(home / "model.yaml")]
    )
    with open_store(home / "runs") as store:
        ledger = Ledger(Ceilings(calls=3))
        first = await evaluate(
            plan, store=store, models=Models(ledger=ledger), options=RunOptions(executor=Local(1))
        )
        assert (ledger.calls, first.run.passed + first.run.failed, first.run.errored) == (3, 3, 0)
        assert first.halted == "the limit of 3 calls was reached"
        ledger = Ledger()
        second = await evaluate(plan, store=store, models=Models(ledger=ledger))
        assert (second.halted, ledger.calls, second.run.finished) == ("", 5, True)


# Carrying trials.


async def test_an_executor_keeps_each_result_before_it_hands_it_over() -> None:
    plan = plan_of("one", "two")
    models, kept = Told(helpful), list[Result]()

    async def run(trial: Trial) -> Result:
        return await run_trial(plan, trial, models)

    async def keep(result: Result) -> None:
        await asyncio.sleep(0)
        kept.append(result)

    seen: list[Result] = []
    with open_store(None) as store:
        session = Session(
            store.start_run(plan, "0")[0],
            None,
            models,
            run_trial=run,
            persist=keep,
            settled=lambda _: iter(()),
        )
        async for result in Local().execute(
            Job(plan, tuple(plan.trials()), ModelContext()), session
        ):
            assert result in kept
            seen.append(result)
    assert {result.trial for result in seen} == set(plan.trials())
    assert len(seen) == len(plan)


async def test_so_many_trials_of_a_model_run_at_a_time_and_no_more() -> None:
    models = Told(helpful)
    await evaluate(
        plan_of("one", "two", cases=20), models=models, options=RunOptions(executor=Local(3))
    )
    assert models.most_at_once == {"one": 3, "two": 3}


async def test_embedded_models_run_a_trial_for_each_server_in_the_order_of_the_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("upskill.models.embedded.capacity.usable_cores", lambda: 3)
    models = Told(helpful)
    await evaluate(plan_of("local", cases=6), models=models, options=RunOptions(executor=Local(8)))
    assert models.most_at_once == {"local": 3}
    assert [has_skill(request) for request in models.asked_of("local")] == [True] + [False] * 6 + [
        True
    ] * 5


# Judges.

JUDGED = Suite.parse(
    [{"id": "a", "prompt": "Please greet.", "checks": [{"judge": "It says ahoy."}]}]
)


async def test_what_the_judge_uses_is_counted_apart_from_the_student(home: Path) -> None:
    verdict = {"evidence": "ahoy, friend", "reason": "it does", "passed": True}
    judge = write_script(
        home / "judge.yaml", [{"answer": json.dumps(verdict), "usage": {"input": 100, "output": 9}}]
    )
    skill = Skill.new("greeter", "Greets.", BODY)
    plan = make_plan(
        skill, JUDGED, [write_script(home / "model.yaml")], options=PlanOptions(judge=judge)
    )
    with open_store(home / "runs") as store:
        evaluation = await evaluate(plan, store=store)
        results = list(store.results(evaluation.run))
    # The baseline does not say ahoy, so the evidence of the judge is asked for once more.
    assert {result.trial.arm: result.judging.total_tokens for result in results} == {
        "baseline": 218,
        "skill": 109,
    }
    assert {result.usage.total_tokens for result in results} == {23, 63}
    (verdict,) = evaluation.verdicts
    assert (verdict.baseline.missing, verdict.skill.total_tokens) == (1, 63)
    assert {role: tokens for role, (tokens, _) in evaluation.spent.items()} == {
        "student": 86,
        "judge": 327,
    }


async def test_what_a_judge_that_breaks_down_has_used_is_counted(home: Path) -> None:
    class Breaking:
        async def reply(self, request: Request) -> Reply:
            error = ModelError("cut off")
            error.usage = Usage(70, 7)
            raise error

        async def close(self) -> None: ...

    judge = Address("judge", "scripted", "judge")
    models = Models()
    models.stand_in(judge, Breaking(), "judge")
    plan = replace(
        plan_of(suite=JUDGED, judge=judge), models=(resolve(write_script(home / "model.yaml")),)
    )
    with open_store(None) as store:
        results = list(store.results((await evaluate(plan, store=store, models=models)).run))
    assert [(result.passed, result.judging.total_tokens) for result in results] == [(None, 77)] * 2


async def test_the_judge_is_not_told_which_arm_an_answer_comes_from() -> None:
    def answer(name: str, request: Request) -> str:
        said = {"evidence": "ahoy", "reason": "", "passed": True}
        return json.dumps(said) if name == "judge" else "ahoy"

    models = Told(answer)
    await evaluate(
        plan_of(suite=JUDGED, judge=Address("judge", "scripted", "judge")), models=models
    )
    first, second = models.asked_of("judge")
    assert first == second
    assert first.schema is not None


@pytest.mark.parametrize(
    "nonsense", ["yes", "{}", '{"evidence": "", "reason": "", "passed": "maybe"}']
)
async def test_a_judge_that_talks_nonsense_makes_errors_not_failures(nonsense: str) -> None:
    models = Told(lambda name, request: nonsense if name == "judge" else helpful(name, request))
    plan = plan_of(suite=JUDGED, judge=Address("judge", "scripted", "judge"))
    evaluation = await evaluate(plan, models=models)
    assert {outcome.passed for outcome in evaluation.outcomes} == {None}
    assert evaluation.errors[0][1].startswith("checking judge of a: the judge ")
    assert (
        evaluation.spent["judge"][0] == 60
    )  # asked again about no answer at all: it is the judge's fault


# Plans from what a person says.


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"models": []}, "no model given"),
        ({"models": ["nonsense"]}, "is not a model alias"),
        ({"options": PlanOptions(runs=0)}, "repeats must be at least 1"),
        ({"options": PlanOptions(seed=2**63)}, "is not a valid seed"),
        ({"options": PlanOptions(seed=2**63 - 2, runs=3)}, "is not a valid seed"),
        ({"options": PlanOptions(agent="chatt")}, "no agent named 'chatt'"),
        ({"suite": JUDGED}, "needs a judge"),
    ],
    ids=str,
)
def test_a_plan_that_cannot_be_carried_out_is_a_usage_error(
    home: Path, given: dict[str, Any], message: str
) -> None:
    skill = Skill.load(write_skill(home / "greeter"))
    with pytest.raises(UsageError, match=message):
        make_plan(skill, **given)


def test_a_skill_without_cases_needs_a_suite() -> None:
    skill = Skill.new("greeter", "Greets.", BODY)
    with pytest.raises(UsageError, match="greeter: no test cases") as caught:
        make_plan(skill)
    assert "--tests" in caught.value.hint


def test_a_model_that_is_named_twice_is_run_once() -> None:
    skill, suite = Skill.new("greeter", "Greets.", BODY), Suite.parse(greetings(2))
    assert len(make_plan(skill, suite, ["local", "local", " local "])) == 4


def test_a_judge_that_no_case_needs_is_not_opened() -> None:
    skill, suite = Skill.new("greeter", "Greets.", BODY), Suite.parse(greetings(2))
    assert make_plan(skill, suite, options=PlanOptions(judge="sonnet")).judge is None


def test_a_plan_takes_paths_and_the_name_of_one_model(home: Path) -> None:
    folder, model = write_skill(home / "greeter", cases=2), write_script(home / "model.yaml")
    suite = folder / "evals" / "suite.json"
    planned = make_plan(Skill.load(folder), models=[model])
    assert make_plan(str(folder), models=model).fingerprint == planned.fingerprint
    assert make_plan(folder, suite, [model]).fingerprint == planned.fingerprint
    assert make_plan(folder, str(suite), [model]).fingerprint == planned.fingerprint
    with pytest.raises(UsageError, match="greter"):
        make_plan("greter")


def test_evaluating_works_without_asyncio_and_without_a_store(home: Path) -> None:
    plan = make_plan(
        Skill.load(write_skill(home / "greeter", cases=8)),
        models=[write_script(home / "model.yaml")],
    )
    (verdict,) = evaluate_now(plan).verdicts
    assert (verdict.lift, verdict.decision) == (1.0, "helps")


async def test_the_warnings_of_a_skill_and_its_suite_are_told_once(home: Path) -> None:
    folder = write_skill(
        home / "greeter", suite={"cases": greetings(2)["cases"], "checks": [{"contains": "ahoy"}]}
    )
    text = (folder / "SKILL.md").read_text(encoding="utf-8")
    (folder / "SKILL.md").write_text(
        text.replace("---\n", "---\nmodel: opus\n", 1), encoding="utf-8"
    )
    evaluation = await evaluate(
        make_plan(Skill.load(folder), models=[write_script(home / "model.yaml")])
    )
    assert any("'model' is a client's own field" in warning for warning in evaluation.warnings)
    assert any("the skill recited in full passes" in warning for warning in evaluation.warnings)
    assert len(set(evaluation.warnings)) == len(evaluation.warnings)


@pytest.mark.parametrize(
    ("limit", "advice"),
    [
        (None, "set max_length"),
        (500, "lower max_length to less than the length of the skill"),
        (20, ""),
    ],
)
async def test_what_to_do_about_a_recited_skill_depends_on_max_length(
    limit: int | None, advice: str
) -> None:
    checks = [{"contains": "ahoy"}, *([{"max_length": limit}] if limit else [])]
    suite = Suite.parse([{"prompt": "Please greet guest 1.", "checks": checks}])
    leaks = await probe_suite(
        suite, Skill.new("greeter", "Greets.", "Say ahoy, a comma, and the name of the guest.")
    )
    recited = [str(leak) for leak in leaks if "recited" in str(leak)]
    assert [advice in line for line in recited] == ([True] if advice else [])


async def test_cases_that_ask_nearly_the_same_are_told_of() -> None:
    asked = "Please greet the guest of honour who has come a long way to see this very old house"
    checks = [{"regex": "^ahoy"}, {"max_length": 60}]
    cases = [
        {"id": name, "prompt": f"{asked}{end}", "checks": checks}
        for name, end in (("a", "."), ("b", " again."))
    ]
    other = {"id": "c", "prompt": "What do we say at the door?", "checks": checks}
    evaluation = await evaluate(plan_of(suite=Suite.parse([*cases, other])), models=Told(helpful))
    assert evaluation.warnings == [
        "'a' and 'b' ask nearly the same: give them the same `group:`, so that they count as one, or keep one of them"
    ]


async def test_until_decided_each_model_stops_on_its_own_after_whole_rounds() -> None:
    def answer(name: str, request: Request) -> str:
        if name == "learns":
            return helpful(name, request)
        return "ahoy" if crc32(repr(request).encode()) % 2 else "hello"

    models = Told(answer)
    plan = plan_of("learns", "does not", cases=12, runs=3, provider="anthropic")
    evaluation = await evaluate(plan, models=models, options=RunOptions(until_decided=True))
    assert [verdict.decision for verdict in evaluation.verdicts] == ["helps", "undecided"]
    rounds = {
        name: Counter((outcome.seed, outcome.arm) for outcome in evaluation.outcomes_of(name))
        for name in plan.addresses
    }
    arms = ("baseline", "skill")
    assert rounds["learns"] == {(0, arm): 12 for arm in arms}
    assert rounds["does not"] == {(seed, arm): 12 for seed in range(3) for arm in arms}
    assert (len(models.asked_of("learns")), len(models.asked_of("does not"))) == (24, 72)
    assert evaluation.run.finished


async def test_replies_are_shared_between_identical_requests(
    home: Path,
) -> None:
    skill = Skill.load(write_skill(home / "greeter"))
    model = write_script(home / "model.yaml")
    with open_store(home / "runs") as store:
        first = Models(ModelContext(), replies=store, ledger=Ledger())
        await evaluate(
            make_plan(skill, models=[model]),
            store=store,
            models=first,
        )
        again = Models(ModelContext(), replies=store, ledger=Ledger())
        # Other checks make other trials, which ask the same.
        suite = Suite.parse(greetings(4) | {"checks": [{"contains": "ahoy"}]})
        plan = make_plan(skill, suite, models=[model])
        evaluation = await evaluate(plan, store=store, models=again)
    assert first.ledger is not None
    assert again.ledger is not None
    assert (first.hits, first.ledger.calls) == (0, 8)
    assert (again.hits, again.ledger.calls) == (8, 0)
    assert evaluation.run.finished


async def test_what_a_judge_gave_no_grade_for_stays_missing(home: Path) -> None:
    skill, student = Skill.new("greeter", "Greets.", BODY), write_script(home / "model.yaml")
    write_script(home / "judge.yaml", [{"answer": "nonsense"}])
    plan = make_plan(skill, JUDGED, [student], options=PlanOptions(judge="scripted:judge.yaml"))
    with open_store(home / "runs") as store:
        first = await evaluate(plan, store=store, models=Models(replies=store))
        assert first.run.errored == 2
        again = Models(ModelContext(), replies=store, ledger=Ledger())
        second = await evaluate(plan, store=store, models=again)
    assert again.ledger is not None
    assert (second.run.errored, again.ledger.calls) == (2, 0)


async def test_what_a_student_got_wrong_is_told_of_stored_results_too(home: Path) -> None:
    skill = Skill.load(write_skill(home / "greeter"))
    name = write_script(home / "model.yaml", [{"when": "guest 3.", "answer": "good day"}, *HELPFUL])
    wrong = ["Asked: Please greet guest 3. Answered: good day"]
    with open_store(home / "runs") as store:
        for _ in range(2):  # the second time every result is there already
            evaluation = await evaluate_skill(skill, model=name, store=store)
            assert evaluation.failures == wrong
    assert (await evaluate_skill(skill, model=name)).failures == wrong


def test_the_evaluation_of_a_stored_run_is_the_one_that_was_reported(
    upskill: Upskill, home: Path
) -> None:
    write_script(home / "model.yaml")
    skill = write_skill(home / "greeter")
    given = (
        "--repeats",
        "2",
        "--controls",
        "--set",
        "making_cost=0.5",
        "--set",
        "target_pass_rate=0.9",
        "--require",
        "point:lift>=0.1",
    )
    done = upskill("eval", skill, "-m", "scripted:model.yaml", *given, "--json")
    with open_store("runs") as store:
        again = document(evaluation_of(store, store.run("last")))
    assert again == done.json
    assert (again["making"]["cost_usd"], again["requirements"][0]["held"]) == (0.5, True)
