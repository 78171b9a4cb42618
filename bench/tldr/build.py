"""Builds the benchmark: python bench/tldr/build.py CLONE. What it needs and writes stands in README.md."""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

from cases import Case, Documentation, make_cases
from documents import gather_all
from packages import identify_all
from pages import Page, read_pages

from upskill.sandboxes import choose_sandbox

HERE = Path(__file__).parent
OUT = HERE.parent / "out" / "tldr"
SIZES = {"development": 20, "sealed": 40}


def hash_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def write_json(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def describe(page: Page, text: str, cases: list[Case]) -> dict[str, Any]:
    """What is committed of a tool: hashes, no text."""
    hashed = hash_text(json.dumps([case.to_dict() for case in cases]))
    return {"tool": page.name, "page": page.path, "documentation": hash_text(text), "cases": hashed}


async def build(clone: Path) -> None:
    counts: Counter[str] = Counter()
    pages = read_pages(clone, counts)
    rows = identify_all(pages, OUT / "packages", HERE / "tools.csv")
    known = [rows[page.name] for page in pages if not rows[page.name]["reason"]]
    texts = await gather_all(known, (await choose_sandbox()).backend, OUT)
    parts: dict[str, list[dict[str, Any]]] = {name: [] for name in SIZES}
    suites: dict[str, list[dict[str, Any]]] = {name: [] for name in SIZES}
    facts: dict[str, dict[str, Any]] = {}
    projects: set[str] = set()
    for page in pages:
        row = rows[page.name]
        counts[f"package: {row['reason'] or row['source']}"] += 1
        part = next((name for name in SIZES if len(parts[name]) < SIZES[name]), "")
        if row["reason"] or not part:
            continue
        project = f"{row['source']} {row['evidence'].partition(': ')[0]}"
        if project in projects:
            counts["tool: another one of its package"] += 1
            continue
        if not texts[page.name]:
            counts["tool: too little documentation"] += 1
            continue
        documentation = Documentation(texts[page.name], {})
        cases = make_cases(page, documentation, counts)
        if cases:
            projects.add(project)
            parts[part].append(describe(page, documentation.text, cases))
            suites[part] += [case.to_dict() for case in cases]
            counts[f"tool: {part}"] += 1
            if part == "development":
                facts[page.name] = documentation.facts
    for part, cases in suites.items():
        write_json(OUT / f"{part}.json", {"cases": cases})
    write_json(HERE / "facts.json", facts)
    write_json(HERE / "build.json", {"counts": dict(sorted(counts.items())), **parts})
    for reason, count in sorted(counts.items()):
        print(f"{count:5} {reason}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("clone", type=Path, help="a clone of tldr with its history")
    asyncio.run(build(parser.parse_args().clone))
