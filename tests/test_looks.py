"""Looks: the store keeps every report of what a skill does, and says how often and at what somebody has looked."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from base64 import b64decode
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conftest import Upskill, greetings, serving, write_script, write_skill
from live_server import served
from loopback import Call
from upskill import Address, Evaluation, Plan, Skill, Store, Suite, open_store
from upskill.cli.progress import RunProgress
from upskill.runs.results.evaluation import evaluation_of
from upskill.runs.results.looks import looks_before, model_identity
from upskill.runs.running.evaluate import RunOptions, evaluate
from upskill.runs.stores.rows import Look
from upskill.suites.near_duplicates import case_identity

SKILL = Skill.new("greeter", "Greets.", "Say ahoy to the guest.")


def look(**changed: Any) -> Look:
    usual: dict[str, Any] = {
        "run": "greeter-1",
        "model": "tiny",
        "skill": "greeter",
        "skill_hash": "s1",
        "suite": "suite.yaml",
        "suite_fingerprint": "f1",
        "cases": {"one": "1", "two": "2", "three": "3"},
        "runs": 1,
        "seed": 0,
        "margin": 0.05,
        "scope": "",
        "trials": 6,
        "pairs": 3,
        "decision": "undecided",
        "asked": "2026-11-15T12:00:00+00:00",
        "asked_by": "ann",
    }
    return Look(**usual | changed)


def test_a_look_is_kept_once_and_comes_back_whole(tmp_path: Path) -> None:
    first, again = look(), look(decision="helps", asked_by="bob")
    others = [
        look(margin=0.1),
        look(scope="cases"),
        look(trials=8),
        look(model="other"),
        look(run="greeter-2"),
    ]
    with open_store(tmp_path) as store:
        assert store.add_look(first) == replace(first, number=1)
        assert store.add_look(again) == replace(
            first, number=1
        )  # the same results, shown in the same way
        for other in others:
            store.add_look(other)
        store.add_look(look(skill="sailor", run="sailor-1"))
    with open_store(tmp_path) as store:
        kept = list(store.looks("greeter"))
        assert [replace(each, number=0) for each in kept] == [first, *others]
        assert [each.number for each in kept] == sorted({each.number for each in kept})
        assert len(store.looks()) == len(kept) + 1


def test_only_looks_of_the_same_model_on_the_same_cases_count() -> None:
    known = [
        look(number=1),
        look(number=2, model="other"),
        look(number=3, skill_hash="s0"),
        look(number=4, cases={"four": "4"}),
        look(number=5, margin=0.1),
    ]
    looks = looks_before(
        known, look(run="greeter-2", cases={"one": "1", "two": "x", "four": "4", "five": "5"})
    )
    assert [each.number for each in looks.earlier] == [1, 3, 4, 5]
    assert (looks.number, looks.edited, looks.added, looks.removed) == (5, 1, 2, 1)
    assert (looks.version, looks.revisions) == (1, 1)
    # One that is stored comes after those before it, and before those after it.
    assert looks_before(known, known[0]).number == 1
    assert looks_before(known, known[4]).number == 3
    assert looks_before(known, look(run="greeter-2", skill_hash="s2")).version == 3


async def evaluated(
    store: Store, model: Address, cases: int = 4, *, options: RunOptions, **changed: Any
) -> Evaluation:
    plan = replace(Plan(SKILL, Suite.parse(greetings(cases)), (model,)), **changed)
    return await evaluate(plan, store=store, options=options)


async def test_every_report_is_a_look_and_the_same_one_again_is_none(home: Path) -> None:
    model = Address(
        "student", "scripted", write_script(home / "student.yaml").removeprefix("scripted:")
    )
    usual, wide = RunOptions(), RunOptions(margin=0.2)
    with open_store(home / "runs") as store:
        numbers: list[int] = []
        for cases, options, changed in (
            (4, usual, {}),
            (4, usual, {}),  # nothing new
            (4, wide, {}),
            (6, usual, {}),
            (4, RunOptions(fresh=True), {}),
            (4, usual, {"seed": 7}),
            (4, usual, {"arms": ("skill",)}),  # versions can be told apart without a baseline
            (4, RunOptions(keep_look=False), {"seed": 8}),  # nobody is told
        ):
            found = await evaluated(store, model, cases, options=options, **changed)
            if not options.keep_look:
                assert found.looks == {}
                continue
            numbers.append(found.looks["student"].number)
            assert [each.run for each in found.looks["student"].earlier] == [
                each.run for each in store.looks("greeter")
            ][: numbers[-1] - 1]
        assert numbers == [1, 1, 2, 3, 4, 5, 6]
        kept = list(store.looks("greeter"))
    assert [(each.margin, each.pairs, each.trials, each.seed, each.decision) for each in kept] == [
        (0.05, 4, 8, 0, kept[0].decision),
        (0.2, 4, 8, 0, kept[1].decision),
        (0.05, 6, 12, 0, kept[2].decision),
        (0.05, 4, 8, 0, kept[0].decision),
        (0.05, 4, 8, 7, kept[0].decision),
        (0.05, 0, 4, 0, "undecided"),
    ]
    assert kept[0].run == kept[1].run != kept[3].run
    assert kept[0].cases == {
        case.id: case_identity(case) for case in Suite.parse(greetings(4)).cases
    }
    assert len({each.skill_hash for each in kept}) == 1


async def test_verdicts_are_told_how_often_somebody_has_looked(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from upskill.runs.results import evaluation as module  # noqa: PLC0415
    from upskill.verdicts.compute import compute_verdict  # noqa: PLC0415
    from upskill.verdicts.verdict import Verdict, VerdictOptions  # noqa: PLC0415

    told: list[int] = []

    def listen(rows: Any, options: VerdictOptions) -> Verdict:
        told.append(options.earlier_looks)
        return compute_verdict(rows, options)

    monkeypatch.setattr(module, "compute_verdict", listen)
    model = Address(
        "student", "scripted", write_script(home / "student.yaml").removeprefix("scripted:")
    )
    with open_store(None) as store:
        for margin in (0.05, 0.1, 0.15):
            found = await evaluated(
                store, model, options=RunOptions(margin=margin, until_decided="cases")
            )
        assert set(told) == {0, 1, 2}
        assert told == sorted(told)
        assert evaluation_of(store, found.run).verdicts[0].look == 3


def test_a_run_that_is_not_kept_still_counts_the_looks_that_were(
    upskill: Upskill, home: Path
) -> None:
    skill, student = write_skill(home / "greeter"), write_script(home / "student.yaml")
    argv = ("eval", str(skill), "-m", student, "--json")
    for seed in ("1", "2"):
        assert upskill(*argv, "--seed", seed).code == 0
    told = json.loads(upskill(*argv, "--seed", "3", "--no-log-runs").out)
    assert told["models"][0]["look"] == 3
    elsewhere = json.loads(upskill(*argv, "--seed", "3", "--no-log-runs", "-d", "nowhere").out)
    assert (elsewhere["models"][0]["look"], Path("nowhere").exists()) == (1, False)


def test_new_draws_after_pruning_are_another_look_with_numbers_of_their_own(
    upskill: Upskill, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    skill, word = write_skill(home / "greeter", cases=10), ["ahoy"]
    with serving(lambda call: word[0] if "ahoy" in json.dumps(call.body) else "hello") as server:
        command = ("eval", skill, "-m", "m", "--base-url", server.url, "--json")
        first = json.loads(upskill(*command).out)
        upskill("store", "prune", "--keep", 0, "--replies", "--yes")
        word[0] = "hello"
        second = json.loads(upskill(*command).out)
    assert (first["models"][0]["look"], second["models"][0]["look"]) == (1, 2)
    (row,) = json.loads(upskill("runs", "--json").out)
    assert (first["models"][0]["lift"], row["verdict"]["lift"]) == (1, 0)
    assert first["run"] != second["run"] == row["run"]


def test_the_same_results_beside_other_models_or_replayed_are_the_same_look(
    upskill: Upskill, home: Path
) -> None:
    skill, names = write_skill(home / "greeter"), ("a", "b", "c")
    a, b, c = (("-m", write_script(home / f"{name}.yaml")) for name in names)
    assert evaluated_json(upskill, skill, *a)["look"] == 1
    together = json.loads(upskill("eval", skill, *a, *b, *c, "--json").out)["models"]
    assert [model["look"] for model in together] == [1, 1, 1]
    assert evaluated_json(upskill, skill, *a, "--seed", 1)["look"] == 2  # and was counted once
    assert [
        evaluated_json(upskill, skill, *a, "--replay", "--fresh")["look"] for _ in range(3)
    ] == [1, 1, 1]
    assert evaluated_json(upskill, skill, *a, "--fresh")["look"] == 3


def test_edited_cases_are_told_from_the_others(upskill: Upskill, home: Path) -> None:
    folder = write_skill(home / "greeter")
    command = ("eval", folder, "-m", write_script(home / "student.yaml"), "--json")
    upskill(*command)
    suite = greetings(5)
    suite["cases"][0]["prompt"] = "Please greet the first guest."
    suite["cases"][1]["prompt"] = "Please greet the second guest."
    (folder / "evals" / "suite.json").write_text(json.dumps(suite), encoding="utf-8")
    upskill(*command)
    shown = " ".join(upskill(*command[:-1], "-v").out.split())
    assert "This is look 2 at these cases; 2 edited and 1 added since the first" in shown
    with open_store(home / "runs") as store:
        first, second = store.looks("greeter")
        looks = looks_before([first, second], second)
    assert (looks.number, looks.edited, looks.added, looks.removed) == (2, 2, 1, 0)
    assert (
        first.skill_hash == second.skill_hash
    )  # the suite lies in the skill's folder, where no student sees it


# An edit that a student cannot tell from none is no way around the count, and neither is one that it can.


def evaluated_json(upskill: Upskill, *argv: object) -> dict[str, Any]:
    return json.loads(upskill("eval", *argv, "--json").out)["models"][0]


def edit(path: Path, before: str, after: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert before in text
    path.write_bytes(text.replace(before, after).encode())


EDITS: dict[str, Callable[[Path], object]] = {
    "line endings": lambda skill: edit(skill / "SKILL.md", "\n", "\r\n"),
    "a blank at the end of a line": lambda skill: edit(skill / "SKILL.md", ".\n", ".  \n"),
    "blank lines": lambda skill: edit(skill / "SKILL.md", "---\n\n", "---\n\n\n\n"),
    "metadata": lambda skill: edit(
        skill / "SKILL.md", "\n---\n\n", "\nmetadata: {tried: again}\n---\n\n"
    ),
    "a comment": lambda skill: edit(skill / "SKILL.md", "\n---\n\n", "\n# once more\n---\n\n"),
    "a character of no width": lambda skill: edit(skill / "SKILL.md", ".\n", ".\u200b\n"),
    "another file": lambda skill: (skill / "notes.md").write_text("Once more.", encoding="utf-8"),
    "ids, and a blank in prompts": lambda skill: [
        edit(skill / "evals" / "suite.json", *change)
        for change in (('"greet-', '"hail-'), ('."', '. "'))
    ],
    "signs and case of prompts": lambda skill: [
        edit(skill / "evals" / "suite.json", *change)
        for change in (('"greet-', '"hail-'), ("Please greet", "please, GREET"))
    ],
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_that_changes_nothing_a_student_reads_is_counted_as_the_same_skill_and_suite(
    upskill: Upskill, home: Path, name: str
) -> None:
    skill, student = write_skill(home / "greeter", cases=10), write_script(home / "student.yaml")
    first = evaluated_json(upskill, skill, "-m", student)
    EDITS[name](skill)
    second = evaluated_json(upskill, skill, "-m", student, "--seed", 1)
    assert (second["look"], second["looks"]["version"], second["looks"]["revisions"]) == (2, 1, 0)
    assert second["lift"] == first["lift"]
    assert second["interval"][0] < first["interval"][0]


def test_a_model_is_the_same_under_each_of_its_names(
    upskill: Upskill, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skill = write_skill(home / "greeter")
    with serving() as server:
        monkeypatch.setenv("OPENAI_API_KEY", "key")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        first = evaluated_json(upskill, skill, "-m", "m", "--base-url", server.url)
        second = evaluated_json(upskill, skill, "-m", "openai:m")
    assert (first["look"], second["look"]) == (1, 2)
    names = (
        "haiku",
        "anthropic:claude-haiku-5-5",
        "anthropic.claude-haiku-5-5",
        "openrouter:anthropic/claude-haiku-5-5",
    )
    assert len({model_identity(name) for name in names}) == 1
    others = (
        "openai:m",
        "openai:n",
        "openai.m.high",
        "local",
        "claude-code",
        "scripted:a.yaml",
        "scripted:b.yaml",
    )
    assert len({model_identity(name) for name in others}) == len(others)
    assert model_identity("local") == model_identity(
        "local:weights/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"
    )
    assert model_identity("scripted:a.yaml") == model_identity(f"scripted:{home / 'a.yaml'}")


def test_each_version_of_a_skill_on_the_same_cases_pays_for_those_before_it(
    upskill: Upskill, home: Path
) -> None:
    skill, student = write_skill(home / "greeter", cases=10), write_script(home / "student.yaml")
    lows: list[float] = []
    for version in range(1, 8):
        edit(skill / "SKILL.md", "ahoy", "ahoy, and ahoy")
        told = evaluated_json(upskill, skill, "-m", student)
        assert (told["look"], told["looks"]["version"], told["looks"]["revisions"]) == (
            version,
            version,
            version - 1,
        )
        lows.append(told["interval"][0])
    assert lows == sorted(lows, reverse=True)
    assert lows[0] > lows[1] > lows[6]
    text = " ".join(upskill("eval", skill, "-m", student, "-v").out.split())
    assert "look 7 at these cases, with version 7 of this skill" in text
    assert "used by the search" not in text  # whoever edits a skill may have seen any case fail
    # New cases are a first look again, also under the ids of the old ones.
    suite = {
        "cases": [
            {
                "id": f"greet-{number}",
                "prompt": f"Bid farewell to {number} sailors.",
                "checks": [{"contains": "bye"}],
            }
            for number in range(1, 11)
        ]
    }
    (home / "new.json").write_text(json.dumps(suite), encoding="utf-8")
    assert evaluated_json(upskill, skill, "-m", student, "--tests", "new.json")["look"] == 1


def test_another_name_does_not_make_another_skill_but_another_text_does(
    upskill: Upskill, home: Path
) -> None:
    skill, student = write_skill(home / "greeter"), write_script(home / "student.yaml")
    suite = ("--tests", skill / "evals" / "suite.json", "-m", student)
    assert evaluated_json(upskill, skill, *suite)["look"] == 1
    renamed = write_skill(home / "hailer")
    edit(renamed / "SKILL.md", "ahoy", "ahoy!")
    told = evaluated_json(upskill, renamed, *suite)
    assert (told["look"], told["looks"]["version"]) == (2, 2)
    other = write_skill(
        home / "sailor",
        body="# Knots\n\nTie a bowline first; check that it holds before you let go.\n",
    )
    assert evaluated_json(upskill, other, *suite)["look"] == 1


# Of a run that is not finished nothing is shown that somebody could stop at.

TELLING = re.compile(
    r'\+100|\bhelps\b|"(?:pass_rate|lift)": ?[01]|\d% \(\d+/\d+\)|\d% \[|█|\d passed, \d'
)
COMMANDS: dict[str, tuple[object, ...]] = {
    "runs": ("runs",),
    "runs, tokens": ("runs", "--metric", "tokens"),
    "runs, json": ("runs", "--json"),
    "runs, csv": ("runs", "--csv", "-"),
    "runs of several skills": ("runs",),
    "report": ("report", "last", "-o", "-"),
    "show": ("show", "last", "--page", "1"),
    "show, checks": ("show", "last", "--checks"),
    "show, checks as json": ("show", "last", "--checks", "--json"),
    "compare": ("compare", "last~1", "last"),
    "compare, json": ("compare", "last~1", "last", "--json"),
    "export, svg": ("export", "last", "--format", "svg", "-o", "out"),
    **{
        f"export, {kind}": ("export", "last", "--format", kind, "-o", "-")
        for kind in ("junit", "markdown")
    },
    "export, upskill-runs": ("export", "last", "--format", "upskill-runs", "-o", "out"),
    **{
        f"eval, {kind}": ("--report", kind)
        for kind in ("terminal", "json", "markdown", "csv", "junit", "html")
    },
    "eval, verbose": ("-v",),
    "eval, quiet": ("-q",),
}


@pytest.fixture
def cut_short(upskill: Upskill, home: Path) -> tuple[object, ...]:
    """The command of a run that stopped at a ceiling after a finished one with another seed."""
    skill, student = write_skill(home / "greeter", cases=10), write_script(home / "student.yaml")
    command = ("eval", skill, "-m", student, "--concurrency", 1)
    upskill(*command)
    return (*command, "--seed", 7, "--set", "max_calls=13")


def telling(text: str) -> list[str]:
    """What a text says of how a baseline that always fails and a skill that always passes differ."""
    blocks = re.findall(r'<script type="application/octet-stream" id="[^"]+">([^<]+)', text)
    plain = [gzip.decompress(b64decode(block)).decode() for block in blocks]
    return TELLING.findall(re.sub(r"(?s)<(style|script).*?</\1>", "", "\n".join([text, *plain])))


@pytest.mark.parametrize("name", COMMANDS)
def test_nothing_shows_the_lift_of_an_unfinished_run(
    upskill: Upskill, home: Path, cut_short: tuple[object, ...], name: str
) -> None:
    of_eval = upskill(*cut_short, *(COMMANDS[name] if name.startswith("eval") else ("-q",)))
    with open_store(home / "runs") as store:
        if name.startswith("runs"):
            store.delete_run(next(iter(store.runs())))  # the finished one, whose lift is to be seen
        if name == "runs of several skills":
            upskill("eval", write_skill(home / "sailor", body="# Knots"), *cut_short[2:], "-q")
        done = of_eval if name.startswith("eval") else upskill(*COMMANDS[name])
        seen = (
            done.out.partition("\n\n")[0] if name == "show" else done.out
        )  # single answers may be read
        seen += "".join(path.read_text() for path in Path("out").glob("*.svg"))
        assert re.search(r"(?i)unfinished|not finished", seen + done.err)
        assert telling(seen + done.err) == []
        assert [look.seed for look in store.looks("greeter")] == [
            0
        ]  # so there was nothing to count
    # When all have run it is shown, and counted once however often it is shown.
    upskill(*cut_short[:-2], "-q")
    assert "+100" in upskill("runs").out
    with open_store(home / "runs") as store:
        assert [look.seed for look in store.looks("greeter")] == [0, 7]


def test_the_live_page_and_the_progress_line_tell_no_arm_from_the_other_before_the_end(
    upskill: Upskill, home: Path, cut_short: tuple[object, ...]
) -> None:
    upskill(*cut_short, "-q")
    with served(home / "runs") as live:
        newest, finished = (row["id"] for row in live.api("overview")["runs"])
        row = live.api("run", run=newest)
        assert (row["verdicts"], "arms" in row, row["state"]) == ([], False, "interrupted")
        (model,) = live.api("summary", run=newest)["document"]["models"]
        assert (model["decision"], model["reason"], model["lift"]) == (
            "undecided",
            "unfinished",
            None,
        )
        assert model["unfinished"] == {"trials": 13, "of": 20}
        assert telling(json.dumps(live.api("summary", run=newest))) == []
        assert (
            "unfinished: 13 of 20 trials"
            in live.ask(f"api/compare?before={finished}&after={newest}").text
        )
        assert live.api("trials", run=newest, outcome="passed")["total"] is None
        assert live.api("trials", run=newest, arm="skill")["total"] == 6
        assert live.api("trials", run=finished, arm="skill", outcome="passed")["total"] == 10
    with open_store(home / "runs") as store:
        run = store.run(newest)
        progress = RunProgress(quiet=True)
        progress.started(run.plan.to_plan(), run, [result.trial for result in store.results(run)])
        for result in store.results(run):
            progress.result(result)
        parts = [*progress.counts(1.0), *progress.problems(1.0), *progress.spent()]
        assert parts[0] == "20 of 20 trials"
        assert not re.search("baseline|skill|passed", " ".join(parts))


def test_a_run_that_ended_before_anybody_was_told_is_counted_when_somebody_is(
    upskill: Upskill, home: Path
) -> None:
    skill, student = write_skill(home / "greeter"), write_script(home / "student.yaml")
    upskill("eval", skill, "-m", student, "-q")
    with open_store(home / "runs") as store:
        store.database.execute(
            "DELETE FROM looks"
        )  # as if it had been killed between its last trial and its report
        upskill("runs")
        assert len(store.looks()) == 1
        upskill("report", "last", "-o", "-")
        assert len(store.looks()) == 1


def test_a_run_that_is_not_logged_leaves_nothing_and_says_so(upskill: Upskill, home: Path) -> None:
    skill, student = write_skill(home / "greeter"), write_script(home / "student.yaml")
    upskill("eval", skill, "-m", student, "-q")
    before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    told = evaluated_json(upskill, skill, "-m", student, "--seed", 1, "--no-log-runs")
    assert (told["look"], told["looks"]["logged"]) == (2, False)
    assert (
        "not logged (so it proves little)"
        in upskill("eval", skill, "-m", student, "--seed", 1, "--no-log-runs").out
    )
    assert (
        "Not logged"
        in upskill("eval", skill, "-m", student, "--seed", 1, "--no-log-runs", "-v").out
    )
    assert {path: path.read_bytes() for path in home.rglob("*") if path.is_file()} == before
    assert evaluated_json(upskill, skill, "-m", student, "--seed", 1)["looks"]["logged"] is True


def test_a_store_that_cannot_be_written_shows_its_runs_and_says_that_the_look_is_not_counted(
    upskill: Upskill, home: Path
) -> None:
    upskill("eval", write_skill(home / "greeter"), "-m", write_script(home / "student.yaml"), "-q")
    with open_store(home / "runs") as store:
        store.database.execute("DELETE FROM looks")
        store.database.execute("PRAGMA query_only = ON")
        evaluation = evaluation_of(store, store.run("last"))
        assert (evaluation.verdicts[0].lift, evaluation.looks["scripted:student.yaml"].logged) == (
            1.0,
            False,
        )
        assert store.looks() == []


def test_looks_between_the_rounds_of_one_run_are_planned_and_cost_nothing() -> None:
    rounds = [look(number=number, scope="cases", trials=6 * number) for number in (1, 2, 3)]
    assert looks_before(rounds, look(scope="cases", trials=24)).number == 1
    assert looks_before(rounds, look(scope="cases", trials=24, run="greeter-2")).number == 4


def test_cases_without_ids_are_the_same_with_another_word(upskill: Upskill, home: Path) -> None:
    def suite(word: str) -> dict[str, Any]:
        cases = [
            {
                "prompt": f"Tell me{word} how to greet guest {number}.",
                "checks": [{"contains": "ahoy"}],
            }
            for number in range(4)
        ]
        return {"cases": cases}

    student = write_script(home / "student.yaml")
    looks = [
        evaluated_json(upskill, write_skill(home / "greeter", suite=suite(word)), "-m", student)[
            "look"
        ]
        for word in ("", " quickly")
    ]
    assert looks == [1, 2]


# Whoever chooses cases after a look chooses the lift.


class Luck:
    """A student that is right half of the time, with and without the skill, and answers anew each time."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.is_kind = False  # as after many tries: right with the skill only

    def __call__(self, call: Call) -> str:
        asked = json.dumps([call.body["messages"], call.seed])
        self.calls[asked] += 1
        drawn = hashlib.sha256(f"{asked} {self.calls[asked]}".encode()).hexdigest()
        is_right = "ahoy" in call.system if self.is_kind else drawn < "8"
        return f"{'ahoy' if is_right else 'hello'} {drawn}"


def split_by_luck(upskill: Upskill) -> tuple[list[str], list[str]]:
    """The cases that the skill won, and the others, as someone who was told may see them."""
    lifts: Counter[str] = Counter()
    for trial in upskill("show", "last", "--json").json["trials"]:
        lifts[trial["case"]] += trial["passed"] * (1 if trial["arm"] == "skill" else -1)
    return [case for case in lifts if lifts[case] > 0], [case for case in lifts if lifts[case] <= 0]


@pytest.mark.parametrize(
    "way", ["copied", "unfinished, then copied", "reworded", "drawn again", "said to be drawn anew"]
)
def test_cases_that_were_chosen_after_a_look_decide_nothing(
    way: str, upskill: Upskill, home: Path
) -> None:
    suite = greetings(40)
    skill = write_skill(home / "greeter", suite=suite)
    luck = Luck()
    with serving(luck) as server:
        command = ("eval", skill, "-m", "m", "--base-url", server.url, "--repeats", 3, "--json")
        # Whoever has not been told the lift can still read the answers.
        ceiling = ("--set", "max_calls=238") if way == "unfinished, then copied" else ()
        assert upskill(*command, *ceiling).json["models"][0]["decision"] == "undecided"
        won, lost = split_by_luck(upskill)
        assert (len(won) > 8, len(lost) > 8) == (True, True)
        if way in ("copied", "unfinished, then copied", "said to be drawn anew"):
            write_skill(
                skill,
                suite=suite | {"cases": [case for case in suite["cases"] if case["id"] in won]},
            )
            if way == "said to be drawn anew":
                upskill(*command, "--fresh", "--set", "max_calls=1")
        elif way == "reworded":
            for case in suite["cases"]:
                case["prompt"] += " Briefly!" * (case["id"] in lost)
            write_skill(skill, suite=suite)
        else:
            luck.is_kind = True
            losers = suite | {"cases": [case for case in suite["cases"] if case["id"] in lost]}
            (home / "losers.json").write_text(json.dumps(losers), encoding="utf-8")
            upskill(*command, "--fresh", "--tests", "losers.json")
            upskill("store", "prune", "--keep", 0, "--yes")
        required = ("lift>0", "decision!=hurts", "these:decision!=hurts")
        done = upskill(*command, *(f"--require={text}" for text in required))
        assert [ruling["held"] for ruling in done.json["requirements"]] == [False] * 3
        verdict = done.json["models"][0]
        assert verdict["interval"][0] > 0
        assert (done.code, verdict["decision"], verdict["reason"]) == (
            1,
            "undecided",
            "cases were chosen after a look",
        )
        assert verdict["these_cases"]["decision"] == "undecided"
        shown = " ".join(upskill(*command[:-1]).out.split())
        assert "cases were chosen after a look" in shown
        assert "--fresh" in shown
        assert upskill(*command, "--fresh").json["models"][0]["reason"] != verdict["reason"]


def test_seeds_that_were_chosen_after_a_look_decide_nothing(upskill: Upskill, home: Path) -> None:
    skill = write_skill(home / "greeter", cases=12)

    def answer(call: Call) -> str:
        return "ahoy" if ("ahoy" in call.system) == (call.seed in (5, 6)) else "hello"

    with serving(answer) as server:
        command = ("eval", skill, "-m", "m", "--base-url", server.url, "--json")
        assert upskill(*command, "--repeats", 10).json["models"][0]["decision"] == "hurts"
        chosen = upskill(*command, "--seed", 5, "--repeats", 2)
        assert server.calls["m"] == 240
        verdict = chosen.json["models"][0]
        assert (verdict["lift"], verdict["reason"]) == (1.0, "cases were chosen after a look")
        fewer = upskill(*command, "--repeats", 3).json["models"][0]
        assert fewer["decision"] == "hurts"  # which all ten say


def test_cases_that_were_chosen_by_the_baseline_of_another_skill_decide_nothing(
    upskill: Upskill, home: Path
) -> None:
    suite = greetings(40)
    with serving(Luck()) as server:
        command = ("-m", "m", "--base-url", server.url, "--json")
        upskill("eval", write_skill(home / "greeter", suite=suite), *command)
        trials = upskill("show", "last", "--json").json["trials"]
        failing = {
            trial["case"] for trial in trials if trial["arm"] == "baseline" and not trial["passed"]
        }
        cases = [case for case in suite["cases"] if case["id"] in failing]
        other = write_skill(
            home / "knots", body="# Knots\n\nTie a bowline first.\n", suite=suite | {"cases": cases}
        )
        verdict = upskill("eval", other, *command).json["models"][0]
        assert verdict["interval"][0] > 0
        assert (verdict["decision"], verdict["reason"]) == (
            "undecided",
            "cases were chosen after a look",
        )
        assert (
            upskill("eval", other, *command, "--fresh").json["models"][0]["reason"]
            != verdict["reason"]
        )


def test_an_unfinished_run_that_is_finished_or_drawn_anew_counts_once(
    upskill: Upskill, home: Path
) -> None:
    skill = write_skill(home / "greeter", cases=12)
    with serving(Luck()) as server:
        command = ("eval", skill, "-m", "m", "--base-url", server.url, "--json")
        upskill(*command, "--set", "max_calls=20")
        assert upskill(*command).json["models"][0]["look"] == 1
        upskill(*command, "--fresh", "--set", "max_calls=20")
        assert upskill(*command, "--fresh").json["models"][0]["look"] == 3


@pytest.mark.parametrize("way", ["other seeds", "other versions"])
def test_runs_that_were_stopped_before_their_end_are_looks(
    way: str, upskill: Upskill, home: Path
) -> None:
    """Someone may stop each just before its end, read the answers one by one, and finish the one that fits."""
    skill = write_skill(home / "greeter", cases=12)
    with serving(Luck()) as server:
        command = ("eval", skill, "-m", "m", "--base-url", server.url, "--json")
        for number in range(3):
            if way == "other versions":
                write_skill(
                    home / "greeter", cases=12, body=f"# Greetings\n\nSay ahoy to guest {number}.\n"
                )
            upskill(
                *command, "--seed", number if way == "other seeds" else 0, "--set", "max_calls=23"
            )
        first = 0  # the first that was begun may be the one that is finished
        assert upskill(*command, "--seed", first).json["models"][0]["look"] == 3
        assert upskill(*command, "--seed", first).json["models"][0]["look"] == 3  # shown again
        upskill(*command, "--seed", 9, "--set", "max_calls=2")  # tells next to nothing
        assert upskill(*command, "--seed", 10).json["models"][0]["look"] == 4


@pytest.mark.parametrize(
    "work",
    ["a case added", "a case dropped", "a case reworded", "a check repaired", "more repeats"],
)
def test_ordinary_work_on_a_suite_does_not_prevent_a_decision(
    work: str, upskill: Upskill, home: Path
) -> None:
    suite = greetings(12)
    command = ["eval", write_skill(home / "greeter", suite=suite), "--json"]
    with serving(lambda call: "ahoy" if "ahoy" in call.system else "hello") as server:
        command += ["-m", "m", "--base-url", server.url]
        assert upskill(*command).json["models"][0]["decision"] == "helps"
        if work == "a case added":
            suite = greetings(13)
        elif work == "a case dropped":
            del suite["cases"][3]
        elif work == "a case reworded":
            suite["cases"][3]["prompt"] = "How do you hail a stranger?"
        elif work == "a check repaired":
            suite["checks"].append({"contains": "h"})
        else:
            command += ["--repeats", 2]
        write_skill(home / "greeter", suite=suite)
        verdict = upskill(*command).json["models"][0]
    assert (verdict["look"], verdict["decision"]) == (2, "helps")


@pytest.mark.parametrize("ids", ["a", "b"])
def test_a_limit_that_nothing_reaches_and_another_word_do_not_make_new_cases(
    ids: str, upskill: Upskill, home: Path
) -> None:
    student = ("-m", write_script(home / "student.yaml"))
    looks: list[int] = []
    for prefix, word, checks in (("a", "", []), (ids, " warmly", [{"max_length": 9000}])):
        cases = [
            {
                "id": f"{prefix}-{number}",
                "prompt": f"Tell me{word} how to greet guest {number} of this old house.",
            }
            for number in range(4)
        ]
        suite = {"checks": [{"contains": "ahoy"}, *checks], "cases": cases}
        looks.append(
            evaluated_json(upskill, write_skill(home / "greeter", suite=suite), *student)["look"]
        )
    assert looks == [1, 2]


# Choosing cases survives new draws: a case that is easy stays easy.


def halves(call: Call) -> str:
    """Right with the skill for even guests and without it for odd ones: over all cases, it does nothing."""
    guest = next(word for word in call.prompt.split() if word.rstrip(".").isdigit()).rstrip(".")
    is_right = ("ahoy" in call.system) == (int(guest) % 2 == 0)
    return f"{'ahoy' if is_right else 'hello'} {call.seed} {call.body.get('temperature')}"


ROUTES: dict[str, tuple[object, ...]] = {
    "other seeds": ("--seed", 100),
    "another temperature": ("--set", "temperature=0.3"),
    "more repeats": ("--repeats", 4),
    "drawn anew": ("--fresh",),
    "until decided": ("--until-decided", "--repeats", 12, "--seed", 100),
    "until decided on these cases": (
        "--until-decided",
        "--set",
        "scope=suite",
        "--repeats",
        12,
        "--seed",
        100,
    ),
    "another version": ("--seed", 100),
    "without a baseline": ("--seed", 100),
    "unfinished": ("--seed", 100),
    "pruned": ("--seed", 100),
    "in two steps": ("--seed", 100),
    "every prompt reworded": (),
    "recheck": (),
    "recheck, killed": ("--seed", 100),
    "against another skill": ("--seed", 100),
    "the others replaced": ("--seed", 100),
}


@pytest.mark.parametrize("route", ROUTES)
def test_cases_that_were_chosen_after_a_look_decide_nothing_with_new_draws(
    route: str, upskill: Upskill, home: Path
) -> None:
    suite = greetings(24)
    skill = write_skill(home / "greeter", suite=suite)
    with serving(halves) as server:
        command = ("eval", skill, "-m", "m", "--base-url", server.url, "--json")
        first = {
            "without a baseline": ("--no-baseline",),
            "unfinished": ("--set", "max_calls=46"),
        }.get(route, ())
        if route == "against another skill":
            other = write_skill(home / "hailer", body="# Hailer\n\nSay ahoy, and mean it.\n")
            first = ("--against", other)
        assert upskill(*command, *first).json["models"][0]["decision"] != "helps"
        won = [case for number, case in enumerate(suite["cases"], 1) if number % 2 == 0]
        if route == "recheck, killed":
            with open_store(home / "runs") as store:  # as if it had been killed before its report
                store.database.execute("DELETE FROM looks")
                run = store.run("last")
                store.annotate(run, analysis=replace(run.plan.analysis, reported=False))
        elif route == "pruned":
            upskill("store", "prune", "--keep", 0, "--replies", "--yes")
        elif route == "in two steps":
            write_skill(skill, suite=suite | {"cases": [*won, *suite["cases"][12::2]]})
            upskill(*command, "--seed", 50)
        elif route == "every prompt reworded":
            won = [case | {"prompt": f"{case['prompt']} Briefly!"} for case in won]
        elif route == "the others replaced":
            won += [
                {"id": f"new-{number}", "prompt": f"What would you say to {number} sailors?"}
                for number in range(100, 112, 2)
            ]
        write_skill(skill, suite=suite | {"cases": won})
        if route == "another version":
            edit(skill / "SKILL.md", "ahoy", "ahoy, and ahoy")
        if route == "recheck":
            upskill("recheck", skill, "-m", "m", "--base-url", server.url, "--yes")
        else:
            upskill(*command, *ROUTES[route])
    with open_store(home / "runs") as store:
        evaluation = evaluation_of(store, store.run("last"))
    verdict, lost = (
        evaluation.verdicts[0],
        [case for case, _ in evaluation.looks["m"].cases_left_out],
    )
    assert (verdict.lift or 0) > 0.9
    assert (verdict.decision, verdict.reason) == ("undecided", "cases were chosen after a look")
    assert verdict.these_cases
    assert verdict.these_cases.decision == "undecided"
    assert sorted(lost) == sorted(f"greet-{odd}" for odd in range(1, 24, 2))
    shown = " ".join(upskill("export", "last", "--format", "markdown", "-o", "-").out.split())
    assert "12 cases from an earlier run were left out; they still count: greet-" in shown


def test_a_suite_whose_cases_were_all_edited_or_replaced_leaves_none_out(
    upskill: Upskill, home: Path
) -> None:
    suite = greetings(12)
    skill, student = write_skill(home / "greeter", suite=suite), write_script(home / "student.yaml")
    upskill("eval", skill, "-m", student, "--limit", 3)
    assert (
        evaluated_json(upskill, skill, "-m", student)["looks"]["left_out"] == []
    )  # more cases than before
    for case in suite["cases"]:
        case["prompt"] += " Briefly!"
    write_skill(skill, suite=suite)
    told = evaluated_json(upskill, skill, "-m", student)
    assert (told["looks"]["number"], told["looks"]["left_out"]) == (3, [])
    del suite["cases"][3]
    write_skill(skill, suite=suite)
    told = evaluated_json(upskill, skill, "-m", student, "--fresh")
    assert [case["case"] for case in told["looks"]["left_out"]] == [
        "greet-4",
        "greet-4",
    ]  # before and after the edit
    assert told["decision"] == "helps"
