"""Arms are graded alike: what only the skill arm has on offer decides no check."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from upskill import Skill, Suite, evaluate, make_plan, open_store
from upskill.agents import AGENTS, Task
from upskill.agents.tools import Tools
from upskill.runs.planning.plan import PlanOptions
from upskill.sandboxes import Setup

WRITES = "{calls: [{name: bash, arguments: {command: 'echo ahoy > out.txt'}}]}"
STUDENT = f"""
- system: greeter
  turns: [{{calls: [{{name: activate_skill, arguments: {{name: greeter}}}}]}}, {WRITES}, done]
- turns: [{WRITES}, done]
"""
HERE = "import os\ndef check(answer, workspace, trace):\n    return os.path.exists('/home/student/.agents')\n"
OLDER = """import os
def check(answer, workspace, trace):
    return os.stat('/home/student').st_mtime < os.stat('out.txt').st_mtime
"""
SAW = (
    "def check(answer, workspace, trace):\n    return any('skill' in str(step) for step in trace)\n"
)
CHECKS: dict[str, dict[str, Any]] = {
    "a script of the skill": {
        "command": {"run": "sh ~student/.agents/skills/greeter/scripts/ok.sh"}
    },
    "its path": {"command": {"run": "sh /home/student/.agents/skills/greeter/scripts/ok.sh"}},
    "its SKILL.md anywhere": {
        "command": {"run": "find /home /tmp . -name SKILL.md 2>/dev/null | grep -q ."}
    },
    "the folder that held it": {"python": {"file": "check.py", "source": HERE}},
    "when that was removed": {"python": {"file": "check.py", "source": OLDER}},
    "a trace that shows it": {"python": {"file": "check.py", "source": SAW}},
    "calls that open it": {"tool_called": {"tool": ["bash", "activate_skill"], "at_least": 2}},
}


async def test_a_student_that_does_the_same_in_both_arms_gets_the_same_from_every_check(
    home: Path,
) -> None:
    skill = Skill.new("greeter", "Greets.", "Say ahoy.").with_file(
        "scripts/ok.sh", b"exit 0\n", executable=True
    )
    cases = [
        {"id": name.replace(" ", "-"), "prompt": f"Write out.txt ({name}).", "checks": [check]}
        for name, check in CHECKS.items()
    ]
    Path("student.yaml").write_text(STUDENT, encoding="utf-8")
    options = PlanOptions(runs=1, agent="tools", keys={})
    plan = make_plan(skill, Suite.parse(cases), ["scripted:student.yaml"], options)
    with open_store(None) as store:
        found = await evaluate(plan, store=store)
    assert {
        (row.case, row.arm): row.passed for row in found.outcomes if row.passed is not False
    } == {}
    assert all(row.activated for row in found.outcomes if row.arm == "skill")


async def test_checks_see_the_home_folder_without_what_an_agent_keeps_there_but_with_what_a_student_made(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Program(Tools):
        """As programs do: it has settings, and writes down what it was told."""

        def setup(self, task: Task) -> Setup:
            usual = super().setup(task)
            notes = {"sessions/all/log": str(task.skill and task.skill.body)}
            return replace(
                usual, home_files={**usual.home_files, **notes}, own_home=("sessions/all",)
            )

    def load(_: str) -> type[Program]:
        return Program

    monkeypatch.setattr(AGENTS, "load", load)
    made = "mkdir -p ~/app ~/skills/mine; echo x > ~/app/a; echo x > ~/skills/mine/b"
    student = f"- turns: [{{calls: [{{name: bash, arguments: {{command: '{made}'}}}}]}}, done]"
    Path("student.yaml").write_text(student, encoding="utf-8")
    source = """import os
def check(answer, workspace, trace):
    paths = sorted(os.path.join(top, name) for top, _, names in os.walk('/home/student') for name in names)
    return False, ' '.join(paths)
"""
    cases = [
        {
            "id": "a",
            "prompt": "Work.",
            "checks": [{"python": {"file": "check.py", "source": source}}],
        },
        {
            "id": "b",
            "prompt": "Tidy up sessions.",
            "checks": [{"python": {"file": "check.py", "source": source}}],
        },
    ]
    skill = Skill.new("greeter", "Greets.", "Say ahoy.")
    plan = make_plan(
        skill,
        Suite.parse(cases),
        ["scripted:student.yaml"],
        PlanOptions(runs=1, agent="tools", keys={}),
    )
    with open_store(None) as store:
        run = (await evaluate(plan, store=store)).run
        seen = {
            (result.trial.case, result.trial.arm): result.findings[0].reason
            for result in store.results(run)
        }
    own = "/home/student/app/a /home/student/skills/mine/b"
    assert {seen["a", arm] for arm in ("baseline", "skill")} == {own}
    assert {seen["b", arm] for arm in ("baseline", "skill")} == {
        own.replace(" ", " /home/student/sessions/all/log ")
    }
