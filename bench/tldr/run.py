"""Builds the benchmark, asks its teachers and students, and computes its figures. README.md has the order of steps.

python bench/tldr/run.py build|skills|answer|replay CLONE
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from operator import sub
from pathlib import Path
from statistics import mean

from build import HERE, OUT, build, documentation_file, write_json
from cases import Case, Documentation, make_cases
from pages import read_page

from upskill import Evidence, Models, Trace, read_material, write_skill
from upskill.agents import SYSTEM
from upskill.authoring.writing.prompts import read_prompt
from upskill.checks.command_line import CommandLine
from upskill.errors import UsageError
from upskill.models import Message, Request
from upskill.models.addresses import resolve
from upskill.skills import estimate_tokens
from upskill.traces import Step
from upskill.verdicts.interval import paired_lift

DESK = OUT / "desk"
ANSWERS, VERDICTS = HERE / "answers.json", HERE / "verdicts.json"
FORMS = ("prose", "mix", "pairs", "lookup")
LENGTH = "\n- At most {} tokens in all, four characters to one: a program refuses more."
MAX_SKILL_TOKENS, MAX_OUTPUT_TOKENS = 700, 256
ADDRESSES = {
    "qwen2.5-coder-1.5b": "local:qwen2.5-coder-1.5b",
    "qwen2.5-coder-0.5b": "local:qwen2.5-coder-0.5b",
    "teacher": f"handoff:{DESK / 'answers'}",
}
ARMS = {
    "qwen2.5-coder-1.5b": ("nothing", "prose", "mix", "head"),
    "qwen2.5-coder-0.5b": ("nothing", *FORMS, "head", "other"),
    "teacher": ("nothing", "documentation"),
}


def read_cases(clone: Path) -> list[Case]:
    """Of the development tools, from the clone and what the build recorded of their documentation."""
    facts = json.loads((HERE / "facts.json").read_text())
    cases: list[Case] = []
    for tool in json.loads((HERE / "build.json").read_text())["development"]:
        page = read_page(clone, tool["page"])
        cases += make_cases(page, Documentation("", facts[page.name]), Counter())
    return cases


# Skills
# ------------------------------------------------------------------------------------------------


def skill_file(form: str, tool: str) -> Path:
    return HERE / "skills" / form / f"{tool}.md"


async def write_in_form(tool: str, form: str, models: Models) -> None:
    """Write the skill, if the teacher has answered on the desk."""
    if form == "prose":  # upskill's own
        words = read_prompt("form_for_capable")
    else:
        words = (HERE / "forms" / f"{form}.md").read_text()
    task = f"Write the command line of {tool} that a request asks for."
    material = read_material(task, sources=[documentation_file(tool)])
    address = resolve(f"handoff:{DESK / tool / form}")
    draft = await write_skill(
        material,
        await models.get(address, "teacher"),
        MAX_SKILL_TOKENS,
        file_tokens=0,
        opens_files=False,
        form=words.strip() + LENGTH.format(MAX_SKILL_TOKENS),
        name=tool.replace("_", "-"),
        repairs=0,
    )
    if draft.skill.tokens > MAX_SKILL_TOKENS:
        raise UsageError(
            f"{address.model}: {draft.skill.tokens} tokens, at most {MAX_SKILL_TOKENS} are allowed"
        )
    file = skill_file(form, tool)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{draft.skill.body.strip()}\n")


async def write_skills(clone: Path) -> None:
    tools = {case["group"]: None for case in read_cases(clone)}
    async with Models() as models:
        for tool in tools:
            for form in FORMS:
                try:
                    await write_in_form(tool, form, models)
                except UsageError as error:  # no answer yet, or one that cannot be used
                    print(error.message)


# Answers
# ------------------------------------------------------------------------------------------------


def read_arm(arm: str, tool: str) -> str:
    """What stands in the system message beside upskill's own words."""
    if arm == "nothing":
        return ""
    if arm == "documentation":
        return documentation_file(tool).read_text()
    if arm in FORMS:
        return skill_file(arm, tool).read_text()
    mix = skill_file("mix", tool)
    tokens = estimate_tokens(mix.read_text())
    if arm == "other":
        mixes = [file.read_text() for file in sorted(mix.parent.iterdir()) if file != mix]
        return min(mixes, key=lambda text: abs(estimate_tokens(text) - tokens))
    head = documentation_file(tool).read_text()
    while estimate_tokens(head) > tokens:
        head = head[:-20]
    return head


async def ask(name: str, arm: str, case: Case, models: Models, answers: dict[str, str]) -> None:
    key = f"{name}/{arm}/{case['id']}"
    if key in answers:
        return
    model = await models.get(resolve(ADDRESSES[name]))
    system = f"{SYSTEM}\n\n{read_arm(arm, case['group'])}".strip()
    messages = (Message("system", system), Message("user", case["prompt"]))
    reply = await model.reply(Request(messages, MAX_OUTPUT_TOKENS, temperature=0.0, seed=0))
    answers[key] = reply.text
    write_json(ANSWERS, dict(sorted(answers.items())))


async def answer(clone: Path) -> None:
    """Ask the models what has no recorded answer."""
    cases = read_cases(clone)
    answers = json.loads(ANSWERS.read_text())
    async with Models() as models:
        for name, arms in ARMS.items():
            asked = [ask(name, arm, case, models, answers) for arm in arms for case in cases]
            for problem in await asyncio.gather(*asked, return_exceptions=True):
                if problem:
                    print(problem)
    write_json(VERDICTS, await grade(cases))


# Figures
# ------------------------------------------------------------------------------------------------


async def grade(cases: list[Case]) -> dict[str, bool]:
    checks: dict[str, CommandLine] = {}
    for case in cases:
        checks[case["id"]] = CommandLine.model_validate(case["checks"][0]["command_line"])
    verdicts: dict[str, bool] = {}
    for key, text in json.loads(ANSWERS.read_text()).items():
        evidence = Evidence(Trace((Step("assistant", text),)))
        verdicts[key] = (await checks[key.rpartition("/")[2]].run(evidence)).passed
    return verdicts


def report(cases: list[Case], verdicts: dict[str, bool]) -> Iterator[str]:
    """Rates with equal weight of tools, and lifts with intervals over tools."""
    for model, arms in ARMS.items():
        rates: dict[str, list[float]] = {}  # of each tool, by arm
        for arm in arms:
            passed: defaultdict[str, list[bool]] = defaultdict(list)
            for case in cases:
                passed[case["group"]].append(verdicts[f"{model}/{arm}/{case['id']}"])
            own = [*map(mean, passed.values())]
            line = f"{model:20} {arm:14} {mean(own):4.0%}"
            for base in ("nothing", "prose") if arm == "mix" else ("nothing",):
                if base in rates:
                    differences = map(sub, own, rates[base])
                    lift = paired_lift([*differences], passed)
                    line += f"  {lift.value:+.0%} ({lift.low:+.0%} to {lift.high:+.0%}) over {base}"
            rates[arm] = own
            yield line


async def replay(clone: Path) -> None:
    cases = read_cases(clone)
    verdicts = await grade(cases)
    if verdicts != json.loads(VERDICTS.read_text()):
        raise SystemExit("The verdicts differ from the recorded ones.")
    print("\n".join(report(cases, verdicts)))


if __name__ == "__main__":
    steps = {"build": build, "skills": write_skills, "answer": answer, "replay": replay}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", choices=steps)
    parser.add_argument("clone", type=Path, help="a clone of tldr with its history")
    arguments = parser.parse_args()
    asyncio.run(steps[arguments.step](arguments.clone))
