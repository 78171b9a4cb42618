"""The command line: every command by its exit code, its text and its `--json`, in this process and as a program."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import pty
import re
import subprocess
import sys
import textwrap
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from jsonschema import Draft202012Validator

from conftest import (
    HELPFUL,
    REPOSITORY,
    Done,
    Upskill,
    greetings,
    serving,
    spawn,
    start,
    write_script,
    write_skill,
)
from loopback import Call
from upskill import __version__, open_store
from upskill.cli.console import note
from upskill.installation import add_extra
from upskill.runs.running.probe import PROMPT
from upskill.runs.stores import Run, Store
from upskill.runs.stores.sqlite import FILE
from upskill.skills.agent_specs import AGENT_SPECS
from upskill.verdicts.outcome import Outcome

SCHEMA: dict[str, Any] = json.loads(
    (REPOSITORY / "docs" / "eval.schema.json").read_text(encoding="utf-8")
)
# What issue and documentation promise; the schema also lists what has been added since.
PROMISED = {"run", "skill", "suite", "models", "errors", "warnings"}
PROMISED_OF_A_MODEL = {
    *("model", "pairs", "baseline", "skill", "lift", "interval", "level"),
    *("token_savings", "decision", "about", "reason", "cases", "caveats", "other"),
}
PROMISED_OF_AN_ARM = {
    *(
        "passed",
        "failed",
        "missing",
        "causes",
        "pass_rate",
        "input_tokens",
        "output_tokens",
        "cost_usd",
    ),
}


@pytest.fixture
def skill(home: Path) -> Path:
    """A skill with eight cases beside a model that it helps."""
    write_script(home / "model.yaml")
    return write_skill(home / "greeter", cases=8)


def helpful(call: Call) -> str:
    return "ahoy, friend" if "ahoy" in call.system else "hello, friend"


# eval


def test_eval_in_json_fits_its_schema(upskill: Upskill, skill: Path, home: Path) -> None:
    write_script(
        home / "worse.yaml",
        [{"match": "guest [123]", "system": "ahoy", "error": "gone"}, {"answer": "hello"}],
    )
    write_script(home / "broken.yaml", [{"error": "gone"}])
    for extra in (
        [],
        ["-m", "scripted:worse.yaml", "--repeats", "2"],
        ["-m", "scripted:broken.yaml"],
        ["--no-baseline"],
        ["--set", "max_calls=3", "--set", "cache=false", "--set", "temperature=0.5"],
        [
            "--controls",
            "--require",
            "lift>=0.1",
            "--set",
            "target_pass_rate=80",
            "--set",
            "making_cost=2",
        ],
        ["--until-decided"],
    ):
        done = upskill(
            "eval",
            skill,
            "-m",
            "scripted:model.yaml",
            "--json",
            "-d",
            "-".join(["runs", *extra[:1]]),
            *extra,
        )
        assert done.code == (
            3 if {"scripted:broken.yaml", "scripted:worse.yaml"} & set(extra) else 0
        ), extra
        assert [
            error.message for error in Draft202012Validator(SCHEMA).iter_errors(done.json)
        ] == [], extra
        assert done.err == ""


def test_the_schema_of_eval_has_every_promised_key_and_allows_no_other() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    parts = SCHEMA["$defs"]
    assert set(SCHEMA["required"]) >= PROMISED
    assert set(parts["model"]["required"]) >= PROMISED_OF_A_MODEL
    assert set(parts["arm"]["required"]) == PROMISED_OF_AN_ARM
    assert set(SCHEMA["properties"]["skill"]["required"]) == {"name", "fingerprint", "tokens"}
    assert set(SCHEMA["properties"]["suite"]["required"]) == {
        "cases",
        "fresh",
        "fingerprint",
        "part",
        "authors",
    }
    for place in _objects(SCHEMA):
        optional = (
            {"feedback"} if place is SCHEMA else set[str]()
        )  # only where people have marked answers
        assert set(place["required"]) | optional == set(place["properties"])
        assert place["additionalProperties"] is False


def _objects(schema: object) -> list[dict[str, Any]]:
    if isinstance(schema, list):
        return [found for item in cast("list[object]", schema) for found in _objects(item)]
    if not isinstance(schema, dict):
        return []
    place = cast("dict[str, Any]", schema)
    mine = (
        [place]
        if isinstance(place.get("properties"), dict) and place.get("type") == "object"
        else []
    )
    return mine + [found for value in place.values() for found in _objects(value)]


def test_eval_tells_errors_and_what_was_not_run(upskill: Upskill, skill: Path, home: Path) -> None:
    write_script(
        home / "model.yaml", [{"match": "guest [1-5]", "error": "the line [is] dead"}, *HELPFUL]
    )
    done = upskill(
        "eval", skill, "-m", "scripted:model.yaml", "-v", "--set", "max_calls=9", "--concurrency", 1
    )
    assert re.search(
        r"\d trials of scripted:model.yaml missing: asking scripted:model.yaml: the line \[is\] dead",
        done.out,
    )
    assert "? undecided (unfinished): 9 of 16 trials" in done.out
    assert "Not run: 7 trials" in done.out
    assert "the limit of 9 calls was reached" in done.out


def test_a_limit_from_the_command_line_reaches_the_wire(upskill: Upskill, skill: Path) -> None:
    with serving(helpful) as server:
        options = (
            "--set",
            "temperature=0.3",
            "--set",
            "max_output_tokens=77",
            "--repeats",
            2,
        )
        assert upskill("eval", skill, "-m", "any", "--base-url", server.url, *options).code == 0
        sent = [logged.body for logged in server.requests]
    asked = [body for body in sent if PROMPT not in str(body["messages"])]
    assert len(asked) == 32
    assert {(body["temperature"], body["max_tokens"]) for body in asked} == {(0.3, 77)}


def test_an_identical_plan_goes_on_by_itself_and_says_so(upskill: Upskill, skill: Path) -> None:
    first = upskill("eval", skill, "-m", "scripted:model.yaml")
    second = upskill("eval", skill, "-m", "scripted:model.yaml")
    assert (first.err, second.out) == ("", first.out)
    assert (
        "16 of 16 trials are stored, nothing left to run; --redraw adds further draws."
        in second.err
    )
    assert upskill("eval", skill, "-m", "scripted:model.yaml", "-q").err == ""


def test_a_run_that_is_not_logged_leaves_nothing_behind(
    upskill: Upskill, skill: Path, home: Path
) -> None:
    assert upskill("eval", skill, "-m", "scripted:model.yaml", "--no-log-runs").code == 0
    assert not (home / "runs").exists()


def test_too_many_errors_end_with_3(upskill: Upskill, skill: Path, home: Path) -> None:
    write_script(home / "model.yaml", [{"match": "guest [123]", "error": "gone"}, *HELPFUL])
    done = upskill("eval", skill, "-m", "scripted:model.yaml")
    assert done.code == 3
    assert "undecided (errors)" in done.out
    assert "? undecided (errors) " in upskill("runs").out


def test_a_requirement_that_does_not_hold_ends_with_1(upskill: Upskill, skill: Path) -> None:
    for condition, code, *flags in (
        ("decision=helps", 0),
        ("lift>=0.99", 1),
        ("point:lift>=0.99", 0),
        ("decision!=hurts", 1, "--no-baseline"),
    ):
        done = upskill("eval", skill, "-m", "scripted:model.yaml", "--require", condition, *flags)
        said = f"{'✗' if code else '✓'} scripted:model.yaml {'does not meet' if code else 'meets'} '{condition}'"
        assert (done.code, said in " ".join((done.out + done.err).split())) == (code, True)


def test_a_suite_with_judges_wants_a_judge(upskill: Upskill, skill: Path, home: Path) -> None:
    suite = [{"id": "a", "prompt": "Greet.", "checks": [{"judge": "It greets."}]}]
    (home / "judged.json").write_text(json.dumps(suite), encoding="utf-8")
    done = upskill("eval", skill, "-t", "judged.json", "-m", "scripted:model.yaml")
    assert done.code == 2
    assert "--judge" in done.err
    verdict = {"evidence": "ahoy, friend", "reason": "it does", "passed": True}
    judge = write_script(home / "judge.yaml", [{"answer": json.dumps(verdict)}])
    done = upskill(
        "eval", skill, "-t", "judged.json", "-m", "scripted:model.yaml", "--judge", judge, "--json"
    )
    assert done.json["models"][0]["skill"]["passed"] == 1


def test_text_that_no_encoding_can_hold_is_shown_all_the_same(
    upskill: Upskill, skill: Path, home: Path
) -> None:
    write_script(home / "model.yaml", [{"answer": "half a pair: \ud83d ahoy"}])
    assert upskill("eval", skill, "-m", "scripted:model.yaml").code == 0
    for extra, shown in (([], "\\xd83d"), (["--json"], "?"), (["--case", "greet-1"], "\\xd83d")):
        done = upskill("show", "last", *extra)
        assert done.code == 0
        assert f"half a pair: {shown} ahoy" in done.out


# What eval costs.


PRICED = "prices:\n  any: {input: 1000.0, output: 1000.0}\n"


def test_the_estimate_comes_before_the_first_call(
    upskill: Upskill, skill: Path, home: Path
) -> None:
    (home / "upskill.config.yaml").write_text(PRICED, encoding="utf-8")
    with serving(helpful) as server:
        done = upskill("eval", skill, "-m", "any", "--base-url", server.url)
    assert done.code == 0
    assert re.match(
        r"Estimate: 48 calls, [\d,]+ to [\d,]+ tokens, \$\d+\.\d\d to \$\d+\.\d\d; "
        r"with --repeats 1: \$\d+\.\d\d to \$\d+\.\d\d\.\n",
        done.err,
    )


def test_a_ceiling_on_cost_ends_the_run_and_a_higher_one_goes_on(
    upskill: Upskill, skill: Path, home: Path
) -> None:
    (home / "upskill.config.yaml").write_text(PRICED, encoding="utf-8")
    with serving(helpful) as server:
        command = ("eval", skill, "-m", "any", "--base-url", server.url, "--concurrency", 1)
        command = (*command, "--repeats", 1)
        first = upskill(*command, "--max-cost", 0.4)
        asked = server.calls.total() - 2  # two of them find out whether the server has a cache
        assert 0 < asked < 16
        assert (first.code, "Stopped: the limit of $0.4 was reached" in first.out) == (0, True)
        second = upskill(*command, "--set", "max_tokens=1000000")
        assert server.calls.total() == 18
    assert f"{asked} of 16 trials are stored" in second.err


def test_a_ceiling_on_cost_needs_a_price_and_a_refused_run_is_not_kept(
    upskill: Upskill, skill: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-planted-4711")
    with serving(helpful) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        done = upskill("eval", skill, "-m", "openai:unheard-of", "--max-cost", 1)
        assert server.calls.total() == 0
    assert done.code == 2
    assert "the price of openai:unheard-of is unknown" in done.err
    assert upskill("show", "last").code == 2


def test_a_run_that_may_cost_much_is_asked_for_where_a_person_can_answer(
    skill: Path, home: Path
) -> None:
    (home / "upskill.config.yaml").write_text(PRICED, encoding="utf-8")
    with serving(helpful) as server:
        command = ("eval", skill, "-m", "any", "--base-url", server.url, "--repeats", 1)
        code, _, said = _on_a_terminal(*command, typed="n\n")
        assert "Go ahead? [y/N]" in said
        assert (code, server.calls.total()) == (130, 0)
        code, out, said = _on_a_terminal(*command, "--yes")
        assert "Go ahead?" not in said
        assert (code, server.calls.total()) == (0, 18)
        assert "helps" in out


def test_stored_replies_answer_without_a_server(upskill: Upskill, skill: Path, home: Path) -> None:
    with serving(helpful) as server:
        command = ("eval", skill, "-m", "any", "--base-url", server.url)
        first = upskill(*command, "--repeats", 2, "--set", "temperature=0", "--json").json
        # Other checks on the same questions make other trials.
        (home / "checks.json").write_text(
            json.dumps(greetings(8) | {"checks": [{"contains": "ahoy"}]})
        )
        done = upskill(*command, "--repeats", 1, "--set", "temperature=0", "--tests", "checks.json")
        assert server.calls.total() == 36  # and twice two to find out whether it has a cache
    assert "32 of the 34 calls were answered with replies stored by earlier runs" in done.err
    again = upskill(*command, "--repeats", 2, "--set", "temperature=0", "--replay", "--json")
    for part in ("baseline", "skill", "lift", "tokens", "diagnosis"):
        assert again.json["models"][0][part] == first["models"][0][part]
    done = upskill(*command, "--seed", 99, "--replay")
    said = "no stored reply for this request, and --replay does not call models"
    assert (done.code, said in " ".join(done.out.split())) == (3, True)


def test_results_of_one_server_are_not_used_for_another(
    upskill: Upskill, skill: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(helpful) as one, serving("hello") as two:
        for server in (one, two):
            monkeypatch.setenv("GENERIC_BASE_URL", server.url)
            assert upskill("eval", skill, "-m", "generic:any", "--repeats", 1).code == 0
        assert (one.calls.total(), two.calls.total()) == (18, 18)


# What eval writes for others.


def test_eval_writes_junit_and_markdown(upskill: Upskill, skill: Path, home: Path) -> None:
    write_script(
        home / "other.yaml",
        [{"match": "guest [123]", "system": "ahoy", "error": "<gone> & `lost`"}, *HELPFUL],
    )
    done = upskill(
        *(
            "eval",
            skill,
            "-m",
            "scripted:model.yaml",
            "-m",
            "scripted:other.yaml",
            "--require",
            "lift>=0.9",
        ),
        *("--report", "junit=report.xml", "--report", "markdown=report.md"),
    )
    assert done.code == 3  # more than 15 % of the trials with the skill are missing
    assert re.findall(r"^Wrote (.*)", done.err, re.M) == ["report.xml", "report.md"]
    root = ET.parse(home / "report.xml").getroot()
    for suite in root:
        assert [
            each.get("value") for each in suite.findall("properties/property[@name='about']")
        ] == ["tasks" if suite.get("errors") == "0" else "these"]
    counts = [
        (suite.get("name"), suite.get("tests"), suite.get("failures"), suite.get("errors"))
        for suite in root
    ]
    assert counts == [
        ("scripted:model.yaml", "9", "1", "0"),
        ("scripted:other.yaml", "9", "1", "3"),
    ]
    assert {test.get("classname") for test in root.iter("testcase")} == {"requirement", "lift>=0.9"}
    text = (home / "report.md").read_text(encoding="utf-8")
    assert "| 0% (0/8) → 100% (8/8) |" in text
    assert "| `lift>=0.9` | scripted:model.yaml | ✗ no |" in text
    assert r"missing: asking scripted:other.yaml: \<gone\> & `lost`" in text  # inert as code
    done = upskill(
        "eval", skill, "-m", "scripted:model.yaml", "--report", "junit=report.md/report.xml"
    )
    assert (done.code, "report.md/report.xml" in done.err) == (2, True)


@pytest.mark.parametrize(
    ("required", "code"), [((), 0), (("decision!=hurts", "tokens<=9x"), 0), (("lift>=0.9",), 1)]
)
def test_junit_is_red_only_where_the_gate_is_and_says_what_a_failed_case_was_asked_and_answered(
    upskill: Upskill, skill: Path, home: Path, required: tuple[str, ...], code: int
) -> None:
    model = write_script(
        home / "other.yaml", [{"when": "guest 1.", "answer": "no </failure>"}, *HELPFUL]
    )
    flags = [part for each in required for part in ("--require", each)]
    done = upskill("eval", skill, "-m", model, *flags, "--report", "junit=report.xml")
    assert done.code == code
    (suite,) = ET.parse(home / "report.xml").getroot()
    counts = [suite.get(name) for name in ("failures", "errors", "skipped")]
    assert counts == (["2", "0", "0"] if code else ["0", "0", "1"])
    (case,) = suite.findall("testcase[@name='greet-1']")
    assert case.get("classname") == (required[0] if required else "greeter")
    (failed,) = case
    assert (failed.get("message") or "").startswith("0 of 1 run passed with the skill")
    assert (failed.text or "").split("\n\n") == [
        "\nPrompt:\nPlease greet guest 1.",
        "Answer (seed 0):\nno </failure>",
        "Failed:\ncontains: the answer lacks 'ahoy'\n",
    ]


def test_eval_compares_with_an_older_skill_and_with_controls(
    upskill: Upskill, skill: Path, home: Path
) -> None:
    older = write_skill(home / "older", body="Greet with ahoy.\n")
    (model,) = upskill(
        "eval", skill, "-m", "scripted:model.yaml", "--against", older, "--json"
    ).json["models"]
    assert (model["baseline"]["passed"], model["skill"]["passed"], model["lift"]) == (8, 8, 0.0)
    (model,) = upskill("eval", skill, "-m", "scripted:model.yaml", "--controls", "--json").json[
        "models"
    ]
    assert (model["controls"]["content"]["value"], model["controls"]["noise"]["value"]) == (
        1.0,
        0.0,
    )


def test_a_teacher_whose_tests_cannot_be_used_ends_with_3(
    upskill: Upskill, skill: Path, home: Path
) -> None:
    (skill / "evals" / "suite.json").unlink()
    write_script(home / "teacher.yaml", [{"answer": "I had rather not."}])
    done = upskill(
        "eval", skill, "-m", "scripted:model.yaml", "--test-writer", "scripted:teacher.yaml"
    )
    assert (done.code, done.out) == (3, "")
    assert "writing test cases: no usable answer after 3 attempts" in done.err
    assert not (skill / "evals" / "suite.json").exists()


def test_what_a_test_writer_may_cost_is_said_and_held_to_before_it_is_asked(
    upskill: Upskill, skill: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (skill / "evals" / "suite.json").unlink()
    with serving("I had rather not.") as server:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-planted-4711")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        for command in (
            ("eval", skill, "-m", "scripted:model.yaml", "--test-writer", "openai:unheard-of"),
            ("tests", skill, "-m", "openai:unheard-of"),
        ):
            refused = upskill(*command, "--max-cost", 1)
            assert (refused.code, "the price of openai:unheard-of is unknown" in refused.err) == (
                2,
                True,
            )
            assert server.calls.total() == 0
        for students in (["-m", "opsu"], ["-m", "sonnet"], ["-m", "scripted:nowhere.yaml"]):
            refused = upskill("eval", skill, *students, "--test-writer", "openai:gpt-4.1")
            assert (refused.code, "Estimate" in refused.err) == (2, False)
            assert server.calls.total() == 0
        for command in (
            ("eval", skill, "-m", "scripted:model.yaml", "--test-writer", "openai:gpt-4.1"),
            ("tests", skill, "-m", "openai:gpt-4.1"),
        ):
            said = upskill(*command).err
            assert re.match(
                r"Estimate: 6 calls, [\d,]+ to [\d,]+ tokens, \$\d+\.\d\d to \$\d+\.\d\d\.\nGenerating",
                said,
            )


# benchmark


def test_benchmark_runs_every_case_three_times(upskill: Upskill, skill: Path, home: Path) -> None:
    with serving(helpful) as server:
        command = ("benchmark", skill, "-m", "any", "--base-url", server.url, "--json")
        done = upskill(*command, "-o", "elsewhere")
        assert (done.code, done.json["models"][0]["pairs"]) == (0, 24)
        assert (home / "elsewhere" / FILE).is_file()
        once = upskill(*command, "--repeats", 1)
    assert once.json["models"][0]["pairs"] == 8


def test_benchmark_wants_models(upskill: Upskill, skill: Path) -> None:
    done = upskill("benchmark", skill)
    assert done.code == 2
    assert "-m haiku -m sonnet" in done.err


# list


def test_list_shows_the_skills_of_a_folder(upskill: Upskill, home: Path) -> None:
    write_skill(home / "skills" / "greeter")
    write_skill(home / "skills" / "more" / "sailor")
    (home / "skills" / "broken").mkdir()
    (home / "skills" / "broken" / "SKILL.md").write_text("no frontmatter", encoding="utf-8")
    done = upskill("list")
    assert done.code == 0
    assert re.search(r"(?s) greeter .*not evaluated yet .* sailor .*not evaluated yet ", done.out)
    assert "evals/suite.json" not in done.out
    assert done.err.startswith("Skipped: ")
    assert "evals/suite.json" in upskill("list", "-v").out
    write_skill(home / "pilot")  # as `upskill init pilot` does
    assert re.search(r"(?ms)^  pilot .+^  greeter ", upskill("list").out)
    files = ["SKILL.md", "evals/suite.json"]
    said = upskill("list", "-d", "skills", "--json").json
    assert [(row["name"], row["files"]) for row in said] == [("greeter", files), ("sailor", files)]


# runs, plot


@pytest.fixture
def stored(upskill: Upskill, skill: Path, home: Path) -> list[str]:
    """Two runs of one skill, the second of them with another model."""
    write_script(home / "other.yaml", [{"answer": "hello", "usage": {"input": 10, "output": 5}}])
    return [
        upskill("eval", skill, "-m", f"scripted:{name}.yaml", "--json").json["run"]
        for name in ("model", "other")
    ]


@pytest.mark.usefixtures("stored")
def test_plot_is_runs_by_its_old_name(upskill: Upskill) -> None:
    assert upskill("plot") == upskill("runs")
    for flags in (
        ("-s", "skill", "-m", "scripted:model.yaml"),
        ("--skill", "sailor", "--model", "scripted:other.yaml", "--metric", "tokens"),
        ("--metric", "success", "--csv", "-"),
    ):
        assert upskill("plot", *flags) == upskill("runs", *flags)
    assert "other" not in upskill("plot", "-m", "scripted:model.yaml").out
    done = upskill("plot", "last", "-o", "lift.svg")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert "To draw one: upskill export last --format svg" in done.err


def test_runs_can_show_tokens(upskill: Upskill, stored: list[str]) -> None:
    done = upskill("runs", "--metric", "tokens", "-m", "scripted:model.yaml")
    assert re.search(r"Tokens per task\n.* 23 → 63\n", done.out)
    assert "other" not in done.out


def test_runs_of_several_skills_are_a_table_of_tokens_too(
    upskill: Upskill, stored: list[str], home: Path
) -> None:
    upskill("eval", write_skill(home / "sailor"), "-m", "scripted:model.yaml")
    shown = " ".join(upskill("runs", "--metric", "tokens").out.split())
    for row in (
        "greeter scripted:model.yaml ✓ helps 23 → 63",
        "greeter scripted:other.yaml ? undecided 15 → 15",
        "sailor scripted:model.yaml ? undecided (too few cases) 23 → 63",
    ):
        assert row in shown
    assert "sailor" not in upskill("runs", "-s", "greeter").out


def test_runs_are_written_as_csv(upskill: Upskill, stored: list[str], home: Path) -> None:
    done = upskill("runs", "--csv", "runs.csv")
    assert (done.code, done.out, done.err) == (0, "", "Wrote 2 rows to runs.csv\n")
    text = (home / "runs.csv").read_text(encoding="utf-8")
    first, second = csv.DictReader(io.StringIO(text))
    columns = [first[name] for name in ("run", "model", "lift", "decision")]
    assert columns == [stored[0], "scripted:model.yaml", "1.0", "helps"]
    assert (second["skill_pass_rate"], second["missing"]) == ("0.0", "0")
    assert upskill("runs", "--csv", "-").out == text
    assert upskill("runs", "--csv", "new/runs.csv").code == 0
    assert (home / "new" / "runs.csv").read_text(encoding="utf-8") == text
    done = upskill("runs", "--csv", "runs.csv/runs.csv")
    assert (done.code, "cannot be written" in done.err) == (2, True)


def test_runs_in_json(upskill: Upskill, stored: list[str]) -> None:
    said = upskill("runs", "--json").json
    assert [(row["run"], row["skill"], row["model"], row["finished"]) for row in said] == [
        (stored[0], "greeter", "scripted:model.yaml", True),
        (stored[1], "greeter", "scripted:other.yaml", True),
    ]
    assert said[0]["verdict"]["skill"]["passed"] == 8


def test_runs_that_are_not_of_the_whole_suite_say_so_and_replace_none_that_is(
    upskill: Upskill, skill: Path, home: Path
) -> None:
    sailor = write_skill(home / "sailor")
    upskill("eval", sailor, "-m", "scripted:model.yaml")

    def rows() -> dict[str, str]:
        lines = (line.split("  scripted:model.yaml  ") for line in upskill("runs").out.splitlines())
        return {line[0].strip(): line[1].strip() for line in lines if len(line) == 2}

    upskill(
        "eval", skill, "-m", "scripted:model.yaml", "--set", "max_calls=4"
    )  # and 8 answers of the other
    assert re.fullmatch(r"unfinished: \d+ of 16 trials +– +–", rows()["greeter"])
    upskill("eval", skill, "-m", "scripted:model.yaml", "--limit", 2)
    assert "; only 2 of 8 cases" in rows()["greeter"]
    upskill("eval", skill, "-m", "scripted:model.yaml", "--against", skill)
    assert "; against a reference skill" in rows()["greeter"]
    upskill("eval", skill, "-m", "scripted:model.yaml", "--no-baseline")
    assert re.search(r"; without a baseline +100% \(8/8\) +–", rows()["greeter"])
    upskill("eval", sailor, "-m", "scripted:model.yaml", "--limit", 2)
    upskill("eval", sailor, "-m", "scripted:model.yaml", "--no-baseline")
    assert re.search(r"undecided \(too few cases\) +0% .* \+100", rows()["sailor"])


def test_runs_says_when_nothing_fits(upskill: Upskill, stored: list[str]) -> None:
    done = upskill("runs", "-s", "nobody")
    assert (done.code, done.out) == (0, "")
    assert "No stored run matches." in done.err


# show


def test_show_tells_a_summary_and_a_page(upskill: Upskill, home: Path) -> None:
    folder = write_skill(home / "greeter", cases=30)
    assert upskill("eval", folder, "-m", write_script(home / "model.yaml")).code == 0
    first, second = upskill("show", "last"), upskill("show", "last", "--page", 2)
    for done in (first, second):
        assert "✓ helps on tasks like these" in done.out
    shown = [done.out.count(" tokens · ") for done in (first, second)]
    assert shown == [40, 20]
    assert "Use --page 2 for the next one." in first.out
    assert "for the next one" not in second.out
    assert upskill("show", "last", "--failed", "--arm", "baseline").out.count("✗ failed") == 30
    assert (
        "No trial with the skill failed or is missing." in upskill("show", "last", "--failed").out
    )
    none = upskill("show", "last", "--page", 3)
    assert (none.code, "there is no page 3" in none.err) == (2, True)
    everything = upskill("show", "last", "--json").json["trials"]
    assert len(everything) == 60
    assert upskill("show", "last", "--json", "--page", 2).json["trials"] == everything[40:]


def test_runs_are_listed_as_they_were_reported_without_weighing_every_trial_again(
    upskill: Upskill, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_skill(home / "greeter")
    reported = upskill("eval", folder, "-m", write_script(home / "model.yaml"), "--json").json[
        "models"
    ][0]
    table, (row,) = upskill("runs").out, upskill("runs", "--json").json
    assert row["verdict"] == {
        name: value for name, value in reported.items() if name != "diagnosis"
    }
    read = Store.outcomes

    def refuse(self: Store, run: Run) -> Iterator[Outcome]:
        raise AssertionError("every trial is weighed again")

    monkeypatch.setattr(Store, "outcomes", refuse)
    assert upskill("runs").out == table
    # With another tolerance it is another verdict.
    monkeypatch.setattr(Store, "outcomes", read)
    upskill("eval", folder, "-m", "scripted:model.yaml", "--tolerance", 30)
    assert upskill("runs", "--json").json[0]["verdict"]["tolerance"] == 0.3


def test_show_can_leave_out_what_passed(upskill: Upskill, stored: list[str], home: Path) -> None:
    write_script(home / "half.yaml", [{"when": "guest 2", "answer": "goodbye"}, *HELPFUL])
    assert upskill("eval", home / "greeter", "-m", "scripted:half.yaml").code == 0

    def shown(*argv: str) -> tuple[bool, bool, bool]:
        out = upskill("show", "last", *argv).out
        return "goodbye" in out, "hello, friend" in out, "ahoy, friend" in out

    # What failed is what failed with the skill; that the baseline fails is why there is one.
    assert shown("--failed") == (True, False, False)
    assert shown("--failed", "--arm", "baseline") == (True, True, False)
    assert shown("--arm", "skill") == (True, False, True)
    assert {
        trial["arm"] for trial in upskill("show", "last", "--failed", "--json").json["trials"]
    } == {"skill"}
    done = upskill("show", stored[0], "--arm", "placebo")
    assert (done.code, done.err) == (
        2,
        f"upskill: {stored[0]}: no arm named 'placebo'\n  It has baseline, skill.\n",
    )


def test_show_counts_back_from_the_last_run(upskill: Upskill, stored: list[str]) -> None:
    for name, run in (("last", stored[1]), ("last~0", stored[1]), ("last~1", stored[0])):
        assert upskill("show", name, "--json").json["run"] == run
    done = upskill("show", "last~2")
    assert (done.code, done.err.splitlines()[0]) == (
        2,
        "upskill: there is no run last~2: the store has 2 runs",
    )


def test_show_indents_what_it_wraps_and_prints_patterns_as_written(
    upskill: Upskill, home: Path
) -> None:
    pattern = r"\b9\.0a?\b" + r"|one\s+more\s+way" * 8
    suite = {"cases": [{"id": "one", "prompt": "Which?", "checks": [{"regex": pattern}]}]}
    skill = write_skill(home / "greeter", suite=suite)
    upskill(
        "eval", skill, "-m", write_script(home / "model.yaml", [{"answer": "a long answer " * 12}])
    )
    shown = [line for line in upskill("show", "last", "--arm", "skill").out.splitlines() if line]
    below = shown[next(number for number, line in enumerate(shown) if "✗ failed" in line) + 1 :]
    assert len(below) > 3
    assert all(line.startswith("    ") for line in below)
    finding = below[next(number for number, line in enumerate(below) if "✗" in line) :]
    assert all(line.startswith("      ") for line in finding[1:])
    assert "".join(finding).replace(" ", "") == f"✗regex:theanswerdoesnotmatch'{pattern}'"


def test_show_in_json(upskill: Upskill, stored: list[str]) -> None:
    said = upskill("show", "last", "--json", "--case", "greet-1", "-m", "scripted:other.yaml").json
    assert (said["run"], said["plan"]["skill"]["name"]) == (stored[1], "greeter")
    first, second = said["trials"]
    assert (first["arm"], first["outcome"], first["answer"]) == ("baseline", "failed", "hello")
    assert (second["arm"], second["case"], second["seed"]) == ("skill", "greet-1", 0)
    lacks = {
        "check": "contains",
        "passed": False,
        "reason": "the answer lacks 'ahoy'",
        "decides": True,
    }
    assert second["findings"][0] == lacks
    assert second["usage"]["input_tokens"] == 10


def test_show_tells_errors_files_and_empty_answers(upskill: Upskill, home: Path) -> None:
    suite = greetings(2)
    suite["cases"][0]["files"] = {"guests.txt": "Ann and Bob"}
    skill = write_skill(home / "greeter", suite=suite)
    write_script(home / "model.yaml", [{"when": "guest 2", "error": "gone"}, {"answer": ""}])
    upskill("eval", skill, "-m", "scripted:model.yaml")
    done = upskill("show", "last")
    assert "guests.txt:\n  Ann and Bob" in upskill("show", "last", "--case", "greet-1").out
    assert "(an empty answer)" in done.out
    assert "asking scripted:model.yaml: gone" in done.out


@pytest.mark.usefixtures("stored")
def test_show_of_what_is_not_there_is_a_usage_error(upskill: Upskill) -> None:
    for argv, said in (
        (["nobody"], "no run named 'nobody'"),
        (["greeter"], "2 runs start with 'greeter'"),
        (["last", "--case", "greet-9"], "no case named 'greet-9'\n  Did you mean "),
        (
            ["last", "-m", "scripted:othr.yaml"],
            "no model named 'scripted:othr.yaml'\n  Did you mean ",
        ),
    ):
        done = upskill("show", *argv)
        assert (done.code, said in done.err) == (2, True), done.err


# doctor


def test_doctor_says_what_to_install_for_each_program_and_package_that_is_missing(
    upskill: Upskill, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(home))

    def nothing(name: str) -> None:
        del name

    monkeypatch.setattr("importlib.util.find_spec", nothing)
    rows = {row["what"]: row for row in upskill("doctor", "--json").json}
    said = {what: (row["state"], row["fix"]) for what, row in rows.items()}
    for name, agent in AGENT_SPECS.items():
        if not agent.program:
            continue
        assert said[f"agent {name}"] == ("missing", agent.install)
        assert rows[f"agent {name}"]["then"] == agent.log_in
    assert said["local runtime"] == ("missing", add_extra("local"))
    assert said["bridge pydantic-ai"] == ("missing", add_extra("providers"))
    program = home / "opencode"
    program.write_text("#!/bin/sh\n", encoding="utf-8")
    program.chmod(0o755)
    found = {row["what"]: row for row in upskill("doctor", "--json").json}["agent opencode"]
    assert (found["state"], "ripgrep" in found["detail"]) == ("ok", True)


def test_doctor_counts_the_runs_and_finds_what_is_broken(
    upskill: Upskill, stored: list[str], home: Path
) -> None:
    assert (
        "(2 runs)"
        in {row["what"]: row["detail"] for row in upskill("doctor", "--json").json}["store"]
    )
    (home / "runs" / FILE).write_bytes(b"no database" * 500)
    (home / "upskill.config.yaml").write_text("studentt: haiku\n", encoding="utf-8")
    done = upskill("doctor", "--json")
    rows = {row["what"]: row for row in done.json}
    assert (done.code, rows["settings"]["state"], rows["store"]["state"]) == (2, "broken", "broken")
    assert "Did you mean 'student'" in rows["settings"]["fix"]


# The program around the commands.


def test_the_version_is_told(upskill: Upskill) -> None:
    assert upskill("--version") == Done(0, f"upskill, version {__version__}\n", "")


def test_an_unknown_command_suggests_one(upskill: Upskill) -> None:
    done = upskill("evla")
    assert (done.code, done.out) == (2, "")
    assert done.err == "upskill: no command named 'evla'. Did you mean 'eval'?\n"


def test_an_unknown_option_is_a_usage_error(upskill: Upskill) -> None:
    done = upskill("eval", "--modle", "local")
    assert (done.code, done.out) == (2, "")
    assert "--modle" in done.err
    assert "See `upskill eval --help`." in done.err


def test_numbers_that_are_none_and_values_that_are_empty_are_usage_errors(
    upskill: Upskill, skill: Path
) -> None:
    wrong = [
        ("--max-cost", "nan"),
        ("--max-cost", "inf"),
        ("--set", "tolerance=.nan"),
        ("--set", "timeout=.inf"),
    ]
    wrong += [("--repeats", "100000000000"), ("-t", ""), ("-d", " ")]
    for flag, value in wrong:
        done = upskill("eval", skill, "-m", "scripted:model.yaml", flag, value)
        assert (done.code, done.out) == (2, ""), (flag, value)
        assert flag in done.err


def test_a_file_in_place_of_the_folder_of_runs_is_said_to_be_one(
    upskill: Upskill, skill: Path, home: Path
) -> None:
    (home / "file").touch()
    for command in (["eval", skill, "-m", "scripted:model.yaml"], ["runs"]):
        done = upskill(*command, "-d", "file")
        assert (done.code, "file: not a folder" in done.err) == (2, True), done.err


def test_without_a_model_the_student_is_the_embedded_one_and_a_line_says_so(
    upskill: Upskill, skill: Path
) -> None:
    done = upskill("eval", skill, "--set", "offline=true")
    assert done.code == 2  # its weights are not in this empty cache, and may not be fetched
    assert done.err.startswith("No student given: using `local`")
    assert "upskill models pull qwen2.5-coder-0.5b" in done.err


def test_settings_are_honoured_and_the_command_line_wins(
    upskill: Upskill, skill: Path, home: Path
) -> None:
    (home / "upskill.config.yaml").write_text(
        "eval_model: scripted:model.yaml\nruns_dir: kept\nskills_dir: .\nconcurrency: 2\n",
        encoding="utf-8",
    )
    said = upskill("eval", skill, "--json").json
    assert said["models"][0]["model"] == "scripted:model.yaml"
    assert (home / "kept" / FILE).is_file()
    write_script(home / "other.yaml", [{"answer": "hello"}])
    said = upskill(
        "eval", skill, "-m", "scripted:other.yaml", "--store", "elsewhere", "--json"
    ).json
    assert said["models"][0]["model"] == "scripted:other.yaml"
    assert (home / "elsewhere" / FILE).is_file()


def test_the_concurrency_of_the_settings_is_honoured(
    upskill: Upskill, skill: Path, home: Path
) -> None:
    (home / "upskill.config.yaml").write_text("concurrency: 2\n", encoding="utf-8")
    with serving(helpful, latency=0.05) as server:
        upskill("eval", skill, "-m", "any", "--base-url", server.url)
        assert server.most_at_once == 2


def test_a_dot_env_file_is_read_for_keys_and_for_nothing_else(
    upskill: Upskill, skill: Path, home: Path
) -> None:
    with serving(helpful, key="sk-planted-4711") as server:
        keys = f"OPENAI_API_KEY=sk-planted-4711\nOPENAI_BASE_URL={server.url}\n"
        (home / ".env").write_text(
            f"{keys}UPSKILL_CONFIG=nowhere.yaml\nHOME=/nowhere\n", encoding="utf-8"
        )
        before = {**os.environ, "PYDANTIC_DISABLE_PLUGINS": "__all__"}  # which upskill itself sets
        done = upskill("eval", skill, "-m", "openai:gpt-4.1", "--json")
        assert dict(os.environ) == before
        assert (done.code, server.calls.total()) == (0, 16 * 3 + 2)  # draws, and the probe
    said = upskill("show", "last", "--json")
    assert "sk-planted" not in said.out + done.out + done.err


def test_a_bug_is_told_as_one_and_traced_only_when_asked(
    upskill: Upskill, skill: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("upskill.cli.commands.list.find_skills", broken)
    done = upskill("list", "-d", ".")
    assert (done.code, done.out) == (70, "")
    assert "this is a bug in upskill: ZeroDivisionError: division by zero" in done.err
    assert "Traceback" not in done.err
    monkeypatch.setenv("UPSKILL_DEBUG", "1")
    done = upskill("list", "-d", ".")
    assert (done.code, "Traceback" in done.err) == (70, True)
    done = upskill("eval", "nowhere")
    assert (done.code, "Traceback" in done.err, "upskill: nowhere: no such folder" in done.err) == (
        2,
        True,
        True,
    )


# As a program.


def test_as_a_program_standard_output_is_the_document_and_a_pipe_sees_no_progress(
    skill: Path,
) -> None:
    done = spawn("eval", skill, "-m", "scripted:model.yaml", "--json")
    assert (done.code, done.err) == (0, "")
    assert done.json["models"][0]["decision"] == "helps"
    done = spawn("eval", skill, "-m", "scripted:model.yaml", "-d", "other")
    assert (done.code, done.err) == (0, "")
    assert "\x1b" not in done.out


def test_as_a_program_a_usage_error_ends_with_2(home: Path) -> None:
    done = spawn("eval", "nowhere")
    assert done == Done(
        2, "", "upskill: nowhere: no such folder\n  A skill is a folder with a SKILL.md in it.\n"
    )
    write_skill(home / "greeter")
    assert "Did you mean 'greeter'?" in spawn("eval", "greter").err


def test_a_reader_that_goes_away_is_no_error(skill: Path, upskill: Upskill) -> None:
    upskill("eval", skill, "-m", "scripted:model.yaml")
    with start("show", "last") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        err = process.stderr.read()
        process.wait(600)
    assert (process.returncode, err) == (0, "")


def _on_a_terminal(*command: object, typed: str = "") -> tuple[int, str, str]:
    """The exit code, standard output (a pipe), and what was on the terminal, without its colours."""
    master, slave = pty.openpty()
    try:
        environment = os.environ | {"TERM": "xterm", "COLUMNS": "150", "LINES": "40"}
        with start(*command, stdin=slave, stderr=slave, env=environment) as process:
            os.close(slave)
            os.write(master, typed.encode())
            seen = _read_all(master)
            out = process.stdout.read() if process.stdout else ""
            process.wait(600)
    finally:
        os.close(master)
    return process.returncode, out, re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen)


def test_generate_asks_for_a_source_on_a_terminal_where_none_is_given(home: Path) -> None:
    (home / "page.md").write_text("# Tern\n\n`tern push` sends the crates.\n")
    write_script(home / "teacher.yaml", [{"answer": "nothing of use"}])
    command = ("generate", "use tern", "-m", "scripted:teacher.yaml", "--no-eval")
    _, _, seen = _on_a_terminal(*command, typed="page.md\n")
    assert "to write it from (press Enter for none; the result will be untested)" in seen
    assert "Read page.md: document" in seen
    _, _, seen = _on_a_terminal(*command, typed="\n")
    assert "so they could not show that either is right" in " ".join(seen.split())


def _read_all(terminal: int) -> str:
    seen = b""
    while True:
        try:
            data = os.read(terminal, 65536)
        except OSError as error:
            if error.errno == errno.EIO:  # the other side was closed
                return seen.decode(errors="replace")
            raise
        if not data:
            return seen.decode(errors="replace")
        seen += data


def test_notes_are_wrapped_to_the_terminal_and_not_in_a_pipe(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    text = "Warning: " + "word " * 30 + "x" * 100 + "\n  and a line of its own"
    monkeypatch.delenv("COLUMNS", raising=False)
    note(text)
    monkeypatch.setenv("COLUMNS", "80")
    note(text)
    whole, *lines = capfd.readouterr().err.split("  and a line of its own\n")
    assert whole == text.split("  and", maxsplit=1)[0]
    assert [len(line) <= 80 for line in lines[0].splitlines()] == [True, True, True, False]
    assert " ".join(lines[0].split()) == " ".join(text.split("\n", maxsplit=1)[0].split())


def test_a_full_disk_ends_with_3_and_the_same_command_goes_on_when_there_is_room(
    upskill: Upskill, home: Path
) -> None:
    skill = write_skill(home / "greeter", cases=40)
    write_script(home / "model.yaml", [{"answer": "ahoy " * 2000}])
    program = """
        import resource, sys
        from upskill.cli import main
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))
        main()
    """
    command = ["eval", str(skill), "-m", "scripted:model.yaml", "--concurrency", "1"]
    argv = [sys.executable, "-c", textwrap.dedent(program), *command]
    done = subprocess.run(argv, capture_output=True, encoding="utf-8", check=False)
    assert (done.returncode, done.stdout) == (3, "")
    assert "cannot be written" in done.stderr
    assert "Free some disk space" in done.stderr
    assert "Traceback" not in done.stderr
    with open_store(home / "runs") as store:
        kept = len(set(store.settled(store.run("last"))))
    assert 0 < kept < 80
    done = upskill(*command)
    assert (done.code, f"{kept} of 80 trials are stored" in done.err) == (0, True)


def test_what_others_wrote_never_controls_the_terminal_and_junit_stays_xml(
    upskill: Upskill, home: Path
) -> None:
    suite = {
        "cases": [{"id": "greet", "prompt": "Greet \x1b]0;title\x07 them."}],
        "checks": [{"contains": "ahoy"}],
    }
    skill = write_skill(home / "greeter", suite=suite)
    text = (skill / "SKILL.md").read_text(encoding="utf-8")
    (skill / "SKILL.md").write_text(
        text.replace("name: greeter", 'name: "gr\\x01eeter\\e[31m"'), encoding="utf-8"
    )
    upskill("eval", skill, "-m", write_script(home / "student.yaml"), "--report", "junit=out.xml")
    ET.parse(home / "out.xml")
    shown = upskill("show", "last")
    assert "Greet \\x1b]0;title" in shown.out
    for done in (shown, upskill("list", "."), upskill("runs")):
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", done.out + done.err), done


def test_a_server_needs_the_name_of_a_model(upskill: Upskill, skill: Path) -> None:
    done = upskill("eval", skill, "--base-url", "http://127.0.0.1:9/v1")
    assert (done.code, "needs the name of a model" in done.err) == (2, True)


def test_the_next_option_is_not_a_value(upskill: Upskill, home: Path) -> None:
    done = upskill("generate", "a task", "--handoff", "--no-eval")
    assert (done.code, "looks like the next option" in done.err) == (2, True)
    assert not list(home.iterdir())


def test_show_breaks_no_answer_of_millions_of_characters_into_lines(
    upskill: Upskill, home: Path
) -> None:
    skill = write_skill(home / "skill", suite=greetings(1))
    student = write_script(home / "student.yaml", [{"answer": "ahoy" * 50_000}])
    assert upskill("eval", skill, "-m", student).code == 0
    assert "(1 run)" in upskill("doctor").out
    assert upskill("show", "last").out.count("… 100,000 more characters; --json has them all") == 2
    assert upskill("show", "last", "--json").json["trials"][0]["answer"] == "ahoy" * 50_000
