"""The weight of the source only falls: weight.toml holds the numbers, bench/weigh.py the scale."""

from __future__ import annotations

from pathlib import Path

import pytest

import weigh

PYTHON = weigh.find_lexer(Path("code.py"))


def test_nothing_weighs_more_than_its_budget() -> None:
    assert weigh.find_excess(weigh.measure(), weigh.read_budget()) == []


@pytest.mark.parametrize(
    ("code", "weight"),
    [
        ("value = 1", 3),
        ("call(a, b)", 5),  # commas are free
        ('"""A docstring."""\n# a comment\n', 0),
        (f"x = '{'a' * 58}'", 3),  # with its quotes, 60 characters
        (f"x = '{'a' * 70}'", 5),
        (f"x = ['{'a' * 34}', '{'b' * 34}']", 8),  # items of a list stand together: 72 characters
        ("x = f'{a + b}'", 9),  # what stands in an f-string is code
    ],
)
def test_code_weighs_what_a_reader_reads(code: str, weight: int) -> None:
    assert weigh.weigh_code(code, PYTHON) == weight


def test_one_token_too_many_in_one_room_is_found() -> None:
    budget = weigh.read_budget()
    today = {name: row["most"] for name, row in {**budget["rooms"], **budget["others"]}.items()}
    assert weigh.find_excess(today, budget) == []
    most = today["cli"]
    problems = weigh.find_excess({**today, "cli": most + 1}, budget)
    assert problems == [f"cli: {most + 1:,}, at most {most:,} allowed"]
    assert weigh.find_excess({**today, "garage": 1}, budget) == [
        "garage has no row in weight.toml: it weighs 1"
    ]
    budget["rooms"]["cli"]["most"] += 1
    assert "more than the total" in weigh.find_excess(today, budget)[0]


def test_lowering_writes_numbers_that_fell_and_no_other() -> None:
    text = "total = 30\n\n[rooms]\ncli = { most = 10, goal = 5 }  # why\nruns = { most = 20, goal = 9 }\n"
    lowered = weigh.lower_budget({"cli": 7, "runs": 25}, text)
    assert "total = 27" in lowered
    assert "cli = { most = 7, goal = 5 }  # why" in lowered
    assert "runs = { most = 20, goal = 9 }" in lowered


def test_a_file_of_an_unknown_kind_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "code.rs").write_text("fn main() {}")
    with pytest.raises(SystemExit, match=r"does not know how to weigh \.rs"):
        weigh.weigh_rooms(tmp_path)
