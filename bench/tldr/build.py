"""Builds both parts of the benchmark. What that needs and writes stands in README.md."""

from __future__ import annotations

import csv
import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from cases import Case, Documentation, make_cases
from documents import Row, gather
from pages import Page, read_pages

from upskill.sandboxes import SandboxBackend, choose_sandbox

HERE = Path(__file__).parent
OUT = HERE.parent / "out" / "tldr"
DEVELOPMENT = 20  # tools; the rest is sealed


def hash_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def write_json(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def documentation_file(tool: str) -> Path:
    return OUT / "documentation" / f"{tool}.md"


class Tool(NamedTuple):
    page: Page
    documentation: Documentation
    cases: list[Case]

    def describe(self) -> dict[str, str]:
        """What is committed of a tool: hashes, no text."""
        return {
            "tool": self.page.name,
            "page": self.page.path,
            "documentation": hash_text(self.documentation.text),
            "cases": hash_text(json.dumps(self.cases)),
        }


async def read_documentation(row: Row, backend: SandboxBackend) -> str:
    """Gathered, unless it is there."""
    file = documentation_file(row["name"])
    if not file.exists():
        text = await gather(row, backend, OUT)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return file.read_text()


async def find_tools(pages: list[Page], counts: Counter[str]) -> list[Tool]:
    """The tools of both parts, in their order."""
    table = csv.DictReader((HERE / "tools.csv").read_text().splitlines())
    rows = {row["name"]: row for row in table}
    backend = (await choose_sandbox()).backend
    tools: list[Tool] = []
    projects: set[str] = set()
    for page in pages:
        row = rows[page.name]
        counts[f"package: {row['reason'] or row['source']}"] += 1
        if row["reason"]:
            continue
        project = f"{row['source']} {row['evidence'].partition(': ')[0]}"
        if project in projects:
            counts["tool: another one of its package"] += 1
            continue
        documentation = Documentation(await read_documentation(row, backend), {})
        if not documentation.text:
            counts["tool: too little documentation"] += 1
            continue
        cases = make_cases(page, documentation, counts)
        if cases:
            projects.add(project)
            tools.append(Tool(page, documentation, cases))
    return tools


async def build(clone: Path) -> None:
    counts: Counter[str] = Counter()
    tools = await find_tools(read_pages(clone, counts), counts)
    development = tools[:DEVELOPMENT]
    parts = {"development": development, "sealed": tools[DEVELOPMENT:]}
    described: dict[str, object] = {}
    for part, members in parts.items():
        counts[f"tool: {part}"] = len(members)
        cases = [case for tool in members for case in tool.cases]
        write_json(OUT / f"{part}.json", {"cases": cases})
        described[part] = [tool.describe() for tool in members]
    facts = {tool.page.name: tool.documentation.facts for tool in development}
    write_json(HERE / "facts.json", facts)
    write_json(HERE / "build.json", {"counts": dict(sorted(counts.items())), **described})
