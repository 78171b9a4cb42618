"""Arms are graded alike: what only the skill arm has on offer decides no check."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from upskill import Skill, Suite, evaluate, make_plan, open_store
from upskill.runs.planning.plan import PlanOptions

WRITES = "{calls: [{name: bash, arguments: {command: 'echo ahoy > out.txt'}}]}"
STUDENT = f"""
- system: greeter
  turns: [{{calls: [{{name: activate_skill, arguments: {{name: greeter}}}}]}}, {WRITES}, done]
- turns: [{WRITES}, done]
"""
HERE = "import os\ndef check(answer, workspace, trace):\n    return os.path.exists('/home/student/.agents')\n"
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


async def test_checks_see_nothing_of_the_home_folder_that_an_agent_worked_in(home: Path) -> None:
    made = "mkdir -p ~/app; echo x > ~/app/a; echo x > /tmp/b; echo x > c"
    student = f"- turns: [{{calls: [{{name: bash, arguments: {{command: '{made}'}}}}]}}, done]"
    Path("student.yaml").write_text(student, encoding="utf-8")
    case = {
        "prompt": "Work.",
        "checks": [{"command": {"run": "find /home/student /tmp -name '[a-c]'; ls; exit 1"}}],
    }
    plan = make_plan(
        Skill.new("greeter", "Greets.", "Say ahoy."),
        Suite.parse([case]),
        ["scripted:student.yaml"],
        PlanOptions(runs=1, agent="tools", keys={}),
    )
    with open_store(None) as store:
        run = (await evaluate(plan, store=store)).run
        seen = {result.trial.arm: result.findings[0].reason for result in store.results(run)}
    failed = "the command failed (expected exit code 0): exit code 1: c"
    assert seen == {"baseline": failed, "skill": failed}
