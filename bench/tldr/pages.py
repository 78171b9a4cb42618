"""tldr's pages of a clone: which ones count (rule 1 in README.md), and their examples."""

from __future__ import annotations

import hashlib
import re
import subprocess
from collections import Counter
from dataclasses import dataclass
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
SEEN_BEFORE = re.compile(
    r"foot|vacuumdb|ytmdl|dnswalk|pg_basebackup|skills|msgcat|espeak-ng|copilot|doxx|mpremote|cfv|flask-unsign|picotool"
    r"|alembic|wlc|tuptime|rbw|sipcalc|gita|ast-grep"
)
ALIAS = re.compile("This command is an alias of|can refer to multiple")
PLACEHOLDER = re.compile(r"\{\{(.*?)\}\}(?!\})")


@dataclass(frozen=True)
class Page:
    path: str
    text: str
    name: str
    heading: str
    examples: list[tuple[str, str]]  # what it does, and the command


def git(clone: Path, *arguments: str) -> str:
    command = ["git", "-C", str(clone), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def rank(name: str) -> str:
    return hashlib.sha256(f"bench/tldr:{name}".encode()).hexdigest()


def parse_page(path: str, text: str) -> Page:
    title = re.findall(r"^# (.+)$", text, re.MULTILINE)
    notes = re.findall(r"^> (.+)$", text, re.MULTILINE)
    examples = re.findall(r"^- (.+?):?\n+`(.+)`$", text, re.MULTILINE)
    return Page(path, text, title[0].strip(), notes[0].rstrip("."), examples)


def is_plain(command: str) -> bool:
    try:
        return bool(split_words(PLACEHOLDER.sub("x", command)))
    except ValueError:
        return False


def read_page(clone: Path, path: str) -> Page:
    return parse_page(path, git(clone, "show", f"{PAGES}:{path}"))


def read_pages(clone: Path, counts: Counter[str]) -> list[Page]:
    """The pages that count, in the order of their hashes."""

    log = ("log", "--no-renames", "--diff-filter=A", f"--since={FROM}", "--format=", PAGES)
    added = {*git(clone, *log, "--name-only", "--", "pages/common").split()}
    tree = ("ls-tree", "-r", "--name-only")
    old_names = {Path(path).stem for path in git(clone, *tree, BEFORE, "pages").split()}
    pages: list[Page] = []
    for path in added.intersection(git(clone, *tree, PAGES, "pages").split()):
        page = read_page(clone, path)
        reason = find_reason(page, old_names)
        counts[f"page: {reason}" if reason else "page counts"] += 1
        if not reason:
            pages.append(page)
    return sorted(pages, key=lambda page: rank(page.name))


def find_reason(page: Page, old_names: set[str]) -> str:
    """Why a page does not count: the first reason that holds. Empty if it does."""
    plain = [command for _, command in page.examples if is_plain(command)]
    reasons = {
        "the tool had one before 2025": Path(page.path).stem in old_names,
        "alias or disambiguation": ALIAS.search(page.text),
        "of a subcommand": page.name != Path(page.path).stem,
        "seen in the trial": SEEN_BEFORE.fullmatch(page.name),
        "attack tool": ATTACK.search(f"{page.name} {page.heading}"),
        f"fewer than {MIN_EXAMPLES} plain commands": len(plain) < MIN_EXAMPLES,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")
