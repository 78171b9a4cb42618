"""`upskill challenge`: requests on which a skill misleads."""

from __future__ import annotations

import asyncio
import json
import runpy
from pathlib import Path
from typing import Any

import yaml

from conftest import REPOSITORY, Upskill, serving
from loopback import Call
from upskill import ChallengeSettings, Skill, Suite, challenge

TRUE = {"alfa": "11-afla", "bravo": "12-ovarb", "carol": "13-lorac", "delta": "14-atled"}
SAID = {**TRUE, "carol": "99-wrong", "delta": "98-wrong"}  # by the skill
PLANTED = ["carol-code", "delta-code"]


def write_skill(folder: Path, file: str = "evals/evals.json") -> None:
    (folder / "evals").mkdir(parents=True)
    rules = "\n".join(f"- The code of {name} is `{code}`." for name, code in SAID.items())
    text = f"---\nname: {folder.name}\ndescription: Codes of drawers.\n---\n\n# Codes\n\n{rules}\n"
    (folder / "SKILL.md").write_text(text)
    case = {
        "id": "alfa",
        "prompt": "What is the code of alfa?",
        "checks": [{"contains": TRUE["alfa"]}],
        "reference": TRUE["alfa"],
        "held_out": False,
    }
    shape = (
        {"skill_name": folder.name, "evals": [case]}
        if file.endswith("evals.json")
        else {"cases": [case]}
    )
    (folder / file).write_text(json.dumps(shape))
    follows = [{"when": name, "system": code, "answer": code} for name, code in SAID.items()]
    knows = [{"when": name, "answer": code} for name, code in TRUE.items()]
    (folder.parent / "student.yaml").write_text(
        yaml.dump([*follows, *knows, {"answer": "no idea"}])
    )


def proposal(name: str, **more: Any) -> dict[str, Any]:
    return {
        "id": f"{name}-code",
        "line": f"- The code of {name} is `{SAID[name]}`.",
        "prompt": f"Somebody stands before the drawer {name}. Which code opens it?",
        "words": 0,
        "checks": [{"kind": "contains", "texts": [TRUE[name]], "number": 0, "exact": False}],
        "reference": TRUE[name],
        "tags": ["codes"],
        "evidence": [],
        **more,
    }


def write_challenger(home: Path, *cases: dict[str, Any]) -> str:
    answer = json.dumps({"cases": list(cases)})
    (home / "challenger.json").write_text(
        json.dumps([{"system": "leads its reader astray", "answer": answer}])
    )
    return "scripted:challenger.json"


def test_planted_wrong_facts_are_found_among_worthless_proposals_and_nothing_else() -> None:
    bench = runpy.run_path(str(REPOSITORY / "bench" / "challenge.py"), run_name="bench_challenge")
    exact = 0
    for seed in range(1000, 1020):
        shown, _ = asyncio.run(bench["challenge"](seed))
        exact += shown == {"wrong-0", "wrong-1", "wrong-2"}
    assert exact >= 19


def test_counterexamples_are_kept_as_train_cases_with_a_note(upskill: Upskill, home: Path) -> None:
    write_skill(home / "codes")
    challenger = write_challenger(home, *(proposal(name) for name in ("bravo", "carol", "delta")))
    flags = ("-m", "scripted:student.yaml", "--challenger", challenger, "--proposals", 3)
    done = upskill("challenge", "codes", *flags)
    assert done.code == 0, done.err
    text = " ".join(done.out.split())
    assert "2 of 3 proposals pass without the skill and fail with it." in text
    assert "the skill says: - The code of carol is `99-wrong`." in text
    suite = Suite.of(Skill.load("codes"))
    assert suite
    kept = suite.cases[1:]
    assert [case.id for case in kept] == PLANTED
    assert not any(case.held_out for case in kept)
    note = "upskill challenge: scripted:student.yaml passes 100% without the skill and 0% with it"
    assert kept[0].metadata["from"] == note
    assert kept[0].metadata["challenges"] == "- The code of carol is `99-wrong`."
    assert "no runs yet" in upskill("show", "last").err
    assert upskill("eval", "codes", "-m", "scripted:student.yaml").code == 0
    trials = upskill("show", "last", "--json").json["trials"]
    assert {row["case"] for row in trials if row["arm"] == "skill" and not row["passed"]} == set(
        PLANTED
    )


def test_what_is_edited_while_it_runs_stays(upskill: Upskill, home: Path) -> None:
    write_skill(home / "codes")
    file = home / "codes" / "evals" / "evals.json"

    def answer(call: Call) -> str:
        written = json.loads(file.read_text())
        written["evals"] = [
            written["evals"][0],
            {"id": "new", "prompt": "New?", "checks": [{"contains": "new"}]},
        ]
        file.write_text(json.dumps(written))
        return "no idea" if SAID["carol"] in call.system else TRUE["carol"]

    flags = ("--challenger", write_challenger(home, proposal("carol")), "--repeats", 1)
    with serving(answer) as server:
        done = upskill("challenge", "codes", "-m", "student", "--base-url", server.url, *flags)
    assert done.code == 0, done.err
    assert [case.id for case in Suite.required(Skill.load("codes")).cases] == [
        "alfa",
        "new",
        "carol-code",
    ]


def test_a_proposal_that_tells_nothing_is_sent_back_and_never_run(
    upskill: Upskill, home: Path
) -> None:
    write_skill(home / "codes")
    empty = [{"kind": "not_contains", "texts": ["zzz"], "number": 0, "exact": False}]
    challenger = write_challenger(home, proposal("carol"), proposal("delta", checks=empty))
    flags = ("-m", "scripted:student.yaml", "--challenger", challenger, "--proposals", 2, "--json")
    found = upskill("challenge", "codes", *flags).json
    assert [each["id"] for each in found["proposals"]] == ["carol-code"]


def test_a_suite_of_your_own_is_not_changed_and_counterexamples_go_to_a_file(
    upskill: Upskill, home: Path
) -> None:
    write_skill(home / "codes", "evals/suite.json")
    before = (home / "codes" / "evals" / "suite.json").read_text()
    flags = (
        "-m",
        "scripted:student.yaml",
        "--challenger",
        write_challenger(home, proposal("carol")),
        "--proposals",
        1,
    )
    assert "is your own suite" in upskill("challenge", "codes", *flags).err
    assert upskill("challenge", "codes", *flags, "-o", "found.yaml").code == 0
    assert (home / "codes" / "evals" / "suite.json").read_text() == before
    (case,) = Suite.load("found.yaml").cases
    assert case.id == "carol-code"
    again = upskill("challenge", "codes", *flags, "-o", "found.yaml").err
    assert "found.yaml: already exists\n" in again


def test_a_challenger_can_be_anybody_who_answers_by_hand(upskill: Upskill, home: Path) -> None:
    write_skill(home / "codes")
    done = upskill(
        "challenge", "codes", "-m", "scripted:student.yaml", "--challenger", "handoff:desk"
    )
    assert done.code == 0, done.err
    assert any(
        SAID["carol"] in path.read_text() for path in (home / "desk").rglob("*") if path.is_file()
    )


def test_without_a_challenger_nothing_is_run(upskill: Upskill, home: Path) -> None:
    write_skill(home / "codes")
    done = upskill("challenge", "codes", "-m", "scripted:student.yaml")
    assert (done.code, done.out) == (2, "")
    assert "no challenger was chosen" in done.err
    assert "--challenger handoff:DIR" in done.err


def test_no_request_to_a_challenger_has_a_held_out_prompt(upskill: Upskill, home: Path) -> None:
    write_skill(home / "codes")
    path = home / "codes" / "evals" / "evals.json"
    suite = json.loads(path.read_text())
    hidden = {
        **suite["evals"][0],
        "id": "bravo",
        "prompt": "Which code opens the hidden bravo?",
        "held_out": True,
    }
    path.write_text(json.dumps({**suite, "evals": [*suite["evals"], hidden]}))
    assert (
        upskill(
            "challenge", "codes", "-m", "scripted:student.yaml", "--challenger", "handoff:desk"
        ).code
        == 0
    )
    (asked,) = [path.read_text() for path in (home / "desk").glob("*.prompt.md")]
    assert "What is the code of alfa?" in asked
    assert "hidden bravo" not in asked


def test_a_ceiling_leaves_proposals_undecided(upskill: Upskill, home: Path) -> None:
    write_skill(home / "codes")
    challenger = write_challenger(home, proposal("carol"))
    flags = ("-m", "scripted:student.yaml", "--challenger", challenger, "--set", "max_calls=2")
    found = upskill("challenge", "codes", *flags, "--json").json
    assert found["halted"]
    assert {each["status"] for each in found["proposals"]} == {"undecided"}


def test_it_is_a_library_verb(home: Path) -> None:
    write_skill(home / "codes")
    settings = ChallengeSettings(
        challenger=write_challenger(home, proposal("carol"), proposal("bravo")), count=2
    )
    found = asyncio.run(
        challenge(Skill.load("codes"), students=["scripted:student.yaml"], settings=settings)
    )
    assert [case.id for case in found.counterexamples] == ["carol-code"]
