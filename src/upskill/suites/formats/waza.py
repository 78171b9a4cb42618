"""waza's `eval.yaml` and task files, and case files with `inputs` or an `input` object: tasks with graders."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterator
from typing import Any

from upskill.errors import UsageError
from upskill.plain import as_list, as_mapping, list_or_empty
from upskill.suites.files import decode
from upskill.suites.formats import Draft, Format, Source, place_of
from upskill.suites.shapes import check_expected, mapping_or_empty, text_of, texts_of

Leave = Callable[[str, str], None]
_OTHERS = {
    "code": "runs expressions of its own; make them a `python` check: `def check(answer, workspace, trace)`",
    "inline_script": "runs expressions of its own; make them a `python` check: `def check(answer, workspace, trace)`",
    "program": "runs a program of its own; make it a `command` check",
}
_NO_CHECK = "no check of ours says the same"
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
    "validators",
    "enabled",
    "skill",
    "context_dir",
    "timeout_seconds",
}


def recognizes(said: object) -> bool:
    mapping = as_mapping(said)
    if mapping is not None:
        graded = {"graders", "config", "skill", "metrics", "executor"} & set(mapping)
        return ("tasks" in mapping and bool(graded)) or _is_task(mapping)
    items = list_or_empty(said)
    return bool(items) and any(map(_is_task, items))


def _is_task(item: object) -> bool:
    task = mapping_or_empty(item)
    given = as_mapping(task.get("inputs", task.get("input")))
    return given is not None and bool({"id", "case_id", "name"} & set(task))


def cases(source: Source) -> Iterator[Draft]:
    mapping = mapping_or_empty(source.said)
    whole = "tasks" in mapping
    tasks = _tasks(mapping.get("tasks"), source) if whole else _listed(source.said)
    shared = as_list(mapping.get("graders")) if whole else []
    for key in ("hooks", "mcp_servers"):
        if mapping.get(key):
            source.notes.leave_out(key, "nothing is run before or after a case")
    if whole and mapping.get("graders") and shared is None:
        source.notes.leave_out("graders", "is not a list")
    if whole and mapping.get("metrics"):
        source.notes.leave_out("metrics", "`--require` asks for what has to be reached")
    for number, task in enumerate(tasks, start=1):
        if task.get("enabled") is False:
            source.notes.leave_out("task", "is not enabled", place_of(number, task))
            continue
        yield _read(task, number, shared or [], source)


def _listed(said: object) -> Iterator[dict[str, Any]]:
    items = as_list(said)
    yield from (task for item in (items if items is not None else [said]) if (task := as_mapping(item)))


def _tasks(said: object, source: Source) -> Iterator[dict[str, Any]]:
    """The tasks of a suite: written out, or in files that a pattern names."""
    for item in list_or_empty(said):
        if (task := as_mapping(item)) is not None:
            yield task
            continue
        pattern = text_of(item).removeprefix("./")
        folder = pattern.partition("*")[0].rpartition("/")[0]
        paths = [path for path in source.below(folder or ".") if fnmatch.fnmatch(path, pattern)]
        if "*" not in pattern:
            paths = [pattern]
        if not paths:
            source.notes.leave_out("tasks", f"no file is called {pattern}")
        for path in paths:
            try:
                yield from _listed(decode(source.read(path).encode(), path))
            except UsageError as error:
                source.notes.leave_out("tasks", error.message.removeprefix(f"{source.where}: "))


def _read(task: dict[str, Any], number: int, shared: list[Any], source: Source) -> Draft:
    draft = Draft(place_of(number, task))
    draft.id = text_of(task.get("id") or task.get("case_id") or task.get("name")) or None
    given = mapping_or_empty(task.get("inputs", task.get("input")))
    draft.prompt = text_of(given.get("prompt") or task.get("prompt") or given.get("message"))
    draft.more["tags"] = texts_of(task.get("tags") or [])

    def leave_out(what: str, why: str) -> None:
        source.notes.leave_out(what, why, draft.place)

    expected = as_mapping(task.get("expected"))
    if expected is not None:
        draft.checks += _expected(expected, leave_out)
    for item in [*(as_list(task.get("graders", task.get("validators"))) or []), *shared]:
        draft.checks += _grader(mapping_or_empty(item), leave_out)
    if expected is None:
        draft.checks += check_expected(task.get("expected"))
    if task.get("context_dir"):
        leave_out("context_dir", "name the files of a case in its `inputs`")
    for file in list_or_empty(given.get("files")):
        _add_file(as_mapping(file) or {"path": file}, draft, source)
    left = {key: value for key, value in given.items() if key not in ("prompt", "files", "message")}
    draft.metadata = {key: value for key, value in task.items() if key not in _USED} | left
    return draft


def _expected(said: dict[str, Any], leave_out: Leave) -> Iterator[dict[str, Any]]:
    names = {
        "output_contains": "contains",
        "output_contains_any": "contains_any",
        "output_not_contains": "not_contains",
        "contains": "contains",
        "output": "contains",
    }
    for key, value in said.items():
        if key in names and texts_of(value):
            yield {names[key]: texts_of(value)}
        elif key == "behavior":
            yield from _behavior(mapping_or_empty(value), leave_out)
        elif key not in ("outcomes", "status"):
            leave_out(f"expected.{key}", _NO_CHECK)
        elif key == "status" or any(
            mapping_or_empty(one).get("type") != "task_completed" for one in list_or_empty(value)
        ):
            leave_out(f"expected.{key}", "a trial has passed when its checks have")


def _behavior(said: dict[str, Any], leave_out: Leave) -> Iterator[dict[str, Any]]:
    for key, value in said.items():
        if key == "required_tools":
            yield from ({"tool_called": tool} for tool in texts_of(value))
        elif key == "forbidden_tools":
            yield from ({"tool_not_called": tool} for tool in texts_of(value))
        elif key in ("max_iterations", "max_turns") and isinstance(value, int):
            yield {"max_turns": value}
        else:
            leave_out(f"behavior.{key}", "is reported for every run")


def _grader(said: dict[str, Any], leave_out: Leave) -> Iterator[dict[str, Any]]:
    kind = text_of(said.get("type"))
    config = mapping_or_empty(said.get("config")) | {key: said[key] for key in ("rubric", "prompt") if key in said}
    turned = sorted(_QUALIFIERS & {*said, *config})
    statement = next((key for key in _STATEMENTS if text_of(config.get(key)).strip()), "")
    used: set[str] = set(config)
    if turned:
        leave_out(kind, f"no check of ours has its field {turned[0]!r}")
    elif kind in ("text", "regex", "keyword"):
        yield from _text(config)
        used = {*_TEXT_FIELDS, *_PATTERN_FIELDS}
    elif kind in ("prompt", "llm", "rubric") and statement:
        yield {"judge": text_of(config[statement]).strip()}
        used = {statement}
    elif kind == "file":
        yield from _file(config, leave_out)
        used = {"must_exist", "must_not_exist", "content_patterns"}
    elif kind == "behavior":
        yield from _behavior(config, leave_out)
    elif kind == "json_schema" and as_mapping(config.get("schema")):
        yield {"json_schema": {"schema": config["schema"]}}
        used = {"schema"}
    elif kind == "tool_constraint":
        yield from _constraint(config, leave_out)
        used = {"expect_tools", "reject_tools"}
    else:
        why = "does not say what a judge looks for" if kind in ("prompt", "llm", "rubric") else _NO_CHECK
        leave_out(kind or "a grader without a type", _OTHERS.get(kind, why))
    for key in sorted(set(config) - used):
        leave_out(f"{kind}.{key}", _NO_CHECK)
    for key in sorted(set(said) - {"type", "name", "identifier", "config", "rubric", "prompt", *_QUALIFIERS}):
        leave_out(f"{key} of a grader", "every check has to hold, as it is")


def _text(config: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for key, (ours, blind) in _TEXT_FIELDS.items():
        if texts := texts_of(config.get(key)):
            yield {ours: texts if blind else {"text": texts, "ignore_case": False}}
    for key, ours in _PATTERN_FIELDS.items():
        yield from ({ours: pattern} for pattern in texts_of(config.get(key)))


def _file(config: dict[str, Any], leave_out: Leave) -> Iterator[dict[str, Any]]:
    if paths := texts_of(config.get("must_exist")):
        yield {"file_exists": paths}
    if config.get("must_not_exist"):
        leave_out("file.must_not_exist", "make it a `command` check: `test ! -e NAME`")
    for item in list_or_empty(config.get("content_patterns")):
        fields = mapping_or_empty(item)
        path = text_of(fields.get("path"))
        for pattern in texts_of(fields.get("must_match")):
            yield {"file_matches": {"path": path, "pattern": pattern}}
        if fields.get("must_not_match"):
            leave_out("file.must_not_match", "make it a `command` check: `! grep PATTERN NAME`")
        for key in sorted(set(fields) - {"path", "must_match", "must_not_match"}):
            leave_out(f"file.content_patterns.{key}", _NO_CHECK)


def _constraint(config: dict[str, Any], leave_out: Leave) -> Iterator[dict[str, Any]]:
    for key, ours in (("expect_tools", "tool_called"), ("reject_tools", "tool_not_called")):
        for item in list_or_empty(config.get(key)):
            fields = as_mapping(item) or {"tool": item}
            if more := sorted(set(fields) - {"tool"}):
                leave_out(f"tool_constraint.{key}", f"no check of ours has its field {more[0]!r}")
            else:
                yield {ours: text_of(fields.get("tool"))}


def _add_file(said: dict[str, Any], draft: Draft, source: Source) -> None:
    path = text_of(said.get("path"))
    files = draft.more.setdefault("files", {})
    place = f"{source.where}: {draft.place}"
    if isinstance(said.get("content"), str):
        files[path] = said["content"]
        return
    for folder in ("", "fixtures/", "tasks/", "context/"):
        if source.read_file and (data := source.read_file(folder + path)) is not None:
            try:
                files[path] = data.decode()
            except UnicodeDecodeError:
                draft.problem = UsageError(f"{place}: the file {path!r} is not UTF-8 text")
            return
    draft.problem = UsageError(f"{place}: the file {path!r} is not there", "Put it beside the suite.")


FORMAT = Format("waza", recognizes, cases)
