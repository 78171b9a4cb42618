"""Guard: what a student left in the workspace must not decide what a program of a check does.

`pytest` imports conftest.py, `make` follows the Makefile, Python imports a json.py before its own. The environment of
a check turns off what it can; files that would steer its programs are removed (`TOOLS`) or put back as the case
brought them, and so are tests and scripts that the check runs. A file that the case asks for is left alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from upskill.checks import Evidence, Finding
from upskill.checks.workspace import CheckDir, in_words

SECONDS = 60.0  # for tidying up

# Python finds modules of the workspace, but only after its own and those that are installed.
SITE = """
import os, sys
for folder in (os.path.dirname(os.path.abspath(sys.argv[0])) if sys.argv and os.path.isfile(sys.argv[0]) else "", %r):
    if folder and folder not in sys.path:
        sys.path.append(folder)
"""


_PYTHON_TESTS = ("test_*.py", "*_test.py")
# The files in a workspace that steer a program, by the words that a command calls it with.
TOOLS: Mapping[str, tuple[str, ...]] = {
    r"pytest|py\.test|unittest|nose2|tox|nox|coverage|python3?(?:\.\d+)?": (
        *("conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "tox.ini", "setup.cfg"),
        *("pyproject.toml", ".coveragerc", "sitecustomize.py", "usercustomize.py", "*.pth"),
        *("*.dist-info", "*.egg-info", "__pycache__", "noxfile.py"),
    ),
    r"pytest|py\.test|nose2|tox|nox|coverage": _PYTHON_TESTS,
    r"unittest": ("test*.py",),
    r"g?make": ("Makefile", "makefile", "GNUmakefile"),
    r"ninja|samu": ("*.ninja", ".ninja_*"),
    r"prove|perl": (".proverc",),
    r"ruff|mypy|pyright|flake8|pylint|black": (
        *("ruff.toml", ".ruff.toml", "mypy.ini", ".mypy.ini", "pyrightconfig.json", ".flake8", ".pylintrc"),
        *("pylintrc", "pyproject.toml", "setup.cfg", "tox.ini"),
    ),
    r"eslint|prettier|biome|tsc|tsx": (
        *("eslint.config.*", ".eslintrc*", ".eslintignore", ".prettierrc*", ".prettierignore"),
        *("biome.json*", "tsconfig*"),
    ),
    r"cmake|ctest": (
        *("CMakeLists.txt", "CMakePresets.json", "CMakeUserPresets.json", "CMakeCache.txt", "CMakeFiles"),
        *("CTestCustom.cmake", "CTestCustom.ctest", "CTestTestfile.cmake"),
    ),
    r"npm|npx|yarn|pnpm|node|jest|vitest|mocha|tsc|deno|bun": (
        *("package.json", "package-lock.json", ".npmrc", ".yarnrc", ".yarnrc.yml", ".pnp.cjs", "node_modules"),
        *("jest.config.*", "vitest.config.*", "vite.config.*", "babel.config.*", ".babelrc*", ".mocharc*"),
        *("*.test.js", "*.test.ts", "*.spec.js", "*.spec.ts", "__tests__"),
    ),
    r"go": ("go.mod", "go.sum", "go.work", "vendor", "*_test.go"),
    r"cargo|rustc": (
        *("Cargo.toml", "Cargo.lock", "build.rs", ".cargo", "rust-toolchain", "rust-toolchain.toml", "target"),
    ),
    r"rake|rspec|bundle|ruby": ("Rakefile", "Gemfile", ".rspec", ".bundle"),
    r"gradlew?|mvn": (
        *("build.gradle*", "settings.gradle*", "pom.xml", "gradle.properties", ".gradle", ".mvn", "target"),
    ),
}
# Tests that the case brings decide, so they are put back even where the prompt names them.
_TESTS = ("test_*", "*_test.*", "*_tests.*", "*.test.*", "*.spec.*", "*_spec.*")
_TEST_FOLDERS = {"test", "tests", "t", "spec", "__tests__"}
# Where the name of a file that is run says no more, it may as well be the program that the student has to fix.
_CHECKS = re.compile(r"check|verif|test|spec|valid|grade|assert", re.IGNORECASE)
# What is right, as a file: nobody is asked to write that, unless the prompt says so.
_EXPECTED = re.compile(r"expect|golden|oracle|ground.?truth", re.IGNORECASE)
_SHELL = (".sh", ".bash", ".zsh", ".ksh")
_CODE = (
    *(".py", ".js", ".mjs", ".cjs", ".ts", ".pl", ".rb", ".php", ".lua", ".r", ".jl"),
    *(".c", ".cc", ".cpp", ".cu", ".rs", ".go", ".java", ".kt", ".cs", ".swift"),
)
_DATA = (".txt", ".md", ".json", ".jsonl", ".csv", ".tsv", ".yaml", ".yml", ".toml", ".ini", ".xml", ".html", ".sql")
_INTERPRETERS = (
    r"(?:ba|da|z|k)?sh|source|\.|python3?(?:\.\d+)?|node|deno run|bun|tsx|perl|prove|ruby|php|lua|Rscript|julia|go run"
    r"|g?make|coverage run|pytest|py\.test|mocha|jest|vitest|rspec"
)
_LOOKS = r"-(?:-check|-syntax-only|[cnm])(?![\w-])"  # such an option has a file looked at, or something else run
_RUNNERS = r"pytest|py\.test|unittest|tox|nox|npm|npx|yarn|pnpm|jest|vitest|mocha|go test|cargo test"

# Folders are opened on the way down, so that nothing hides in a closed one.
_REMOVE = """
find . -type d ! -perm -700 -exec chmod u+rwx {} ';' 2>/dev/null
find . -name .git -prune -o "$@" -prune -exec rm -rf -- {} + 2>/dev/null
exit 0
"""
# What stands where a folder of the path belongs, or in place of the file.
_CLEAR = """
path=$1 folder=
case $path in */*) rest=${path%/*}/ ;; *) rest= ;; esac
while [ -n "$rest" ]; do
  folder=$folder${rest%%/*}; rest=${rest#*/}
  if [ -L "$folder" ] || { [ -e "$folder" ] && [ ! -d "$folder" ]; }; then rm -rf -- "$folder"; fi
  folder=$folder/
done
rm -rf -- "$path"
"""
# Keeps of a repository's settings what makes it a repository, and forgets what hides changes from `git status`.
_GIT = r"""
[ -e .git ] || [ -L .git ] || exit 0
if [ -L .git ] || [ ! -d .git ]; then rm -rf .git; exit 0; fi
chmod -R u+rwX .git 2>/dev/null
rm -rf .git/info/exclude .git/info/attributes .git/info/sparse-checkout .git/config.worktree .git/hooks .git/modules
rm -rf .git/commondir .git/objects/info/alternates
[ -f .git/config ] && [ ! -L .git/config ] && awk '
  /\\$/ { next }
  /^[ \t]*\[/ { keep = match($0, /^[ \t]*\[(core|user|init|remote "[^"\\]*"|branch "[^"\\]*")\][ \t]*$/); section = $0 }
  /^[ \t]*\[/ { if (keep) print; next }
  keep && section ~ /core/ && !/^[ \t]*(repositoryformatversion|filemode|logallrefupdates)[ \t]*=/ { next }
  keep && section ~ /remote/ && !/^[ \t]*(url|fetch)[ \t]*=/ { next }
  keep { print }
' .git/config > .git/config.new; mv -f .git/config.new .git/config
git ls-files -z 2>/dev/null | git update-index -z --no-assume-unchanged --stdin 2>/dev/null
git ls-files -z 2>/dev/null | git update-index -z --no-skip-worktree --stdin 2>/dev/null
find . -name .gitignore -not -path './.git/*' 2>/dev/null | while IFS= read -r file; do
  git ls-files --error-unmatch -- "$file" >/dev/null 2>&1 || rm -rf -- "$file"
done
exit 0
"""


def mentions_file(text: str, file: str) -> bool:
    return bool(re.search(rf"(?<![\w.-]){re.escape(file)}(?![\w-]|\.\w)", text))


def invokes(text: str, programs: str) -> bool:
    """Whether a command, or the source of a script, starts one of these programs (a pattern)."""
    return bool(re.search(rf"(?:(?<![\w.$-])|(?<=\s-m))(?:{programs})(?![\w-])", text))


def is_test(path: str) -> bool:
    *folders, name = PurePosixPath(path).parts
    return any(fnmatchcase(name, pattern) for pattern in _TESTS) or not _TEST_FOLDERS.isdisjoint(folders)


def executes(text: str, path: str, content: str = "") -> bool:
    """Whether a command or script runs this file of the workspace, rather than just reads it."""
    name = rf"{re.escape(PurePosixPath(path).name)}(?![\w-]|\.\w)"
    start = rf"(?<![\w.$-])(?:{_INTERPRETERS})"
    ways = [
        rf"{start}(?:\s+(?!{_LOOKS})-[\w=:-]+(?:\s+pipefail)?)*\s+(?:<\s*)?[\"']?(?:[^\s\"';|&]*/)?{name}",
        rf"[\"']{start}[\"']\s*,[^\"'\n]*[\"'](?!-)(?:[^\"'\s]*/)?{name}",  # words of a list
    ]
    if content.startswith("#!"):
        ways.append(rf"(?:^|[;&|(@\"'`]|\bthen|\bdo)\s*(?:\./|[^\s\"';|&=]+/){name}")
    if path.endswith(".py"):
        module = re.escape(".".join(PurePosixPath(path).with_suffix("").parts).removesuffix(".__main__"))
        ways.append(rf"-m[\s\"',]*(?:(?:unittest|pytest)\b[^;&|\n]*[\s\"',])?{module}(?!\w)")
    return any(re.search(way, text, re.MULTILINE) for way in ways)


def put_back(text: str, evidence: Evidence, keeps: Sequence[str] = ()) -> tuple[dict[str, str], str]:
    """The files to restore before a command runs: tests, expected outputs, what steers programs, and what it runs.

    If the case names no file for the student, only files that look like checks, or shell scripts beside other code,
    count: `python3 main.py` may run just what has to be fixed. Also returns all that is run, as text.
    """
    students = {PurePosixPath(path) for path in (*evidence.asked_for, *keeps)}
    remaining = {path: content for path, content in evidence.files.items() if PurePosixPath(path) not in students}
    mentioned = re.findall(r"(?![A-Z]\w*\.js\b)\b[\w/-]+\.\w+", evidence.prompt)  # Node.js is none
    names_files = bool(evidence.asked_for) or any(word.endswith((*_SHELL, *_CODE, *_DATA)) for word in mentioned)
    beside_code = any(path.endswith(_CODE) and not is_test(path) for path in evidence.files)
    own: dict[str, str] = {}
    direct = True
    while True:
        starts_programs = invokes(text, f"{_INTERPRETERS}|{'|'.join(TOOLS)}")
        steering = steered_by(text)
        restored: dict[str, str] = {}
        for path, content in remaining.items():
            name = PurePosixPath(path).name
            steers = _fits(path, steering) and not mentions_file(evidence.case, name)
            is_check = bool(_CHECKS.search(name)) or (path.endswith(_SHELL) and beside_code)
            if (
                _EXPECTED.search(path)
                or (is_test(path) and starts_programs)
                or steers
                or ((is_check or (names_files and direct)) and executes(text, path, content))
            ):
                restored[path] = content
                if steers or path.endswith(_SHELL):
                    text += f"\n{content}"
        remaining = {path: content for path, content in remaining.items() if path not in restored}
        own |= restored
        direct = False
        if not restored:
            return own, text


def steered_by(text: str) -> list[str]:
    return list(dict.fromkeys(file for program, files in TOOLS.items() if invokes(text, program) for file in files))


def risks(text: str, case: str, *, by_exit_code: bool) -> Iterator[str]:
    """What a student may still do about a command, in words: where the case names a file, it is the student's."""
    for file in steered_by(text):
        if "*" not in file and mentions_file(case, file):
            yield f"what the command does is up to {file}, which the student may write"
    if by_exit_code and invokes(text, _RUNNERS):
        yield "code of the student runs inside the test runner and may end it with 0; look at its output, too"


async def disarm(check_dir: CheckDir, evidence: Evidence, text: str, keeps: Sequence[str] = ()) -> Finding | None:
    """Remove or restore what would steer the programs of a command; a finding if the student made that impossible."""
    await check_dir.put("../python/sitecustomize.py", SITE % check_dir.sandbox.workspace)
    own, text = put_back(text, evidence, keeps)
    steering = [file for file in steered_by(text) if file not in keeps and not mentions_file(evidence.case, file)]
    if steering:
        spared = {word for word in re.findall(r"[\w.-]+", evidence.case) if _fits(word, steering)}
        spared |= {PurePosixPath(path).name for path in (*evidence.asked_for, *keeps)}
        spared -= {PurePosixPath(path).name for path in own}
        removed = [word for pattern in steering for word in ("-o", "-name", pattern)][1:]
        but = [word for name in sorted(spared) for word in ("!", "-name", name)]
        done = await check_dir.run(["/bin/sh", "-c", _REMOVE, "sh", "(", *removed, ")", *but], SECONDS)
        if done.killed_why:
            return Finding(False, f"what was left cannot be looked through: it {done.killed_why}")
    for path, content in own.items():
        await check_dir.run(["/bin/sh", "-c", _CLEAR, "sh", path], SECONDS)
        try:
            await check_dir.sandbox.write(path, content)
        except OSError as error:
            return Finding(False, f"{path} cannot be put back as the case brought it: {in_words(error)}")
    if invokes(text, "git"):
        await check_dir.run(["/bin/sh", "-c", _GIT], SECONDS)
    return None


def _fits(path: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(part, pattern) for part in PurePosixPath(path).parts for pattern in patterns)
