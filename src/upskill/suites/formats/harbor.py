"""Task folders of Harbor and SkillsBench. Those with a plain base image run here; the others say what they need."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatch
from posixpath import dirname, join, normpath, relpath
from typing import Any

from upskill.errors import UsageError
from upskill.suites.files import Folder
from upskill.suites.formats import Draft, Source, folder_format
from upskill.suites.installs import TOOLS, fetching_lines, missing_packages, without_installs
from upskill.suites.shapes import mapping_or_empty, texts_of

# Base images, and the program that each is for.
IMAGES: dict[str, str] = {
    **dict.fromkeys(("ubuntu", "debian", "alpine", "busybox", "bash", "buildpack-deps"), ""),
    **dict.fromkeys(
        (f"ghcr.io/laude-institute/t-bench/{name}" for name in ("ubuntu-24-04", "python-3-13")), ""
    ),
    **{
        name.split()[0]: name.split()[-1]
        for name in ("python python3", "golang go", "rust cargo", "openjdk javac")
    },
    **{name: name for name in ("node", "gcc", "ruby", "perl", "php")},
}
HARMLESS = re.compile(r"(?:(?:(?:mkdir|touch|chmod|true|rm|ln)\b|:)[^|;&]*(?:&&|\|\||;|$)\s*)*")
# Harbor's own paths lead to folders of the trial. A path may begin where another ends, hence twice.
RUN = """cp -r "$CHECK" "$TMPDIR/tests" && mkdir -p "$TMPDIR/logs/verifier" || exit 9
mkdir "$TMPDIR/bin" && ln -s "$(command -v python3)" "$TMPDIR/bin/python" && PATH="$PATH:$TMPDIR/bin"
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
    tests = {
        path.removeprefix(f"{folder}tests/"): source.read(path)
        for path in paths.below(f"{folder}tests/")
    }
    script, packages = without_installs(tests.get("test.sh", ""))
    obstacles = [*_obstacles(task, tests, folder, paths)]
    obstacles += (f"its tests run `{line[:120]}`" for line in fetching_lines(script))
    workdir = _build(f"{folder}environment", paths, draft, source, packages, obstacles)
    if obstacles:
        raise UsageError("; ".join(dict.fromkeys(obstacles)), "Run it with `harbor run`.")
    inside = re.compile(rf"(?<![\w./-]){re.escape(workdir)}(?![\w-])/?")
    prompt = source.read(f"{folder}instruction.md")
    draft.prompt = inside.sub(lambda match: "" if match[0].endswith("/") else ".", prompt).strip()
    draft.change("paths: the working folder is the workspace, and a reward of 1 passes")
    if script != tests["test.sh"]:
        draft.change("test.sh: installs nothing; this machine's programs run the tests")
    seconds = mapping_or_empty(task.get("verifier")).get("timeout_sec")
    timeout = (
        float(min(seconds, 3600)) if isinstance(seconds, int | float) and seconds > 0 else 600.0
    )
    command: dict[str, Any] = {
        "run": RUN.replace("WORKDIR", workdir),
        "files": tests | {"test.sh": script},
    }
    command |= {
        "timeout": timeout,
        "needs": sorted(packages & TOOLS),
    }
    draft.checks = [{"command": {name: value for name, value in command.items() if value}}]
    draft.more["outputs"] = ["**"]
    draft.metadata = mapping_or_empty(task.get("metadata"))
    draft.more["tags"] = texts_of(draft.metadata.pop("tags", None))
    for name in (tables := ("agent", "environment", "verifier", "solution")):
        draft.keep(
            mapping_or_empty(task.get(name)),
            ("timeout_sec",) if name == "verifier" else (),
            f"{name}.",
        )
    draft.keep(task, ("version", "schema_version", "metadata", "task", *tables))


def _obstacles(
    task: dict[str, Any], tests: dict[str, str], folder: str, paths: Folder
) -> Iterator[str]:
    environment, verifier = (
        mapping_or_empty(task.get(name)) for name in ("environment", "verifier")
    )
    if "steps" in task:
        yield "it has several steps, but a case has one prompt"
    yield from (
        f"it needs {name}" for name in ("mcp_servers", "gpus", "nodes") if environment.get(name)
    )
    variables = [*mapping_or_empty(environment.get("env")), *mapping_or_empty(verifier.get("env"))]
    yield from (f"it needs the variable {name}" for name in variables)
    if (
        f"{folder}environment/Dockerfile" not in paths
        or f"{folder}environment/docker-compose.yaml" in paths
    ):
        yield f"it needs the image {environment.get('docker_image') or 'that its environment describes'}"
    if (
        "Dockerfile" in tests
        or verifier.get("environment_mode") == "separate"
        or verifier.get("environment")
    ):
        yield "its tests need an image of their own"
    if "test.sh" not in tests or not any("reward." in text for text in tests.values()):
        yield "it has no tests/test.sh that writes a reward"


def _build(
    root: str, paths: Folder, draft: Draft, source: Source, packages: set[str], obstacles: list[str]
) -> str:
    """Fill in the files of the image, and what it needs; returns its working folder."""
    text = re.sub(
        r"(?m)^\s*#.*\n?",
        "",
        source.read(f"{root}/Dockerfile") if f"{root}/Dockerfile" in paths else "",
    )
    text, installed = without_installs(text)
    packages |= installed
    workdir, copied, ignored = "/", list[tuple[str, str]](), dict[str, str]()
    for line in filter(None, map(str.split, text.splitlines())):
        word, rest = line[0].upper(), " ".join(line[1:])
        image, copies = rest.partition(" ")[0].partition(":")[0], word in ("COPY", "ADD")
        unusual = copies and rest.startswith(("--", "[", "http"))
        if (
            unusual
            or (word == "FROM" and image not in IMAGES)
            or (word == "RUN" and not HARMLESS.fullmatch(rest))
        ):
            obstacles.append(f"it needs `{word} {rest[:120]}`")
        elif word == "FROM":
            packages.add(IMAGES[image])
        elif word == "WORKDIR":
            workdir = normpath(join(workdir, rest))
        elif word == "ENV":
            ignored["ENV"] = "the sandbox sets no variables"
        elif copies and {"skills", "skill"} & set(line[-1].split("/")):
            ignored["skills"] = "only the skill arm gets a skill"
        elif copies:
            copied += [(name, join(workdir, line[-1])) for name in line[1:-1]]
    obstacles += (
        []
        if re.fullmatch(r"/[\w./-]+", workdir) or not text
        else ["it names no WORKDIR that can be used"]
    )
    inside = [path for path in paths.below(f"{root}/") if path != f"{root}/Dockerfile"]
    for name, target in copied:
        path, into = normpath(f"{root}/{name}"), normpath(target)
        files = [each for each in inside if each.startswith(f"{path}/") or fnmatch(each, path)]
        renamed = path in files and into != workdir and not target.endswith("/")
        above = path if any(each.startswith(f"{path}/") for each in files) else dirname(path)
        if not files or not f"{into}/".startswith(f"{workdir}/"):
            obstacles.append(
                f"it copies {name} to {target}" + ("" if files else ", but there is no such file")
            )
        for each in () if obstacles else files:
            place = relpath(into if renamed else join(into, relpath(each, above)), workdir)
            draft.more.setdefault("files", {})[place] = source.read(each)
    obstacles += [f"it installs {missing}"] if (missing := missing_packages(packages)) else []
    for what, why in () if obstacles else ignored.items():
        draft.notes.leave_out(what, why, draft.place)
    return workdir


FORMAT = folder_format("Harbor tasks", lambda paths: paths.having("task.toml"), _read)
