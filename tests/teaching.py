"""A small world to teach in: a ship of which nobody knows anything, a teacher who does, a student who looks it up."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from upskill.models import Reply, Request
from upskill.plain import dict_or_empty, list_or_empty
from upskill.suites.suite import hash_to_unit

WORDS = (
    *(
        "Aurora",
        "Krane",
        "Lisbon",
        "cinnamon",
        "Marta",
        "yellow",
        "bronze",
        "silver",
        "cedar",
        "Nilsen",
    ),
    *(
        "4711",
        "Halcyon",
        "Dutch",
        "green",
        "Norway",
        "parrot",
        "Pepper",
        "copper",
        "Falcon",
        "Havana",
    ),
)
THINGS = (
    *("name", "captain", "port", "cargo", "cook", "flag", "anchor", "bell", "mast", "pilot"),
    *(
        "number",
        "song",
        "language",
        "colour",
        "country",
        "animal",
        "cat",
        "lantern",
        "rival",
        "destination",
    ),
)
NUMBERS = range(1, len(WORDS) + 1)
# What the prompts of those who are asked begin with.
WRITES, TESTS, REVISES = (
    "You write an Agent Skill",
    "You write test cases",
    "You improve an Agent Skill",
)
ANSWERS, FIXES = "You answer test questions", "You fix the checks"


def fact(number: int) -> str:
    return f"- The {THINGS[number - 1]} of the ship is {WORDS[number - 1]}."


def prompt(number: int) -> str:
    return f"What is the {THINGS[number - 1]} of the ship? Answer in one line."


# A hash of the prompts keeps half of the cases fresh.
BY_HASH = sorted(NUMBERS, key=lambda number: hash_to_unit(prompt(number)))
HELD_OUT = sorted(BY_HASH[: len(BY_HASH) // 2])
TRAIN = sorted(BY_HASH[len(BY_HASH) // 2 :])
FIRST_WORDS = TRAIN[:2]  # what a first draft states


def number_in(asked: str) -> int:
    return next(number for number in NUMBERS if f"the {THINGS[number - 1]} of the ship?" in asked)


def case(number: int) -> dict[str, Any]:
    """A case as it is written, with the answers that somebody else will write to it."""
    word, thing = WORDS[number - 1], THINGS[number - 1]
    checks: list[dict[str, Any]] = [
        {"kind": "regex", "texts": [rf"\b{word}\b"], "number": 0, "exact": False},
        {"kind": "max_length", "texts": [], "number": 60, "exact": False},
        *(
            [{"kind": "not_contains", "texts": ["do not know"], "number": 0, "exact": False}]
            if number % 3 == 0
            else []
        ),
    ]
    return {
        "id": f"word-{number}",
        "prompt": prompt(number),
        "words": 0,
        "checks": checks,
        "reference": word,
        "right": [f"It is {word}.", f"**{word}**", f"I believe it is {word}."],
        "wrong": [WORDS[number % len(WORDS)], f"The {thing} has no name.", "Bounty"],
        "tags": ["words"],
        "evidence": [],
    }


def written(item: Mapping[str, Any]) -> dict[str, Any]:
    """What the writer of a case hands in."""
    return {key: value for key, value in item.items() if key not in ("right", "wrong")}


def cases_and_answers(numbers: Iterable[int]) -> str:
    """For a script that gives one answer to whatever it is asked."""
    items = [case(number) for number in numbers]
    return json.dumps({"cases": items, **fresh(items)})


def fresh(items: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """What somebody else answers to these cases."""
    return {
        "answers": [
            {"case": item["id"], "right": item["right"], "wrong": item["wrong"]} for item in items
        ]
    }


def draft(
    numbers: Iterable[int], evidence: Sequence[str] = ("own",), name: str = "house-words"
) -> dict[str, Any]:
    facts = [{"text": fact(number), "evidence": list(evidence)} for number in numbers]
    return {
        "name": name,
        "description": "States the facts about the ship. Use when someone asks for its name, port, cargo or crew.",
        "blocks": [{"text": "# The ship", "evidence": []}, *facts],
        "files": [],
        "missing": [],
    }


def insert(*lines: str, after: int = 1, note: str = "Facts were missing.") -> dict[str, Any]:
    edits = [
        {
            "kind": "insert",
            "line": after,
            "path": "",
            "text": line,
            "evidence": ["own"],
        }
        for line in lines
    ]
    return {"note": note, "edits": edits}


def student_rules() -> list[dict[str, Any]]:
    """Answers with the word when its line stands in the skill, worded by seed, unless told to be silent."""
    silent = {"system": "Never answer", "answer": "I would rather not say."}
    known = [
        {"when": prompt(number), "system": fact(number), "answers": [word, f"It is {word}."]}
        for number, word in enumerate(WORDS, 1)
    ]
    return [silent, *known, {"answer": "I do not know."}]


def suite_rules(numbers: Iterable[int]) -> list[dict[str, Any]]:
    """Somebody who writes these cases, and somebody who answers them."""
    items = [case(number) for number in numbers]
    return [
        {"system": TESTS, "answer": json.dumps({"cases": list(map(written, items))})},
        {"system": ANSWERS, "answer": json.dumps(fresh(items))},
    ]


def teacher_rules(
    first: Mapping[str, Any],
    revisions: Sequence[Mapping[str, Any]] = (),
    numbers: Iterable[int] = NUMBERS,
) -> list[dict[str, Any]]:
    revising = [
        {"system": REVISES, "seed": attempt, "answer": json.dumps(said)}
        for attempt, said in enumerate(revisions, 1)
    ]
    return [
        {"system": WRITES, "answer": json.dumps(first)},
        *suite_rules(numbers),
        *revising,
    ]


def write_rules(path: Path, rules: Iterable[Mapping[str, Any]]) -> str:
    path.write_text(json.dumps(list(rules)), encoding="utf-8")
    return f"scripted:{path.name}"


class Teacher:
    """A model that answers each request by a function of it, and remembers what it was asked.

    Asked for fresh answers, it gives those that the cases it has written came with.
    """

    def __init__(self, answer: Callable[[Request, int], object]) -> None:
        self.answer = answer
        self.asked: list[Request] = []
        self.answering: list[Request] = []
        self.cases: dict[str, Any] = {}

    async def reply(self, request: Request) -> Reply:
        if request.messages[0].text.startswith(ANSWERS):
            self.answering.append(request)
            return Reply(json.dumps(fresh(item for item in self.cases.values() if "right" in item)))
        self.asked.append(request)
        said = self.answer(request, len(self.asked))
        items = map(dict_or_empty, list_or_empty(dict_or_empty(said).get("cases")))
        if request.messages[0].text.startswith(TESTS):
            self.cases |= {str(item.get("id")): item for item in items}
        return Reply(said if isinstance(said, str) else json.dumps(said))

    async def close(self) -> None:
        pass


def says(*answers: object) -> Teacher:
    return Teacher(lambda _, number: answers[min(number, len(answers)) - 1])


def user(request: Request) -> str:
    return "\n".join(message.text for message in request.messages if message.role == "user")
