"""Two people on their first day: one follows the README, the other brings what is already there."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from conftest import REPOSITORY, Upskill
from upskill import Suite

EVIDENCE = REPOSITORY / "tests" / "fixtures" / "evidence"
SESSIONS = (
    "claude_code/ferrule-release.jsonl",
    "codex/terraform-bucket.jsonl",
    "gemini/kube-rollout.jsonl",
)


def blocks_of(section: str, kind: str) -> list[str]:
    """The blocks of this kind below a heading of the README."""
    page = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    text = page.split(f"\n## {section}\n")[1].split("\n## ")[0]
    return re.findall(rf"^```{kind}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_whoever_follows_the_readme_reaches_a_verdict_on_a_skill_of_their_own(
    upskill: Upskill, home: Path, coder_weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UPSKILL_CACHE", str(coder_weights.parent.parent))
    environment, install, *commands = blocks_of("Test your own skill", "console")[0].splitlines()
    assert (environment[:15], install[:11]) == (
        "python3 -m venv",
        "pip install",
    )  # which is what has put upskill here
    assert commands == ["upskill init my-skill --yes", "upskill eval my-skill"]
    started, evaluated = (upskill(*shlex.split(command)[1:]) for command in commands)
    assert (started.code, evaluated.code) == (0, 0), (started, evaluated)
    verdict = (
        r"  ✓ helps on tasks like these: \+\d+ points \(\+\d+ to \+\d+\), 12 cases\n\n"
        r"  Model +Decision +Lift in points +Passes"
    )
    for printed in (evaluated.out.lstrip("\n"), blocks_of("Test your own skill", "text")[0]):
        assert re.match(verdict, printed), printed
    [suite] = blocks_of("Test your own skill", "yaml")
    assert len(suite.splitlines()) == 6
    (home / "my-skill/evals/suite.yaml").write_text(suite, encoding="utf-8")
    assert upskill("show", "last", "--failed").code == 0
    assert len(Suite.load(home / "my-skill/evals/suite.yaml").cases) == 2
    assert upskill("validate", "my-skill").out == "my-skill: valid\n"


def test_tests_and_sessions_that_are_already_there_are_taken_along(
    upskill: Upskill, home: Path
) -> None:
    assert upskill("init", "my-skill", "--yes").code == 0
    (home / "promptfooconfig.yaml").write_text(
        """
prompts: ["Answer in one line. {{question}}"]
providers: [openai:gpt-4o-mini]
tests:
  - {vars: {question: 'What makes a release with kiln?'}, assert: [{type: icontains, value: KILN FIRE}]}
  - {vars: {question: 'Where are the logs of kiln?'}, assert: [{type: javascript, value: output.length > 3}]}
""",
        encoding="utf-8",
    )
    asked = {
        "skill_name": "my-skill",
        "evals": [{"id": 1, "prompt": "Release it.", "assertions": [{"text": "Uses kiln."}]}],
    }
    (home / "evals.json").write_text(json.dumps(asked), encoding="utf-8")
    for file, cases in (("promptfooconfig.yaml", 1), ("evals.json", 1)):
        written = home / f"from-{file}.yaml"
        moved = upskill("import", file, "-o", written)
        assert moved.code == 0, moved
        assert "javascript" in moved.out + moved.err or file == "evals.json"
        assert len(Suite.load(written).cases) == cases
    for session in SESSIONS:
        shown = upskill("trace", "show", EVIDENCE / session)
        assert (shown.code, shown.out != "") == (0, True), shown
