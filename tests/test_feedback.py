"""Feedback: what people said of answers in `upskill view`, in `show` and reports, and what `generate` does with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import Done, Upskill, write_script, write_skill
from test_improving import FOLDER, house
from upskill import Skill, Suite, Trial, open_store
from upskill.runs.planning.plan import Arm
from upskill.runs.stores.rows import FeedbackVerdict, Review

__all__ = ["house"]
STUDENT = ("-m", "scripted:student.json")


def mark(
    run: str,
    case: str,
    verdict: FeedbackVerdict,
    note: str = "",
    arm: Arm = "skill",
) -> None:
    """As `upskill view` does."""
    with open_store("runs") as store:
        stored = store.run(run)
        trial = Trial(STUDENT[1], case, arm, stored.plan.seed)
        store.add_review(stored, Review(trial, verdict, note))


def test_marks_are_in_show_and_in_every_report(upskill: Upskill, home: Path) -> None:
    write_skill(home / "greeter", cases=6)
    write_script(home / "student.json")
    done = upskill("eval", "greeter", *STUDENT, "--json")
    assert "feedback" not in done.json
    run = done.json["run"]
    mark(run, "greet-1", "right")
    mark(run, "greet-2", "wrong", "too short")
    mark(run, "greet-2", "wrong", arm="baseline")
    mark(run, "greet-3", "", "hm")
    told = "People marked 4 answers: 1 right, 2 wrong, 1 with only a note."
    assert told in " ".join(upskill("show", run).out.split())
    marks = {"right": 1, "wrong": 2, "note": 1}
    assert upskill("show", run, "--json").json["feedback"] == {"marks": marks}
    assert upskill("eval", "greeter", *STUDENT, "--json").json["feedback"] == {"marks": marks}


# What generate does with it.


def improved(upskill: Upskill) -> Done:
    models = ("-m", "scripted:teacher.json", "--student", STUDENT[1])
    return upskill("generate", "--from", FOLDER, "--feedback", *models, "--json")


def house_skill(home: Path) -> Skill:
    return Skill.load(home / FOLDER)


@pytest.mark.usefixtures("house")
def test_feedback_is_evidence_for_the_teacher_and_never_of_held_out_cases(
    upskill: Upskill, home: Path
) -> None:
    suite = Suite.required(house_skill(home))
    train, other, hidden = suite.train[0], suite.train[1], suite.held_out[0]
    older = upskill("eval", FOLDER, *STUDENT, "--json").json["run"]
    mark(older, train.id, "wrong", "NOTE-OF-AN-EARLIER-RUN")
    run = upskill("eval", FOLDER, *STUDENT, "--seed", "1", "--json").json["run"]
    assert run != older
    mark(run, train.id, "wrong", "NOTE-ON-TRAIN")
    mark(run, hidden.id, "wrong", "NOTE-ON-HELD-OUT")
    mark(run, train.id, "wrong", "NOTE-ON-BASELINE", arm="baseline")
    mark(run, other.id, "odd", "NOTE-ODD")
    mark(run, suite.train[2].id, "right")
    done = improved(upskill)
    assert done.code == 0, done.err
    assert set(done.json["feedback"]) == {
        f"{train.id}: passed its checks but is wrong: shown to the teacher as a failure",
        f"{train.id}: an answer from the baseline arm, without this skill: nothing to fix",
        f"{hidden.id}: a held-out case: not shown to the teacher, or its result would mean nothing",
        f"{other.id}: shown to the teacher as a remark",
        f"{suite.train[2].id}: right",
    }
    with open_store("runs") as store:
        asked = [request for _, request, _ in store.requests()]
    assert any("NOTE-ON-TRAIN" in request for request in asked)
    assert any("NOTE-ODD" in request for request in asked)
    for secret in ("NOTE-ON-HELD-OUT", "NOTE-ON-BASELINE", "NOTE-OF-AN-EARLIER", hidden.prompt):
        assert not any(secret in request for request in asked), secret


@pytest.mark.usefixtures("house")
def test_feedback_that_nobody_gave_or_would_read_is_refused(upskill: Upskill) -> None:
    done = upskill("generate", "a task", "--feedback", "-m", "scripted:teacher.json")
    assert (done.code, "--feedback needs the skill that it is about" in done.err) == (2, True)
    done = improved(upskill)
    assert (done.code, "nobody has reviewed an answer of" in done.err) == (2, True)
