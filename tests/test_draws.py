"""Draws: what makes an answer a new one, which of them count, and what is missing for good."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conftest import BODY, REPOSITORY, Upskill, evaluate, serving, write_script, write_skill
from loopback import Call, Loopback, Say, Spoken, Trouble, hashed_answer, refuse
from upskill import (
    ModelContext,
    Models,
    Plan,
    Result,
    RunOptions,
    Skill,
    Store,
    make_plan,
    open_store,
)
from upskill.errors import AgentError, CheckError, MissingTool, SandboxError, TrialError, UsageError
from upskill.models.addresses import resolve
from upskill.models.failures import FAILURES, failure_of, status_failure, stays_missing
from upskill.models.ledger import Ceilings, Ledger
from upskill.runs.planning.draws import DrawRules
from upskill.runs.planning.plan import PlanOptions
from upskill.runs.running import probe
from upskill.runs.stores.sqlite import FILE
from upskill.suites.suite import CaseFilter

STORE = "runs"
TIMEOUT = 3.0  # seconds: how long a server that is silent is waited for, and a busy machine not
HUGE = Say(extra={"padding": "x" * 34_000_000})
# What a server does once in each arm, by the row of the table.
SERVERS: list[tuple[str, Spoken]] = [
    ("wrong key", refuse(401, "no such key")),
    ("wrong key", refuse(403, "not for you")),
    ("rate limit", refuse(429, "slow down", retry_after="0")),
    ("rate limit", refuse(503, "busy", retry_after="0")),
    ("rate limit", refuse(529, "overloaded")),
    ("unsupported parameter", refuse(400, "Unsupported parameter: 'seed'", param="seed")),
    ("no such model", refuse(404, "model 'any' not found, try pulling it first")),
    ("server error", refuse(500, "The model produced invalid content.")),
    ("server error", refuse(502, "Failed to parse tool call arguments")),
    ("server error", refuse(408, "too slow")),
    ("other status", refuse(400, "bad request")),
    ("other status", refuse(422, "cannot be processed")),
    ("other status", refuse(302, "elsewhere")),
    ("dropped connection", Trouble("cut connection")),
    ("dropped connection", Trouble("cut body")),
    ("timeout", Trouble("silence")),
    ("timeout", Trouble("slow body")),
    ("too large", HUGE),
    ("unreadable body", Trouble("empty body")),
    ("unreadable body", Trouble("html page", status=200)),
    ("unreadable body", Trouble("encoded", code="br")),
    ("error in a 200", Trouble("error in a 200")),
    ("no answer", Say(extra={"choices": None})),
    ("no answer", Say("half an", stop="error")),
    ("retried by a proxy", Say("ahoy", headers={"x-litellm-attempted-retries": "1"})),
    ("another model", Say("ahoy", headers={"x-litellm-attempted-fallbacks": "1"})),
]
# What no server does.
ERRORS: dict[str, TrialError] = {
    "missing tool": MissingTool("no gcc"),
    "agent": AgentError("it ended with code 1"),
    "sandbox": SandboxError("no space left"),
    "check": CheckError("the referee died"),
}


def is_skill_arm(call: Call) -> bool:
    return "ahoy" in call.system


def is_probe(call: Call) -> bool:
    return call.prompt == probe.PROMPT


class Student:
    """Answers every call in words of its own, and knows the house's word with the skill only."""

    def __init__(self) -> None:
        self.trials: list[Call] = []
        self.probes: list[Call] = []

    def __call__(self, call: Call) -> Spoken:
        (self.probes if is_probe(call) else self.trials).append(call)
        word = "ahoy" if is_skill_arm(call) else "hello"
        return f"{word} {hashed_answer(call)}"


class Once(Student):
    """Misbehaves at the first call of each arm. Complains only about a parameter that was sent."""

    def __init__(self, trouble: Spoken) -> None:
        super().__init__()
        self.trouble = trouble
        self.calls: Counter[bool] = Counter()

    def __call__(self, call: Call) -> Spoken:
        answer = super().__call__(call)
        if is_probe(call):
            return answer
        arm = is_skill_arm(call)
        self.calls[arm] += 1
        param = self.trouble.param if isinstance(self.trouble, Trouble) else ""
        misbehaves = self.calls[arm] == 1 and (not param or param in call.body)
        return self.trouble if misbehaves else answer


def plan_at(server: Loopback, folder: Path, cases: int = 2, **options: Any) -> Plan:
    skill = Skill.load(write_skill(folder / "greeter", cases=cases))
    return make_plan(
        skill, models=["any"], options=PlanOptions(keys={}, base_url=server.url, **options)
    )


def with_another_text(plan: Plan) -> Plan:
    folder = plan.skill.folder
    assert folder is not None
    return replace(plan, skill=Skill.load(write_skill(folder, body=f"{BODY}One more line.\n")))


async def results_of(
    plan: Plan, store: Store, timeout: float = 300, run: RunOptions | None = None, **options: Any
) -> list[Result]:
    models = Models(ModelContext(timeout=timeout, retries=1), replies=store, **options)
    evaluation = await evaluate(plan, store=store, models=models, options=run)
    return list(store.results(evaluation.run))


def missing(results: list[Result]) -> list[Result]:
    return [result for result in results if result.passed is None]


# One kind of missing.


@pytest.mark.parametrize(
    ("failure", "trouble"),
    SERVERS,
    ids=lambda value: "" if isinstance(value, Say | Trouble) else str(value),
)
async def test_what_may_have_reached_a_student_is_missing_and_stays_so(
    failure: str, trouble: Spoken, tmp_path: Path, quick: None
) -> None:
    student = Once(trouble)
    async with Loopback(student) as server:
        plan = plan_at(server, tmp_path, runs=1)
        with open_store(tmp_path / "store") as store:
            timeout = TIMEOUT if failure == "timeout" else 300
            first = await results_of(plan, store, timeout)
            asked = len(student.trials)
            last = await results_of(plan, store, timeout)
    assert len(student.probes) == 2
    if FAILURES[failure].reached:
        assert asked == len(student.trials) == len(plan)
        assert len(missing(first)) == len(missing(last)) == 2
        assert all(result.is_final for result in last)
    else:
        assert not missing(last)
        goes_on = FAILURES[failure].retries != "none" or failure == "unsupported parameter"
        assert bool(missing(first)) != goes_on


async def test_who_could_not_be_asked_is_asked_later(tmp_path: Path) -> None:
    student = Student()
    async with Loopback(student) as server:
        plan = plan_at(server, tmp_path, runs=1)
        with open_store(tmp_path / "store") as store:
            assert len(missing(await results_of(plan, store, cache="replay"))) == len(plan)
            await server.stop()
            refused = await results_of(plan, store)
            assert all("no connection" in result.error for result in refused)
            await server.start()
            assert not missing(await results_of(plan, store))


async def test_an_error_of_a_judge_leaves_a_trial_missing_but_a_busy_one_is_asked_again(
    tmp_path: Path, quick: None
) -> None:
    asked: Counter[str] = Counter()
    trouble = refuse(500, "busy")

    def answer(call: Call) -> Spoken:
        if call.model != "judge":
            return hashed_answer(call)
        asked[call.prompt] += 1
        graded = '{"evidence": "", "reason": "It is none.", "passed": false}'
        return trouble if asked[call.prompt] == 1 else graded

    checks = [{"judge": "Is it a greeting?"}]
    suite = {"cases": [{"id": "one", "prompt": "Greet.", "checks": checks}]}
    async with Loopback(answer) as server:
        skill = Skill.load(write_skill(tmp_path / "greeter", suite=suite))
        judge = resolve("judge", base_url=server.url)
        options = PlanOptions(keys={}, base_url=server.url, judge=judge, runs=1)
        with open_store(tmp_path / "store") as store:
            assert not missing(
                await results_of(make_plan(skill, models=["any"], options=options), store)
            )
    assert set(asked.values()) == {2}


@pytest.mark.parametrize("kind", ERRORS)
def test_the_rest_of_the_table(kind: str) -> None:
    error = ERRORS[kind]
    assert failure_of(error) == kind
    assert stays_missing(error, asked=True, answered=True) == (kind != "missing tool")
    assert not stays_missing(error, asked=False, answered=False)


def test_the_whole_table_is_walked_through_and_is_in_the_docs() -> None:
    elsewhere = {"no connection", "not asked", "not started", "bug", "model"}
    assert {failure for failure, _ in SERVERS} | set(ERRORS) | elsewhere == set(FAILURES)
    assert status_failure(599) == "server error"
    page = (REPOSITORY / "docs" / "how-to" / "models.md").read_text(encoding="utf-8")
    assert [row for row in rows_of_the_docs() if row not in page] == []


def rows_of_the_docs() -> Iterator[str]:
    retries = {"none": "no", "one": "once", "some": "yes", "many": "yes, twice as often"}
    for row in FAILURES.values():
        outcome = "missing" if row.reached else "free"
        yield f"| {row.what} | {outcome} | {retries[row.retries]} |"


def test_a_failed_script_is_asked_again_for_it_answers_the_same(
    home: Path, upskill: Upskill
) -> None:
    skill = write_skill(home / "greeter", cases=1)
    broken = write_script(home / "broken.yaml", [{"error": "it broke"}])
    assert upskill("eval", skill, "-m", broken).code == 3
    with closing(sqlite3.connect(home / STORE / FILE)) as db:
        assert db.execute("SELECT passed, final FROM results").fetchall() == [(None, 0)] * 2


# How many draws, and how.


@pytest.mark.parametrize(
    ("model", "agent", "temperature", "words"),
    [
        ("local", "chat", None, "exact: one draw a case"),
        ("local", "chat", 0.7, "3 draws a case at temperature 0.7"),
        ("local", "tools", None, "3 draws a case at temperature 0.7"),
        ("scripted:x.yaml", "chat", None, "exact: one draw a case"),
        ("anthropic:claude", "chat", None, "3 draws a case at temperature 0.7"),
        ("anthropic:claude", "chat", 0.0, "3 draws a case at temperature 0"),
        ("claude-code", "chat", None, "3 draws a case; claude-code takes no temperature"),
    ],
)
def test_how_a_student_answers(
    model: str, agent: str, temperature: float | None, words: str
) -> None:
    assert DrawRules(resolve(model, keys={}), agent, temperature).describe(3) == words


async def test_another_text_round_or_part_is_another_draw(tmp_path: Path) -> None:
    student = Student()
    async with Loopback(student) as server:
        plan = plan_at(server, tmp_path, cases=3)
        edited = with_another_text(plan)
        part = replace(plan, suite=CaseFilter(limit=2).choose(plan.suite))
        searched = replace(plan, purpose="search")
        baseline = next(trial for trial in plan.trials() if trial.arm == "baseline")
        later = replace(baseline, seed=1 - baseline.seed)
        plans = [plan, edited, part, searched]
        assert len({each.key(baseline) for each in plans} | {plan.key(later)}) == 5
        assert (
            len({each.request_seed(baseline) for each in plans} | {plan.request_seed(later)}) == 5
        )


def test_nothing_but_the_question_makes_a_draw_of_an_exact_student(home: Path) -> None:
    skill = Skill.load(write_skill(home / "greeter"))
    plan = make_plan(skill, models=[write_script(home / "m.yaml")], options=PlanOptions(keys={}))
    assert (len(plan), plan.runs) == (8, 3)
    edited = with_another_text(plan)
    part = replace(plan, suite=CaseFilter(limit=2).choose(plan.suite))
    baseline = next(trial for trial in plan.trials() if trial.arm == "baseline")
    plans = [plan, edited, part, replace(plan, purpose="search")]
    assert len({(each.key(baseline), each.request_seed(baseline)) for each in plans}) == 1


async def test_the_arms_of_a_round_run_in_an_order_that_the_plan_stores(tmp_path: Path) -> None:
    async with Loopback(Student()) as server:
        plan = plan_at(server, tmp_path, cases=12)
        with open_store(tmp_path / "store") as store:
            await results_of(plan, store)
            (run,) = store.runs()
    order = [*run.plan.to_plan().trials()]
    assert {trial.seed for trial in order[:24]} == {0}
    assert [*replace(plan, shuffle=run.plan.shuffle).trials()] == order
    assert [*replace(plan, shuffle=run.plan.shuffle + 1).trials()] != order
    firsts = [arms_in_order(order, seed) for seed in range(3)]
    assert all(0 < skill_first < 12 for skill_first in firsts)


def arms_in_order(order: list[Any], seed: int) -> int:
    """In how many cases the skill comes first."""
    first: dict[str, str] = {}
    for trial in order:
        if trial.seed == seed:
            first.setdefault(trial.case, trial.arm)
    return list(first.values()).count("skill")


# All draws count.


async def test_a_run_grows_and_never_shrinks(tmp_path: Path) -> None:
    student = Student()
    async with Loopback(student) as server:
        with open_store(tmp_path / "store") as store:
            counts: list[tuple[int, int]] = []
            for runs, redraw in ((2, False), (1, False), (3, False), (3, True), (1, True)):
                plan = plan_at(server, tmp_path, runs=runs)
                results = await results_of(plan, store, run=RunOptions(redraw=redraw))
                counts.append((len(results), len(student.trials)))
            assert store.count_runs() == 1
    assert counts == [(8, 8), (8, 8), (12, 12), (24, 24), (48, 48)]
    assert len({call.body["seed"] for call in student.trials}) == 12
    assert len(student.probes) == 2


async def test_new_cases_get_rounds_until_equal_and_what_is_missing_stays_missing(
    tmp_path: Path, quick: None
) -> None:
    student = Once(refuse(500, "busy"))
    async with Loopback(student) as server:
        with open_store(tmp_path / "store") as store:
            await results_of(plan_at(server, tmp_path, cases=2, runs=4), store)
            asked = len(student.trials)
            results = await results_of(plan_at(server, tmp_path, cases=3), store)
    assert (asked, len(student.trials), len(results)) == (16, 24, 24)
    assert len(missing(results)) == 2


async def test_draws_of_a_part_are_the_skills_and_count_for_nothing_else(tmp_path: Path) -> None:
    student = Student()
    async with Loopback(student) as server:
        with open_store(tmp_path / "store") as store:
            plan = plan_at(server, tmp_path, cases=3)
            suite = CaseFilter(limit=2).choose(plan.suite)
            options = PlanOptions(keys={}, base_url=server.url)
            part = make_plan(plan.skill, suite, ["any"], options)
            assert {result.trial.arm for result in await results_of(part, store)} == {"skill"}
            assert len(student.trials) == 6
            await results_of(plan, store)
    assert len(student.trials) == 6 + 18


def test_a_part_of_an_exact_student_counts_when_the_whole_suite_runs(
    home: Path, upskill: Upskill
) -> None:
    skill, model = write_skill(home / "greeter"), write_script(home / "m.yaml")
    assert upskill("eval", skill, "-m", model, "--limit", 2).code == 0
    assert "2 of 8 trials are stored" in upskill("eval", skill, "-m", model).err


def test_an_exact_student_is_not_drawn_again(home: Path, upskill: Upskill) -> None:
    skill, model = write_skill(home / "greeter"), write_script(home / "m.yaml")
    done = upskill("eval", skill, "-m", model, "--redraw")
    assert (done.code, "gives the same answer however often it is asked" in done.err) == (2, True)
    done = upskill("eval", skill, "-m", model, "--fresh")
    assert (done.code, "--fresh is now --redraw" in done.err) == (2, True)


# A baseline that is used again.


@pytest.mark.parametrize(
    ("what", "drawn"),
    [
        ("seen", 6),
        ("fresh", 12),
        ("a day old", 12),
        ("a case is gone", 8),
        ("part of a search", 12),
    ],
)
async def test_only_a_recent_baseline_of_seen_cases_is_used_again(
    what: str, drawn: int, tmp_path: Path
) -> None:
    student = Student()
    async with Loopback(student) as server:
        with open_store(tmp_path / "store") as store:
            plan = plan_at(server, tmp_path, cases=3, runs=2)
            purpose = "search" if what == "part of a search" else "eval"
            await results_of(plan, store, run=RunOptions(purpose=purpose))
            if what == "a day old":
                store.database.execute("UPDATE results SET finished = '2020-01-01T00:00:00+00:00'")
            text = plan.skill.text_hash
            seen: Mapping[str, str] = (
                {} if what == "fresh" else dict.fromkeys(plan.suite.by_id, text)
            )
            edited = with_another_text(plan)
            if what == "a case is gone":
                edited = replace(edited, suite=replace(plan.suite, cases=plan.suite.cases[:2]))
            before = len(student.trials)
            results = await results_of(edited, store, run=RunOptions(seen=seen))
    assert len(student.trials) - before == drawn
    assert not missing(results)
    assert len(results) == len(edited)


# The probe for a cache.


async def test_a_server_that_answers_from_a_cache_is_asked_once_a_case(tmp_path: Path) -> None:
    calls: list[Call] = []

    def answer(call: Call) -> Spoken:
        calls.append(call)
        if is_probe(call):
            return "The tide came in. " * 5  # short answers may be equal by chance
        return "ahoy" if is_skill_arm(call) else "hello"

    async with Loopback(answer) as server:
        with open_store(tmp_path / "store") as store:
            plan = plan_at(server, tmp_path)
            results = await results_of(plan, store)
            (run,) = store.runs()
            assert (len(results), run.trials, run.plan.exact) == (4, 4, ("any",))
            assert run.plan.describe_draws("any") == (
                "exact: one draw a case (its server answers from a cache)"
            )
            tokens = sum(result.usage.total_tokens for result in results)
            assert store.spent(run)["student"][0] > tokens
            with pytest.raises(UsageError, match="gives the same answer"):
                await results_of(plan, store, run=RunOptions(redraw=True))
    probes = [call for call in calls if is_probe(call)]
    assert {(call.body["temperature"], call.body["max_tokens"]) for call in probes} == {(0.7, 60)}
    assert len({call.seed for call in probes}) == len(probes) == 2
    assert len(calls) == 2 + 4


async def test_a_command_of_several_runs_probes_once(tmp_path: Path) -> None:
    calls: list[Call] = []

    def answer(call: Call) -> Spoken:
        calls.append(call)
        return "The tide came in. " * 5

    async with Loopback(answer) as server:
        plan = plan_at(server, tmp_path)
        models = Models(ModelContext())
        with open_store(tmp_path / "store") as store:
            for each in (plan, with_another_text(plan)):
                await evaluate(each, store=store, models=models)
            assert [run.plan.exact for run in store.runs()] == [("any",), ("any",)]
            tokens = [store.spent(run)["student"][0] for run in store.runs()]
    assert len([call for call in calls if is_probe(call)]) == 2
    assert tokens[0] > tokens[1] > 0, "the bill has the probe once"


async def test_the_probe_keeps_the_ceilings(tmp_path: Path) -> None:
    student = Student()
    async with Loopback(student) as server:
        with open_store(tmp_path / "store") as store:
            ledger = Ledger(Ceilings(calls=1))
            assert await results_of(plan_at(server, tmp_path), store, ledger=ledger) == []
    assert len(student.trials) + len(student.probes) <= 1


def test_recorded_answers_are_not_probed(home: Path, upskill: Upskill) -> None:
    skill, student = write_skill(home / "greeter"), Student()
    with serving(student) as server:
        command = ("eval", skill, "-m", "any", "--base-url", server.url)
        assert upskill(*command, "--receipt").code == 0
        asked = len(student.trials) + len(student.probes)
        assert upskill("verify", skill).code == 0
        assert upskill("export", "last", "--replies", "answers.gz").code == 0
        assert upskill("eval", skill, "--replay", "answers.gz").code == 0
        assert upskill("eval", skill, "--replay", "answers.gz", "--limit", 2).code == 0
    assert len(student.trials) + len(student.probes) == asked


# Rounds.


async def test_rounds_end_where_every_verdict_stands(tmp_path: Path) -> None:
    student = Student()
    async with Loopback(student) as server:
        with open_store(tmp_path / "store") as store:
            looks: list[int] = []

            def is_settled(_: object, rows: list[Any]) -> bool:
                looks.append(len(rows))
                return len(rows) >= 12

            plan = plan_at(server, tmp_path, runs=5)
            first = await results_of(plan, store, run=RunOptions(is_settled=is_settled))
            (run,) = store.runs()
            assert (looks, len(first), run.trials, run.finished) == ([4, 8, 12], 12, 12, True)
            again = await results_of(plan_at(server, tmp_path, runs=2), store)
            (run,) = store.runs()
            assert (len(again), run.plan.in_rounds) == (12, True)


def test_a_run_says_what_it_is_for(home: Path, upskill: Upskill) -> None:
    skill = Skill.load(write_skill(home / "greeter"))
    plan = make_plan(skill, models=[write_script(home / "m.yaml")], options=PlanOptions(keys={}))
    with open_store(STORE) as store:
        for purpose in ("search", "eval"):
            models = Models(ModelContext(), replies=store)
            options = RunOptions(purpose=purpose)
            asyncio.run(evaluate(plan, store=store, models=models, options=options))
        assert [run.purpose for run in store.runs()] == ["search", "eval"]
        assert [run.purpose for run in store.runs(listed=True)] == ["eval"]
    for options, purposes in (((), ["eval"]), (("--all",), ["search", "eval"])):
        rows = upskill("runs", "--json", *options).json
        assert [row["purpose"] for row in rows] == purposes
        assert len(upskill("runs", "--csv", "-", *options).out.splitlines()) == 1 + len(purposes)
