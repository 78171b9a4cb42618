"""Cases that ask nearly the same are found, and those that only look alike are left alone."""

from __future__ import annotations

import random
from itertools import combinations
from typing import Any

import pytest

from upskill.suites import Case, Suite
from upskill.suites.near_duplicates import (
    alike,
    describe_near_duplicates,
    group_near_duplicates,
    near_duplicates,
)


def cases(*prompts: str | dict[str, Any]) -> tuple[Case, ...]:
    rows = [row if isinstance(row, dict) else {"prompt": row} for row in prompts]
    return Suite.parse(
        [
            {"id": f"c{number}", "checks": [{"contains": "Paris"}]} | row
            for number, row in enumerate(rows)
        ]
    ).cases


def test_the_same_question_with_a_number_or_a_please_is_a_near_duplicate() -> None:
    same = cases(
        "What is the capital of France?",
        "what is the capital of france",
        "Please, what is the capital of France?",
        "Question 4: What is the capital of France?",
        "5) What is the capital of France? (variant 5)",
        "What is the capital of France? #6",
    )
    assert group_near_duplicates(same) == {case.id: "c0" for case in same}


def test_one_word_more_in_a_long_question_with_the_same_checks_is_a_near_duplicate() -> None:
    long = "Name the city where the government, both chambers of parliament and the president of France have their seat"
    assert near_duplicates(cases(long, long + " today")) == [("c0", "c1")]
    other = cases(
        long, {"prompt": long.replace("France", "Spain"), "checks": [{"contains": "Madrid"}]}
    )
    assert group_near_duplicates(other) == {}


def test_the_same_text_with_other_checks_is_a_near_duplicate_but_not_on_other_files() -> None:
    asked = "Fix the failing test."
    same = cases(asked, {"prompt": f" {asked}\n", "checks": [{"contains": "fixed"}]})
    assert group_near_duplicates(same) == {"c0": "c0", "c1": "c0"}
    apart = cases(
        {"prompt": asked, "files": {"a.py": "1"}}, {"prompt": asked, "files": {"a.py": "2"}}
    )
    assert group_near_duplicates(apart) == {}


def test_what_cannot_be_seen_a_number_and_a_length_make_no_other_question() -> None:
    asked = "What is the capital of France?"
    same = cases(
        {"prompt": asked, "checks": [{"contains": "Paris"}, {"max_length": 300}]},
        {"prompt": f"2. {asked}", "checks": [{"contains": "Paris"}, {"max_length": 301}]},
        {"prompt": asked.replace(" ", "\u200b \u00a0"), "checks": [{"contains": "paris"}]},
        {"prompt": f"Question 4. {asked}", "checks": [{"contains": "PARIS"}]},
        {"prompt": f"Please, {asked}", "checks": [{"contains": "Paris"}, {"min_length": 2}]},
    )
    assert group_near_duplicates(same) == {case.id: "c0" for case in same}


def test_questions_that_share_a_template_are_not_near_duplicates() -> None:
    template = "Read the table below, which lists flags of a tool with what they do, and say in one word which it is: "
    asked = cases(
        *(
            {"prompt": template + word, "checks": [{"contains": word}]}
            for word in ["north", "south", "east", "west"]
        )
    )
    assert group_near_duplicates(asked) == {}
    assert group_near_duplicates(cases("Is 17 a prime?", "Is 19 a prime?")) == {}
    assert group_near_duplicates(cases("Please greet guest 1.", "Please greet guest 2.")) == {}


def test_a_sign_or_a_letter_makes_another_question_where_another_answer_is_looked_for() -> None:
    for group in (
        ("What is C?", "What is C++?", "What is C#?"),
        ("What does $? stand for?", "What does $! stand for?", "What does $# stand for?"),
        ("Subtract 5 from 12.", "Subtract 12 from 5."),
        ("What does grep -r do?", "What does grep -R do?"),
        ("What does --no-cache do?", "What does --cache do?"),
        ("Name the version of tern.", "Name the number of tern.", "Name the variant of tern."),
        ("What is this exit code? 21", "What is this exit code? 22"),
        ("What happened on 2023-01-05?", "What happened on 2024-01-05?"),
        ("कि", "की", "कु"),
    ):
        asked = cases(*({"prompt": prompt, "checks": [{"contains": prompt}]} for prompt in group))
        assert group_near_duplicates(asked) == {}, group


def test_a_question_in_other_clothes_with_the_same_checks_is_a_near_duplicate() -> None:
    question = "Which word does zork use for a service that was stopped?"
    for other in (
        f"Quick one: {question}",
        f"{question} Answer in short!",
        question.replace("zork", "zo\u200brk"),
        question.replace("Which", "_Which_"),
        question.upper(),
    ):
        assert near_duplicates(cases(question, other)) == [("c0", "c1")], other
    assert near_duplicates(cases("🦊🦊?", "🦊🦊?")) == [("c0", "c1")]
    chinese = "请用一个词说明在这个系统里被停止的服务叫做什么名字"
    assert near_duplicates(cases(chinese, f"您好{chinese}")) == [("c0", "c1")]


def test_near_duplicates_of_near_duplicates_are_one_group() -> None:
    words = [f"w{number}" for number in range(40)]
    chain = [" ".join(words[start : start + 30]) for start in range(4)]
    found = group_near_duplicates(cases(*chain))
    assert set(found.values()) == {"c0"}
    assert describe_near_duplicates(found) == [
        (
            "'c0', 'c1', 'c2', … ask nearly the same: give them the same `group:`, so that they "
            "count as one, or keep one of them"
        )
    ]
    assert describe_near_duplicates({}) == []


def test_the_search_finds_what_comparing_every_pair_finds():
    draw = random.Random(7)
    vocabulary = [f"w{number}" for number in range(40)]
    template = vocabulary[:25]
    for _ in range(60):
        prompts: list[str] = []
        for _ in range(30):
            words = (
                draw.sample(vocabulary, draw.randint(2, 30))
                if draw.random() < 0.3
                else list(template)
            )
            for _ in range(draw.randint(0, 4)):
                words[draw.randrange(len(words))] = draw.choice(vocabulary)
            prompts.append(" ".join(dict.fromkeys(words[: draw.randint(20, 30)])))
        asked = cases(*dict.fromkeys(prompts))
        sets = [frozenset(case.prompt.split()) for case in asked]
        expected = [
            (one.id, two.id)
            for (one, its), (two, other) in combinations(zip(asked, sets, strict=True), 2)
            if alike(its, other)
        ]
        assert near_duplicates(asked) == expected


def test_a_large_suite_from_one_template_is_not_compared_pair_by_pair(
    monkeypatch: pytest.MonkeyPatch,
):
    compared = 0

    def counted(one: frozenset[str], two: frozenset[str]) -> bool:
        nonlocal compared
        compared += 1
        return alike(one, two)

    monkeypatch.setattr("upskill.suites.near_duplicates.alike", counted)
    asked = cases(
        *(
            f"Which command of the tool kiln makes a release of team {n} for x{n % 50}?"
            for n in range(2000)
        )
    )
    assert near_duplicates(asked) == []
    assert compared < 50_000  # of two million
