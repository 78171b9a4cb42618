"""`upskill diff`: compare two candidates for a skill."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from contextlib import nullcontext

import click

from upskill.cli.commands.history import find_candidates, list_skills
from upskill.cli.help import Command
from upskill.cli.options import find_project_store, runs_dir_option
from upskill.errors import UsageError
from upskill.runs.stores.rows import Candidate, files_from_json
from upskill.skills import HIDDEN_FROM_STUDENTS


@click.command("diff", cls=Command)
@click.argument("skill", required=False)
@click.argument("one", required=False)
@click.argument("two", required=False)
@runs_dir_option
def command(skill: str | None, one: str | None, two: str | None, runs_dir: str | None) -> None:
    """Show how candidate TWO of SKILL differs from ONE. `upskill history SKILL` lists them: c1, c2, …

    TWO is the last one unless you say which, and ONE the one it was made from.
    """
    with find_project_store(runs_dir) or nullcontext() as store:
        if skill is None:
            list_skills(store)
            return
        found = find_candidates(store, skill)
    if not found:
        return
    two = two or f"c{len(found)}"
    one = one or _parent(found, two, skill)
    before, after = (_texts(_find(found, name)) for name in (one, two))
    for line in _changes(before, after, one, two):
        click.echo(line)


def _find(found: list[Candidate], name: str) -> Candidate:
    number = name.removeprefix("c")
    if not number.isdigit() or not 1 <= int(number) <= len(found):
        raise UsageError(f"no candidate is called {name!r}", f"There are c1 to c{len(found)}.")
    return found[int(number) - 1]


def _parent(found: list[Candidate], name: str, skill: str) -> str:
    parent = _find(found, name).parent
    places = {one.number: place for place, one in enumerate(found, start=1)}
    if parent not in places:
        raise UsageError(
            f"{name} is a first draft, made from no other candidate",
            f"Name two: upskill diff {skill} c1 c2. `upskill history {skill}` lists them.",
        )
    return f"c{places[parent]}"


def _texts(candidate: Candidate) -> dict[str, list[str]]:
    return {
        file.path: (f"-> {file.link}" if file.link else file.data.decode("utf-8", "replace")).splitlines()
        for file in files_from_json(candidate.files)
        if not file.path.startswith(HIDDEN_FROM_STUDENTS)
    }


def _changes(before: dict[str, list[str]], after: dict[str, list[str]], one: str, two: str) -> Iterator[str]:
    for path in sorted(before.keys() | after.keys()):
        yield from difflib.unified_diff(
            before.get(path, []), after.get(path, []), f"{one}/{path}", f"{two}/{path}", lineterm=""
        )
