"""Reports: every kind on standard output or in a file, those of other packages, and what is refused before a run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from conftest import HELPFUL, REPOSITORY, Upskill, spawn, write_script, write_skill
from plugin import install_plugin
from upskill import evaluate_now, make_plan
from upskill.models.addresses import full_name, resolve
from upskill.reports import REPORTS, Renderer
from upskill.reports.evaluated import grouped, report_evaluation
from upskill.skills import Skill

ONE_LINE = """
def render(report):
    cases = sum(len(group.cases) for group in report.groups())
    return f"{report.name} {report.data['models'][0]['decision']} {cases}\\n"
"""
ONE_BY_ONE = """
from upskill.runs.running.executors import Executor


class OneByOne(Executor):
    def __init__(self, concurrency):
        self.concurrency = concurrency

    async def execute(self, job, session):
        with open("order.txt", "w") as order:
            for trial in job.trials:
                result = await session.run_trial(trial)
                if result is None:
                    return
                await session.persist(result)
                print(self.concurrency, trial.case, trial.arm, file=order)
                yield result
"""


@pytest.fixture
def skill(home: Path) -> Path:
    write_script(home / "model.yaml")
    return write_skill(home / "greeter")


def starts(kind: str) -> str:
    return {
        "terminal": "  ? undecided on these 4 cases: +100 points (−30 to +100), too few cases; ",
        "json": '{\n  "run": "greeter-',
        "csv": "run,created,skill,model,",
        "junit": '<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name="upskill greeter">',
        "markdown": "### upskill: `greeter`\n",
        "html": '<!doctype html>\n<html lang="en">',
    }[kind]


@pytest.mark.parametrize("kind", REPORTS.table)
def test_a_report_of_every_kind_is_printed_or_written_to_a_file(
    upskill: Upskill, skill: Path, kind: str
) -> None:
    printed = upskill("eval", skill, "-m", "scripted:model.yaml", "--report", kind)
    assert (printed.code, printed.out.lstrip("\n").startswith(starts(kind))) == (0, True)
    done = upskill(
        "eval", skill, "-m", "scripted:model.yaml", "--report", f"{kind}=made/here.txt", "-q"
    )
    assert done.out.startswith(starts("terminal"))
    assert Path("made/here.txt").read_text() == printed.out


def test_several_reports_are_written_by_one_run(upskill: Upskill, skill: Path) -> None:
    files = ("--report", "csv=rows.csv", "--report", "json=one.json", "--report", "json=two.json")
    done = upskill(
        "benchmark",
        skill,
        "-m",
        "scripted:model.yaml",
        *files,
        "--report",
        "junit=tests.xml",
        "--json",
    )
    assert (
        json.loads(Path("one.json").read_text())
        == json.loads(Path("two.json").read_text())
        == done.json
    )
    assert Path("rows.csv").read_text().count("\n") == 2
    assert Path("tests.xml").read_text().startswith(starts("junit"))


@pytest.mark.parametrize(
    ("given", "message", "hint"),
    [
        (("--report", "markdwn"), "no report named 'markdwn'", "Did you mean 'markdown'?"),
        (("--report", "pdf=x.pdf"), "no report named 'pdf'", "terminal"),
        (
            ("--report", "csv=skill.txt/rows.csv"),
            "skill.txt/rows.csv: cannot be written",
            "Choose a file",
        ),
        (("--report", "csv=."), ".: cannot be written", "Choose a file"),
        (
            ("--report", "csv=-"),
            "this report cannot go to standard output (-)",
            "The result is already printed there",
        ),
        (("--report", "csv="), "--report csv=: no file was named", "--report csv=FILE"),
        (
            ("--json", "--report", "csv"),
            "csv and json cannot both go to standard output",
            "--report json=FILE",
        ),
        (("--executor", "loca"), "no executor named 'loca'", "Did you mean 'local'?"),
    ],
)
def test_what_cannot_be_reported_is_refused_before_anything_is_run(
    upskill: Upskill, skill: Path, given: tuple[str, ...], message: str, hint: str
) -> None:
    Path("skill.txt").write_text("a file, not a folder")
    done = upskill("eval", skill, "-m", "scripted:model.yaml", *given)
    assert (done.code, done.out, message in done.err, hint in done.err) == (2, "", True, True)
    assert not Path("runs").exists()


def test_a_report_of_another_package_is_written(skill: Path, tmp_path: Path) -> None:
    environment = install_plugin(
        tmp_path / "site", "one_line", ONE_LINE, {"upskill.reports:one-line": "render"}
    )
    given = ("eval", skill, "-m", "scripted:model.yaml")
    assert spawn(*given, "--report", "one-line", env=environment).out == "greeter undecided 4\n"
    assert (
        spawn(*given, "--report", "one-line=line.txt", env=environment)
        .out.lstrip("\n")
        .startswith(starts("terminal"))
    )
    assert Path("line.txt").read_text() == "greeter undecided 4\n"
    assert (
        "Known: csv, html, json, junit, markdown, one-line, terminal."
        in spawn(*given, "--report", "x", env=environment).err
    )


def test_an_executor_of_another_package_runs_the_trials(skill: Path, tmp_path: Path) -> None:
    environment = install_plugin(
        tmp_path / "site", "one_by_one", ONE_BY_ONE, {"upskill.executors:serial": "OneByOne"}
    )
    done = spawn(
        "eval",
        skill,
        "-m",
        "scripted:model.yaml",
        "--executor",
        "serial",
        "--json",
        env=environment,
    )
    assert (done.code, done.json["models"][0]["decision"]) == (0, "undecided")
    order = {f"8 greet-{number} {arm}" for number in range(1, 5) for arm in ("baseline", "skill")}
    assert {*Path("order.txt").read_text().splitlines()} == order
    refused = spawn(
        "eval", skill, "-m", "scripted:model.yaml", "--executor", "seril", env=environment
    )
    assert (refused.code, "Did you mean 'serial'?" in refused.err) == (2, True)


@pytest.mark.parametrize("kind", REPORTS.table)
def test_the_library_renders_every_kind_of_report(skill: Path, kind: str) -> None:
    render: Renderer = REPORTS.load(kind)
    plan = make_plan(Skill.load(skill), models=["scripted:model.yaml"])
    assert render(report_evaluation(evaluate_now(plan)))


def test_reports_name_the_model_behind_an_alias(upskill: Upskill, home: Path) -> None:
    tern, name = (
        REPOSITORY / "examples" / "tern-deploy",
        "local:smollm2-135m = SmolLM2-135M-Instruct, Q4_1",
    )
    files = {kind: home / f"report.{kind}" for kind in ("junit", "markdown", "html")}
    reports = [part for kind, file in files.items() for part in ("--report", f"{kind}={file}")]
    recorded = REPOSITORY / "examples" / "recorded" / "tern-deploy.jsonl.gz"
    done = upskill(
        "eval",
        tern,
        "-m",
        "local:smollm2-135m",
        "--replay",
        recorded,
        *reports,
        "--report",
        "terminal",
    )
    assert done.code == 0, done.err
    assert name in done.out
    junit = files["junit"].read_text(encoding="utf-8")
    assert f'<testsuite name="{name}"' in junit
    assert "Recorded answers, replayed from tern-deploy.jsonl.gz" in junit
    assert "Recorded answers, replayed from tern-deploy.jsonl.gz" in done.out
    assert name in files["markdown"].read_text(encoding="utf-8").replace("\\", "")
    assert name in files["html"].read_text(encoding="utf-8")
    assert full_name(resolve("local")) == "local = Qwen2.5-Coder-0.5B-Instruct, Q4_K_M"
    assert full_name(resolve("haiku")) == "haiku = anthropic:claude-haiku-5-5"
    assert full_name(resolve("openai:gpt-6.1-sol")) == "openai:gpt-6.1-sol"


def test_a_verdict_has_at_most_one_note_and_show_has_the_rest(upskill: Upskill, home: Path) -> None:
    rules = [
        {"when": "guest 1.", "answer": "ahoy", "stop": "length"},
        {"when": "guest 2.", "answer": "ahoy", "stop": "repetition"},
        *HELPFUL,
    ]
    model = write_script(home / "mixed.yaml", rules)
    out = upskill("eval", write_skill(home / "greeter", cases=8), "-m", model, "--repeats", "3").out
    head, table, notes = out.strip("\n").split("\n\n")
    assert (len(head.splitlines()), len(table.splitlines())) == (1, 2)
    facts, first, more = re.findall(r"^  \S.*(?:\n    .*)*", notes, re.MULTILINE)
    assert "8 cases, exact: one draw a case." in facts
    assert first.startswith("  Note: 1 of 8 answers (with skill)")
    assert re.fullmatch(r"  Read every answer and 1 more note: upskill show greeter-\w+", more)
    shown = " ".join(upskill("show", "last").out.split())
    for line in ("cut off for endless repetition", "Please greet guest 1."):
        assert line in shown
        assert line not in " ".join(out.split())


def test_the_heading_of_a_page_groups_models_by_what_is_decided_about_what(home: Path) -> None:
    skill = Skill.load(write_skill(home / "greeter", cases=8))
    helped = write_script(home / "helped.yaml")
    hurt = write_script(
        home / "hurt.yaml", [{"system": "ahoy", "answer": "no"}, {"answer": "ahoy"}]
    )
    silent = write_script(home / "silent.yaml", [{"answer": "no"}])

    def title(*models: str) -> str:
        return report_evaluation(evaluate_now(make_plan(skill, models=models))).title

    one = "greeter helps scripted:helped.yaml on tasks like these"
    assert title(helped) == f"{one}: +100 points (+35 to +100)"
    undecided = "is undecided with scripted:silent.yaml on these 8 cases"
    assert title(helped, hurt, silent) == (
        f"{one}; hurts scripted:hurt.yaml on tasks like these; {undecided}"
    )


def test_what_is_true_of_several_models_is_said_once() -> None:
    lines = [("a", "It is slow."), ("b", "It is slow."), ("a", "It is dear.")]
    assert [*grouped(lines, 2)] == ["It is slow.", "a: It is dear."]
    assert [*grouped(lines, 3)] == ["a, b: It is slow.", "a: It is dear."]
    assert [*grouped([("a", "It is slow.")], 1)] == ["It is slow."]
