"""Cases that ask nearly the same are found, and those that only look alike are left alone."""

from __future__ import annotations

from typing import Any

from upskill.suites import Case, Suite
from upskill.suites.twins import describe_twins, find_twins, near_duplicates


def cases(*prompts: str | dict[str, Any]) -> tuple[Case, ...]:
    rows = [row if isinstance(row, dict) else {"prompt": row} for row in prompts]
    return Suite.parse(
        [{"id": f"c{number}", "checks": [{"contains": "Paris"}]} | row for number, row in enumerate(rows)]
    ).cases


def test_the_same_question_with_a_number_or_a_please_is_a_twin() -> None:
    same = cases(
        "What is the capital of France?",
        "what is the capital of france",
        "Please, what is the capital of France?",
        "Question 4: What is the capital of France?",
        "5) What is the capital of France? (variant 5)",
        "What is the capital of France? #6",
    )
    assert find_twins(same) == {case.id: "c0" for case in same}


def test_one_word_more_in_a_long_question_with_the_same_checks_is_a_twin() -> None:
    long = "Name the city where the government, both chambers of parliament and the president of France have their seat"
    assert near_duplicates(cases(long, long + " today")) == [("c0", "c1")]
    other = cases(long, {"prompt": long.replace("France", "Spain"), "checks": [{"contains": "Madrid"}]})
    assert find_twins(other) == {}


def test_the_same_words_with_other_checks_are_twins_and_on_other_files_they_are_not() -> None:
    asked = "Fix the failing test."
    assert find_twins(cases(asked, {"prompt": asked, "checks": [{"contains": "fixed"}]})) == {"c0": "c0", "c1": "c0"}
    apart = cases({"prompt": asked, "files": {"a.py": "1"}}, {"prompt": asked, "files": {"a.py": "2"}})
    assert find_twins(apart) == {}


def test_questions_that_share_a_template_are_not_twins() -> None:
    template = "Read the table below, which lists flags of a tool with what they do, and say in one word which it is: "
    asked = cases(
        *({"prompt": template + word, "checks": [{"contains": word}]} for word in ["north", "south", "east", "west"])
    )
    assert find_twins(asked) == {}
    assert find_twins(cases("Is 17 a prime?", "Is 19 a prime?")) == {}
    assert find_twins(cases("Please greet guest 1.", "Please greet guest 2.")) == {}


def test_twins_of_twins_are_one_group() -> None:
    words = [f"w{number}" for number in range(40)]
    chain = [" ".join(words[start : start + 30]) for start in range(4)]
    found = find_twins(cases(*chain))
    assert set(found.values()) == {"c0"}
    assert describe_twins(found) == [
        "'c0', 'c1', 'c2', … ask nearly the same and count as one in every interval; keep one of them"
    ]
    assert describe_twins({}) == []


def test_every_pair_that_shares_enough_words_is_found() -> None:
    # The index by rare words must find what comparing all pairs would.
    import random  # noqa: PLC0415

    drawn = random.Random(5)
    texts = [
        " ".join(sorted(drawn.sample([f"w{number}" for number in range(24)], drawn.randint(18, 23)))) for _ in range(80)
    ]
    listed = cases(*texts)
    sets = {case.id: set(case.prompt.split()) for case in listed}
    expected = {
        (one.id, two.id)
        for place, one in enumerate(listed)
        for two in listed[place + 1 :]
        if len(sets[one.id] & sets[two.id]) >= 0.9 * len(sets[one.id] | sets[two.id])
    }
    twins = find_twins(listed)
    assert expected
    assert all(twins[one] == twins[two] for one, two in expected)
    assert all(any(case in pair for pair in expected) for case in twins)
