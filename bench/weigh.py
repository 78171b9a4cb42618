"""What a reader has to read: tokens per room, held against the budget in weight.toml.

python bench/weigh.py           # every room, its budget and its goal
python bench/weigh.py --lower   # writes today's numbers into weight.toml, where they are lower

Pygments splits the code, so every Python counts the same. A name, number, keyword, operator or bracket weighs 1.
Comments, docstrings, white space and commas weigh nothing. A string weighs 1; strings that stand together (adjacent, or
items of one list) weigh 1 more per 6 characters beyond their first 60. Expressions inside f-strings and templates are
code. Data files weigh 1 per 6 characters. Markdown, pictures and JSON schemas weigh nothing.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pygments.lexer import Lexer
from pygments.lexers import (
    get_lexer_by_name,  # pyright: ignore[reportUnknownVariableType]
    get_lexer_for_filename,  # pyright: ignore[reportUnknownVariableType]
)
from pygments.token import Token

REPOSITORY = Path(__file__).resolve().parent.parent
BUDGET = REPOSITORY / "weight.toml"
PYTHON = {".py", ".pyi"}
STYLES_AND_SCRIPTS = {".js", ".mjs", ".ts", ".css", ".sh", ".sql"}
TEMPLATES = {".html", ".j2", ".jinja"}
C_FAMILY = {".c", ".h", ".cu", ".cuh", ".cpp"}
CODE = PYTHON | STYLES_AND_SCRIPTS | TEMPLATES | C_FAMILY
DATA = {".toml", ".yaml", ".yml", ".txt", ".ini", ".cfg", ".json", ".jsonl", ".csv", ".svg", ".xml"}
FREE = {".md", ".png", ".ico", ".typed", ".gz"}
FREE_CHARACTERS = 60
CHARACTERS_PER_TOKEN = 6
NOT_PROSE = {"docs/reference.md", "docs/simulations.md"}  # generated


# One file
# ------------------------------------------------------------------------------------------------


def weigh_file(path: Path) -> int:
    text = path.read_text("utf-8", "replace")
    if path.suffix in DATA:
        return len(text) // CHARACTERS_PER_TOKEN
    return weigh_code(text, find_lexer(path))


def find_lexer(path: Path) -> Lexer:
    if path.suffix in TEMPLATES:
        return get_lexer_by_name("html+jinja")
    if path.suffix in {".cu", ".cuh"}:
        return get_lexer_by_name("cpp")
    return get_lexer_for_filename(path.name)


def weigh_code(text: str, lexer: Lexer) -> int:
    weight = 0
    string_characters = 0  # of the strings that stand together here
    inside_string = False
    for kind, value in lexer.get_tokens(text):
        if _is_string(kind):
            if not inside_string:
                weight += 1
            inside_string = True
            string_characters += len(value)
        elif _is_free(kind, value):
            # A comma or white space ends a string, but the next one still stands beside it.
            if value.strip() in {"", ","}:
                inside_string = False
        else:
            if kind not in Token.Literal.String.Interpol:
                weight += 1 + _weigh_characters(string_characters)
                string_characters = 0
            else:
                weight += 1
            inside_string = False
    return weight + _weigh_characters(string_characters)


def _is_string(kind: Any) -> bool:
    string = Token.Literal.String
    return kind in string and kind not in string.Doc and kind not in string.Interpol


def _is_free(kind: Any, value: str) -> bool:
    if kind in Token.Comment.Preproc:
        return not value.strip()
    if kind in Token.Comment or kind in Token.Literal.String.Doc:
        return True
    return kind in Token.Text or kind in Token.Error or value.strip() in {"", ","}


def _weigh_characters(characters: int) -> int:
    return max(0, characters - FREE_CHARACTERS) // CHARACTERS_PER_TOKEN


# Rooms
# ------------------------------------------------------------------------------------------------


def weigh_rooms(package: Path) -> Counter[str]:
    """Weight per folder of the package; files beside the folders are `top`."""
    rooms: Counter[str] = Counter()
    for path in sorted(package.rglob("*")):
        parts = path.relative_to(package).parts
        if path.is_file() and _is_weighed(path, parts):
            room = parts[0] if len(parts) > 1 else "top"
            rooms[room] += weigh_file(path)
    return rooms


def _is_weighed(path: Path, parts: Sequence[str]) -> bool:
    hidden = any(
        part.startswith(".") or part == "__pycache__" or part.endswith(".egg-info")
        for part in parts
    )
    if hidden or path.suffix in FREE or path.name.endswith(".schema.json"):
        return False
    if path.suffix in CODE | DATA:
        return True
    raise SystemExit(
        f"{path}: bench/weigh.py does not know how to weigh {path.suffix or 'a file without a suffix'}"
    )


def weigh_tests() -> int:
    return sum(weigh_file(path) for path in sorted((REPOSITORY / "tests").rglob("*.py")))


# Ideas: what somebody has to learn
# ------------------------------------------------------------------------------------------------


def count_ideas() -> dict[str, int]:
    # Imported here, so that other programs can weigh files without the package.
    import click  # noqa: PLC0415

    from upskill.authoring.trigger import metrics  # noqa: PLC0415
    from upskill.checks import CHECKS  # noqa: PLC0415
    from upskill.cli import upskill  # noqa: PLC0415
    from upskill.settings import Settings  # noqa: PLC0415
    from upskill.verdicts import requirements, verdict  # noqa: PLC0415

    context = click.Context(upskill)
    commands = [upskill.get_command(context, name) for name in upskill.list_commands(context)]
    options = next(command.params for command in commands if command and command.name == "eval")
    return {
        "commands": sum(1 for command in commands if command and not command.hidden),
        "eval_options": sum(
            1 for each in options if isinstance(each, click.Option) and not each.hidden
        ),
        "settings": len(Settings.model_fields),
        "check_kinds": len(CHECKS.names()),
        "reasons": len(verdict.Reason),
        "requirements": len([*requirements.QUANTITIES, "decision", *metrics.QUANTITIES]),
        "prose": sum(count_words(path.read_text("utf-8")) for path in find_prose()),
    }


def find_prose() -> Iterator[Path]:
    yield REPOSITORY / "README.md"
    yield REPOSITORY / "CONTRIBUTING.md"
    for path in sorted((REPOSITORY / "docs").rglob("*.md")):
        if path.relative_to(REPOSITORY).as_posix() not in NOT_PROSE:
            yield path


def count_words(markdown: str) -> int:
    """Words outside of fenced code."""
    prose = re.sub(r"^```.*?^```", "", markdown, flags=re.MULTILINE | re.DOTALL)
    return len(re.findall(r"\w[\w'’-]*", prose))


# The budget
# ------------------------------------------------------------------------------------------------


def measure() -> dict[str, int]:
    """Today's number of everything that the budget names."""
    return {**weigh_rooms(REPOSITORY / "src" / "upskill"), "tests": weigh_tests(), **count_ideas()}


def read_budget() -> dict[str, Any]:
    return tomllib.loads(BUDGET.read_text("utf-8"))


def find_excess(today: dict[str, int], budget: dict[str, Any]) -> list[str]:
    """A sentence for each number that is over its budget, or has none."""
    rows = {**budget["rooms"], **budget["others"]}
    problems: list[str] = []
    for name, number in today.items():
        if name not in rows:
            problems.append(f"{name} has no row in weight.toml: it weighs {number:,}")
        elif number > rows[name]["most"]:
            problems.append(f"{name}: {number:,}, at most {rows[name]['most']:,} allowed")
    allowed = sum(row["most"] for row in budget["rooms"].values())
    if allowed > budget["total"]:
        problems.append(
            f"the rooms may weigh {allowed:,}, which is more than the total of {budget['total']:,}"
        )
    return problems


def lower_budget(today: dict[str, int], text: str) -> str:
    """The budget with today's numbers where they are lower; its comments stay."""
    lines: list[str] = []
    allowed = 0
    in_rooms = False
    for line in text.splitlines():
        if line.startswith("["):
            in_rooms = line == "[rooms]"
        row = re.match(r"(\w+) = \{ most = (\d+)", line)
        if row:
            number = min(int(row[2]), today.get(row[1], 0))
            line = line.replace(f"most = {row[2]}", f"most = {number}")  # noqa: PLW2901
            allowed += number if in_rooms else 0
        lines.append(line)
    lowered = "\n".join(lines) + "\n"
    total = int(re.findall(r"^total = (\d+)", lowered, re.MULTILINE)[0])
    return lowered.replace(f"total = {total}", f"total = {min(total, allowed)}", 1)


def print_table(today: dict[str, int], budget: dict[str, Any]) -> None:
    print(f"{'':14}{'today':>10}{'at most':>10}{'goal':>10}")
    for table in ("rooms", "others"):
        for name, row in budget[table].items():
            print(f"{name:14}{today.get(name, 0):10,}{row['most']:10,}{row['goal']:10,}")
        if table == "rooms":
            weight = sum(today.get(name, 0) for name in budget["rooms"])
            print(f"{'total':14}{weight:10,}{budget['total']:10,}{budget['goal']:10,}\n")


def main() -> None:
    today = measure()
    if "--lower" in sys.argv[1:]:
        BUDGET.write_text(lower_budget(today, BUDGET.read_text("utf-8")), "utf-8")
    budget = read_budget()
    print_table(today, budget)
    if problems := find_excess(today, budget):
        sys.exit("\n".join(["", "Over budget:", *problems]))


if __name__ == "__main__":
    main()
