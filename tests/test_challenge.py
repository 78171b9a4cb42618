"""`upskill challenge`: requests on which a skill misleads, and answers that the checks of a suite judge wrongly."""

from __future__ import annotations

import asyncio
import json
import runpy
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from conftest import REPOSITORY, Upskill, serving
from loopback import Call
from upskill import ChallengeSettings, Skill, Suite, challenge
from upskill.authoring.writing.suite_writer import MAX_FIXES, as_written
from upskill.experiments.attacks import attack_checks
from upskill.experiments.counterexamples import vary

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


def test_loopholes_are_closed_and_no_right_answer_newly_fails() -> None:
    bench = runpy.run_path(str(REPOSITORY / "bench" / "challenge.py"), run_name="bench_challenge")
    attacked, left, broken = asyncio.run(bench["attack"]())
    assert (left, broken) == (0, 0)
    assert attacked.is_clean
    assert attacked.refused  # the attacker also claimed what is not so


def test_counterexamples_are_kept_as_train_cases_with_a_note(upskill: Upskill, home: Path) -> None:
    write_skill(home / "codes")
    challenger = write_challenger(home, *(proposal(name) for name in ("bravo", "carol", "delta")))
    flags = ("-m", "scripted:student.yaml", "--challenger", challenger, "--proposals", 3)
    done = upskill("challenge", "codes", *flags)
    assert done.code == 0, done.err
    text = " ".join(done.out.split())
    assert "2 of 3 proposals pass without the skill and fail with it." in text
    assert "the skill says: '- The code of carol is `99-wrong`.'" in text
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


def test_the_same_variants_are_not_added_twice(upskill: Upskill, home: Path) -> None:
    """A skill that misleads only who is polite."""
    write_skill(home / "codes")
    misled = {"when": "Hello", "system": "99-wrong", "answer": "no idea"}
    (home / "student.yaml").write_text(yaml.dump([misled, {"answer": TRUE["alfa"]}]))
    command = ("challenge", "codes", "-m", "scripted:student.yaml", "--json")
    assert upskill(*command).json["counterexamples"] == ["alfa-polite"]
    assert [proposed["id"] for proposed in upskill(*command).json["proposals"]] == [
        "alfa-forwarded",
        "alfa-after",
    ]
    assert [case.id for case in Suite.required(Skill.load("codes")).cases] == [
        "alfa",
        "alfa-polite",
    ]


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
        return (
            "no idea" if "Hello" in call.prompt and SAID["carol"] in call.system else TRUE["alfa"]
        )

    with serving(answer) as server:
        done = upskill(
            "challenge", "codes", "-m", "student", "--base-url", server.url, "--repeats", 1
        )
    assert done.code == 0, done.err
    assert [case.id for case in Suite.required(Skill.load("codes")).cases] == [
        "alfa",
        "new",
        "alfa-polite",
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


def test_a_student_that_guesses_is_not_misled() -> None:
    """Passing without and failing with the skill now and then is chance."""
    bench = runpy.run_path(str(REPOSITORY / "bench" / "challenge.py"), run_name="bench_challenge")
    for seed in range(5):
        _, trying = asyncio.run(bench["challenge"](seed))
        assert all(
            trying.status(case) != "counterexample"
            for case in trying.cases
            if case.startswith("worthless")
        )


def test_without_a_challenger_the_cases_of_the_suite_are_put_in_other_ways(
    upskill: Upskill, home: Path
) -> None:
    write_skill(home / "codes")
    rules = yaml.safe_load((home / "student.yaml").read_text())
    body = {"when": "Hello!", "system": SAID["alfa"], "answer": "Hello to you."}
    (home / "student.yaml").write_text(yaml.dump([body, *rules]))
    found = upskill("challenge", "codes", "-m", "scripted:student.yaml", "--json").json
    assert found["counterexamples"] == ["alfa-polite"]
    assert {each["id"] for each in found["proposals"]} == {
        "alfa-polite",
        "alfa-forwarded",
        "alfa-after",
    }
    skill = Skill.load("codes")
    suite = Suite.of(skill)
    assert suite
    assert len(asyncio.run(vary(suite, skill, limit=2))) == 2


def test_without_a_challenger_or_a_train_case_there_is_nothing_to_propose(
    upskill: Upskill, home: Path
) -> None:
    write_skill(home / "codes")
    file = home / "codes" / "evals" / "evals.json"
    file.write_text(file.read_text().replace('"held_out": false', '"held_out": true'))
    assert (
        "no train case can be put another way"
        in upskill("challenge", "codes", "-m", "scripted:student.yaml").err
    )


def test_a_counterexample_without_a_reference_answer_shows_none(
    upskill: Upskill, home: Path
) -> None:
    write_skill(home / "codes")
    file = home / "codes" / "evals" / "evals.json"
    file.write_text(file.read_text().replace('"reference": "11-afla", ', ""))
    rules = yaml.safe_load((home / "student.yaml").read_text())
    misled = {"when": "Hello!", "system": SAID["alfa"], "answer": "Hello to you."}
    (home / "student.yaml").write_text(yaml.dump([misled, *rules]))
    shown = upskill("challenge", "codes", "-m", "scripted:student.yaml").out
    assert "alfa-polite" in shown
    assert "right:" not in shown


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
    assert "needs a --challenger" in upskill("challenge", "codes", "--attack-checks").err


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


def test_checks_can_be_attacked_by_hand(upskill: Upskill, home: Path) -> None:
    write_skill(home / "codes")
    assert (
        upskill("challenge", "codes", "--attack-checks", "--challenger", "handoff:desk").code == 0
    )
    (asked,) = [path.read_text() for path in (home / "desk").glob("*.prompt.md")]
    assert "You attack the checks" in asked
    assert TRUE["alfa"] in asked


def test_a_ceiling_leaves_proposals_undecided(upskill: Upskill, home: Path) -> None:
    write_skill(home / "codes")
    flags = ("-m", "scripted:student.yaml", "--set", "max_calls=3", "--json")
    found = upskill("challenge", "codes", *flags).json
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


# Attacks on checks.

PASSES = f"Never {TRUE['alfa']}, take the hammer: {TRUE['alfa']} is on it."


def write_attacker(home: Path, *, judged: str = "wrong", fixed: str = "^\\W*11-afla\\W*$") -> str:
    names = {"right": [], "wrong": [], judged: ["a1"]}
    checks = [{"kind": "regex", "texts": [fixed], "number": 0, "exact": False}]
    rules = [
        {
            "system": "You attack",
            "match": '"tried": \\[\\]',
            "answer": json.dumps(
                {"attacks": [{"case": "alfa", "wrong": [PASSES, "99"], "right": [TRUE["alfa"]]}]}
            ),
        },
        {"system": "You attack", "answer": json.dumps({"attacks": []})},
        {
            "system": "You say of answers",
            "answer": json.dumps({"judged": [{"case": "alfa", **names}]}),
        },
        {
            "system": "You fix",
            "answer": json.dumps({"cases": [{"id": "alfa", "checks": checks, "disputed": []}]}),
        },
    ]
    (home / "attacker.json").write_text(json.dumps(rules))
    return "scripted:attacker.json"


def test_what_an_attacker_finds_goes_into_the_checks(upskill: Upskill, home: Path) -> None:
    write_skill(home / "codes")
    done = upskill(
        "challenge", "codes", "--attack-checks", "--challenger", write_attacker(home), "--json"
    )
    assert done.code == 0, done.err
    assert done.json["attacks"] == [
        {"case": "alfa", "kind": "wrong", "answer": PASSES, "fate": "fixed"}
    ]
    assert done.json["clean"]
    suite = Suite.of(Skill.load("codes"))
    assert suite
    assert [named.name for named in suite.cases[0].checks] == ["regex"]
    assert suite.cases[0].wrong == (PASSES,)
    again = upskill("challenge", "codes", "--attack-checks", "--challenger", write_attacker(home))
    assert "found no answer that the checks judge wrongly (1 round)." in " ".join(again.out.split())


def test_a_fix_cannot_dispute_what_the_suite_calls_right(upskill: Upskill, home: Path) -> None:
    right = "The number on alfa is 11-afla, clerk."
    write_skill(home / "codes")
    written = json.loads((home / "codes" / "evals" / "evals.json").read_text())
    written["evals"][0]["right"] = [right]
    (home / "codes" / "evals" / "evals.json").write_text(json.dumps(written))
    attacker = write_attacker(home, fixed="^11-afla$")
    rules = json.loads((home / "attacker.json").read_text())
    (fix,) = json.loads(rules[-1]["answer"])["cases"]
    rules[-1]["answer"] = json.dumps({"cases": [fix | {"disputed": ["r1"]}]})
    rules[0]["match"] = rf'"tried": \["{right}"\]'
    (home / "attacker.json").write_text(json.dumps(rules))
    done = upskill("challenge", "codes", "--attack-checks", "--challenger", attacker)
    assert done.code == 0, done.err
    assert "The checks judged 1 answer wrongly, none fixed (2 rounds)." in " ".join(
        done.out.split()
    )
    assert not upskill(
        "challenge", "codes", "--attack-checks", "--challenger", attacker, "--json"
    ).json["clean"]
    suite = Suite.of(Skill.load("codes"))
    assert suite
    assert suite.cases[0].right == (right,)


def test_an_attacker_who_fails_later_keeps_what_was_fixed(upskill: Upskill, home: Path) -> None:
    write_skill(home / "codes")
    write_attacker(home)
    rules = json.loads((home / "attacker.json").read_text())
    (home / "attacker.json").write_text(
        json.dumps([rules[0], {"system": "You attack", "answer": "hm"}, *rules[2:]])
    )
    done = upskill(
        "challenge", "codes", "--attack-checks", "--challenger", "scripted:attacker.json"
    )
    assert done.code == 0, done.err
    text = " ".join(done.out.split())
    assert "1 fixed in 1 case (2 rounds). Stopped early: attacking checks: no usable answer" in text
    assert Suite.required(Skill.load("codes")).cases[0].wrong == (PASSES,)


def test_an_answer_that_another_reader_calls_otherwise_changes_nothing(
    upskill: Upskill, home: Path
) -> None:
    write_skill(home / "codes")
    attacker = write_attacker(home, judged="right")
    done = upskill("challenge", "codes", "--attack-checks", "--challenger", attacker, "--json")
    assert (done.json["attacks"], done.json["refused"]) == ([], 1)


def test_an_attacker_who_answers_something_else_has_not_found_the_checks_clean(
    upskill: Upskill, home: Path
) -> None:
    write_skill(home / "codes")
    for number, said in enumerate(
        ({}, {"attacks": [{"case": "zulu", "wrong": [PASSES], "right": []}]})
    ):
        (home / f"{number}.json").write_text(json.dumps([{"answer": json.dumps(said)}]))
        done = upskill(
            "challenge", "codes", "--attack-checks", "--challenger", f"scripted:{number}.json"
        )
        assert done.code != 0
        assert "attacking checks: no usable answer" in done.err


def test_a_loophole_that_stayed_open_is_fixed_in_a_later_round() -> None:
    bench = runpy.run_path(str(REPOSITORY / "bench" / "challenge.py"), run_name="bench_challenge")
    holes = {f"case-{number}": hole for number, hole in enumerate(bench["loopholes"]()[:4])}
    attacker, tries = bench["Attacker"](holes), Counter[str]()
    usual = attacker.fix

    def fix_late(case: dict[str, Any]) -> dict[str, Any]:
        tries[case["id"]] += 1
        is_early = case["id"] == "case-0" and tries["case-0"] <= MAX_FIXES
        return {"id": case["id"], "checks": [], "disputed": []} if is_early else usual(case)

    attacker.fix = fix_late
    cases = [
        {"id": name, "prompt": hole.prompt, "checks": hole.checks, "reference": hole.reference}
        for name, hole in holes.items()
    ]
    attacked = asyncio.run(attack_checks(Suite.parse({"cases": cases}), attacker))
    assert [each.fate for each in attacked.attacks] == ["fixed"] * 4


def test_a_fix_that_fails_the_reference_is_not_taken(upskill: Upskill, home: Path) -> None:
    write_skill(home / "codes")
    before = (home / "codes" / "evals" / "evals.json").read_text()
    attacker = write_attacker(home, fixed="^hammer$")
    done = upskill(
        "challenge", "codes", "--attack-checks", "--challenger", attacker, "--rounds", 1, "--json"
    )
    assert [each["fate"] for each in done.json["attacks"]] == ["open"]
    assert (home / "codes" / "evals" / "evals.json").read_text() == before


def test_checks_are_shown_to_an_attacker_as_test_writers_put_them() -> None:
    suite = Suite.parse(
        {
            "cases": [
                {
                    "prompt": "?",
                    "checks": [
                        {"contains": "a"},
                        {"contains_any": {"text": ["a", "b"], "ignore_case": False}},
                        {"regex": {"pattern": "a+"}},
                        {"json_schema": {"type": "object"}},
                        {"judge": "is it kind?"},
                    ],
                }
            ]
        }
    )
    written = [as_written(named) for named in suite.cases[0].checks]
    assert written == [
        {"kind": "contains", "texts": ["a"], "number": 0, "exact": False},
        {"kind": "contains_any", "texts": ["a", "b"], "number": 0, "exact": True},
        {"kind": "regex", "texts": ["a+"], "number": 0, "exact": False},
        {"kind": "json_schema", "texts": ['{"type": "object"}'], "number": 0, "exact": False},
        None,
    ]
