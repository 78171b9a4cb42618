"""What could be an attack in a skill: text that a person does not see, and commands that fetch code or read secrets.

An error is near certain; whatever has an innocent use in public skills is a warning at most.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from upskill.skills.files import SkillFile
from upskill.skills.frontmatter import Level, Problem
from upskill.skills.markdown import blank_code

MAX_SHOWN = 60  # letters of what is hidden
MAX_LINE = 2000  # letters of a line that are looked at
MAX_SCANNED = 2_000_000  # bytes; a larger file is data
# What is invisible, and what it is called. Joiners are part of many scripts and of emoji, so only those between ASCII
# letters count, and selectors only where several follow each other. The flags of England, Scotland and Wales have tags.
INVISIBLE = {
    "invisible tag characters": r"[\U000e0000-\U000e007f]+",
    "characters that change the text direction": r"[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]+",
    "invisible characters": (
        r"(?:[\u200b-\u200d\u2060-\u2064\ufeff]{4,}|[\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180e\u200b\u2060-\u2065\u206a-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb]"
        r"|(?<=[\x00-\x7f])[\u200c\u200d]+(?=[\x00-\x7f])|[\ufe00-\ufe0f\U000e0100-\U000e01ef]{2,})+"
    ),
    "control characters": r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f]+",
}
_FLAG = re.compile(r"\U0001f3f4[\U000e0061-\U000e007a]{3,6}\U000e007f")
_PATTERNS = {what: re.compile(pattern) for what, pattern in INVISIBLE.items()}
_CANDIDATE = re.compile(  # every pattern above needs one of these
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u202a-\u202e"
    r"\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e01ef]"
)
# Tags, overrides of the direction, and runs that are long enough to spell a word: no editor leaves these behind.
_SMUGGLED = re.compile(
    r"[\U000e0000-\U000e007f]|[\u202d\u202e]|[\ufe00-\ufe0f\U000e0100-\U000e01ef]{4}|[\u200b-\u200d\u2060-\u2064\ufeff]{8}"
)
_RIGHT_TO_LEFT = re.compile(
    r"[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]"
)  # Hebrew, Arabic and their relatives
HIDDEN = (
    re.compile(r"<!--(?P<text>.*?)(?:-->|\Z)", re.S),
    re.compile(
        r"^[ ]{0,3}\[(?://|comment|_|#)\]:\s*(?:#|<>)\s*[(\"'](?P<text>.*?)[)\"']\s*$", re.M | re.I
    ),
    re.compile(
        r"<(?P<tag>\w+)\b[^>]{0,300}?(?:\shidden\b|display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*0)[^>]{0,300}>"
        r"(?P<text>.{0,2000}?)</(?P=tag)>",
        re.S | re.I,
    ),
)
# Comments in public skills often address the agent. These ask it to drop its rules or to keep something from the user.
_AGAINST_THE_USER = re.compile(
    r"\b(?:ignore|disregard|override|forget)\b[^.]{0,40}\b(?:previous|prior|earlier|above|system|safety)\b[^.]{0,20}"
    r"\b(?:instructions?|prompts?|rules?|guidelines?|messages?)\b"
    r"|\b(?:do not|don't|never|without) (?:tell|inform|notify|alert|ask|warn|show)(?:ing)? (?:this to )?the user\b",
    re.I,
)

_SHELL = r"(?:sudo\s+(?:-\S+\s+)*)?(?:/\S*/)?(?:ba|z|da|k)?sh(?=[\s;&|)\"'`]|$)"
_FETCH = r"(?:sudo\s+)?(?:curl|wget)\b"
_DECODE = r"base64\s+(?:-d|-D|--decode)\b"
_PIPED = (
    rf"{_FETCH}[^\n|]*\|\s*{_SHELL}|{_SHELL}\s+(?:-c\s+[\"']?\$\(|<\()\s*{_FETCH}|eval\s+[\"']?(?:\$\(|`)\s*{_FETCH}"
    r"|(?:iwr|irm|Invoke-WebRequest|Invoke-RestMethod)\b[^\n|]*\|\s*(?:iex|Invoke-Expression)\b"
)
PIPED = re.compile(_PIPED)
# The same as a command of a script, neither printed nor in a comment: at its start, or as what a call runs.
_START = r"^\s*(?:(?:if|then|do|else|!)\s+)*|(?:[;&|({]|\bthen|\bdo|\belse)\s+|\$\("
_CALL = (
    r"\b(?:system|popen|Popen|run|call|check_call|check_output|exec|execSync|spawn|spawnSync)"
    r"\(\s*(?:\[\s*[\"']\w+[\"'],\s*[\"']-c[\"'],\s*)?[a-z]?[\"'`]"
)
_IN_SHELL = re.compile(rf"^(?!\s*(?:#|echo\b|printf\b|cat\b)).*?(?:{_START})(?:{_PIPED})")
_IN_PROGRAM = re.compile(rf"^(?!\s*(?:#|//|\*)).*{_CALL}[^\"'`]*?(?:{_PIPED})")
# A shell gets what a person cannot read: encoded text, or a file from a bare address.
_OBSCURED = re.compile(
    rf"[\w+/]{{24,}}={{0,2}}[\"']?\s*\|\s*{_DECODE}[^\n|]*\|\s*{_SHELL}"
    rf"|{_DECODE}[^\n|]*[\w+/]{{24,}}={{0,2}}[^\n|]*\|\s*{_SHELL}"
    rf"|{_FETCH}[^\n|]*//(?!127\.|10\.|192\.168\.)\d+\.\d+\.\d+\.\d+[^\n|]*\|\s*{_SHELL}"
)
_SECRETS = (
    r"(?:\.aws[\"'\s/,]+credentials|\.ssh[\"'\s/,]+id_[a-z0-9]+(?!\w*\.pub)|\.netrc|\.pgpass|\.git-credentials|\.pypirc"
    r"|\.gnupg/\w|\.docker[\"'\s/,]+config\.json|\.config/gh/hosts\.yml|gcloud/application_default_credentials)"
)
_OF_HOME = rf"(?:~|\$\{{?HOME\}}?|\bhome\(\)|HOME[\"']\]?\)?|homedir\(\)|USERPROFILE\W)[\"'\s/\\,+)]*{_SECRETS}"
SECRET = re.compile(_OF_HOME)
_READ = re.compile(
    rf"^(?!\s*(?:#|//|\*|echo\b)).*(?:\b(?:cat|base64|head|tail|less|strings|cp|scp|rsync|tar|zip|nc)\s[^|;&]*?"
    rf"|\b(?:open|readFile|readFileSync)\([^)]*?|(?:curl|wget)\s.*@|<\s*){_OF_HOME}"
    rf"|^(?!\s*#).*{_OF_HOME}.*\.(?:read_text|read_bytes|open)\("
)
# A line without any of these matches nothing above; looking for them first is what makes this fast.
_TELLTALES = (
    *(
        "curl",
        "wget",
        "base64",
        "iwr",
        "irm",
        "Invoke-Web",
        "Invoke-Rest",
        ".aws",
        ".ssh",
        ".netrc",
        ".pgpass",
    ),
    *(".git-cred", ".pypirc", ".gnupg", ".docker", ".config/gh", "gcloud/app"),
)
SHELL_ENDINGS = (".sh", ".bash", ".zsh", ".ps1")
PROGRAM_ENDINGS = (".py", ".js", ".mjs", ".cjs", ".ts", ".rb", ".pl", ".php")
_HERE_DOCUMENT = re.compile(
    rf"^(?!.*{_SHELL}[^<]*<<).*(?<!<)<<(?!<)-?\s*[\"']?([A-Za-z_]\w*)", re.M
)


def hidden_text(files: Iterable[SkillFile]) -> Iterator[Problem]:
    """What a model reads in instructions, or in a script, and a person does not see."""
    for file in files:
        kind = _kind(file)
        if not kind:
            continue
        text = file.data.decode("utf-8-sig", "replace")
        if kind == "instructions":
            yield from _problems(
                file, "hidden", (*_invisible_characters(text), *_hidden_comments(text))
            )
        else:
            certain = (row for row in _invisible_characters(text) if row[0] == "error")
            yield from _problems(file, "hidden", certain)


def risky_commands(files: Iterable[SkillFile]) -> Iterator[Problem]:
    """Commands that give a download to a shell, and reading a person's keys: an error in a script, else a warning."""
    for file in files:
        if kind := _kind(file):
            text = file.data.decode("utf-8-sig", "replace")
            yield from _problems(file, "security", _risks(text, kind))


def _risks(text: str, kind: str) -> Iterator[tuple[Level, int, str]]:
    command = _IN_SHELL if kind == "shell" else _IN_PROGRAM
    telltales = "|".join(re.escape(word) for word in _TELLTALES if word in text)
    if not telltales:
        return
    printed = _here_documents(text) if kind == "shell" else []
    for start in dict.fromkeys(
        text.rfind("\n", 0, place.start()) + 1 for place in re.finditer(telltales, text)
    ):
        line, number = text[start : start + MAX_LINE].partition("\n")[0], _line(text, start)
        runs_it = kind != "instructions" and not any(start in block for block in printed)
        if _OBSCURED.search(line):
            yield (
                "error",
                number,
                f"a shell runs something that nobody can read first: {_shorten(line.strip())}",
            )
        elif PIPED.search(line):
            level: Level = "error" if runs_it and command.search(line) else "warning"
            yield level, number, f"a shell runs a download: {_shorten(line.strip())}"
        elif kind != "instructions" and SECRET.search(line):
            level = "error" if runs_it and _READ.search(line) else "warning"
            what = "reads" if level == "error" else "names"
            yield (
                level,
                number,
                f"the script {what} a file with keys or passwords: {_shorten(line.strip())}",
            )


def _here_documents(text: str) -> list[range]:
    """Where a shell script has text that it prints or writes."""
    blocks: list[range] = []
    for opening in _HERE_DOCUMENT.finditer(text):
        closing = re.compile(rf"^\s*{opening[1]}\s*$", re.M).search(text, opening.end())
        blocks.append(range(opening.end(), closing.start() if closing else len(text)))
    return blocks


def _kind(file: SkillFile) -> str:
    """What reads a file: the model (instructions), a shell or another program; empty for data."""
    path = PurePosixPath(file.path)
    if len(file.data) > MAX_SCANNED:
        return ""
    ending = path.suffix.lower()
    if ending == ".md":
        return "instructions"
    start = file.data[:60].partition(b"\n")[0]
    if ending in SHELL_ENDINGS or (start.startswith(b"#!") and start.rstrip().endswith(b"sh")):
        return "shell"
    return "program" if ending in PROGRAM_ENDINGS or start.startswith(b"#!") else ""


def _problems(
    file: SkillFile, rule: str, rows: Iterable[tuple[Level, int, str]]
) -> Iterator[Problem]:
    for level, line, what in rows:
        yield Problem(level, rule, f"{file.path}, line {line}: {what}", file=file.path, line=line)


def _invisible_characters(text: str) -> Iterator[tuple[Level, int, str]]:
    """Each kind of invisible character in a text: how many, where the first is, and what tag characters spell."""
    if not _CANDIDATE.search(text):
        return
    text = _FLAG.sub("", text)
    for what, pattern in _PATTERNS.items():
        if matches := list(pattern.finditer(text)):
            letters = "".join(match[0] for match in matches)
            codes = ", ".join(
                f"{count} × U+{ord(letter):04X}"
                for letter, count in Counter(letters).most_common(3)
            )
            spelt = "".join(chr(ord(letter) & 0x7F) for letter in letters) if "tag" in what else ""
            detail = (
                f"that spell {_shorten(spelt)}" if spelt.isprintable() and spelt else f"({codes})"
            )
            smuggles = any(_SMUGGLED.search(match[0]) for match in matches)
            is_certain = smuggles and ("direction" not in what or _overrides(text))
            yield (
                "error" if is_certain else "warning",
                _line(text, matches[0].start()),
                f"{what} {detail}",
            )


def _overrides(text: str) -> bool:
    """Whether a line without right-to-left letters turns the direction of text."""
    return any(
        _SMUGGLED.search(line) and not _RIGHT_TO_LEFT.search(line) for line in text.split("\n")
    )


def _hidden_comments(text: str) -> Iterator[tuple[Level, int, str]]:
    """Comments and hidden elements outside of code: a rendered page does not show them, a model reads them."""
    patterns = [pattern for pattern in HIDDEN if pattern.search(text)]
    text = blank_code(text) if patterns else text
    for pattern in patterns:
        for match in pattern.finditer(text):
            if hidden := " ".join(match["text"].split()):
                is_certain = (
                    _AGAINST_THE_USER.search(hidden)
                    or PIPED.search(hidden)
                    or SECRET.search(hidden)
                )
                what = f"a rendered page hides this text: {_shorten(hidden)}"
                yield "error" if is_certain else "warning", _line(text, match.start()), what


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def _shorten(text: str) -> str:
    return repr(text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…")
