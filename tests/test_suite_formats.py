"""Test cases of other tools are read as they are, and what cannot be carried over is told by name."""

from __future__ import annotations

import asyncio
import json
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from conftest import REPOSITORY, Upskill
from upskill import Skill, Suite, UsageError
from upskill.checks import Evidence
from upskill.suites.formats import FORMATS, Notes, recognize
from upskill.suites.quality import CaseProbe, SandboxOpener, probe_suite
from upskill.suites.shapes import Script
from upskill.traces import Step, Trace


def written(path: Path, said: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = (
        said
        if isinstance(said, str)
        else json.dumps(said)
        if path.suffix == ".json"
        else yaml.safe_dump(said)
    )
    path.write_text(text, encoding="utf-8")
    return path


def checks_of(suite: Suite) -> list[list[tuple[str, Any]]]:
    return [[(named.name, named.config) for named in case.checks] for case in suite.cases]


def notes_of(suite: Suite) -> Notes:
    assert suite.notes is not None
    return suite.notes


def passes(suite: Suite, case: int, answer: str) -> bool:
    evidence = Evidence(Trace((Step("assistant", answer),)), suite.cases[case].prompt)
    return all(asyncio.run(named.check.run(evidence)).passed for named in suite.cases[case].checks)


# skill-creator.

EVALS = {
    "skill_name": "greeter",
    "owner": "somebody",
    "evals": [
        {
            "id": 1,
            "prompt": "Greet Ada.",
            "expected_output": "A greeting.",
            "files": [],
            "assertions": [
                {"id": "1.1", "text": "It greets Ada"},
                {"name": "short", "description": "It is short"},
                "It is polite",
                {"type": "contains_any", "values": ["Hello", "Hi"]},
                {"type": "regex", "value": "A[d]a"},
            ],
            "trap": "Says goodbye.",
        },
        {
            "id": 2,
            "task": "Greet Bob.",
            "expected_behavior": ["Greets Bob"],
            "trap": "Says nothing.",
            "category": "x",
        },
        {
            "id": 3,
            "prompt": "Greet all.",
            "expectations": [{"type": "script", "command": ["x"]}, "Greets everyone"],
        },
    ],
}


def test_evals_json_takes_objects_for_assertions_and_keeps_other_fields_with_one_note(
    tmp_path: Path,
) -> None:
    suite = Suite.load(written(tmp_path / "evals.json", EVALS))
    assert checks_of(suite) == [
        [
            ("judge", "It greets Ada"),
            ("judge", "It is short"),
            ("judge", "It is polite"),
            ("contains_any", ["Hello", "Hi"]),
            ("regex", "A[d]a"),
        ],
        [("judge", "Greets Bob")],
        [("judge", "Greets everyone")],
    ]
    assert [dict(case.metadata) for case in suite.cases] == [
        {"trap": "Says goodbye."},
        {"trap": "Says nothing.", "category": "x"},
        {},
    ]
    assert [warning.removeprefix(f"{tmp_path}/evals.json: ") for warning in suite.warnings] == [
        "kept as metadata, not used: trap (2), owner, category",
        "left out: script: upskill has no check of this type (case 3)",
    ]
    assert Suite.parse(suite.to_dict()).cases == suite.cases


def test_files_are_named_from_the_skills_folder_wherever_the_command_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path / "evals" / "files" / "a.txt", "A")
    case = {"prompt": "x", "files": ["evals/files/a.txt"], "expectations": ["It is right"]}
    suite = written(tmp_path / "evals" / "evals.json", {"evals": [case]})
    monkeypatch.chdir(suite.parent)
    assert dict(Suite.load("evals.json").cases[0].files) == {"evals/files/a.txt": "A"}


def test_a_case_that_asks_for_a_file_that_is_no_text_is_left_out_and_the_others_stay(
    tmp_path: Path,
) -> None:
    (tmp_path / "photo.png").write_bytes(b"\x89PNG\xff")
    written(tmp_path / "evals" / "data" / "b" / "c.txt", "text of c")
    cases = [
        {"prompt": "See it.", "files": ["photo.png"], "assertions": ["It is seen"]},
        {"prompt": "Read it.", "files": ["evals/data"], "assertions": ["It is read"]},
        {"prompt": "Follow it.", "files": ["SKILL.md"], "assertions": ["It is followed"]},
    ]
    suite = Suite.load(written(tmp_path / "evals" / "evals.json", {"evals": cases}))
    assert [case.files for case in suite.cases] == [{"evals/data/b/c.txt": "text of c"}, {}]
    assert "case 1: the file 'photo.png' is not UTF-8 text" in suite.warnings[1]
    assert "SKILL.md: both arms get a case's files" in suite.warnings[0]
    (tmp_path / "my-skill").mkdir()
    written(tmp_path / "my-skill" / "SKILL.md", "---\nname: my-skill\ndescription: d\n---\nBody.\n")
    written(tmp_path / "my-skill" / "evals" / "data" / "c.txt", "text of c")
    written(
        tmp_path / "my-skill" / "evals" / "evals.json", {"evals": [cases[1] | {"files": ["data/"]}]}
    )
    kept = Suite.of(Skill.load(tmp_path / "my-skill"))
    assert kept is not None
    assert dict(kept.cases[0].files) == {"evals/data/c.txt": "text of c"}


def test_queries_that_say_when_a_skill_fires_are_no_suite_and_the_message_says_what_to_use() -> (
    None
):
    with pytest.raises(UsageError, match="`upskill trigger` measures that"):
        Suite.parse([{"prompt": "Hi", "should_trigger": True}])


# Verifiers and scenarios.


def test_verifiers_are_checks_and_scenarios_bring_the_criteria_of_the_judge(tmp_path: Path) -> None:
    smoke = {
        "cases": [
            {"input": "Say it.", "verifiers": [{"type": "contains", "values": ["tern push"]}]}
        ]
    }
    written(tmp_path / "evals" / "tern" / "smoke.json", smoke)
    scenario = {"id": "tern", "skills": ["skills/tern"], "tests": "evals/tern/smoke.json"}
    judge = {"enabled": True, "criteria": ["It is a command."]}
    said = {
        "scenarios": [scenario | {"judge": judge}, scenario | {"id": "gone", "tests": "none.json"}]
    }
    assert checks_of(Suite.load(tmp_path / "evals" / "tern" / "smoke.json")) == [
        [("contains", ["tern push"])]
    ]
    suite = Suite.load(written(tmp_path / ".upskill" / "evals.json", said))
    assert checks_of(suite) == [[("contains", ["tern push"]), ("judge", "It is a command.")]]
    assert (suite.cases[0].id, suite.cases[0].tags) == ("tern", ("tern",))
    assert "file 'none.json' not found" in suite.warnings[0]
    with pytest.raises(
        UsageError, match="verifier of type 'pytest': upskill has no check of this type"
    ):
        Suite.parse({"cases": [{"input": "x", "verifiers": [{"type": "pytest", "values": ["y"]}]}]})


def test_what_an_assertion_says_beside_its_text_is_honoured_or_the_assertion_is_left_out_by_name() -> (
    None
):
    said: list[dict[str, Any]] = [
        {"type": "contains", "value": "password", "negate": True},
        {"type": "contains", "value": "Foo", "case_sensitive": True, "weight": 2},
        {"type": "regex", "pattern": "foo", "flags": "gi"},
        {"type": "regex", "pattern": "bar", "ignore_case": True, "not": False},
        {"type": "not-contains", "values": ["a", "b"], "not": True},
        {"type": "contains", "values": ["c", "d"], "negate": True},
        {"type": "contains", "value": "x", "file": "out.txt"},
        {"type": "equals", "value": "b", "not": True},
        {"text": "It is rude", "negate": True},
    ]
    suite = Suite.parse({"evals": [{"prompt": "x", "assertions": said}]}, "s")
    assert checks_of(suite) == [
        [
            ("not_contains", "password"),
            ("contains", {"text": "Foo", "ignore_case": False}),
            ("regex", "(?i)foo"),
            ("regex", {"pattern": "bar", "ignore_case": True}),
            ("contains_any", ["a", "b"]),
        ]
    ]
    assert list(notes_of(suite).left_out()) == [
        "weight in an assertion: every check must pass (case 1)",
        "contains: upskill has no check for the opposite (case 1)",
        "contains: upskill has no check with the field 'file' (case 1)",
        "equals: upskill has no check for the opposite (case 1)",
        "assertion: a judge does not see 'negate'; say in words what must not be there (case 1)",
    ]
    with pytest.raises(
        UsageError, match="none of the assertions can be imported: contains: upskill has no check"
    ):
        Suite.parse({"evals": [{"prompt": "x", "assertions": [said[6]]}]}, "s")
    verified = Suite.parse(
        [{"input": "x", "verifiers": [{"type": "contains", "values": ["y"], "negate": True}]}]
    )
    assert checks_of(verified) == [[("not_contains", ["y"])]]
    with pytest.raises(
        UsageError, match="verifier of type 'contains': upskill has no check with the field 'file'"
    ):
        Suite.parse([{"input": "x", "verifiers": [said[6]]}])


def test_statements_that_only_name_a_text_need_no_judge() -> None:
    said: list[Any] = [
        'The output contains the text "Total: 4"',
        {"text": "Mentions `--dry-run`", "type": "string_match"},
        "Does not mention 'sorry'.",
        "Includes 'last chance' in the final mail",
        "The answer isn't rude",
    ]
    suite = Suite.parse(
        {
            "evals": [
                {
                    "prompt": "x",
                    "expectations": said,
                    "must_not_include": ["TODO"],
                    "must_have": ["a|b"],
                }
            ]
        },
        "s",
    )
    assert checks_of(suite) == [
        [
            ("contains", "Total: 4"),
            ("contains", "--dry-run"),
            ("not_contains", "sorry"),
            ("judge", "Includes 'last chance' in the final mail"),
            ("judge", "The answer isn't rude"),
            ("not_contains", ["TODO"]),
        ]
    ]
    told = "statements that quote text: checked with `contains`, without a judge (3 times: case 1)"
    assert list(notes_of(suite).changed()) == [told]
    unclear = "must_have: ambiguous: write `contains` for text or `regex` for patterns (case 1)"
    assert list(notes_of(suite).left_out()) == [unclear]


def test_scenarios_with_assertions_a_rubric_and_a_setup_are_cases(tmp_path: Path) -> None:
    written(tmp_path / "fixtures" / "app.cs", "class A {}")
    scenarios: list[dict[str, Any]] = [
        {
            "name": "fix it",
            "prompt": "Fix app.cs",
            "setup": {"files": [{"path": "app.cs", "source": "fixtures/app.cs"}]},
            "assertions": [
                {"type": "output_contains", "value": "CS0246"},
                {"type": "output_not_matches", "pattern": "sorry|cannot"},
                {"type": "exit_success"},
                {"type": "file_not_contains", "path": "app.cs", "value": "#nullable (off)"},
                {"type": "file_not_exists", "path": "my app.bak"},
                {"type": "file_not_exists", "path": "*.bak"},
            ],
            "rubric": ["Names the root cause"],
            "timeout": 120,
        },
        {
            "name": "build it",
            "prompt": "Why?",
            "setup": {"commands": ["dotnet build"]},
            "rubric": ["Says why"],
        },
    ]
    suite = Suite.load(written(tmp_path / "eval.yaml", {"scenarios": scenarios}))
    assert [(case.id, dict(case.files)) for case in suite.cases] == [
        ("fix it", {"app.cs": "class A {}"})
    ]
    assert checks_of(suite) == [
        [
            ("contains", "CS0246"),
            ("not_regex", {"pattern": "sorry|cannot", "ignore_case": True, "multiline": False}),
            ("min_length", 1),
            (
                "file_matches",
                {"path": "app.cs", "pattern": r"\A(?![\s\S]*?(?:\#nullable\ \(off\)))"},
            ),
            ("command", "test ! -e 'my app.bak'"),
            ("judge", "Names the root cause"),
        ]
    ]
    told = "\n".join(notes_of(suite).left_out())
    assert (
        "file_not_exists: upskill looks at files by name, not by pattern (case 1 ('fix it'))"
        in told
    )
    assert "case 2 ('build it'): the setup has 'commands', but a case can only have files" in told


# promptfoo.

PROMPTFOO = """
prompts: ["Answer in {{ language }}: {{question}}", file://other.txt]
providers: [openai:gpt-4o]
assertionTemplates: {polite: {type: llm-rubric, value: It is polite}}
defaultTest:
  assert: [{$ref: '#/assertionTemplates/polite'}]
tests:
  - description: all kinds
    vars: {language: [English, No], question: "What is 3.10?"}
    assert:
      - {type: contains, value: '{{language}}'}
      - {type: icontains, value: hi}
      - {type: not-icontains, value: bye}
      - {type: contains-all, value: 'a, B'}
      - {type: icontains-any, value: [x, y]}
      - {type: not-regex, value: '/z+/i'}
      - {type: equals, value: 42}
      - {type: is-json}
      - {type: javascript, value: output.length < 9}
      - {type: cost, threshold: 0.1}
      - {type: similar, value: x, weight: 2}
  - vars: {language: French, question: Only a program knows}
    assert: [{type: python, value: 'True'}]
  - vars: {language: Dutch, question: '{% for x in missing %}y{% endfor %}'}
    assert: [{type: contains, value: x}]
"""


def test_a_configuration_of_promptfoo_is_read_and_programs_are_refused_by_name(
    tmp_path: Path,
) -> None:
    suite = Suite.load(written(tmp_path / "config.yaml", PROMPTFOO))
    assert [case.prompt for case in suite.cases] == [
        "Answer in English: What is 3.10?",
        "Answer in No: What is 3.10?",
        "Answer in French: Only a program knows",
    ]
    assert [case.id for case in suite.cases[:2]] == ["all kinds", "all kinds-2"]
    assert checks_of(suite)[1] == [
        ("contains", {"text": "No", "ignore_case": False}),
        ("contains", "hi"),
        ("not_contains", "bye"),
        ("contains", {"text": ["a", "B"], "ignore_case": False}),
        ("contains_any", ["x", "y"]),
        ("not_regex", {"pattern": "(?i)z+", "multiline": False}),
        ("equals", {"text": "42", "exact": True}),
        (
            "json_schema",
            {"schema": {"type": ["object", "array", "string", "number", "boolean", "null"]}},
        ),
        ("judge", "It is polite"),
    ]
    assert checks_of(suite)[2] == [("judge", "It is polite")]
    told = "\n".join(notes_of(suite).left_out())
    for words in (
        "javascript: runs its own",
        "python: runs its own",
        "cost: reported",
        "similar: upskill has no",
    ):
        assert words in told
    assert "the template cannot be rendered: 'missing' is undefined" in told
    assert "prompt: file 'other.txt' not found" in told


def test_an_assertion_about_a_transformed_answer_is_left_out_by_name() -> None:
    equals = {"type": "equals", "value": "Paris"}
    config: dict[str, Any] = {
        "prompts": ["{{q}}"],
        "providers": [{"id": "x", "transform": "output.text"}],
        "tests": [
            {
                "vars": {"q": "a"},
                "assert": [equals | {"transform": "JSON.parse(output).city"}, equals],
            },
            {"vars": {"q": "b"}, "options": {"transform": "file://t.js"}, "assert": [equals]},
            {
                "vars": {"q": "c"},
                "assert": [equals, {"type": "contains", "value": "a", "weight": 0}],
            },
            {
                "vars": {"q": "d"},
                "assert": [{"type": "assert-set", "threshold": 0.5, "assert": [equals]}],
            },
            {
                "vars": {"q": "e"},
                "assert": [{"type": "assert-set", "assert": [equals]}],
                "threshold": 0.5,
            },
            {"vars": {"q": "f"}, "options": {"transformVars": "vars"}, "assert": [equals]},
        ],
    }
    suite = Suite.parse(config)
    assert [case.prompt for case in suite.cases] == ["a", "c", "e"]
    assert all(
        checks == [("equals", {"text": "Paris", "exact": True})] for checks in checks_of(suite)
    )
    assert list(notes_of(suite).left_out())[1:6] == [
        "transform in a provider: checks read the unchanged answer",
        "equals: checks the output of `JSON.parse(output).city`, not the answer (case 1)",
        "equals: checks the output of `file://t.js`, not the answer (case 2)",
        "contains: its weight is 0, so it has no effect (case 3)",
        "assert-set: only some of its assertions must pass, but in upskill every check must (case 4)",
    ]
    assert "a program changes the variables (transformVars)" in "\n".join(
        notes_of(suite).left_out()
    )
    assert list(notes_of(suite).changed()) == [
        "threshold in a case: every check must pass (case 5)"
    ]


def test_templates_with_loops_conditions_and_filters_are_filled_in() -> None:
    loop = "{% for item in items %}{{ loop.index }}. {{ item | upper }}\n{% endfor %}"
    prompt = loop + "{% if hint %}{{ hint }}{% endif %}"
    chat = '[{% for item in items %}{"role": "user", "content": {{ item | dump }}},{% endfor %}{"role": "user"}]'
    for template, filled in (
        (prompt, '1. A\n2. "B"\n'),
        (chat, 'a\n\n"b"'),
        ("{{ on }} {{ data }}", 'true {"k": [1]}'),
    ):
        values = {"items": json.dumps(["a", '"b"']), "on": True, "data": {"k": [1]}}
        test = {
            "vars": values | {"items": {"all": ["a", '"b"']}},
            "assert": [{"type": "contains", "value": "x"}],
        }
        said = {"prompts": [template.replace("in items", "in items.all")], "tests": [test]}
        assert Suite.parse(said).cases[0].prompt == filled
    for template, why in (
        ("{% for turn in _conversation %}{{ turn }}{% endfor %}", "'_conversation' is undefined"),
        ("{{ q | shout }}", "No filter named 'shout'"),
        ("{{ q.__class__.__mro__ }}", "access to attribute '__class__' of 'str' object is unsafe"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{% if q %}", "Unexpected end of template"),
    ):
        said = {
            "prompts": [template],
            "tests": [{"vars": {"q": "x"}, "assert": [{"type": "contains", "value": "x"}]}],
        }
        with pytest.raises(UsageError, match=re.escape(why)):
            Suite.parse(said)


def test_what_is_wrong_with_every_case_is_said_once_and_counted() -> None:
    tests = [
        {"vars": {"q": str(number)}, "assert": [{"type": "javascript", "value": "1"}]}
        for number in range(23)
    ]
    with pytest.raises(
        UsageError,
        match=r"none of the 24 cases can be imported:\n  23 cases \(case 1, case 2, case 3, …\)",
    ):
        Suite.parse({"prompts": ["{{q}}"], "tests": [*tests, {"vars": {"q": "x"}}]})
    with pytest.raises(UsageError, match="promptfoo generates these cases with a model"):
        Suite.parse({"targets": ["x"], "redteam": {"plugins": ["pii"]}})


def test_prompts_and_tests_of_promptfoo_may_lie_in_files(tmp_path: Path) -> None:
    written(
        tmp_path / "p" / "chat.json",
        [{"role": "system", "content": "Be {{tone}}."}, {"role": "user", "content": "{{q}}"}],
    )
    written(
        tmp_path / "cases.csv",
        'q,tone,__expected\n"Say ""a"", please",kind,contains: a\nSay b,rude,b\nSay c,,fn: c\n',
    )
    written(
        tmp_path / "more.yaml",
        [{"vars": {"q": "Say d", "tone": "calm"}, "assert": [{"type": "equals", "value": "d"}]}],
    )
    config = {
        "prompts": ["file://p/*.json"],
        "tests": ["file://cases.csv", "file://more.yaml", "file://make.py"],
    }
    suite = Suite.load(written(tmp_path / "config.yaml", config))
    assert [case.prompt for case in suite.cases] == [
        'Be kind.\n\nSay "a", please',
        "Be rude.\n\nSay b",
        "Be calm.\n\nSay d",
    ]
    assert [checks[0][0] for checks in checks_of(suite)] == ["contains", "equals", "equals"]
    assert "'file://make.py' is a program" in "\n".join(suite.warnings)
    alone = [{"vars": {"question": "Say e"}, "assert": [{"type": "contains", "value": "e"}]}]
    assert Suite.parse(alone).cases[0].prompt == "Say e"
    with pytest.raises(
        UsageError, match=r"the prompt for the variables \(a, b\) is not in this file"
    ):
        Suite.parse(
            [{"vars": {"a": "1", "b": "2"}, "assert": [{"type": "contains", "value": "e"}]}]
        )
    with pytest.raises(UsageError, match="none of the prompts can be read"):
        Suite.parse({"prompts": ["file://make.py:build"], "tests": alone})


def test_a_pattern_of_javascript_means_the_same_here() -> None:
    year = Suite.parse(
        [{"vars": {"q": "x"}, "assert": [{"type": "regex", "value": r"^(?<year>\d{4})$"}]}]
    )
    assert [passes(year, 0, answer) for answer in ("2024", "2024\nand more")] == [True, False]
    patterns = (r"\(?<b>", r"[(?<b>]{2}x", r"(?<b>a)\k<b>", r"(?<=a)(?<!b)c")
    said = [{"vars": {"q": p}, "assert": [{"type": "regex", "value": p}]} for p in patterns]
    suite = Suite.parse(said)
    answers = ("a <b>bold</b>", "(?x", "aa", "ac")
    assert [[passes(suite, case, answer) for answer in answers] for case in range(4)] == [
        [place == case for place in range(4)] for case in range(4)
    ]


def test_no_assertion_of_promptfoo_is_lost_without_a_word(tmp_path: Path) -> None:
    odd = """
prompts: ['{{q}}']
providers: [x]
tests:
  - description: yes
    vars: {q: a}
    assert: [{type: contains-all, value: [yes, 12:30, 017, off, 1.50, 7]}, {type: equals, value: [1, true]}]
  - {vars: {q: b}, assert: file://a.yaml}
  - {vars: {q: c}, assert: {type: contains, value: z}}
  - {vars: {q: d}, assert: [{type: contains, value: z, negate: true}]}
defaultTest: {assert: [{type: not-contains, value: sorry}]}
"""
    suite = Suite.load(written(tmp_path / "config.yaml", odd))
    assert suite.cases[0].id == "yes"
    assert checks_of(suite)[0][:2] == [
        ("contains", {"text": ["yes", "12:30", "017", "off", "1.50", "7"], "ignore_case": False}),
        ("json_schema", {"schema": {"const": [1, True]}}),
    ]
    assert list(notes_of(suite).left_out())[1:] == [
        "assert: reads file://a.yaml; write out its content (case 2)",
        "assert: not a list (case 3)",
        "contains: upskill has no check with the field 'negate' (case 4)",
        "3 cases (case 2, case 3, case 4): an empty answer passes the assertions that can be imported",
    ]
    head = "q,__expected,__prefix,__suffix,__threshold\n"
    rows = "a,is-refusal,,,\nb,contains: x,PRE , SUF,0.5\nc,not-contains: x,,,\n"
    table = Suite.load(written(tmp_path / "t.csv", head + rows))
    assert [case.prompt for case in table.cases] == ["PRE b SUF", "c"]
    assert checks_of(table)[1] == [
        ("not_contains", {"text": "x", "ignore_case": False}),
        ("min_length", 1),
    ]
    assert (
        "min_length added: the other checks only rule things out, so an empty answer would pass (case 3)"
        in [*notes_of(table).changed()]
    )
    assert not [
        leak for leak in asyncio.run(probe_suite(table)) if leak.probe == "empty"
    ]  # which `eval` refuses
    assert "kept as metadata, not used: __threshold" in table.warnings[0]
    assert "left out: is-refusal: upskill has no equivalent check" in table.warnings[1]
    variables = {"q": [f"say {n}" for n in range(40)], "r": list("x" * 30)}
    said = {
        "prompts": ["{{q}}"],
        "tests": [{"vars": variables, "assert": [{"type": "contains", "value": "x"}]}],
    }
    told = list(notes_of(Suite.parse(said)).left_out())
    assert told[0] == "vars: only 1,000 of 1,200 combinations are imported (case 1)"


# inspect_ai.


def sample(**fields: Any) -> dict[str, Any]:
    return {"input": "Which is it?", "target": "blue"} | fields


def test_samples_of_inspect_are_cases_and_choices_become_part_of_the_prompt() -> None:
    suite = Suite.parse(
        [
            sample(id=1, metadata={"level": 2}),
            sample(id=2, input=[{"role": "user", "content": "Which?"}], target=["blue", "azure"]),
            sample(id=3, choices=["red", "blue"], target="B"),
            sample(id=4, choices=["red", "blue", "azure"], target=["B", "C"]),
            sample(id=5, target="It is blue. " * 20),
            sample(
                id=6, input=[{"role": "user", "content": [{"type": "image", "image": "x.png"}]}]
            ),
        ]
    )
    assert checks_of(suite)[:2] == [[("contains", "blue")], [("contains_any", ["blue", "azure"])]]
    assert (suite.cases[0].metadata, suite.cases[1].prompt) == ({"level": 2}, "Which?")
    assert "A) red\nB) blue" in suite.cases[2].prompt
    answers = (
        "I think red.\n\n**ANSWER: B**",
        "ANSWER: A",
        "ANSWER: AB",
        "The answer is B, of course",
    )
    assert [passes(suite, 2, answer) for answer in answers] == [True, False, False, False]
    several = (
        "ANSWER: A\nANSWER: B\nANSWER: C",
        "ANSWER: B\n**Answer C**",
        "ANSWER: A\nNo.\n\nANSWER: B\nAnswered.",
    )
    assert [passes(suite, 2, answer) for answer in several] == [False, False, True]
    assert [
        passes(suite, 3, answer) for answer in ("ANSWER: B, C", "ANSWER: B and C", "ANSWER: B")
    ] == [
        True,
        True,
        False,
    ]
    assert checks_of(suite)[4][0][0] == "judge"
    assert "its input contains an image" in suite.warnings[1]


def test_a_log_of_inspect_gives_its_samples_with_what_was_answered(tmp_path: Path) -> None:
    samples = [
        sample(
            id=name,
            epoch=epoch,
            output={"completion": f"{name} {epoch}"},
            scores={"includes": {"value": "C"}},
        )
        for name in ("a", "b")
        for epoch in (1, 2)
    ]
    log = tmp_path / "log.eval"
    with zipfile.ZipFile(log, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", "{}")
        for number, one in enumerate(samples):
            archive.writestr(f"samples/{number}.json", json.dumps(one))
    suite = Suite.load(log)
    assert [(case.id, case.metadata) for case in suite.cases] == [
        (name, {"answered": f"{name} 1", "scores": {"includes": "C"}}) for name in ("a", "b")
    ]
    assert (
        Suite.load(written(tmp_path / "log.json", {"eval": {}, "samples": samples})).cases
        == suite.cases
    )
    assert f"upskill trace show {log}/ID" in "".join(notes_of(suite).changed())
    for data in (log.read_bytes()[:200], b"PK\x03\x04"):
        log.write_bytes(data)
        with pytest.raises(UsageError, match="cannot be unpacked"):
            Suite.load(log)


def test_the_trials_of_a_log_can_be_looked_at_one_by_one(home: Path, upskill: Upskill) -> None:
    call = {"id": "c1", "function": "bash", "arguments": {"cmd": "ls"}}
    messages = [
        {"role": "system", "content": "attachment://long"},
        {"role": "user", "content": [{"type": "text", "text": "Which is it?"}]},
        {"role": "assistant", "content": "I look.", "tool_calls": [call]},
        {
            "role": "tool",
            "tool_call_id": "c1",
            "function": "bash",
            "content": "",
            "error": {"message": "no such file"},
        },
        {"role": "assistant", "content": "It is blue."},
    ]
    used = {"some/model": {"input_tokens": 5, "output_tokens": 3, "input_tokens_cache_read": 2}}
    first = sample(id="one", messages=messages, attachments={"long": "Be brief."}, model_usage=used)
    second = sample(id="one", epoch=2, messages=messages[:2], scores={"includes": {"value": "I"}})
    with zipfile.ZipFile("log.eval", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("samples/one_epoch_2.json", json.dumps(second))
        archive.writestr("samples/one_epoch_1.json", json.dumps(first))
    written(Path("log.json"), {"version": 2, "eval": {"task": "t"}, "samples": [first, second]})
    for name in ("log.eval", "log.json"):
        done = upskill("trace", "show", name, "--json")
        trace = json.loads(done.out)
        assert [
            (step["kind"], step.get("text") or step.get("output")) for step in trace["steps"]
        ] == [
            ("system", "Be brief."),
            ("user", "Which is it?"),
            ("assistant", "I look."),
            ("tool", "no such file"),
            ("assistant", "It is blue."),
        ]
        assert (trace["steps"][3]["tool"], trace["steps"][3]["status"]) == ("bash", "error")
        assert (
            trace["model"],
            trace["usage"]["input_tokens"],
            trace["usage"]["output_tokens"],
        ) == ("some/model", 7, 3)
        assert f"{name}/one@2" in done.err
        other = json.loads(upskill("trace", "show", f"{name}/one@2", "--json").out)
        assert other["steps"][-1]["text"] == "[includes scored it I]"
    Path("other.zip").write_bytes(Path("log.eval").read_bytes().replace(b"samples/", b"nothing/"))
    assert upskill("trace", "show", "other.zip").code == 2


def test_what_cannot_be_an_id_or_a_field_of_ours_costs_one_case_at_most() -> None:
    said = [
        sample(id={"a": 1}),
        sample(id=7.5, input="b"),
        sample(id=" two\nlines ", input="c"),
        sample(id="x" * 500, input="d"),
        sample(id='"quoted" \u2019 \u00fc', input="e"),
        sample(id="bad", input="f", files={"../x": "y"}),
    ]
    twins = [{"question": "x", "answer": "y", "level": level} for level in (1, 2)]
    assert len(Suite.parse(twins).cases) == 1
    sides = [
        {"prompt": "x", "assertions": ["y"], "id": side, "held_out": side == "b"} for side in "ab"
    ]
    assert [case.held_out for case in Suite.parse(sides).cases] == [False, True]
    suite = Suite.parse(said, "s")
    assert [case.id for case in suite.cases[2:]] == [
        "two lines",
        "x" * 190,
        '"quoted" \u2019 \u00fc',
    ]
    assert len(suite.cases) == 5
    assert "case 6 ('bad'): '../x' is not a path inside the workspace" in suite.warnings[0]


# Tables.


def test_a_table_with_prompt_and_expected_is_a_suite_whatever_it_is_called(tmp_path: Path) -> None:
    text = (
        '﻿Prompt;expected;tags;level\n"Say ""ä"";\nplease";ä;x,y;2\nSay b;' + "b " * 60 + ";;\n;;;\n"
    )
    for name in ("table.csv", "table.txt"):
        suite = Suite.load(written(tmp_path / name, text))
        assert suite.cases[0].prompt == 'Say "ä";\nplease'
        assert (checks_of(suite)[0], suite.cases[0].tags) == ([("contains", "ä")], ("x", "y"))
        assert (suite.cases[0].metadata, suite.cases[0].reference) == ({"level": "2"}, "ä")
        assert checks_of(suite)[1][0][0] == "judge"
    named = Suite.load(written(tmp_path / "named.csv", "id,question,regex\none,Say c,^c$\n"))
    assert (named.cases[0].id, checks_of(named)) == ("one", [[("regex", "^c$")]])
    lines = "\n".join(json.dumps({"question": f"Say {word}", "answer": word}) for word in "def")
    assert checks_of(Suite.load(written(tmp_path / "qa.jsonl", lines))) == [
        [("contains", word)] for word in "def"
    ]
    mac = Suite.load(written(tmp_path / "mac.csv", "prompt,expected\rSay a,a\rSay b,b\r"))
    assert checks_of(mac) == [[("contains", "a")], [("contains", "b")]]
    for text, words in (
        ("prompt,expected\n", "no cases"),
        ("prompt,level\nSay a,1\n", "needs a value in `expected`"),
        ("a,b\n1,2\n", "no prompt"),
    ):
        with pytest.raises(UsageError, match=words):
            Suite.load(written(tmp_path / "bad.csv", text))


def test_a_table_checks_what_is_expected_beside_the_columns_that_are_checks(tmp_path: Path) -> None:
    table = Suite.load(
        written(
            tmp_path / "t.csv", "prompt,expected,contains,not_contains\nSay a,four,answer,five\n"
        )
    )
    assert checks_of(table) == [
        [("contains", "answer"), ("not_contains", "five"), ("contains", "four")]
    ]
    row = {
        "question": "q?",
        "answer": "Paris",
        "contains": "capital",
        "reference": "The capital is Paris.",
    }
    suite = Suite.parse([row])
    assert checks_of(suite) == [[("contains", "capital"), ("contains", "Paris")]]
    assert suite.cases[0].reference == row["reference"]
    only = Suite.parse([{"question": "q?", "regex": "^P", "reference": "Paris", "answer": ""}])
    assert (checks_of(only), only.cases[0].reference) == ([[("regex", "^P")]], "Paris")


def test_a_column_that_is_there_twice_and_a_row_that_is_too_long_are_named_by_their_line(
    tmp_path: Path,
) -> None:
    for text, words in (
        ("id,prompt,contains,contains\na,Say,four,4\n", "line 1: duplicate column 'contains'"),
        ("\nid,Prompt,prompt \na,b,c\n", "line 2: duplicate column 'prompt'"),
        (
            'prompt,expected\n"two\nlines",x\n\nAdd 1,2 and 3,6\n',
            "line 5: 3 cells, but the header has 2",
        ),
        (
            'prompt,expected\nSay,x\n"Say b,y\nSay c,z\n',
            "line 3: not valid CSV: unexpected end of data",
        ),
        ("prompt,expected,\nSay,x,y\n", "line 2: 'y' is in a column without a name"),
    ):
        with pytest.raises(UsageError, match=words):
            Suite.load(written(tmp_path / "bad.csv", text))
    numbered = Suite.load(written(tmp_path / "numbered.csv", ",prompt,expected\n0,Say,x\n"))
    assert (numbered.cases[0].prompt, numbered.cases[0].metadata) == ("Say", {})
    spared = Suite.load(
        written(tmp_path / "good.csv", "prompt,expected,,\nSay,x,,\nSay b\nSay c,z,,,,\n")
    )
    assert [case.prompt for case in spared.cases] == ["Say", "Say c"]


# All of them.


def test_fields_that_mean_nothing_here_are_told_wherever_they_stand() -> None:
    test = {
        "vars": {"q": "x"},
        "assert": [{"type": "contains", "value": "y"}],
        "options": {"rubricPrompt": "z"},
    }
    config = {
        "prompts": ["{{q}}"],
        "tests": [test],
        "defaultTest": {"threshold": 0.5},
        "derivedMetrics": [1],
    }
    smoke = [{"input": "x", "expected": "y"}]
    scenario = {
        "id": "a",
        "tests": smoke,
        "agents": ["b"],
        "judge": {"criteria": ["c"], "threshold": 0.9},
    }
    words = {
        "prompt": "x",
        "assertions": [{"type": "script"}],
        "expected_output": "A greeting.",
        "checks": "no list",
    }
    for said, told in (
        (config, ["not used: derivedMetrics, defaultTest.threshold, options.rubricPrompt"]),
        ({"scenarios": [scenario]}, ["not used: scenarios.agents, judge.threshold"]),
        ([sample(level=3)], ["not used: level"]),
        (
            {"evals": [words]},
            [
                "left out: checks: not a list",
                "changed: expected_output: a judge checks it instead of the assertions that were left out",
            ],
        ),
    ):
        warnings = "\n".join(Suite.parse(said).warnings)
        assert [line for line in told if line not in warnings] == []


def test_a_suite_of_ours_is_never_taken_for_anothers() -> None:
    case = {"prompt": "x", "checks": [{"contains": "y"}]}
    for said in (
        [case],
        {"cases": [case]},
        {"cases": [case | {"expected_output": "z", "metadata": {"a": 1}}]},
    ):
        assert recognize(said) is None
    assert recognize([case | {"promt": "x"}]) is None  # so that the misspelt field is named
    assert set(FORMATS.table) == {
        "plugin_eval",
        "harbor",
        "tessl",
        "skillgrade",
        "inspect",
        "promptfoo",
        "scenarios",
        "evals",
        "table",
    }


@pytest.mark.parametrize("junk", [None, 7, "x", [], [[]], {}, [None], [{"a": {}}], [{1: 2}]])
def test_whatever_stands_where_something_else_is_expected_is_a_usage_error(junk: Any) -> None:
    for said in (
        {"evals": junk},
        {
            "evals": [
                {
                    "prompt": "x",
                    "checks": [junk],
                    "held_out": junk,
                    "tags": junk,
                    "assertions": ["y"],
                }
            ]
        },
        {"evals": [{"prompt": junk, "assertions": junk, "files": junk, "id": junk}]},
        [{"prompt": "x", "assertions": [junk], "files": [junk]}],
        {"scenarios": [{"tests": junk, "judge": junk, "skills": junk}]},
        {"prompts": junk, "providers": junk, "tests": junk, "defaultTest": junk, "scenarios": junk},
        {"prompts": [junk], "tests": [{"vars": junk, "assert": junk, "options": junk}]},
        {
            "prompts": ["{{a.b}}"],
            "tests": [{"vars": {"a": junk}, "assert": [junk, {"type": junk, "value": junk}]}],
        },
        [
            {"vars": {"a": "b"}, "assert": [{"type": kind, "value": junk}]}
            for kind in ("regex", "is-json", "contains-any")
        ],
        [
            {
                "input": junk,
                "target": junk,
                "choices": junk,
                "files": junk,
                "metadata": junk,
                "scores": junk,
            }
        ],
        {
            "eval": junk,
            "samples": [
                {"input": [{"role": junk, "content": junk}], "target": [junk], "output": junk}
            ],
        },
        {"tasks": junk, "graders": junk, "skill": "x"},
        {"tasks": [{"id": junk, "inputs": junk, "expected": junk, "graders": junk}], "skill": "x"},
        [
            {
                "id": "x",
                "inputs": {"prompt": "y", "files": [junk]},
                "graders": [{"type": "text", "config": junk}],
            }
        ],
        [{"question": junk, "answer": junk, "id": junk, "tags": junk}],
    ):
        try:
            Suite.parse(said, "s")
        except UsageError as error:
            assert str(error).startswith("s")  # noqa: PT017 - some are suites, and may be read


def test_a_check_that_cannot_be_read_is_left_out_and_says_why() -> None:
    case = {"prompt": "x", "assertions": [{"type": "regex", "value": "("}]}
    with pytest.raises(
        UsageError,
        match=r"s: case 1: none of the checks is valid: regex.*is not a valid regular expression",
    ):
        Suite.parse({"evals": [case]}, "s")
    suite = Suite.parse(
        {"evals": [case | {"assertions": [*case["assertions"], "It is short"]}]}, "s"
    )
    assert checks_of(suite) == [[("judge", "It is short")]]
    assert "left out: regex" in suite.warnings[0]


# The command.


def test_import_writes_a_suite_that_loads_as_it_is_and_tells_what_became_of_the_rest(
    home: Path, upskill: Upskill
) -> None:
    written(Path("promptfoo.yaml"), PROMPTFOO)
    done = upskill("import", "promptfoo.yaml", "-o", "out/suite.yaml")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(
        "wrote out/suite.yaml\npromptfoo.yaml (promptfoo): 3 of 4 cases with 19 checks ("
    )
    assert "  left out: javascript: runs its own program" in done.out
    assert "  changed: llm-rubric: a judge checks it" in done.out
    assert done.out.endswith("Next: upskill eval SKILL -t out/suite.yaml --judge MODEL\n")
    suite = Suite.load("out/suite.yaml")
    assert (suite.notes, suite.warnings) == (None, ())
    assert suite.fingerprint == Suite.load("promptfoo.yaml").fingerprint
    head = [
        line
        for line in Path("out/suite.yaml").read_text(encoding="utf-8").splitlines()
        if line.startswith("#")
    ]
    assert any("javascript" in line for line in head)
    assert any("'missing' is undefined" in line for line in head)
    again = upskill("import", "promptfoo.yaml", "-o", "out/suite.yaml")
    assert (again.code, "already exists" in again.err, "--force" in again.err) == (2, True, True)
    assert upskill("import", "promptfoo.yaml", "-o", "out/suite.yaml", "--force").code == 0
    known = upskill("import", "out/suite.yaml")
    assert (known.code, known.out) == (0, "")
    assert "already a suite, with 3 cases" in known.err
    printed = upskill("import", "promptfoo.yaml")
    assert printed.out == Path("out/suite.yaml").read_text(encoding="utf-8")
    assert "left out: javascript" in printed.err


SHOWN = """
prompts: ['{{q}}']
providers: [openai:gpt-4o]
tests:
  - {vars: {q: Say a}, assert: [{type: contains, value: a}]}
  - description: polite
    vars: {q: Greet me}
    assert: [{type: llm-rubric, value: It is polite}, {type: icontains, value: hi}]
  - {description: brief, vars: {q: Be brief}, assert: [{type: llm-rubric, value: It is brief}]}
  - {vars: {q: Say b}, assert: [{type: contains, value: b}, {type: regex, value: ^b}]}
  - {vars: {q: Say c}, assert: [{type: javascript, value: output.length < 9}]}
"""


def test_the_docs_show_what_import_prints(home: Path, upskill: Upskill) -> None:
    written(Path("promptfooconfig.yaml"), SHOWN)
    page = (REPOSITORY / "docs" / "how-to" / "suites.md").read_text(encoding="utf-8")
    command, printed = re.findall(
        r"```bash\nupskill (import [^\n]*)\n```\n\n```text\n(.*?)```", page, re.DOTALL
    )[0]
    assert upskill(*command.split()).out == printed


def test_import_calls_a_program_and_a_session_what_they_are(home: Path, upskill: Upskill) -> None:
    written(
        Path("task.py"),
        "from inspect_ai import Task, task\n\n\n@task\ndef mine():\n    return Task()\n",
    )
    written(
        Path("31_ELU.py"),
        "class Model: ...\n\n\ndef get_inputs(): ...\n\n\ndef get_init_inputs(): ...\n",
    )
    written(Path("cases"), "#!/bin/sh\necho prompt,expected\n")
    for name, hint in (
        ("task.py", "inspect eval"),
        ("31_ELU.py", "KernelBench"),
        ("cases", "Save its cases"),
    ):
        ran = upskill("import", name)
        assert (ran.code, ran.out) == (2, "")
        assert f"{name}: this is a program, not a suite" in ran.err
        assert hint in ran.err
    written(
        Path("opencode/storage/session/global/ses_1.json"), {"id": "ses_1", "projectID": "global"}
    )
    for name in ("opencode", "opencode/storage", "opencode/storage/session/global/ses_1.json"):
        assert (
            f"{name}: this is an agent's session (opencode session), not a file of test cases"
            in upskill("import", name).err
        )
    Path("empty").mkdir()
    refused = upskill("import", "empty").err
    assert "empty: not a folder that test cases can be read from" in refused
    assert "a folder with cases for `claude plugin eval`, Tessl or Harbor" in refused


def test_import_prints_control_characters_of_a_file_escaped(home: Path, upskill: Upskill) -> None:
    odd = [{"type": "zz\nchecks:\n  - contains: EVIL\n#"}, {"type": "zz\x1b]0;PWN\x07"}]
    case = {
        "prompt": "x\x85",
        "assertions": [*odd, {"type": "contains", "value": "ok"}],
        "fie\x1bld\r": "\u2028",
    }
    written(Path("odd.json"), {"evals": [case]})
    done = upskill("import", "odd.json", "-o", "suite.yaml")
    assert done.code == 0
    assert (
        r"left out: zz\nchecks:\n  - contains: EVIL\n#: upskill has no check of this type"
        in done.out
    )
    assert r"left out: zz\x1b]0;PWN\x07: upskill has no check" in done.out
    assert r"not used: fie\x1bld\r" in done.out
    for text in (
        done.out,
        Path("suite.yaml").read_text(encoding="utf-8"),
        *Suite.load("odd.json").warnings,
    ):
        assert text.replace("\n", "").isprintable()
    loaded = Suite.load("suite.yaml")
    assert (checks_of(loaded), loaded.cases[0].prompt) == ([[("contains", "ok")]], "x\x85")
    written(Path("none.json"), {"evals": [case | {"assertions": odd}]})
    failed = upskill("import", "none.json")
    assert failed.code == 2
    assert failed.err.startswith(
        "upskill: none.json: case 1: none of the assertions can be imported: zz"
    )
    assert r"zz\nchecks:\n  - contains: EVIL\n#: upskill has no check" in failed.err.splitlines()[0]


def test_every_format_is_imported_without_a_loss_on_the_way(home: Path, upskill: Upskill) -> None:
    for name, said in (
        ("evals.json", EVALS),
        ("upstream.json", [{"input": "Say it.", "expected": {"contains": "it"}}]),
        ("inspect.json", [sample(input="Two\nlines: 'a' \"b\" # c\n- d", target="é\u2028…")]),
        ("odd.csv", "prompt,expected\n\"  padded \n\n  lines \",'x'\nyes,no\n"),
    ):
        written(Path(name), said)
        assert upskill("import", name, "-o", f"{name}.yaml").code == 0
        assert [case.to_dict() for case in Suite.load(f"{name}.yaml").cases] == [
            case.to_dict() for case in Suite.load(name).cases
        ]
    for name, words in (
        ("none.yaml", "No such file"),
        (".", "not a folder that test cases can be read from"),
    ):
        done = upskill("import", name)
        assert (done.code, bool(re.search(words, done.err))) == (2, True)


# Folders of cases.


def test_the_case_folders_of_claude_plugin_eval_are_a_suite(home: Path, upskill: Upskill) -> None:
    graders = {
        "polite": "---\ntype: llm\nweight: 2\n---\nPASS if it greets Ada.\nFAIL otherwise.\n",
        "file": "---\ntype: llm\nfocus: {source: file, path: out.md}\n---\nPASS if it is short.\n",
        "name": "---\ntype: regex\npattern: '^ada$'\nflags: im\n---\n",
        "body": "---\ntype: regex\nmatch: not_contains\n---\n(?<word>x)\\k<word>\n",
        "in-file": "---\ntype: regex\ntarget: {source: file, path: out.md}\npattern: Ada\n---\n",
        "fired": "---\ntype: tool_used\ntool: Skill\ninput_match: greeter\n---\n",
        "ran": '---\ntype: tool_used\ntool: Bash\ninput_match: \'"command":"make\'\nmax: 2\n---\n',
        "never": "---\ntype: tool_used\ntool: Write\nmin: 0\nmax: 0\n---\n",
        "there": "---\ntype: file_exists\npath: out.md\n---\n",
        "z1": "---\ntype: tool_order\nbefore: Read\nafter: Write\n---\n",
        "z2": "---\ntype: baseline\nbaseline_file: old.jsonl\n---\nAs good.\n",
        "z3": "---\ntype: regex\ntarget: trace\npattern: x\n---\n",
        "z4": "---\ntype: regex\nmatch: 'count:2'\npattern: x\n---\n",
        "z5": "---\ntype: file_exists\npath: '**/*.md'\n---\n",
        "z6": "---\ntype: regex\npattern: x\narm: with_only\n---\n",
        "z7": "---\ntype: tool_used\ntool: Read\nmin: 0\nmax: 3\n---\n",
    }
    for name, text in graders.items():
        written(Path(f"plugin/evals/greets/graders/{name}.md"), text)
    prompt = (
        "---\nmax_turns: 5\ntags: [smoke]\nappend_system_prompt: Be brief.\n---\n\nGreet Ada.\n"
    )
    written(Path("plugin/evals/greets/prompt.md"), prompt)
    context = {"context": {"add_dirs": ["resources"]}}
    written(
        Path("plugin/evals/greets/case.yaml"),
        {"schema_version": "1.1", "name": "greets-ada", **context},
    )
    written(Path("plugin/evals/greets/resources/names.txt"), "Ada\n")
    one_file = {"prompt": "Greet Bob."}, [{"name": "a", "type": "llm", "criteria": "Greets Bob"}]
    written(
        Path("plugin/evals/group/bob/case.yaml"),
        {"name": "bob", "execution": one_file[0], "graders": one_file[1]},
    )
    written(Path("plugin/evals/group/mocks/tracker/create_issue.md"), "Created.")
    written(Path("plugin/evals/fires/prompt.md"), "Hello?")
    written(Path("plugin/evals/fires/graders/fired.md"), graders["fired"])
    written(Path("plugin/evals/seeded/prompt.md"), "Go on.")
    written(
        Path("plugin/evals/seeded/case.yaml"),
        {"name": "seeded", "context": {"scaffold_script": "setup.sh"}},
    )
    written(Path("plugin/README.md"), "Not a case.")
    suite = Suite.load("plugin")
    assert [case.id for case in suite.cases] == ["greets-ada", "bob"]
    first, second = suite.cases
    assert (first.prompt, first.tags, first.files) == (
        "Be brief.\n\nGreet Ada.",
        ("smoke",),
        {"resources/names.txt": "Ada\n"},
    )
    rubric = "The answer meets these criteria: "
    assert sorted(map(repr, checks_of(suite)[0])) == sorted(
        map(
            repr,
            [
                ("judge", f"{rubric}PASS if it greets Ada.\nFAIL otherwise."),
                ("judge", {"statement": f"{rubric}PASS if it is short.", "files": ["out.md"]}),
                ("regex", {"pattern": "(?im)^ada$", "multiline": True}),
                ("not_regex", {"pattern": "(?P<word>x)(?P=word)", "multiline": False}),
                ("file_matches", {"path": "out.md", "pattern": "Ada", "multiline": False}),
                ("skill_activated", True),
                (
                    "tool_called",
                    {
                        "tool": "Bash",
                        "arguments": r'"command":\s*"make',
                        "at_least": 1,
                        "at_most": 2,
                    },
                ),
                ("tool_not_called", {"tool": "Write"}),
                ("file_exists", "out.md"),
            ],
        )
    )
    assert checks_of(suite)[1] == [("judge", f"{rubric}Greets Bob")]
    assert first.metadata["weights"]["polite"] == 2
    left_out = "\n".join(notes_of(suite).left_out())
    for words in (
        *(
            "tool_order: upskill has no check of this type",
            "baseline: upskill has no",
            "regex of trace: a check sees",
        ),
        *("regex with match: count:2: use", "file_exists with a pattern: use"),
        *("regex with arm: with_only: a comparison", "tool_used with min: 0: upskill has no"),
        *("case 'fires': only says when", "case 'seeded': it has `scaffold_script`"),
        "mocks: upskill does not stand in for MCP servers (case 'bob')",
    ):
        assert words in left_out
    told = "tool_used: Skill: `skill_activated`, of the tested skill and only reported"
    assert any(line.startswith(told) for line in notes_of(suite).changed())
    names = "tool_used: tools have their names in Claude Code; use --agent claude-code"
    assert any(line.startswith(names) for line in notes_of(suite).changed())
    assert upskill("import", "plugin", "-o", "suite.yaml").code == 0
    assert [case.to_dict() for case in Suite.load("suite.yaml").cases] == [
        case.to_dict() for case in suite.cases
    ]
    assert second.files == {}


def test_graders_of_plugin_eval_as_public_suites_write_them(tmp_path: Path) -> None:
    graders = {
        "prose": "# Criteria\n\nThe graph has no cycle.",
        "both": "---\ntype: llm\ncriteria: It names the port.\n---\nPort 22 is not enough.",
        "kept": "---\ntype: regex\ntarget: { source: file, path: a.md }\npattern: '^\\s*paths:'\nflags: mi\n"
        "match: not_contains\n---\n",
        "no-plan": "---\ntype: file_exists\npath: my plan.md\nexists: false\n---\nOnly on request.",
        "created": "---\ntype: regex\ntarget: files\npattern: '[.]py$'\nmatch: not_contains\n---\n",
    }
    for name, text in graders.items():
        written(tmp_path / "evals" / "routing" / "graders" / f"{name}.md", text)
    written(tmp_path / "evals" / "routing" / "prompt.md", "Plan it.")
    suite = Suite.load(tmp_path)
    found = dict(checks_of(suite)[0])
    assert found["command"] == "test ! -e 'my plan.md'"
    pattern = re.compile(found["file_matches"]["pattern"])
    assert pattern.search("name: x\n")
    assert not pattern.search("name: x\n  Paths: y\n")
    judged = [config for kind, config in checks_of(suite)[0] if kind == "judge"]
    assert any("no cycle" in text for text in judged)
    assert any("It names the port.\n\nPort 22 is not enough." in text for text in judged)
    notes = notes_of(suite)
    assert "a grader without a type: a judge checks it (case 'routing')" in notes.changed()
    assert [line.partition(" (")[0] for line in notes.left_out()] == [
        "regex of files: a check sees the answer, or a file by its name"
    ]


def test_files_outside_the_folder_of_a_case_leave_it_out(tmp_path: Path) -> None:
    written(tmp_path / "etc" / "secret.txt", "secret")
    for name, folders in (
        ("a", ["../../etc"]),
        ("b", ["/etc"]),
        ("c", ["gone"]),
        ("d", ["./data/", ".cache"]),
    ):
        written(
            tmp_path / "evals" / name / "case.yaml",
            {"name": name, "context": {"add_dirs": folders}},
        )
        written(tmp_path / "evals" / name / "prompt.md", "Go.")
        written(tmp_path / "evals" / name / "graders" / "g.md", "It is short.")
    written(tmp_path / "evals" / "d" / "data" / "x.txt", "x")
    written(tmp_path / "evals" / "d" / ".cache" / "y.txt", "y")
    suite = Suite.load(tmp_path / "evals")
    assert [(case.id, dict(case.files)) for case in suite.cases] == [
        ("d", {"data/x.txt": "x", ".cache/y.txt": "y"})
    ]
    assert list(notes_of(suite).left_out()) == [
        "case 'a': '../../etc' is not in the folder of the case",
        "case 'b': '/etc' is not in the folder of the case",
        "case 'c': 'gone' is not in the folder of the case",
    ]


def test_a_folder_with_too_many_files_is_an_error_and_not_cut(tmp_path: Path) -> None:
    for number in range(1_001):
        written(tmp_path / "graders" / f"{number}.txt", "x")
    task = {
        "name": "a",
        "instruction": "Go.",
        "graders": [{"type": "deterministic", "run": "bash graders/0.txt"}],
    }
    with pytest.raises(UsageError, match="graders: more than 1,000 files"):
        Suite.load(written(tmp_path / "eval.yaml", {"tasks": [task]}))


def test_scenarios_of_tessl_are_rubrics_with_their_weights_noted(tmp_path: Path) -> None:
    checklist = [
        {"name": "Greets", "description": "The file greets Ada", "max_score": 70},
        {"name": "Short", "description": "It is one line", "max_score": 30, "category": "style"},
    ]
    criteria = {"context": "Tests greetings.", "type": "weighted_checklist", "checklist": checklist}
    for name, files in (
        ("one", "`hello.md`"),
        ("two", "`hello.md` and `src/a.py`"),
        ("none", "an answer"),
    ):
        written(tmp_path / "evals" / name / "criteria.json", criteria)
        written(
            tmp_path / "evals" / name / "task.md",
            f"# Greet\n\nSee `in.txt`.\n\n## Output Specification\n\n{files}\n",
        )
    written(
        tmp_path / "evals" / "one" / "scenario.json", {"description": "d", "include": ["./inputs"]}
    )
    written(tmp_path / "evals" / "one" / "inputs" / "names.txt", "Ada\n")
    written(tmp_path / "evals" / "one" / "capability.txt", "Greetings\n")
    written(tmp_path / "evals" / "two" / "more" / "names.txt", "Bob\n")
    suite = Suite.load(tmp_path)
    rubric = ["The file greets Ada", "It is one line"]
    cases = {case.id: case for case in suite.cases}
    assert [
        each for case in ("one", "two", "none") for each in checks_of(Suite((cases[case],)))
    ] == [
        [("judge", {"rubric": rubric})],
        [("judge", {"rubric": rubric, "files": ["hello.md", "src/a.py"]})],
        [("judge", {"rubric": rubric})],
    ]
    assert [cases[name].output_file for name in ("one", "two", "none")] == ["hello.md", "", ""]
    assert cases["one"].files == {"inputs/names.txt": "Ada\n"}
    assert cases["one"].metadata == {
        "weights": {"Greets": 70, "Short": 30},
        "capability": "Greetings",
        "context": "Tests greetings.",
        "description": "d",
    }
    assert "weights: kept as metadata; every check must pass" in "\n".join(
        notes_of(suite).changed()
    )
    assert [line.partition(" (")[0] for line in notes_of(suite).left_out()] == [
        "category in the checklist: the judge sees the description",
        "more/names.txt: scenario.json does not include it",
    ]


def test_fixtures_of_tessl_are_files_and_scenarios_that_need_more_are_left_out(
    tmp_path: Path,
) -> None:
    directory = {"type": "directory", "path": "./inputs/cache", "installPath": ".cache/plugins"}
    commit = {"type": "commit", "repoUrl": "https://example.com/a.git", "ref": "main"}
    scenarios: dict[str, dict[str, Any]] = {
        "kept": {"fixtures": {"cache": directory}},
        "clone": {"fixtures": {"code": commit}},
        "declared": {"setup": ["./prepare.sh"]},
        "beside": {},
    }
    for name, scenario in scenarios.items():
        written(tmp_path / name / "task.md", "Go.")
        written(tmp_path / name / "criteria.json", {"checklist": ["It is short."]})
        written(tmp_path / name / "scenario.json", scenario)
    written(tmp_path / "kept" / "inputs" / "cache" / "one" / "plugin.json", "{}")
    written(tmp_path / "beside" / "setup.sh", "#!/bin/bash\nnpm install\n")
    suite = Suite.load(tmp_path)
    assert [(case.id, dict(case.files)) for case in suite.cases] == [
        ("kept", {".cache/plugins/one/plugin.json": "{}"})
    ]
    assert sorted(notes_of(suite).left_out()) == [
        "2 cases (case 'beside', case 'declared'): it has a setup script, but a case can only have files",
        "case 'clone': it needs https://example.com/a.git, but a case can only have files",
    ]


SKILLGRADE: dict[str, Any] = {
    "version": "1",
    "skill": "SKILL.md",
    "defaults": {"agent": "gemini", "docker": {"base": "node:20-slim", "setup": "npm i -g x"}},
    "tasks": [
        {
            "name": "greet",
            "step_graders": [
                {"after_turn": 1, "graders": [{"type": "llm_rubric", "rubric": "It asks."}]}
            ],
            "instruction": "task.md",
            "workspace": [
                {"src": "fixtures/a.txt", "dest": "in/a.txt", "chmod": "+x"},
                "fixtures/a.txt",
            ],
            "graders": [
                {"type": "deterministic", "run": "python3 graders/check.py", "weight": 0.7},
                {"type": "llm_rubric", "rubric": "It is polite.", "model": "m", "weight": 0.3},
                {"type": "deterministic", "check": "file_contains", "path": "a"},
            ],
        },
        {
            "name": "far",
            "instruction": "x",
            "workspace": [{"src": "fixtures/a.txt", "dest": "/bin/a"}],
            "graders": [{"type": "llm_rubric", "rubric": "y"}],
        },
    ],
}


def test_tasks_of_skillgrade_run_their_graders_as_commands(tmp_path: Path) -> None:
    written(tmp_path / "task.md", "Greet Ada.\n")
    written(tmp_path / "fixtures" / "a.txt", "A\n")
    script = written(
        tmp_path / "graders" / "check.py", 'print(\'{"score": 1.0, "details": ""}\')\n'
    )
    suite = Suite.load(written(tmp_path / "eval.yaml", SKILLGRADE))
    (case,) = suite.cases
    assert (case.id, case.prompt, case.files) == (
        "greet",
        "Greet Ada.",
        {"in/a.txt": "A\n", "a.txt": "A\n"},
    )
    (name, command), (judge, rubric) = checks_of(suite)[0]
    assert (name, command["files"], command["needs"]) == (
        *("command", {"graders/check.py": script.read_text(encoding="utf-8")}),
        ["python3"],
    )
    assert (command["run"], command["exit_code"]) == (
        'cp -r "$CHECK"/. . && python3 graders/check.py',
        None,
    )
    assert [
        bool(re.search(command["regex"], f'{{"score": {score}}}'))
        for score in ("1", '"1.00"', "0.9", "10")
    ] == [*(True, True, False, False)]
    assert (judge, rubric) == ("judge", "The answer meets these criteria: It is polite.")
    left_out = "\n".join(notes_of(suite).left_out())
    for words in (
        "setup: the sandbox has this machine's programs: install x",
        "chmod: the files in a case are not executable",
        "model in a grader",
        "no check with the field 'check'",
        "step_graders: upskill does not know this field",
        "/bin/a",
    ):
        assert words in left_out


def test_the_setup_of_skillgrade_names_what_is_needed_and_what_is_not_run(tmp_path: Path) -> None:
    written(tmp_path / "scripts" / "check.sh", "echo '{\"score\": 1}'\n")
    clone = "git clone https://git.example/kite.git"
    grader = {"type": "deterministic", "run": "bash scripts/check.sh"}
    network = {"type": "deterministic", "run": "npx kite-check"}
    tasks = [
        {
            "name": "tool",
            "instruction": "Fly.",
            "graders": [grader | {"setup": "apt-get update && apt-get install -y jq"}],
        },
        {
            "name": "clone",
            "instruction": "Land.",
            "graders": [grader, network],
            "trialConfig": {"setup": clone},
        },
    ]
    suite = Suite.load(written(tmp_path / "eval.yaml", {"version": "1", "tasks": tasks}))
    commands = [checks[0][1] for checks in checks_of(suite)]
    assert [command.get("needs") for command in commands] == [["jq"], None]
    assert all("scripts/check.sh" in command["files"] for command in commands)
    assert list(notes_of(suite).left_out()) == [
        f"setup: the sandbox has this machine's programs: `{clone}` is not run (case 2 ('clone'))",
        "network: a grader runs `npx kite-check`, but the sandbox has none (case 2 ('clone'))",
    ]


def test_scenarios_of_dotnet_bring_the_files_beside_them_and_name_tools_and_files(
    tmp_path: Path,
) -> None:
    written(tmp_path / "App" / "App.csproj", "<Project />\n")
    assertions = [
        {"type": "file_contains", "path": "App/App.csproj", "value": "net10.0"},
        {"type": "file_contains", "path": "**/*.cs", "value": "x"},
        {"type": "exit_success"},
    ]
    scenario: dict[str, Any] = {
        "name": "a",
        "prompt": "Go.",
        "setup": {"copy_test_files": True},
        "assertions": assertions,
    }
    scenario |= {"expect_tools": ["bash"], "expect_activation": False, "timeout": 60}
    scenario |= {"reject_tools": ["create_file"], "max_turns": 10, "max_tokens": 5000}
    source = f"../../../../tests/{tmp_path.name}/App/App.csproj"  # from the skill's folder
    setup = {"files": [{"path": "a.csproj", "source": source}]}
    acts = {"name": "b", "prompt": "Go.", "setup": setup, "expect_tools": ["bash"], "rubric": []}
    acts["negative_assertions"] = ["It does not guess"]
    suite = Suite.load(written(tmp_path / "eval.yaml", {"scenarios": [scenario, acts]}))
    assert [dict(case.files) for case in suite.cases] == [
        {"App/App.csproj": "<Project />\n"},
        {"a.csproj": "<Project />\n"},
    ]
    assert checks_of(suite) == [
        [
            ("file_contains", {"path": "App/App.csproj", "text": "net10.0"}),
            ("min_length", 1),
            ("tool_called", "bash"),
            ("tool_not_called", "create_file"),
            ("max_turns", 10),
            ("skill_activated", False),
        ],
        [("tool_called", "bash")],
    ]
    left_out = list(notes_of(suite).left_out())
    assert [line.partition(" (")[0] for line in left_out] == [
        "file_contains: upskill looks at files by name, not by pattern",
        "max_tokens: reported for every run; set a limit with `--require`",
        "negative_assertions: upskill does not know this field",
    ]


def harbor_task(folder: Path, *, docker: str, test: str, toml: str = "", **files: str) -> None:
    written(
        folder / "task.toml",
        f'version = "1.0"\n{toml}\n[metadata]\ntags = ["files"]\ndifficulty = "easy"\n',
    )
    written(
        folder / "instruction.md",
        "Put the sum of /app/in/numbers.txt into `/app/out.txt`. Stay in /app, not in /apple.",
    )
    written(folder / "environment" / "Dockerfile", docker)
    written(folder / "tests" / "test.sh", test)
    for name, text in files.items():
        written(folder / "environment" / name, text)


SAME = "diff -q /app/out.txt /tests/want.txt >/dev/null"
REWARD = f"if {SAME}; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n"
PLAIN = """# A comment
FROM ubuntu:24.04
WORKDIR /app
RUN mkdir -p /app/in && \\
  touch /app/x
COPY numbers in/numbers.txt
"""


async def test_a_harbor_task_with_a_plain_image_runs_its_tests_in_the_sandbox(home: Path) -> None:
    harbor_task(
        Path("sum"),
        docker=PLAIN + "COPY skills /root/.claude/skills\n",
        test=REWARD,
        numbers="3\n4\n",
    )
    written(Path("sum/tests/want.txt"), "7\n")
    written(Path("sum/environment/skills/adds/SKILL.md"), "---\nname: adds\n---\n")
    suite = Suite.load("sum")
    (case,) = suite.cases
    assert (case.id, case.tags, dict(case.files)) == (
        "sum",
        ("files",),
        {"in/numbers.txt": "3\n4\n"},
    )
    assert case.prompt == "Put the sum of in/numbers.txt into `out.txt`. Stay in ., not in /apple."
    assert "skills: only the skill arm gets a skill (case 'sum')" in notes_of(suite).left_out()
    for answer, passed in ((7, True), (8, False)):
        failed = await CaseProbe(case, SandboxOpener()).failure_of(
            Script(run=f"echo {answer} > out.txt")
        )
        assert (failed is None) is passed, failed
    assert Suite.parse(suite.to_dict()).cases == suite.cases


INSTALLING = """#!/bin/bash
apt-get update && apt-get install -y curl && rm -rf /var/lib/apt/lists/*
curl -LsSf https://astral.sh/uv/0.9.5/install.sh | sh
source $HOME/.local/bin/env
uvx \\
  -p 3.13 \\
  -w pytest==8.4.1 \\
  -w pytest-json-ctrf==0.3.5 \\
  pytest --ctrf /logs/verifier/ctrf.json /tests/test_outputs.py -rA
if [ $? -eq 0 ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
"""


def test_tests_that_install_only_pytest_run_with_the_one_on_this_machine(tmp_path: Path) -> None:
    docker = (
        "FROM python:3.13-slim\nRUN apt-get update && \\\n  apt-get install -y git\nWORKDIR /app\n"
    )
    toml = "[verifier]\ntimeout_sec = 'soon'\n"
    task = tmp_path / "sum"
    harbor_task(
        task,
        docker=docker + "COPY *.txt in/\nCOPY .env ./\nCOPY b.txt c.txt\n",
        test=INSTALLING,
        toml=toml,
    )
    for name in ("a.txt", "b.txt", ".env"):
        written(task / "environment" / name, name)
    suite = Suite.load(tmp_path)
    (case,) = suite.cases
    files = {"in/a.txt": "a.txt", "in/b.txt": "b.txt", ".env": ".env", "c.txt": "b.txt"}
    assert dict(case.files) == files
    assert any(line.startswith("test.sh: installs nothing") for line in notes_of(suite).changed())
    ((_, command),) = checks_of(suite)[0]
    assert (command["needs"], command["timeout"]) == (["curl", "git", "pytest", "python3"], 600.0)
    assert case.outputs == ("**",)  # a task may change any of them
    script = command["files"]["test.sh"]
    assert "pytest /tests/test_outputs.py -rA\n" in script
    assert not re.search("apt-get|astral|uvx|ctrf", script)


def test_other_harbor_tasks_say_what_they_need(tmp_path: Path) -> None:
    for name, docker, test, toml in (
        ("a", "FROM acme/image:1\nWORKDIR /app\n", REWARD, ""),
        ("b", "FROM python:3.12\nRUN pip install numpy\nWORKDIR /app\n", REWARD, ""),
        (
            "c",
            "FROM python:3.12\nWORKDIR /app\n",
            "uvx --with scipy==1.1 pytest /tests\nnpx jest\n" + REWARD,
            "",
        ),
        ("d", "FROM ubuntu\nWORKDIR /app\nCOPY data /data\n", REWARD, ""),
        ("e", PLAIN, REWARD, "[verifier.env]\nAPI_KEY = 'x'\n"),
        ("f", PLAIN, "exit 0\n", ""),
        ("g", "FROM ubuntu\n", REWARD, ""),
        ("h", PLAIN, REWARD, "[[steps]]\nname = 'one'\n"),
        ("i", PLAIN, REWARD, "[verifier]\nenvironment_mode = 'separate'\n"),
        ("m", PLAIN, REWARD, "[verifier.environment]\ndocker_image = 'acme/tests'\n"),
        ("n", PLAIN, REWARD, "[[environment.nodes]]\nname = 'db'\n"),
        ("l", 'FROM ubuntu\nWORKDIR /app"; touch /tmp/x; "\n', REWARD, ""),
        ("j", "FROM ubuntu\nWORKDIR /app\nCOPY ../solution/solve.sh /etc/passwd ./\n", REWARD, ""),
        (
            "k",
            "FROM acme/image:1\nENV A=1\nWORKDIR /app\nRUN apt-get update && make all\n",
            "curl https://x.example/a\n",
            "",
        ),
        (
            *("z", "FROM python:3.12-slim\nENV A=1\nWORKDIR /app\nCOPY . .\n", REWARD),
            "artifacts = ['o']\n[agent]\ntimeout_sec = 6.0\n[verifier]\ntimeout_sec = 9.0\n[environment]\nuser = 'x'\n",
        ),
    ):
        harbor_task(tmp_path / name, docker=docker, test=test, toml=toml, data="x")
    suite = Suite.load(tmp_path)
    assert [(case.id, dict(case.files)) for case in suite.cases] == [("z", {"data": "x"})]
    ((_, command),) = checks_of(suite)[0]
    assert (command["needs"], command["timeout"]) == (["python3"], 9.0)
    others = {"agent.timeout_sec": 6.0, "environment.user": "x", "artifacts": ["o"]}
    assert suite.cases[0].metadata == {"difficulty": "easy", **others}
    left_out = "\n".join(notes_of(suite).left_out())
    for words in (
        *(
            "'a': it needs `FROM acme/image:1`",
            "'b': it installs numpy",
            "'c': its tests run `npx jest`; it installs scipy",
        ),
        *("'d': it copies data to /data", "'e': it needs the variable API_KEY"),
        *(
            "'f': it has no tests/test.sh that writes a reward",
            "2 cases (case 'g', case 'l'): it names no WORKDIR that can be used",
            "'h': it has several steps",
        ),
        "2 cases (case 'i', case 'm'): its tests need an image of their own",
        "'n': it needs nodes",
        "'j': it copies ../solution/solve.sh to /app/./, but there is no such file; it copies /etc/passwd to",
        "'k': it has no tests/test.sh that writes a reward; its tests run `curl https://x.example/a`; it needs",
        "it needs `FROM acme/image:1`; it needs `RUN make all`",
        "ENV: the sandbox sets no variables (case 'z')",
    ):
        assert words in left_out
