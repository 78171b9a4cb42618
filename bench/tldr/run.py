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
from typing import Any

from build import HERE, OUT, hash_text, write_json
from cases import Documentation, make_cases
from pages import read_pages

from upskill import Evidence, Trace
from upskill.agents import SYSTEM
from upskill.authoring.material.material import gather
from upskill.authoring.writing import skill_writer
from upskill.authoring.writing.prompts import read_prompt
from upskill.checks.command_line import CommandLine
from upskill.errors import Paused
from upskill.models.handoff import HandoffModel
from upskill.models.prices import Price
from upskill.skills import estimate_tokens
from upskill.traces import Step
from upskill.verdicts.interval import paired_lift

FORMS = ("prose", "mix", "pairs", "lookup")
ARMS = {
    "qwen2.5-coder-1.5b": ("nothing", "prose", "mix", "head"),
    "qwen2.5-coder-0.5b": ("nothing", *FORMS, "head", "other"),
}
TEACHER = {"knows": "from memory", "ceiling": "with all of the documentation"}
MAX_SKILL_TOKENS, MAX_OUTPUT_TOKENS = 700, 256
ANSWERS = HERE / "answers.jsonl"


@dataclass
class Bench:
    cases: list[dict[str, Any]]

    @cached_property
    def tools(self) -> list[str]:
        return list(dict.fromkeys(case["group"] for case in self.cases))

    @cached_property
    def skills(self) -> dict[tuple[str, str], str]:
        files = [
            (form, tool, HERE / "skills" / form / f"{tool}.md")
            for form in FORMS
            for tool in self.tools
        ]
        return {(form, tool): file.read_text() for form, tool, file in files if file.exists()}

    def read_arm(self, arm: str, tool: str) -> str | None:
        """What stands in the system message beside upskill's own words; None if it is not written yet."""
        if arm == "nothing":
            return ""
        if arm in FORMS:
            return self.skills.get((arm, tool))
        own = self.skills.get(("mix", tool))
        if own is None:
            return None
        if arm == "head":
            documentation = read_documentation(tool)
            tokens = estimate_tokens(own)
            return max(
                (
                    documentation[:size]
                    for size in range(0, 4 * MAX_SKILL_TOKENS, 20)
                    if estimate_tokens(documentation[:size]) <= tokens
                ),
                key=len,
            )
        others = [
            (abs(estimate_tokens(text) - estimate_tokens(own)), text)
            for (form, other), text in self.skills.items()
            if form == "mix" and other != tool
        ]
        return min(others)[1]

    def list_requests(self) -> Iterator[dict[str, Any]]:
        for model, arms in ARMS.items():
            for arm in arms:
                for case in self.cases:
                    text = self.read_arm(arm, case["group"])
                    if text is not None:
                        system = f"{SYSTEM}\n\n{text}" if text else SYSTEM
                        prompt = case["prompt"]
                        key = f"{model} {arm} {case['id']}"
                        yield {
                            "key": key,
                            "hash": hash_text(system + prompt),
                            "model": model,
                            "system": system,
                            "prompt": prompt,
                            "max_tokens": MAX_OUTPUT_TOKENS,
                        }


def read_documentation(tool: str) -> str:
    return (OUT / "documentation" / f"{tool}.md").read_text()


def read_bench(clone: Path) -> Bench:
    """The cases of the development tools, from the clone and the facts that were recorded of their documentation."""
    facts = json.loads((HERE / "facts.json").read_text())
    pages = [page for page in read_pages(clone, Counter()) if page.name in facts]
    made = [make_cases(page, Documentation("", facts[page.name]), Counter()) for page in pages]
    return Bench([case.to_dict() for cases in made for case in cases])


async def write_skill(tool: str, form: str) -> str:
    """The skill, if the teacher has answered on the desk. Its prompt has the words of this form."""
    folder = OUT / "desk" / tool / form
    folder.mkdir(parents=True, exist_ok=True)
    (folder.parent / "documentation.md").write_text(read_documentation(tool))
    material = gather(
        f"Write the command line of {tool} that a request asks for.",
        sources=[folder.parent / "documentation.md"],
    )
    words = (HERE / "forms" / f"{form}.md").read_text()

    def read_form(name: str, **values: object) -> str:
        prompt = read_prompt(name, **values)
        return (
            f"{prompt.partition('How to write blocks')[0]}{words}"
            if name == "write_skill"
            else prompt
        )

    skill_writer.read_prompt = read_form
    teacher = HandoffModel("teacher", folder, Price(0, 0, 0, 0))
    try:
        draft = await skill_writer.write_skill(
            material, teacher, MAX_SKILL_TOKENS, file_tokens=0, opens_files=False, name=tool
        )
    finally:
        await teacher.close()
    if draft.skill.tokens > MAX_SKILL_TOKENS:
        raise SystemExit(
            f"{folder}: the skill has {draft.skill.tokens} tokens; shorten the answer to {MAX_SKILL_TOKENS}"
        )
    return draft.skill.body


async def ask_teacher(bench: Bench) -> None:
    """Writes what is asked of teachers, and the skills that they have answered with."""
    waiting = 0
    for tool in bench.tools:
        for form in FORMS:
            try:
                body = await write_skill(tool, form)
            except Paused:
                waiting += 1
                continue
            file = HERE / "skills" / form / f"{tool}.md"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(body)
        tasks = {case["id"]: case["prompt"] for case in bench.cases if case["group"] == tool}
        for name, words in TEACHER.items():
            intro = f"Answer each task {words}. Reply with a JSON object: by id, the command line."
            text = f"{intro}\n\n{json.dumps(tasks, indent=1)}\n"
            if name == "ceiling":
                text += f"\nThe documentation:\n\n{read_documentation(tool)}"
            file = OUT / "ceiling" / f"{tool}.{name}.prompt.md"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
    print(f"{waiting} skills are not written yet: answer the prompts below {OUT / 'desk'}")


def read_answers(bench: Bench, imported: list[Path]) -> dict[str, dict[str, str]]:
    """The recorded answers by key, with new ones of the embedded models and of the teacher."""
    lines = [
        line
        for file in (ANSWERS, *imported)
        if file.exists()
        for line in file.read_text().splitlines()
    ]
    answers = {record["key"]: record for record in map(json.loads, lines)}
    for file in (OUT / "ceiling").glob("*.answer.json"):
        name = file.name.split(".")[-3]
        for case, text in json.loads(file.read_text()).items():
            answers[f"teacher {name} {case}"] = {"key": f"teacher {name} {case}", "text": text}
    ANSWERS.write_text(
        "".join(json.dumps(answers[key], ensure_ascii=False) + "\n" for key in sorted(answers))
    )
    return answers


async def grade(bench: Bench, answers: dict[str, dict[str, str]]) -> dict[str, bool]:
    verdicts: dict[str, bool] = {}
    checks = {
        case["id"]: CommandLine.model_validate(case["checks"][0]["command_line"])
        for case in bench.cases
    }
    for key, record in answers.items():
        case = key.rpartition(" ")[2]
        if case in checks:
            evidence = Evidence(Trace((Step("assistant", record["text"]),)))
            verdicts[key] = (await checks[case].run(evidence)).passed
    return verdicts


def report(bench: Bench, verdicts: dict[str, bool]) -> None:
    """Rates with equal weight of tools; lift over nothing, and of mix over prose, with the interval over tools."""

    def compare(model: str, arm: str, base: str) -> str:
        cases = [
            case
            for case in bench.cases
            if all(f"{model} {each} {case['id']}" in verdicts for each in (arm, base))
        ]
        differences = [
            verdicts[f"{model} {arm} {case['id']}"] - verdicts[f"{model} {base} {case['id']}"]
            for case in cases
        ]
        lift = paired_lift(differences, [case["group"] for case in cases])
        return (
            f"{lift.value:+.0%} ({lift.low:+.0%} to {lift.high:+.0%}) over {base}" if cases else ""
        )

    for model, arms in (*ARMS.items(), ("teacher", tuple(TEACHER))):
        for arm in arms:
            passed: dict[str, list[bool]] = {}
            for case in bench.cases:
                if f"{model} {arm} {case['id']}" in verdicts:
                    passed.setdefault(case["group"], []).append(
                        verdicts[f"{model} {arm} {case['id']}"]
                    )
            if passed:
                rate = mean(mean(each) for each in passed.values())
                bases = {"nothing": (), "mix": ("nothing", "prose")}.get(arm, ("nothing",))
                lifts = "; ".join(filter(None, (compare(model, arm, base) for base in bases)))
                print(f"{model:20} {arm:8} {rate:4.0%} of {len(passed)} tools  {lifts}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", choices=("desk", "export", "report"))
    parser.add_argument("clone", type=Path, help="a clone of tldr with its history")
    parser.add_argument("answers", type=Path, nargs="*", help="files that answer.py wrote")
    parser.add_argument("--replay", action="store_true", help="compare with the recorded verdicts")
    arguments = parser.parse_args()
    bench = read_bench(arguments.clone)
    if arguments.step == "desk":
        asyncio.run(ask_teacher(bench))
    elif arguments.step == "export":
        for model in ARMS:
            lines = [
                json.dumps(request)
                for request in bench.list_requests()
                if request["model"] == model
            ]
            (OUT / f"requests-{model}.jsonl").write_text("\n".join(lines) + "\n")
            print(f"{len(lines)} requests in {OUT / f'requests-{model}.jsonl'}")
    else:
        verdicts = asyncio.run(grade(bench, read_answers(bench, arguments.answers)))
        recorded = HERE / "verdicts.json"
        if arguments.replay and json.loads(recorded.read_text()) != verdicts:
            raise SystemExit("the verdicts differ from the recorded ones")
        write_json(recorded, dict(sorted(verdicts.items())))
        report(bench, verdicts)


if __name__ == "__main__":
    main()
