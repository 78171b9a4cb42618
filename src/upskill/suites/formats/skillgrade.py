"""skillgrade's `eval.yaml`: tasks with an instruction, files for the workspace, and graders with weights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from upskill.errors import UsageError
from upskill.plain import as_mapping, list_or_empty
from upskill.suites.formats import ONLY_ONE_ARM, Draft, Format, Source, place_of
from upskill.suites.installs import TOOLS, fetching_lines, missing_packages, without_installs
from upskill.suites.shapes import mapping_or_empty, meets, text_of

FULL_SCORE = r'"score"\s*:\s*("?)1(?:\.0*)?\1\s*[,}]'
PROGRAMS = ("node", "python3", "python", "ruby", "go", "npx", "tsx", "bun", "deno", "jq")


def recognizes(data: object) -> bool:
    tasks = [mapping_or_empty(task) for task in list_or_empty(mapping_or_empty(data).get("tasks"))]
    return any("instruction" in task and "graders" in task for task in tasks)


def cases(source: Source) -> Iterator[Draft]:
    mapping = mapping_or_empty(source.data)
    defaults = mapping_or_empty(mapping.get("defaults"))
    shared = {key: defaults.get(key) for key in ("docker", "trialConfig")}
    source.notes.keep(f"defaults.{key}" for key in defaults if key not in shared)
    source.notes.keep(
        key for key in mapping if key not in ("version", "skill", "defaults", "tasks")
    )
    for number, item in enumerate(list_or_empty(mapping.get("tasks")), start=1):
        task = mapping_or_empty(item)
        draft = Draft(place_of(number, task), source.notes, id=text_of(task.get("name")) or None)
        try:
            _read(shared | task, draft, source)
        except UsageError as error:
            draft.problem = error
        yield draft


def _read(task: dict[str, Any], draft: Draft, source: Source) -> None:
    draft.prompt = source.text_or_file(task.get("instruction")).strip()
    files: dict[str, str] = {}
    for item in list_or_empty(task.get("workspace")):
        fields = as_mapping(item) or {"src": item, "dest": PurePosixPath(text_of(item)).name}
        path = text_of(fields.get("dest")).removeprefix("/workspace/").removeprefix("./")
        if PurePosixPath(path).name == "SKILL.md":
            draft.leave_out("SKILL.md", ONLY_ONE_ARM)
            continue
        files[path] = source.read(
            text_of(fields.get("src")).removeprefix("./"), f"{source.where}: {draft.place}"
        )
        if fields.get("chmod"):
            draft.leave_out(
                "chmod", "the files in a case are not executable; the prompt can say `bash FILE`"
            )
    draft.more["files"] = files
    graders = [mapping_or_empty(grader) for grader in list_or_empty(task.get("graders"))]
    needed = _read_setup([task.get("docker"), task.get("trialConfig"), *graders], draft)
    if any({"model", "provider"} & set(grader) for grader in graders):
        draft.notes.leave_out("model in a grader", "choose the judge with `--judge`", draft.place)
    for grader in graders:
        draft.checks += _grader(grader, needed, draft, source)
    draft.note_weights(
        {
            f"{n}. {each.get('type')}": each.get("weight", 1)
            for n, each in enumerate(graders, start=1)
        }
    )
    draft.keep(task, ("name", "instruction", "workspace", "graders", "docker", "trialConfig"))


def _read_setup(places: list[Any], draft: Draft) -> set[str]:
    """Say which commands are not run and what they would install; the rest are programs that the graders need."""
    setup = "\n".join(text_of(mapping_or_empty(place).get("setup")) for place in places)
    script, packages = without_installs(setup)
    told = [
        f"`{line.strip()[:80]}` is not run" for line in script.splitlines() if line.strip(" :&|;")
    ][:1]
    told += [f"install {missing}"] if (missing := missing_packages(packages)) else []
    if told:
        draft.notes.leave_out(
            "setup", f"the sandbox has this machine's programs: {'; '.join(told)}", draft.place
        )
    return packages & TOOLS


def _grader(
    grader: dict[str, Any], needed: set[str], draft: Draft, source: Source
) -> Iterator[dict[str, Any]]:
    kind = text_of(grader.get("type"))
    if more := set(grader) - {
        "type",
        "setup",
        "run",
        "rubric",
        "prompt",
        "model",
        "provider",
        "weight",
        "name",
    }:
        draft.refuse(kind, more)
    elif kind == "llm_rubric":
        draft.change("llm_rubric: the judge sees the answer, not the whole session")
        yield {"judge": meets(source.text_or_file(grader.get("rubric") or grader.get("prompt")))}
    elif kind == "deterministic":
        line = source.text_or_file(grader.get("run")).strip()
        draft.change("deterministic: passes only with the full score")
        for fetched in fetching_lines(line):
            draft.notes.leave_out(
                "network", f"a grader runs `{fetched[:80]}`, but the sandbox has none", draft.place
            )
        folders = [name for name in ("graders", "tests", "scripts") if f"{name}/" in line]
        scripts = [path for folder in folders for path in source.below(folder)]
        copy = 'cp -r "$CHECK"/. . && ' if scripts else ""
        needs = sorted({name for name in PROGRAMS if name in line.split()} | needed)
        check = {
            "run": copy + line,
            "exit_code": None,
            "regex": FULL_SCORE,
            "files": scripts,
            "needs": needs,
        }
        yield {"command": {key: value for key, value in check.items() if value != []}}
    else:
        draft.refuse(kind)


FORMAT = Format("skillgrade", recognizes, cases)
