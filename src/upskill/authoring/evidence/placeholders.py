"""Placeholders: commands without the values of one run: dates, ids, hashes, tickets, and paths of one machine."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from upskill.traces.redaction.redact import MARK

# Folders that are the same on every machine, and settings in anyone's home.
_EVERYWHERE = re.compile(
    r"/(?:etc|usr|dev|bin|sbin|lib|lib64|proc|sys|opt|run|var/(?:run|log|lib))(?:/|$)|~/\.|~/?$|/$"
)
_PATH = re.compile(r"(?<![\w.:/~$}*>)?&-])(?:~(?=/)|(?=/[\w.@~-]))(?:/[\w.@+%,~-]+)*/?(?![\w*{$])")
# Numbers that only these words before them tell from a setting.
_NUMBERED = r"run|job|build|pipeline|issue|ticket|pr|mr|task|execution|session|deployment"
# Names that look like the id of a ticket.
_STANDARDS = (
    r"(?:UTF|SHA|ISO|AES|RSA|RFC|CVE|TLS|HTTP|MD|GPT|EC|ES|BASE|CP|PEP|US|EU|AP|CUDA|RTX|WIN|KOI|GB|MP|ARM|RS|HS|PKCS)-"
)
_DAY = r"20[1-4]\d-?[01]\d-?[0-3]\d"
_CLOCK = r"(?:[T_-]\d\d[:-]?\d\d(?:[:-]?\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?"
_OF_ONE_RUN = tuple(
    (re.compile(pattern), name)
    for pattern, name in (
        (r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b", "id"),
        (rf"(?<![\w.]){_DAY}{_CLOCK}(?![\w:])|(?<=[-_]){_DAY}{_CLOCK}(?!\d)", "date"),
        (r"(?<![\w-])[a-z][a-z0-9-]*-[a-f0-9]{8,10}-[a-z0-9]{5}(?![\w-])", "pod"),
        (r"(?<=sha256[:-])[0-9a-f]{16,}|(?<=sha512[:-])[0-9a-f]{16,}", "digest"),
        (r"\b(?:i|vpc|subnet|sg|ami|vol|eni|snap)-[0-9a-f]{8,17}\b", "id"),
        (r"(?<![0-9A-Za-z.#])(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,64}(?![0-9A-Za-z])", "hash"),
        (r"(?<![\w./:=#-])(?=\d*[a-f]\d*[a-f])(?=[a-f]*\d[a-f]*\d)[0-9a-f]{4,6}(?![\w./:-])", "id"),
        (rf"\b(?!{_STANDARDS})[A-Z]{{2,10}}-\d{{1,6}}\b", "ticket"),
        (r"(?<![\w./])(?!127\.0\.0\.1|0\.0\.0\.0|255\.)(?:\d{1,3}\.){3}\d{1,3}(?:/\d+)?(?![\w.])", "address"),
        (r"(?<![\w.:-])#?\d{6,}(?![\w.%])", "id"),
    )
)
_NUMBER = re.compile(
    rf"(?P<option>\s--?(?:[a-z]+-)*(?:{_NUMBERED}|id|pid)[ =])#?\d{{2,}}(?![\w.])"
    rf"|(?P<words>\b(?P<what>{_NUMBERED})(?: [a-z][\w-]*)? |/(?P<part>{_NUMBERED}|pull)s?/)#?\d{{3,}}(?![\w.])"
)


def quotable(*texts: str) -> bool:
    """Whether texts fit between backquotes on one line, and hold no redacted secret."""
    return all(text.strip() and "\n" not in text and MARK.rstrip() not in text and "`" not in text for text in texts)


def portable(command: str, folder: str = "") -> str:
    """A command that anyone can use: paths below the session's folder are relative, other values have placeholders."""

    def path(found: re.Match[str]) -> str:
        whole = found[0]
        if folder and (whole.rstrip("/") == folder.rstrip("/") or whole.startswith(f"{folder.rstrip('/')}/")):
            return whole[len(folder.rstrip("/")) :].lstrip("/") or "."
        if not whole or _EVERYWHERE.match(whole):
            return whole
        return _placeholder(command, found.start(), "file" if re.search(r"\.\w{1,5}$", whole) else "folder")

    command = _PATH.sub(path, command)
    return without_values(command)


def without_values(text: str) -> str:
    """A text with placeholders for dates, ids, hashes, tickets and addresses."""
    for pattern, name in _OF_ONE_RUN:
        text = pattern.sub(lambda found, name=name: _placeholder(found.string, found.start(), name), text)
    return _NUMBER.sub(_named_number, text)


def _named_number(found: re.Match[str]) -> str:
    if found["option"]:
        return f"{found['option']}<{found['option'].strip(' =').lstrip('-')}>"
    return f"{found['words']}<{found['what'] or found['part']}>"


def _placeholder(text: str, start: int, name: str) -> str:
    """A placeholder, named after the option that it is the value of."""
    option = re.search(r"(?:^|\s)--([a-z][\w-]*)[ =][\"']?$", text[:start])
    return f"<{option[1]}>" if option else f"<{name}>"


def is_relative(folder: str) -> bool:
    return bool(folder) and not PurePosixPath(folder).is_absolute() and not folder.startswith(("~", "$", ".."))
