"""tldr's pages of a clone: which ones count (rule 1 in README.md), and their examples."""

from __future__ import annotations

import hashlib
import io
import re
import subprocess
import tarfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from upskill.checks.command_line import split_words

PAGES, BEFORE = "08e345f4", "0c0480e9"
FROM = "2025-01-01T00:00:00Z"
MIN_EXAMPLES = 5
ATTACK = re.compile(
    r"exploit|brute.?forc|credential|osint|penetration|pentest|attack|payload|phish|malware|hack"
    r"|crack|reconnaissance|red.?team|exfiltrat|spoof|vulnerab|fuzz|subdomain|open.source intelligence",
    re.IGNORECASE,
)
SEEN_BEFORE = (
    *(
        "foot",
        "vacuumdb",
        "ytmdl",
        "dnswalk",
        "pg_basebackup",
        "skills",
        "msgcat",
        "espeak-ng",
        "copilot",
    ),
    *(
        "doxx",
        "mpremote",
        "cfv",
        "flask-unsign",
        "picotool",
        "alembic",
        "wlc",
        "tuptime",
        "rbw",
        "sipcalc",
    ),
    *("gita", "ast-grep"),
)
PLACEHOLDER = re.compile(r"\{\{(.*?)\}\}(?!\})")


@dataclass(frozen=True)
class Page:
    path: str
    name: str
    heading: str
    links: list[str]
    examples: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])


def git(clone: Path, *arguments: str) -> bytes:
    return subprocess.run(
        ["git", "-C", str(clone), *arguments], check=True, capture_output=True
    ).stdout


def rank(name: str) -> str:
    return hashlib.sha256(f"bench/tldr:{name}".encode()).hexdigest()


def parse_page(path: str, text: str) -> Page:
    title = re.search(r"^# (.+)$", text, re.MULTILINE)
    notes = re.findall(r"^> (.+)$", text, re.MULTILINE)
    links = [
        link for note in notes if "ore information" in note for link in re.findall(r"<(\S+)>", note)
    ]
    examples = re.findall(r"^- (.+?):?\n+`(.+)`$", text, re.MULTILINE)
    heading = notes[0].rstrip(".") if notes else ""
    return Page(path, title[1].strip() if title else "", heading, links, examples)


def is_plain(command: str) -> bool:
    try:
        return bool(split_words(PLACEHOLDER.sub("x", command)))
    except ValueError:
        return False


def read_pages(clone: Path, dropped: Counter[str]) -> list[Page]:
    """The pages that may count, in the order of their hashes."""
    log = ("log", "--no-renames", "--diff-filter=A", f"--since={FROM}", "--name-only", "--format=")
    added = {*git(clone, *log, PAGES, "--", "pages/common").decode().split("\n")}
    before = git(clone, "ls-tree", "-r", "--name-only", BEFORE, "pages").decode().split()
    old_names = {Path(path).stem for path in before}
    pages: list[Page] = []
    with tarfile.open(fileobj=io.BytesIO(git(clone, "archive", PAGES, "pages/common"))) as archive:
        for member in archive:
            file = archive.extractfile(member)
            if file is None or member.name not in added:
                continue
            text = file.read().decode()
            page = parse_page(member.name, text)
            reason = find_reason(page, text, old_names)
            dropped[reason or "page counts"] += 1
            if not reason:
                pages.append(page)
    return sorted(pages, key=lambda page: rank(page.name))


def find_reason(page: Page, text: str, old_names: set[str]) -> str:
    """Why a page does not count; empty if it does."""
    if Path(page.path).stem in old_names:
        return "page: the tool had one before 2025"
    if "This command is an alias of" in text or "can refer to multiple" in text:
        return "page: alias or disambiguation"
    if page.name != Path(page.path).stem:
        return "page: of a subcommand"
    if page.name in SEEN_BEFORE:
        return "page: seen in the trial"
    if ATTACK.search(f"{page.name} {page.heading}"):
        return "page: attack tool"
    if sum(is_plain(command) for _, command in page.examples) < MIN_EXAMPLES:
        return f"page: fewer than {MIN_EXAMPLES} plain commands"
    return "" if page.links else "page: no link to more information"
