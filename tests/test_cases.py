"""Cases that tell right from wrong: each is tried with right and wrong answers before it is kept."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from conftest import REPOSITORY, Upskill, write_script
from teaching import ANSWERS, FIXES, WORDS, Teacher, case, cases_and_answers, fresh, prompt
from test_create import says, skill_of, user
from upskill import Skill, Suite
from upskill.authoring.material.material import read_material
from upskill.authoring.writing.prompts import read_prompt
from upskill.authoring.writing.suite_writer import write_suite
from upskill.checks.answer import MaxLength
from upskill.runs.planning.plan import DEFAULT_OUTPUT_TOKENS
from upskill.suites import describe_authors
from upskill.suites.quality import probe_case

SKILL = Skill.new(
    "house-rules",
    "How things are done here.",
    "\n".join(f"- Rule {n}: do thing {n}." for n in range(40)),
)


def examples(prompt: str) -> list[dict[str, Any]]:
    """The worked examples in a prompt, with the answers that others would give where those are written down."""
    blocks = re.findall(r"^```json\n(.*?)^```$", prompt, re.S | re.M)
    return [
        ANSWERS_TO.get(one["id"], {}) | one
        for block in blocks
        for one in json.loads(block)["cases"]
    ]


def shown_answers() -> dict[str, dict[str, list[str]]]:
    (block,) = re.findall(
        r"^```json\n(.*?)^```$", read_prompt("write_answers", count=3), re.S | re.M
    )
    return {
        one["case"]: {"right": one["right"], "wrong": one["wrong"]}
        for one in json.loads(block)["answers"]
    }


SETTINGS = '{"retries": 5, "backoff": "exponential"}'
ANSWERS_TO: dict[str, dict[str, list[str]]] = shown_answers() | {
    "metrics-port": {"right": ["`9464`", "Port 9464."], "wrong": ["9090", "9464 or 9090"]},
    "retry-settings": {
        "right": [f"```json\n{SETTINGS}\n```", SETTINGS],
        "wrong": ["{}", SETTINGS.replace("5", "3")],
    },
    "subject-line": {
        "right": [
            "`ui-pane> mends: the dead login button`",
            "ui-pane> mends: clicks on the login button",
        ],
        "wrong": ["fix(ui-pane): login button reacts again", "ui-pane: mends login button"],
    },
    "manifest": {
        "right": [
            """echo '{"licence": "MIT", "name": "tide"}' > manifest.json""",
            """printf '{\\n "name": "tide",\\n "version": 1,\\n "licence": "MIT"\\n}' > manifest.json""",
        ],
        "wrong": [
            """echo '{"name": "tide", "license": "MIT"}' > manifest.json""",
            """echo '{"licence": "MIT"}' > manifest.json""",
        ],
    },
}


async def fixing(
    item: dict[str, Any], *answers: object, acts: bool = False
) -> tuple[Teacher, Suite, list[str]]:
    """What comes of a suite with this case, whose writer answers so when it is sent back."""
    lines: list[str] = []
    teacher = says({"cases": [item, *(case(n) for n in range(2, 5))]}, *answers)
    suite = await write_suite(SKILL, teacher, count=4, acts=acts, tell=lines.append)
    return teacher, suite, lines


async def told(item: dict[str, Any], *, acts: bool = False) -> str:
    """What a writer of this case is told about it, when it goes back."""
    teacher = says({"cases": [item, *(case(n) for n in range(2, 5))]}, {"cases": [{"id": ""}]})
    await write_suite(SKILL, teacher, count=4, acts=acts)
    return user(teacher.asked[1])


async def leaks(**fields: Any) -> set[str]:
    (one,) = Suite.parse([{"id": "one", "prompt": "What is asked for here?", **fields}]).cases
    return {weak.probe for weak in await probe_case(one, SKILL)}


async def test_a_prompt_that_gives_the_values_of_a_schema_away_is_told_so() -> None:
    schema = {"type": "object", "required": ["scope"], "properties": {"scope": {"const": "module"}}}
    check = {"kind": "json_schema", "texts": [json.dumps(schema)], "number": 0, "exact": False}
    asked = "Give the scope as JSON with the field scope: module or function?"
    item = case(1) | {"prompt": asked, "checks": [check], "reference": '{"scope": "module"}'}
    assert (
        "copied from the prompt, passes (json_schema passes); the prompt gives the values away"
        in await told(item)
    )


async def test_the_prompts_own_examples_pass_the_gate() -> None:
    shown = examples(read_prompt("write_suite", count=4))
    suite = await write_suite(SKILL, says({"cases": shown}), count=4)
    assert [one.id for one in suite.cases] == [one["id"] for one in shown]
    assert {named.name for one in suite.cases for named in one.checks} >= {
        "command_line",
        "equals",
        "json_schema",
        "regex",
    }


async def test_a_case_that_allows_a_long_answer_asks_for_no_more_than_it_allows() -> None:
    long = case(1) | {"words": 90}
    told_so = case(2) | {
        "words": 90,
        "prompt": "What is the captain of the ship? Take at most 90 words.",
    }
    wordy = case(3) | {"words": 2, "reference": f"It is {'very ' * 8}{WORDS[2]}."}
    suite = await write_suite(SKILL, says({"cases": [long, told_so, wordy, case(4)]}), count=4)
    assert [one.max_words for one in suite.cases] == [90, 90, 11, None]
    assert suite.cases[0].prompt == f"{case(1)['prompt']}\n\nAnswer in at most 90 words."
    assert suite.cases[1].prompt == told_so["prompt"]
    assert suite.cases[3].prompt == case(4)["prompt"]


async def test_the_share_of_look_ups_is_counted_and_said() -> None:
    contains = {"kind": "contains", "texts": [WORDS[0]], "number": 0, "exact": False}
    absent = contains | {"texts": ["kestrel"]}
    regex = {"kind": "regex", "texts": [rf"\b{WORDS[2]}\b"], "number": 0, "exact": False}
    told_not = {"kind": "not_contains", "texts": ["Bounty"], "number": 0, "exact": False}
    cases = [
        case(1) | {"checks": [contains, told_not]},
        case(2) | {"checks": [absent], "reference": "kestrel", "right": ["A kestrel.", "kestrel!"]},
        case(3) | {"checks": [contains | {"texts": [WORDS[2]]}, regex]},
    ]
    material = read_material(
        "know the ship", examples=[f"{prompt(n)} -> {WORDS[n - 1]}" for n in (1, 2, 3)]
    )
    suite = await write_suite(material, says({"cases": cases}), count=3, author="scripted:teacher")
    assert [one.metadata.get("look_up") for one in suite.cases] == [True, None, None]
    said = describe_authors(one.metadata for one in suite.cases)
    assert said == (
        "Written: 3 cases by scripted:teacher from the task and its material, without the skill."
        " Look-ups (they only ask for words from the source): 1 of 3."
    )


STRICT = [{"kind": "equals", "texts": ["Aurora"], "number": 0, "exact": True}]


def fixed(checks: Any, *disputed: str) -> dict[str, Any]:
    return {"cases": [{"id": "word-1", "checks": checks, "disputed": list(disputed)}]}


async def test_somebody_who_has_not_seen_the_checks_answers_all_cases_in_one_call() -> None:
    own = case(1) | {"reference": "the Aurora"}
    teacher, suite, lines = await fixing(own)
    assert [len(asked) for asked in (teacher.asked, teacher.answering)] == [1, 1]
    request = teacher.answering[0]
    everything = user(request) + request.messages[0].text
    assert all(one.prompt in everything for one in suite.cases)
    for hidden in ("the Aurora", r"\bAurora", "do not know"):
        assert hidden not in everything
    assert SKILL.body.splitlines()[0] in everything  # there is no material, so it is the skill
    assert suite.cases[0].right == tuple(own["right"])
    assert suite.cases[0].wrong == tuple(own["wrong"])
    assert Suite.parse([suite.cases[0].to_dict()]).cases[0] == suite.cases[0]
    assert lines[-1] == "12 of 12 right answers pass, 12 of 12 wrong answers fail."


async def test_answers_of_the_writer_of_the_checks_count_for_nothing() -> None:
    teacher, suite, _ = await fixing(case(1))
    assert '"right"' not in json.dumps(teacher.asked[0].schema)
    teacher.cases["word-1"] = case(1) | {"right": ["Aurora", "It is Aurora."]}
    assert (await write_suite(SKILL, teacher, count=4)).cases[0].right == suite.cases[0].right


async def test_a_case_that_judges_fresh_answers_otherwise_goes_back_alone_and_is_fixed_in_one_call() -> (
    None
):
    teacher, suite, lines = await fixing(case(1) | {"checks": STRICT}, fixed(case(1)["checks"]))
    first, second = teacher.asked
    assert [each.messages[0].text.startswith(FIXES) for each in (first, second)] == [False, True]
    said = json.loads(user(second))
    assert list(said["problems"]) == ["r1", "r2", "r3"]
    assert said["problems"]["r1"].startswith("is right, and fails: 'It is Aurora.': ")
    assert said["answers"]["w1"] == case(1)["wrong"][0]
    assert not [n for n in range(2, 5) if prompt(n) in user(second)]
    assert len(teacher.answering) == 1
    assert [one.id for one in suite.cases] == ["word-1", "word-2", "word-3", "word-4"]
    assert suite.cases[0].checks[0].name == "regex"
    assert lines[-1] == "9 of 12 right answers pass, 12 of 12 wrong answers fail."


async def test_a_writer_can_dispute_an_answer_and_a_case_without_enough_of_them_is_left_out() -> (
    None
):
    unsure = case(1) | {"right": [*case(1)["right"][:2], "the northern lights"]}
    _, suite, lines = await fixing(unsure, fixed(unsure["checks"], "r3", "w1"))
    assert suite.cases[0].right == tuple(unsure["right"][:2])
    assert suite.cases[0].wrong == tuple(unsure["wrong"]), "what fails as it should stays"
    unsure["right"] = ["Aurora!", "light 1", "light 2"]
    teacher, suite, lines = await fixing(unsure, fixed(unsure["checks"], "r2", "r3"))
    assert "word-1" not in suite.by_id
    assert len(teacher.asked) == 2
    assert lines[-1].startswith(
        "Left out 1 case whose checks are too weak or judge an answer wrongly"
    )


async def test_a_case_that_is_not_fixed_at_once_is_left_out() -> None:
    for answer in (fixed(STRICT), fixed([]), "nonsense"):
        _, suite, lines = await fixing(case(1) | {"checks": STRICT}, answer)
        assert "word-1" not in suite.by_id
        assert lines[-1].endswith(": word-1.")


async def test_guesses_are_tried_on_every_case() -> None:
    assert await leaks(reference="Yes, with `-f`", checks=[{"starts_with": "yes"}]) == {
        "yes",
        "format",
    }
    assert await leaks(reference="No", checks=[{"equals": "no"}]) == {"no"}
    json_case = {"reference": '{"a": 5}', "checks": [{"json_schema": {"const": {"a": 5}}}]}
    assert await leaks(**json_case) == set()


async def test_a_writer_names_the_spellings_of_an_option_beside_the_command() -> None:
    texts = ["tern list --nest=reef", "tern ls --nest=reef", "-n --nest"]
    listed = case(1) | {
        "checks": [{"kind": "command_line", "texts": texts, "number": 0, "exact": False}],
        "reference": "tern ls -n reef",
        "right": [*texts[:2], "tern -nreef ls", "`tern list -n reef`", "tern ls -n=reef"],
        "wrong": ["tern ls", "tern ls reef", "tern ls -n", "tern -n ls reef", "tern -n reef"],
    }
    suite = await write_suite(SKILL, says({"cases": [listed, *map(case, (2, 3, 4))]}), count=4)
    assert suite.cases[0].checks[0].config == {"command": texts[:2], "aliases": [["-n", "--nest"]]}


# How long an answer may be.


async def test_code_sets_how_long_an_answer_should_be_and_brevity_is_a_task_that_is_told() -> None:
    told_so = case(2) | {"prompt": "Who is the captain of the ship? At most 60 characters."}
    long = case(4) | {"reference": "cinnamon " * 50}
    suite = await write_suite(SKILL, says({"cases": [case(1), told_so, long]}), count=3)
    limits = [
        (named.check.characters, named.check.brief)
        for one in suite.cases
        for named in one.checks
        if isinstance(named.check, MaxLength)
    ]
    assert limits == [(200, False), (60, True), (len(SKILL.body) - 1, False)]


def test_a_right_answer_that_is_too_long_passes_and_is_reported_as_verbose(
    upskill: Upskill, home: Path
) -> None:
    rule = "Say ahoy to every guest, and let nobody wait at the door for longer than it takes to say it."
    checks = [{"contains": "ahoy"}, {"max_length": 40}]
    cases = [
        {"id": f"greet-{n}", "prompt": f"Greet guest {n}.", "checks": checks} for n in range(1, 4)
    ]
    (home / "greeter" / "evals").mkdir(parents=True)
    skill = f"---\nname: greeter\ndescription: Greets. Use when a guest comes.\n---\n{rule}\n"
    (home / "greeter" / "SKILL.md").write_text(skill, encoding="utf-8")
    (home / "greeter" / "evals" / "suite.json").write_text(
        json.dumps({"cases": cases}), encoding="utf-8"
    )
    rules = [
        {"when": "guest 1.", "system": "ahoy", "answer": "ahoy"},
        {
            "when": "guest 2.",
            "system": "ahoy",
            "answer": f"ahoy, {'my very dear and most welcome ' * 3}guest",
        },
        {"when": "guest 3.", "system": "ahoy", "answer": f"I was told: {rule}"},
        {"answer": "hello"},
    ]
    model = write_script(home / "model.yaml", rules)
    (verdict,) = upskill("eval", "greeter", "-m", model, "--json").json["models"]
    assert (verdict["skill"]["passed"], verdict["skill"]["failed"]) == (2, 1)
    assert verdict["skill"]["causes"] == {"verbose": 1}
    assert verdict["baseline"]["causes"] == {}
    said = " ".join(upskill("eval", "greeter", "-m", model).out.split())
    assert "1 of 3 answers (with skill): right but verbose: longer than the case allows." in said
    assert (
        "✗ max_length: verbose"
        not in upskill("show", "last", "--case", "greet-2", "--arm", "skill").out
    )
    trials = upskill("show", "last", "--json").json["trials"]
    shown = {one["case"]: one for one in trials if one["arm"] == "skill"}
    assert [shown[f"greet-{n}"]["outcome"] for n in (1, 2, 3)] == ["passed", "passed", "failed"]
    assert shown["greet-2"]["findings"][1]["decides"] is False
    assert shown["greet-3"]["findings"][1]["reason"].endswith("and it recites the skill")


# Students that act.


def acting(number: int, **fields: Any) -> dict[str, Any]:
    one = examples(read_prompt("write_acting_cases"))[0]
    return (
        one
        | {"id": f"act-{number}", "prompt": f"{one['prompt']} In house {WORDS[number]}."}
        | fields
    )


async def test_the_acting_examples_pass_the_gate_in_a_sandbox() -> None:
    shown = examples(read_prompt("write_acting_cases"))
    suite = await write_suite(SKILL, says({"cases": [*shown, case(1)]}), count=3, acts=True)
    assert [one.id for one in suite.cases] == ["cache-week", "manifest", "word-1"]
    assert suite.cases[0].files == {"settings.ini": "[cache]\nttl = 1h\nsize = 10\n"}
    assert [named.name for named in suite.cases[1].checks] == ["file_exists", "python"]
    assert Suite.parse(suite.to_dict()).cases == suite.cases


async def test_commands_are_offered_and_taken_only_where_students_act() -> None:
    teacher = says({"cases": [acting(1), *(case(n) for n in range(1, 4))]})
    await write_suite(SKILL, teacher, count=4)
    assert '"command"' not in json.dumps(teacher.asked[0].schema)
    assert "shell script" not in teacher.asked[0].messages[0].text
    assert "'command' is not one of the kinds of checks above" in await told(acting(1))
    teacher = says({"cases": [case(n) for n in range(1, 4)]})
    await write_suite(SKILL, teacher, count=3, acts=True)
    assert '"command"' in json.dumps(teacher.asked[0].schema)
    assert "shell script" in teacher.asked[0].messages[0].text


def test_eval_has_acting_cases_written_for_an_agent_that_acts(upskill: Upskill, home: Path) -> None:
    (home / "rules").mkdir()
    text = f"---\nname: rules\ndescription: Rules. Use when asked.\n---\n{SKILL.body}\n"
    (home / "rules" / "SKILL.md").write_text(text, encoding="utf-8")
    items = [acting(1), *(case(number) for number in range(1, 12))]
    cases = json.dumps({"cases": items})
    rules = [{"system": "work in a folder with a shell", "answer": cases}]
    writer = write_script(
        home / "writer.yaml", [*rules, {"system": ANSWERS, "answer": json.dumps(fresh(items))}]
    )
    student = write_script(home / "student.yaml", [{"answer": "Aurora"}])
    arguments = ("eval", "rules", "-m", student, "--test-writer", writer, "--set", "max_calls=2")
    assert upskill(*arguments).code != 0  # one that only answers gets no such cases
    assert not (home / "rules" / "evals").exists()
    upskill(*arguments, "--agent", "tools")
    suite = Suite.load(home / "rules" / "evals" / "suite.json")
    assert (suite.cases[0].id, suite.cases[0].checks[0].name, len(suite.cases)) == (
        "act-1",
        "command",
        12,
    )


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"reference": "true"}, "one of its right answers fails ('true'"),
        (
            {"checks": [{"kind": "file_exists", "texts": ["settings.ini"], "number": 0}]},
            "an empty answer passes",
        ),
        (
            {
                "checks": [
                    {"kind": "file_exists", "texts": ["settings.ini"], "number": 0},
                    {"kind": "contains", "texts": ["done"], "number": 0},
                ],
                "reference": "echo done",
            },
            "its checks on the work pass when nothing was done",
        ),
    ],
)
async def test_an_acting_case_that_shows_nothing_is_sent_back(
    fields: dict[str, Any], why: str
) -> None:
    assert why in await told(acting(1, **fields), acts=True)


async def test_an_acting_case_is_tried_with_scripts_of_somebody_else() -> None:
    wrongly = acting(1) | {"wrong": ["sed -i 's/1h/7d/' settings.ini", "rm settings.ini"]}
    teacher, suite, _ = await fixing(wrongly, fixed([]), acts=True)
    (question, *_) = user(teacher.answering[0]).partition("The questions:\n")[2].splitlines()
    assert json.loads(question)["files"] == {"settings.ini": "[cache]\nttl = 1h\nsize = 10\n"}
    said = json.loads(user(teacher.asked[1]))
    assert said["problems"] == {"w1": "is wrong, and passes"}
    assert "act-1" not in suite.by_id


# The two sets of answers.


def test_checks_are_hardly_ever_wrong_about_hand_written_answers() -> None:
    """At most 3 % of the right ones fail and 10 % of the wrong ones pass, and the gate takes every case."""
    bench = REPOSITORY / "bench" / "answers.py"
    done = subprocess.run(
        [sys.executable, str(bench)], capture_output=True, encoding="utf-8", check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    counts = {
        kind: int(number)
        for number, kind in re.findall(r"of (\d+) (right|wrong) answers", done.stdout)
    }
    assert min(counts["right"], counts["wrong"]) >= 80


# A suite that a model wrote is no suite of one's own.


def test_a_suite_that_eval_had_written_can_be_written_anew_and_added_to(
    upskill: Upskill, home: Path
) -> None:
    folder = home / "house-words"
    folder.mkdir()
    text = (
        "---\nname: house-words\ndescription: States words.\n---\n" + skill_of(*range(1, 21)).body
    )
    (folder / "SKILL.md").write_text(text, encoding="utf-8")
    writer = write_script(home / "writer.yaml", [{"answer": cases_and_answers(range(1, 13))}])
    student = write_script(home / "student.yaml", [{"answer": "Aurora"}])
    assert upskill("eval", folder, "-m", student, "--test-writer", writer).code == 0
    kept = folder / "evals" / "suite.json"
    assert len(Suite.load(kept).held_out) in (4, 5, 6)
    more = write_script(home / "more.yaml", [{"answer": cases_and_answers(range(13, 21))}])
    before = {one.id: one.held_out for one in Suite.load(kept).cases}
    done = upskill("tests", folder, "-m", more, "--add", 8)
    assert done.code == 0, done.err
    grown = Suite.load(kept)
    assert (len(grown.cases), len(grown.held_out)) == (20, 10)
    assert {one.id: one.held_out for one in grown.cases if one.id in before} == before
    assert not (folder / "evals" / "evals.json").exists()
    assert upskill("tests", folder, "-m", more, "--cases", 8).code == 0
    assert len(Suite.load(kept).cases) == 8
    own = json.loads(kept.read_text(encoding="utf-8"))
    kept.write_text(json.dumps({"cases": own["cases"]}), encoding="utf-8")
    assert "is your own suite" in upskill("tests", folder, "-m", more).err


OWN = """\
# Words that matter to me.
cases:
  - id: mine
    prompt: What is my word?
    checks:
      - contains: mine  # whatever the case
# The end.
"""


def test_cases_are_added_to_ones_own_suite_and_its_text_stays(upskill: Upskill, home: Path) -> None:
    folder = home / "house-words"
    skill_of(*range(1, 21)).with_file("evals/suite.yaml", OWN.encode()).save(folder)
    more = write_script(home / "more.yaml", [{"answer": cases_and_answers(range(1, 5))}])
    nobody = upskill("tests", folder, "--add", 4)
    assert (nobody.code, "no test writer was chosen" in nobody.err) == (2, True)
    done = upskill("tests", folder, "-m", more, "--add", 4, "--json")
    assert (done.code, done.json["cases"]) == (0, 5), done.err
    text = (folder / "evals" / "suite.yaml").read_text(encoding="utf-8")
    before, end = OWN.split("# The end.\n")
    assert text.startswith(before)
    assert text.endswith("# The end.\n" + end)
    assert Suite.load(folder / "evals" / "suite.yaml").cases[0].id == "mine"
    assert {path.name for path in (folder / "evals").iterdir()} == {"suite.yaml"}
    again = upskill("tests", folder, "-m", more, "--add", 2)
    assert "ask nothing, or what another case asks" in again.err


def test_hard_cases_are_those_that_a_student_fails_without_the_skill(
    upskill: Upskill, home: Path
) -> None:
    """Of two batches, it fails every other one. A quarter is kept unasked, and what was asked stays fresh."""
    folder = home / "house-words"
    skill = skill_of(*range(1, 21))
    skill.with_file("evals/suite.yaml", OWN.encode()).save(folder)
    more = write_script(home / "more.yaml", [{"answer": cases_and_answers(range(1, 17))}])
    knows = [{"when": prompt(number), "answer": WORDS[number - 1]} for number in range(1, 21, 2)]
    student = write_script(home / "student.yaml", [*knows, {"answer": "No idea"}])
    done = upskill("tests", folder, "-m", more, "--add", 8, "--hard", student)
    assert done.code == 0, done.err
    assert f"{student}: 16 written, 6 that it fails and 2 unasked are kept." in done.err
    added = Suite.load(folder / "evals" / "suite.yaml").cases[1:]
    assert [one.id for one in added] == [f"word-{n}" for n in (1, 2, 4, 6, 8, 10, 12, 14)]
    assert [one.metadata.get("failed_by") for one in added] == [None, None, *[student] * 6]
    assert upskill("runs", "--json").json == []
    verdict = upskill("eval", folder, "-m", student, "--json").json["models"][0]
    assert verdict["other"]["cases"] == 9, "all are fresh"
    said = f"6 of 9 cases chosen because {student} failed them without the skill."
    assert said in verdict["caveats"]
    assert "--hard needs --add" in upskill("tests", folder, "--hard", student).err


def test_added_cases_that_checks_of_the_whole_suite_misjudge_are_left_out(
    upskill: Upskill, home: Path
) -> None:
    folder = home / "house-words"
    shared = f"{OWN}checks:\n  - not_contains: {WORDS[0]}\n"
    skill_of(*range(1, 21)).with_file("evals/suite.yaml", shared.encode()).save(folder)
    more = write_script(home / "more.yaml", [{"answer": cases_and_answers(range(1, 5))}])
    done = upskill("tests", folder, "-m", more, "--add", 4)
    assert "Left out 1 case that the suite's checks misjudge." in done.err
    assert len(Suite.load(folder / "evals" / "suite.yaml").cases) == 4


def test_a_limit_of_the_suite_stays_with_the_cases_it_was_for(upskill: Upskill, home: Path) -> None:
    folder = home / "house-words"
    (folder / "evals").mkdir(parents=True)
    (folder / "SKILL.md").write_text(
        "---\nname: house-words\ndescription: d\n---\nBody.\n", encoding="utf-8"
    )
    old = {
        "skill_name": "house-words",
        "max_output_tokens": 64,
        "evals": [{"id": "a", "prompt": "p", "checks": [{"equals": "b"}]}],
    }
    (folder / "evals" / "evals.json").write_text(json.dumps(old), encoding="utf-8")
    writer = write_script(home / "writer.yaml", [{"answer": cases_and_answers(range(1, 4))}])
    assert upskill("tests", folder, "-m", writer, "--add", 3).code == 0
    suite = Suite.load(folder / "evals" / "evals.json")
    assert suite.max_output_tokens == 64
    assert [one.max_output_tokens for one in suite.cases] == [None, *[DEFAULT_OUTPUT_TOKENS] * 3]
