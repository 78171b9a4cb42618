"""Guard: what a student left in the workspace must not decide what a program of a check does.

Before every check that runs programs:

1. Every file that the case brought and its prompt does not ask to change is put back (`protected_files`).
2. Files that the student added are removed where they would steer a program of the check (`TOOLS`), stand in for a file
   that was put back, or be loaded by one (`find_plants`). What the case asks for stays.
3. Repositories lose settings, hooks and whatever hides a change; their index is written anew (`_GIT`).

The environment of a check (`workspace.ENVIRONMENT`) turns off the rest. Python finds modules of the workspace, but only
after its own and those that are installed (`SITE`).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import PurePosixPath

from upskill.checks import Evidence, Finding
from upskill.checks.workspace import CheckDir, in_words
from upskill.sandboxes import Entry, Limits, Sandbox, printable

SECONDS = 60.0  # for tidying up
MAX_NAMED = 5  # files in a reason
MAX_FILES = Limits().files

# A module of the case may have the name of an installed one; nothing else in the workspace may.
SITE = """
import os, sys
from importlib.machinery import PathFinder
workspace, own = %r, %r
try:
    start = os.path.dirname(os.path.abspath(sys.argv[0])) if os.path.isfile(sys.argv[0]) else os.getcwd()
except OSError:
    start = workspace
here = [start, workspace]
installed = [path for path in sys.path if not (os.path.abspath(path) + "/").startswith(workspace + "/")]
class Installed:
    @staticmethod
    def find_spec(name, path=None, target=None):
        spec = PathFinder.find_spec(name, installed) if path is None else None
        if spec is None or spec.loader is None:
            return None
        return PathFinder.find_spec(name, here) if name in own else spec
sys.meta_path.insert(sys.meta_path.index(PathFinder), Installed)
sys.path += [folder for folder in here if folder not in sys.path]
"""


_PYTHON_TOOLS = ("pytest", "py", "_pytest", "pluggy", "nose2", "tox", "nox", "coverage")
# The files in a workspace that steer a program, by the words that a command calls it with.
TOOLS: Mapping[str, tuple[str, ...]] = {
    r"pytest|py\.test|unittest|nose2|tox|nox|coverage|python3?(?:\.\d+)?": (
        *("conftest.py", "pytest.ini", "pytest.toml", "tox.ini", "setup.cfg", "pyproject.toml"),
        *("sitecustomize.py", "usercustomize.py", "*.pth", "*.dist-info", "*.egg-info", "noxfile.py"),
    ),
    r"g?make": ("Makefile", "makefile", "GNUmakefile", "*.mk", "*.mak", "RCS", "SCCS", "s.[Mm]akefile", "*,v"),
    r"ninja|samu": ("*.ninja",),
    r"prove|perl": (),
    r"ruff|mypy|pyright|flake8|pylint|black": (
        *("ruff.toml", "mypy.ini", "pyrightconfig.json", "pylintrc", "pyproject.toml", "setup.cfg", "tox.ini"),
    ),
    r"eslint|prettier|biome|tsc|tsx": ("*.config.*", "biome.json*", "tsconfig*"),
    r"cmake|ctest": (
        *("CMakeLists.txt", "CMakePresets.json", "CMakeUserPresets.json", "CMakeCache.txt", "CMakeFiles"),
        *("*.cmake", "CTestCustom.ctest"),
    ),
    r"npm|npx|yarn|pnpm|node|jest|vitest|mocha|tsc|deno|bun": (
        *(
            "package.json",
            "package-lock.json",
            "npm-shrinkwrap.json",
            "node_modules",
            "*.config.*",
            "vitest.workspace.*",
        ),
        *("bunfig.toml", "deno.json*", "__mocks__"),
    ),
    r"go": ("go.mod", "go.sum", "go.work", "go.work.sum", "vendor"),
    r"cargo|rustc": ("Cargo.toml", "Cargo.lock", "build.rs", "rust-toolchain", "rust-toolchain.toml", "target"),
    r"rake|rspec|bundle|ruby": ("Rakefile", "Gemfile", "Gemfile.lock"),
    r"gradlew?|mvn": ("build.gradle*", "settings.gradle*", "pom.xml", "gradle.properties", "target"),
}
_STEERING = tuple(dict.fromkeys(pattern for patterns in TOOLS.values() for pattern in patterns))
# Hidden files are settings of one program or another; these are git's, which are seen to elsewhere.
_HIDDEN_OF_GIT = (".git", ".gitignore", ".gitattributes", ".gitkeep", ".gitmodules")
# Tests that the case brings decide, so they are put back even where the prompt names them.
_TESTS = ("test*.py", "test_*", "test.*", "tests.*", "*_test.*", "*_tests.*", "*.test.*", "*.spec.*", "*_spec.*")
_TEST_FOLDERS = {"test", "tests", "t", "spec", "__tests__"}
# What decides, by a word of its name, where the prompt does not say which files are the student's.
_DECIDING = re.compile(
    r"(?:^|[^a-z])(?:check|verif(?:y|ier)|tests?|spec|valid(?:ate|ator)|grad(?:er?|ing)|assert|scor(?:er?|ing)|judge|harness"
    r"|expect(?:ed)?|want(?:ed)?|golden|oracle|truth|solutions?)(?:s|ed|er)?(?:[^a-z]|$)",
    re.IGNORECASE,
)
_SHELL = (".sh", ".bash", ".zsh", ".ksh")
_CODE = (
    *(".py", ".js", ".mjs", ".cjs", ".ts", ".pl", ".pm", ".rb", ".php", ".lua", ".r", ".jl", ".ipynb"),
    *(".t", ".c", ".cc", ".cpp", ".h", ".hpp", ".cu", ".cuh", ".rs", ".go", ".java", ".kt", ".cs", ".swift", ".sql"),
)
_DATA = (".txt", ".md", ".json", ".jsonl", ".csv", ".tsv", ".yaml", ".yml", ".toml", ".ini", ".xml", ".html")
# What is loaded in place of a source of the same name: Python's and Node's.
_PYTHON = (".py", ".so", ".pyd", ".pyc")
_STANDS_IN = {".py": _PYTHON, **dict.fromkeys((".js", ".cjs", ".mjs", ".ts"), (".js", ".cjs", ".node", ".json", ""))}
_PACKAGE = ("__init__", "__main__", "index", "mod")  # files that stand for their folder
_INTERPRETERS = (
    r"(?:ba|da|z|k)?sh|python3?(?:\.\d+)?|node|deno run|bun|tsx|perl|prove|ruby|php|lua|Rscript|julia|go run"
    r"|g?make|coverage run|pytest|py\.test|mocha|jest|vitest|rspec"
)
_SOURCES = r"|source|\."
_LOOKS = r"-(?:-check|-syntax-only|[cnm])(?![\w-])"  # such an option has a file looked at, or something else run
_RUNNERS = r"pytest|py\.test|unittest|tox|nox|npm|npx|yarn|pnpm|jest|vitest|mocha|go test|cargo test"
# A line that loads another file, and one that does so only where the file is there or that the system serves otherwise.
# The same goes for a line in such a block. Without a fallback, what is loaded is for the student to write.
_LOADS = re.compile(r"\b(?:import|require|s?include|source|dofile|run_path)|^\s*use\s|(?:^|[;&|]|\bthen|\bdo)\s*\.\s")
_MAY_LACK = re.compile(
    r"^-|^sinclude|<|&&|\|\||\b(?:if|for|try|OPTIONAL)\b|^require\s*\(?['\"][^.]|\$|(?<!import )(?<!import)\*"
)
_FALLBACK = re.compile(
    r"^\W*(?:if\w*|el\w+|try|except|catch|for|while|until|unless|case|rescue|begin|eval)\b|\bsuppress\b"
)
_PERL = (".t", ".pl", ".pm")  # has the folders that it is given before its own

# Folders are opened on the way down, so that nothing hides in a closed one. A link to a folder that the student can
# write to would hide what is in it. What stands in place of a file of the case, or of its folder, is removed. $1 is the
# folder that holds the check's own: programs look for settings there, too.
_PREPARE = """
find . -type d ! -perm -700 -exec chmod u+rwx {} ';' 2>/dev/null
find . -type l -exec /bin/sh -c 'for link; do
  case $(readlink -f -- "$link") in
    "$(pwd -P)"/*) ;;
    "$0"/*|/tmp/*|/dev/shm/*|/home/*) [ -d "$link" ] && rm -f -- "$link" ;;
  esac
done' "$2" {} + 2>/dev/null
xargs -0 /bin/sh -c 'for path; do
  folder=
  case $path in */*) rest=${path%/*}/ ;; *) rest= ;; esac
  while [ -n "$rest" ]; do
    folder=$folder${rest%%/*}; rest=${rest#*/}
    if [ -L "$folder" ] || { [ -e "$folder" ] && [ ! -d "$folder" ]; }; then rm -rf -- "$folder"; fi
    folder=$folder/
  done
  rm -rf -- "$path"
done' sh
above=$1; shift 2
find "$above" -mindepth 1 -maxdepth 1 "(" "$@" ")" -exec rm -rf -- {} + 2>/dev/null
exit 0
"""
# Keeps of a repository's settings what makes it a repository. The index is written anew from its entries: what it
# remembers of files, and flags that hide changes, are the student's word.
_GIT_ONE = r"""
git=$1 top=$PWD
case $git in
  */HEAD) git=${git%/HEAD}; tree=; [ -d "$git/objects" ] && [ -d "$git/refs" ] || exit 0 ;;
  *) tree=${git%/.git} ;;
esac
if [ -f "$git" ] && [ ! -L "$git" ]; then
  case $(cd "$tree" && readlink -f -- "$(sed -n 's/^gitdir: //p' .git)") in
    "$top"/*/worktrees/*) ;;
    *) rm -rf -- "$git"; exit 0 ;;
  esac
elif [ -L "$git" ] || [ ! -d "$git" ]; then
  rm -rf -- "$git"; exit 0
else
  chmod -R u+rwX "$git" 2>/dev/null
  cd "$git" || exit 0
  rm -rf info hooks modules config.worktree commondir shallow objects/info objects/pack/multi-pack-index index.lock
  [ -f config ] && [ ! -L config ] && awk '
    /\\$/ { next }
    /^[ \t]*\[/ { keep = match($0, /^[ \t]*\[(core|user|init|extensions|remote "[^"\\]*"|branch "[^"\\]*")\][ \t]*$/) }
    /^[ \t]*\[/ { section = $0; if (keep) print; next }
    keep && section ~ /core/ && !/^[ \t]*(repositoryformatversion|logallrefupdates)[ \t]*=/ { next }
    keep && section ~ /extensions/ && !/^[ \t]*object[fF]ormat[ \t]*=/ { next }
    keep && section ~ /remote/ && !/^[ \t]*(url|fetch)[ \t]*=/ { next }
    keep { print }
  ' config > config.new; rm -rf config; mv -f config.new config
fi
[ -n "$tree" ] && cd "$top/$tree" || exit 0
index=$(git rev-parse --git-path index 2>/dev/null) && [ -n "$index" ] || exit 0
git ls-files -s -z > "$TMPDIR/entries" 2>/dev/null
rm -rf "$index" "${index%index}"sharedindex.*
git update-index -z --index-info < "$TMPDIR/entries" 2>/dev/null
find . -name .git -prune -o "(" -name .gitignore -o -name .gitattributes ")" -print 2>/dev/null |
while IFS= read -r file; do
  case $KEPT in *"
$tree/${file#./}
"*) continue ;; esac
  git ls-files --error-unmatch -- "$file" >/dev/null 2>&1 || rm -rf -- "$file"
done
git update-index -q --refresh >/dev/null 2>&1
[ "$tree" = . ] && git ls-files -z -o -i --exclude-standard 2>/dev/null | git check-ignore -z -v --stdin 2>/dev/null
exit 0
"""
_GIT = "find . '(' -name .git -prune -o -name HEAD -type f ')' -exec /bin/sh -c \"$0\" sh {} ';' 2>/dev/null; exit 0"


def mentions_file(text: str, file: str) -> bool:
    return bool(re.search(rf"(?<![\w.-]){re.escape(file)}(?![\w-]|\.\w)", text))


def mentions_path(text: str, path: str, *, as_folder: bool = False) -> bool:
    """Whether a text names this file by its path or the end of it: `lib/add.py` does not name src/add.py.

    A folder is also named by what is in it.
    """
    parts = PurePosixPath(path).parts
    ends = "|".join(re.escape("/".join(parts[first:])) for first in range(len(parts)))
    return bool(
        re.search(rf"(?<![\w./-])(?:\./|/workspace/)?(?:{ends})(?![\w-]|\.\w{'' if as_folder else '|/[^/]'})", text)
    )


def _mentions_word(text: str, word: str) -> bool:
    return bool(re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text))


def invokes(text: str, programs: str) -> bool:
    """Whether a command, or the source of a script, starts one of these programs (a pattern)."""
    return bool(re.search(rf"(?:(?<![\w.$-])|(?<=\s-m))(?:{programs})(?![\w-])", text))


def is_test(path: str) -> bool:
    *folders, name = PurePosixPath(path).parts
    return any(fnmatchcase(name, pattern) for pattern in _TESTS) or not _TEST_FOLDERS.isdisjoint(folders)


def _is_code(path: str, content: str = "") -> bool:
    return path.lower().endswith((*_CODE, *_SHELL)) or content.startswith("#!")


def _ways_to_run(path: str, content: str, interpreters: str) -> list[str]:
    name = rf"{re.escape(PurePosixPath(path).name)}(?![\w-]|\.\w)"
    start = rf"(?<![\w.$-])(?:{interpreters})"
    ways = [
        rf"{start}(?:\s+(?!{_LOOKS})-[\w=:-]+(?:\s+pipefail)?)*\s+(?:<\s*)?[\"']?(?:[^\s\"';|&]*/)?{name}",
        rf"[\"']{start}[\"']\s*,[^\"'\n]*[\"'](?!-)(?:[^\"'\s]*/)?{name}",  # words of a list
    ]
    if content.startswith("#!"):
        ways.append(rf"(?:^|[;&|(@\"'`]|\bthen|\bdo)\s*(?:\./|[^\s\"';|&=]+/){name}")
    if path.endswith(".py"):
        module = re.escape(".".join(PurePosixPath(path).with_suffix("").parts).removesuffix(".__main__"))
        ways.append(rf"-m[\s\"',]*(?:(?:unittest|pytest)\b[^;&|\n]*[\s\"',])?{module}(?!\w)")
    return ways


def executes(text: str, path: str, content: str = "") -> bool:
    """Whether a command or script runs this file of the workspace, rather than just reads it."""
    return any(re.search(way, text, re.MULTILINE) for way in _ways_to_run(path, content, _INTERPRETERS + _SOURCES))


def asks_for(text: str, path: str, content: str = "") -> bool:
    """Whether a prompt makes this file the student's: it names the file, or for code a folder or pattern that it fits.

    "so that `python3 score.py` prints 5" has it run, and asks nobody to change it.
    """
    for way in _ways_to_run(path, content, _INTERPRETERS):
        text = re.sub(way, " ", text, flags=re.MULTILINE)
    if mentions_path(text, path) or not _is_code(path, content):
        return mentions_path(text, path)
    folders = [re.escape(str(parent)) for parent in PurePosixPath(path).parents][:-1]
    patterns = re.findall(r"[\w./*-]*(?:\*[\w/]*\.|/\*)[\w./*-]*", text)  # such as *.py and src/*
    return any(re.search(rf"(?<![\w./-])(?:\./)?{folder}/(?![\w.*-])", text) for folder in folders) or any(
        fnmatchcase(path, pattern) or fnmatchcase(PurePosixPath(path).name, pattern) for pattern in patterns
    )


def steered_by(text: str) -> list[str]:
    return list(dict.fromkeys(file for program, files in TOOLS.items() if invokes(text, program) for file in files))


def risks(text: str, case: str, *, by_exit_code: bool) -> Iterator[str]:
    """What a student may still do about a command, in words: where the case names a file, it is the student's."""
    for file in steered_by(text):
        if "*" not in file and mentions_file(case, file):
            yield f"what the command does is up to {file}, which the student may write"
    if by_exit_code and invokes(text, _RUNNERS):
        yield "code of the student runs inside the test runner and may end it with 0; look at its output, too"


def protected_files(text: str, evidence: Evidence, keeps: Sequence[str] = ()) -> dict[str, str]:
    """The files of the case to put back: all that its prompt does not ask to change.

    A prompt that names code (or any file, where the case brings no code) says by that which files are the student's.
    Where it does not, all code is (or all files): but no test, nothing that decides by its name, no shell script beside
    other code, and not what the check runs if that leaves other code to work on.
    """
    files = {_plain(path): content for path, content in evidence.files.items()}
    names = {PurePosixPath(path).name for path in files}
    asked = set(map(_plain, evidence.asked_for))
    code = [path for path, content in files.items() if _is_code(path, content) and not is_test(path)]
    suffixes = (*_CODE, *_SHELL) if code else (*_CODE, *_SHELL, *_DATA)
    words = re.findall(r"(?![A-Z]\w*\.js\b)\b[\w/-]+\.\w{2,}\b(?!\()", evidence.prompt)
    added = [word for word in words if word.endswith(suffixes) and not {PurePosixPath(word).name} & names]
    if any(not is_test(path) for path in (*added, *asked) if path in added or path in code or path.endswith(suffixes)):
        runs = _with_what_it_runs(text, files)
        decide = {path for path in asked & files.keys() if _DECIDING.search(path) and mentions_path(runs, path)}
        students = asked - decide if added or asked - decide else asked
    else:
        own = [path for path in code or files if not is_test(path) and not _fits(path, _STEERING)]
        own = [path for path in own if not _DECIDING.search(PurePosixPath(path).name)] or own
        own = [path for path in own if not path.endswith(_SHELL)] or own
        own = [path for path in own if not executes(text, path, files[path])] or own
        students = asked | set(own)
    students |= set(map(_plain, keeps))
    return {path: content for path, content in files.items() if not _is_below(path, students)}


@dataclass(frozen=True)
class PlantFinder:
    """Tells what a student planted from what may be its work, among the files that the case did not bring."""

    text: str  # what the check runs
    evidence: Evidence
    protected: Mapping[str, str]
    keeps: Sequence[str] = ()

    @cached_property
    def _steering(self) -> list[str]:
        return steered_by(self.text)

    @cached_property
    def _starts_tools(self) -> bool:
        return invokes(self.text, "|".join(TOOLS))

    @cached_property
    def _brings_tests(self) -> bool:
        """Where the case has none, the student's tests are its work."""
        return self._starts_tools and ("$CHECK" in self.text or any(map(is_test, self.evidence.files)))

    @cached_property
    def _brought(self) -> set[str]:
        """The files of the case, with their folders."""
        paths = [PurePosixPath(path) for path in self.evidence.files]
        return {".", *(str(each) for path in paths for each in (path, *path.parents))}

    @cached_property
    def _asked(self) -> set[str]:
        return set(map(_plain, (*self.evidence.asked_for, *self.keeps)))

    @cached_property
    def _programs(self) -> list[PurePosixPath]:
        """What was put back and can load other files."""
        return [
            PurePosixPath(path)
            for path, content in self.protected.items()
            if _is_code(path, content) or _fits(path, _STEERING) or not PurePosixPath(path).suffix
        ]

    @cached_property
    def _loads(self) -> str:
        """The lines of these programs that load another file if it is there."""
        return "\n".join(
            line
            for path in self._programs
            for line, blocks in _with_blocks(self.protected[str(path)])
            if _LOADS.search(line)
            and (path.suffix in _PERL or _MAY_LACK.search(line) or any(map(_FALLBACK.search, blocks)))
        )

    def find(self, entries: Sequence[Entry]) -> list[str]:
        plants: set[str] = set()
        for entry in sorted(entries, key=lambda entry: entry.path.count("/")):
            if not _is_below(entry.path, plants) and self._is_plant(PurePosixPath(entry.path), entry.kind == "folder"):
                plants.add(entry.path)
        return sorted(plants)

    def _is_plant(self, file: PurePosixPath, folder: bool) -> bool:
        if str(file) in self._brought or ".git" in file.parts or _is_below(str(file), self._asked):
            return False
        if not folder and self._shadows(file):
            return not mentions_path(self.evidence.prompt, str(file))
        if file.name == "__pycache__":  # compiled from who knows what
            return True
        steering = [each for each in (file, *file.parents) if self._steers(each.name)]
        is_added_test = self._brings_tests and is_test(str(file)) and file.suffix not in _DATA
        if not folder and (is_added_test or self._is_loaded(file)):
            steering.append(file)
        return not all(mentions_path(self.evidence.case, str(each), as_folder=True) for each in steering)

    def _steers(self, name: str) -> bool:
        hidden = self._starts_tools and name.startswith(".") and name not in _HIDDEN_OF_GIT
        return hidden or _fits(name, self._steering)

    def _shadows(self, file: PurePosixPath) -> bool:
        """Whether it would be loaded in place of a file that was put back, or of an installed module."""
        stem, folder = re.split("[.,]", file.name)[0], file.parent
        if stem == "__init__" and any(folder in program.parents for program in self._programs):
            return folder.name in _TEST_FOLDERS or not _mentions_word(self.evidence.prompt, folder.name or ".")
        if stem in _PACKAGE and folder.name:
            stem, folder = folder.name, folder.parent
        installed = stem in sys.stdlib_module_names or stem in _PYTHON_TOOLS
        return (installed and str(folder) in self._brought and file.suffix in _PYTHON) or any(
            folder == program.parent
            and stem == program.name.split(".")[0]
            and (file.suffix in _STANDS_IN.get(program.suffix, ()) or stem.casefold().endswith("makefile"))
            for program in self._programs
        )

    def _is_loaded(self, file: PurePosixPath) -> bool:
        stem = file.parent.name if file.stem in _PACKAGE else file.name.split(".")[0]
        if not self._loads or mentions_file(self._loads, file.name):
            return bool(self._loads)
        if file.suffix in (*_SHELL, ".inc", ".d") and re.search(r"[$*]", self._loads):
            return True  # what is loaded is found out only when it runs
        by_stem = bool(stem) and file.suffix not in _DATA and _mentions_word(self._loads, stem)
        return by_stem and not _mentions_word(self.evidence.case, stem)


def _with_blocks(source: str) -> Iterator[tuple[str, list[str]]]:
    """The lines of a program, each with those that open the blocks that it is in, by indentation."""
    blocks: list[tuple[int, str]] = []
    for line in filter(str.strip, source.expandtabs().splitlines()):
        depth = len(line) - len(line.lstrip())
        while blocks and blocks[-1][0] >= depth:
            blocks.pop()
        yield line, [opening for _, opening in blocks]
        blocks.append((depth, line))


def _with_what_it_runs(text: str, protected: Mapping[str, str]) -> str:
    """The text of a command with that of the files that it runs, and of those that they run."""
    remaining = dict(protected)
    while True:
        steering = steered_by(text)
        runs = [
            path
            for path, content in remaining.items()
            if _fits(path, steering) or (_is_code(path, content) and mentions_file(text, PurePosixPath(path).name))
        ]
        if not runs:
            return text
        text = "\n".join([text, *(remaining.pop(path) for path in runs)])


@dataclass(frozen=True)
class Guarded:
    """What was done before a check ran its programs."""

    sandbox: Sandbox
    protected: Mapping[str, str]
    changed: Sequence[str]  # of these, before they were put back
    removed: Sequence[str]

    async def conclude(self, finding: Finding) -> Finding:
        """A failure says what was put back and removed. A pass is none if tests were changed while they ran."""
        if finding.passed:
            for path, content in self.protected.items():
                decides = is_test(path) or _DECIDING.search(PurePosixPath(path).name)
                if decides and not await _is_as_brought(self.sandbox, path, content):
                    return Finding(False, f"{path}, which the case brought, was changed while the check ran")
            return finding
        notes = [
            f"{done}: {', '.join(map(printable, files[:MAX_NAMED]))}{', …' if len(files) > MAX_NAMED else ''}"
            for done, files in {
                "put back as the case brought it": self.changed,
                "removed, as nothing asks for it": self.removed,
            }.items()
            if files
        ]
        return Finding(False, f"{finding.reason} ({'; '.join(notes)})") if notes else finding


async def disarm(
    check_dir: CheckDir, evidence: Evidence, text: str, keeps: Sequence[str] = (), *, starts_programs: bool = True
) -> Finding | Guarded:
    """Put back and remove what would decide for a check that runs this text.

    A finding if the student made that impossible, or hid work from git.
    """
    sandbox = check_dir.sandbox
    words = re.findall(r"[\w/-]+\.py\b", evidence.prompt)
    own = {part.split(".")[0] for path in (*evidence.files, *evidence.asked_for, *words) for part in path.split("/")}
    await check_dir.put("../python/sitecustomize.py", SITE % (sandbox.workspace, sorted(own)))
    protected = protected_files(text, evidence, keeps)
    text = _with_what_it_runs(text, protected) if starts_programs else ""
    changed = [path for path, content in protected.items() if not await _is_as_brought(sandbox, path, content)]
    above = check_dir.root.rpartition("/")[0]
    names = [word for pattern in (".*", *_STEERING) for word in ("-o", "-name", pattern)][1:]
    paths = "\0".join(protected)
    prepared = await check_dir.run(["/bin/sh", "-c", _PREPARE, "sh", above, sandbox.home, *names], SECONDS, stdin=paths)
    if prepared.killed_why:
        return Finding(False, f"what was left cannot be looked through: it {prepared.killed_why}")
    for path, content in protected.items():
        try:
            await sandbox.write(path, content)
        except OSError as error:
            return Finding(False, f"{path} cannot be put back as the case brought it: {in_words(error)}")
    entries = await sandbox.list("", MAX_FILES + 1)
    if len(entries) > MAX_FILES:
        return Finding(False, f"more than {MAX_FILES:,} files were left, too many to look through")
    plants = PlantFinder(text, evidence, protected, keeps).find(entries)
    if plants:
        removed = "\0".join(plants).encode("utf-8", "surrogateescape")
        await check_dir.run(["/usr/bin/env", "xargs", "-0", "rm", "-rf", "--"], SECONDS, stdin=removed)
    if invokes(text, "git") and (hidden := await _open_up_git(check_dir, evidence, entries)):
        return hidden
    return Guarded(sandbox, protected, changed, plants)


async def _is_as_brought(sandbox: Sandbox, path: str, content: str) -> bool:
    data = content.encode("utf-8", "surrogateescape")
    try:
        return await sandbox.read(path, len(data)) == data
    except OSError:
        return False


async def _open_up_git(check_dir: CheckDir, evidence: Evidence, entries: Sequence[Entry]) -> Finding | None:
    """A finding where a file that the student added hides a file of the case."""
    brought = set(map(_plain, (*evidence.files, *evidence.asked_for)))
    kept = {
        entry.path
        for entry in entries
        if PurePosixPath(entry.path).name in (".gitignore", ".gitattributes")
        and (entry.path in brought or mentions_path(evidence.case, entry.path))
    }
    environment = {"KEPT": "\n".join(["", *(f"./{path}" for path in sorted(kept)), ""])}
    done = await check_dir.run(["/bin/sh", "-c", _GIT, _GIT_ONE], SECONDS, environment=environment)
    if done.killed_why:
        return Finding(False, f"the repository cannot be looked through: git {done.killed_why}")
    ignored = done.output.split("\0")
    for source, path in zip(ignored[::4], ignored[3::4], strict=False):
        if path in brought and source not in kept:
            return Finding(False, f"{printable(source)}, which nothing asks for, hides {path} from git")
    return None


def _plain(path: str) -> str:
    return str(PurePosixPath(path))


def _is_below(path: str, paths: Collection[str]) -> bool:
    """Whether it is one of these, or in one of these folders."""
    return path in paths or any(str(parent) in paths for parent in PurePosixPath(path).parents)


def _fits(path: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(part, pattern) for part in PurePosixPath(path).parts for pattern in patterns)
