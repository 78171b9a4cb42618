"""`.upskill/evals.json` of a skill repository: scenarios, each with a suite for some skills and judge criteria."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from upskill.errors import UsageError
from upskill.plain import as_list, list_or_empty
from upskill.suites.formats import Draft, Format, Source, place_of
from upskill.suites.shapes import (
    UpstreamCase,
    fit,
    from_upstream,
    mapping_or_empty,
    text_of,
    texts_of,
)


def recognizes(data: object) -> bool:
    scenarios = list_or_empty(mapping_or_empty(data).get("scenarios"))
    return bool(scenarios) and all("tests" in mapping_or_empty(item) for item in scenarios)


def cases(source: Source) -> Iterator[Draft]:
    listed = list_or_empty(mapping_or_empty(source.data).get("scenarios"))
    scenarios = [mapping_or_empty(item) for item in listed]
    skills = {
        PurePosixPath(skill).name
        for scenario in scenarios
        for skill in texts_of(scenario.get("skills"))
    }
    if len(skills) > 1:
        source.notes.change(f"cases for {len(skills)} skills share one suite, tagged by skill")
    for number, scenario in enumerate(scenarios, start=1):
        name = text_of(scenario.get("id")) or f"scenario-{number}"
        yield from _read(name, scenario, source)


def _read(name: str, scenario: dict[str, Any], source: Source) -> Iterator[Draft]:
    where = f"{source.where}: scenario {name!r}"
    tests = scenario.get("tests")
    try:
        data = source.load(tests, where) if isinstance(tests, str) else tests
    except UsageError as error:
        yield Draft(f"scenario {name!r}", source.notes, problem=error)
        return
    mapping = mapping_or_empty(data)
    items = as_list(data) or as_list(mapping.get("cases", mapping.get("tests"))) or []
    judge = mapping_or_empty(scenario.get("judge"))
    criteria = texts_of(judge.get("criteria") or []) if judge.get("enabled", True) else []
    tags = [name, *(PurePosixPath(skill).name for skill in texts_of(scenario.get("skills")))]
    known = ("id", "name", "description", "skills", "tests", "judge")
    source.notes.keep(f"scenarios.{key}" for key in scenario if key not in known)
    source.notes.keep(f"judge.{key}" for key in judge if key not in ("enabled", "criteria"))
    for number, item in enumerate(items, start=1):
        case = mapping_or_empty(item)
        draft = Draft(f"{name}, {place_of(number, case)}", source.notes)
        own = case.get("id")
        draft.id = (
            f"{name}-{own if own is not None else number}"
            if len(items) > 1 or own is not None
            else name
        )
        unused: list[str] = []
        try:
            ours = from_upstream(fit(UpstreamCase, case, f"{where}, case {number}"), where, unused)
        except UsageError as error:
            draft.problem = error
        else:
            draft.prompt, draft.checks = (
                ours.prompt,
                [*ours.checks, *({"judge": text} for text in criteria)],
            )
            draft.more = {"files": ours.files, "tags": list(dict.fromkeys([*tags, *ours.tags]))}
            for warning in unused:
                draft.leave_out(warning.removeprefix(f"{where}: "), "has no effect here")
            draft.more |= {
                "output_file": ours.output_file,
                "reference": ours.reference,
                "held_out": ours.held_out,
            }
        yield draft


FORMAT = Format("scenarios in .upskill/evals.json", recognizes, cases)
