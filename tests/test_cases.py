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
from teaching import WORDS, case, prompt
from test_create import says, skill_of, user
from upskill import Skill, Suite
from upskill.authoring.material.material import gather
from upskill.authoring.writing.prompts import read_prompt
from upskill.authoring.writing.suite_writer import write_suite
from upskill.checks.answer import MaxLength
from upskill.suites import describe_authors
from upskill.suites.quality import probe_case

SKILL = Skill.new(
    "house-rules", "How things are done here.", "\n".join(f"- Rule {n}: do thing {n}." for n in range(40))
)


def examples(prompt: str) -> list[dict[str, Any]]:
    """The worked examples in a prompt."""
    return [
        one for block in re.findall(r"^```json\n(.*?)^```$", prompt, re.S | re.M) for one in json.loads(block)["cases"]
    ]


async def told(item: dict[str, Any], *, acts: bool = False) -> str:
    """What a writer of this one case is told about it, in the request that follows."""
    teacher = says({"cases": [item]}, {"cases": [case(n) for n in range(2, 8)]})
    await write_suite(SKILL, teacher, count=4, acts=acts)
    return user(teacher.asked[1])


async def leaks(**fields: Any) -> set[str]:
    (one,) = Suite.parse([{"id": "one", "prompt": "What is asked for here?", **fields}]).cases
    return {weak.probe for weak in await probe_case(one, SKILL)}


async def test_the_prompts_own_examples_pass_the_gate() -> None:
    shown = examples(read_prompt("write_suite", count=4))
    suite = await write_suite(SKILL, says({"cases": shown}), count=4)
    assert [one.id for one in suite.cases] == [one["id"] for one in shown]
    assert {named.name for one in suite.cases for named in one.checks} >= {"contains", "equals", "json_schema", "regex"}


async def test_a_case_that_allows_a_long_answer_asks_for_no_more_than_it_allows() -> None:
    long = case(1) | {"words": 90}
    told_so = case(2) | {"words": 90, "prompt": "What is the captain of the ship? Take at most 90 words."}
    wordy = case(3) | {"words": 2, "right": [f"It is {'very ' * 8}{WORDS[2]}.", WORDS[2]]}
    suite = await write_suite(SKILL, says({"cases": [long, told_so, wordy, case(4)]}), count=4)
    assert [one.max_words for one in suite.cases] == [90, 90, 11, None]
    assert suite.cases[0].prompt == f"{case(1)['prompt']} Answer in at most 90 words."
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
    material = gather("know the ship", examples=[f"{prompt(n)} -> {WORDS[n - 1]}" for n in (1, 2, 3)])
    suite = await write_suite(material, says({"cases": cases}), count=3, author="scripted:teacher")
    assert [one.metadata.get("look_up") for one in suite.cases] == [True, None, None]
    said = describe_authors(one.metadata for one in suite.cases)
    assert said == (
        "Written: 3 cases by scripted:teacher from the task and its material, without the skill."
        " Look-ups (they only ask for words from the source): 1 of 3."
    )


async def test_a_case_comes_with_answers_that_its_checks_are_tried_on() -> None:
    for name in ("right", "wrong"):
        few = case(1) | {name: case(1)[name][:1]}
        assert f"case 'word-1': 1 different {name} answer, at least 2 are needed" in await told(few)
        twice = case(1) | {name: case(1)[name][:1] * 3}
        assert f"1 different {name} answer," in await told(twice)
    kept = await write_suite(skill_of(1), says({"cases": [case(n) for n in range(1, 4)]}), count=3)
    assert kept.cases[0].right == ("It is Aurora.", "**Aurora**")
    assert Suite.parse([kept.cases[0].to_dict()]).cases[0] == kept.cases[0]


async def test_a_case_that_fails_a_right_answer_or_passes_a_wrong_one_is_sent_back_with_it() -> None:
    said = await told(case(1) | {"right": ["It is Aurora.", "the northern lights"]})
    assert "case 'word-1': one of its right answers fails ('the northern lights': the answer does not match" in said
    assert '"reference": "Aurora"' in said  # what was written goes with it
    assert case(1)["prompt"] not in said  # but for the prompt, which may be held out in the end
    said = await told(case(1) | {"wrong": ["Lisbon", "Aurora or Halcyon"]})
    assert "case 'word-1': one of its wrong answers passes ('Aurora or Halcyon')" in said


async def test_a_case_that_was_fixed_is_kept() -> None:
    bad = case(1) | {"right": ["Aurora.", "the northern lights"]}
    teacher = says({"cases": [bad, case(2)]}, {"cases": [case(1), case(4)]})
    suite = await write_suite(SKILL, teacher, count=3)
    assert [one.id for one in suite.cases] == ["word-2", "word-1", "word-4"]


async def test_refusals_guesses_and_denials_are_tried_on_every_case() -> None:
    plain = {"reference": "Aurora", "checks": [{"contains": "Aurora"}, {"max_length": 30}]}
    assert await leaks(**plain) == {"refusal", "denied"}
    regex = {"reference": "9.0", "checks": [{"regex": r"\b9\.0\b"}]}
    assert await leaks(**regex) == {"refusal", "denied"}
    fixed = {"reference": "Aurora", "checks": [{"contains": {"text": "Aurora", "asserted": True}}, {"max_length": 30}]}
    assert await leaks(**fixed) == set()
    assert await leaks(reference="Yes, with `-f`", checks=[{"starts_with": "yes"}]) == {"yes", "format"}
    assert await leaks(reference="No", checks=[{"equals": "no"}]) == {"no"}
    # What denies something itself, or is taken out of the answer, is not denied once more.
    assert await leaks(reference="Never on Fridays", checks=[{"contains": "never on fridays"}]) == {"refusal"}
    json_case = {"reference": '{"a": 5}', "checks": [{"json_schema": {"const": {"a": 5}}}]}
    assert await leaks(**json_case) == set()


# How long an answer may be.


async def test_code_sets_how_long_an_answer_should_be_and_brevity_is_a_task_that_is_told() -> None:
    told_so = case(2) | {"prompt": "Who is the captain of the ship? At most 60 characters."}
    long = case(4) | {"reference": "cinnamon " * 40, "right": ["cinnamon " * 50, "cinnamon"]}
    suite = await write_suite(SKILL, says({"cases": [case(1), told_so, long]}), count=3)
    limits = [
        (named.check.characters, named.check.brief)
        for one in suite.cases
        for named in one.checks
        if isinstance(named.check, MaxLength)
    ]
    assert limits == [(200, False), (60, True), (len(SKILL.body) - 1, False)]


def test_a_right_answer_that_is_too_long_passes_and_is_reported_as_verbose(upskill: Upskill, home: Path) -> None:
    rule = "Say ahoy to every guest, and let nobody wait at the door for longer than it takes to say it."
    checks = [{"contains": "ahoy"}, {"max_length": 40}]
    cases = [{"id": f"greet-{n}", "prompt": f"Greet guest {n}.", "checks": checks} for n in range(1, 4)]
    (home / "greeter" / "evals").mkdir(parents=True)
    skill = f"---\nname: greeter\ndescription: Greets. Use when a guest comes.\n---\n{rule}\n"
    (home / "greeter" / "SKILL.md").write_text(skill, encoding="utf-8")
    (home / "greeter" / "evals" / "suite.json").write_text(json.dumps({"cases": cases}), encoding="utf-8")
    rules = [
        {"when": "guest 1.", "system": "ahoy", "answer": "ahoy"},
        {"when": "guest 2.", "system": "ahoy", "answer": f"ahoy, {'my very dear and most welcome ' * 3}guest"},
        {"when": "guest 3.", "system": "ahoy", "answer": f"I was told: {rule}"},
        {"answer": "hello"},
    ]
    model = write_script(home / "model.yaml", rules)
    (verdict,) = upskill("eval", "greeter", "-m", model, "--json").json["models"]
    assert (verdict["skill"]["passed"], verdict["skill"]["failed"]) == (2, 1)
    assert verdict["skill"]["causes"] == {"verbose": 1}
    assert verdict["baseline"]["causes"] == {}
    said = " ".join(upskill("eval", "greeter", "-m", model).out.split())
    assert "1 of 3 answers with the skill was right but verbose: longer than the case wants." in said
    trials = upskill("show", "last", "--json").json["trials"]
    shown = {one["case"]: one for one in trials if one["arm"] == "skill"}
    assert [shown[f"greet-{n}"]["outcome"] for n in (1, 2, 3)] == ["passed", "passed", "failed"]
    assert shown["greet-2"]["findings"][1]["decides"] is False
    assert shown["greet-3"]["findings"][1]["reason"].endswith("and it recites the skill")


# Students that act.


def acting(number: int, **fields: Any) -> dict[str, Any]:
    one = examples(read_prompt("write_acting_cases"))[0]
    return one | {"id": f"act-{number}", "prompt": f"{one['prompt']} In house {WORDS[number]}."} | fields


async def test_the_acting_examples_pass_the_gate_in_a_sandbox() -> None:
    shown = examples(read_prompt("write_acting_cases"))
    suite = await write_suite(SKILL, says({"cases": [*shown, case(1)]}), count=3, acts=True)
    assert [one.id for one in suite.cases] == ["cache-week", "manifest", "word-1"]
    assert suite.cases[0].files == {"settings.ini": "[cache]\nttl = 1h\nsize = 10\n"}
    assert [named.name for named in suite.cases[1].checks] == ["file_exists", "python"]
    assert Suite.parse(suite.to_dict()).cases == suite.cases


async def test_commands_are_offered_and_taken_only_where_students_act() -> None:
    teacher = says({"cases": [acting(1), *(case(n) for n in range(1, 4))]})
    await write_suite(SKILL, teacher, count=3)
    assert "command" not in json.dumps(teacher.asked[0].schema)
    assert "shell scripts" not in teacher.asked[0].messages[0].text
    assert "'command' is not a kind of check that was offered" in await told(acting(1))
    teacher = says({"cases": [case(n) for n in range(1, 4)]})
    await write_suite(SKILL, teacher, count=3, acts=True)
    assert "command" in json.dumps(teacher.asked[0].schema)
    assert "shell scripts" in teacher.asked[0].messages[0].text


def test_eval_has_acting_cases_written_for_an_agent_that_acts(upskill: Upskill, home: Path) -> None:
    (home / "rules").mkdir()
    text = f"---\nname: rules\ndescription: Rules. Use when asked.\n---\n{SKILL.body}\n"
    (home / "rules" / "SKILL.md").write_text(text, encoding="utf-8")
    cases = json.dumps({"cases": [acting(1), *(case(number) for number in range(1, 12))]})
    writer = write_script(home / "writer.yaml", [{"system": "work in a folder with a shell", "answer": cases}])
    student = write_script(home / "student.yaml", [{"answer": "Aurora"}])
    arguments = ("eval", "rules", "-m", student, "--test-writer", writer, "--set", "max_calls=1")
    assert upskill(*arguments).code != 0  # one that only answers gets no such cases
    assert not (home / "rules" / "evals").exists()
    upskill(*arguments, "--agent", "tools")
    suite = Suite.load(home / "rules" / "evals" / "suite.json")
    assert (suite.cases[0].id, suite.cases[0].checks[0].name, len(suite.cases)) == ("act-1", "command", 12)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"right": ["true", "sed -i 's/^ttl.*/ttl = 7d/' settings.ini"]}, "one of its right answers fails ('true'"),
        ({"wrong": ["sed -i 's/1h/7d/' settings.ini", "rm settings.ini"]}, "one of its wrong answers passes"),
        ({"checks": [{"kind": "file_exists", "texts": ["settings.ini"], "number": 0}]}, "an empty answer passes"),
        (
            {
                "checks": [
                    {"kind": "file_exists", "texts": ["settings.ini"], "number": 0},
                    {"kind": "contains", "texts": ["done"], "number": 0},
                ],
                "reference": "done",
                "right": ["echo done", "echo It is done."],
                "wrong": ["echo no", "true"],
            },
            "its checks of what was done hold where nothing was",
        ),
    ],
)
async def test_an_acting_case_that_shows_nothing_is_sent_back(fields: dict[str, Any], why: str) -> None:
    assert why in await told(acting(1, **fields), acts=True)


# The two sets of answers.


def test_checks_are_hardly_ever_wrong_about_hand_written_answers() -> None:
    """At most 3 % of the right ones fail and 10 % of the wrong ones pass, and the gate takes every case."""
    bench = REPOSITORY / "bench" / "answers.py"
    done = subprocess.run([sys.executable, str(bench)], capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    counts = {kind: int(number) for number, kind in re.findall(r"of (\d+) (right|wrong) answers", done.stdout)}
    assert min(counts["right"], counts["wrong"]) >= 80


# A suite that a model wrote is no suite of one's own.


def test_a_suite_that_eval_had_written_can_be_written_anew_and_added_to(upskill: Upskill, home: Path) -> None:
    folder = home / "house-words"
    folder.mkdir()
    text = "---\nname: house-words\ndescription: States words.\n---\n" + skill_of(*range(1, 21)).body
    (folder / "SKILL.md").write_text(text, encoding="utf-8")
    writer = write_script(home / "writer.yaml", [{"answer": json.dumps({"cases": [case(n) for n in range(1, 13)]})}])
    student = write_script(home / "student.yaml", [{"answer": "Aurora"}])
    assert upskill("eval", folder, "-m", student, "--test-writer", writer).code == 0
    kept = folder / "evals" / "suite.json"
    assert len(Suite.load(kept).held_out) in (4, 5, 6)
    more = write_script(home / "more.yaml", [{"answer": json.dumps({"cases": [case(n) for n in range(13, 21)]})}])
    before = {one.id: one.held_out for one in Suite.load(kept).cases}
    done = upskill("tests", folder, "-m", more, "--add", 8)
    assert done.code == 0, done.err
    grown = Suite.load(kept)
    assert (len(grown.cases), len(grown.held_out)) == (20, 8)
    assert {one.id: one.held_out for one in grown.cases if one.id in before} == before
    assert not (folder / "evals" / "evals.json").exists()
    assert upskill("tests", folder, "-m", more, "--cases", 8).code == 0
    assert len(Suite.load(kept).cases) == 8
    own = json.loads(kept.read_text(encoding="utf-8"))
    kept.write_text(json.dumps({"cases": own["cases"]}), encoding="utf-8")
    assert "is a suite of your own" in upskill("tests", folder, "-m", more).err


def test_a_limit_of_the_suite_stays_with_the_cases_it_was_for(upskill: Upskill, home: Path) -> None:
    folder = home / "house-words"
    (folder / "evals").mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: house-words\ndescription: d\n---\nBody.\n", encoding="utf-8")
    old = {
        "skill_name": "house-words",
        "max_output_tokens": 64,
        "evals": [{"id": "a", "prompt": "p", "checks": [{"equals": "b"}]}],
    }
    (folder / "evals" / "evals.json").write_text(json.dumps(old), encoding="utf-8")
    writer = write_script(home / "writer.yaml", [{"answer": json.dumps({"cases": [case(n) for n in range(1, 4)]})}])
    assert upskill("tests", folder, "-m", writer, "--add", 3).code == 0
    suite = Suite.load(folder / "evals" / "evals.json")
    assert suite.max_output_tokens is None
    assert [one.max_output_tokens for one in suite.cases] == [64, None, None, None]
