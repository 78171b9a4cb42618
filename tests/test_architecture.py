"""The rules of the house, held against the source: tables load, imports go one way, starting is light."""

from __future__ import annotations

import ast
import os
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import click
import pytest

import upskill
from conftest import REPOSITORY, Upskill
from upskill.cli import COMMANDS, HIDDEN, REMOVED
from upskill.registry import Registry

PACKAGE = REPOSITORY / "src" / "upskill"
MODULES = {
    "upskill"
    + "".join(
        f".{part}" for part in path.relative_to(PACKAGE).with_suffix("").parts if part != "__init__"
    ): path
    for path in sorted(PACKAGE.rglob("*.py"))
}
# The rooms from top to bottom, and the ones below that each may import: every arrow there is, and none upwards.
# What stands on the ground floor (FOUNDATION) is open to every room above it.
FOUNDATION = (
    "registry",
    "options",
    "plain",
    "inputs",
    "outputs",
    "installation",
    "errors",
    "version",
    "worker",
)
ARROWS = {
    "cli": "reports experiments authoring runs verdicts suites models sandboxes traces skills settings",
    "reports": "experiments authoring runs verdicts suites sandboxes traces skills",
    "experiments": "authoring runs verdicts suites models skills",
    "authoring": "runs verdicts suites checks agents models sandboxes traces skills settings",
    "runs": "verdicts suites checks agents models sandboxes traces skills settings",
    "verdicts": "",
    "suites": "checks agents sandboxes traces skills",
    "checks": "agents models sandboxes traces",
    "agents": "models sandboxes traces skills",
    "models": "traces skills settings",
    "sandboxes": "",
    "traces": "skills",
    "skills": "",
    "settings": "",
}
ROOMS = [*ARROWS, *FOUNDATION]
# Who imports what against the rules, and why that stays. A row that is no longer needed fails a test.
EXCEPTIONS = {
    (
        "upskill.models.embedded.client",
        "upskill.models.http.openai",
    ): "the embedded server speaks chat completions: one wire path",
}


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(path: Path) -> set[str]:
    """Every module of ours that a file imports, also inside a function or for type checking."""
    found: set[str] = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            module = node.module or ""
            inner = {f"{module}.{alias.name}" for alias in node.names}
            found |= {name if name in MODULES else module for name in inner}
    return {name for name in found if name.split(".")[0] == "upskill"}


def room(module: str) -> str:
    """The file or folder of the package that a module belongs to."""
    return module.split(".")[1] if "." in module else ""


def in_rooms() -> Iterator[tuple[str, Path]]:
    """Every module that stands in a room: all but the package's front door."""
    return (
        (module, path) for module, path in MODULES.items() if room(module) not in ("", "__main__")
    )


def registries() -> Iterator[tuple[str, Registry]]:
    """Every table, with the module that it is written in."""
    for module, path in MODULES.items():
        for node in parsed(path).body:
            if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
                continue
            (target,), made = node.targets, node.value.func
            if (
                isinstance(target, ast.Name)
                and isinstance(made, ast.Name)
                and made.id == "Registry"
            ):
                yield module, getattr(import_module(module), target.id)


TABLES = list(registries())
ROWS = [(registry, row) for _, registry in TABLES for row in registry.table]
KIND_MODULES = {
    place.partition(":")[0] for _, registry in TABLES for place in registry.table.values()
}


# Tables.


def test_every_row_of_every_table_loads() -> None:
    for registry, name in ROWS:
        assert registry.load(name) is not None


def test_every_table_has_a_group_of_its_own() -> None:
    groups = [registry.group for _, registry in TABLES]
    assert len(groups) == len(set(groups))
    assert all(group.startswith("upskill.") for group in groups)
    pages = {module for module, _ in TABLES}
    assert {
        "upskill.models",
        "upskill.agents",
        "upskill.checks",
        "upskill.runs.running.executors",
        "upskill.reports",
    } <= pages


def test_every_public_name_is_there() -> None:
    for name in upskill.__all__:
        assert getattr(upskill, name) is not None
    assert set(upskill.__all__) <= set(dir(upskill))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        getattr(upskill, "nothing")  # noqa: B009


# Imports.


def test_imports_go_down_the_rooms_only() -> None:
    for name, below in ARROWS.items():
        assert set(below.split()) <= set(ROOMS[ROOMS.index(name) + 1 :]), (
            f"{name} has an arrow upwards"
        )
    for module, path in in_rooms():
        mine = room(module)
        allowed = {
            *ARROWS.get(mine, "").split(),
            *set(FOUNDATION) & set(ROOMS[ROOMS.index(mine) + 1 :]),
        }
        others = {room(name) for name in imports(path)} - {mine}
        assert others <= allowed, f"{module} imports {others - allowed}"


def test_every_arrow_is_used() -> None:
    used = {(room(module), room(name)) for module, path in in_rooms() for name in imports(path)}
    assert {(name, other) for name, below in ARROWS.items() for other in below.split()} <= used


def drawing() -> str:
    """The rooms as rows and columns: a column imports the rows that are marked below it."""
    rooms = list(ARROWS)
    heads = [name[:4].ljust(4) for name in rooms]
    lines = [" " * 12 + " ".join(heads).rstrip()]
    for row, name in enumerate(rooms):
        marks = ["■" if name in ARROWS[other].split() else "·" for other in rooms[:row]]
        lines.append((name.ljust(12) + "".join(f"{mark}    " for mark in marks)).rstrip())
    return "\n".join(lines)


def test_the_picture_in_contributing_is_the_table() -> None:
    text = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
    shown = text.split("<!-- rooms -->")[1].split("<!-- /rooms -->")[0].strip()
    assert shown == f"```\n{drawing()}\n```"


def test_every_page_names_the_files_of_its_folder() -> None:
    for page in PACKAGE.rglob("__init__.py"):
        if page.parent == PACKAGE or page.parent.name == "prompts":
            continue
        written = page.read_text(encoding="utf-8")
        files = {path.stem for path in page.parent.glob("*.py")} | {
            path.parent.name for path in page.parent.glob("*/__init__.py")
        }
        missing = {name for name in files - {"__init__"} if not re.search(rf"\b{name}\b", written)}
        assert not missing, f"{page.relative_to(PACKAGE)} does not name {sorted(missing)}"


def test_only_the_command_line_prints_and_exits() -> None:
    for module, path in in_rooms():
        if room(module) == "cli":
            continue
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("print", "exit", "quit", "input"), (
                    f"{path}:{node.lineno}"
                )
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                said = (node.value.id, node.attr)
                assert said not in (("sys", "exit"), ("sys", "stdout"), ("sys", "stderr")), (
                    f"{path}:{node.lineno}"
                )


def test_a_kind_never_imports_another_kind() -> None:
    """What a table names is reached through the table; the other files of its folder are there to be shared."""
    for module in KIND_MODULES & set(MODULES):
        others = {name for name in imports(MODULES[module]) if (module, name) not in EXCEPTIONS} - {
            module
        }
        assert not others & KIND_MODULES, module


def test_every_exception_is_still_needed() -> None:
    assert [pair for pair in EXCEPTIONS if pair[1] not in imports(MODULES[pair[0]])] == []


def test_nothing_imports_in_a_circle() -> None:
    """Not even by an import inside a function or for type checking."""
    edges = {module: imports(path) & set(MODULES) for module, path in MODULES.items()}
    edges["upskill"] = set()
    done: set[str] = set()

    def visit(module: str, way: tuple[str, ...]) -> None:
        assert module not in way, " -> ".join([*way, module])
        if module not in done:
            for name in edges[module] - {module, "upskill"}:
                visit(name, (*way, module))
            done.add(module)

    for module in edges:
        visit(module, ())


# Starting.


def run_python(*argv: str) -> subprocess.CompletedProcess[str]:
    """A fresh interpreter, with nobody measuring what it covers: that would import a good deal more."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    return subprocess.run(
        [sys.executable, *argv], env=environment, capture_output=True, text=True, check=True
    )


def test_help_imports_little() -> None:
    done = run_python("-X", "importtime", "-m", "upskill", "--help")
    modules = [
        line.split("|")[-1].strip()
        for line in done.stderr.splitlines()
        if line.startswith("import time:")
    ]
    assert 20 < len(modules) - 1 < 120  # the first line is the heading
    heavy = (
        "pydantic",
        "yaml",
        "rich",
        "aiohttp",
        "numpy",
        "asyncio",
        "sqlite3",
        "jsonschema",
        "genai_prices",
    )
    assert not [name for name in modules if name.split(".")[0] in heavy]


def test_importing_the_package_costs_next_to_nothing() -> None:
    code = (
        "import sys; before = set(sys.modules); import upskill; print(*set(sys.modules) - before)"
    )
    done = run_python("-c", code)
    assert len(done.stdout.split()) < 30


# What `eval` needs only for some models and suites, or when its trials are done.
LATER = [
    "aiohttp",
    "http.client",
    "jsonschema",
    "numpy",
    "rich",
    "upskill.models.command",
    "upskill.models.embedded",
    "upskill.reports.json",
    "upskill.runs.results.evaluation",
    "upskill.verdicts.verdict",
]


def test_eval_loads_what_it_uses_when_it_uses_it() -> None:
    done = run_python("-c", "import sys, upskill.cli.commands.eval; print(*sys.modules)")
    assert set(LATER).isdisjoint(done.stdout.split())


def test_starting_builds_only_what_is_used() -> None:
    """Long patterns and the validator of settings, which nobody wrote."""
    code = """
import re, sys
from upskill.cli import main
sys.argv[1:] = ["eval", "--help"]
try:
    main()
finally:
    from upskill.models import parsing
    from upskill.runs import stores
    from upskill.settings import Settings
    Settings.load({"HOME": "/nowhere"}, "/nowhere")
    globals = {**vars(parsing), **vars(stores)}
    compiled = [name for name, value in globals.items() if isinstance(value, re.Pattern)]
    print("built:", Settings.__pydantic_complete__, *compiled)
"""
    done = run_python("-c", code)
    assert done.stdout.rpartition("built:")[2].split() == ["False"]


# Commands.


def test_every_command_has_help(upskill: Upskill) -> None:
    listed = upskill("--help").out
    for name in (*COMMANDS, *HIDDEN):
        command = import_module(
            f"upskill.cli.commands.{'import_' if name == 'import' else name}"
        ).command
        assert isinstance(command, click.Command)
        done = upskill(name, "--help")
        assert done.code == 0, name
        assert done.out.startswith("Usage: upskill "), name
        assert command.help, name
        assert (f"\n  {name} " in listed) == (name in COMMANDS), name
    assert all(line.endswith(".") for line in COMMANDS.values())


@pytest.mark.parametrize("name", REMOVED)
def test_a_removed_command_names_what_to_use(upskill: Upskill, name: str) -> None:
    done = upskill(*name.split(), "anything", "--help")
    assert (done.code, done.out) == (2, "")
    assert done.err == f"upskill: {REMOVED[name]}\n"
    assert f"`{name}`" in done.err
    assert f"\n  {name} " not in upskill("--help").out


# The repository.

# Written in two halves, so that this file does not name them either.
HOSTS = ("pypi" + ".org", "files.python" + "hosted", "registry.npm" + "js", "crates" + ".io")
PLACES = ("/wo" + "rk/",)
INDEX = re.compile("--(extra-)?index-" + "url|PIP_INDEX_" + "URL|UV_" + "INDEX|--find-" + "links")


def test_no_file_names_a_package_index_or_the_place_it_was_written_in() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=REPOSITORY,
        capture_output=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    for name in filter(None, listed.stdout.decode().split("\0")):
        path = REPOSITORY / name
        if not path.is_file():
            continue
        text = path.read_bytes().decode("utf-8", "replace")
        for word in (*HOSTS, *PLACES):
            assert word not in text, f"{name} says {word}"
        assert not INDEX.search(text), name


def test_every_folder_of_the_package_is_a_package() -> None:
    found = {name for _, name, _ in pkgutil.walk_packages([str(PACKAGE)], "upskill.")}
    assert {module for module in MODULES if module != "upskill"} <= found
