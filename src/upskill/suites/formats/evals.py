"""skill-creator's `evals.json`, dotnet/skills' `eval.yaml`, and files of the same kind: prompts with assertions, most
of them in words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from upskill.errors import UsageError
from upskill.plain import as_list, as_mapping, list_or_empty, short
from upskill.suites.formats import ONLY_ONE_ARM, ONLY_TRIGGERS, Draft, Format, Source, place_of
from upskill.suites.shapes import (
    ACTING,
    OurCase,
    acting_checks,
    check_path,
    mapping_or_empty,
    statement_of,
    text_of,
    texts_of,
    typed_checks,
)

LISTS = ("evals", "cases", "tests", "test_cases", "eval_cases", "testCases", "scenarios")
PROMPTS = ("prompt", "input", "query", "task", "user_prompt", "question")
ASSERTED = ("assertions", "expectations", "scorers", "graders", "rubric")
TEXTS = {  # fields with texts
    **dict.fromkeys(("must_contain", "must_include", "must_mention"), "contains"),
    **dict.fromkeys(("must_not_contain", "must_not_include", "must_not_mention"), "not_contains"),
}
UNCLEAR = {"must_have", "must_not_have"}
# A statement that says of one quoted text that the answer has it, and nothing more.
NAMED_TEXT = re.compile(
    r"(?:(?:the|its) )?(?:(?:answer|output|response|reply) )?(?:(?:must|should|does) )?(not )?"
    r"(?:contain|include|mention)s?(?: the)?(?: exact| literal)?(?: (?:text|string|word|phrase|term|line|flag))?"
    r" (?:`([^`]+)`|'([^']+)'|\"([^\"]+)\"|“([^”]+)”)\.?",
    re.IGNORECASE,
)
# Where a case asserts nothing: what else says in words how a good answer is, the first that is there.
BEHAVIOR = (
    *(
        "expected_behavior",
        "expected_behaviors",
        "expected_behaviour",
        "success_criteria",
        "acceptance_criteria",
    ),
    *("criteria", "evaluation_criteria", "expect", "expected_outcome", "expected_result", "should"),
)
OUTPUT = ("expected_output", "expected_outputs", "expected")
OURS = set(OurCase.model_fields) - {
    "id",
    "prompt",
    "files",
    "checks",
    "expected_output",
    "metadata",
}
TRIGGERS = ("should_trigger", "shouldTrigger")
MAX_FILES = 200  # files of a folder that a case names


def recognizes(data: object) -> bool:
    if isinstance(mapping_or_empty(data).get("evals"), list):
        return True
    return any(_is_judged(mapping_or_empty(item)) for item in _items(data))


def _is_judged(case: dict[str, Any]) -> bool:
    if "verifiers" in case or not any(isinstance(case.get(key), str) for key in PROMPTS):
        return False
    if {*ASSERTED, *TEXTS} & set(case) or isinstance(case.get("files"), list):
        return True
    return "checks" not in case and bool({*BEHAVIOR, *OUTPUT[:2], *TRIGGERS} & set(case))


def _items(data: object) -> list[Any]:
    mapping = mapping_or_empty(data)
    lists = [cases for key in LISTS if (cases := as_list(mapping.get(key)))]
    return as_list(data) or (lists[0] if lists else [])


def cases(source: Source) -> Iterator[Draft]:
    mapping = mapping_or_empty(source.data)
    known = {
        *LISTS,
        "skill_name",
        "skill",
        "name",
        "description",
        "version",
        "checks",
        "max_output_tokens",
        "metadata",
    }
    source.notes.keep(key for key in mapping if key not in known)
    for number, item in enumerate(_items(source.data), start=1):
        yield _read(item, number, source)


def _read(item: object, number: int, source: Source) -> Draft:
    case = as_mapping(item)
    if case is None:
        problem = UsageError(f"{source.where}: case {number}: expected a case, got {short(item)}")
        return Draft(f"case {number}", source.notes, problem=problem)
    if "scenarios" in mapping_or_empty(source.data) and (
        assertions := as_list(case.get("assertions"))
    ):
        case["assertions"] = [_as_validated(assertion) for assertion in assertions]
    draft = Draft(place_of(number, case), source.notes)
    prompt = next((key for key in PROMPTS if isinstance(case.get(key), str)), "")
    draft.prompt = str(case.get(prompt, ""))
    draft.id = case.get("id", case.get("name"))
    draft.more = {key: case[key] for key in OURS & set(case)} | {"tags": texts_of(case.get("tags"))}
    used = {prompt, "id", "name", "files", "setup", "checks", "expect_activation", "max_tokens"}
    used |= {*OURS, *ACTING, *_check(case, draft)}
    draft.keep(case, used)
    if as_mapping(draft.metadata.get("metadata")) is not None:  # a field of our own cases too
        draft.more["metadata"] = draft.metadata.pop("metadata")
    draft.checks += [check for field in ACTING for check in acting_checks(field, case.get(field))]
    if draft.checks:
        draft.checks += [
            {"skill_activated": case[key]} for key in ("expect_activation",) if key in case
        ]
    if case.get("max_tokens"):
        draft.leave_out("max_tokens", "reported for every run; set a limit with `--require`")
    if not draft.checks and set(TRIGGERS) & set(case):
        draft.nothing = ONLY_TRIGGERS
    try:
        setup = mapping_or_empty(case.get("setup"))
        if commands := sorted(set(setup) - {"files", "copy_test_files"}):
            problem = f"the setup has {commands[0]!r}, but a case can only have files"
            raise UsageError(problem, "Add the files that the setup creates.")
        where = f"{source.where}: {draft.place}"
        draft.more["files"] = _files(case.get("files", setup.get("files")), where, source)
        if setup.get("copy_test_files"):  # everything beside the suite
            beside = [
                path for path in source.below(".") if path != PurePosixPath(source.where).name
            ]
            draft.more["files"] |= {path: source.read(path, where) for path in beside}
    except UsageError as error:
        draft.problem = error
    return draft


def _check(case: dict[str, Any], draft: Draft) -> set[str]:
    """Fill in the checks; returns the names of the fields used."""
    checks = as_list(case.get("checks"))
    draft.checks += checks or []
    if checks is None and case.get("checks"):
        draft.leave_out("checks", "not a list")
    output = next((key for key in OUTPUT if statement_of(case.get(key))), "")
    if output == "expected_output":
        draft.more["expected_output"] = text_of(case[output])
    for key in ASSERTED:
        _add_statements(case.get(key), draft)
    draft.checks += [
        {check: texts} for key, check in TEXTS.items() if (texts := texts_of(case.get(key)))
    ]
    for key in UNCLEAR & set(case):
        draft.leave_out(key, "ambiguous: write `contains` for text or `regex` for patterns")
    used = {*ASSERTED, *TEXTS, *UNCLEAR, "expected_output"}
    if draft.checks:
        return used
    if behavior := next((key for key in BEHAVIOR if case.get(key)), ""):
        _add_statements(case[behavior], draft)
        used.add(behavior)
    if not draft.checks and output:
        expected = case[output]
        texts = as_list(expected)
        statement = (
            text_of(expected)
            if texts is None
            else "The answer has: " + "; ".join(map(text_of, texts))
        )
        draft.checks.append({"judge": statement})
        used.add(output)
    if draft.checks and any(case.get(key) for key in ASSERTED):
        instead = behavior if behavior in used else output
        draft.change(f"{instead}: a judge checks it instead of the assertions that were left out")
    return used


def _add_statements(value: object, draft: Draft) -> None:
    mapping = as_mapping(value)
    items = as_list(value)
    if items is None:
        items = (
            [value]
            if mapping is None
            else [mapping]
            if statement_of(mapping)
            else list(mapping.values())
        )
    for item in items:
        fields = as_mapping(item)
        if fields is None:
            draft.checks += [_stated(text, draft)] if (text := text_of(item).strip()) else []
            continue
        typed = typed_checks(fields)
        draft.checks += [
            _stated(check["judge"], draft) if "judge" in check else check for check in typed.checks
        ]
        if typed.refused:
            draft.leave_out(str(fields.get("type", "assertion")), typed.refused)
        for field in typed.unused:
            draft.leave_out(f"{field} in an assertion", "every check must pass")


def _as_validated(assertion: object) -> object:
    """As dotnet/skills' validator takes it: patterns ignore case, and `exit_success` is any answer at all."""
    fields = mapping_or_empty(assertion)
    if fields.get("type") == "exit_success":
        return {"type": "min_length", "value": 1}
    is_pattern = fields.get("type") in ("output_matches", "output_not_matches")
    return {"ignore_case": True, "multiline": False} | fields if is_pattern else assertion


def _stated(statement: str, draft: Draft) -> dict[str, Any]:
    """The check for a statement in words: a judge's, but for one that only names a text."""
    if (named := NAMED_TEXT.fullmatch(statement)) is None:
        return {"judge": statement}
    draft.change("statements that quote text: checked with `contains`, without a judge")
    return {"not_contains" if named[1] else "contains": next(filter(None, named.groups()[1:]))}


def _files(value: object, where: str, source: Source) -> dict[str, str]:
    mapping = as_mapping(value)
    if mapping is not None:
        return {path: text_of(text) for path, text in mapping.items()}
    files: dict[str, str] = {}
    for item in list_or_empty(value):
        fields = as_mapping(item) or {"path": item}
        path = fields.get("path", fields.get("name"))
        if not isinstance(path, str):
            raise UsageError(f"{where}: {short(item)} is not a file name")
        if isinstance(fields.get("content"), str):
            files[path] = fields["content"]
            continue
        check_path(path, where)
        if isinstance(fields.get("source"), str):
            # Some paths start at the skill; the file is beside the suite all the same.
            beside = fields["source"].partition(f"/{PurePosixPath(source.where).parent.name}/")[2]
            files[path] = source.read(beside or fields["source"], where)
            continue
        if PurePosixPath(path).name == "SKILL.md":
            source.notes.leave_out("SKILL.md", ONLY_ONE_ARM)
            continue
        for name in source.below(path)[:MAX_FILES] or [path]:
            files[str(PurePosixPath(name))] = source.read(name, where)
    return files


FORMAT = Format("cases in the evals.json format", recognizes, cases)
