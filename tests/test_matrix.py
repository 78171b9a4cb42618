"""`upskill matrix`: which skills take each other's requests when all are installed."""

from __future__ import annotations

import asyncio
import json
import random
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from conftest import Upskill, write_script
from upskill import MatrixSettings, Skill, matrix
from upskill.experiments.shadowing import Asked, Names, Shadowing
from upskill.skills import load_skills

SKILLS = tuple("abcdefgh")
Effect = Mapping[
    tuple[str, str], float
]  # of a skill's requests, the share that another makes it lose


async def find(
    effects: Effect,
    seed: int,
    *,
    opens: bool,
    crowd: int = 99,
    instead: tuple[str, ...] = (),
    noise: float = 0.05,
    often: float = 1.0,
) -> Shadowing:
    """`opens`: the other is opened instead; otherwise nothing is. With `crowd` others, `instead` is opened for `a`."""
    chance = random.Random(seed)

    async def measure(
        skill: str, others: Names, queries: Sequence[str], seeds: range
    ) -> list[Asked]:
        def answer(query: str) -> tuple[str, ...]:
            if chance.random() < noise:
                return tuple(chance.sample(sorted(others), 1)) if others else ()
            if skill == "a" and len(others) >= crowd:
                return instead
            for other in sorted(others):
                if (
                    int(query[1:]) < 6 * effects.get((skill, other), 0.0)
                    and chance.random() < often
                ):
                    return (other,) if opens else ()
            return (skill,)

        return [Asked(query, seed, answer(query)) for query in queries for seed in seeds]

    queries = {skill: tuple(f"{skill}{number}" for number in range(6)) for skill in SKILLS}
    shadowing = Shadowing(SKILLS, queries, measure)
    await shadowing.run()
    return shadowing


@pytest.mark.parametrize("opens", [True, False])
def test_who_takes_requests_is_found_and_nobody_else_is_accused(opens: bool) -> None:
    planted = {("a", "b"): 0.5, ("c", "d"): 0.5, ("d", "c"): 1.0}
    for seed in range(8):
        shadowing = asyncio.run(find(planted, seed, opens=opens))
        assert {(each.skill, *each.others) for each in shadowing.shown} == set(planted)
        assert len(shadowing.catalogs) < len(SKILLS) ** 2


def test_nobody_is_accused_if_nobody_takes_anything() -> None:
    assert not any(
        [*asyncio.run(find({}, seed, opens=True, noise=0.15)).shown] for seed in range(10)
    )


def test_two_skills_that_take_different_requests_are_both_found() -> None:
    for seed in range(5):
        planted = {("a", "g"): 0.5, ("a", "h"): 1.0}  # h takes what g leaves
        shadowing = asyncio.run(find(planted, seed, opens=True))
        assert {(each.skill, *each.others) for each in shadowing.shown} == set(planted)


def test_a_skill_that_takes_each_request_now_and_then_is_the_only_one_accused() -> None:
    for seed in range(8):
        shadowing = asyncio.run(find({("a", "b"): 1.0}, seed, opens=True, often=0.6))
        assert [(each.skill, *each.others) for each in shadowing.shown] == [("a", "b")]


@pytest.mark.parametrize("instead", [(), ("b",)])
def test_a_skill_that_only_many_others_crowd_out_accuses_no_single_one(
    instead: tuple[str, ...],
) -> None:
    for seed in range(5):
        (conflict,) = asyncio.run(find({}, seed, opens=False, crowd=7, instead=instead)).shown
        assert conflict.skill == "a"
        assert conflict.others == frozenset(SKILLS) - {"a"}


# The command.

TOPICS = {
    "ship": (
        "Ships a release to the cloud. Use when someone ships a release.",
        ("Ship it now", "Ship release 7"),
    ),
    "deploy": (
        "Deploys a release to the cloud. Use when someone deploys a release.",
        ("Deploy it", "Deploy build 9"),
    ),
    "poems": ("Writes poems. Use when someone wants a poem.", ("Write a poem", "Rhyme on tea")),
    "notes": ("Takes notes.", ()),
}


def opening(name: str, words: str, beside: str = "") -> dict[str, Any]:
    calls = [{"name": "activate_skill", "arguments": {"name": name}}]
    return {
        "match": words,
        "calls": calls,
        **({"system": f"<name>{beside}</name>"} if beside else {}),
    }


@pytest.fixture
def library(tmp_path: Path) -> Path:
    for name, (description, queries) in TOPICS.items():
        folder = tmp_path / "skills" / name
        Skill.new(name, description, f"# {name}\n\nDo it.").save(folder)
        rows = [{"query": query, "should_trigger": True} for query in queries]
        if rows and name != "poems":
            (folder / "eval_queries.json").write_text(
                json.dumps([*rows, {"query": "Hi", "should_trigger": False}])
            )
        elif rows:
            cases = [
                {"id": f"case-{number}", "prompt": query, "checks": [{"contains": "x"}]}
                for number, query in enumerate(queries)
            ]
            (folder / "evals").mkdir()
            (folder / "evals/suite.yaml").write_text(json.dumps({"cases": cases}))
    return tmp_path / "skills"


@pytest.fixture
def student(tmp_path: Path) -> str:
    """Deploy takes the requests of ship."""
    rules = [
        opening("deploy", "^Ship", beside="deploy"),
        opening("ship", "^Ship", beside="ship"),
        opening("deploy", "^Deploy"),
        opening("poems", "poem|Rhyme"),
        {"answer": "Done."},
    ]
    return write_script(tmp_path / "student.yaml", rules)


def test_the_command_names_who_takes_requests_and_what_to_do(
    upskill: Upskill, library: Path, student: str
) -> None:
    done = upskill("matrix", library, "-m", student, "--report", "map.svg")
    assert done.code == 0, done.err
    assert "1 of 3 skills loses requests when all are installed." in done.out
    assert re.search(r"ship +2 +0% +100% +deploy +100%", done.out)
    assert "drop it, or say what deploy does not do" in " ".join(done.out.split())
    assert "prompts from the suite are used: poems" in done.out
    assert "can only take requests: notes" in done.out
    assert "prompts from the suite" not in done.err
    assert "can only take requests" not in done.err, "the result says it"
    picture = Path("map.svg").read_text()
    assert "deploy takes requests of ship" in picture
    assert "has no requests of its own" in picture

    again = upskill("matrix", library, "-m", student, "--json", "--report", "map.html")
    (found,) = again.json["students"]
    (conflict,) = found["conflicts"]
    assert (conflict["skill"], conflict["others"], conflict["advice"]) == (
        "ship",
        ["deploy"],
        "drop",
    )
    assert conflict["requests"] == ["Ship it now", "Ship release 7"]
    assert "Who gets whose requests" in Path("map.html").read_text()
    assert "no runs yet" in upskill("show", "last").err


def test_the_same_command_continues_after_a_ceiling(
    upskill: Upskill, library: Path, student: str
) -> None:
    short = upskill("matrix", library, "-m", student, "--set", "max_calls=20")
    assert "Not finished" in short.out
    assert "0%" not in short.out.replace("100%", "")  # what was not run is a dash
    rest = upskill(
        "matrix", library, "-m", student, "--set", "max_calls=150"
    )  # the whole takes more
    assert "1 of 3 skills loses requests" in rest.out


def test_a_note_about_the_skills_is_shown_once_for_all_students(
    upskill: Upskill, library: Path, student: str
) -> None:
    other = write_script(library.parent / "other.yaml", [{"answer": "Done."}])
    done = upskill(
        "matrix", library, "-m", student, "-m", other, "--repeats", "1", "--report", "map.html"
    )
    for shown in (done.out, Path("map.html").read_text()):
        assert shown.count("prompts from the suite are used: poems") == 1


def test_a_greedy_student_is_asked_once(upskill: Upskill, library: Path, student: str) -> None:
    (found,) = upskill("matrix", library, "-m", student, "--repeats", 1, "--json").json["students"]
    assert [each["skill"] for each in found["conflicts"]] == ["ship"]
    assert found["trials"] == 6 + 2 + 2  # all, then ship alone and beside deploy


def test_skills_that_take_from_each_other_are_to_be_merged(library: Path, tmp_path: Path) -> None:
    rules = [
        opening("deploy", "^Ship it", beside="deploy"),
        opening("ship", "^Deploy it", beside="ship"),
        opening("ship", "^Ship"),
        opening("deploy", "^Deploy"),
        opening("poems", "poem|Rhyme"),
    ]
    student = write_script(tmp_path / "student.yaml", rules)
    (found,) = asyncio.run(matrix(load_skills([library]), [student]))
    assert [(each.skill, *each.others) for each in found.conflicts] == [
        ("deploy", "ship"),
        ("ship", "deploy"),
    ]
    assert {found.advice(each).kind for each in found.conflicts} == {"merge"}


def test_one_that_takes_some_requests_is_to_be_reworded(library: Path, tmp_path: Path) -> None:
    rules = [
        opening("deploy", "^Ship it", beside="deploy"),
        opening("ship", "^Ship"),
        opening("deploy", "^Deploy"),
        opening("poems", "poem|Rhyme"),
    ]
    (found,) = asyncio.run(
        matrix(load_skills([library]), [write_script(tmp_path / "student.yaml", rules)])
    )
    (conflict,) = found.conflicts
    assert found.advice(conflict).kind == "reword"
    assert {"cloud", "release"} <= set(found.shared_words(conflict))


def test_a_skill_that_a_full_catalog_leaves_out_is_crowded_out(tmp_path: Path) -> None:
    for number in range(5):
        description = f"Does thing {number}. ".ljust(1000, "x") * 3
        folder = tmp_path / "skills" / f"skill-{number}"
        Skill.new(f"skill-{number}", description, "# Do it").save(folder)
        (folder / "eval_queries.json").write_text(
            json.dumps([{"query": f"Do {number}", "should_trigger": True}])
        )
    rules = [
        opening(f"skill-{number}", f"^Do {number}", beside=f"skill-{number}") for number in range(5)
    ]
    student = write_script(tmp_path / "student.yaml", [*rules, {"answer": "Done."}])
    skills = load_skills([tmp_path / "skills"])
    (whole,) = asyncio.run(matrix(skills, [student]))
    assert whole.conflicts == []
    (cut,) = asyncio.run(matrix(skills, [student], settings=MatrixSettings(catalog="copilot")))
    (conflict,) = cut.conflicts
    assert (conflict.skill, len(conflict.others)) == ("skill-4", 4)
    assert cut.advice(conflict).words.startswith("The catalog of GitHub Copilot leaves it out")


def test_a_student_that_errors_accuses_nobody(
    upskill: Upskill, library: Path, tmp_path: Path
) -> None:
    student = write_script(tmp_path / "student.yaml", [{"error": "out of order"}])
    done = upskill("matrix", library, "-m", student)
    assert (done.code, done.out) == (3, "")
    assert "deploy cannot be run" in done.err
    assert "out of order" in done.err


def test_what_cannot_be_asked_is_refused_before_anything_runs(
    upskill: Upskill, library: Path, student: str
) -> None:
    one = upskill("matrix", library / "ship", "-m", student)
    assert (one.code, "at least two skills" in one.err) == (2, True)
    unknown = upskill("matrix", library, "-m", student, "--catalog", "vim")
    assert (unknown.code, "'vim' is not known" in unknown.err) == (2, True)
    for name in ("ship", "deploy", "poems"):
        shutil.rmtree(library / name)
    Skill.new("other", "Does other things.", "# Other").save(library / "other")
    mute = upskill("matrix", library, "-m", student)
    assert (mute.code, "none of these skills has queries" in mute.err) == (2, True)
