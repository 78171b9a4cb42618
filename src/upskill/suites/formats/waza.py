"""waza's `eval.yaml` and task files, and case files with `inputs` or an `input` object: tasks with graders."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from upskill.errors import UsageError
from upskill.plain import as_list, as_mapping, list_or_empty
from upskill.suites.formats import Draft, Format, Source, place_of
from upskill.suites.shapes import acting_checks, check_expected, mapping_or_empty, text_of, texts_of

_EXPRESSIONS = (
    "runs its own expressions; use a `python` check: `def check(answer, workspace, trace)`"
)
_REFUSED = {
    "code": _EXPRESSIONS,
    "inline_script": _EXPRESSIONS,
    "program": "runs its own program; use a `command` check",
    **dict.fromkeys(("prompt", "llm", "rubric"), "does not say what the judge should look for"),
}
_NO_CHECK = "upskill has no equivalent check"
_QUALIFIERS = {"negate", "negated", "not", "invert", "case_sensitive", "ignore_case", "flags"}
_STATEMENTS = ("rubric", "prompt", "criteria")
_TEXT_FIELDS = {  # the check, and whether upper and lower case are the same to it
    "contains": ("contains", True),
    "keywords": ("contains", True),
    "must_contain": ("contains", True),
    "contains_any": ("contains_any", True),
    "contains_cs": ("contains", False),
    "contains_any_cs": ("contains_any", False),
    "not_contains_cs": ("not_contains", False),
    "not_contains": ("not_contains", True),
    "must_not_contain": ("not_contains", True),
}
_PATTERN_FIELDS = {
    "regex_match": "regex",
    "must_match": "regex",
    "pattern": "regex",
    "regex_not_match": "not_regex",
    "must_not_match": "not_regex",
}
_USED = {
    *(
        "id",
        "case_id",
        "name",
        "description",
        "tags",
        "inputs",
        "input",
        "prompt",
        "expected",
        "graders",
    ),
    *("validators", "enabled", "skill", "context_dir", "timeout_seconds"),
}


def recognizes(data: object) -> bool:
    mapping = as_mapping(data)
    if mapping is None:
        return any(map(_is_task, list_or_empty(data)))
    graded = {"graders", "config", "skill", "metrics", "executor"} & set(mapping)
    return ("tasks" in mapping and bool(graded)) or _is_task(mapping)


def _is_task(item: object) -> bool:
    task = mapping_or_empty(item)
    inputs = as_mapping(task.get("inputs", task.get("input")))
    return inputs is not None and bool({"id", "case_id", "name"} & set(task))


def cases(source: Source) -> Iterator[Draft]:
    mapping = mapping_or_empty(source.data)
    is_suite = "tasks" in mapping
    tasks = _tasks(mapping.get("tasks"), source) if is_suite else _listed(source.data)
    shared = as_list(mapping.get("graders")) if is_suite else []
    for key in ("hooks", "mcp_servers"):
        if mapping.get(key):
            source.notes.leave_out(key, "nothing runs before or after a case")
    if is_suite and mapping.get("graders") and shared is None:
        source.notes.leave_out("graders", "not a list")
    if is_suite and mapping.get("metrics"):
        source.notes.leave_out("metrics", "set targets with `--require`")
    for number, task in enumerate(tasks, start=1):
        if task.get("enabled") is False:
            source.notes.leave_out("task", "disabled", place_of(number, task))
            continue
        yield _read(task, number, shared or [], source)


def _listed(data: object) -> Iterator[dict[str, Any]]:
    items = as_list(data)
    yield from (
        task for item in (items if items is not None else [data]) if (task := as_mapping(item))
    )


def _tasks(value: object, source: Source) -> Iterator[dict[str, Any]]:
    for item in list_or_empty(value):
        if (task := as_mapping(item)) is not None:
            yield task
            continue
        pattern = text_of(item).removeprefix("./")
        paths = source.matching(pattern)
        if not paths:
            source.notes.leave_out("tasks", f"no file matches {pattern}")
        for path in paths:
            try:
                yield from _listed(source.load(path))
            except UsageError as error:
                source.leave_out("tasks", error)


def _read(task: dict[str, Any], number: int, shared: list[Any], source: Source) -> Draft:
    draft = Draft(place_of(number, task), source.notes)
    draft.id = text_of(task.get("id") or task.get("case_id") or task.get("name")) or None
    inputs = mapping_or_empty(task.get("inputs", task.get("input")))
    draft.prompt = text_of(inputs.get("prompt") or task.get("prompt") or inputs.get("message"))
    draft.more["tags"] = texts_of(task.get("tags") or [])
    expected = as_mapping(task.get("expected"))
    if expected is not None:
        draft.checks += _expected(expected, draft)
    for item in [*(as_list(task.get("graders", task.get("validators"))) or []), *shared]:
        draft.checks += _grader(mapping_or_empty(item), draft)
    if expected is None:
        draft.checks += check_expected(task.get("expected"))
    if task.get("context_dir"):
        draft.leave_out("context_dir", "list a case's files in its `inputs`")
    for file in list_or_empty(inputs.get("files")):
        _add_file(as_mapping(file) or {"path": file}, draft, source)
    unused = {
        key: value for key, value in inputs.items() if key not in ("prompt", "files", "message")
    }
    draft.metadata = {key: value for key, value in task.items() if key not in _USED} | unused
    return draft


def _expected(expected: dict[str, Any], draft: Draft) -> Iterator[dict[str, Any]]:
    names = {
        "output_contains": "contains",
        "output_contains_any": "contains_any",
        "output_not_contains": "not_contains",
        "contains": "contains",
        "output": "contains",
    }
    for key, value in expected.items():
        if key in names and texts_of(value):
            yield {names[key]: texts_of(value)}
        elif key == "behavior":
            yield from _behavior(mapping_or_empty(value), draft)
        elif key not in ("outcomes", "status"):
            draft.leave_out(f"expected.{key}", _NO_CHECK)
        elif key == "status" or any(
            mapping_or_empty(outcome).get("type") != "task_completed"
            for outcome in list_or_empty(value)
        ):
            draft.leave_out(f"expected.{key}", "a trial passes when its checks pass")


def _behavior(behavior: dict[str, Any], draft: Draft) -> Iterator[dict[str, Any]]:
    for key, value in behavior.items():
        checks = acting_checks(key, value)
        yield from checks
        if not checks:
            draft.leave_out(f"behavior.{key}", "reported for every run")


def _grader(grader: dict[str, Any], draft: Draft) -> Iterator[dict[str, Any]]:
    kind = text_of(grader.get("type"))
    config = mapping_or_empty(grader.get("config")) | {
        key: grader[key] for key in ("rubric", "prompt") if key in grader
    }
    qualifiers = sorted(_QUALIFIERS & {*grader, *config})
    statement = next((key for key in _STATEMENTS if text_of(config.get(key)).strip()), "")
    used: set[str] = set(config)
    if qualifiers:
        draft.refuse(kind, qualifiers)
    elif kind in ("text", "regex", "keyword"):
        yield from _texts(config)
        used = {*_TEXT_FIELDS, *_PATTERN_FIELDS}
    elif kind in ("prompt", "llm", "rubric") and statement:
        yield {"judge": text_of(config[statement]).strip()}
        used = {statement}
    elif kind == "file":
        yield from _file(config, draft)
        used = {"must_exist", "must_not_exist", "content_patterns"}
    elif kind == "behavior":
        yield from _behavior(config, draft)
    elif kind == "json_schema" and as_mapping(config.get("schema")):
        yield {"json_schema": {"schema": config["schema"]}}
        used = {"schema"}
    elif kind == "tool_constraint":
        yield from _constraint(config, draft)
        used = {"expect_tools", "reject_tools"}
    else:
        draft.leave_out(kind or "a grader without a type", _REFUSED.get(kind, _NO_CHECK))
    for key in sorted(set(config) - used):
        draft.leave_out(f"{kind}.{key}", _NO_CHECK)
    for key in sorted(
        set(grader) - {"type", "name", "identifier", "config", "rubric", "prompt", *_QUALIFIERS}
    ):
        draft.leave_out(f"{key} in a grader", "every check must pass")


def _texts(config: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for key, (ours, ignore_case) in _TEXT_FIELDS.items():
        if texts := texts_of(config.get(key)):
            yield {ours: texts if ignore_case else {"text": texts, "ignore_case": False}}
    for key, ours in _PATTERN_FIELDS.items():
        yield from ({ours: pattern} for pattern in texts_of(config.get(key)))


def _file(config: dict[str, Any], draft: Draft) -> Iterator[dict[str, Any]]:
    if paths := texts_of(config.get("must_exist")):
        yield {"file_exists": paths}
    if config.get("must_not_exist"):
        draft.leave_out("file.must_not_exist", "use a `command` check: `test ! -e NAME`")
    for item in list_or_empty(config.get("content_patterns")):
        fields = mapping_or_empty(item)
        path = text_of(fields.get("path"))
        for pattern in texts_of(fields.get("must_match")):
            yield {"file_matches": {"path": path, "pattern": pattern}}
        if fields.get("must_not_match"):
            draft.leave_out("file.must_not_match", "use a `command` check: `! grep PATTERN NAME`")
        for key in sorted(set(fields) - {"path", "must_match", "must_not_match"}):
            draft.leave_out(f"file.content_patterns.{key}", _NO_CHECK)


def _constraint(config: dict[str, Any], draft: Draft) -> Iterator[dict[str, Any]]:
    for key, ours in (("expect_tools", "tool_called"), ("reject_tools", "tool_not_called")):
        for item in list_or_empty(config.get(key)):
            fields = as_mapping(item) or {"tool": item}
            if more := set(fields) - {"tool"}:
                draft.refuse(f"tool_constraint.{key}", more)
            else:
                yield {ours: text_of(fields.get("tool"))}


def _add_file(file: dict[str, Any], draft: Draft, source: Source) -> None:
    path = text_of(file.get("path"))
    files = draft.more.setdefault("files", {})
    if isinstance(file.get("content"), str):
        files[path] = file["content"]
        return
    folders = ("", "fixtures/", "tasks/", "context/")
    names = [
        folder + path
        for folder in folders
        if source.read_file and source.read_file(folder + path) is not None
    ]
    try:
        files[path] = source.read(names[0] if names else path, f"{source.where}: {draft.place}")
    except UsageError as error:
        draft.problem = error


FORMAT = Format("waza", recognizes, cases)
