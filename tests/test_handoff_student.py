"""`-m handoff:FOLDER` as a student: prompts in files that do not say which arm they belong to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from conftest import BODY, Done, Upskill, greetings, write_script, write_skill

SUITE: dict[str, Any] = {
    "cases": [
        {
            "id": f"secret-case-{number}",
            "prompt": f"Greet guest {number}.",
            "reference": "ahoy, dear guest",
        }
        for number in range(4)
    ],
    "checks": [{"regex": "ahoy.{0,77}"}],
}


def answer_all(desk: Path, most: int = 100) -> list[str]:
    """A person who does what the prompts say: the first so many get an answer in the file that each names."""
    answered: list[str] = []
    for prompt in sorted(desk.glob("*.prompt.md")):
        text = prompt.read_text()
        [file] = [
            word.strip("`") for word in text.split() if word.strip("`").endswith(".answer.md")
        ]
        if not (desk / file).exists() and len(answered) < most:
            (desk / file).write_text("ahoy, guest\n" if "the word ahoy" in text else "hello\n")
            answered.append(prompt.name)
    return answered


def test_a_student_by_hand_is_asked_blind_and_goes_on_when_answered(
    upskill: Upskill, home: Path
) -> None:
    skill = write_skill(home / "skills" / "greeting", suite=SUITE)
    command = ("eval", skill, "-m", "handoff:desk", "--repeats", 2, "--json")
    desk = home / "desk"

    def go() -> Done:
        return upskill(*command)

    done = go()
    assert done.code == 0, done.err
    assert "waiting for 16 answers: desk/" in done.err  # 4 cases, 2 arms, 2 draws
    prompts = sorted(desk.iterdir())
    assert done.json == {"waiting_for": [f"desk/{prompt.name}" for prompt in prompts]}
    # The name and the time of a file say nothing, and the texts differ in the skill alone.
    times = [prompt.stat().st_mtime_ns for prompt in prompts]
    assert times == sorted(times)
    texts = [
        prompt.read_text().replace(prompt.name.removesuffix(".prompt.md"), "STEM")
        for prompt in prompts
    ]
    assert len(set(texts)) == 8  # two draws of one question are asked twice, in the same words
    for text in texts:
        for word in ("secret-case", "baseline", "arm", "dear guest", "77", "seed"):
            assert word not in text.replace("charm", ""), word
    with_skill = sorted(
        text.replace(f"\n\n{BODY.strip()}", "") for text in texts if "the word ahoy" in text
    )
    assert with_skill == sorted(text for text in texts if "the word ahoy" not in text)
    assert len({prompt.name.removesuffix(".prompt.md") for prompt in prompts}) == 16
    assert all(len(prompt.name.removesuffix(".prompt.md")) == 12 for prompt in prompts)
    # Some answers, then the rest: nothing is asked twice, and no prompt changes its name.
    assert answer_all(desk, most=5) == [prompt.name for prompt in prompts[:5]]
    begun = prompts[5].with_name(prompts[5].name.replace(".prompt.", ".answer."))
    begun.touch()  # and nothing is written yet
    done = go()
    assert "waiting for 11 answers" in done.err
    begun.unlink()
    begun.symlink_to(home / "elsewhere")
    (home / "elsewhere").write_text("a key that nobody meant to hand in", encoding="utf-8")
    assert f"{begun.name}: this answer cannot be used: it is a link or a folder" in go().err
    begun.unlink()
    assert sorted(desk.glob("*.prompt.md")) == prompts
    answer_all(desk)
    whole = go().json
    [verdict] = whole["models"]
    assert (verdict["baseline"]["passed"], verdict["skill"]["passed"]) == (0, 8)
    assert verdict["skill"]["input_tokens"] > verdict["baseline"]["input_tokens"] > 0
    assert verdict["skill"]["cost_usd"] is None
    assert any("tokens are estimated from the length" in line for line in whole["warnings"])
    # What was answered by hand travels like any other reply.
    assert upskill("export", "last", "--replies", "replies.gz").code == 0
    for file in desk.iterdir():
        file.unlink()
    played = upskill("eval", skill, "--replay", "replies.gz", "--no-log-runs", "--json").json
    assert played["models"][0]["skill"] == verdict["skill"]
    assert not list(desk.iterdir())


def test_a_price_in_the_settings_is_what_answers_by_hand_cost(upskill: Upskill, home: Path) -> None:
    skill = write_skill(home / "skills" / "greeting", suite=SUITE)
    prices = {"prices": {"handoff:desk": {"input": 10, "output": 20}}}
    (home / "upskill.config.yaml").write_text(json.dumps(prices))
    upskill("eval", skill, "-m", "handoff:desk", "--repeats", 1, "--yes")
    answer_all(home / "desk")
    arm = upskill("eval", skill, "-m", "handoff:desk", "--repeats", 1, "--yes", "--json").json[
        "models"
    ][0]["skill"]
    assert arm["cost_usd"] == (10 * arm["input_tokens"] + 20 * arm["output_tokens"]) / 1_000_000 > 0


def test_without_a_price_a_ceiling_in_dollars_does_not_stop_answers_by_hand(
    upskill: Upskill, home: Path
) -> None:
    skill = write_skill(home / "skills" / "greeting", suite=SUITE)
    command = ("eval", skill, "-m", "handoff:desk", "--repeats", 1, "--max-cost", 1)
    assert "waiting for 8 answers" in upskill(*command).err
    answer_all(home / "desk")
    done = upskill(*command)
    assert (done.code, "Stopped" in done.err) == (0, False), done.err


def test_a_judge_by_hand_is_as_blind_and_is_asked_beside_a_student_that_answers(
    upskill: Upskill, home: Path
) -> None:
    suite = greetings(2) | {"checks": [{"judge": "it says ahoy"}]}
    skill = write_skill(home / "skills" / "greeting", suite=suite)
    command = (
        "eval",
        skill,
        "-m",
        write_script(home / "student.json"),
        "--judge",
        "handoff:desk",
        "--json",
    )
    upskill(*command)
    prompts = sorted((home / "desk").glob("*.prompt.md"))
    # Two arms of two cases, each of which draws the same words, so that the judge sees one question for two guests.
    assert prompts
    for prompt in prompts:
        said = (
            "ahoy" in prompt.read_text().split("it says ahoy")[-1]
            or "ahoy, friend" in prompt.read_text()
        )
        grade = {"evidence": "ahoy, friend" if said else "", "reason": "so it is", "passed": said}
        (prompt.parent / prompt.name.replace("prompt.md", "answer.json")).write_text(
            json.dumps(grade)
        )
        assert "-" not in prompt.name.removesuffix(".prompt.md")
    verdict = upskill(*command).json["models"][0]
    assert (verdict["baseline"]["passed"], verdict["skill"]["passed"]) == (0, 2)


def test_an_agent_that_acts_can_be_played_by_hand(upskill: Upskill, home: Path) -> None:
    case = {
        "id": "write",
        "prompt": "Write the greeting into hello.txt.",
        "checks": [{"command": "grep ahoy hello.txt"}],
    }
    skill = write_skill(home / "skills" / "greeting", suite={"cases": [case]})
    command = ("eval", skill, "-m", "handoff:desk", "--agent", "tools", "--repeats", 1)
    command = (*command, "--no-baseline", "--json")
    turns = [
        {"tool": "bash", "command": "echo ahoy, friend > hello.txt; cat hello.txt"},
        {"tool": "answer", "text": "It is written."},
    ]
    for turn in turns:
        done = upskill(*command)
        assert "waiting for 1 answer" in done.err, done.err
        [waiting] = done.json["waiting_for"]
        Path(waiting.replace("prompt.md", "answer.json")).write_text(json.dumps({"call": turn}))
    done = upskill(*command)
    assert done.json["models"][0]["skill"]["passed"] == 1, done.err
