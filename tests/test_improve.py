"""`upskill generate "REQUEST" --from SKILL`: what was asked for is done, and nothing of before is lost."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conftest import Done, Upskill
from teaching import (
    NUMBERS,
    REVISES,
    TRAIN,
    case,
    fact,
    prompt,
    student_rules,
    suite_rules,
    write_rules,
)
from upskill import AuthoringEvents, GenerateOptions, Skill, Suite, generate_now, open_store
from upskill.authoring.material.material import Material, Piece, gather
from upskill.authoring.saving.output import edited_by_hand, record_version, replace_manifest
from upskill.authoring.saving.provenance import Provenance, SourceFile, add_suite
from upskill.authoring.search.improve import add_stored_evidence
from upskill.skills import find_skills

REQUEST = "it should know the rest of the ship too"
OLD, NEW = NUMBERS[:10], NUMBERS[10:]
FOLDER = Path("skills") / "house-words"
FILLER = "- Everything here is about the ship."
WIDER: dict[str, Any] = {
    "note": "",
    "edits": [
        {
            "kind": "insert",
            "line": 12,
            "text": "\n".join(map(fact, NEW)),
            "evidence": ["own"],
            "why": "",
        }
    ],
}
SHORTER: dict[str, Any] = {
    "note": "",
    "edits": [{"kind": "delete", "line": 12, "text": "", "evidence": [], "why": ""}],
}
# It states the new facts and drops the old ones.
TRADE: dict[str, Any] = {
    "note": "",
    "edits": [
        {
            "kind": "insert",
            "line": 1,
            "text": "\n".join(map(fact, NEW)),
            "evidence": ["own"],
            "why": "",
        },
        *(
            {"kind": "delete", "line": line, "text": "", "evidence": [], "why": ""}
            for line in range(2, 7)
        ),
    ],
}


def written_case(number: int) -> dict[str, Any]:
    """A case as a suite file says it."""
    said = case(number)
    del said["words"]
    checks = [
        {check["kind"]: check["texts"][0] if check["texts"] else check["number"]}
        for check in said["checks"]
    ]
    return {**said, "checks": checks}


def teacher(cases: Sequence[int], revision: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        *suite_rules(cases),
        {"system": REVISES, "answer": json.dumps(revision)},
    ]


@pytest.fixture
def house(home: Path) -> Path:
    """A skill that upskill wrote, that states half of the facts, and passes all of its cases."""
    body = "\n".join(["# The ship", *map(fact, OLD), FILLER])
    skill = Skill.new("house-words", "States facts about the ship. Use when asked about it.", body)
    stored = {
        "d1": {
            "kind": "document",
            "from": "log.md",
            "text": "From the log: the name of the ship is Aurora.",
        }
    }
    provenance = (
        Provenance()
        .with_author("somebody", "know the ship")
        .with_sources({fact(1): ["d1"]}, stored)
    )
    suite = Suite.parse([written_case(number) for number in OLD], "old")
    record_version(add_suite(provenance.add_to(skill), suite)).save(home / FOLDER)
    write_rules(home / "teacher.json", teacher(NEW, WIDER))
    write_rules(home / "student.json", student_rules())
    return home


def improve(upskill: Upskill, *more: object, request: str = REQUEST) -> Done:
    evaluated = () if "--no-eval" in more else ("--student", "scripted:student.json")
    student = (*evaluated, "--tokens", 1000, "--attempts", 1, "--cases", len(NEW))
    return upskill(
        "generate", request, "--from", FOLDER, "-m", "scripted:teacher.json", *student, *more
    )


def revising_prompt(house: Path) -> dict[str, Any]:
    with open_store(house / "runs") as store:
        (asked,) = [
            request
            for role, request, _ in store.requests()
            if role == "teacher" and "You improve" in request
        ]
    text = json.loads(asked)["messages"][1]["text"]
    return json.loads(text.partition("\n\n<<<MATERIAL")[0]) | {
        "material": text.partition("\n\n<<<MATERIAL")[2]
    }


def test_a_request_is_carried_out_on_a_skill_that_passes_all_of_its_cases(
    upskill: Upskill, house: Path
) -> None:
    before = Skill.load(house / FOLDER)
    done = improve(
        upskill, "--target", 0, "--json"
    )  # reached, which is no reason not to do what was asked
    assert done.code == 0, done.err
    said = done.json
    assert [one["decision"] for one in said["attempts"]] == ["older version", "best guess"]
    assert "the student always gives the same answer" in said["confirmation"]["why_not"]
    assert (said["confirmation"]["only_not_worse"], said["confirmation"]["older_cases_broken"]) == (
        False,
        [],
    )
    assert set(said["confirmation"]["fixed"]) == {
        f"word-{number}" for number in NEW if number in TRAIN
    }
    saved = Skill.load(house / FOLDER)
    assert all(fact(number) in saved.body for number in NUMBERS)
    suite = Suite.of(saved)
    assert suite is not None
    assert {one.id for one in suite.cases} == {f"word-{number}" for number in NUMBERS}
    assert said["saved_to"] == str(FOLDER)
    # The version before is kept, and the new one says where it comes from.
    previous = Path(said["previous"])
    assert previous.parent == Path("skills/.previous/house-words")
    assert Skill.load(previous).fingerprint == before.fingerprint
    known = Provenance.of(saved).metadata
    assert (known["version"], known["previous_version"]) == ("1.1.0", "1.0.0")
    assert (known["source_task"], known["request"]) == ("know the ship", REQUEST)
    assert not edited_by_hand(saved)
    assert [path.name for path in find_skills(house / "skills")] == ["house-words"]
    assert f"+{fact(NEW[0])}" in upskill("versions", "house-words", "v1", "v2").out
    # The teacher was told the request, and shown what stands behind the older skill.
    shown = revising_prompt(house)
    assert (shown["request"], shown["sources"]) == (REQUEST, {"2": ["d1"]})
    assert "From the log: the name of the ship is Aurora." in shown["material"]
    assert {failure["asked"] for failure in shown["failures"]} == {
        prompt(number) for number in NEW if number in TRAIN
    }
    assert Provenance.of(saved).sources[fact(1)] == ("d1",)


def test_a_change_that_costs_older_cases_is_not_made(upskill: Upskill, house: Path) -> None:
    write_rules(house / "teacher.json", teacher(NEW, TRADE))
    before = Skill.load(house / FOLDER)
    done = improve(upskill, "--json")
    assert done.code == 0, done.err
    attempt = done.json["attempts"][1]
    assert attempt["decision"] in ("worse", "not enough evidence")
    assert "older cases: better on 0 of" in attempt["note"]
    saved = Skill.load(house / FOLDER)
    assert (saved.visible_hash, done.json["previous"]) == (before.visible_hash, None)
    suite = Suite.of(saved)
    assert suite is not None
    assert {one.id for one in suite.cases} == {f"word-{number}" for number in OLD}


@pytest.mark.parametrize("cases", [OLD, ()])
def test_where_no_case_can_get_better_a_change_has_to_be_shown_not_worse(
    upskill: Upskill, house: Path, cases: Sequence[int]
) -> None:
    """The cases that a writer thinks of are there already, or it thinks of none."""
    write_rules(house / "teacher.json", teacher(cases, SHORTER))
    done = improve(upskill, "--json", request="make it shorter")
    assert done.code == 0, done.err
    assert done.json["confirmation"]["only_not_worse"]
    assert done.json["ended"] == "all attempts are used"
    assert [one["decision"] for one in done.json["attempts"]] == ["older version", "best guess"]
    saved = Skill.load(house / FOLDER).body
    assert FILLER not in saved
    assert all(fact(number) in saved for number in OLD)


KIND: dict[str, Any] = {"note": "", "edits": [{**WIDER["edits"][0], "text": "- Be kind."}]}


@pytest.mark.parametrize("attempts", [1, 2])
def test_a_requested_change_that_is_not_shown_to_be_better_is_kept_because_somebody_asked(
    upskill: Upskill, house: Path, attempts: int
) -> None:
    useless = {"note": "", "edits": [{**WIDER["edits"][0], "text": "- Be brief."}]}
    rules = [
        {"system": REVISES, "when": "Be kind", "answer": json.dumps(useless)}
    ]  # what the search adds by itself
    write_rules(house / "teacher.json", [*rules, *teacher(NEW, KIND)])
    done = improve(upskill, "--attempts", attempts)
    assert done.code == 0, done.err
    decisions = [one["decision"] for one in upskill("versions", FOLDER, "--json").json]
    assert (
        decisions == ["older version", "kept as requested", "not enough evidence"][: attempts + 1]
    )
    known = "not shown to be better on 6 train cases; kept because you asked for it"
    assert known in " ".join(done.out.split())
    assert "The previous version is in " in done.err
    body = Skill.load(house / FOLDER).body
    assert ("- Be kind." in body, "- Be brief." in body) == (True, False)


def test_a_change_that_is_shown_to_be_worse_can_be_made_all_the_same(
    upskill: Upskill, house: Path
) -> None:
    write_rules(house / "teacher.json", teacher(NEW, TRADE))
    done = improve(upskill)
    why = "The requested change was not made: worse (better on "
    assert why in " ".join(done.err.split())
    command = (
        " ".join(done.err.split())
        .partition("make it anyway: upskill ")[2]
        .partition(" | patch -p1 -d ")[0]
    )
    diff = upskill(*shlex.split(command)).out
    assert f"+{fact(NEW[0])}" in diff
    subprocess.run(["patch", "-p1", "-d", str(house / FOLDER)], input=diff, text=True, check=True)
    assert fact(NEW[0]) in Skill.load(house / FOLDER).body


def test_a_request_that_breaks_a_third_of_the_cases_is_not_made(
    upskill: Upskill, house: Path
) -> None:
    harm = {"note": "", "edits": [{**SHORTER["edits"][0], "line": line} for line in range(2, 8)]}
    write_rules(house / "teacher.json", teacher((), harm))
    done = improve(upskill, request="make it shorter")
    assert "The requested change was not made: worse (" in done.err
    assert all(fact(number) in Skill.load(house / FOLDER).body for number in OLD)


def test_a_change_is_made_even_where_few_cases_could_show_that_it_does_no_harm(
    upskill: Upskill, house: Path
) -> None:
    two = [{**written_case(number), "held_out": False} for number in OLD[:2]]
    (house / "two.json").write_text(json.dumps(two))
    write_rules(house / "teacher.json", teacher((), SHORTER))
    elsewhere = ("--output", "few/house-words")
    few = improve(
        upskill, "--tests", "two.json", *elsewhere, "--json", request="make it shorter"
    ).json
    assert (few["confirmation"]["only_not_worse"], FILLER in Skill.load(few["saved_to"]).body) == (
        True,
        False,
    )
    # Where there are new cases to get better, so few older ones count with them.
    older = Skill.load(house / FOLDER)
    record_version(add_suite(older, Suite.parse(two, "two"))).save(house / FOLDER, overwrite=True)
    write_rules(house / "teacher.json", teacher(NEW, WIDER))
    assert improve(upskill, "--json").json["confirmation"]["decision"] == "best guess"


def test_a_test_writer_knows_which_skill_a_request_is_about_and_not_what_it_says(
    upskill: Upskill, house: Path
) -> None:
    (house / "page.md").write_text("\n".join(map(fact, NEW)))
    assert improve(upskill, "--from", "page.md", "--no-eval").code == 0
    with open_store(house / "runs") as store:
        asked = next(
            request for _, request, _ in store.requests() if "You write test cases" in request
        )
    text = json.loads(asked)["messages"][1]["text"].partition("\n\n")[0]
    about = {
        "name": "house-words",
        "description": "States facts about the ship. Use when asked about it.",
    }
    assert json.loads(text) == {"task": REQUEST, **about}


def test_a_skill_without_tests_is_improved_with_a_word_that_nothing_tests_what_it_could_do(
    upskill: Upskill, house: Path
) -> None:
    shutil.rmtree(house / FOLDER / "evals")
    done = improve(upskill, "--no-eval", "--force")
    assert (
        "house-words has no tests of its own, so upskill cannot check that what worked before still works."
        in done.err
    )
    assert f"Read {FOLDER}: skill to improve, about " in done.err


def test_an_older_skill_that_is_not_changed_keeps_its_own_history(
    upskill: Upskill, house: Path
) -> None:
    (house / FOLDER / "skill_meta.json").unlink()
    (house / "older").mkdir()
    (house / FOLDER).rename(house / "older/house-words")
    (house / "page.md").write_text("\n".join(map(fact, NEW)))
    write_rules(house / "teacher.json", teacher(NEW, TRADE))
    student = ("--student", "scripted:student.json", "--attempts", 1, "--cases", len(NEW))
    command = (
        "generate",
        REQUEST,
        "--from",
        "older/house-words",
        "--from",
        "page.md",
        "-m",
        "scripted:teacher.json",
    )
    first, again = (
        upskill(*command, *student) for _ in range(2)
    )  # the same command finds what it has saved
    for done in (first, again):
        assert done.code == 0, done.err
        out = " ".join(done.out.split())
        assert f"The skill in {FOLDER} is the older one, unchanged, with its new results." in out
        assert "Saved to" not in out
        assert "--sources" not in out
        assert (
            "Versions tried besides the older version: 1; the search ended: all attempts are used."
            in out
        )
        metadata = Provenance.of(Skill.load(house / FOLDER)).metadata
        assert {"generated_by", "source_task", "source_files", "improved_by"}.isdisjoint(metadata)
        assert metadata["test_pass_rate"] is not None
    assert "Evaluating on scripted:student.json... (version 2, " in again.err


# What a person has edited.


def edit_by_hand(house: Path) -> str:
    manifest = house / FOLDER / "SKILL.md"
    manifest.write_text(manifest.read_text() + "- My own line.\n")
    return manifest.read_text()


def test_a_skill_that_was_edited_by_hand_is_not_replaced_unless_someone_says_so(
    upskill: Upskill, house: Path
) -> None:
    text = edit_by_hand(house)
    for more in ((), ("--output", FOLDER)):
        refused = improve(upskill, *more)
        assert refused.code == 2
        assert f"{FOLDER}: written or edited by hand" in refused.err
        assert "--force" in refused.err
        assert (house / FOLDER / "SKILL.md").read_text() == text
    assert not (house / "runs").exists()  # nothing was asked or paid for
    elsewhere = improve(upskill, "--output", "other/house-words", "--json")
    assert (elsewhere.code, elsewhere.json["saved_to"]) == (0, "other/house-words")
    assert (house / FOLDER / "SKILL.md").read_text() == text
    forced = improve(upskill, "--force", "--json")
    assert forced.code == 0, forced.err
    assert (Path(forced.json["previous"]) / "SKILL.md").read_text() == text
    saved = Skill.load(house / FOLDER)
    assert "- My own line." in saved.body
    assert fact(NEW[0]) in saved.body
    assert not edited_by_hand(saved)


@pytest.mark.parametrize("answer", [True, False])
def test_whoever_can_answer_is_shown_the_change_and_asked(house: Path, answer: bool) -> None:
    text = edit_by_hand(house)
    asked: list[tuple[Path, str]] = []

    def ask(folder: Path, diff: str) -> bool:
        asked.append((folder, diff))
        return answer

    options = GenerateOptions(
        task=REQUEST,
        sources=(str(FOLDER),),
        teacher="scripted:teacher.json",
        student="scripted:student.json",
        tokens=1000,
        attempts=1,
        cases=len(NEW),
    )
    made = generate_now(options, events=AuthoringEvents(replace_edited=ask))
    ((folder, diff),) = asked
    assert (folder, f"+{fact(NEW[0])}" in diff, "- My own line." in diff) == (FOLDER, True, True)
    assert made.folder == (FOLDER if answer else FOLDER.with_name("house-words-2"))
    assert fact(NEW[0]) in Skill.load(made.folder).body
    left = made.previous if answer else house / FOLDER
    assert left is not None
    assert (left / "SKILL.md").read_text() == text


def test_a_skill_that_a_person_wrote_counts_as_edited_and_the_record_follows_what_upskill_does(
    house: Path,
) -> None:
    skill = Skill.load(house / FOLDER)
    assert not edited_by_hand(skill)
    assert edited_by_hand(Skill.new("mine", "Mine.", "My words."))
    assert edited_by_hand(skill.with_file("skill_meta.json", b"{"))
    replace_manifest(skill.with_description("Another description of the ship."), house / FOLDER)
    assert not edited_by_hand(Skill.load(house / FOLDER))
    edit_by_hand(house)
    replace_manifest(Skill.load(house / FOLDER).with_description("A third one."), house / FOLDER)
    assert edited_by_hand(Skill.load(house / FOLDER))


def test_what_was_made_without_an_evaluation_has_versions_too(
    upskill: Upskill, house: Path
) -> None:
    done = improve(upskill, "--no-eval")
    assert f"The previous version is in {FOLDER.parent}/.previous/house-words/1.0.0-" in done.err
    first, second = upskill("versions", FOLDER, "--json").json
    assert (first["decision"], first["parent"], first["pass_rate"]) == ("older version", None, None)
    assert (second["decision"], second["parent"]) == ("unproven", "v1")
    assert second["note"] == f"not evaluated: --no-eval; asked for: {REQUEST}"
    changed = upskill("versions", FOLDER, "--diff")
    assert f"+{fact(NEW[0])}" in changed.out
    assert upskill("versions", FOLDER, "v1", "v2").out == changed.out
    assert upskill("versions", FOLDER, "v2").out == changed.out
    refused = upskill("versions", FOLDER, "v1")
    assert (refused.code, "v1 has no parent version" in refused.err) == (2, True)


PAGE = "\n\n".join(
    f"# Part {number}\n\n{prompt(number)} {fact(number)} {'It is so. ' * 60}" for number in NUMBERS
)


def made_from_a_page(house: Path) -> None:
    """Give the older skill the page `log.md` as the source of its first line."""
    older = Skill.load(house / FOLDER)
    (house / "notes").mkdir(exist_ok=True)
    (house / "notes/log.md").write_text(PAGE)
    material = gather("know the ship", sources=["notes/log.md"])
    provenance = (
        Provenance().with_author("somebody", "know the ship").with_source_files(material.files)
    )
    provenance = provenance.with_sources({fact(1): ["d1"]}, material.excerpts())
    record_version(provenance.add_to(older)).save(house / FOLDER, overwrite=True)


def test_an_improvement_shows_all_of_the_older_material_that_can_still_be_read(
    upskill: Upskill, house: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_from_a_page(house)
    assert improve(upskill).code == 0
    shown = revising_prompt(house)["material"]
    lines = [json.loads(line) for line in shown.splitlines() if line.startswith("{")]
    assert [line["id"] for line in lines] == [f"d{number}" for number in NUMBERS]
    assert all(fact(number) in shown for number in NUMBERS)
    assert {piece.source for piece in gather("x", sources=["doc:notes/log.md"]).pieces} == {
        "log.md"
    }
    (house / "log.md").write_text(PAGE)
    assert {piece.source for piece in gather("x", sources=["doc:log.md"]).pieces} == {"log.md"}
    # It is found from another folder as well, by where the skill lies.
    older = Skill.load(house / FOLDER)
    assert Provenance.of(older).metadata["source_files"][0]["path"] == "notes/log.md"
    (house / "elsewhere").mkdir()
    monkeypatch.chdir(house / "elsewhere")
    assert len(add_stored_evidence(Material(REQUEST, (), older)).pieces) == len(NUMBERS)
    # Where there is no room for all, what older lines cite and what has to do with the request comes first.
    wanted = NUMBERS[-1]
    few = add_stored_evidence(Material(prompt(wanted), (), older), budget=500)
    assert [piece.id for piece in few.pieces] == ["d1", f"d{wanted}"]
    assert few.left_out == (
        f"{len(NUMBERS) - 2} of {len(NUMBERS)} pieces of the older material, which did not fit",
    )


def test_the_path_of_a_source_tells_nobody_where_home_is(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada = home / "ada"
    monkeypatch.setenv("HOME", str(ada))
    session = ada / ".claude" / str(ada).replace("/", "-") / "one.jsonl"
    for place in (ada / "notes.md", session):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("Notes.")
    kept = SourceFile.of("doc", ada / "notes.md")
    assert kept is not None
    assert (kept.path, kept.find(None)) == ("~/notes.md", ada / "notes.md")
    assert SourceFile.of("trace", session) is None
    monkeypatch.setenv("HOME", "/home/grace")
    assert SourceFile.of("doc", ada / "notes.md") is None  # a temporary folder is gone tomorrow


def test_what_cannot_be_read_again_is_said_with_what_to_do(upskill: Upskill, house: Path) -> None:
    hint = "only what the older lines cite is shown; pass it again with --from to show it all"
    done = improve(upskill, "--no-eval")
    assert f"Left out: the rest of log.md (its location is unknown): {hint}." in done.err
    made_from_a_page(house)
    (house / "notes/log.md").write_text(PAGE + "More.")
    assert (
        f"the rest of notes/log.md (it has changed since): {hint}."
        in improve(upskill, "--no-eval").err
    )
    (house / "notes/log.md").unlink()
    assert (
        f"the rest of notes/log.md (it no longer exists): {hint}."
        in improve(upskill, "--no-eval").err
    )
    # Given again, it is shown once, under the ids that the older lines cite.
    (house / "log.md").write_text(PAGE)
    older = Skill.load(house / FOLDER)
    again = add_stored_evidence(gather(REQUEST, sources=[older, "log.md"]))
    assert (len(again.pieces), again.left_out) == (len(NUMBERS), ())


def test_stored_evidence_keeps_apart_from_new_material_of_the_same_name(house: Path) -> None:
    older = Skill.load(house / FOLDER)
    material = Material(REQUEST, (Piece("d1", "document", "Another document."),), older)
    both = add_stored_evidence(material)
    assert {piece.id: piece.text[:12] for piece in both.pieces} == {
        "d1-2": "Another docu",
        "d1": "From the log",
    }
    assert (both.skill, both.stored) == (older, {"d1"})
    assert add_stored_evidence(replace(material, skill=None)) == replace(material, skill=None)


def test_a_request_without_an_attempt_is_refused_before_anybody_is_paid(
    upskill: Upskill, house: Path
) -> None:
    done = improve(upskill, "--attempts", 0)
    assert done.code == 2
    assert "--attempts 0 makes no change to the older skill, but you asked for a change" in done.err
    assert not (house / "runs").exists()
