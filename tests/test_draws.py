"""A failed call that is made again is another draw: it is counted, kept for good, and never helps a skill."""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import re
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conftest import (
    REPOSITORY,
    Upskill,
    evaluate,
    greetings,
    serving,
    start,
    write_script,
    write_skill,
)
from loopback import Call, Gate, Loopback, Say, Spoken, Trouble, refuse
from test_verdict import alike, both
from upskill import ModelContext, Models, Plan, Result, Skill, Store, make_plan, open_store
from upskill.errors import AgentError, CheckError, MissingTool, SandboxError, TrialError
from upskill.models.addresses import resolve
from upskill.models.draws import FAILURES, Draws, failure_of, status_failure
from upskill.runs.planning.plan import PlanOptions
from upskill.runs.running import trial
from upskill.runs.stores.sqlite import FILE
from upskill.verdicts.compute import compute_verdict
from upskill.verdicts.outcome import Outcome
from upskill.verdicts.requirements import check_requirement, parse_requirement

STORE = "runs"
TIMEOUT = 3.0  # seconds: how long a server that is silent is waited for, and a busy machine not
RATE_LIMIT = Trouble(status=429, headers={"x-ratelimit-remaining-requests": "0"})
HUGE = Say(extra={"padding": "x" * 34_000_000})
# What a server does once in each arm, and what a trial then says.
SERVERS: list[tuple[str, Spoken, str]] = [
    ("status 401", refuse(401, "no such key"), ""),
    ("rate limit", refuse(429, "slow down", retry_after="0"), ""),
    ("rate limit", RATE_LIMIT, ""),
    ("unsupported parameter", refuse(400, "Unsupported parameter: 'seed'", param="seed"), ""),
    ("overload", refuse(429, "slow down"), "status 429"),
    ("overload", refuse(503, "busy", retry_after="0"), "status 503"),
    ("overload", refuse(529, "overloaded"), "status 529"),
    ("server error", refuse(500, "The model produced invalid content."), "status 500"),
    ("server error", refuse(502, "Failed to parse tool call arguments"), "status 502"),
    ("server error", refuse(408, "too slow"), "status 408"),
    ("server error", refuse(409, "conflict"), "status 409"),
    ("server error", refuse(425, "too early"), "status 425"),
    ("other status", refuse(400, "bad request"), "status 400"),
    ("other status", refuse(400, "The model called a function that does not exist"), "status 400"),
    ("other status", refuse(403, "not for you"), "status 403"),
    ("no such model", refuse(404, "model 'any' not found, try pulling it first"), ""),
    ("not admitted", refuse(503, "Loading model"), ""),
    ("other status", refuse(404, "no such page"), "status 404"),
    ("other status", refuse(422, "cannot be processed"), "status 422"),
    ("other status", refuse(302, "elsewhere"), "status 302"),
    ("other status", refuse(429, "You exceeded your current quota"), "status 429"),
    ("dropped connection", Trouble("cut connection"), "dropped connection"),
    ("dropped connection", Trouble("cut body"), "dropped connection"),
    ("timeout", Trouble("silence"), "timeout"),
    ("timeout", Trouble("slow body"), "timeout"),
    ("too large", HUGE, "too large"),
    ("unreadable body", Trouble("empty body"), "unreadable body"),
    ("unreadable body", Trouble("html page", status=200), "unreadable body"),
    ("unreadable body", Trouble("invalid json"), "unreadable body"),
    ("error in a 200", Trouble("error in a 200"), "error in a 200"),
    ("no answer", Say(extra={"choices": None}), "no answer"),
    ("no answer", Say("half an", stop="error"), "no answer"),
    (
        "no answer",
        Say(extra={"choices": [{"message": {"content": "half"}, "finish_reason": None}]}),
        "no answer",
    ),
    (
        "retried by a proxy",
        Say("ahoy", headers={"x-litellm-attempted-retries": "1"}),
        "retried by a proxy",
    ),
    ("another model", Say("ahoy", headers={"x-litellm-attempted-fallbacks": "1"}), "another model"),
    ("unreadable body", Trouble("encoded", code="br"), "unreadable body"),
    ("unreadable body", Trouble("encoded", code="gzip"), "unreadable body"),
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


class Once:
    """Misbehaves at the first call of each arm, then answers. Complains only about a parameter that was sent."""

    def __init__(self, trouble: Spoken) -> None:
        self.trouble = trouble
        self.calls: Counter[bool] = Counter()

    def __call__(self, call: Call) -> Spoken:
        arm = is_skill_arm(call)
        self.calls[arm] += 1
        param = self.trouble.param if isinstance(self.trouble, Trouble) else ""
        misbehaves = self.calls[arm] == 1 and (not param or param in call.body)
        return self.trouble if misbehaves else "ahoy" if arm else "hello"


def plan_at(server: Loopback, folder: Path, **options: Any) -> Plan:
    skill = Skill.load(write_skill(folder / "greeter", cases=2))
    return make_plan(
        skill, models=["any"], options=PlanOptions(keys={}, base_url=server.url, **options)
    )


async def results_of(
    plan: Plan, store: Store, timeout: float = 300, **options: Any
) -> list[Result]:
    models = Models(ModelContext(timeout=timeout, retries=1), replies=store, **options)
    evaluation = await evaluate(plan, store=store, models=models)
    return list(store.results(evaluation.run))


def redraws_by_arm(results: list[Result]) -> dict[str, dict[str, int]]:
    found: dict[str, Counter[str]] = {"baseline": Counter(), "skill": Counter()}
    for result in results:
        found[result.trial.arm].update(result.redraws)
    return {arm: dict(counts) for arm, counts in found.items()}


@pytest.mark.parametrize(
    ("failure", "trouble", "reason"),
    SERVERS,
    ids=lambda value: "" if isinstance(value, Say | Trouble) else str(value),
)
async def test_what_a_server_does_counts_as_the_table_says(
    failure: str, trouble: Spoken, reason: str, tmp_path: Path, quick: None
) -> None:
    async with Loopback(Once(trouble)) as server:
        plan = plan_at(server, tmp_path)
        with open_store(tmp_path / "store") as store:
            timeout = TIMEOUT if failure == "timeout" else 300
            first = await results_of(plan, store, timeout)
            # Whatever ended a trial is tried again by the same command.
            last = await results_of(plan, store, timeout)
    assert bool(reason) == FAILURES[failure].is_draw
    expected = {reason: 1} if reason else {}
    assert redraws_by_arm(last) == {"baseline": expected, "skill": expected}
    assert all(result.passed is not None for result in last)
    retried = FAILURES[failure].retries != "none" and "quota" not in str(trouble)
    goes_on = retried or failure in ("unsupported parameter", "retried by a proxy")
    assert all(result.passed is not None for result in first) == goes_on


async def test_nothing_is_drawn_where_nobody_answers_or_nobody_is_asked(tmp_path: Path) -> None:
    async with Loopback(Once("ahoy")) as server:
        plan = plan_at(server, tmp_path)
        with open_store(tmp_path / "store") as store:
            for expected in ("no stored reply", "no connection"):
                cache = "replay" if expected == "no stored reply" else "use"
                if cache == "use":
                    await server.stop()
                results = await results_of(plan, store, cache=cache)
                assert all(result.passed is None and expected in result.error for result in results)
                assert not any(result.redraws for result in results)
            await server.start()
            assert not any(result.redraws for result in await results_of(plan, store))


def always(*_: object) -> bool:
    return True


@pytest.mark.parametrize("embedded", [False, True])
async def test_an_interrupted_student_was_drawn_unless_it_answers_the_same_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, embedded: bool
) -> None:
    if embedded:
        monkeypatch.setattr(trial, "answers_the_same", always)
    async with Loopback(Trouble("silence", seconds=600)) as server:
        plan = plan_at(server, tmp_path)
        with open_store(tmp_path / "store") as store:
            models = Models(ModelContext(timeout=600), replies=store)
            running = asyncio.create_task(evaluate(plan, store=store, models=models))
            while len(server.requests) < 4:
                await asyncio.sleep(0.01)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            server.answer = "ahoy"
            expected = {} if embedded else {"interrupted": 1}
            assert all(result.redraws == expected for result in await results_of(plan, store))


def test_an_embedded_model_answers_the_same_again_unless_it_acts_or_is_judged(home: Path) -> None:
    skill = Skill.load(write_skill(home / "greeter"))
    plan = make_plan(
        skill, models=["local", write_script(home / "model.yaml")], options=PlanOptions(keys={})
    )
    assert [trial.answers_the_same(plan, each.name) for each in plan.models] == [True, False]
    for other in (replace(plan, agent="tools"), replace(plan, judge=plan.models[1])):
        assert not trial.answers_the_same(other, "local")


@pytest.mark.parametrize(
    ("sent", "between"),
    [
        (signal.SIGTERM, "nothing"),
        (signal.SIGHUP, "nothing"),
        *((signal.SIGKILL, between) for between in ("nothing", "another check", "another id")),
    ],
)
def test_what_a_killed_command_had_asked_was_drawn(
    sent: signal.Signals, between: str, upskill: Upskill, home: Path
) -> None:
    skill = write_skill(home / "greeter", cases=4)
    gate = Gate(lambda _: "ahoy", 2)
    with serving(gate) as server:
        command = ("eval", skill, "-m", "any", "--base-url", server.url, "--concurrency", 3)
        # Whoever started the tests may have had SIGHUP ignored.
        process = start(
            *command,
            preexec_fn=lambda: (
                signal.signal(sent, signal.SIG_DFL) if sent != signal.SIGKILL else None
            ),
        )
        while (
            len(server.requests) < 5 or len(stored_trials(home)) < 2
        ):  # two are answered, three are on their way
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
        process.send_signal(sent)
        process.communicate()
        gate.left = math.inf
        suite = greetings(4)
        if between == "another check":
            suite["checks"].append({"contains": "a"})
        if between == "another id":
            suite["cases"] = [case | {"id": f"new-{case['id']}"} for case in suite["cases"]]
        write_skill(home / "greeter", suite=suite)
        assert upskill(*command).code == 0
    assert sorted(redraws_in(home).values()) == [1] * 3
    assert upskill("show", "last").out.count("lost answers, requested again: killed (1)") == 3
    with closing(sqlite3.connect(home / STORE / FILE)) as db:
        assert (between != "nothing") or db.execute("SELECT * FROM open_draws").fetchall() == []


def stored_trials(home: Path) -> list[Any]:
    if not (home / STORE / FILE).exists():
        return []
    with closing(sqlite3.connect(home / STORE / FILE)) as db:
        made = db.execute("SELECT * FROM sqlite_master WHERE name = 'results'").fetchall()
        return db.execute("SELECT key FROM results").fetchall() if made else []


async def test_a_judge_that_fails_is_a_draw_of_the_trial(tmp_path: Path, quick: None) -> None:
    failed: Counter[str] = Counter()

    def answer(call: Call) -> Spoken:
        if call.model != "judge":
            return "hello there" if is_skill_arm(call) else "hello"
        failed[call.prompt] += 1
        graded = '{"evidence": "", "reason": "It is none.", "passed": false}'
        return refuse(500, "busy") if failed[call.prompt] == 1 else graded

    suite = {
        "cases": [{"id": "one", "prompt": "Greet.", "checks": [{"judge": "Is it a greeting?"}]}]
    }
    async with Loopback(answer) as server:
        skill = Skill.load(write_skill(tmp_path / "greeter", suite=suite))
        options = PlanOptions(
            keys={}, base_url=server.url, judge=resolve("judge", base_url=server.url)
        )
        with open_store(tmp_path / "store") as store:
            results = await results_of(make_plan(skill, models=["any"], options=options), store)
    assert redraws_by_arm(results) == {"baseline": {"status 500": 1}, "skill": {"status 500": 1}}


@pytest.mark.parametrize("kind", [*ERRORS, "bug", "model"])
def test_what_no_server_does_counts_as_the_table_says(
    kind: str, home: Path, upskill: Upskill
) -> None:
    error = ERRORS.get(kind) or TrialError("boom")
    if kind == "bug":
        error.traceback = "Traceback"
    if kind != "model":
        assert failure_of(error) == kind
        draws = Draws()
        draws.add(failure_of(error))
        assert dict(draws.reasons) == ({kind: 1} if FAILURES[kind].is_draw else {})
        return
    skill = write_skill(home / "greeter", cases=1)
    upskill("eval", skill, "-m", write_script(home / "broken.yaml", [{"error": "it broke"}]))
    shown = upskill("show", "last", "--json").json
    assert [trial["redraws"] for trial in shown["trials"]] == [{"model": 1}] * 2


def test_the_whole_table_is_walked_through_and_is_in_the_docs() -> None:
    elsewhere = {
        "no connection",
        "not asked",
        "interrupted",
        "killed",
        "bug",
        "model",
        "judge reply",
    }
    assert {failure for failure, *_ in SERVERS} | set(ERRORS) | elsewhere == set(FAILURES)
    assert status_failure(599, {}) == "server error"
    page = (REPOSITORY / "docs" / "how-to" / "models.md").read_text(encoding="utf-8")
    retries = {"none": "no", "one": "once", "some": "yes", "many": "yes, twice as often"}
    rows = [
        f"| {row.what} | {'a draw' if row.is_draw else 'free'} | {retries[row.retries]} |"
        for row in FAILURES.values()
    ]
    table = re.findall(r"^\| .* \| (?:a draw|free) \| .* \|$", page, re.MULTILINE)
    assert table == rows


# Servers that fail what a model got wrong.


class Coin:
    """A model that gets half of its answers right, with and without the skill, behind a server that fails some."""

    def __init__(self, fails: Callable[[bool, bool], Spoken | None]) -> None:
        self.fails = fails
        self.draws: Counter[str] = Counter()

    def __call__(self, call: Call) -> Spoken:
        asked = json.dumps([call.body["messages"], call.seed])
        self.draws[asked] += 1
        right = hashlib.sha256(f"{asked} {self.draws[asked]}".encode()).digest()[0] < 128
        return self.fails(is_skill_arm(call), right) or ("ahoy" if right else "hello")


def eval_coin(
    upskill: Upskill, home: Path, trouble: Trouble, *options: object, commands: int = 1
) -> dict[str, Any]:
    skill = write_skill(home / "greeter", cases=20)
    coin = Coin(lambda with_skill, right: trouble if with_skill and not right else None)
    with serving(coin) as server:
        command = (
            "eval",
            skill,
            "-m",
            "any",
            "--base-url",
            server.url,
            "--repeats",
            3,
            "--json",
            *options,
        )
        done = [upskill(*command) for _ in range(commands)][-1]
        shown = upskill(*command[:8], "--report", "markdown=report.md")
    reports = [
        " ".join(text.split())
        for text in (shown.out + shown.err, (home / "report.md").read_text("utf-8"))
    ]
    return done.json["models"][0] | {"code": done.code, "reports": reports}


@pytest.mark.parametrize(
    ("trouble", "commands"),
    [(refuse(500, "The model produced invalid content."), 1), (refuse(400, "bad request"), 6)],
    ids=["500", "400 and the same command six times"],
)
def test_a_server_that_fails_wrong_answers_makes_no_skill_helpful(
    trouble: Trouble, commands: int, upskill: Upskill, home: Path, quick: None
) -> None:
    verdict = eval_coin(upskill, home, trouble, "--require", "lift>0", commands=commands)
    assert verdict["skill"]["pass_rate"] > 0.9
    assert verdict["interval"][0] > 0
    assert (verdict["decision"], verdict["code"]) == ("undecided", 1)
    assert verdict["reason"] in ("errors", "errors could explain it")
    assert verdict["skill"]["redrawn"] > 20
    assert verdict["baseline"]["redrawn"] == 0
    assert verdict["missing"]["redraw_p_value"] < 0.001
    again = f"{verdict['skill']['redrawn']} of 60 trials with the skill, 0 of 60 in the baseline"
    line = f"retried after a failed or interrupted call: {again}"
    assert all(line in report for report in verdict["reports"])


# A trial that was drawn again stays so.


def redraws_in(home: Path, store: str = STORE) -> dict[tuple[str, str, int], int]:
    """Of the latest run, the trials that were drawn again."""
    with closing(sqlite3.connect(home / store / FILE)) as db:
        query = "SELECT case_id, arm, seed, redraws FROM results WHERE run = (SELECT MAX(number) FROM runs)"
        return {
            (case, arm, seed): redraws for case, arm, seed, redraws in db.execute(query) if redraws
        }


@pytest.mark.parametrize(
    "way", ["another command", "no cache", "part first", "another check", "replayed"]
)
def test_a_trial_that_was_drawn_again_stays_so(
    way: str, upskill: Upskill, home: Path, quick: None
) -> None:
    """A 400 at the first draw of one trial; the second is right."""
    skill = write_skill(home / "greeter", cases=4)
    asked: Counter[str] = Counter()

    def answer(call: Call) -> Spoken:
        if not is_skill_arm(call):
            return "hello"
        asked[call.prompt] += 1
        return (
            refuse(400, "bad") if "guest 2" in call.prompt and asked[call.prompt] == 1 else "ahoy"
        )

    drawn = {("greet-2", "skill", 0): 1}
    with serving(answer) as server:
        command = ("eval", skill, "-m", "any", "--base-url", server.url)
        first = (*command, "--case", "greet-2") if way == "part first" else command
        assert upskill(*first, "--quiet").code == 3
        assert redraws_in(home) == drawn
        if way == "no cache":
            with closing(sqlite3.connect(home / STORE / FILE)) as db, db:
                db.execute("DELETE FROM replies")
        assert upskill(*first).code == 0
        if way == "part first":
            upskill(*command)
        if way == "another check":
            suite = greetings(4)
            suite["checks"].append({"contains": "a"})
            write_skill(home / "greeter", suite=suite)
            asked.clear()
            upskill(*command)
    if way == "replayed":
        assert upskill("export", "last", "--replies", "replies.gz").code == 0
        assert upskill("eval", skill, "--replay", "replies.gz", "--store", "new").code == 0
        assert upskill("show", "last", "--store", "new", "--json").json["trials"] != []
        assert redraws_in(home, "new") == drawn
    assert redraws_in(home) == drawn
    shown = upskill("show", "last").out
    assert "lost answers, requested again: status 400 (1)" in shown


def test_a_fresh_run_draws_everything_anew(upskill: Upskill, home: Path, quick: None) -> None:
    skill = write_skill(home / "greeter", cases=2)
    with serving(Once(refuse(500, "busy"))) as server:
        command = ("eval", skill, "-m", "any", "--base-url", server.url)
        upskill(*command)
        assert len(redraws_in(home)) == 2
        upskill(*command, "--fresh")
        assert redraws_in(home) == {}


# What it does to a verdict.


def redrawn(rows: list[Outcome], arm: str, cases: int) -> list[Outcome]:
    return [
        replace(row, redraws=1) if row.arm == arm and row.case < f"case-{cases:02d}" else row
        for row in rows
    ]


def test_a_pass_that_needed_another_draw_counts_against_the_decision_it_favors() -> None:
    won, lost = both(alike(12, "F", "P")), both(alike(12, "P", "F"))
    for rows, decision, arm in ((won, "helps", "skill"), (lost, "hurts", "baseline")):
        assert compute_verdict(rows).decision == decision
        few, many = (compute_verdict(redrawn(rows, arm, cases)) for cases in (1, 9))
        assert few.decision == decision
        assert (many.decision, many.reason) == ("undecided", "errors could explain it")
        assert many.missing is not None
        assert many.missing.redraw_p_value == pytest.approx(2 / 2**9)
        assert abs(
            many.missing.worst.value if decision == "helps" else many.missing.best.value
        ) == pytest.approx(0.25)
        assert many.lift == (1 if decision == "helps" else -1)
        assert "--fresh" in many.advice


def test_failures_of_the_other_arm_that_needed_another_draw_count_too() -> None:
    won = both(alike(12, "F", "P"))
    assert compute_verdict(redrawn(won, "baseline", 10)).reason == "errors could explain it"
    # A trial with two rows, one of them errored, keeps the larger count.
    again = [replace(won[0], passed=None, redraws=3), *won]
    assert (
        compute_verdict(again).baseline.redrawn
        == compute_verdict(again[1:] + again[:1]).baseline.redrawn
        == 1
    )


@pytest.mark.parametrize(
    ("text", "errors", "held"),
    [
        ("lift>0", 0, True),
        ("lift>0", 9, False),
        ("point:lift>0", 9, True),
        ("pass_rate>=0.7", 0, True),
        ("pass_rate>=0.7", 9, False),
        ("pass_rate<=1", 9, True),
        ("tokens<=1.2x", 0, True),
        ("tokens<=1.2x", 9, False),
    ],
)
def test_a_requirement_holds_whatever_repeated_trials_would_have_shown(
    text: str, errors: int, held: bool
) -> None:
    rows = redrawn(both(alike(12, "F", "P")), "skill", errors)
    rows[0] = replace(rows[0], output_tokens=5_000)  # one that repeated trials may have been like
    assert check_requirement(parse_requirement(text), compute_verdict(rows)).held is held


@pytest.mark.parametrize("text", ["lift>0", "point:lift>0", "pass_rate>=0.5", "tokens<=100x"])
def test_no_number_is_met_where_too_many_trials_errored(text: str) -> None:
    cases = alike(40, "F", "P") | {f"x{number}": ("F", "E") for number in range(6)}
    verdict = compute_verdict(both(cases))
    assert verdict.reason == "errors"
    ruling = check_requirement(parse_requirement(text), verdict)
    assert not ruling.held
    assert "errored" in ruling.reason


def test_a_pass_rate_counts_missing_trials_without_a_baseline_too() -> None:
    rows = [row for row in both(alike(40, "F", "P") | {"x": ("F", "E")}) if row.arm == "skill"]
    assert not check_requirement(parse_requirement("pass_rate>=0.91"), compute_verdict(rows)).held
    assert check_requirement(parse_requirement("pass_rate>=0.91"), compute_verdict(rows[:-1])).held
