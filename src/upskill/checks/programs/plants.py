"""Plants: files that a student added and that would decide what a program of a check does.

A plant steers a program (`TOOLS`), stands where a program looks before it finds a file of the case, joins the tests and
expectations of the case, is read by a program of the case if it is there, or has a name that reads as an option. What
the case asks for is no plant.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath

from upskill.checks import Evidence
from upskill.checks.programs.ownership import (
    DATA,
    SHELL,
    decides,
    fits,
    is_below,
    is_code,
    is_test,
    mentions_file,
    mentions_path,
    mentions_word,
    plain,
    writes_tests,
)
from upskill.sandboxes import Entry

_PYTEST = ("conftest.py", "pytest.ini", "pytest.toml", "tox.ini", "setup.cfg", "pyproject.toml")
_NODE = (
    "node_modules",
    "*.config.*",
    "vitest.workspace.*",
    "bunfig.toml",
    "deno.json*",
    "__mocks__",
)
_TESTS_PYTHON = r"pytest|py\.test|nose2|tox|nox|coverage"
# By the words that call a program: the files without which it does nothing, and those that steer it otherwise. Where a
# case brings none of the first, or no tests, the project is for the student to set up.
TOOLS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    r"python3?(?:\.\d+)?|pytest|py\.test": (
        (),
        (
            "sitecustomize.py",
            "usercustomize.py",
            "*.pth",
            "*.dist-info",
            "*.egg-info",
            "pyvenv.cfg",
        ),
    ),
    _TESTS_PYTHON: ((), (*_PYTEST, "noxfile.py")),
    r"pip3?|build|hatch|poetry|uv|flit|pdm": (("pyproject.toml", "setup.py", "setup.cfg"), ()),
    r"g?make": (
        ("Makefile", "makefile", "GNUmakefile"),
        ("*.mk", "*.mak", "RCS", "SCCS", "s.[Mm]akefile", "*,v"),
    ),
    r"ninja|samu": (("build.ninja",), ("*.ninja",)),
    r"ruff|mypy|pyright|flake8|pylint|black": (
        (),
        (
            "ruff.toml",
            "mypy.ini",
            "pyrightconfig.json",
            "pylintrc",
            "pyproject.toml",
            "setup.cfg",
            "tox.ini",
        ),
    ),
    r"eslint|prettier|biome|tsc|tsx": ((), ("*.config.*", "biome.json*", "tsconfig*")),
    r"cmake|ctest": (("CMakeLists.txt",), ("CMake[CFPU]*", "*.cmake", "CTestCustom.ctest")),
    r"npm|npx|yarn|pnpm": (("package.json",), ("package-lock.json", "npm-shrinkwrap.json", *_NODE)),
    r"node|jest|vitest|mocha|deno|bun": ((), ("package.json", *_NODE)),
    r"go": (("go.mod",), ("go.sum", "go.work", "go.work.sum", "vendor")),
    r"cargo": (
        ("Cargo.toml",),
        ("Cargo.lock", "build.rs", "rust-toolchain", "rust-toolchain.toml", "target"),
    ),
    r"rake|rspec|bundle": (("Rakefile", "Gemfile"), ("Gemfile.lock",)),
    r"gradlew?|mvn": (
        ("build.gradle", "build.gradle.kts", "pom.xml"),
        ("settings.gradle*", "gradle.properties", "target"),
    ),
    r"prove|perl|ruby|rustc": ((), ()),
}
STEERING = tuple(dict.fromkeys(name for files in TOOLS.values() for each in files for name in each))
# Hidden files that are settings, by how programs call them; git's are seen to elsewhere.
_HIDDEN = (
    *(
        ".*rc",
        ".*rc.*",
        ".*.ini",
        ".*.toml",
        ".*.cfg",
        ".*init",
        ".*-version",
        ".*-versions",
        ".env*",
        ".clang-*",
    ),
    *(
        ".cargo",
        ".mvn",
        ".config",
        ".flake8",
        ".rspec",
        ".yarn",
        ".pnp.*",
        ".*ignore",
        ".m2",
        ".gradle",
        ".bundle",
    ),
)
_HIDDEN_OF_GIT = (".git", ".gitignore", ".gitattributes", ".gitkeep", ".gitmodules")
_PYTHON_TOOLS = ("pytest", "py", "_pytest", "pluggy", "nose2", "tox", "nox", "coverage")
_C_HEADERS = re.compile(
    r"(?:assert|ctype|errno|float|limits|locale|math|setjmp|signal|std\w+|string|strings|time|unistd|wchar|wctype)\.h"
)
_COMPILED = (
    ".o",
    ".obj",
    ".a",
    ".so",
    ".pyd",
    ".pyc",
    ".class",
    ".pmc",
    ".node",
    ".gch",
    ".pch",
    ".d",
    ".beam",
)
_PACKAGE = ("__init__", "__main__", "index", "mod")  # files that stand for their folder
# A line that names a file which need not be there, or that the system also has, and one that opens a block of such
# lines. Without a fallback, what a program of the case loads is for the student to write.
_OPTIONAL = re.compile(
    r"^-|^sinclude|<|&&|\|\||\b(?:if|for|try|OPTIONAL)\b|^require\s*\(?['\"][^.]|^use\s|\$|(?<!import )(?<!import)\*"
    r"|[eE]xists|is_?file"
)
_FALLBACK = re.compile(
    r"^\W*(?:if\w*(?! __name__)|el\w+|try|except|catch|for|while|until|unless|case|rescue|begin|eval)\b|\bsuppress\b"
)
_LOADS = re.compile(
    r"\b(?:s?include|source|dofile)\b|(?:^|[;&|]|\bthen|\bdo)\s*\.\s"
)  # what, may be found out only then


def invokes(text: str, programs: str) -> bool:
    """Whether a command, or the source of a script, starts one of these programs (a pattern)."""
    return bool(re.search(rf"(?:(?<![\w.$-])|(?<=\s-m))(?:{programs})(?![\w-])", text))


def steered_by(text: str, brought: Collection[str] | None = None) -> list[str]:
    """Patterns of the files that steer what this text starts, in a case that brings these files."""
    tools = {program: files for program, files in TOOLS.items() if invokes(text, program)}
    students: set[str] = set()
    if brought is not None:
        names = {PurePosixPath(path).name for path in brought}
        students = {
            name for needed, _ in tools.values() if not names & set(needed) for name in needed
        }
        if not any(map(is_test, brought)) and "$CHECK" not in text:
            tools.pop(_TESTS_PYTHON, None)
    patterns = [
        name
        for needed, more in tools.values()
        if not students & set(needed)
        for name in (*needed, *more)
    ]
    return [name for name in dict.fromkeys(patterns) if name not in students]


def with_what_it_runs(text: str, files: Mapping[str, str]) -> str:
    """The text of a command with that of the files that it runs, and of those that they run."""
    remaining = dict(files)
    while True:
        steering = steered_by(text)
        runs = [
            path
            for path, content in remaining.items()
            if fits(path, steering)
            or (is_code(path, content) and mentions_file(text, PurePosixPath(path).name))
        ]
        if not runs:
            return text
        text = "\n".join([text, *(remaining.pop(path) for path in runs)])


@dataclass(frozen=True)
class PlantFinder:
    """Tells what a student planted from what may be its work, among the files that the case did not bring."""

    text: str  # what the check runs
    evidence: Evidence
    protected: Mapping[str, str]
    steering: Sequence[str]
    keeps: Sequence[str] = ()

    @cached_property
    def _starts_tools(self) -> bool:
        return invokes(self.text, "|".join(TOOLS))

    @cached_property
    def _brings_tests(self) -> bool:
        """Where the case has none, or asks for more, the student's tests are its work."""
        brings = "$CHECK" in self.text or any(map(decides, self.protected))
        return self._starts_tools and brings and not writes_tests(self.evidence.prompt)

    @cached_property
    def _brought(self) -> set[str]:
        """The files of the case, with their folders."""
        paths = [PurePosixPath(path) for path in self.evidence.files]
        return {".", *(str(each) for path in paths for each in (path, *path.parents))}

    @cached_property
    def _asked(self) -> set[str]:
        return set(map(plain, (*self.evidence.graded_files, *self.keeps)))

    @cached_property
    def _paths(self) -> list[PurePosixPath]:
        """What was put back, with its folders."""
        paths = [PurePosixPath(path) for path in self.protected]
        return list(
            dict.fromkeys(each for path in paths for each in (path, *path.parents) if each.name)
        )

    @cached_property
    def _programs(self) -> list[PurePosixPath]:
        """What was put back and can load other files."""
        return [
            PurePosixPath(path)
            for path, content in self.protected.items()
            if is_code(path, content) or fits(path, STEERING) or not PurePosixPath(path).suffix
        ]

    @cached_property
    def _optional(self) -> list[str]:
        """The lines of these programs that name a file which need not be there."""
        return [
            line
            for path in self._programs
            for line, blocks in _with_blocks(self.protected[str(path)])
            if _OPTIONAL.search(line) or any(map(_FALLBACK.search, blocks))
        ]

    @cached_property
    def _targets(self) -> set[str]:
        """What the Makefiles of the case make: a file of that name would count as made."""
        makefiles = [
            content
            for path, content in self.protected.items()
            if re.search(r"[Mm]akefile$|\.mk$", path)
        ]
        text = "\n".join(makefiles)
        for name, value in re.findall(r"^(\w+)[ \t]*[:?]?=[ \t]*(.*)$", text, re.MULTILINE):
            text = text.replace(f"$({name})", value).replace(f"${{{name}}}", value)
        rules = re.findall(r"^([^\s:#=][^:#=\n]*):(?![=:])", text, re.MULTILINE)
        return {plain(target) for rule in rules for target in rule.split()}

    def find(self, entries: Sequence[Entry]) -> list[str]:
        plants: set[str] = set()
        for entry in sorted(entries, key=lambda entry: entry.path.count("/")):
            if not is_below(entry.path, plants) and self._is_plant(
                PurePosixPath(entry.path), entry.kind == "folder"
            ):
                plants.add(entry.path)
        return sorted(plants)

    def _is_plant(self, file: PurePosixPath, folder: bool) -> bool:
        path, prompt = str(file), self.evidence.prompt
        if path in self._brought or ".git" in file.parts or is_below(path, self._asked):
            return False
        if file.name.startswith("-"):  # `grep -r TODO *` takes it for an option
            return not mentions_path(self.evidence.case, path)
        if path in self._targets:  # "so that `make test` passes" names no file
            return (
                f"{path}/" not in prompt
                if folder
                else not file.suffix or not mentions_path(prompt, path)
            )
        if not folder and self._shadows(file):
            return not mentions_path(prompt, path)
        if file.name == "__pycache__":  # compiled from who knows what
            return True
        steering = [each for each in (file, *file.parents) if self._steers(each.name)]
        if not folder and (self._joins_tests(file) or self._is_read(file)):
            steering.append(file)
        return not all(
            mentions_path(self.evidence.case, str(each), as_folder=True) for each in steering
        )

    def _steers(self, name: str) -> bool:
        hidden = self._starts_tools and fits(name, _HIDDEN) and name not in _HIDDEN_OF_GIT
        return hidden or fits(name, self.steering)

    def _shadows(self, file: PurePosixPath) -> bool:
        """Whether it might be loaded in place of a file that was put back, or of an installed module.

        Programs look for them in many folders. So it has the name of one, but for its suffix in the same folder, and
        is code. What was compiled goes by the name of any file of the case.
        """
        stem, folder = re.split("[.,]", file.name)[0], file.parent
        if stem == "__init__" and any(folder in program.parents for program in self._programs):
            return True
        if stem in _PACKAGE and folder.name:
            stem, folder = folder.name, folder.parent
        if file.suffix in _COMPILED and any(
            stem == PurePosixPath(path).stem for path in self._brought
        ):
            return True
        if _C_HEADERS.fullmatch(file.name):
            return True
        if (stem in sys.stdlib_module_names or stem in _PYTHON_TOOLS) and file.suffix == ".py":
            return str(folder) in self._brought and str(folder / "__init__.py") not in self._brought
        loaded = not file.suffix or is_code(file.name) or file.suffix in (".json", ".tsx", ".jsx")
        for path in self._paths:
            if file.parent == path.parent and file.name.startswith(
                (f"{path.name}.", f"{path.name},")
            ):
                return True
            if not loaded or stem != path.name.split(".")[0]:
                continue
            is_folder = str(path) not in self.protected
            if folder == path.parent and (
                is_folder or is_code(path.name) or path.suffix == ".json"
            ):
                return True
            if path.stem not in _PACKAGE and file.suffix == path.suffix:
                return True
        return False

    def _joins_tests(self, file: PurePosixPath) -> bool:
        if not self._brings_tests:
            return False
        discovered = file.match("test*.py") and invokes(self.text, "unittest")
        return discovered or is_test(str(file)) or any(map(decides, map(str, [*file.parents][:-1])))

    def _is_read(self, file: PurePosixPath) -> bool:
        """Whether a program of the case reads it if it is there."""
        lines = "\n".join(self._optional)
        if mentions_file(lines, file.name):
            return True
        if file.suffix in (*SHELL, ".inc", ".d") and any(
            map(re.compile(r"[$*]").search, filter(_LOADS.search, self._optional))
        ):
            return True
        stem = file.parent.name if file.stem in _PACKAGE else file.name.split(".")[0]
        by_stem = bool(stem) and file.suffix not in DATA and mentions_word(lines, stem)
        return by_stem and not mentions_word(self.evidence.case, stem)


def _with_blocks(source: str) -> Iterator[tuple[str, list[str]]]:
    """The lines of a program, each with those that open the blocks that it is in, by indentation."""
    blocks: list[tuple[int, str]] = []
    for line in filter(str.strip, source.expandtabs().splitlines()):
        depth = len(line) - len(line.lstrip())
        while blocks and blocks[-1][0] >= depth:
            blocks.pop()
        yield line, [opening for _, opening in blocks]
        blocks.append((depth, line))
