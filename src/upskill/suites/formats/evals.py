"""skill-creator's `evals.json`, and the files of the same kind that people write: prompts with what a judge looks for.

Assertions are texts, or objects with a `text`, or with a `type` that a check of ours has too. Everything else that a
case says is kept as metadata.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from upskill.errors import UsageError
from upskill.plain import as_list, as_mapping, list_or_empty, short
from upskill.suites.formats import Draft, Format, Source, place_of
from upskill.suites.shapes import (
    OurCase,
    check_path,
    mapping_or_empty,
    statement_of,
    text_of,
    text_reader,
    texts_of,
    typed_checks,
)

LISTS = ("evals", "cases", "tests", "test_cases", "eval_cases", "testCases")
PROMPTS = ("prompt", "input", "query", "task", "user_prompt", "question")
ASSERTED = ("assertions", "expectations")
# Where a case asserts nothing: what else says in words how a good answer is, the first that is there.
BEHAVIOR = (
    "expected_behavior",
    "expected_behaviors",
    "expected_behaviour",
    "success_criteria",
    "acceptance_criteria",
    "criteria",
    "evaluation_criteria",
    "rubric",
    "expect",
    "expected_outcome",
    "expected_result",
    "should",
)
OUTPUT = ("expected_output", "expected_outputs", "expected")
OURS = set(OurCase.model_fields) - {"id", "prompt", "files", "checks", "expected_output", "metadata"}
TRIGGERS = ("should_trigger", "shouldTrigger")
MAX_FILES = 200  # files of a folder that a case names


def recognizes(said: object) -> bool:
    mapping = as_mapping(said)
    if mapping and isinstance(mapping.get("evals"), list):
        return True
    cases = [case for item in _items(said) if (case := as_mapping(item))]
    return any(map(_is_judged, cases))


def _is_judged(case: dict[str, Any]) -> bool:
    if "verifiers" in case or not any(isinstance(case.get(key), str) for key in PROMPTS):
        return False
    if set(ASSERTED) & set(case) or isinstance(case.get("files"), list):
        return True
    return "checks" not in case and bool({*BEHAVIOR, *OUTPUT[:2], *TRIGGERS} & set(case))


def _items(said: object) -> list[Any]:
    items = as_list(said)
    mapping = mapping_or_empty(said)
    found = [cases for key in LISTS if (cases := as_list(mapping.get(key)))]
    return items if items is not None else found[0] if found else []


def cases(source: Source) -> Iterator[Draft]:
    mapping = mapping_or_empty(source.said)
    known = {*LISTS, "skill_name", "skill", "name", "description", "version", "checks", "max_output_tokens", "metadata"}
    source.notes.keep(key for key in mapping if key not in known)
    for number, item in enumerate(_items(source.said), start=1):
        yield _read(item, number, source)


def _read(item: object, number: int, source: Source) -> Draft:
    case = as_mapping(item)
    if case is None:
        problem = UsageError(f"{source.where}: case {number}: is not a case but {short(item)}")
        return Draft(f"case {number}", problem=problem)
    draft = Draft(place_of(number, case))
    prompt = next((key for key in PROMPTS if isinstance(case.get(key), str)), "")
    draft.prompt = str(case.get(prompt, ""))
    name = case.get("id", case.get("name"))
    draft.id = name if isinstance(name, str | int) and not isinstance(name, bool) else None
    draft.more = {key: case[key] for key in OURS & set(case)} | {"tags": texts_of(case.get("tags"))}
    used = {prompt, "id", "name", "files", "checks", *OURS, *_check(case, draft, source)}
    draft.metadata = {key: value for key, value in case.items() if key not in used and value not in (None, "", [], {})}
    if not draft.checks and set(TRIGGERS) & set(case):
        draft.nothing = "says when a skill fires, not what is answered; `upskill trigger` measures that"
    try:
        draft.more["files"] = _files(case.get("files"), f"{source.where}: {draft.place}", source)
    except UsageError as error:
        draft.problem = error
    return draft


def _check(case: dict[str, Any], draft: Draft, source: Source) -> set[str]:
    """Fill in the checks; the names of the fields that were used for them."""
    checks = as_list(case.get("checks"))
    draft.checks += checks or []
    if checks is None and case.get("checks"):
        source.notes.leave_out("checks", "is not a list", draft.place)
    output = next((key for key in OUTPUT if statement_of(case.get(key))), "")
    if output == "expected_output":
        draft.more["expected_output"] = text_of(case[output])
    for key in ASSERTED:
        _add_statements(case.get(key), draft, source)
    used = {*ASSERTED, "expected_output"}
    if draft.checks:
        return used
    if behavior := next((key for key in BEHAVIOR if case.get(key)), ""):
        _add_statements(case[behavior], draft, source)
        used.add(behavior)
    if not draft.checks and output:
        expected = case[output]
        texts = as_list(expected)
        said = text_of(expected) if texts is None else "The answer has: " + "; ".join(map(text_of, texts))
        draft.checks.append({"judge": said})
        used.add(output)
    if draft.checks and any(case.get(key) for key in ASSERTED):
        instead = behavior if behavior in used else output
        source.notes.change(f"{instead}: a judge looks for it in place of assertions that are left out", draft.place)
    return used


def _add_statements(said: object, draft: Draft, source: Source) -> None:
    mapping = as_mapping(said)
    items = as_list(said)
    if items is None:
        items = [said] if mapping is None else [mapping] if statement_of(mapping) else list(mapping.values())
    for item in items:
        fields = as_mapping(item)
        if fields is None:
            draft.checks += [{"judge": text}] if (text := text_of(item).strip()) else []
            continue
        kind = str(fields.get("type", "assertion"))
        found = typed_checks(fields)
        draft.checks += found.checks
        if found.refused:
            source.notes.leave_out(kind, found.refused, draft.place)
            draft.nothing = f"no assertion of it can be carried over: {kind}: {found.refused}"
        for field in found.unused:
            source.notes.leave_out(f"{field} of an assertion", "every check has to hold, as it is", draft.place)


def _files(said: object, place: str, source: Source) -> dict[str, str]:
    """The files that a case brings, with those of a folder that it names."""
    mapping = as_mapping(said)
    if mapping is not None:
        return {path: text_of(text) for path, text in mapping.items()}
    found: dict[str, str] = {}
    for item in list_or_empty(said):
        fields = as_mapping(item) or {"path": item}
        path = fields.get("path", fields.get("name"))
        if not isinstance(path, str):
            raise UsageError(f"{place}: {short(item)} is not the name of a file")
        if isinstance(fields.get("content"), str):
            found[path] = fields["content"]
            continue
        check_path(path, place)
        if PurePosixPath(path).name == "SKILL.md":
            source.notes.leave_out("SKILL.md", "a file that both arms have cannot be the skill that only one gets")
            continue
        inside = source.below(path)[:MAX_FILES]
        for each in inside or [path]:
            read = text_reader(source.read_file, place)(each)
            found[str(PurePosixPath(each))] = read
    return found


FORMAT = Format("skill-creator's evals.json", recognizes, cases)
