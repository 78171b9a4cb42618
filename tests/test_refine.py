"""Refine: a gate that noise does not get through, a reviser who is told facts and not answers, a search that stops."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from conftest import spawn, write_skill
from plugin import install_plugin
from teaching import HELD_OUT, NUMBERS, TRAIN, case, draft, fact, prompt, student_rules, teacher_rules, write_rules
from upskill import Models, Outcome, Plan, Skill, Suite, make_plan, open_store
from upskill.authoring.comparison import ALPHA, affordable_attempts, compare
from upskill.authoring.failures import mask_expected, stored_failures
from upskill.authoring.material import Material, Piece
from upskill.authoring.provenance import Provenance
from upskill.authoring.refine import RefineOptions, refine
from upskill.authoring.refiners import REFINERS, Edit, Failure, Proposal, RejectedEdits
from upskill.authoring.refiners.rewrite import Rewrite, apply_edits
from upskill.checks import read_check
from upskill.models import Reply, Request
from upskill.models.addresses import resolve
from upskill.suites import Case


def outcomes(passed: Sequence[bool | None], runs: int = 1) -> list[Outcome]:
    return [
        Outcome("student", f"case-{number // runs}", "skill", number % runs, one, 10, 5, 0.0)
        for number, one in enumerate(passed)
    ]


# The gate.


def test_the_gate_asks_for_more_than_a_lucky_case() -> None:
    worse, better = [False] * 12, [True] * 12
    assert compare(outcomes(worse), outcomes(better), 0.03).accepted is True
    assert compare(outcomes(better), outcomes(worse), 0.03).accepted is False
    assert compare(outcomes(better), outcomes(better), 0.03).accepted is False
    one = compare(outcomes(worse), outcomes([True, *worse[1:]]), 0.03)
    assert (one.accepted, one.better, one.p_value) == (False, 1, 0.5)
    five = compare(outcomes(worse), outcomes([True] * 5 + worse[5:]), 0.1 / 3)
    assert (five.accepted, five.p_value) == (True, 1 / 32)
    mixed = compare(outcomes([True, *worse[1:]]), outcomes([False] + [True] * 5 + worse[6:]), 0.1 / 3)
    assert mixed.accepted is False


def test_errors_are_never_taken_for_better_or_worse() -> None:
    found = compare(outcomes([False] * 10), outcomes([True] * 5 + [None] * 5), 0.05)
    assert (found.accepted, found.errored) == (None, 5)
    assert "errored" in found.summary
    assert compare([], [], 0.05).accepted is None


def test_repeats_of_a_case_are_one_case() -> None:
    found = compare(outcomes([False] * 20, runs=5), outcomes([True] * 20, runs=5), 0.05)
    assert (found.better, found.p_value, found.accepted) == (4, 1 / 16, False)


def test_a_search_among_equals_seldom_accepts_anything() -> None:
    """Four candidates that are no better than the first, 400 searches: the share that keep one is at most ALPHA."""
    chance, kept = random.Random(5), 0
    level = ALPHA / 4
    for _ in range(400):
        rates = [chance.random() for _ in range(14)]
        best = outcomes([chance.random() < rate for rate in rates])
        found = [compare(best, outcomes([chance.random() < rate for rate in rates]), level) for _ in range(4)]
        kept += any(one.accepted for one in found)
    assert kept / 400 <= ALPHA


def test_attempts_that_no_result_could_pass_are_not_made() -> None:
    assert [affordable_attempts(3, 0, cases) for cases in (2, 3, 4, 5, 20)] == [0, 0, 1, 3, 3]


# What a reviser is told.


@pytest.mark.parametrize(
    ("check", "reason", "left"),
    [
        ({"contains": ["tern.yaml"]}, "the answer lacks 'tern.yaml'", "the answer lacks [masked]"),
        ({"equals": "0"}, "the answer is not '0'", "the answer is not [masked]"),
        ({"regex": r"\breef\b"}, r"the answer does not match '\\breef\\b'", "the answer does not match [masked]"),
        ({"max_length": 40}, "the answer has 90 characters", "the answer has 90 characters"),
        (
            {"not_contains": "sudo"},
            "the answer has 'sudo', which it must not",
            "the answer has 'sudo', which it must not",
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


class Reviser:
    """A model that answers with these, one after the other."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.asked: list[Request] = []

    async def reply(self, request: Request) -> Reply:
        self.asked.append(request)
        return Reply(json.dumps(self.answers[min(len(self.asked), len(self.answers)) - 1]))

    async def close(self) -> None:
        pass


def edit(kind: str, line: int, text: str = "", evidence: Sequence[str] = ("own",)) -> dict[str, Any]:
    return {"kind": kind, "line": line, "text": text, "evidence": list(evidence), "why": "because"}


SKILL = Skill.new("greeter", "Greets.", "# Greeting\n\n- Say hello.\n- Be kind.")
FAILURE = Failure("a", "Greet me.", "hello", ("contains: the answer lacks [masked]",), ("s1",))


async def test_edits_change_lines_and_name_their_evidence() -> None:
    material = Material("greet", (Piece("s1", "step", "We say ahoy."),))
    said = {
        "note": "wrong word",
        "edits": [edit("replace", 3, "- Say ahoy.", ["s1"]), edit("delete", 4), edit("insert", 0, "Top.")],
    }
    reviser = Reviser(said)
    found = await Rewrite(reviser, material).propose(
        SKILL, [FAILURE], [RejectedEdits((Edit("delete", 3),), "worse")], 1
    )
    assert found is not None
    assert found.skill.body == "Top.\n# Greeting\n\n- Say ahoy."
    assert found.skill.description == SKILL.description
    assert Provenance.of(found.skill).sources["- Say ahoy."] == ("s1",)
    told = reviser.asked[0].messages[1].text
    shown = json.loads(told.partition("\n\n<<<MATERIAL")[0])
    assert shown["lines"] == {"1": "# Greeting", "2": "", "3": "- Say hello.", "4": "- Be kind."}
    assert shown["failures"] == [
        {"asked": "Greet me.", "answered": "hello", "wrong": list(FAILURE.reasons), "evidence": ["s1"]}
    ]
    assert shown["tried_before"] == [{"edits": ["delete line 3"], "result": "worse"}]
    assert "We say ahoy." in told


async def test_the_reviser_is_shown_the_whole_skill_and_more_than_a_few_failures() -> None:
    """Defect 13: the refiner saw 500 characters of the skill and three failures."""
    lines = [f"- Fact {number} of this house is told here, in a line of its own." for number in range(200)]
    skill = Skill.new("facts", "Facts.", "\n".join(lines))
    failures = [Failure(f"c{number}", f"Ask {number}.", "no", ("lacks it",), ()) for number in range(12)]
    reviser = Reviser({"note": "", "edits": [edit("delete", 1)]})
    await Rewrite(reviser).propose(skill, failures, (), 1)
    shown = json.loads(reviser.asked[0].messages[1].text)
    assert list(shown["lines"].values()) == lines
    assert [failure["asked"] for failure in shown["failures"]] == [failure.prompt for failure in failures]
    await Rewrite(reviser).propose(skill, [*failures, *failures], (), 2)
    assert json.loads(reviser.asked[-1].messages[1].text)["failures_not_shown"] == 12


async def test_edits_that_do_not_apply_are_told_once_and_then_dropped() -> None:
    bad = {"note": "", "edits": [edit("replace", 99, "x"), edit("replace", 3, "- Say ahoy."), edit("delete", 3)]}
    reviser = Reviser(bad)
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
    found = await Rewrite(Reviser(many)).propose(SKILL, [FAILURE], (), 1)
    assert found is not None
    assert len(found.edits) == 6
    long = {"note": "", "edits": [edit("insert", 4, "word " * 400)]}
    assert await Rewrite(Reviser(long)).propose(SKILL, [FAILURE], (), 1) is None
    same = {"note": "", "edits": [edit("replace", 4, "- Be kind.")]}
    assert await Rewrite(Reviser(same)).propose(SKILL, [FAILURE], (), 1) is None
    assert await Rewrite(Reviser("no object")).propose(SKILL, [FAILURE], (), 1) is None


def test_edits_name_lines_as_they_were_before_all_of_them() -> None:
    edits = [Edit("insert", 1, "b"), Edit("delete", 2), Edit("insert", 1, "c"), Edit("replace", 3, "z")]
    assert apply_edits(["a", "x", "y"], edits) == "a\nb\nc\nz"


def test_the_table_of_refiners_leads_to_them() -> None:
    assert REFINERS.load("rewrite") is Rewrite


# Somebody else's refiner: it knows the missing facts, and asks no teacher for them.
APPEND = """
from pathlib import Path

from upskill.authoring.refiners import Edit, Proposal


class Append:
    def __init__(self, model, material, tokens):
        pass

    async def propose(self, skill, failures, rejected, attempt):
        facts = Path("facts.txt").read_text()
        return Proposal(skill.with_body(f"{skill.body}\\n{facts}"), (Edit("insert", 1, facts),), "appended")
"""


def test_a_refiner_of_another_package_is_named_on_the_command_line(home: Path, tmp_path: Path) -> None:
    write_rules(home / "teacher.json", teacher_rules(draft(TRAIN[:2])))  # it cannot revise anything
    write_rules(home / "student.json", student_rules())
    (home / "facts.txt").write_text("\n".join(fact(number) for number in NUMBERS if number not in TRAIN[:2]))
    environment = install_plugin(tmp_path / "site", "append_facts", APPEND, {"upskill.refiners:append": "Append"})
    command = ["generate", "know the ship", "-m", "scripted:teacher.json", "--eval-model", "scripted:student.json"]
    done = spawn(*command, "--refiner", "append", "--json", env=environment)
    assert done.code == 0, done.err
    assert [one["accepted"] for one in done.json["attempts"]] == [True, True]
    assert done.json["held_out"]["models"][0]["lift"] == 1.0
    unknown = spawn(*command, "--refiner", "appendix", env=environment)
    assert (unknown.code, "no refiner is called 'appendix'" in unknown.err) == (2, True)
    assert "Did you mean 'append'?" in unknown.err


# The search.


class Scripted:
    """A refiner that proposes these bodies, and remembers what it was told."""

    def __init__(self, *bodies: str) -> None:
        self.bodies = bodies
        self.told: list[tuple[list[Failure], list[RejectedEdits]]] = []

    async def propose(
        self, skill: Skill, failures: Sequence[Failure], rejected: Sequence[RejectedEdits], attempt: int
    ) -> Proposal | None:
        self.told.append((list(failures), list(rejected)))
        body = self.bodies[attempt - 1]
        return Proposal(skill.with_body(body), (Edit("insert", 0, body),)) if body else None


def body_of(numbers: Sequence[int]) -> str:
    return "\n".join(["# Words", *map(fact, numbers)])


def words_suite() -> Suite:
    said = [case(number) for number in NUMBERS]
    for one in said:
        one["checks"] = [{"regex": one["checks"][0]["texts"][0]}, {"max_length": 60}]
    return Suite.parse(said, "words")


@pytest.fixture
def student(home: Path) -> str:
    return write_rules(home / "student.json", student_rules())


async def search(student: str, refiner: Scripted, attempts: int = 3) -> Any:
    def plan_for(skill: Skill, suite: Suite) -> Plan:
        return make_plan(skill, suite, [student])

    start = Skill.new("house-words", "States words.", body_of(TRAIN[:2]))
    with open_store("runs") as store:
        models = Models(replies=store)
        options = RefineOptions(refiner=refiner, attempts=attempts)
        return await refine([start], words_suite(), plan_for, models=models, store=store, options=options)


async def test_three_rejections_in_a_row_end_the_search_with_the_best_kept(student: str) -> None:
    refiner = Scripted(body_of(TRAIN[:1]), "", body_of(TRAIN[:2]) + "\n- More.", body_of(TRAIN))
    found = await search(student, refiner, attempts=4)
    assert found.ended == "3 candidates in a row were rejected"
    assert found.skill.body == body_of(TRAIN[:2])
    assert [one.accepted for one in found.attempts] == [True, False, False, False]
    assert len(refiner.told[2][1]) == 2  # the memory of what was rejected


async def test_a_first_score_of_nothing_is_no_plateau(home: Path, student: str) -> None:
    """Defect 12: what is judged is the student, and the best is kept, not the last."""
    refiner = Scripted("# Nothing", body_of(NUMBERS), body_of(TRAIN[:3]))
    found = await search(student, refiner)
    assert [one.accepted for one in found.attempts] == [True, False, True]
    assert found.ended == "the target is reached"
    assert found.skill.body == body_of(NUMBERS)
    assert found.fit.verdicts[0].skill.pass_rate == 1.0
    assert found.held_out.verdicts[0].model == student


async def test_the_refiner_sees_train_failures_only(student: str) -> None:
    """Defect 10."""
    refiner = Scripted(*[""] * 3)
    await search(student, refiner)
    (failures, _), *_ = refiner.told
    assert {failure.prompt for failure in failures} == {prompt(number) for number in TRAIN[2:]}
    assert not {failure.prompt for failure in failures} & {prompt(number) for number in HELD_OUT}
    assert all("[masked]" in reason for failure in failures for reason in failure.reasons)


async def test_failures_of_earlier_runs_are_known_and_held_out_ones_are_not(home: Path, student: str) -> None:
    skill = Skill.load(write_skill(home / "house-words", body=body_of([1])))
    suite = words_suite()
    with open_store("runs") as store:
        from upskill import evaluate  # noqa: PLC0415

        await evaluate(make_plan(skill, suite, [student]), store=store)
        found = stored_failures(store, skill, resolve(student))
        assert {failure.case for failure in found} == {f"word-{number}" for number in TRAIN if number != 1}
        hidden = Suite(tuple(Case(f"x{one.id}", one.prompt, one.checks, held_out=True) for one in suite.cases))
        assert stored_failures(store, skill, resolve(student), hidden) == []
        assert stored_failures(store, Skill.new("other", "Other.", "Other."), resolve(student)) == []


async def test_a_suite_without_train_cases_is_evaluated_and_not_refined(student: str) -> None:
    suite = words_suite()
    only = Suite(suite.held_out, "held out")
    start = Skill.new("house-words", "States words.", body_of(NUMBERS))
    with open_store(None) as store:
        found = await refine(
            [start],
            only,
            lambda skill, part: make_plan(skill, part, [student]),
            models=Models(replies=store),
            store=store,
            options=RefineOptions(refiner=Scripted("")),
        )
    assert found.fit is None
    assert found.held_out is not None
    assert found.held_out.verdicts[0].lift == 1.0


def test_a_search_can_be_cancelled_and_started_again(student: str) -> None:
    refiner = Scripted(*[body_of(NUMBERS)] * 3)

    async def impatient() -> None:
        await asyncio.wait_for(search(student, refiner), 0.01)

    with pytest.raises(TimeoutError):
        asyncio.run(impatient())
    found = asyncio.run(search(student, refiner))
    assert found.skill.body == body_of(NUMBERS)


async def test_a_secret_in_an_older_skill_is_not_sent_to_the_reviser() -> None:
    key = "sk-ant-" + "api03-abcDEF123456ghiJKL7890"
    skill = Skill.new("greeter", "Greets.", f"# Greeting\n\n- The key is {key}.\n- Say hello.")
    reviser = Reviser({"note": "", "edits": [edit("replace", 4, "- Say ahoy.")]})
    failure = Failure("a", f"Use {key}.", f"I used {key}.", ("failed",))
    found = await Rewrite(reviser).propose(skill, [failure], (), 1)
    assert key not in str(reviser.asked)
    assert found is not None
    assert found.skill.body == f"# Greeting\n\n- The key is {key}.\n- Say ahoy."
