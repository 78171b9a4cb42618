"""`upskill export`: a stored run as files of other tools, read by those tools where they can be had."""

from __future__ import annotations

import asyncio
import csv
import json
import resource
import subprocess
import sys
import tracemalloc
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import Done, Upskill, greetings, write_script, write_skill
from upskill import Skill, open_store
from upskill.reports.exports import EXPORTS, Export, StoredRun
from upskill.runs.planning.plan import CheckFinding, PlanOptions, Result, make_plan
from upskill.runs.stores import Review
from upskill.suites import Suite
from upskill.traces import Step, Trace, Usage

HOSTILE = '=HYPERLINK("http://x","y")\n"quoted", \x1b[31mred\x00 \ud83d\r\nnext <script>alert(1)</script> ahoy, friend'
RULES: list[dict[str, Any]] = [
    {"when": "guest 3", "system": "ahoy", "error": "the server is on fire"},
    {"when": "guest 2", "answer": HOSTILE, "usage": {"input": 50, "output": 9, "cost": 0.004}},
    {
        "system": "ahoy",
        "answer": "ahoy, friend",
        "usage": {"input": 60, "output": 3, "cost": 0.002},
    },
    {"answer": "hello, friend", "usage": {"input": 20, "output": 3, "cost": 0.001}},
]
CHECKS = [{"contains": "ahoy"}, {"max_length": 160}, {"max_length": 161}]
TRIALS = 4 * 2 * 2  # cases, models, arms


@pytest.fixture
def run(upskill: Upskill, home: Path) -> dict[str, Any]:
    """A run of two models with errors and hostile answers; returns what its JSON says."""
    suite: dict[str, Any] = greetings(4) | {"checks": CHECKS}
    suite["cases"][0] |= {
        "tags": ["polite", "=1+1"],
        "metadata": {"author": "Ann"},
        "reference": "ahoy",
    }
    skill = write_skill(home / "skills" / "greeting", suite=suite)
    models = [write_script(home / f"{name}.json", RULES) for name in ("one", "two")]
    done = upskill("eval", skill, "-m", models[0], "-m", models[1], "--seed", 3, "--json")
    assert done.code == 0, done.err
    return done.json


def spent(run: dict[str, Any]) -> int:
    """Tokens of both arms of all models."""
    arms = [model[arm] for model in run["models"] for arm in ("baseline", "skill")]
    return sum(arm["input_tokens"] + arm["output_tokens"] for arm in arms)


def export(upskill: Upskill, kind: str, place: str) -> Done:
    done = upskill("export", "last", "--format", kind, "-o", place)
    assert done.code == 0, done.err
    return done


def test_csv_has_a_row_for_every_trial(upskill: Upskill, run: dict[str, Any]) -> None:
    assert "Wrote 16 trials to t.csv" in export(upskill, "csv", "t.csv").err
    with Path("t.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == TRIALS
    assert sum(int(row["input_tokens"]) + int(row["output_tokens"]) for row in rows) == spent(run)
    assert Counter(row["outcome"] for row in rows) == {"passed": 8, "failed": 6, "missing": 2}
    assert Counter(row["held_out"] for row in rows) == {"true": 8, "false": 8}
    assert {row["seed"] for row in rows} == {"3"}
    assert {row["author"] for row in rows} == {"Ann", "people"}


@pytest.mark.parametrize("flags", [(), ("--redact",)])
def test_exports_say_which_cases_were_seen(
    upskill: Upskill, home: Path, flags: tuple[str, ...]
) -> None:
    skill = write_skill(home / "skills" / "greeting", cases=4)
    seen = {"seen": {"greet-1": "another text", "greet-2": ""}}
    (skill / "skill_meta.json").write_text(json.dumps(seen), encoding="utf-8")
    assert upskill("eval", skill, "-m", write_script(home / "model.json")).code == 0
    assert upskill("export", "last", "--format", "csv", "-o", "t.csv", *flags).code == 0
    assert upskill("export", "last", "--format", "inspect", "-o", "logs", *flags).code == 0
    rows = csv.DictReader(Path("t.csv").read_text(encoding="utf-8").splitlines())
    found = {(row["case"], row["held_out"], row["seen"]) for row in rows}
    assert found == {
        *(("greet-1", "false", "true"), ("greet-2", "true", "true")),
        *(("greet-3", "false", "false"), ("greet-4", "true", "false")),
    }
    for log in sorted(Path("logs").glob("*.eval")):
        with zipfile.ZipFile(log) as archive:
            samples = [
                json.loads(archive.read(name))
                for name in archive.namelist()
                if name.startswith("samples/")
            ]
        seen_ids = {sample["metadata"]["case"] for sample in samples if sample["metadata"]["seen"]}
        assert seen_ids == {"greet-1", "greet-2"}


def test_csv_holds_no_formula_and_no_control_character(
    upskill: Upskill, run: dict[str, Any]
) -> None:
    export(upskill, "csv", "t.csv")
    text = Path("t.csv").read_bytes().decode()
    assert not [letter for letter in text if not letter.isprintable() and letter != "\n"]
    rows = list(csv.DictReader(text.splitlines(keepends=True)))
    [answer] = {row["answer"] for row in rows if row["case"] == "greet-2"}
    assert answer.startswith("'=HYPERLINK")
    assert '\n"quoted", \\x1b[31mred\\x00 \\ud83d\nnext' in answer
    assert {row["tags"] for row in rows if row["case"] == "greet-1"} == {"polite, =1+1"}
    for row in rows:
        assert not any(cell.startswith(("=", "+", "@", "\t")) for cell in row.values())
    printed = upskill("export", "last", "--format", "csv", "-o", "-")
    assert (printed.out, printed.err.count("Wrote")) == (text, 0)
    assert run["run"] == rows[0]["run"]


def test_junit_and_markdown_are_the_reports_of_the_run(
    upskill: Upskill, run: dict[str, Any], home: Path
) -> None:
    for kind in ("junit", "markdown"):
        command = (
            "eval",
            home / "skills/greeting",
            "-m",
            "scripted:one.json",
            "-m",
            "scripted:two.json",
        )
        upskill(*command, "--seed", 3, "--report", f"{kind}=reported")
        export(upskill, kind, f"exported.{kind}")
        exported = Path(f"exported.{kind}").read_text()
        assert run["run"] in exported or kind == "junit"
        assert exported == Path("reported").read_text()
    page = upskill("report", "last", "-o", "page.md")
    assert (page.code, Path("page.md").exists()) == (2, False)
    assert "page.md: `upskill report` writes HTML" in page.err


def test_no_name_turns_the_text_of_a_markdown_file_around(upskill: Upskill, home: Path) -> None:
    model = write_script(home / "one\u202e\u2066.json")
    upskill("eval", write_skill(home / "greeting"), "-m", model)
    export(upskill, "markdown", "run.md")
    text = Path("run.md").read_text()
    assert not set("\u202e\u2066") & set(text)
    assert r"one\x202e\x2066.json" in text


READ_LOGS = """
import json, sys
from inspect_ai.log import list_eval_logs, read_eval_log, read_eval_log_sample_summaries
def read(info):
    log = read_eval_log(info)
    header = read_eval_log(info, header_only=True)
    summaries = read_eval_log_sample_summaries(info)
    assert header.results == log.results and len(summaries) == len(log.samples)
    return {
        "task": log.eval.task, "arm": log.eval.metadata["arm"], "model": log.eval.model, "status": log.status,
        "epochs": log.eval.config.epochs, "tokens": sum(one.total_tokens for one in log.stats.model_usage.values()),
        "accuracy": {score.name: score.metrics["accuracy"].value for score in log.results.scores},
        "samples": [
            {"id": one.id, "epoch": one.epoch, "roles": [message.role for message in one.messages],
             "answer": one.output.completion, "error": one.error and one.error.message, "target": one.target,
             "scores": {name: [score.value, score.explanation] for name, score in (one.scores or {}).items()},
             "calls": [call.function for message in one.messages
                       for call in getattr(message, "tool_calls", None) or []],
             "thoughts": [part.reasoning for message in one.messages if isinstance(message.content, list)
                          for part in message.content if part.type == "reasoning"],
             "limit": one.limit and one.limit.type}
            for one in log.samples
        ],
    }
for folder in sys.stdin:
    logs = sorted(list_eval_logs(folder.strip()), key=lambda info: info.name)
    print(json.dumps([read(info) for info in logs]), flush=True)
"""


Logs = Callable[[str], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def read_logs() -> Iterator[Logs]:
    """Reads a folder of logs with inspect_ai, in a process of its own: what that warns of is none of ours."""
    command = [sys.executable, "-W", "ignore", "-c", READ_LOGS]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        ask, answers = process.stdin, process.stdout

        def read(folder: str) -> list[dict[str, Any]]:
            print(Path(folder).resolve(), file=ask, flush=True)
            return json.loads(answers.readline())

        yield read


def test_inspect_reads_a_log_for_each_model_and_arm(
    upskill: Upskill, run: dict[str, Any], read_logs: Logs
) -> None:
    export(upskill, "inspect", "logs")
    before = {path.name: path.read_bytes() for path in Path("logs").iterdir()}
    logs = read_logs("logs")
    assert [(log["model"], log["arm"]) for log in logs] == [
        (f"scripted:{model}.json", arm) for arm in ("baseline", "skill") for model in ("one", "two")
    ]
    assert sum(log["tokens"] for log in logs) == spent(run)
    skill = logs[2]
    assert (skill["task"], skill["status"], skill["epochs"]) == (
        "greeting (with skill)",
        "success",
        1,
    )
    assert skill["accuracy"]["outcome"] == 1.0
    assert logs[0]["accuracy"] == {
        "outcome": 0.25,
        "contains": 0.25,
        "max_length": 1.0,
        "max_length 2": 1.0,
    }
    by_id = {(sample["id"], sample["epoch"]): sample for sample in skill["samples"]}
    assert sorted(by_id) == [(f"greet-{number}", epoch) for number in range(1, 5) for epoch in (1,)]
    assert by_id["greet-1", 1]["roles"] == ["system", "user", "assistant"]
    assert by_id["greet-1", 1]["scores"]["contains"] == ["C", "the answer has 'ahoy'"]
    assert (by_id["greet-1", 1]["target"], by_id["greet-1", 1]["answer"]) == (
        "ahoy",
        "ahoy, friend",
    )
    assert by_id["greet-3", 1]["error"] == "asking scripted:one.json: the server is on fire"
    assert by_id["greet-3", 1]["scores"] == {}
    assert by_id["greet-2", 1]["answer"] == HOSTILE.replace("\ud83d", "?")
    export(upskill, "inspect", "logs")  # the same bytes again, in place of the first
    assert {path.name: path.read_bytes() for path in Path("logs").iterdir()} == before


def test_what_an_agent_did_is_in_the_logs(upskill: Upskill, home: Path, read_logs: Logs) -> None:
    plan = make_plan(
        Skill.load(write_skill(home / "skills" / "greeting", cases=1)),
        None,
        [write_script(home / "one.json")],
    )
    steps = (
        Step("thinking", "I look first."),
        Step(
            "tool",
            tool="bash",
            arguments={"command": "ls"},
            output="no such file",
            status="error",
            seconds=0.5,
        ),
        Step("assistant", "ahoy"),
    )
    with open_store("runs") as store:
        stored, _ = store.start_run(plan, "test")
        for trial in plan.trials():
            trace = Trace(steps, Usage(7, 2, cost_usd=None), "turns", "the-model", turns=2)
            judged = (CheckFinding("contains", passed=True, reason="it is there"),)
            result = Result(
                trial, plan.key(trial), True, "", trace, judged, trace.usage, seconds=1.5
            )
            asyncio.run(store.add_result(stored, result))
    export(upskill, "inspect", "logs")
    [sample] = read_logs("logs")[0]["samples"]
    assert sample["roles"] == ["user", "assistant", "assistant", "tool", "assistant"]
    assert (sample["calls"], sample["thoughts"], sample["limit"]) == (
        ["bash"],
        ["I look first."],
        "turn",
    )
    export(upskill, "upskill-runs", "tree")
    [batch] = Path("tree").glob("2*")
    stats = json.loads((batch / "run_2" / "run_result.json").read_text())["stats"]
    assert (stats["tool_time_ms"], stats["llm_time_ms"], stats["tool_error_map"]) == (
        500.0,
        1000.0,
        {"bash": 1},
    )


def test_ids_that_would_lead_out_of_a_folder_and_arms_that_are_missing(
    upskill: Upskill, home: Path, read_logs: Logs
) -> None:
    suite = greetings(2)
    for case, name in zip(suite["cases"], ("../../etc/x", "a" * 200), strict=True):
        case["id"] = name
    skill = write_skill(home / "skills" / "greeting", suite=suite)
    assert upskill("eval", skill, "-m", write_script(home / "one.json"), "--no-baseline").code == 0
    for kind in EXPORTS.table:
        export(upskill, kind, f"out/{kind}")
    [log] = read_logs("out/inspect")
    assert sorted(sample["id"] for sample in log["samples"]) == [f"{'a' * 60}-2", "etc-x-1"]
    assert sorted(path.name for path in Path("out").iterdir()) == sorted(EXPORTS.table)


def test_the_tree_of_upstream_has_a_run_for_each_pass_over_the_cases(
    upskill: Upskill, run: dict[str, Any]
) -> None:
    export(upskill, "upskill-runs", "tree")
    [batch] = [path for path in Path("tree").iterdir() if path.is_dir()]
    summary = json.loads((batch / "batch_summary.json").read_text())
    assert {"batch_id": batch.name, "total_runs": 4}.items() <= summary.items()
    for number, result in enumerate(summary["results"], start=1):
        folder = batch / f"run_{number}"
        assert json.loads((folder / "run_result.json").read_text()) == result
        assert json.loads((folder / "run_metadata.json").read_text()) == result["metadata"]
        assert result["metadata"].keys() == {"model", "task", "batch_id", "run_number", "timestamp"}
    rates = [
        (
            result["metadata"]["model"],
            result["run_type"],
            result["assertions_passed"],
            result["assertions_total"],
        )
        for result in summary["results"]
    ]
    one, two = (
        [(name, "baseline", 1, 4), (name, "with_skill", 3, 3)]
        for name in ("scripted:one.json", "scripted:two.json")
    )
    assert rates == one + two
    assert sum(result["stats"]["total_tokens"] for result in summary["results"]) == spent(run)
    assert "1 trial missing: asking scripted:one.json" in summary["results"][1]["error_message"]
    assert (
        upskill("runs", "-d", "tree").err.count("in Hugging Face upskill's format") == 1
    )  # which we tell from a store


def test_nothing_is_replaced_but_an_earlier_export(
    upskill: Upskill, run: dict[str, Any], home: Path
) -> None:
    Path("mine").mkdir()
    Path("mine/thesis.txt").write_text("years of work")
    Path("link").symlink_to("mine")
    Path("file").write_text("a file")
    for place, words in (
        ("mine", "contains files that upskill did not export"),
        ("link", ": not a folder"),
        ("file", ": not a folder"),
    ):
        done = upskill("export", "last", "--format", "upskill-runs", "-o", place)
        assert (done.code, words in done.err) == (2, True), done.err
    assert Path("mine/thesis.txt").read_text() == "years of work"
    done = upskill("export", "last", "--format", "csv", "-o", "mine")
    assert (done.code, ": not a regular file" in done.err) == (2, True)
    for words, argv in (
        ("nothing to export", ()),
        ("no export format named 'cvs'", ("--format", "cvs")),
        ("inspect is not a text format", ("--format", "inspect", "-o", "-")),
        ("-o needs --format", ("-o", "x", "--replies", "y")),
    ):
        done = upskill("export", "last", *argv)
        assert (done.code, words in done.err) == (2, True), done.err
    assert upskill("export", "last", "--format", "upskill-runs").code == 0
    before = {path: path.stat().st_ino for path in home.glob("*-upskill-runs/*/batch_summary.json")}
    assert upskill("export", "last", "--format", "upskill-runs").code == 0
    assert {
        path: path.stat().st_ino for path in before
    } != before  # an export as it was is replaced
    (home / f"{run['run']}-upskill-runs" / "feedback.json").write_text("what somebody thinks of it")
    done = upskill("export", "last", "--format", "upskill-runs")
    assert (done.code, "feedback.json was added or changed after the export" in done.err) == (
        2,
        True,
    )
    assert (home / f"{run['run']}-upskill-runs" / "feedback.json").exists()


def test_a_disk_that_is_full_leaves_nothing_behind(big: StoredRun, home: Path) -> None:
    def small_disk() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))

    Path("t.csv").write_text("the export of yesterday")
    runs = Path(big.run.plan.suite.source)
    for kind, place in (("csv", "t.csv"), ("inspect", "logs")):
        command = [
            sys.executable,
            "-m",
            "upskill",
            "export",
            "last",
            "-d",
            runs,
            "--format",
            kind,
            "-o",
            place,
            "--force",
        ]
        done = subprocess.run(
            command, preexec_fn=small_disk, capture_output=True, text=True, check=False
        )
        assert (done.returncode, "cannot be written: File too large" in done.stderr) == (2, True), (
            done.stderr
        )
        assert [path.name for path in home.iterdir()] == ["t.csv"]
    assert Path("t.csv").read_text() == "the export of yesterday"


@pytest.mark.parametrize(
    "kind", [kind for kind in EXPORTS.table if kind not in ("junit", "markdown")]
)
def test_memory_does_not_grow_with_the_run(
    kind: str, big: StoredRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("upskill.runs.stores.store.ROWS_AT_ONCE", 5)
    exporter: Export = EXPORTS.load(kind)
    exporter.save(big, tmp_path / "warm")
    tracemalloc.start()
    exporter.save(big, tmp_path / "again")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < BIG / 2


BIG = 4_000_000  # letters of all answers together


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoredRun]:
    """A run whose answers would fill tens of megabytes."""
    folder = tmp_path_factory.mktemp("big")
    script = folder / "one.json"
    script.write_text("[]")
    suite = Suite.parse(
        {
            "cases": [{"id": f"c{n}", "prompt": "Greet."} for n in range(50)],
            "checks": [{"contains": "x"}],
        },
        str(folder / "runs"),
    )
    plan = make_plan(
        Skill.load(write_skill(folder / "greeting")),
        suite,
        [f"scripted:{script}"],
        PlanOptions(runs=2),
    )
    letters = "ahoy " * (BIG // len(plan) // 5)
    with open_store(folder / "runs") as store:
        stored, _ = store.start_run(plan, "test")
        for trial in plan.trials():
            trace = Trace((Step("assistant", letters),), Usage(1, 1, cost_usd=0.0), "end", turns=1)
            asyncio.run(
                store.add_result(
                    stored, Result(trial, plan.key(trial), False, "", trace, (), trace.usage)
                )
            )
        yield StoredRun(store, store.run(stored.id))


def test_no_medium_keeps_a_secret_of_an_error_or_a_review(upskill: Upskill, home: Path) -> None:
    secret = "sk-ant-api03-Xk3vT9pQ2mLr8Wz5Yb7Nc4Jd6Hf1Gs0Ka3Eu9Ro2Ti5Vx8Bn1Mq4Zw7"
    skill = write_skill(home / "greeting", cases=4)
    rules = [{"when": "guest 1", "error": f"refused, key={secret}"}, {"answer": "ahoy"}]
    upskill("eval", skill, "-m", write_script(home / "model.json", rules))
    with open_store(home / "runs") as store:
        run = store.run("last")
        trial = next(result.trial for result in store.results(run) if result.passed)
        store.add_review(run, Review(trial, "wrong", f"Look at {secret}."))
    written = {"html": upskill("report", "last", "--redact", "-o", "-").out}
    for kind in ("markdown", "junit", "csv"):
        written[kind] = upskill("export", "last", "--format", kind, "--redact", "-o", "-").out
    for kind, text in written.items():
        assert "greeting" in text, kind
        assert secret not in text, kind
