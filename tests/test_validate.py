"""`upskill validate`: skills and folders of skills, everything that is wrong at once, and at little cost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from skills_ref.validator import validate

from conftest import Upskill, write_skill
from test_architecture import run_python
from upskill.errors import UsageError
from upskill.skills import Skill
from upskill.skills.markdown import read_fences
from upskill.skills.placebo import placebo
from upskill.skills.skill import missing_files
from upskill.suites import Suite

HEAD = "name: {name}\ndescription: Does things. Use it when asked.\n"


def write(folder: Path, head: str = HEAD, body: str = "Body.\n", close: str = "---") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    text = f"---\n{head.replace('{name}', folder.name)}{close}\n\n{body}"
    (folder / "SKILL.md").write_text(text, encoding="utf-8")
    return folder


def test_a_folder_of_skills_is_checked_skill_by_skill(upskill: Upskill, home: Path) -> None:
    for name in ("one", "group/two"):
        write(home / "skills" / name)
    write(home / "skills" / "three", "name: Three\ndescription: d\n")
    done = upskill("validate", "skills")
    assert done.code == 2
    assert "skills/group/two: valid\nskills/one: valid\nskills/three: invalid\n" in done.out
    assert done.out.endswith("3 skills: 2 valid, 1 invalid\n")
    rows = upskill("validate", "skills", "--json").json
    assert [(row["skill"], row["valid"]) for row in rows] == [
        ("skills/group/two", True),
        ("skills/one", True),
        ("skills/three", False),
    ]
    (home / "empty").mkdir()
    done = upskill("validate", "empty")
    assert (done.code, "empty: invalid\n  error: empty: has no SKILL.md" in done.out) == (2, True)


def test_a_skill_without_a_suite_is_checked_without_the_rest_of_upskill(home: Path) -> None:
    done = run_python("-X", "importtime", "-m", "upskill", "validate", str(write(home / "my-skill")))
    assert done.stdout.endswith("my-skill: valid\n")
    modules = [line.split("|")[-1].strip() for line in done.stderr.splitlines() if line.startswith("import time:")]
    heavy = ("pydantic", "pydantic_core", "rich", "aiohttp", "numpy", "asyncio", "sqlite3", "jsonschema", "regex")
    assert not [name for name in modules if name.split(".")[0] in heavy]
    assert not [name for name in modules if name.startswith(("upskill.suites", "upskill.runs", "upskill.models"))]


def test_every_problem_of_a_skill_is_reported_at_once(upskill: Upskill, home: Path) -> None:
    write(
        home / "Bad",
        "name: Bad_\ndescripton: d\nversion: '1'\nallowed_tools: Read\ncomplexity: low\n",
        "See [this](more.md).\n",
    )
    out = upskill("validate", "Bad").out
    for said in (
        "error: 'descripton' is not a field of the specification. Did you mean 'description'?",
        "error: 'allowed_tools' is not a field of the specification. Did you mean 'allowed-tools'?",
        "error: 'version' is a client's own field\n",
        "error: 'complexity' is not a field of the specification\n",
        "error: name 'Bad_' has capital letters",
        "error: name 'Bad_' differs from the folder's name",
        "error: description is missing",
        "warning: the instructions name more.md, and the skill has no such file\n",
    ):
        assert said in out, said


def test_a_skill_whose_suite_an_empty_answer_passes_is_invalid(upskill: Upskill, home: Path) -> None:
    cases = [{"id": f"c{number}", "prompt": f"Greet {number}."} for number in range(1, 6)]
    write_skill(home / "greeter", suite={"cases": cases, "checks": [{"max_length": 60}]})
    done = upskill("validate", "greeter")
    assert (done.code, done.out.splitlines()[0]) == (2, "greeter: invalid")
    assert done.out.count("an empty answer passes") == 1
    assert "suite error: 5 cases: an empty answer passes; add a check" in done.out
    assert "\n    'c1', 'c2', 'c3', 'c4', 'c5'\n    For example, 'c1': max_length passes (--json gives" in done.out
    (row,) = upskill("validate", "greeter", "--json", "--sarif", "found.sarif").json
    assert [problem["message"].split(" (")[0] for problem in row["suite_problems"] if problem["level"] == "error"] == [
        f"case 'c{number}': an empty answer passes" for number in range(1, 6)
    ]
    (sarif,) = json.loads((home / "found.sarif").read_text())["runs"]
    assert len(sarif["results"]) == len(row["suite_problems"])
    assert (row["valid"], row["suite_valid"], row["problems"]) == (False, False, [])
    write_skill(home / "greeter")
    for flags in ((), ("--suite",)):  # an older flag, for what is now always done
        done = upskill("validate", "greeter", *flags)
        assert (done.code, done.out.splitlines()[0]) == (0, "greeter: valid")


def test_every_problem_of_a_suite_is_reported_at_once(upskill: Upskill, home: Path) -> None:
    cases: list[dict[str, Any]] = [
        {"prompt": "Greet Ann.", "checks": [{"contain": "ahoy"}, {"regexp": "x"}]},
        {"promt": "Greet Bob.", "checks": [{"contains": "ahoy"}], "tag": ["a"]},
        {"prompt": "Greet Cy.", "checks": [{"contains": "ahoy"}]},
        {"prompt": "Greet Di.", "checks": []},
    ]
    write_skill(home / "greeter", suite={"cases": cases})
    done = upskill("validate", "greeter")
    assert done.code == 2
    assert done.out.startswith("greeter: invalid\n  suite error: ")
    for said in (
        "Did you mean 'contains'?",
        "Did you mean 'regex'?",
        "no field is called 'promt'. Did you mean 'prompt'?",
        "no field is called 'tag'. Did you mean 'tags'?",
        "case 2: has no prompt",
        "case 4: no checks",
    ):
        assert said in done.out, said
    (row,) = upskill("validate", "greeter", "--json").json
    assert (row["valid"], row["suite_valid"], row["problems"], len(row["suite_problems"])) == (False, False, [], 6)
    with pytest.raises(UsageError, match="'contain'") as error:
        Suite.of(Skill.load(home / "greeter"))
    assert "5 more problems; `upskill validate SKILL` lists them all." in error.value.hint


def test_the_profile_of_clients_takes_what_clients_take(upskill: Upskill, home: Path) -> None:
    more = (
        "version: 1.0.0\nhomepage: example.org\ntags: [a, b]\nauthor: me\ntriggers:\n  - x\nmy-own-field: 1\n"
        "metadata: {openclaw: {requires: {bins: [git]}}}\nallowed-tools: [Read, Bash]\n"
    )
    skill = write(home / "my-skill", HEAD + more)
    done = upskill("validate", "my-skill", "--profile", "clients")
    assert (done.code, done.out.count("warning: ")) == (0, 9)
    assert "warning: the frontmatter uses […]; write one `- item` a line\n" in done.out
    assert "warning: 'triggers' is a client's own field\n" in done.out
    assert "warning: 'my-own-field' is not a field of the specification\n" in done.out
    assert upskill("validate", "my-skill").code == 2
    assert validate(skill)
    write(home / "broken", "name: [my-skill]\nversion: 1\n")
    assert upskill("validate", "broken", "--profile", "clients").code == 2


def test_files_that_the_instructions_name_are_looked_for(home: Path) -> None:
    body = (
        "See [a](references/here.md#part) and [b](references/gone.md), [the web](https://x.org/y.md), [top](#top),\n"
        "[folder](references/), [a picture](../other/x.png), [space](my%20notes.md), `scripts/run.py`.\n\n"
        "`[code](in/code.md)` and scripts/{name}.py, assets/*.png, ~/scripts/mine.sh, project/scripts/theirs.py\n\n"
        "```bash\npython scripts/lost.py --to out.md\n[x](fenced.md)\n```\n"
    )
    skill = write(home / "my-skill", body=body)
    (skill / "references").mkdir()
    (skill / "references" / "here.md").write_text("x", encoding="utf-8")
    (skill / "my notes.md").write_text("x", encoding="utf-8")
    loaded = Skill.load(skill)
    assert missing_files(loaded.body, (file.path for file in loaded.files)) == [
        "references/gone.md",
        "scripts/run.py",
        "scripts/lost.py",
    ]
    assert not [problem for problem in loaded.problems() if problem.level == "error"]
    (warning,) = loaded.warnings
    assert warning == (
        "the instructions name references/gone.md, scripts/run.py, scripts/lost.py, and the skill has no such files"
    )


# Where the frontmatter ends is judged alike whatever the body says: a rule in it must not turn the verdict.
CLOSINGS = ("---", "-----", "--- and more", "  ---", "---  ", "---\t")


def test_what_closes_the_frontmatter_does_not_depend_on_rules_in_the_body(home: Path) -> None:
    for number, close in enumerate(CLOSINGS):
        for body in ("Body.\n", "Body.\n\n---\n\nMore.\n", "Body.\n\n-----\n\n| a |\n|---|\n"):
            skill = write(home / str(number) / "my-skill", body=body, close=close)
            assert Skill.load(skill).description == "Does things. Use it when asked.", (close, body)
            is_valid = not any(problem.level == "error" for problem in Skill.load(skill).problems())
            assert is_valid is (not validate(skill)), (close, body)
    tab = home / "tab" / "my-skill"
    write(tab)
    (tab / "SKILL.md").write_text((tab / "SKILL.md").read_text().replace("---\n", "---\t\n", 1), encoding="utf-8")
    assert validate(tab)
    assert [problem.level for problem in Skill.load(tab).problems()] == ["error"]
    assert [problem.level for problem in Skill.load(tab).problems("clients")] == ["warning"]


# Where a block of code ends is judged alike by all who read Markdown.


def test_a_block_of_code_ends_with_a_fence_of_its_own_kind_and_length(home: Path) -> None:
    shown = {
        "a longer fence": "````md\n```\n<!-- shown -->\n```\n<!-- shown -->\n````\n",
        "words after the dots": "```bash\nx\n``` is no end\n<!-- shown -->\n```\n",
        "another kind": "~~~\n```\n<!-- shown -->\n~~~\n",
        "never closed": "```\n<!-- shown -->\n",
        "spaces after it": "```\nx\n```  \nText.\n",
    }
    hidden = {
        "after the end": "```\nx\n````\n<!-- hidden -->\n",
        "no fence at all": "``` `x`\n<!-- hidden -->\n```\n",
        "too far in": "Text.\n\n        ```\n\n<!-- hidden -->\n",
    }
    for kind, body in (shown | hidden).items():
        found = Skill.load(write(home / "my-skill", body=body)).hidden_text
        assert bool(found) is (kind in hidden), kind
    kinds = [kind for _, kind in read_fences(["````", "```", "# a", "````", "~~~x", "```", "~~~"])]
    assert kinds == ["fence", "code", "code", "fence", "fence", "code", "fence"]


def test_a_placebo_keeps_blocks_of_every_kind(home: Path) -> None:
    body = "# Title\n\n~~~bash\nrun --it now\n~~~\n\n````md\n```\n# Not a heading\n```\n````\n\nSome prose here.\n"
    made = placebo(Skill.load(write(home / "my-skill", body=body))).body.split("\n")
    assert [line for line in made if line.startswith(("~~~", "````"))] == ["~~~bash", "~~~", "````md", "````"]
    assert not any(line == "```" for line in made)
    assert made[0].startswith("# ")


def test_what_is_wrong_with_many_cases_is_said_once(upskill: Upskill, tmp_path: Path) -> None:
    cases = [{"id": f"c{number}", "prompt": "Greet.", "checks": [{"min_length": 0}]} for number in range(23)]
    folder = write_skill(tmp_path / "greeter", suite={"cases": cases})
    done = upskill("validate", str(folder))
    assert done.code == 2
    assert done.out.count("suite error") == 1
    assert "23 cases: min_length.characters: Input should be" in done.out
    assert "    1 ('c0'), 2 ('c1'), 3 ('c2')," in done.out
    assert "23 ('c22')\n" in done.out
