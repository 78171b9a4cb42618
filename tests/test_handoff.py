"""`--handoff`: prompts are files, and whoever answers them is told at once what is wrong with an answer."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import upskill as upskill_package
from conftest import REPOSITORY, Done, Upskill
from teaching import (
    ANSWERS,
    NUMBERS,
    TRAIN,
    WRITES,
    case,
    draft,
    fact,
    fresh,
    insert,
    student_rules,
    write_rules,
    written,
)
from upskill import Skill
from upskill.authoring.saving.provenance import Provenance, own_lines
from upskill.traces.formats import read_trace

TASK = "know the words of this house"
FIRST = TRAIN[:2]
GOOD = insert("\n".join(fact(number) for number in NUMBERS if number not in FIRST))
CASES = {"cases": [written(case(number)) for number in NUMBERS]}
FRESH = fresh(map(case, NUMBERS))


@pytest.fixture
def desk(home: Path) -> Path:
    write_rules(home / "student.json", student_rules())
    return home / "desk"


def go(upskill: Upskill, *more: object, task: str = TASK) -> Done:
    given = ("--handoff", "desk", "--student", "scripted:student.json", "--tokens", 1000)
    return upskill("generate", task, *given, *more)


def prompts(desk: Path) -> list[str]:
    return sorted(path.name.removesuffix(".prompt.md") for path in desk.glob("*.prompt.md"))


def write_answer(desk: Path, stem: str, answer: Any) -> None:
    (desk / f"{stem}.answer.json").write_text(
        answer if isinstance(answer, str) else json.dumps(answer)
    )


def answer_all(desk: Path, **answers: Any) -> list[str]:
    """Answer what waits, by role; which rounds and roles those were."""
    roles: list[str] = []
    for stem in prompts(desk):
        role = stem.rpartition("-")[0]
        if not (desk / f"{stem}.answer.json").exists():
            roles.append(role)
            given = {"skill": draft(FIRST), "tests": CASES, "answers": FRESH, "revision": GOOD}
            write_answer(desk, stem, (given | answers)[role.partition("-")[2]])
    return roles


def test_two_rounds_and_a_third_where_needed(upskill: Upskill, desk: Path) -> None:
    rounds: list[list[str]] = []
    while "waiting_for" in (done := go(upskill, "--json")).json:
        assert done.code == 0, done.err
        waiting = [Path(file).name.rpartition("-")[0] for file in done.json["waiting_for"]]
        assert f"waiting for {len(waiting)} answer" in done.err
        for role in waiting:
            assert f"\n  {role}: in a chat of its own" in done.err or role == "3-revision"
        rounds.append(waiting)
        assert answer_all(desk) == waiting
    assert rounds == [["1-skill", "1-tests"], ["2-answers"], ["3-revision"]]
    assert done.json["held_out"]["models"][0]["lift"] == 1.0
    text = (desk / f"{prompts(desk)[0]}.prompt.md").read_text()
    assert f"Write the answer, and nothing else, to `{prompts(desk)[0]}.answer.json`" in text
    done = go(upskill, "--max-cost", 1)  # which costs nothing here
    assert done.code == 0, done.err
    printed = " ".join(done.out.split())
    assert re.search(r"Spent: (teacher|test writer) [1-9][\d,]* tokens · ", printed)
    assert "(those for handoff:desk are estimated)" in printed


def test_a_waiting_rerun_prints_only_what_is_new(upskill: Upskill, desk: Path) -> None:
    first, again = go(upskill), go(upskill)
    assert "Generating skill with handoff:desk..." in first.err
    assert again.err.splitlines()[0].startswith("upskill: waiting for 2 answers: ")
    answer_all(desk)
    second, again = go(upskill), go(upskill)
    assert "Writing answers to 20 cases..." in second.err
    assert again.err.splitlines()[0].startswith("upskill: waiting for 1 answer: ")
    answer_all(desk)
    third = go(upskill)
    assert "  0 of 10 → 2 of 10 answers pass" in third.err
    assert "Writing answers" not in third.err


def test_an_embedded_student_is_not_loaded_before_it_is_asked(upskill: Upskill, desk: Path) -> None:
    weights = desk.with_name("broken.gguf")
    done = go(upskill, "--student", f"local:{weights}")
    assert (done.code, prompts(desk)) == (2, [])
    assert f"{weights}: No such file" in done.err
    weights.write_bytes(b"GGUF, and nothing that could be loaded")
    done = go(upskill, "--student", f"local:{weights}")
    assert done.code == 0, done.err
    assert "waiting for 2 answers" in done.err


def test_a_saved_skill_names_no_folder_that_it_was_made_in(
    upskill: Upskill, desk: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    desk, sources = tmp_path_factory.mktemp("desk"), tmp_path_factory.mktemp("sources")
    (sources / "log.md").write_text("\n".join(fact(number) for number in NUMBERS))
    rules = sources / "student.json"
    write_rules(rules, student_rules())
    given = (
        "--handoff",
        desk,
        "--from",
        sources / "log.md",
        "--student",
        f"scripted:{rules}",
        "--attempts",
        0,
    )
    for _ in range(2):
        assert upskill("generate", TASK, *given).code == 0
        answer_all(desk, skill=draft(NUMBERS, ["d1"]))
    made = [upskill("generate", TASK, *given, "--json") for _ in range(2)]
    assert [done.code for done in made] == [0, 0], made[0].err
    assert (
        made[0].json["saved_to"] == made[1].json["saved_to"]
    )  # it is still known as what the same command made
    for file in filter(Path.is_file, Path(made[0].json["saved_to"]).parent.rglob("*")):
        assert not [folder for folder in (desk, sources) if str(folder) in file.read_text()], file
    assert (
        Provenance.of(Skill.load(made[0].json["saved_to"])).metadata["generated_by"]
        == f"handoff:{desk.name}"
    )


def test_a_wrong_answer_is_refused_by_its_file_until_it_is_fixed(
    upskill: Upskill, desk: Path
) -> None:
    go(upskill)
    stem, tests = prompts(desk)
    write_answer(desk, tests, CASES)
    unknown = draft(FIRST, ["d9"])
    for answer, why in (
        ("I would rather not.", "it is not JSON"),
        ({**draft(FIRST), "blocks": "none"}, "$.blocks: 'none' is not of type 'array'"),
        (unknown, ".evidence[0]: 'd9' is not one of"),
        ({**draft(FIRST), "description": ""}, "description"),
        (
            {**draft(FIRST), "blocks": list[Any]()},
            "$.blocks: 0 items, but there must be at least 1",
        ),
    ):
        write_answer(desk, stem, answer)
        done = go(upskill)
        assert done.code == 2, done.err
        assert f"desk/{stem}.answer.json: this answer cannot be used: " in done.err
        assert why in done.err
        assert prompts(desk) == [stem, tests]  # no further prompt asks for the same
    write_answer(desk, stem, draft(FIRST))
    assert go(upskill).code == 0
    asked = next(name for name in prompts(desk) if name.startswith("2-answers"))
    few = {"answers": FRESH["answers"][1:]}
    twice = {"answers": [*few["answers"], few["answers"][0]]}
    for answer, why in (
        (few, "$.answers: 19 items, but there must be at least 20"),
        (twice, "it has no answers to word-1"),
    ):
        write_answer(desk, asked, answer)
        done = go(upskill)
        assert (done.code, why in done.err) == (2, True), done.err


def test_a_line_without_grounds_goes_back_once_and_is_then_kept_as_the_writers_own(
    upskill: Upskill, desk: Path
) -> None:
    (desk.parent / "log.md").write_text("\n".join(map(fact, NUMBERS)))
    line = f"{fact(NUMBERS[-1])} Say it with `tern --loud`."
    bold = insert(line)
    bold["edits"][0]["evidence"] = ["d1"]
    given = ("--from", "log.md")
    for _ in range(2):
        assert go(upskill, *given).code == 0
        answer_all(desk, skill=draft(FIRST, ["d1"]))
    assert go(upskill, *given).code == 0
    assert answer_all(desk, revision=bold) == ["3-revision"]
    done = go(upskill, *given)
    assert done.code == 2
    assert "this answer is sent back, once: " in done.err
    assert "says 'tern', '--loud', which is not in d1" in done.err
    (note,) = desk.glob("3-revision-*.sent-back.md")
    assert "'--loud'" in note.read_text()
    done = go(upskill, *given, "--json")
    assert done.code == 0, done.err
    assert own_lines(Skill.load(done.json["saved_to"]))[0] == [line]


def test_questions_that_the_material_leaves_open_are_shown_and_with_ask_answered_once(
    upskill: Upskill, desk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    question, skill = "Which port does the ship sail from?", draft(FIRST)

    def finish(typed: str, *more: str) -> Done:
        """Give the command until nothing is asked any more."""
        monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        shown = ""
        while True:
            done = upskill(
                "generate", TASK, "--handoff", "desk", "--no-eval", "--force", "--json", *more
            )
            assert done.code == 0, done.err
            shown += done.err
            if "waiting_for" not in done.json:
                return Done(done.code, done.out, shown)
            for file in map(Path, done.json["waiting_for"]):
                prompt = file.read_text(encoding="utf-8")
                answer = FRESH if ANSWERS in prompt else skill if WRITES in prompt else CASES
                answer = (
                    draft(FIRST, ["a1"])
                    if f"{question}\\nLisbon" in prompt and answer is skill
                    else answer
                )
                write_answer(desk, file.name.removesuffix(".prompt.md"), answer)

    skill["missing"] = [question]
    for asks in ((), ("--ask",)):  # nobody is at the keyboard
        assert finish("", *asks).json["missing"] == [question]
    shown = upskill("generate", TASK, "--handoff", "desk", "--no-eval", "--force").out
    assert f"Missing from the material (run again with --ask to answer):\n    {question}" in shown
    done = finish("Lisbon\n", "--ask")
    assert (
        done.err.count(f"The teacher asks: {question}") == 1
    )  # the answer is stored: nobody is asked twice
    assert done.json["missing"] == []
    assert (
        Provenance.of(Skill.load(done.json["saved_to"])).evidence["a1"]["text"]
        == f"{question}\nLisbon"
    )


def test_prompts_that_are_no_longer_asked_disappear_and_answers_stay(
    upskill: Upskill, desk: Path
) -> None:
    assert go(upskill).code == 0
    before = prompts(desk)
    answer_all(desk)
    done = go(upskill, task="something else")
    assert done.code == 0
    unused = "No longer asked, and its answer is not used: "
    assert f"{unused}desk/{before[0]}.prompt.md and desk/{before[1]}.prompt.md." in done.err
    assert (desk / f"{before[0]}.answer.json").exists()
    waiting = [stem for stem in prompts(desk) if stem not in before]
    assert go(upskill).code == 0  # back to the first task: nobody had answered the other
    assert not [stem for stem in waiting if stem in prompts(desk)]


def test_a_case_that_breaks_a_rule_goes_back_with_its_json_and_the_reason(
    upskill: Upskill, desk: Path
) -> None:
    go(upskill)
    weak = {**CASES["cases"][0], "reference": "Bounty"}
    answer_all(desk, tests={"cases": [weak, *CASES["cases"][1:]]})
    go(upskill)
    answer_all(desk)
    done = go(upskill)
    assert "Sending back 1 case to be fixed." in done.err.splitlines()
    (checks, revision) = [stem for stem in prompts(desk) if stem.startswith("3-")]
    assert (checks.rpartition("-")[0], revision.rpartition("-")[0]) == ("3-checks", "3-revision")
    asked = (desk / f"{checks}.prompt.md").read_text(encoding="utf-8")
    assert json.dumps(weak["prompt"]) in asked
    assert "its own reference answer fails" in asked
    fixed = {"id": weak["id"], "checks": weak["checks"], "disputed": list[str]()}
    answer_all(desk, checks={"cases": [fixed]})
    assert "Left out 1 case" in go(upskill).err


def test_all_that_can_be_asked_at_once_is_asked_and_counted(upskill: Upskill, desk: Path) -> None:
    body = "\n\n".join(f"# Part {number}\n\n{'All of this is so. ' * 80}" for number in range(600))
    Path("long.md").write_text(body)
    done = go(upskill, "--from", "long.md", "--json")
    assert done.code == 0, done.err
    waiting = done.json["waiting_for"]
    assert [Path(name).name.removesuffix(".prompt.md") for name in waiting] == prompts(desk)
    assert len(waiting) > 1
    assert f"waiting for {len(waiting)} answers: {waiting[0]}, " in done.err
    for stem in prompts(desk):
        (desk / f"{stem}.prompt.md").unlink()
    skill = Skill.new(
        "house-words", "Words. Use when asked for words.", "\n".join(map(fact, NUMBERS))
    )
    suite = [
        {"prompt": f"{case(number)['prompt']}", "checks": [{"contains": "Aurora"}]}
        for number in NUMBERS[:9]
    ]
    skill.with_file("evals/suite.json", json.dumps(suite).encode()).save("house-words")
    command = ("eval", "house-words", "-m", "handoff:desk", "--repeats", 1)
    done = upskill(*command)
    assert (done.code, "waiting for 18 answers: " in done.err, len(prompts(desk))) == (
        0,
        True,
        18,
    ), done.err
    assert f"{prompts(desk)[0]}.answer.md" in (desk / f"{prompts(desk)[0]}.prompt.md").read_text()
    for stem in prompts(desk)[:17]:
        (desk / f"{stem}.answer.md").write_text("Aurora")
    assert "waiting for 1 answer: " in upskill(*command).err


def test_the_page_about_generate_begins_with_commands_that_work_on_a_clean_machine(
    home: Path,
) -> None:
    page = (REPOSITORY / "docs/how-to/generate.md").read_text()
    lines = page.partition("```console\n")[2].partition("```")[0].splitlines()
    function = f'upskill() {{ {sys.executable} -m upskill "$@"; }}'
    script = "\n".join(
        [function, *(line.removeprefix("$ ") for line in lines if line.startswith("$ "))]
    )
    source = str(Path(upskill_package.__file__).parent.parent)
    clean = {"HOME": str(home), "PATH": "/usr/bin:/bin", "PYTHONPATH": source}
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, env=clean, check=True
    )
    printed = [line for line in lines if not line.startswith("$ ")]
    assert [re.sub("-[0-9a-f]{8}", "", line) for line in done.stderr.splitlines()] == [
        re.sub("-…", "", line) for line in printed
    ]


def test_a_teacher_who_would_change_nothing_says_so_and_is_not_asked_again(
    upskill: Upskill, desk: Path
) -> None:
    for _ in range(3):
        assert go(upskill, "--attempts", 3).code == 0
        answer_all(desk, revision={"note": "It is as it should be.", "edits": []})
    done = go(upskill, "--attempts", 3)
    assert done.code == 0, done.err
    said = " ".join(done.out.split())
    assert "No further revision: the teacher would change nothing." in said
    making = json.loads((desk.parent / "skills/house-words/skill_meta.json").read_text())["making"][
        0
    ]["spent"]
    # The student's shown trials were run before the last pause.
    assert f" ({making['student']['tokens']:,} with earlier calls)" in said
    assert len(prompts(desk)) == 4


def call(tool: str, **arguments: str) -> dict[str, Any]:
    return {"call": {"tool": tool, **arguments}}


def test_what_is_said_before_a_command_is_in_the_recording_of_a_lesson_by_hand(
    upskill: Upskill, desk: Path
) -> None:
    command = ("teach", "count", "--handoff", "desk", "--only-record")
    turns = [
        {"say": "See what is there.", **call("bash", command="ls")},
        call("bash", command="true"),
        {"say": "That is all.", **call("answer", text="Done.")},
    ]
    for turn in turns:
        assert upskill(*command).code == 0
        write_answer(desk, prompts(desk)[-1], turn)
    assert (
        "What you say before the call goes into `say`."
        in (desk / f"{prompts(desk)[0]}.prompt.md").read_text()
    )
    done = upskill(*command, "--json")
    assert done.code == 0, done.err
    steps = read_trace(Path(done.json["lesson"]["trace"])).steps
    assert [(step.kind, step.text) for step in steps if step.kind != "tool"] == [
        ("user", "count"),
        ("assistant", "See what is there."),
        ("assistant", "That is all.\n\nDone."),
    ]
    assert [step.kind for step in steps] == ["user", "assistant", "tool", "tool", "assistant"]


def test_a_lesson_by_hand_goes_on_after_each_answer_and_runs_no_command_twice(
    upskill: Upskill, desk: Path
) -> None:
    """The output of every command is another one each time, and still the place is not lost."""
    count = "echo ran >> log; chmod 700 log; date +%N; echo $RANDOM"
    turns = [
        call("bash", command=count),
        call("bash", command=f"{count}; cat log"),
        call("answer", text="Done."),
    ]
    command = (
        "teach",
        "count",
        "--handoff",
        "desk",
        "--only-record",
        "--check",
        "grep -c ran log; test -x log",
    )
    for number, answer in enumerate(turns, start=1):
        done = upskill(*command)
        assert done.code == 0, done.err
        assert f"waiting for 1 answer: desk/{number:02d}-" in done.err, done.err
        assert len(prompts(desk)) == number
        write_answer(desk, prompts(desk)[-1], answer)
    done = upskill(*command, "--json")
    assert (done.code, done.json["lesson"]["check"], done.json["lesson"]["calls"]) == (
        0,
        True,
        3,
    ), done.err
    recorded = Path(done.json["lesson"]["trace"]).read_text()
    assert "ran\\nran" in recorded
    assert (
        sorted(path.suffix for path in desk.iterdir()) == [".json"] * 3 + [".md"] * 3
    )  # the journal is gone


def test_an_earlier_answer_that_was_changed_starts_the_lesson_over(
    upskill: Upskill, desk: Path
) -> None:
    command = ("teach", "count", "--handoff", "desk", "--only-record", "--check", "ls")
    assert upskill(*command).code == 0
    first = prompts(desk)[0]
    write_answer(desk, first, call("bash"))
    wrong = upskill(*command)
    assert (wrong.code, "$.call: 'command' is a required property" in wrong.err) == (2, True), (
        wrong.err
    )
    write_answer(desk, first, call("bash", command="touch stale"))
    assert upskill(*command).code == 0
    write_answer(desk, first, call("bash", command="touch two"))
    assert upskill(*command).code == 0
    assert len(prompts(desk)) == 2
    write_answer(desk, prompts(desk)[-1], call("answer", text="Done."))
    done = upskill(*command, "--json")
    assert done.code == 0, done.err
    steps = json.loads(Path(done.json["lesson"]["trace"]).read_text())
    assert "stale" not in json.dumps(steps)


def test_a_journal_that_cannot_be_read_is_named(upskill: Upskill, desk: Path) -> None:
    command = ("teach", "count", "--handoff", "desk", "--only-record")
    assert upskill(*command).code == 0
    write_answer(desk, prompts(desk)[0], call("bash", command="true"))
    assert upskill(*command).code == 0
    (journal,) = desk.glob("*.journal.json")
    journal.write_text("[{}")
    done = upskill(*command)
    assert (done.code, f"desk/{journal.name} cannot be read" in done.err) == (2, True)


def test_a_handoff_and_a_teacher_are_named_as_they_can_be_typed(
    upskill: Upskill, home: Path
) -> None:
    done = upskill("generate", TASK, "--handoff", "desk", "-m", "local")
    assert (done.code, "--handoff and -m (--teacher) cannot be used together" in done.err) == (
        2,
        True,
    )
