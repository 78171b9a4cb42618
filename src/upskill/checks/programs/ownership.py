"""Whose a file of a case is: the student's to change, or the case's own, which is put back before programs run.

The prompt decides where it names the work: a file, a folder (`src/`), a pattern (`*.md`, "every .sql file"). Where it
names none, what the check uses as its program, test, input or expectation is the case's own; the rest is the work.
`keeps`, `output_file`, `extract` and checks of files name the student's files in so many words. Where `keeps` names
some of those that would be taken for the work, the others are the case's own.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from upskill.checks import Evidence

_TESTS = (
    "test_*",
    "test.*",
    "tests.*",
    "*_test.*",
    "*_tests.*",
    "*.test.*",
    "*.spec.*",
    "*_spec.*",
)
_TEST_FOLDERS = {"test", "tests", "t", "spec", "__tests__"}
# What decides, by a word of its name.
_DECIDING = re.compile(
    r"(?:^|[^a-z])(?:check|verif(?:y|ier)|tests?|spec|valid(?:ate|ator)|grad(?:er?|ing)|assert|scor(?:er?|ing)|judge|harness"
    r"|expect(?:ed)?|want(?:ed)?|golden|oracle|truth|solutions?(?=\.(?:txt|json|csv)$))(?:s|ed|er)?(?:[^a-z]|$)",
    re.IGNORECASE,
)
# "Write three unit tests", and not "write code to pass the tests".
_WRITES_TESTS = re.compile(
    r"\b(?:write|add|create|extend|implement|provide|include)\s+(?:(?!to\b|that\b|so\b|until\b|code\b)\w+\s+){0,3}?tests?\b"
    r"(?!\s+(?:data|files?\s+(?:pass|from)))",
    re.IGNORECASE,
)
# "without touching util.py", to the end of the sentence; and "leave util.py as it is".
_HANDS_OFF = re.compile(
    r"(?:\bnot|n['’]t|\bnever|\bwithout)\s+(?:\w+\s+)?(?:chang|edit|modif|touch|alter|rewrit)\w*(?:(?![.!?;]\s)[^\n])*"
    r"|\bleave\b(?:(?![.!?;]\s)[^\n])*\b(?:alone|unchanged|untouched|as (?:it|they|is|are)\b)",
    re.IGNORECASE,
)
SHELL = (".sh", ".bash", ".zsh", ".ksh")
_CODE = (
    *(
        ".py",
        ".js",
        ".mjs",
        ".cjs",
        ".ts",
        ".pl",
        ".pm",
        ".rb",
        ".php",
        ".lua",
        ".r",
        ".jl",
        ".ipynb",
    ),
    *(
        ".t",
        ".c",
        ".cc",
        ".cpp",
        ".h",
        ".hpp",
        ".cu",
        ".cuh",
        ".rs",
        ".go",
        ".java",
        ".kt",
        ".cs",
        ".swift",
        ".sql",
    ),
)
DATA = (
    ".txt",
    ".md",
    ".json",
    ".jsonl",
    ".csv",
    ".tsv",
    ".yaml",
    ".yml",
    ".toml",
    ".ini",
    ".xml",
    ".html",
)
_INTERPRETERS = (
    r"(?:ba|da|z|k)?sh|python3?(?:\.\d+)?|node|deno run|bun|tsx|perl|prove|ruby|php|lua|Rscript|julia|go run"
    r"|g?make|coverage run|pytest|py\.test|mocha|jest|vitest|rspec"
)
_SOURCES = r"|source|\."
_LOOKS = r"-(?:-check|-syntax-only|[cnm])(?![\w-])"  # such an option has a file looked at, or something else run
# Such a command only looks at files, and compares them with nothing that another prints.
_READS = re.compile(
    r"^\W*(?:(?:e?grep|jq|cat|test|head|tail|wc|awk|stat|sort|uniq)\b|\[)(?!.*\$\()"
)


def commands_of(text: str) -> list[str]:
    return [command for command in re.split(r"[\n;|]|&&", text) if command.strip()]


def plain(path: str) -> str:
    return str(PurePosixPath(path))


def is_below(path: str, paths: Collection[str]) -> bool:
    """Whether it is one of these, in one of these folders, or fits one of these patterns."""
    return (
        path in paths
        or any(str(parent) in paths for parent in PurePosixPath(path).parents)
        or any("*" in pattern and fnmatchcase(path, pattern) for pattern in paths)
    )


def mentions_file(text: str, file: str) -> bool:
    return bool(re.search(rf"(?<![\w.-]){re.escape(file)}(?![\w-]|\.\w)", text))


def mentions_path(text: str, path: str, *, as_folder: bool = False) -> bool:
    """Whether a text names this file by its path or the end of it: `lib/add.py` does not name src/add.py.

    A folder is also named by what is in it.
    """
    parts = PurePosixPath(path).parts
    ends = "|".join(re.escape("/".join(parts[first:])) for first in range(len(parts)))
    return bool(
        re.search(
            rf"(?<![\w./-])(?:\./|/workspace/)?(?:{ends})(?![\w-]|\.\w{'' if as_folder else '|/[^/]'})",
            text,
        )
    )


def mentions_word(text: str, word: str) -> bool:
    return bool(re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text, re.IGNORECASE))


def is_test(path: str) -> bool:
    *folders, name = PurePosixPath(path).parts
    return any(fnmatchcase(name, pattern) for pattern in _TESTS) or not _TEST_FOLDERS.isdisjoint(
        folders
    )


def decides(path: str) -> bool:
    """Whether it holds tests or expectations, by its name or that of its folder."""
    return is_test(path) or any(map(_DECIDING.search, PurePosixPath(path).parts))


def writes_tests(prompt: str) -> bool:
    return bool(_WRITES_TESTS.search(prompt))


def is_code(path: str, content: str = "") -> bool:
    return path.lower().endswith((*_CODE, *SHELL)) or content.startswith("#!")


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
        module = re.escape(
            ".".join(PurePosixPath(path).with_suffix("").parts).removesuffix(".__main__")
        )
        ways.append(rf"-m[\s\"',]*(?:(?:unittest|pytest)\b[^;&|\n]*[\s\"',])?{module}(?!\w)")
    return ways


def executes(text: str, path: str, content: str = "") -> bool:
    """Whether a command or script runs this file of the workspace, rather than just reads it."""
    return any(
        re.search(way, text, re.MULTILINE)
        for way in _ways_to_run(path, content, _INTERPRETERS + _SOURCES)
    )


def asks_for(prompt: str, path: str, content: str = "") -> bool:
    """Whether a prompt makes this file the student's: by its name, or by a folder or pattern that it fits.

    "so that `python3 score.py` prints 5" has it run, and asks nobody to change it.
    """
    prompt = _HANDS_OFF.sub(" ", prompt)
    for way in _ways_to_run(path, content, _INTERPRETERS):
        prompt = re.sub(way, " ", prompt, flags=re.MULTILINE)
    if mentions_path(prompt, path):
        return True
    patterns = re.findall(r"[\w./*-]*(?:\*[\w/]*\.|/\*)[\w./*-]*", prompt)  # such as *.py and src/*
    patterns += [
        f"*.{suffix}"
        for suffix in re.findall(r"(?<![\w.*/-])\.(\w+)\W?\s+(?:file|script)s?\b", prompt)
    ]
    if any(
        fnmatchcase(path, each) or fnmatchcase(PurePosixPath(path).name, each) for each in patterns
    ):
        return True
    return any(
        re.search(
            rf"(?<![\w./-])(?:\./)?{folder}(?:/(?![\w.*-])|\W?\s+(?:folder|directory)\b)"
            rf"|\b(?:folder|directory|files? (?:in|of|under))\s+\W?{folder}(?![\w./-])",
            prompt,
        )
        for folder in [re.escape(str(parent)) for parent in PurePosixPath(path).parents][:-1]
    )


def named_files(prompt: str, files: Mapping[str, str]) -> list[str]:
    """The files of a case that its prompt or a check of files names as the work."""
    tests = writes_tests(prompt)
    return [
        path
        for path, text in files.items()
        if (tests or not is_test(path)) and asks_for(prompt, path, text)
    ]


def protected_files(
    text: str,
    evidence: Evidence,
    steering: Sequence[str],
    keeps: Sequence[str] = (),
    left: Collection[str] = (),
) -> dict[str, str]:
    """The files of the case to put back.

    `steering` has patterns of files that steer programs of the check, `left` what is in the workspace: "discord.py" and
    "node.js" are files only where there are such files.
    """
    files = {plain(path): content for path, content in evidence.files.items()}
    graded = set(map(plain, evidence.graded_files))
    kept = {path for path in files if is_below(path, set(map(plain, keeps)))}
    guessed = _guess_work(text, evidence, files, steering, left)
    students = graded | kept | (guessed if guessed.isdisjoint(kept) else set[str]())
    return {path: content for path, content in files.items() if path not in students}


def _guess_work(
    text: str,
    evidence: Evidence,
    files: Mapping[str, str],
    steering: Sequence[str],
    left: Collection[str],
) -> set[str]:
    names = {PurePosixPath(path).name for path in files}
    left_names = {PurePosixPath(path).name for path in left}
    asked = set(map(plain, (*evidence.graded_files, *named_files(evidence.prompt, files))))
    code = [path for path, content in files.items() if is_code(path, content) and not is_test(path)]
    suffixes = (*_CODE, *SHELL) if code else (*_CODE, *SHELL, *DATA)
    words = {
        PurePosixPath(word).name
        for word in re.findall(r"\b[\w/-]+\.\w{1,5}\b(?!\()", evidence.prompt)
    } - names
    added = {
        word
        for word in words
        if word.endswith(suffixes) and (word in left_names or mentions_file(text, word))
    }
    named = asked
    if not any(
        not is_test(path) and (path in code or path.endswith(suffixes)) for path in (*added, *asked)
    ):
        named = asked | set(_unnamed_work(text, evidence.prompt, files, code, steering))
    case_own = {
        path
        for path in asked & files.keys()
        if _is_oracle(path, files, (named | added) - {path}, text)
        or (
            not is_code(path, files[path])
            and (added or asked & set(code))
            and not _is_only_read(path, text)
        )
    }
    students = named - case_own if added or named - case_own else named
    spared = "\n".join(_HANDS_OFF.findall(evidence.prompt))
    return {path for path in files if is_below(path, students) and not mentions_path(spared, path)}


def _is_oracle(path: str, files: Mapping[str, str], others: Collection[str], text: str) -> bool:
    """Whether a file that the prompt names says what is right, by its name and use, and so is not to be changed.

    What other files that are named use themselves is a part of the work.
    """
    used = [command for command in commands_of(text) if not _READS.search(command)]
    runs = "\n".join(
        [*used, *(content for other, content in files.items() if other not in (*others, path))]
    )
    folders = [str(parent) for parent in PurePosixPath(path).parents][:-1]
    return decides(path) and any(
        mentions_path(runs, each, as_folder=True) for each in (path, *folders)
    )


def _unnamed_work(
    text: str, prompt: str, files: Mapping[str, str], code: Sequence[str], steering: Sequence[str]
) -> Iterator[str]:
    """The work where the prompt names none.

    Code but for what decides, shell scripts beside other code, and what the check runs if that leaves code to work on;
    and data that neither decides nor is what the check or its programs start from.
    """
    tests = writes_tests(prompt)
    free = [path for path in files if (tests or not is_test(path)) and not fits(path, steering)]
    own = [path for path in free if is_code(path, files[path])]
    own = [path for path in own if not decides(path) or tests] or own
    own = [path for path in own if not path.endswith(SHELL)] or own
    scripts = [files[path] for path in files if is_code(path, files[path]) and path not in own]
    own = [
        path for path in own if not executes("\n".join([text, *scripts]), path, files[path])
    ] or own
    yield from own
    programs = (
        [files[path] for path in files if is_code(path, files[path]) and path not in own]
        if own
        else []
    )
    for path in free:
        if path not in code and path not in own and not decides(path):
            by_word = mentions_word(prompt, PurePosixPath(path).stem)
            if by_word or not _is_input(path, text, programs):
                yield path


def _is_only_read(path: str, text: str) -> bool:
    commands = [
        command for command in commands_of(text) if mentions_file(command, PurePosixPath(path).name)
    ]
    return bool(commands) and all(map(_READS.search, commands))


def is_used(path: str, text: str) -> bool:
    """Whether a text names this file, or loads it as a module."""
    name = PurePosixPath(path)
    return mentions_file(text, name.name) or (is_code(path) and mentions_word(text, name.stem))


def _is_input(path: str, text: str, programs: Sequence[str]) -> bool:
    """Whether a program of the case names this file, or a command of the check does more than look at it."""
    name = PurePosixPath(path).name
    commands = [
        command
        for command in commands_of(text)
        if not _READS.search(command) and "$CHECK" not in command
    ]
    return any(mentions_file(each, name) for each in (*commands, *programs))


def fits(path: str, patterns: Sequence[str]) -> bool:
    return any(
        fnmatchcase(part, pattern) for part in PurePosixPath(path).parts for pattern in patterns
    )
