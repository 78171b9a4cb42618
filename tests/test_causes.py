"""What a student does instead of answering is its failure, with the cause, counted for each arm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from conftest import HELPFUL, Upskill, greetings, serving, write_script, write_skill
from loopback import Call, Say, Spoken, Trouble, refuse


def told(text: str) -> str:
    """What a terminal shows, however it is folded."""
    return " ".join(text.split())


def test_every_cause_fails_the_trial_and_every_report_counts_it_by_arm(
    upskill: Upskill, home: Path
) -> None:
    causes = {1: "length", 2: "repetition", 3: "context", 4: "refusal", 5: "empty"}
    rules: list[dict[str, Any]] = [
        {"when": f"guest {number}.", "answer": "ahoy", "stop": cause}
        if cause != "empty"
        else {"when": f"guest {number}.", "answer": " \n"}
        for number, cause in causes.items()
    ]
    suite = greetings(6) | {"max_output_tokens": 64}  # a limit that somebody chose is no excuse
    write_skill(home / "greeter", suite=suite)
    model = write_script(
        home / "model.yaml",
        [
            *({"not_system": "house"} | rule for rule in rules[:2]),
            *({"system": "house"} | rule for rule in rules),
            {"answer": "ahoy"},
        ],
    )
    arguments = ("eval", "greeter", "-m", model)
    first = upskill(*arguments, "--json")
    (verdict,) = first.json["models"]
    assert verdict["skill"]["causes"] == dict.fromkeys(causes.values(), 1)
    assert verdict["baseline"]["causes"] == {"length": 1, "repetition": 1}
    assert (verdict["skill"]["failed"], verdict["skill"]["missing"]) == (5, 0)

    again = upskill(
        *arguments, "--json", "--report", "markdown=report.md"
    )  # from the store, to the last letter
    assert again.json["models"] == first.json["models"]
    shown = {
        (trial["case"], trial["arm"]): (
            trial["cause"],
            [one["reason"] for one in trial["findings"]],
        )
        for trial in upskill("show", "last", "--json").json["trials"]
    }
    assert {
        case: cause for (case, arm), (cause, _) in shown.items() if arm == "skill" and cause
    } == {f"greet-{number}": cause for number, cause in causes.items()}
    (cut,) = shown["greet-1", "skill"][1]
    assert cut.startswith(
        "the answer was cut off after 64 tokens (checks: 2 of 2 pass so far); give it more room"
    )
    assert shown["greet-6", "skill"][0] == ""

    terminal, markdown = (
        told(upskill(*arguments, "-v").out),
        (home / "report.md").read_text(encoding="utf-8"),
    )
    cut = "1 of 6 answers (with skill) and 1 of 6 answers (baseline): cut off"
    limit = f"{cut} at 64 tokens; raise the limit"
    for report in (terminal, told(markdown)):
        assert limit in report
        assert "1 of 6 answers (baseline): cut off for endless repetition." in report
        assert "1 of 6 answers (with skill): refused by the model or its provider." in report


def test_only_what_a_student_cannot_cause_is_missing(upskill: Upskill, home: Path) -> None:
    """The provider's filter and a prompt without room count as the student's; a quota and an overload do not."""
    spoken: dict[str, tuple[Spoken, str | None]] = {
        "1": (Say(refusal="I may not."), "refusal"),
        "2": (Say("I was sa", stop="content_filter"), "refusal"),
        "3": (Trouble("overflow"), "context"),
        "4": (
            refuse(
                400, "The prompt triggered Azure's content management policy.", "content_filter"
            ),
            "refusal",
        ),
        "5": (Say("", thoughts="Hm", stop="length"), "length"),
        "6": (Say("", extra={"choices": []}), None),
        "7": (Say(""), "empty"),
        "8": (refuse(400, "Your request is odd.", "invalid_request_error"), None),
        "9": (refuse(403, "This account was closed.", "forbidden"), None),
        "10": (refuse(429, "You exceeded your current quota.", "insufficient_quota"), None),
        "11": (Say("I was", stop="error"), None),
        "12": (Say("I was", stop="abort"), None),
        "13": (
            Say("", extra={"choices": [{"message": {"content": None}, "finish_reason": "stop"}]}),
            None,
        ),
        "14": (
            refuse(400, "ThrottlingException: Too many tokens, please wait.", "throttled"),
            None,
        ),
        "15": (refuse(500, "failed to allocate for context size 8192: out of memory", "oom"), None),
    }

    def answer(call: Call) -> Spoken:
        return spoken[call.prompt.split()[-1].rstrip(".")][0]

    write_skill(home / "greeter", cases=len(spoken))
    with serving(answer) as server:
        done = upskill(
            "eval",
            "greeter",
            "-m",
            "qwen",
            "--base-url",
            server.url,
            "--json",
            "--no-baseline",
            "--repeats",
            1,
        )
    assert done.code == 3
    trials = upskill("show", "last", "--json").json["trials"]
    found = {trial["case"]: (trial["outcome"], trial["cause"]) for trial in trials}
    assert found == {
        f"greet-{number}": ("failed", cause) if cause else ("missing", "")
        for number, (_, cause) in spoken.items()
    }
    reasons = {trial["case"]: trial["findings"][0]["reason"] for trial in trials if trial["cause"]}
    assert (
        reasons["greet-1"] == "the model or its provider refused: the provider refused: I may not."
    )
    tokens = {trial["case"]: trial["usage"]["input_tokens"] for trial in trials}
    assert tokens["greet-3"] > 0, "a prompt that was turned away must not look like tokens saved"


def test_a_student_that_acts_and_is_then_refused_has_failed_whatever_it_left(
    upskill: Upskill, home: Path
) -> None:
    write_skill(
        home / "greeter",
        suite={"cases": [{"prompt": "Greet.", "checks": [{"file_exists": "a.txt"}]}]},
    )
    write = {"calls": [{"name": "write_file", "arguments": {"path": "a.txt", "content": "ahoy"}}]}
    rules = [
        {"turn": 0, **write},
        {"system": "greeter", "stop": "refusal", "answer": "No."},
        {"answer": ""},
    ]
    options = ("--agent", "tools", "--repeats", 1, "--json")
    done = upskill("eval", "greeter", "-m", write_script(home / "m.yaml", rules), *options)
    if done.code == 2 and "no sandbox works here" in done.err:
        pytest.skip("no sandbox works here")
    (verdict,) = done.json["models"]
    assert verdict["skill"]["causes"] == {"refusal": 1}
    assert verdict["baseline"]["passed"] == 1, "an agent that did its work need not say anything"


def test_what_a_student_left_for_temporary_is_gone_when_checks_run(
    upskill: Upskill, home: Path
) -> None:
    case = {
        "prompt": "Write your greeting to /tmp/out.",
        "checks": [{"command": "grep ahoy /tmp/out"}],
    }
    write_skill(home / "greeter", suite={"cases": [case]})
    rules = [
        {
            "turns": [
                {"calls": [{"name": "bash", "arguments": {"command": "echo ahoy > /tmp/out"}}]},
                "done",
            ]
        }
    ]
    options = ("--agent", "tools", "--sandbox", "bubblewrap", "--repeats", 1, "--json")
    done = upskill("eval", "greeter", "-m", write_script(home / "m.yaml", rules), *options)
    if done.code == 2:
        pytest.skip("bubblewrap does not work here")
    assert done.json["models"][0]["skill"]["passed"] == 0
    caveat = "1 case without `outputs:` graded in the student's own workspace"
    assert any(caveat in line for line in done.json["models"][0]["caveats"])


GRADE = '{"evidence": "ahoy, guest", "reason": "it greets", "passed": true}'


@pytest.mark.parametrize("preface", ["Sure: ", "```json\n"])
def test_how_a_judge_dresses_its_grade_up_in_one_arm_changes_nothing(
    upskill: Upskill, home: Path, preface: str
) -> None:
    write_skill(home / "greeter", suite=greetings(8) | {"checks": [{"judge": "It greets."}]})
    student = write_script(
        home / "model.yaml",
        [{"system": "house", "answer": "Ahoy, guest!"}, {"answer": "ahoy, guest"}],
    )
    judge = write_script(
        home / "judge.yaml", [{"when": "Ahoy", "answer": GRADE}, {"answer": f"{preface}{GRADE}\n"}]
    )
    (verdict,) = upskill("eval", "greeter", "-m", student, "--judge", judge, "--json").json[
        "models"
    ]
    assert (verdict["baseline"]["passed"], verdict["skill"]["passed"], verdict["lift"]) == (8, 8, 0)


@pytest.mark.parametrize("arm", ["baseline", "skill"])
@pytest.mark.parametrize("quote", ["", "a", "Please greet guest"])
def test_a_judge_that_grades_only_one_arm_decides_nothing_and_is_named(
    upskill: Upskill, home: Path, quote: str, arm: str
) -> None:
    write_skill(home / "greeter", suite=greetings(8) | {"checks": [{"judge": "It greets."}]})
    answers = ["Ahoy, guest!", "ahoy, a guest. Please greet guest!"]
    with_skill, without = answers if arm == "baseline" else reversed(answers)
    student = write_script(
        home / "model.yaml", [{"system": "house", "answer": with_skill}, {"answer": without}]
    )
    said = GRADE.replace("ahoy, guest", quote) if quote else "It greets, so it passes."
    judge = write_script(home / "judge.yaml", [{"when": "Ahoy", "answer": GRADE}, {"answer": said}])
    arguments = ("eval", "greeter", "-m", student, "--judge", judge)
    done = upskill(*arguments, "--json", "--report", "markdown=report.md")
    (verdict,) = done.json["models"]
    assert (verdict["decision"], verdict["reason"], done.code) == ("undecided", "errors", 3)
    graded = "skill" if arm == "baseline" else "baseline"
    assert (verdict[arm]["failed"], verdict[arm]["missing"], verdict[graded]["passed"]) == (0, 8, 8)
    in_baseline, in_skill = (8, 0) if arm == "baseline" else (0, 8)
    errors = [
        {"model": student, "arm": each, "ungraded": count, "trials": 8}
        for each, count in (("baseline", in_baseline), ("skill", in_skill))
    ]
    assert done.json["judge"] == {"model": judge, "errors": errors}
    counts = f"{in_baseline} of 8 (baseline), {in_skill} of 8 (with skill)"
    line = f"The judge ({judge}) gave no usable grade for answers: {counts}."
    markdown = (home / "report.md").read_text(encoding="utf-8")
    for report in (told(upskill(*arguments, "-v").out), told(markdown)):
        assert line in report


def test_for_a_teacher_or_a_judge_a_refusal_is_an_error(upskill: Upskill, home: Path) -> None:
    suite = {"cases": [{"prompt": "Greet.", "checks": [{"judge": "It is polite."}]}]}
    write_skill(home / "greeter", suite=suite)
    judge = write_script(home / "judge.yaml", [{"stop": "refusal"}])
    student = write_script(home / "m.yaml", HELPFUL)
    done = upskill("eval", "greeter", "-m", student, "--judge", judge, "--json")
    assert done.code == 3
    assert done.json["models"][0]["skill"]["missing"] == 1
