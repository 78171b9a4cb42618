"""Refine: a gate that noise does not get through, a reviser who is told facts and not answers, a search that stops."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from conftest import REPOSITORY, Upskill, read_check, spawn, write_skill
from plugin import install_plugin
from teaching import (
    HELD_OUT,
    NUMBERS,
    TRAIN,
    WORDS,
    case,
    draft,
    fact,
    prompt,
    says,
    student_rules,
    teacher_rules,
    write_rules,
)
from upskill import Models, Outcome, PlanOptions, Skill, Suite, make_plan, open_store
from upskill.authoring.material.material import Material, Piece
from upskill.authoring.saving.provenance import Provenance, own_lines
from upskill.authoring.search.comparison import (
    ALPHA,
    EARLIER_LOOK,
    LAST_LOOK,
    Confirmation,
    compare,
    confirm,
    confirming_rounds,
    failures_needed,
    levels_over_cases,
)
from upskill.authoring.search.failures import mask_expected, stored_failures
from upskill.authoring.search.old_arithmetic import sign_flip_p_value
from upskill.authoring.search.refine import CITED_BATCH, RefineOptions, Search, refine
from upskill.authoring.search.refiners import (
    REQUEST_TOKENS,
    Edit,
    Failure,
    Proposal,
    Refiner,
    TriedEdits,
    apply_all,
    apply_edits,
)
from upskill.authoring.search.refiners.gepa import Gepa
from upskill.authoring.search.refiners.rewrite import Rewrite
from upskill.authoring.writing.grounding import mark_own_lines
from upskill.errors import CeilingReached
from upskill.models.addresses import resolve
from upskill.plain import digest_text, quoted
from upskill.runs.planning.draws import DrawRules
from upskill.suites import Case


def outcomes(passed: Sequence[bool | None], runs: int = 1) -> list[Outcome]:
    return [
        Outcome("student", f"case-{number // runs}", "skill", number % runs, one, 10, 5, 0.0)
        for number, one in enumerate(passed)
    ]


# Comparing two skills.


def test_a_candidate_that_is_ahead_is_kept_provisionally_and_the_others_are_called_what_they_are() -> (
    None
):
    worse, better = [False] * 12, [True] * 12
    four = compare(outcomes(worse), outcomes([True] * 4 + worse[4:]))
    assert (four.screened, four.summary) == (
        "kept provisionally",
        "better on 4 of these 12 train cases, worse on none",
    )
    assert four.fixed == ("case-0", "case-1", "case-2", "case-3")
    assert compare(outcomes(better), outcomes(worse)).screened == "worse"
    level = compare(outcomes([True, False, *worse[2:]]), outcomes([False, True, *worse[2:]]))
    assert level.screened == "not enough evidence"
    assert compare(outcomes(better), outcomes(better)).screened == "not enough evidence"
    assert (
        compare(outcomes(better), outcomes([False] * 3 + better[3:])).screened
        == "not enough evidence"
    )


def test_errors_are_never_taken_for_better_or_worse() -> None:
    found = compare(outcomes([False] * 10), outcomes([True] * 5 + [None] * 5))
    assert (found.screened, found.errored) == ("not decided", 5)
    assert "errored" in found.summary
    assert compare([], []).screened == "not decided"
    assert confirm(found, None, ALPHA, ALPHA) == "not decided"


def test_a_confirmation_holds_in_the_worst_case_of_trials_that_errored() -> None:
    never, always = outcomes([False] * 96, runs=8), outcomes([True] * 96, runs=8)
    errored = [
        replace(row, passed=None) if row.seed == 0 and row.case < "case-4" else row for row in never
    ]
    found = compare(errored, always, worst=True)
    assert (found.gain, len(found.differences), found.decidable) == (96 - found.errored, 96, True)


def test_fresh_repeats_are_no_further_cases() -> None:
    """Issue 28: two cases that pass on each of four new draws were confirmed with p = 0.004."""
    never = [False] * 48
    two, six = (
        compare(outcomes(never, runs=4), outcomes([True] * 4 * cases + never[4 * cases :], runs=4))
        for cases in (2, 6)
    )
    assert (two.p_value, six.p_value) == (2.0**-2, 2.0**-6)
    assert [confirm(each, None, EARLIER_LOOK, ALPHA) for each in (two, six)] == [
        "best guess",
        "confirmed",
    ]
    # The more candidates it was chosen from on these cases, the more it takes.
    assert [confirm(six, None, LAST_LOOK, ALPHA / tried) for tried in (3, 4)] == [
        "confirmed",
        "best guess",
    ]
    one = compare(outcomes(never, runs=4), outcomes([True, *never[1:]], runs=4))
    assert confirm(one, None, LAST_LOOK, ALPHA) == "not enough evidence"
    harmed = compare(outcomes([True] * 12), outcomes([False] * 12))
    assert confirm(harmed, None, LAST_LOOK, ALPHA) == "worse"


def test_an_exact_student_has_no_p_value_and_confirms_nothing() -> None:
    all_fixed = compare(outcomes([False] * 48, runs=4), outcomes([True] * 48, runs=4))
    assert confirm(all_fixed, None, LAST_LOOK, ALPHA) == "confirmed"
    copied = replace(all_fixed, exact=True)
    assert (copied.p_value, confirm(copied, None, LAST_LOOK, ALPHA)) == (None, "best guess")
    found = Confirmation(copied, "best guess", 4, 96)
    assert "p =" not in found.summary
    assert (
        found.doubt
        == "the student always gives the same answer, so there is nothing to test it with"
    )


def test_a_guess_says_how_many_cases_would_confirm_it() -> None:
    never = [False] * 48
    two = compare(outcomes(never, runs=4), outcomes([True] * 8 + never[8:], runs=4))
    found = Confirmation(two, "best guess", 4, 96, tried=3)
    assert found.summary == (
        "better on 2 of these 12 train cases, worse on none (p = 0.250 over cases, and 0.016 is needed after 3"
        " candidates); 4 new draws per case"
    )
    assert (
        found.doubt
        == "12 train cases are too few to detect an edit of this size; about 38 would be enough"
    )


def test_older_cases_have_to_be_shown_not_worse_and_few_show_it_for_themselves_only() -> None:
    better = compare(outcomes([False] * 96), outcomes([True] * 96))
    kept = compare(outcomes([True] * 96), outcomes([True] * 96))
    repeated = compare(outcomes([True] * 96, runs=8), outcomes([True] * 96, runs=8))
    few = compare(outcomes([True] * 12), outcomes([True] * 12))
    harmed = compare(outcomes([True] * 96), outcomes([False] * 12 + [True] * 84))
    decisions = [
        confirm(better, older, LAST_LOOK, ALPHA) for older in (kept, repeated, few, harmed)
    ]
    assert decisions == ["confirmed", "best guess", "not enough evidence", "worse"]
    doubt = Confirmation(better, "best guess", 8, 192, older_cases=repeated).doubt
    assert doubt == "12 older cases are too few to rule out a loss of 10%; about 29 would be enough"
    alone = [
        confirm(part, None, LAST_LOOK, ALPHA, only_not_worse=True) for part in (kept, repeated, few)
    ]
    assert alone == ["confirmed", "best guess", "not enough evidence"]


def test_how_much_is_run_to_confirm_something_depends_on_the_number_of_cases() -> None:
    assert 2 * EARLIER_LOOK + LAST_LOOK <= ALPHA + 1e-12
    assert [confirming_rounds(cases) for cases in (1, 3, 12, 20, 30, 60, 500)] == [
        *((2, 6, 12), (2, 6, 12), (2, 4, 8), (2, 3, 5), (2, 4), (1, 2)),
        (1,),
    ]
    assert [failures_needed(cases) for cases in (3, 12, 20, 30, 60, 500)] == [1, 1, 1, 2, 3, 5]


# What a reviser is told.

BOTH_QUOTES = "jj describe -m ['\"]\\w+"


@pytest.mark.parametrize(
    ("check", "reason", "left"),
    [
        ({"contains": ["tern.yaml"]}, "the answer lacks 'tern.yaml'", "the answer lacks [masked]"),
        ({"equals": "0"}, "the answer is not '0'", "the answer is not [masked]"),
        (
            {"regex": r"\breef\b"},
            r"the answer does not match '\\breef\\b'",
            "the answer does not match [masked]",
        ),
        (
            {"regex": BOTH_QUOTES},
            f"the answer does not match {quoted(BOTH_QUOTES)}",
            "the answer does not match [masked]",
        ),
        (
            {"command": {"run": BOTH_QUOTES}},
            f"{quoted(BOTH_QUOTES)} exited with 1; it ran {BOTH_QUOTES}",
            "[masked] exited with 1; it ran [masked]",
        ),
        ({"max_length": 40}, "the answer has 90 characters", "the answer has 90 characters"),
        (
            {"not_contains": "sudo"},
            "the answer contains 'sudo', which it must not",
            "the answer contains [masked], which it must not",
        ),
        (
            {"not_regex": r"^(?!.*--frozen).*uv sync"},
            r"the answer matches '^(?!.*--frozen).*uv sync' with 'uv sync', which it must not",
            "the answer matches [masked] with 'uv sync', which it must not",
        ),
        (
            {"tool_not_called": {"tool": "bash", "arguments": "rm -rf"}},
            "bash with 'rm -rf' was called once, which it must not",
            "[masked] with [masked] was called once, which it must not",
        ),
        (
            {"compiles": {"file": "kernel.cu"}},
            "kernel.cu does not compile as CUDA: kernel.cu:3: error",
            "kernel.cu does not compile as CUDA: kernel.cu:3: error",
        ),
        (
            {"json_schema": {"properties": {"env": {"const": "reef"}}}},
            "env: 'reef' was expected",
            "env: [masked] was expected",
        ),
    ],
)
def test_what_a_check_looked_for_is_masked(check: dict[str, Any], reason: str, left: str) -> None:
    assert mask_expected(read_check(check, "test"), reason) == left


def edit(
    kind: str, line: int, text: str = "", evidence: Sequence[str] = ("own",)
) -> dict[str, Any]:
    return {"kind": kind, "line": line, "text": text, "evidence": list(evidence), "why": "because"}


SKILL = Skill.new("greeter", "Greets.", "# Greeting\n\n- Say hello.\n- Be kind.")
FAILURE = Failure("a", "Greet me.", "hello", ("contains: the answer lacks [masked]",), ("s1",))


async def test_edits_change_lines_and_name_their_evidence() -> None:
    material = Material("greet", (Piece("s1", "step", "We say ahoy."),))
    said = {
        "note": "wrong word",
        "edits": [
            edit("replace", 3, "- Say ahoy.", ["s1"]),
            edit("delete", 4),
            edit("insert", 0, "Top."),
        ],
    }
    reviser = says(said)
    found = await Rewrite(reviser, material).propose(
        SKILL, [FAILURE], [TriedEdits((Edit("delete", 3),), "worse")], 1
    )
    assert found is not None
    assert found.skill.body == "Top.\n# Greeting\n\n- Say ahoy."
    assert found.skill.description == SKILL.description
    assert Provenance.of(found.skill).sources["- Say ahoy."] == ("s1",)
    told = reviser.asked[0].messages[1].text
    shown = json.loads(told.partition("\n\n<<<MATERIAL")[0])
    assert shown["lines"] == {"1": "# Greeting", "2": "", "3": "- Say hello.", "4": "- Be kind."}
    assert shown["failures"] == [
        {
            "asked": "Greet me.",
            "answered": "hello",
            "wrong": list(FAILURE.reasons),
            "evidence": ["s1"],
        }
    ]
    assert shown["tried_before"] == [{"edits": ["delete line 3"], "result": "worse"}]
    assert "We say ahoy." in told


async def test_the_reviser_is_shown_the_whole_skill_and_more_than_a_few_failures() -> None:
    """Defect 13: the refiner saw 500 characters of the skill and three failures."""
    lines = [
        f"- Fact {number} of this house is told here, in a line of its own."
        for number in range(200)
    ]
    skill = Skill.new("facts", "Facts.", "\n".join(lines))
    failures = [
        Failure(f"c{number}", f"Ask {number}.", "no", ("lacks it",), ()) for number in range(12)
    ]
    reviser = says({"note": "", "edits": [edit("delete", 1)]})
    await Rewrite(reviser).propose(skill, failures, (), 1)
    shown = json.loads(reviser.asked[0].messages[1].text)
    assert list(shown["lines"].values()) == lines
    assert [failure["asked"] for failure in shown["failures"]] == [
        failure.prompt for failure in failures
    ]
    await Rewrite(reviser).propose(skill, [*failures, *failures], (), 2)
    assert json.loads(reviser.asked[-1].messages[1].text)["failures_not_shown"] == 12


async def test_the_reviser_is_shown_other_failures_each_time_with_the_evidence_behind_them() -> (
    None
):
    key = "sk-ant-" + "api03-abcDEF123456ghiJKL7890"
    texts = {"d7": f"The manual says ahoy. {key}", "s1": "quoted anyway"}
    failures = [
        Failure(f"c{number}", f"Ask {number}.", "no", ("lacks it",), ("d7",), texts)
        for number in range(20)
    ]
    reviser = says({"note": "", "edits": [edit("delete", 4)]})
    refiner = Rewrite(reviser, Material("greet", (Piece("s1", "step", "We say ahoy."),)))
    asked: list[list[str]] = []
    for attempt in (1, 2, 3):
        tried = [
            TriedEdits((Edit("delete", 3),), "not enough evidence: …", ("Ask 3.",), ("Ask 4.",))
        ]
        await refiner.propose(SKILL, failures, tried, attempt)
        shown = json.loads(reviser.asked[-1].messages[1].text.partition("\n\n<<<MATERIAL")[0])
        asked.append([failure["asked"] for failure in shown["failures"]])
        assert (list(shown["evidence"]), "ahoy" in shown["evidence"]["d7"]) == (["d7"], True)
        assert shown["tried_before"][0]["fixed"] == ["Ask 3."]
        assert shown["tried_before"][0]["broken"] == ["Ask 4."]
    assert asked[0] == [f"Ask {number}." for number in range(12)]
    assert asked[1][:8] == [
        f"Ask {number}." for number in range(12, 20)
    ]  # then those that were shown least often
    assert {*asked[0], *asked[1]} == {f"Ask {number}." for number in range(20)}
    assert asked[2][0] == "Ask 4."
    assert key not in str(reviser.asked)


async def test_the_description_and_files_can_be_edited_and_nothing_outside_their_folders() -> None:
    skill = SKILL.with_file("references/old.md", b"Old words.\n").with_file(
        "scripts/greet.sh", b"echo hello\n"
    )
    skill = skill.with_file("examples/letter.md", b"Dear Ada\n")  # is shown, and cannot be edited
    said = [
        {**edit("describe", 0, "Greets sailors. Use when someone comes aboard."), "path": ""},
        {**edit("write_file", 0, "#!/bin/sh\necho ahoy"), "path": "scripts/greet.sh"},
        {**edit("delete_file", 0), "path": "references/old.md"},
        {**edit("write_file", 0, "All greetings."), "path": "references/all.md"},
        edit("insert", 0, "Run scripts/greet.sh, and read references/all.md for another greeting."),
    ]
    reviser = says({"note": "", "edits": said})
    found = await Rewrite(reviser).propose(skill, [FAILURE], (), 1)
    assert found is not None
    assert len(reviser.asked) == 1
    assert found.skill.description == "Greets sailors. Use when someone comes aboard."
    assert found.skill.body.endswith(skill.body)
    assert found.skill.read("scripts/greet.sh") == b"#!/bin/sh\necho ahoy"
    assert found.skill.is_runnable("scripts/greet.sh")
    assert found.skill.read("references/all.md") == b"All greetings."
    assert found.skill.file("references/old.md") is None
    assert str(found.edits[1]) == "write file scripts/greet.sh: #!/bin/sh\necho ahoy"
    shown = json.loads(reviser.asked[0].messages[1].text)
    assert shown["files"] == {
        "examples/letter.md": "Dear Ada\n",
        "references/old.md": "Old words.\n",
        "scripts/greet.sh": "echo hello\n",
    }


async def test_a_skill_that_should_have_no_files_gets_none_from_an_edit() -> None:
    reviser = says(
        {
            "note": "",
            "edits": [{**edit("write_file", 0, "All greetings."), "path": "references/all.md"}],
        }
    )
    refiner = Rewrite(reviser)
    refiner.file_tokens = 0
    assert await refiner.propose(SKILL, [FAILURE], (), 1) is None
    assert "write_file" not in reviser.asked[0].messages[0].text
    assert "files none" in reviser.asked[0].messages[0].text


async def test_a_file_is_tried_and_a_line_held_to_its_evidence_before_either_is_a_candidate() -> (
    None
):
    broken = [
        {**edit("write_file", 0, "#!/bin/sh\nexit 4"), "path": "scripts/greet.sh"},
        edit("insert", 0, "Run scripts/greet.sh."),
    ]
    reviser = says({"note": "", "edits": broken})
    assert await Rewrite(reviser).propose(SKILL, [FAILURE], (), 1) is None
    assert "fails in a sandbox (exit code 4)" in reviser.asked[1].messages[-1].text
    material = Material("greet", (Piece("d1", "document", "Say ahoy."),))
    reviser = says(
        {"note": "", "edits": [{**edit("insert", 0, "Say `ahoy --loud`."), "evidence": ["d1"]}]}
    )
    found = await Rewrite(reviser, material).propose(SKILL, [FAILURE], (), 1)
    assert "says '--loud', which is not in d1" in reviser.asked[1].messages[-1].text
    assert found is not None  # kept, and marked as the teacher's own when it is saved
    assert own_lines(mark_own_lines(found.skill, material))[0][:1] == ["Say `ahoy --loud`."]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (
            {**edit("write_file", 0, "x"), "path": "SKILL.md"},
            "neither below references/ nor below scripts/",
        ),
        (
            {**edit("write_file", 0, "x"), "path": "references/../../x"},
            "is not a path inside a skill",
        ),
        (
            {**edit("write_file", 0, "x"), "path": "references/key.md"},
            "holds something that you were not shown",
        ),
        (
            {**edit("write_file", 0, "x"), "path": "references/bytes.md"},
            "holds something that you were not shown",
        ),
        ({**edit("delete_file", 0), "path": "references/none.md"}, "there is no file"),
        ({**edit("describe", 0, "word " * 400), "path": ""}, "description"),
        ({**edit("describe", 0, " "), "path": ""}, "has no text"),
        (
            {**edit("write_file", 0, "word " * 4000), "path": "references/long.md"},
            "over the budget",
        ),
        ({"kind": "rename", "line": 1}, "has no kind or no line"),
    ],
)
async def test_edits_of_files_that_would_do_harm_are_refused(
    said: dict[str, Any], why: str
) -> None:
    key = "sk-ant-" + "api03-abcDEF123456ghiJKL7890"
    skill = SKILL.with_file("references/key.md", key.encode()).with_file(
        "references/bytes.md", b"\xff\x00"
    )
    reviser = says({"note": "", "edits": [said]})
    assert await Rewrite(reviser).propose(skill, [FAILURE], (), 1) is None
    assert why in reviser.asked[1].messages[-1].text


async def test_edits_that_do_not_apply_are_told_once_and_then_dropped() -> None:
    bad = {
        "note": "",
        "edits": [edit("replace", 99, "x"), edit("replace", 3, "- Say ahoy."), edit("delete", 3)],
    }
    reviser = says(bad)
    found = await Rewrite(reviser).propose(SKILL, [FAILURE], (), 1)
    assert len(reviser.asked) == 2
    again = reviser.asked[1].messages[-1].text
    assert "there is no line 99 to replace" in again
    assert "line 3 is changed twice" in again
    assert found is not None
    assert found.skill.body == "# Greeting\n\n- Say ahoy.\n- Be kind."
    assert len(found.dropped) == 2


async def test_the_budget_is_kept_in_code() -> None:
    many = {"note": "", "edits": [edit("insert", 4, f"- Line {number}.") for number in range(9)]}
    found = await Rewrite(says(many)).propose(SKILL, [FAILURE], (), 1)
    assert found is not None
    assert len(found.edits) == 6
    long = {"note": "", "edits": [edit("insert", 4, "word " * 400)]}
    assert await Rewrite(says(long)).propose(SKILL, [FAILURE], (), 1) is None
    same = {"note": "", "edits": [edit("replace", 4, "- Be kind.")]}
    assert await Rewrite(says(same)).propose(SKILL, [FAILURE], (), 1) is None
    assert await Rewrite(says("no object")).propose(SKILL, [FAILURE], (), 1) is None


async def test_a_request_has_room_in_a_long_skill_and_its_prompt_names_limits_that_hold() -> None:
    """What fits into the tokens of new lines, by bytes with line breaks, fits into the body too."""
    older = Skill.new("greet", "Greets.", "\n".join(["- Say ahoy to whoever comes aboard."] * 110))
    lines = ["x" * 265] * 6
    assert sum(map(len, lines)) + len(lines) <= 4 * REQUEST_TOKENS
    reviser = says({"note": "", "edits": [edit("insert", 110, line) for line in lines]})
    found = await Rewrite(reviser, Material("also say farewell", skill=older)).propose(
        older, (), (), 1
    )
    assert found is not None
    assert (len(reviser.asked), len(found.edits)) == (1, 6)
    asked = " ".join(reviser.asked[0].messages[0].text.split())
    limit = older.tokens + REQUEST_TOKENS
    assert f"New lines may have {REQUEST_TOKENS} tokens together" in asked
    assert f"The body has {older.tokens} tokens now and may have {limit}." in asked
    assert found.skill.tokens <= limit


def test_edits_name_lines_as_they_were_before_all_of_them() -> None:
    edits = [
        Edit("insert", 1, "b"),
        Edit("delete", 2),
        Edit("insert", 1, "c"),
        Edit("replace", 3, "z"),
    ]
    assert apply_edits(["a", "x", "y"], edits) == "a\nb\nc\nz"


# Somebody else's refiner: it knows the missing facts, and asks no teacher for them.
APPEND = """
from pathlib import Path

from upskill.authoring.search.refiners import Edit, Proposal


class Append:
    def __init__(self, model, material, tokens):
        pass

    async def propose(self, skill, failures, rejected, attempt):
        facts = Path("facts.txt").read_text()
        return Proposal(skill.with_body(f"{skill.body}\\n{facts}"), (Edit("insert", 1, facts),), "appended")
"""


def test_a_refiner_of_another_package_is_named_on_the_command_line(
    home: Path, tmp_path: Path
) -> None:
    write_rules(home / "teacher.json", teacher_rules(draft(TRAIN[:2])))  # it cannot revise anything
    write_rules(home / "student.json", student_rules())
    (home / "facts.txt").write_text(
        "\n".join(fact(number) for number in NUMBERS if number not in TRAIN[:2])
    )
    environment = install_plugin(
        tmp_path / "site", "append_facts", APPEND, {"upskill.refiners:append": "Append"}
    )
    command = [
        "generate",
        "know the ship",
        "-m",
        "scripted:teacher.json",
        "--student",
        "scripted:student.json",
    ]
    done = spawn(*command, "--refiner", "append", "--json", env=environment)
    assert done.code == 0, done.err
    assert [one["accepted"] for one in done.json["attempts"]] == [True, True]
    assert done.json["held_out"]["models"][0]["lift"] == 1.0


# The search.


class Scripted(Refiner):
    """A refiner that proposes these bodies, and remembers what it was told."""

    def __init__(self, *bodies: str) -> None:
        self.bodies = bodies
        self.told: list[tuple[list[Failure], list[TriedEdits]]] = []

    async def propose(
        self, skill: Skill, failures: Sequence[Failure], tried: Sequence[TriedEdits], attempt: int
    ) -> Proposal | None:
        self.told.append((list(failures), list(tried)))
        body = self.bodies[attempt - 1]
        return Proposal(skill.with_body(body), (Edit("insert", 0, body),)) if body else None


def body_of(numbers: Sequence[int]) -> str:
    return "\n".join(["# Words", *map(fact, numbers)])


def words_suite() -> Suite:
    said = [case(number) for number in NUMBERS]
    for one in said:
        one.pop("words", None)  # a field of writers
        one["checks"] = [{"regex": one["checks"][0]["texts"][0]}, {"max_length": 60}]
    return Suite.parse(said, "words")


@pytest.fixture
def sampling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripted students with several answers, which they choose by seed, are no exact ones."""
    monkeypatch.setattr(DrawRules, "is_exact", False)


@pytest.fixture
def student(home: Path, sampling: None) -> str:
    return write_rules(home / "student.json", student_rules())


async def search(
    student: str,
    refiner: Refiner,
    attempts: int = 3,
    *,
    knows: Sequence[int] = TRAIN[:2],
    suite: Suite | None = None,
    start: str = "",
) -> Any:
    first = Skill.new("house-words", "States words.", start or body_of(knows))
    with open_store("runs") as store:
        return await refine(
            [first],
            suite or words_suite(),
            lambda skill, part: make_plan(skill, part, [student], PlanOptions(runs=1)),
            models=Models(replies=store),
            store=store,
            options=RefineOptions(refiner=refiner, attempts=attempts),
        )


async def test_gains_of_a_few_cases_each_add_up_and_are_confirmed_together(student: str) -> None:
    """Three better and none worse, twice: no test could pass either edit alone, and nothing of it is thrown away."""
    refiner = Scripted(body_of(TRAIN[:5]), body_of(TRAIN[:4]), body_of(TRAIN[:8]))
    found = await search(student, refiner)
    assert found.skill.body == body_of(TRAIN[:8])
    assert [one.decision for one in found.attempts] == [
        *("first draft", "kept provisionally", "not enough evidence"),
        "confirmed",
    ]
    assert (found.confirmation.decision, found.confirmation.tried) == ("confirmed", 3)
    assert found.confirmation.cases.fixed == tuple(
        sorted(f"word-{number}" for number in TRAIN[2:8])
    )
    assert found.confirmation.cases.p_value == 2.0**-6
    assert found.confirmation.rounds == confirming_rounds(len(TRAIN))[-1]
    told = refiner.told[2][1]
    assert [one.result.partition(":")[0] for one in told] == [
        "kept provisionally",
        "not enough evidence",
    ]
    assert told[0].fixed == tuple(prompt(number) for number in sorted(TRAIN[2:5], key=str))
    assert (told[0].broken, told[1].fixed, told[1].broken) == ((), (), ())
    # The first draft was run on the held-out cases too, and the search brought nothing there.
    gain = found.held_out_gain.verdicts[0]
    assert (gain.pairs, gain.lift, gain.decision) == (len(HELD_OUT), 0.0, "undecided")
    assert found.held_out_gain.plan.reference_skill.body == body_of(TRAIN[:2])


async def test_a_clear_gain_is_confirmed_after_two_rounds(student: str) -> None:
    found = await search(student, Scripted(body_of(TRAIN)), attempts=1)
    assert (found.confirmation.decision, found.confirmation.rounds) == ("confirmed", 2)
    assert sum(levels_over_cases(1)) == pytest.approx(ALPHA)
    assert sum(levels_over_cases(3)) == pytest.approx(ALPHA / 3)
    assert found.confirmation.cases.p_value <= levels_over_cases(1)[0]


async def test_a_limit_between_two_looks_confirms_nothing(
    student: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the first look asks for is only enough to go on."""
    run_duel = Search._duel  # pyright: ignore[reportPrivateUsage]

    async def run_until_limit(self: Search, *arguments: Any) -> Any:
        if arguments[-1] > 2:
            raise CeilingReached("max_calls is reached")
        return await run_duel(self, *arguments)

    monkeypatch.setattr(Search, "_duel", run_until_limit)
    found = await search(
        student, Scripted(body_of(TRAIN[:5]), body_of(TRAIN[:4]), body_of(TRAIN[:8]))
    )
    assert found.confirmation is None
    assert found.skill.body == body_of(TRAIN[:2])


async def test_too_few_cases_make_a_best_guess_and_no_confirmation(student: str) -> None:
    few = Scripted(body_of(TRAIN[:4]))
    found = await search(student, few, attempts=1)
    assert (found.skill.body, found.confirmation.decision) == (body_of(TRAIN[:4]), "best guess")
    assert (found.confirmation.cases.exact, found.confirmation.cases.p_value) == (False, 0.25)


async def test_an_exact_student_makes_a_best_guess_in_one_round(home: Path) -> None:
    greedy: list[dict[str, Any]] = [
        {name: value[0] if name == "answers" else value for name, value in rule.items()}
        for rule in student_rules()
    ]
    greedy = [
        {"answer": rule.pop("answers"), **rule} if "answers" in rule else rule for rule in greedy
    ]
    found = await search(
        write_rules(home / "greedy.json", greedy), Scripted(body_of(TRAIN)), attempts=1
    )
    assert found.confirmation.rounds == 1
    assert (found.skill.body, found.confirmation.decision) == (body_of(TRAIN), "best guess")
    assert (found.confirmation.cases.exact, found.confirmation.cases.p_value) == (True, None)


@pytest.mark.usefixtures("sampling")
async def test_a_student_whose_answers_the_wording_merely_shuffles_confirms_nothing(
    home: Path,
) -> None:
    """Issue 28: 79 of 200 useless edits were confirmed, because new draws were taken for further cases."""
    decisions: list[str] = []
    for world in range(4):
        rules: list[dict[str, Any]] = []
        for wording, number in product("abcd", NUMBERS):
            word = (
                WORDS[number - 1] if digest_text(f"{world} {wording} {number}") < "8" else "nothing"
            )
            said = {"answers": [word, f"It is {word}."]}
            rules.append(
                {"when": prompt(number), "system": f"Wording {wording} of {world}.", **said}
            )
        student = write_rules(home / f"{world}.json", [*rules, {"answer": "I do not know."}])
        bodies = [f"# Words\n\nWording {wording} of {world}." for wording in "abcd"]
        found = await search(student, Scripted(*bodies[1:]), start=bodies[0])
        decisions += [found.confirmation.decision] if found.confirmation else []
    assert decisions.count("best guess") >= 2  # better in truth on these very cases
    assert "confirmed" not in decisions


async def test_luck_on_the_seeds_of_the_search_is_not_confirmed(home: Path) -> None:
    lucky = [
        {"when": prompt(number), "system": "- Be lucky.", "seed": 0, "answer": WORDS[number - 1]}
        for number in TRAIN
    ]
    student = write_rules(home / "student.json", [*lucky, *student_rules()])
    found = await search(student, Scripted(body_of(TRAIN[:2]) + "\n- Be lucky."), attempts=1)
    assert found.attempts[1].comparison.fixed  # all that failed
    assert [one.decision for one in found.attempts] == ["first draft", "not enough evidence"]
    assert found.confirmation.decision == "not enough evidence"
    assert found.skill.body == body_of(TRAIN[:2])
    assert found.fit is found.attempts[0].evaluation
    with open_store("runs") as store:
        rows = list(store.candidates("house-words"))
    assert [row.accepted for row in rows] == [True, False]
    assert "on new draws: better on 0 of these 12 train cases" in rows[1].note


def test_whole_searches_keep_real_gains_and_call_hardly_anything_better_that_is_not() -> None:
    """The small form of bench/search.py: gains of 20 points, edits that are no better, and five teachers."""
    ran = subprocess.run(
        [sys.executable, REPOSITORY / "bench" / "search.py", "--quick", "--json"],
        capture_output=True,
        check=True,
        text=True,
    )
    rates = json.loads(ran.stdout)
    assert mean(rates["kept"]) >= 0.8
    assert max(rates["wrongly"]) <= ALPHA  # also where the wording shuffles the answers
    assert max(rates["harmed"]) <= ALPHA  # older cases that a requested change costs 10 points
    ahead = [row["now"] > row["before"] for row in rates["equal_calls"].values()]
    assert (len(ahead), sum(ahead) >= 4) == (5, True)
    assert rates["null"] <= 0.025  # `helps`, of a skill that says nothing, after a whole search


class Inserting(Refiner):
    """A refiner that proposes these lines, each an edit of its own, and remembers what it was told."""

    def __init__(self, *proposals: Sequence[str], cites: tuple[str, ...] = ()) -> None:
        self.proposals, self.cites = proposals, cites
        self.told: list[
            tuple[set[str], set[str], list[str]]
        ] = []  # prompts that fail and pass; results

    async def propose(
        self, skill: Skill, failures: Sequence[Failure], tried: Sequence[TriedEdits], attempt: int
    ) -> Proposal | None:
        results = [each.result.partition(":")[0] for each in tried]
        self.told.append(({failure.prompt for failure in failures}, {*self.passing}, results))
        edits = tuple(Edit("insert", 1, line, self.cites) for line in self.proposals[attempt - 1])
        return Proposal(apply_all(skill, edits), edits)


async def test_a_proposal_that_fixes_none_of_a_few_failing_cases_is_tried_on_no_others(
    student: str,
) -> None:
    found = await search(student, Inserting(["- Be kind."]), attempts=1)
    first, useless = found.attempts
    assert (useless.decision, useless.note) == (
        "not enough evidence",
        "better on 0 of these 8 train cases, worse on none",
    )
    failing = {
        row.case for row in first.evaluation.outcomes if row.arm == "skill" and not row.passed
    }
    assert {case.id for case in useless.evaluation.plan.suite.cases} < failing
    assert (found.confirmation, found.duels) == (None, ())


@pytest.mark.usefixtures("sampling")
async def test_a_candidate_that_is_not_ahead_by_chance_is_tried_again_on_the_cases_that_changed(
    home: Path,
) -> None:
    unlucky = [
        {"when": prompt(number), "system": fact(TRAIN[4]), "seed": 0, "answer": "No."}
        for number in TRAIN[:3]
    ]
    student = write_rules(home / "student.json", [*unlucky, *student_rules()])
    found = await search(student, Scripted(body_of(TRAIN[:7])), attempts=1, knows=TRAIN[:4])
    assert (
        found.attempts[1].comparison.gain == 2 * 3
    )  # nothing on the first seed, three cases on each fresh one
    assert sorted(case.id for case in found.duels[0].plan.suite.cases) == sorted(
        f"word-{number}" for number in (*TRAIN[:3], *TRAIN[4:7])
    )
    assert found.skill.body == body_of(TRAIN[:7])


async def test_a_proposal_is_tried_on_fewer_cases_if_it_cites_what_they_rest_on(
    student: str,
) -> None:
    suite, about = words_suite(), f"word-{TRAIN[-1]}"
    cases = tuple(
        replace(each, evidence=("m9",)) if each.id == about else each for each in suite.cases
    )
    found = await search(
        student, Inserting(["- Be kind."], cites=("m9",)), 1, suite=replace(suite, cases=cases)
    )
    tried = [each.id for each in found.attempts[1].evaluation.plan.suite.cases]
    assert (len(tried), about in tried) == (CITED_BATCH, True)


async def test_proposals_that_fix_different_cases_are_tried_together(student: str) -> None:
    batch = sorted(f"word-{number}" for number in TRAIN[2:10])
    facts = [fact(number) for number in TRAIN]
    refiner = Inserting([facts[2], facts[3]], ["- Be kind."], [facts[4], facts[3]])
    found = await search(student, refiner)
    assert [one.decision for one in found.attempts] == [
        *("first draft", "set aside", "not enough evidence", "set aside"),
        "best guess",
    ]
    assert sorted(case.id for case in found.attempts[1].evaluation.plan.suite.cases) == batch
    assert sorted(found.skill.body.splitlines()[1:]) == sorted(
        facts[:5]
    )  # what two propose is there once
    assert found.confirmation.tried == 4  # all that were tried share the level
    failing, passing, results = refiner.told[2]
    assert failing == {
        prompt(number) for number in TRAIN[4:]
    }  # the others are fixed by what is set aside
    assert (passing, results) == (
        {prompt(number) for number in TRAIN[:2]},
        ["set aside", "not enough evidence"],
    )


async def test_an_edit_that_breaks_cases_is_left_out_of_its_proposal(home: Path) -> None:
    harm = "- Be brief."
    broken = [
        {"when": prompt(number), "system": harm, "answers": ["No.", "Nothing."]}
        for number in TRAIN[:3]
    ]
    student = write_rules(home / "student.json", [*broken, *student_rules()])
    facts = [fact(number) for number in TRAIN]
    found = await search(student, Inserting([*facts[4:8], harm]), attempts=1, knows=TRAIN[:4])
    assert [one.decision for one in found.attempts] == [
        "first draft",
        "kept provisionally",
        "best guess",
    ]
    assert sorted(found.skill.body.splitlines()[1:]) == sorted(facts[:8])
    assert found.confirmation.tried == 6  # with it, and without each of its five edits
    assert [len(duel.plan.suite.cases) for duel in found.duels[:5]] == [3] * 5


async def test_one_case_that_an_edit_breaks_is_too_few_to_find_the_edit_by_leaving_each_out(
    home: Path,
) -> None:
    harm = "- Be brief."
    student = write_rules(
        home / "student.json",
        [{"when": prompt(TRAIN[0]), "system": harm, "answer": "No."}, *student_rules()],
    )
    facts = [fact(number) for number in TRAIN]
    found = await search(student, Inserting([*facts[4:8], harm]), attempts=1, knows=TRAIN[:4])
    assert (found.attempts[1].comparison.broken, found.confirmation.tried) == (
        (f"word-{TRAIN[0]}",),
        1,
    )


async def test_what_is_left_out_to_find_a_harmful_edit_is_no_version(
    home: Path, upskill: Upskill
) -> None:
    broken = [{"when": prompt(number), "system": "- Be ", "answer": "No."} for number in TRAIN[:3]]
    student = write_rules(home / "student.json", [*broken, *student_rules()])
    facts = [fact(number) for number in TRAIN]
    found = await search(
        student, Inserting([*facts[4:6], "- Be brief.", "- Be kind."]), attempts=1, knows=TRAIN[:4]
    )
    assert len(found.duels) > 4  # leaving out one edit repairs nothing
    assert len(upskill("versions", "house-words", "--json").json) == len(found.attempts)


async def test_the_reviser_sees_a_few_tasks_that_pass() -> None:
    reviser = says({"note": "", "edits": [edit("delete", 4)]})
    refiner = Rewrite(reviser)
    refiner.passing = [f"Ask {number}." for number in range(9)]
    await refiner.propose(SKILL, [FAILURE], (), 1)
    assert json.loads(reviser.asked[0].messages[1].text)["passing"] == [
        f"Ask {number}." for number in range(4)
    ]


async def test_gepa_evolves_the_body_and_what_it_finds_is_tested_like_any_other(
    student: str,
) -> None:
    pytest.importorskip("gepa")
    teacher = says(*(f"```\n{body_of(TRAIN[: 4 + number])}\n```" for number in range(3)))
    found = await search(student, Gepa(teacher), attempts=1)
    assert "Feedback" in teacher.asked[0].messages[0].text
    assert "[masked]" in teacher.asked[0].messages[0].text
    assert fact(TRAIN[2]) in found.skill.body
    assert found.confirmation.decision in ("confirmed", "best guess")
    assert found.confirmation.tried >= len(teacher.asked)


async def search_copies(
    student: str, refiner: Scripted, copies: int, knows: Sequence[int], without: str = ""
) -> Any:
    """One attempt on so many train cases for each word."""
    checks = {one.id: one.checks for one in words_suite().cases}
    cases = [
        Case(f"c{number}-{copy}", f"{copy}. {prompt(number)}", checks[f"word-{number}"])
        for number in NUMBERS
        for copy in range(copies)
    ]
    suite = Suite(tuple(each for each in cases if each.id != without), "copies")
    return await search(student, refiner, 1, knows=knows, suite=suite)


async def test_no_attempt_is_paid_for_that_could_not_be_shown_to_help(student: str) -> None:
    refiner = Scripted(body_of(NUMBERS))
    one = await search_copies(student, refiner, 2, NUMBERS[1:], without="c1-1")
    assert refiner.told == []
    assert one.ended.startswith("only 1 train case fails, and showing a gain takes at least 2")
    two = await search_copies(student, refiner, 2, NUMBERS[1:])
    assert (two.ended, two.skill.body) == ("all attempts are used", body_of(NUMBERS))


async def test_of_many_cases_every_second_is_kept_for_the_confirmation(student: str) -> None:
    refiner = Scripted(body_of(NUMBERS))
    found = await search_copies(student, refiner, 3, [])
    searched = {case.id for case in found.attempts[1].evaluation.plan.suite.cases}
    confirmed = {case.id for case in found.duels[-1].plan.suite.cases}
    assert (len(searched), len(confirmed), searched & confirmed) == (30, 30, set())
    assert {failure.case for failure in refiner.told[0][0]} == searched
    assert found.skill.body == body_of(NUMBERS)


async def test_three_rejections_in_a_row_end_the_search_with_the_best_kept(student: str) -> None:
    refiner = Scripted(body_of(TRAIN[:1]), "", body_of(TRAIN[:2]) + "\n- More.", body_of(TRAIN))
    found = await search(student, refiner, attempts=4)
    assert found.ended == "3 candidates in a row were not kept"
    assert found.skill.body == body_of(TRAIN[:2])
    assert [one.accepted for one in found.attempts] == [True, False, False, False]
    assert len(refiner.told[2][1]) == 2  # the memory of what was tried
    assert refiner.told[2][1][1].result == "no edit was proposed that can be applied"


async def test_a_first_score_of_nothing_is_no_plateau(home: Path, student: str) -> None:
    """Defect 12: what is judged is the student, and the best is kept, not the last."""
    refiner = Scripted("# Nothing", body_of(NUMBERS), body_of(TRAIN[:3]))
    found = await search(student, refiner)
    assert [one.accepted for one in found.attempts] == [True, False, True]
    assert found.ended == "the target is reached"
    assert found.skill.body == body_of(NUMBERS)
    assert found.fit.verdicts[0].skill.pass_rate == 1.0
    assert found.held_out.verdicts[0].model == student


async def test_failures_of_earlier_runs_are_known_and_held_out_ones_are_not(
    home: Path, student: str
) -> None:
    skill = Skill.load(write_skill(home / "house-words", body=body_of([1])))
    suite = words_suite()
    with open_store("runs") as store:
        from upskill import evaluate  # noqa: PLC0415

        await evaluate(make_plan(skill, suite, [student]), store=store)
        found = stored_failures(store, skill, resolve(student))
        assert {failure.case for failure in found} == {
            f"word-{number}" for number in TRAIN if number != 1
        }
        hidden = Suite(
            tuple(Case(f"x{one.id}", one.prompt, one.checks, held_out=True) for one in suite.cases)
        )
        assert stored_failures(store, skill, resolve(student), hidden) == []
        assert (
            stored_failures(store, Skill.new("other", "Other.", "Other."), resolve(student)) == []
        )


async def test_a_suite_without_train_cases_is_evaluated_and_not_refined(student: str) -> None:
    only = Suite(words_suite().held_out, "held out")
    found = await search(student, Scripted(""), knows=NUMBERS, suite=only)
    assert found.fit is None
    assert found.held_out is not None
    assert found.held_out.verdicts[0].lift == 1.0


async def test_a_secret_in_an_older_skill_is_not_sent_to_the_reviser() -> None:
    key = "sk-ant-" + "api03-abcDEF123456ghiJKL7890"
    skill = Skill.new("greeter", "Greets.", f"# Greeting\n\n- The key is {key}.\n- Say hello.")
    reviser = says({"note": "", "edits": [edit("replace", 4, "- Say ahoy.")]})
    failure = Failure("a", f"Use {key}.", f"I used {key}.", ("failed",))
    found = await Rewrite(reviser).propose(skill, [failure], (), 1)
    assert key not in str(reviser.asked)
    assert found is not None
    assert found.skill.body == f"# Greeting\n\n- The key is {key}.\n- Say ahoy."


# The old arithmetic
# ------------------------------------------------------------------------------------------------


def flat(suite: list[list[int]]) -> tuple[list[float], list[int]]:
    return (
        [float(value) for case in suite for value in case],
        [number for number, case in enumerate(suite) for _ in case],
    )


@pytest.mark.parametrize(
    ("suite", "expected"),
    [
        ([[1]] * 10, 2 / 1024),
        ([[0]] * 10, 1.0),
        ([[1], [-1]], 1.0),
        ([[1], [1], [-1]], 1.0),
        ([[1], [1], [1], [0], [0]], 2 / 8),
        ([[1, 1], [1], [1, 1, 1]], 2 / 8),
        ([[1, 1], [1, 0], [-1, 0]], 6 / 8),
        ([[1, 0], [1]], 2 / 4),
    ],
)
def test_flips_counted_by_hand(suite: list[list[int]], expected: float) -> None:
    assert sign_flip_p_value(*flat(suite)) == pytest.approx(expected)


def test_a_p_value_of_many_cases_does_not_vanish() -> None:
    assert sign_flip_p_value([1.0] * 60, range(60)) == pytest.approx(2.0**-59)


def test_only_the_searches_know_the_old_arithmetic() -> None:
    package = REPOSITORY / "src" / "upskill"
    users = {
        path.relative_to(package).parts[0]
        for path in package.rglob("*.py")
        if "old_arithmetic" in path.read_text(encoding="utf-8")
    }
    assert users == {"authoring"}
