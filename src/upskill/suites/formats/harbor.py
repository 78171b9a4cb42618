"""Task folders of Harbor and SkillsBench. Those with a plain base image run here; the others say what they need."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from posixpath import join, normpath
from typing import Any

from upskill.errors import UsageError
from upskill.plain import short
from upskill.suites.files import Folder
from upskill.suites.formats import Draft, Source, folder_format
from upskill.suites.shapes import mapping_or_empty, texts_of

# Base images, and the program that each is for.
PROGRAMS = {"python": "python3", "golang": "go", "rust": "cargo", "eclipse-temurin": "javac", "openjdk": "javac"}
SAME_NAME = {name: name for name in ("node", "gcc", "ruby", "perl", "php")}
IMAGES = PROGRAMS | SAME_NAME | dict.fromkeys(("ubuntu", "debian", "alpine", "busybox", "bash", "buildpack-deps"), "")
INSTALLS = re.compile(
    r"^(?!\s*#).*\b(?:apt-get|apt|apk|curl|wget|uvx?|pip3? install|npm (?:i|install|ci)|npx|conda)\b.*$", re.M
)
RUN_IT = "Run it with `harbor run`."
HARMLESS = re.compile(r"(?:mkdir|touch|chmod|true|rm)\b[^|;&]*(?:&&\s*(?:mkdir|touch|chmod|true|rm)\b[^|;&]*)*")
# Harbor's own paths lead to folders of the trial. A path may begin where another ends, hence twice.
RUN = """cp -r "$CHECK" "$TMPDIR/tests" && mkdir -p "$TMPDIR/logs/verifier" || exit 9
before='(^|[^[:alnum:]_./-])' after='($|[^[:alnum:]_-])'
for pair in "WORKDIR=$PWD" "/tests=$TMPDIR/tests" "/logs=$TMPDIR/logs"; do
  rule="s#$before${pair%%=*}$after#\\\\1${pair#*=}\\\\2#g"
  find "$TMPDIR/tests" -type f -exec sed -i -E -e "$rule" -e "$rule" {} +
done
bash "$TMPDIR/tests/test.sh"
cd "$TMPDIR/logs/verifier" && cat reward.* &&
  { head -n 1 reward.txt | grep -Eqx ' *1(\\.0*)? *' || grep -Eq '"reward": *1(\\.0*)?[,} ]*$' reward.json; }"""


def _read(folder: str, paths: Folder, draft: Draft, source: Source) -> None:
    task = mapping_or_empty(source.load(f"{folder}task.toml"))
    tests = {path.removeprefix("tests/"): text for path, text in source.files(paths, folder, "tests/").items()}
    if obstacle := next(_obstacles(task, tests, folder, paths), ""):
        raise UsageError(obstacle, RUN_IT)
    workdir, program = _build(folder, paths, draft, source)
    inside = re.compile(rf"(?<![\w./-]){re.escape(workdir)}(?![\w-])/?")
    prompt = source.read(f"{folder}instruction.md")
    draft.prompt = inside.sub(lambda match: "" if match[0].endswith("/") else ".", prompt).strip()
    draft.change("paths: the working folder is the workspace, and a reward of 1 passes")
    timeout = min(float(mapping_or_empty(task.get("verifier")).get("timeout_sec") or 600), 3600.0)
    command: dict[str, Any] = {"run": RUN.replace("WORKDIR", workdir), "files": tests, "timeout": timeout}
    draft.checks = [{"command": command | ({"needs": [program]} if program else {})}]
    draft.metadata = mapping_or_empty(task.get("metadata"))
    draft.more["tags"] = texts_of(draft.metadata.pop("tags", None))
    for name in ("agent", "environment", "verifier", "solution"):
        draft.keep(mapping_or_empty(task.get(name)), ("timeout_sec",) if name == "verifier" else (), f"{name}.")


def _obstacles(task: dict[str, Any], tests: dict[str, str], folder: str, paths: Folder) -> Iterator[str]:
    environment = mapping_or_empty(task.get("environment"))
    if "steps" in task:
        yield "it has several steps, but a case has one prompt"
    yield from (f"it needs {name}" for name in ("mcp_servers", "gpus") if environment.get(name))
    for fields in (environment, mapping_or_empty(task.get("verifier"))):
        yield from (f"it needs the variable {name}" for name in mapping_or_empty(fields.get("env")))
    if f"{folder}environment/Dockerfile" not in paths or f"{folder}environment/docker-compose.yaml" in paths:
        yield f"it needs the image {environment.get('docker_image') or 'that its environment describes'}"
    if "Dockerfile" in tests or mapping_or_empty(task.get("verifier")).get("environment_mode") == "separate":
        yield "its tests need an image of their own"
    if "test.sh" not in tests or not any("reward." in text for text in tests.values()):
        yield "it has no tests/test.sh that writes a reward"
    elif installs := INSTALLS.search(tests["test.sh"]):
        yield f"its tests install programs: {short(installs[0].strip())}"


def _build(folder: str, paths: Folder, draft: Draft, source: Source) -> tuple[str, str]:
    """Fill in the files of the image; returns its working folder, and the program it is for."""
    workdir, program, copied = "/", "", list[tuple[str, str]]()
    for word, rest in _instructions(source.read(f"{folder}environment/Dockerfile")):
        image = rest.partition(" ")[0].partition(":")[0]
        unusual = word in ("COPY", "ADD") and rest.startswith(("--", "["))
        if unusual or (word == "FROM" and image not in IMAGES) or (word == "RUN" and not HARMLESS.fullmatch(rest)):
            raise UsageError(f"it needs {short(f'{word} {rest}')}", RUN_IT)
        if word == "FROM":
            program = IMAGES[image]
        elif word == "WORKDIR":
            workdir = join(workdir, rest)
        elif word in ("COPY", "ADD"):
            *names, target = rest.split()
            copied += [(f"{folder}environment/{name.strip('./')}".rstrip("/"), join(workdir, target)) for name in names]
        elif word == "ENV":
            draft.notes.leave_out("ENV", "the sandbox sets no variables", draft.place)
    if workdir == "/":
        raise UsageError("it names no WORKDIR", RUN_IT)
    for path, target in copied:
        if "skills" in PurePosixPath(target).parts:
            draft.notes.leave_out("skills", "only the skill arm gets a skill", draft.place)
        elif not f"{target}/".startswith(f"{workdir}/"):
            raise UsageError(f"it needs files in {target}, outside of {workdir}", RUN_IT)
        else:
            draft.more.setdefault("files", {}).update(_copy(path, target.removeprefix(workdir), paths, source))
    return workdir, program


def _copy(path: str, into: str, paths: Folder, source: Source) -> Iterator[tuple[str, str]]:
    name = PurePosixPath(path).name if into.endswith(("/", "/.")) or not into else ""
    for each in [path] if path in paths else paths.below(f"{path}/"):
        place = normpath(f"{into}/{name if each == path else each.removeprefix(f'{path}/')}").strip("/")
        if place != "Dockerfile":
            yield place, source.read(each)


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    lines = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    for line in re.sub(r"\\\s*\n", " ", lines).splitlines():
        if line.strip():
            word, _, rest = line.strip().partition(" ")
            yield word.upper(), " ".join(rest.split())


FORMAT = folder_format("Harbor tasks", lambda paths: paths.having("task.toml"), _read)
