"""Feedback: `feedback.json` of ours and of skill-creator, what `upskill feedback` says of it, what `generate` does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from conftest import Done, Upskill, write_script, write_skill
from test_improve import FOLDER, house
from upskill import Skill, Suite, UsageError, open_store
from upskill.runs.results.feedback import Remark, read_feedback

__all__ = ["house"]
STUDENT = ("-m", "scripted:student.json")


def write_feedback(path: Path, *reviews: dict[str, Any], **fields: Any) -> Path:
    path.write_text(
        json.dumps({"reviews": reviews, "status": "complete", **fields}), encoding="utf-8"
    )
    return path


def review(
    case: str,
    verdict: str,
    note: str = "",
    *,
    arm: str = "skill",
    model: str = STUDENT[1],
    seed: int = 0,
) -> Any:
    return {
        "case": case,
        "model": model,
        "arm": arm,
        "seed": seed,
        "verdict": verdict,
        "feedback": note,
    }


# The file.


def test_skill_creators_own_file_is_read(tmp_path: Path) -> None:
    path = write_feedback(
        tmp_path / "feedback.json",
        {
            "run_id": "eval-0-with_skill",
            "feedback": "the chart has no labels",
            "timestamp": "2026-01-01T00:00:00Z",
        },
        {"run_id": "eval-1-without_skill", "feedback": "", "timestamp": "x"},
        {"run_id": "eval-2-old_skill-run-3", "feedback": "worse", "more": {"of": "theirs"}},
        {"run_id": "something else", "feedback": "hm"},
        {"run_id": None, "feedback": None},
    )
    assert [(one.case, one.arm, one.verdict, one.note) for one in read_feedback(path)] == [
        ("0", "skill", "", "the chart has no labels"),
        ("1", "baseline", "right", ""),  # all were looked at, and nothing was said of this one
        ("2", "baseline", "", "worse"),
        ("", "", "", "hm"),
    ]
    begun = write_feedback(
        path, {"run_id": "eval-1-with_skill", "feedback": ""}, status="in_progress"
    )
    assert read_feedback(begun) == []


def test_what_is_no_feedback_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "feedback.json"
    for text in (
        "",
        "{",
        "3",
        "{}",
        '{"reviews": 3}',
        '{"reviews": [3]}',
        '{"reviews": [{"seed": "x"}]}',
        "[" * 10**5,
    ):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(UsageError, match=r"feedback\.json: not a feedback file"):
            read_feedback(path)
    write_feedback(path, review("a", "fine"))
    with pytest.raises(UsageError, match="unknown verdict 'fine'"):
        read_feedback(path)
    with pytest.raises(UsageError, match="No such file"):
        read_feedback(tmp_path / "nothing.json")
    path.write_text(json.dumps([review("a", " Wrong ", "x")]), encoding="utf-8")
    assert read_feedback(path) == [Remark("wrong", "x", "", "a", STUDENT[1], "skill", 0)]


# The command.


@pytest.fixture
def run(upskill: Upskill, home: Path) -> str:
    """A run in which everybody passes with the skill, and nobody without."""
    write_skill(home / "greeter", cases=6)
    write_script(home / "student.json")
    done = upskill("eval", "greeter", *STUDENT, "--json")
    assert done.code == 0, done.err
    return done.json["run"]


def test_agreement_with_people_is_told(upskill: Upskill, home: Path, run: str) -> None:
    said = upskill("feedback", run)
    assert (said.code, said.out) == (0, "")
    assert "No feedback yet" in said.err
    file = write_feedback(
        home / "feedback.json",
        *(review(f"greet-{number}", "right") for number in (1, 2, 3, 4)),
        review("greet-5", "wrong", "too \x1b[31mshort"),
        review("greet-1", "wrong", arm="baseline"),
        review("greet-2", "wrong", arm="baseline"),
        review("greet-6", "odd", "why"),
        review("nothing", "wrong"),
        run=run,
    )
    done = upskill("feedback", "last", file)
    assert done.code == 0
    assert "8 reviews stored" in done.err
    assert "no such answer: nothing" in done.err
    # 4 right that passed, 1 wrong that passed, 2 wrong that failed: kappa is (6/7 - 26/49) / (1 - 26/49).
    assert "People marked 8 answers: 4 right, 3 wrong, 1 odd." in done.out
    assert "The outcome agrees with them 6 of 7 times, kappa 0.70" in done.out
    assert "1 passed but marked wrong" in done.out
    found = upskill("feedback", run, "--json").json["feedback"]
    assert found["outcome"]["kappa"] == pytest.approx(16 / 23, abs=1e-6)
    assert found["outcome"]["passed_but_wrong"] == 1
    assert {one["check"]: one["ratings"] for one in found["checks"]} == {
        "contains": 7,
        "max_length": 7,
    }
    exported = upskill("feedback", run, "-o", "-").json
    assert len(exported["reviews"]) == 8
    assert upskill("feedback", run, "-o", "out.json").code == 0
    assert read_feedback(home / "out.json")[0].run == run


def test_agreement_is_in_show_and_in_every_report(upskill: Upskill, home: Path, run: str) -> None:
    assert "feedback" not in upskill("eval", "greeter", *STUDENT, "--json").json
    upskill(
        "feedback", run, write_feedback(home / "feedback.json", review("greet-1", "right"), run=run)
    )
    assert "People marked 1 answer: 1 right." in upskill("show", run).out
    assert upskill("show", run, "--json").json["feedback"]["outcome"]["ratings"] == 1
    found = upskill("eval", "greeter", *STUDENT, "--json").json
    assert found["feedback"]["marks"] == {"right": 1}


def test_reviews_of_other_runs_are_left_out_and_seeds_that_no_store_can_hold_refused(
    upskill: Upskill, home: Path, run: str
) -> None:
    file = write_feedback(home / "feedback.json", review("greet-1", "wrong"), run="another-run")
    done = upskill("feedback", run, file)
    assert ("0 reviews stored" in done.err, "1 review of another run" in done.err) == (True, True)
    for seed in (10**22, -(10**22), 2**63):
        with pytest.raises(
            UsageError, match=r"not a feedback file: reviews\.0\.seed: Input should be"
        ):
            read_feedback(
                write_feedback(home / "feedback.json", review("greet-1", "wrong", seed=seed))
            )


def test_the_latest_word_on_an_answer_counts_and_a_note_that_is_cut_is_told(
    upskill: Upskill, home: Path, run: str
) -> None:
    def store(verdict: str, time: str, note: str = "") -> Done:
        said = {**review("greet-1", verdict, note), "timestamp": time}
        return upskill("feedback", run, write_feedback(home / "feedback.json", said, run=run))

    def stored() -> tuple[str, int]:
        (one,) = upskill("feedback", run, "-o", "-").json["reviews"]
        return one["verdict"], len(one["feedback"])

    assert "1 review stored" in store("right", "2020-11-16T09:00:00.5Z").err
    older = store("wrong", "2020-11-16T10:30:00+02:00", "x" * 20_000).err  # half past eight in UTC
    assert "0 reviews stored" in older
    assert "Left out: 1 review older than the stored one" in older
    assert "cut" not in older
    assert stored() == ("right", 0)
    newer = store("odd", "2020-11-16T09:00:01Z", "x" * 20_000).err
    assert "1 note cut to the first 10,000 characters" in newer
    assert stored() == ("odd", 10_000)
    store("wrong", "last Tuesday")  # without a time, it is said now
    assert stored() == ("wrong", 0)


def test_a_mark_that_is_taken_back_is_stored_no_longer_unless_it_was_made_anew(
    upskill: Upskill, home: Path, run: str
) -> None:
    def read(verdict: str, time: str, case: str = "greet-1") -> str:
        said = {**review(case, verdict), "timestamp": time}
        return upskill("feedback", run, write_feedback(home / "feedback.json", said, run=run)).err

    def stored() -> list[str]:
        return [one["verdict"] for one in upskill("feedback", run, "-o", "-").json["reviews"]]

    read("wrong", "2020-11-16T09:00:00Z")
    assert "1 review older than the stored one" in read("", "2020-11-16T08:00:00Z")
    assert stored() == ["wrong"]
    assert "1 review withdrawn" in read("", "2020-11-16T10:00:00Z")
    assert stored() == []
    for case in ("greet-1", "nothing"):  # there is nothing to take back
        said = read("", "2020-11-16T11:00:00Z", case)
        assert "0 reviews stored" in said
        assert "withdrawn" not in said
        assert "Left out" not in said


def test_skill_creators_feedback_on_several_models_says_whose_answers_it_means(
    upskill: Upskill, home: Path
) -> None:
    write_skill(home / "greeter", cases=6)
    models = ["scripted:one.json", "scripted:two.json"]
    for name in ("one.json", "two.json"):
        write_script(home / name)
    ran = upskill("eval", "greeter", "-m", models[0], "-m", models[1], "--repeats", "2", "--json")
    run = ran.json["run"]
    names = ("eval-0-with_skill", "eval-1/without_skill/run-2", "eval-9-with_skill")
    file = write_feedback(
        home / "feedback.json", *({"run_id": name, "feedback": "hm"} for name in names)
    )
    said = " ".join(upskill("feedback", run, file).err.split())
    assert (
        "the run has 2 models; choose one with -m MODEL: eval-0-with_skill, eval-1/without" in said
    )
    assert "no such answer: eval-9-with_skill." in said
    assert "2 reviews stored" in upskill("feedback", run, file, "-m", models[1]).err
    found = upskill("feedback", run, "-o", "-").json["reviews"]
    assert [(one["case"], one["model"], one["arm"], one["seed"]) for one in found] == [
        ("greet-1", models[1], "skill", 0),
        ("greet-2", models[1], "baseline", 1),
    ]
    refused = upskill("feedback", run, file, "-m", "nobody")
    assert (refused.code, "no model named 'nobody'" in refused.err) == (2, True)


# What generate does with it.


def improved(upskill: Upskill, *more: object) -> Done:
    models = ("-m", "scripted:teacher.json", "--student", STUDENT[1])
    return upskill(
        "generate", "--from", FOLDER, "--feedback", "feedback.json", *models, "--json", *more
    )


@pytest.mark.usefixtures("house")
def test_feedback_is_evidence_for_the_teacher_and_never_of_held_out_cases(
    upskill: Upskill, home: Path
) -> None:
    run = upskill("eval", FOLDER, *STUDENT, "--json").json["run"]
    suite = Suite.of(house_skill(home))
    assert suite is not None
    train, hidden = suite.train[0], suite.held_out[0]
    write_feedback(
        home / "feedback.json",
        review(train.id, "wrong", "NOTE-ON-TRAIN"),
        review(hidden.id, "wrong", "NOTE-ON-HELD-OUT"),
        review(train.id, "wrong", "NOTE-ON-BASELINE", arm="baseline"),
        review(suite.train[1].id, "right"),
        review(suite.train[1].id, "odd", "NOTE-ODD"),
        review("nowhere", "wrong", "NOTE-NOWHERE"),
        run=run,
    )
    done = improved(upskill)
    assert done.code == 0, done.err
    said = done.json["feedback"]
    assert said[0].startswith(
        f"{train.id}: passed its checks but is wrong: shown to the teacher as a failure"
    )
    assert "stronger check (not_regex)" in said[0]
    assert "a held-out case: not shown to the teacher" in said[1]
    assert "nothing to fix" in said[2]
    assert said[3].endswith(": right")
    assert said[4].endswith("shown to the teacher as a remark")
    assert "left out" in said[5]
    with open_store("runs") as store:
        asked = [request for _, request, _ in store.requests()]
    assert any("NOTE-ON-TRAIN" in request for request in asked)
    assert any("NOTE-ODD" in request for request in asked)
    for secret in ("NOTE-ON-HELD-OUT", "NOTE-ON-BASELINE", "NOTE-NOWHERE", hidden.prompt):
        assert not any(secret in request for request in asked), secret
    after = Suite.of(house_skill(home))
    assert after is not None
    assert [named.name for named in after.by_id[train.id].checks][-1] == "not_regex"
    assert after.by_id[hidden.id].checks == hidden.checks


def house_skill(home: Path) -> Skill:
    return Skill.load(home / FOLDER)


@pytest.mark.usefixtures("house")
def test_skill_creators_feedback_is_used_without_a_store(upskill: Upskill, home: Path) -> None:
    suite = Suite.of(house_skill(home))
    assert suite is not None
    place = next(number for number, case in enumerate(suite.cases) if not case.held_out)
    note = {"run_id": f"eval-{place}-with_skill", "feedback": "SAY-IT-SHORTER", "timestamp": ""}
    write_feedback(home / "feedback.json", note)
    done = improved(upskill)
    assert done.code == 0, done.err
    assert done.json["feedback"] == [f"{suite.cases[place].id}: shown to the teacher as a remark"]
    with open_store("runs") as store:
        assert any("SAY-IT-SHORTER" in request for _, request, _ in store.requests())


@pytest.mark.usefixtures("house")
def test_feedback_that_nobody_would_read_is_refused(upskill: Upskill, home: Path) -> None:
    write_feedback(home / "feedback.json", review("a", "wrong"))
    done = upskill(
        "generate", "a task", "--feedback", "feedback.json", "-m", "scripted:teacher.json"
    )
    assert (done.code, "--feedback needs the skill that it is about" in done.err) == (2, True)
    done = upskill("generate", "--from", FOLDER, "--feedback", "feedback.json", "-m", "extract")
    assert done.code == 2
