"""Skills, requests and figures of the benchmark on the development tools: see README.md for the order of steps."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import mean

from build import HERE, OUT, write_json
from cases import Case, Documentation, make_cases
from pages import read_pages

from upskill import Evidence, Trace
from upskill import write_skill as write_skill_in_form
from upskill.agents import SYSTEM
from upskill.authoring.material.material import read_material
from upskill.authoring.writing.prompts import read_prompt
from upskill.checks.command_line import CommandLine
from upskill.errors import UsageError
from upskill.models.handoff import HandoffModel
from upskill.models.prices import Price
from upskill.skills import estimate_tokens
from upskill.traces import Step
from upskill.verdicts.interval import paired_lift

# By the file with its words: two are upskill's own.
FORMS = {"prose": "form_for_capable", "mix": "form_for_small", "pairs": "pairs", "lookup": "lookup"}
LENGTH = "\n- At most {} tokens in all, four characters to one: a program refuses more."
ARMS = {
    "qwen2.5-coder-1.5b": ("nothing", "prose", "mix", "head"),
    "qwen2.5-coder-0.5b": ("nothing", *FORMS, "head", "other"),
    "teacher": ("nothing", "documentation"),
}
MAX_SKILL_TOKENS, MAX_OUTPUT_TOKENS = 700, 256
ANSWERS, VERDICTS = HERE / "answers.json", HERE / "verdicts.json"


@dataclass
class Bench:
    cases: dict[str, list[Case]]  # by tool

    @cached_property
    def skills(self) -> dict[str, dict[str, str]]:
        """By form and tool."""
        folders = {form: HERE / "skills" / form for form in FORMS}
        return {
            form: {file.stem: file.read_text() for file in folder.glob("*.md")}
            for form, folder in folders.items()
        }

    def read_arm(self, arm: str, tool: str) -> str:
        """What stands in the system message beside upskill's own words."""
        if arm == "nothing":
            return ""
        if arm == "documentation":
            return read_documentation(tool)
        if arm in FORMS:
            return self.skills[arm][tool]
        mixes = dict(self.skills["mix"])
        tokens = estimate_tokens(mixes.pop(tool))
        if arm == "other":
            return min(mixes.values(), key=lambda text: abs(estimate_tokens(text) - tokens))
        head = read_documentation(tool)
        while estimate_tokens(head) > tokens:
            head = head[:-20]
        return head

    def export(self) -> None:
        for model, arms in ARMS.items():
            for arm in arms:
                if self.is_written(arm):
                    self.export_arm(model, arm)

    def is_written(self, arm: str) -> bool:
        needed = arm if arm in FORMS else "mix" if arm in ("head", "other") else ""
        return not needed or self.skills[needed].keys() >= self.cases.keys()

    def export_arm(self, model: str, arm: str) -> None:
        for tool, cases in self.cases.items():
            system = f"{SYSTEM}\n\n{self.read_arm(arm, tool)}".strip()
            prompts = {case.id: case.prompt for case in cases}
            request = {
                "system": system,
                "max_tokens": MAX_OUTPUT_TOKENS,
                "prompts": prompts,
            }
            write_json(OUT / "requests" / model / arm / f"{tool}.json", request)

    def read_answers(self) -> dict[str, str]:
        """The recorded answers by model, arm and case, with those that were written since."""
        answers: dict[str, str] = json.loads(ANSWERS.read_text()) if ANSWERS.exists() else {}
        for file in (OUT / "answers").glob("*/*.json"):
            arm = file.name.partition(".")[0]
            texts = json.loads(file.read_text())
            answers |= {f"{file.parent.name}/{arm}/{case}": text for case, text in texts.items()}
        return dict(sorted(answers.items()))

    async def grade(self, answers: dict[str, str]) -> dict[str, bool]:
        checks = {
            case.id: CommandLine.model_validate(case.check)
            for cases in self.cases.values()
            for case in cases
        }
        verdicts: dict[str, bool] = {}
        for key, text in answers.items():
            evidence = Evidence(Trace((Step("assistant", text),)))
            verdicts[key] = (await checks[key.rpartition("/")[2]].run(evidence)).passed
        return verdicts

    def report(self, verdicts: dict[str, bool]) -> Iterator[str]:
        """Rates with equal weight of tools, and lifts with intervals over tools."""
        for model, arms in ARMS.items():
            passed: dict[str, dict[str, list[bool]]] = {}  # by arm and tool
            for arm in arms:
                keys = {
                    tool: [f"{model}/{arm}/{case.id}" for case in cases]
                    for tool, cases in self.cases.items()
                }
                if verdicts.keys() >= {key for tool in keys.values() for key in tool}:
                    passed[arm] = {tool: [verdicts[key] for key in keys[tool]] for tool in keys}
            for arm, by_tool in passed.items():
                line = f"{model:20} {arm:14} {mean(map(mean, by_tool.values())):4.0%}"
                for base in ("nothing", "prose") if arm == "mix" else ("nothing",):
                    if base in passed and base != arm:
                        differences = {
                            tool: mean(by_tool[tool]) - mean(passed[base][tool]) for tool in by_tool
                        }
                        lift = paired_lift([*differences.values()], differences)
                        line += (
                            f"  {lift.value:+.0%} ({lift.low:+.0%} to {lift.high:+.0%}) over {base}"
                        )
                yield line


def read_documentation(tool: str) -> str:
    return (OUT / "documentation" / f"{tool}.md").read_text()


def read_bench(clone: Path) -> Bench:
    """The cases of the development tools, from the clone and what the build recorded of their documentation."""
    facts = json.loads((HERE / "facts.json").read_text())
    pages = [page for page in read_pages(clone, Counter()) if page.name in facts]
    return Bench(
        {
            page.name: make_cases(page, Documentation("", facts[page.name]), Counter())
            for page in pages
        }
    )


async def write_skill(tool: str, form: str) -> str:
    """The skill, if the teacher has answered on the desk. Its prompt has the words of this form."""
    folder = OUT / "desk" / tool / form
    folder.mkdir(parents=True, exist_ok=True)
    task = f"Write the command line of {tool} that a request asks for."
    material = read_material(task, sources=[OUT / "documentation" / f"{tool}.md"])

    own = HERE / "forms" / f"{form}.md"
    words = own.read_text() if own.exists() else read_prompt(FORMS[form])
    name = tool.replace("_", "-")
    teacher = HandoffModel("teacher", folder, Price(0, 0, 0, 0))
    try:
        draft = await write_skill_in_form(
            material,
            teacher,
            MAX_SKILL_TOKENS,
            file_tokens=0,
            opens_files=False,
            form=words.strip() + LENGTH.format(MAX_SKILL_TOKENS),
            name=name,
            repairs=0,
        )
    finally:
        await teacher.close()
    if draft.skill.tokens > MAX_SKILL_TOKENS:
        raise UsageError(
            f"{folder}: {draft.skill.tokens} tokens, at most {MAX_SKILL_TOKENS} are allowed"
        )
    return draft.skill.body


async def write_skills(tools: list[str]) -> None:
    waiting: list[str] = []
    for tool in tools:
        for form in FORMS:
            try:
                body = await write_skill(tool, form)
            except UsageError as error:  # no answer yet, or one that cannot be used
                waiting.append(error.message)
                continue
            file = HERE / "skills" / form / f"{tool}.md"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{body.strip()}\n")
    print(
        "\n".join(
            [*waiting, f"{len(waiting)} of {len(FORMS) * len(tools)} skills are not written yet."]
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", choices=("skills", "export", "report", "replay"))
    parser.add_argument("clone", type=Path, help="a clone of tldr with its history")
    arguments = parser.parse_args()
    bench = read_bench(arguments.clone)
    if arguments.step == "skills":
        asyncio.run(write_skills([*bench.cases]))
    elif arguments.step == "export":
        bench.export()
    elif arguments.step == "report":
        write_json(ANSWERS, bench.read_answers())
        write_json(VERDICTS, asyncio.run(bench.grade(bench.read_answers())))
    if arguments.step in ("report", "replay"):
        verdicts = asyncio.run(bench.grade(json.loads(ANSWERS.read_text())))
        if verdicts != json.loads(VERDICTS.read_text()):
            raise SystemExit("The verdicts differ from the recorded ones.")
        print("\n".join(bench.report(verdicts)))


if __name__ == "__main__":
    main()
