"""Tessl's scenarios: a folder each, with `task.md` and a checklist with weights in `criteria.json`."""

from __future__ import annotations

import re
from posixpath import join, normpath, relpath
from typing import Any

from upskill.errors import UsageError
from upskill.plain import as_mapping, list_or_empty
from upskill.suites.files import Folder
from upskill.suites.formats import Draft, Source, folder_format
from upskill.suites.shapes import mapping_or_empty, statement_of, text_of, texts_of

OWN = ("task.md", "criteria.json", "scenario.json")
ABOUT = ("capability.txt", "capability.text")
# The files that the section "Output Specification" names are what Tessl's scorer looks at.
OUTPUT = re.compile(r"^##+ [^\n]*\bOutput\b[^\n]*\n(.*?)(?=^#|\Z)", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"`((?!/|\.\./)[\w./-]*[\w-]\.\w{1,8})`")


def _folders(paths: Folder) -> list[str]:
    return [path for path in paths.having("criteria.json") if f"{path}task.md" in paths]


def _read(folder: str, paths: Folder, draft: Draft, source: Source) -> None:
    criteria = mapping_or_empty(source.load(f"{folder}criteria.json"))
    scenario = (
        mapping_or_empty(source.load(f"{folder}scenario.json"))
        if f"{folder}scenario.json" in paths
        else dict[str, Any]()
    )
    draft.prompt = source.read(f"{folder}task.md").strip()
    items = [
        as_mapping(item) or {"description": item}
        for item in list_or_empty(criteria.get("checklist"))
    ]
    items = [
        item | {"description": statement_of(item) or text_of(item.get("name"))} for item in items
    ]
    judge: dict[str, Any] = {
        "rubric": [item["description"] for item in items if item["description"]]
    }
    if len(judge["rubric"]) < len(items):
        draft.leave_out("an item in the checklist", "it has no text")
    unused = {
        field for item in items for field, value in item.items() if value != item["description"]
    }
    for field in sorted(unused - {"name", "max_score"}):
        draft.leave_out(f"{field} in the checklist", "the judge sees the description")
    outputs = [name for section in OUTPUT.findall(draft.prompt) for name in FILE.findall(section)]
    outputs = list(dict.fromkeys(outputs))
    if len(outputs) > 1:
        judge["files"] = outputs
    elif outputs:
        draft.more["output_file"] = outputs[0]
    if outputs:
        draft.change("the judge sees the files that “Output Specification” names")
    if judge["rubric"]:
        draft.checks = [{"judge": judge}]
    draft.note_weights(
        {
            text_of(item.get("name")) or item["description"]: item.get("max_score", 1)
            for item in items
        }
    )
    _add_files(folder, paths, scenario, draft, source)
    for fields, used in ((criteria, ("checklist", "type")), (scenario, ("include", "fixtures"))):
        draft.keep(fields, used)


def _add_files(
    folder: str, paths: Folder, scenario: dict[str, Any], draft: Draft, source: Source
) -> None:
    draft.more["files"] = source.files(paths, folder, *texts_of(scenario.get("include")))
    used = set(draft.more["files"])
    for fixture in map(mapping_or_empty, mapping_or_empty(scenario.get("fixtures")).values()):
        if fixture.get("type") != "directory":
            needed = (
                text_of(fixture.get("repoUrl"))
                or f"a fixture of type {text_of(fixture.get('type'))!r}"
            )
            raise UsageError(
                f"it needs {needed}, but a case can only have files", "Add the files to its folder."
            )
        files = source.files(paths, folder, root := text_of(fixture.get("path")))
        place = text_of(fixture.get("installPath")) or "."
        draft.more["files"] |= {
            normpath(join(place, relpath(name, normpath(root)))): text
            for name, text in files.items()
        }
        used |= set(files)
    if scenario.get("setup") or f"{folder}setup.sh" in paths:
        raise UsageError(
            "it has a setup script, but a case can only have files",
            "Add the files that it creates.",
        )
    for path in paths.below(folder):
        name = path.removeprefix(folder)
        if name in ABOUT:
            draft.metadata["capability"] = source.read(path).strip()
        elif name not in (*OWN, *used):
            draft.notes.leave_out(name, "scenario.json does not include it", draft.place)


FORMAT = folder_format("Tessl scenarios", _folders, _read)
