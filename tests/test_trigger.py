"""`upskill trigger`: which queries a skill fires on, what that comes to, and a description that fires better."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest

from conftest import REPOSITORY, Done, Upskill, serving, write_script, write_skill
from loopback import Call, Loopback, Say, Spoken
from upskill import (
    Events,
    ModelContext,
    Models,
    Result,
    Skill,
    TriggerOptions,
    improve_description,
    open_store,
)
from upskill import trigger as measure
from upskill.agents import Bounds
from upskill.authoring.trigger.description import check_parts, estimate_improvement
from upskill.authoring.trigger.metrics import compute_trigger_metrics, paired_change
from upskill.authoring.trigger.trigger import TriggerSession, make_trigger_plan
from upskill.errors import UsageError
from upskill.models.addresses import resolve
from upskill.models.ledger import Ledger
from upskill.plain import dict_or_empty
from upskill.reports.trigger import report_improvement, report_triggered
from upskill.runs.planning.estimate import MIN_TURNS, estimate
from upskill.runs.planning.plan import PlanOptions
from upskill.skills import load_skills
from upskill.suites.queries import PARTS, Queries, Query
from upskill.suites.suite import hash_to_unit
from upskill.verdicts.outcome import Outcome

GREETER, SAILOR = "house-greeter", "house-sailor"
ACTIVATE = {"name": "activate_skill", "arguments": {"name": GREETER}}
NARROW = "Greets people the way this house does. Use when a greeting is asked for."
WIDE = "Greets people the way this house does. Use when a greeting or any other kind of welcome is wanted."
GREEDY = "Does everything. Use when a greeting, a welcome or goods are spoken of."
WRITES, REWRITES = "You write queries", "You rewrite the description"


# A world in which the words of a description decide: who reads of a welcome in it opens the skill for a welcome.


def query(kind: str, number: int) -> str:
    return f"Please prepare the {kind} of guest {number} for tonight."


def of_part(kind: str, part: str, count: int) -> list[str]:
    """Queries that are for this part where `in_pairs` puts them: the higher hash of a pair is for the test."""
    low, high = {"validation": (0.0, 0.25), "train": (0.25, 0.5), "test": (0.5, 1.0)}[part]
    texts = (query(kind, number) for number in range(1000))
    return [text for text in texts if low <= hash_to_unit(text.casefold()) < high][:count]


def in_pairs(validation: Sequence[str], train: Sequence[str], test: Sequence[str]) -> list[str]:
    seen = [text for pair in zip(validation, train, strict=True) for text in pair]
    return [text for pair in zip_longest(test, seen) for text in pair if text]


# The skill as it is knows the greetings. It should also know a welcome, and should not take goods for one.
DUE = [*of_part("greeting", "train", 2), *of_part("welcome", "train", 2)]
DUE_VALIDATION = [*of_part("greeting", "validation", 1), *of_part("welcome", "validation", 3)]
DUE_TEST = [*of_part("greeting", "test", 1), *of_part("welcome", "test", 8)]
NOT_DUE = of_part("goods", "train", 2)
NOT_DUE_VALIDATION, NOT_DUE_TEST = of_part("goods", "validation", 2), of_part("goods", "test", 5)
TRAIN, VALIDATION, TEST = (
    [*DUE, *NOT_DUE],
    [*DUE_VALIDATION, *NOT_DUE_VALIDATION],
    [*DUE_TEST, *NOT_DUE_TEST],
)


def world(*tests: str) -> list[dict[str, Any]]:
    """Everything, with these test queries that should trigger."""
    kinds = (
        in_pairs(DUE_VALIDATION, DUE, tests),
        in_pairs(NOT_DUE_VALIDATION, NOT_DUE, NOT_DUE_TEST),
    )
    return [
        {"query": text, "should_trigger": due}
        for due, texts in zip((True, False), kinds, strict=True)
        for text in texts
    ]


WORLD = world(*DUE_TEST)


def student(call: Call) -> Spoken:
    """Opens the skill when its description has the word for what is asked."""
    assert "<available_skills>" in call.system
    described = call.system.split(f"<name>{GREETER}</name>")[1].split("</description>")[0]
    wanted = next(
        (word for word in ("greeting", "welcome", "goods") if f"the {word} of" in call.prompt), None
    )
    if wanted and wanted in described:
        return Say(calls=(("activate_skill", {"name": GREETER}),))
    return "It is prepared."


def description(text: str, note: str = "It forgot a word.") -> str:
    return json.dumps({"note": note, "description": text})


def write_teacher(home: Path, *texts: str) -> str:
    rules = [
        {"system": REWRITES, "seed": number, "answer": description(text)}
        for number, text in enumerate(texts, start=1)
    ]
    return write_script(home / "teacher.json", rules)


@pytest.fixture
def house(home: Path) -> Path:
    """The skill, and another beside it."""
    for name, said in ((GREETER, NARROW), (SAILOR, "Sails. Use it at sea.")):
        (home / "skills" / name).mkdir(parents=True)
        text = f"---\nname: {name}\ndescription: {said}\n---\n\n# {name}\n\nSay ahoy.\n"
        (home / "skills" / name / "SKILL.md").write_text(text, encoding="utf-8")
    return home


def put_queries(house: Path, queries: Sequence[Mapping[str, Any]] = WORLD) -> None:
    (house / "skills" / GREETER / "evals").mkdir(exist_ok=True)
    (house / "skills" / GREETER / "evals" / "eval_queries.json").write_text(
        json.dumps(queries), encoding="utf-8"
    )


def trigger(upskill: Upskill, *more: object) -> Done:
    return upskill("trigger", f"skills/{GREETER}", "--with-skills", "skills", *more)


# Queries.

ONE = Query("Say hello", should_trigger=True)
SPELLINGS: dict[str, object] = {
    "the ecosystem's": [{"query": "Say hello", "should_trigger": True}],
    "a camel's": [{"query": " Say hello ", "shouldTrigger": True}],
    "a prompt": [{"prompt": "Say hello", "should-trigger": True, "note": "plain", "id": 3}],
    "below a key": {
        "skill_name": "greeter",
        "queries": [{"text": "Say hello", "should_activate": True}],
    },
    "two lists": {"should_trigger": ["Say hello"], "should_not_trigger": []},
}


@pytest.mark.parametrize("said", SPELLINGS.values(), ids=SPELLINGS)
def test_every_spelling_of_the_ecosystem_is_read(said: object) -> None:
    assert Queries.parse(said).all == (ONE,)


def test_what_is_written_is_what_the_ecosystem_reads() -> None:
    assert ONE.to_dict() == {"query": "Say hello", "should_trigger": True}


WRONG: dict[str, tuple[bytes, str]] = {
    "nothing": (b"[]", "no queries"),
    "not JSON": (b"[\n{]", "line 2: not valid JSON"),
    "not UTF-8": (b'["\xff"]', ": not UTF-8 text"),
    "a number": (b"3", "expected a list of queries, got 3"),
    "no list": (b'{"queries": 1}', "queries: Input should be a valid list, not 1"),
    "a strange key": (b'{"queries": [], "quiries": []}', "unknown field 'quiries'"),
    "a text": (b'["hello"]', "query 1: expected an object, got 'hello'"),
    "no query": (b'[{"should_trigger": true}]', "query 1: no query"),
    "no answer": (b'[{"query": "a"}]', "query 1: no should_trigger"),
    "two texts": (
        b'[{"query": "a", "prompt": "b", "should_trigger": true}]',
        "unknown field 'prompt'",
    ),
    "an empty one": (b'[{"query": " ", "should_trigger": true}]', "query: empty"),
    "yes": (
        b'[{"query": "a", "should_trigger": "yes"}]',
        "should_trigger: Input should be a valid boolean, not 'yes'",
    ),
    "misspelt": (b'[{"query": "a", "should_triger": true}]', "unknown field 'should_triger'"),
    "half a character": (b'[{"query": "\\ud800", "should_trigger": true}]', "unpaired surrogate"),
    "twice": (
        b'[{"query": "Say hello", "should_trigger": true}, {"query": "say  HELLO", "should_trigger": false}]',
        "query 2 repeats query 1",
    ),
    "deep": (b"[" * 100_000, ": nested too deeply"),
    "long": (b" " * 5_000_001, ": larger than 5 MB"),
}


@pytest.mark.parametrize(("data", "message"), WRONG.values(), ids=WRONG)
def test_a_file_that_cannot_be_used_says_what_is_wrong_and_where(
    tmp_path: Path, data: bytes, message: str
) -> None:
    file = tmp_path / "eval_queries.json"
    file.write_bytes(data)
    with pytest.raises(UsageError) as error:
        Queries.load(file)
    assert error.value.message.startswith(str(file))
    assert message in error.value.message


def some_queries(rng: random.Random, count: int) -> list[Query]:
    words = [
        "ship",
        "sail",
        "port",
        "crew",
        "anchor",
        "rope",
        "deck",
        "mast",
        "storm",
        "wind",
        "map",
        "bell",
    ]
    texts = {" ".join(rng.choices(words, k=6)) for _ in range(count)}
    return [Query(text, should_trigger=rng.random() < 0.5) for text in sorted(texts)]


def test_a_query_added_at_the_end_never_moves_another_on_towards_the_test() -> None:
    moved = added = 0
    for seed in range(300):
        rng = random.Random(seed)
        *some, more = some_queries(rng, rng.randint(6, 24))
        before, after = Queries(tuple(some)).parts, Queries((*some, more)).parts
        added += 1
        for text, part in before.items():
            moved += part != after[text]
            assert PARTS.index(after[text]) <= PARTS.index(part), (seed, text)
        shouted = Queries.parse(
            [
                {"query": f" {one.text.upper()}", "should_trigger": one.should_trigger}
                for one in some
            ]
        )
        assert [*shouted.parts.values()] == [*before.values()]
    assert 0 < moved < added / 2  # only an odd last one, when its partner comes


@pytest.mark.parametrize("count", [5, 6, 20])
def test_half_of_each_kind_is_for_the_test_and_no_part_lacks_a_kind(count: int) -> None:
    for seed in range(100):
        some = some_queries(random.Random(f"parts {seed}"), 80)
        kinds = [
            [one for one in some if one.should_trigger is kind][:count] for kind in (True, False)
        ]
        queries = Queries((*kinds[0], *kinds[1]))
        check_parts(queries)
        for part in PARTS:
            here = queries.part(part)
            assert len(here.should_trigger) == len(here.should_not_trigger) > 0, (seed, part)
            assert here.parts == queries.parts
        assert len(queries.part("test")) == 2 * ((count + 1) // 2)


# Numbers.


def outcome(text: str, seed: int, fired: bool | None, *, due: bool) -> Outcome:
    passed = None if fired is None else fired is due
    return Outcome("m", Query(text, due).id, "skill", seed, passed, 10, 1, 0.0, activated=fired)


def outcomes(fired: Mapping[str, Sequence[bool | None]], queries: Queries) -> list[Outcome]:
    due = {one.text: one.should_trigger for one in queries}
    return [
        outcome(text, seed, one, due=due[text])
        for text, row in fired.items()
        for seed, one in enumerate(row)
    ]


EIGHT = Queries(tuple(Query(text, should_trigger=text < "e") for text in "abcdefgh"))
YES, NO = True, False


def test_precision_recall_and_rates_are_those_worked_by_hand() -> None:
    fired: dict[str, Sequence[bool | None]] = {
        **dict.fromkeys("ab", (YES, YES, YES)),
        "c": (YES, NO, YES),
        "e": (YES, NO, NO),
        **dict.fromkeys("dfgh", (NO, NO, NO)),
    }
    metrics = compute_trigger_metrics("m", EIGHT, outcomes(fired, EIGHT))
    estimates = [metrics.recall, metrics.false_triggers, metrics.precision, metrics.accuracy]
    values = [estimate.value for estimate in estimates if estimate]
    assert values == pytest.approx([8 / 12, 1 / 12, 8 / 9, 19 / 24])
    assert metrics.score == pytest.approx(0.5 * (8 / 12 + 11 / 12))
    assert [rate.as_expected for rate in metrics.rates] == [
        True,
        True,
        True,
        False,
        True,
        True,
        True,
        True,
    ]
    assert metrics.as_expected == 7
    # Clopper and Pearson's interval for two and for three of three, from tables.
    assert metrics.rates[2].interval == pytest.approx((0.0943, 0.9916), abs=1e-4)
    assert metrics.rates[0].interval == pytest.approx((0.2924, 1.0), abs=1e-4)
    for each in filter(None, estimates):
        assert 0.0 <= each.low < each.value < each.high <= 1.0


def test_runs_of_one_query_are_not_taken_for_as_many_queries() -> None:
    def width(runs: int, queries: int) -> float:
        due = Queries(tuple(Query(f"q{number}", should_trigger=True) for number in range(queries)))
        fired = {one.text: [number % 2 == 0] * runs for number, one in enumerate(due)}
        recall = compute_trigger_metrics("m", due, outcomes(fired, due)).recall
        assert recall is not None
        return recall.high - recall.low

    assert width(9, 4) == pytest.approx(width(1, 4))
    assert width(1, 36) < 0.6 * width(1, 4)


def test_an_errored_run_counts_for_nothing_and_a_half_is_on_neither_side() -> None:
    fired: dict[str, Sequence[bool | None]] = {
        "a": (YES, None, None),
        "b": (None, None, None),
        "c": (YES, NO, None),
        "e": (YES, NO),
        "f": (NO, NO),
    }
    metrics = compute_trigger_metrics("m", EIGHT, outcomes(fired, EIGHT))
    rates = {rate.query.text: rate for rate in metrics.rates}
    assert (rates["a"].value, rates["a"].as_expected, rates["a"].errored) == (1.0, True, 2)
    assert (rates["b"].value, rates["b"].as_expected) == (None, None)
    assert (rates["c"].as_expected, rates["e"].as_expected) == (False, False)
    assert rates["d"].scored == rates["d"].errored == 0
    assert metrics.recall is not None
    assert metrics.recall.value == 0.75
    assert metrics.precision is not None
    assert metrics.precision.value == pytest.approx(1.5 / 2.0)
    assert (metrics.scored, metrics.errored, metrics.too_many_errors) == (7, 6, True)


def test_what_was_not_seen_is_not_known() -> None:
    silent = compute_trigger_metrics(
        "m", EIGHT, outcomes(dict.fromkeys("abcdefgh", (NO, NO)), EIGHT)
    )
    assert silent.precision is None  # it never fired
    assert silent.recall is not None
    assert (silent.recall.value, silent.recall.low) == (0.0, 0.0)
    assert silent.recall.high > 0.2
    perfect = compute_trigger_metrics(
        "m", EIGHT, outcomes({text: [text < "e"] * 3 for text in "abcdefgh"}, EIGHT)
    )
    assert perfect.precision is not None
    assert (perfect.precision.value, perfect.precision.high) == (1.0, 1.0)
    assert perfect.precision.low < 0.8  # four queries prove little
    one_kind = Queries(EIGHT.should_trigger)
    due = compute_trigger_metrics("m", one_kind, outcomes({"a": (YES,), "b": (NO,)}, one_kind))
    assert due.precision is None
    assert due.score is None
    assert due.accuracy == due.recall
    other_kind = Queries(EIGHT.should_not_trigger)
    not_due = compute_trigger_metrics(
        "m", other_kind, outcomes({"e": (YES,), "f": (NO,)}, other_kind)
    )
    assert not_due.accuracy is not None
    assert not_due.accuracy.value == 0.5
    nothing = compute_trigger_metrics("m", EIGHT, [])
    assert nothing.accuracy is None
    assert nothing.too_many_errors


@pytest.mark.parametrize("runs", [1, 3, 5])
@pytest.mark.parametrize("count", [5, 10, 20])
def test_the_intervals_hold_what_they_should_as_often_as_they_say(count: int, runs: int) -> None:
    """Queries with trigger rates of their own, drawn anew each time; `bench/simulations.py` has many more of them."""
    rng = random.Random(f"{count} {runs}")
    queries = Queries(
        tuple(Query(f"q{number}", should_trigger=number % 2 == 0) for number in range(count))
    )
    positives = len(queries.should_trigger)
    held, times = Counter[str](), 150
    for time in range(times):
        recall, wrong, spread = [(0.95, 0.05, 1.0), (0.9, 0.1, 0.0), (0.75, 0.2, 4.0)][time % 3]
        fired: dict[str, Sequence[bool | None]] = {}
        for one in queries:
            mean = recall if one.should_trigger else wrong
            rate = (
                rng.betavariate(mean * spread, (1 - mean) * spread)
                if spread
                else float(rng.random() < mean)
            )
            fired[one.text] = [rng.random() < rate for _ in range(runs)]
        metrics = compute_trigger_metrics("m", queries, outcomes(fired, queries))
        hits, misses = positives * recall, (count - positives) * wrong
        truth = {
            "recall": recall,
            "false_triggers": wrong,
            "precision": hits / (hits + misses),
            "accuracy": (hits + count - positives - misses) / count,
        }
        for name, value in truth.items():
            estimate = metrics.estimate(name)
            held[name] += estimate is None or estimate.low - 1e-9 <= value <= estimate.high + 1e-9
    assert min(held.values()) >= 0.93 * times, held


def test_two_descriptions_are_compared_query_by_query() -> None:
    before = outcomes({"a": (NO, NO), "b": (NO, YES), "e": (YES, YES), "f": (NO, None)}, EIGHT)
    after = outcomes({"a": (YES, YES), "b": (NO, YES), "e": (NO, NO), "f": (NO, NO)}, EIGHT)
    found = paired_change(before, after, level=0.95)
    assert found is not None
    change = found.estimate
    assert change.value == pytest.approx((1.0 + 0.0 + 1.0 + 0.0) / 4)
    assert change.low < change.value < change.high
    assert found.p_value == pytest.approx(
        0.5
    )  # two queries changed, both for the better: two of four flips are as far
    assert (found.is_better, (found.further_queries or 0) > 2) == (False, True)
    assert paired_change(before, [], level=0.95) is None


# Running them.


def by_seed(fires: Mapping[str, Sequence[int]], queries: Iterable[str]) -> list[dict[str, Any]]:
    """A student that opens the skill on these seeds of these queries, and only answers otherwise."""
    opening = [
        {"when": text, "seed": seed, "turns": [{"calls": [ACTIVATE]}]}
        for text in fires
        for seed in fires[text]
    ]
    return [*opening, *({"when": text, "answer": "Done."} for text in queries)]


SIX: list[dict[str, Any]] = [
    {"query": "Greet the first guest.", "should_trigger": True},
    {"query": "Say something nice at the door.", "should_trigger": True},
    {"query": "A guest has come.", "should_trigger": True},
    {"query": "Sail to the next port.", "should_trigger": False},
    {"query": "Write down the names of guests.", "should_trigger": False},
    {"query": "What does ahoy mean?", "should_trigger": False},
]
TEXTS: list[str] = [one["query"] for one in SIX]
FIRED: dict[str, Sequence[int]] = {TEXTS[0]: (0, 1, 2), TEXTS[1]: (0, 2), TEXTS[4]: (1,)}


@pytest.fixture
def six(house: Path) -> Path:
    put_queries(house, SIX)
    (house / "few.json").write_text(json.dumps(SIX[2:4]))
    write_script(house / "student.json", by_seed(FIRED, TEXTS))
    return house


STUDENT = ("-m", "scripted:student.json")
IMPROVE = (*STUDENT, "--repeats", 1, "--improve", "--teacher", "scripted:teacher.json")


def test_the_command_says_how_often_each_query_fires_and_what_that_comes_to(
    upskill: Upskill, six: Path
) -> None:
    done = trigger(upskill, *STUDENT, "--json")
    assert done.code == 0, done.err
    said = done.json
    (model,) = said["models"]
    assert [(row["triggered"], row["runs"], row["right"]) for row in model["queries"]] == [
        (3, 3, True),
        (2, 3, True),
        (0, 3, False),
        (0, 3, True),
        (1, 3, True),
        (0, 3, True),
    ]
    assert model["recall"]["value"] == pytest.approx(5 / 9, abs=1e-6)
    assert model["precision"]["value"] == pytest.approx(5 / 6, abs=1e-6)
    assert model["accuracy"]["value"] == pytest.approx(13 / 18, abs=1e-6)
    assert model["false_triggers"]["value"] == pytest.approx(1 / 9, abs=1e-6)
    assert (model["right"], model["scored"], model["errored"]) == (5, 18, 0)
    assert said["with_skills"] == [SAILOR]  # the skill under test is in that folder too
    assert said["queries"]["should_trigger"] == said["queries"]["should_not_trigger"] == 3
    assert done.err == ""
    with open_store(six / "runs") as store:
        results = list(store.results(store.run("last")))
    # The script has one turn for those that fire: a second question would be an error.
    assert {result.trace.stop for result in results if result.trace and result.activated} == {
        "activated"
    }
    assert {result.trace.turns for result in results if result.trace} == {1}
    shown = trigger(upskill, *STUDENT).out
    lines = {
        line.split("  ")[1].strip(): line for line in shown.splitlines() if line.startswith("  ")
    }
    assert lines[TEXTS[0]].split()[-4:] == ["yes", "100%", "(3/3)", "ok"]
    assert lines[TEXTS[2]].split()[-4:] == ["yes", "0%", "(0/3)", "wrong"]
    assert lines["precision"].split()[1] == "83%"
    assert lines["recall"].split()[1] == "56%"
    assert f"also installed: {SAILOR}." in shown
    assert "5 of 6 queries are on the right side of 50%" in shown
    listed = upskill("runs").out
    assert re.search(r"Recall +Accuracy +Covers\n.* 56% +72%", listed)
    assert "Passes" not in listed  # a rate of 72% would look like answers that passed
    assert upskill("show", "last", "--json").code == 0
    upskill("eval", write_skill(six / "other"), *STUDENT)
    assert re.search(rf"{GREETER} .* 56% +72%", upskill("runs").out)


def test_a_narrow_terminal_wraps_the_queries_and_no_number(
    upskill: Upskill, six: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("upskill.cli.console.WIDTH_IN_A_PIPE", 60)
    lines = trigger(upskill, *STUDENT, "--store", "my runs").out.splitlines()
    assert max(map(len, lines)) <= 60
    assert any(line.split()[-4:] == ["yes", "100%", "(3/3)", "ok"] for line in lines)
    assert " --store 'my runs'" in " ".join(line.strip() for line in lines)


def test_the_same_command_runs_nothing_twice_and_goes_on_after_a_ceiling(
    upskill: Upskill, six: Path
) -> None:
    first = trigger(
        upskill, *STUDENT, "--set", "max_calls=7", "--concurrency", 1, "--require", "recall>=0"
    )
    assert first.code == 1
    assert "limit of 7 calls" in first.out
    assert "the run was stopped before it was complete" in " ".join(first.out.split())
    second = trigger(upskill, *STUDENT, "--set", "max_calls=11")
    assert second.code == 0, second.err
    assert "7 of 18 runs are stored" in second.err
    assert "limit of" not in second.err
    third = trigger(upskill, *STUDENT, "--set", "max_calls=0", "--json")
    assert third.json["models"][0]["scored"] == 18


def test_errored_runs_are_never_counted_and_too_many_of_them_end_with_3(
    upskill: Upskill, six: Path
) -> None:
    broken = [{"when": TEXTS[0], "seed": 1, "error": "the line is dead"}]
    write_script(six / "student.json", [*broken, *by_seed(FIRED, TEXTS)])
    done = trigger(upskill, *STUDENT, "--json")
    assert done.code == 0
    row = done.json["models"][0]["queries"][0]
    assert (row["triggered"], row["runs"], row["errored"], row["rate"]) == (2, 2, 1, 1.0)
    assert "the line is dead" in done.json["errors"][0]["message"]
    worse = [{"when": TEXTS[0], "error": "the line is dead"}]
    write_script(six / "worse.json", [*worse, *by_seed(FIRED, TEXTS)])
    done = trigger(upskill, "-m", "scripted:worse.json")
    assert done.code == 3
    assert "no run" in done.out
    assert "3 of 18 runs errored and are not counted" in done.out
    assert "the line is dead" in done.out


def test_a_requirement_that_does_not_hold_ends_with_1(upskill: Upskill, six: Path) -> None:
    held = trigger(
        upskill, *STUDENT, "--require", "point:precision>=0.8", "--require", "recall>=0.05"
    )
    assert held.code == 0, held.err
    failed = trigger(upskill, *STUDENT, "--require", "precision>=0.8")
    assert failed.code == 1
    assert (
        "scripted:student.json does not meet 'precision>=0.8': precision is 0.833, its lower bound"
        in " ".join(failed.out.split())
    )
    for wrong in (
        "lift>=0.1",
        "recall>=2x",
        "recall",
        "recall=0.5",
        "decision=helps",
        "recall>=much",
    ):
        assert trigger(upskill, *STUDENT, "--require", wrong).code == 2, wrong
    assert "Did you mean" in trigger(upskill, *STUDENT, "--require", "recal>=0.5").err


def test_two_students_are_reported_apart(upskill: Upskill, six: Path) -> None:
    write_script(six / "silent.json", by_seed({}, TEXTS))
    done = trigger(upskill, *STUDENT, "-m", "scripted:silent.json", "--repeats", 1)
    assert done.code == 0
    assert "scripted:silent.json" in done.out
    assert re.search(r"precision +\S.* –\n", done.out)


REFUSED: dict[str, tuple[tuple[object, ...], str]] = {
    "an agent without a catalog": (("--agent", "chat"), "the 'chat' agent has no skill catalog"),
    "no such agent": (("--agent", "tool"), "no agent named 'tool'"),
    "no teacher": (("--improve",), "--improve needs a teacher"),
    "no search": (("--write",), "--write needs --improve"),
    "two places": (
        ("--improve", "--teacher", "x", "--write", "-o", "y"),
        "cannot be used together",
    ),
    "two students": (("--improve", "--teacher", "x", "-m", "local"), "one student at a time"),
    "a requirement": (
        ("--improve", "--teacher", "x", "--require", "recall>=1"),
        "cannot be used together",
    ),
    "a bad name": (("--improve", "--teacher", "x", "-o", "out/My Skill"), "is not a valid name"),
    "a folder that is there": (
        ("--improve", "--teacher", "x", "-o", f"skills/{SAILOR}"),
        "already exists",
    ),
    "no such file": (("--queries", "none.json"), "none.json: No such file"),
    "no such skill": (("--with-skills", "none"), "none: cannot be read"),
    "a price": (("--max-cost", "1", "--base-url", "http://models.example/v1"), "is unknown"),
    "too few": (
        ("--improve", "--teacher", "scripted:student.json", "--queries", "few.json"),
        "only one query is marked should_trigger: ",
    ),
}


@pytest.mark.parametrize(("more", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_done_is_said_before_anything_is_run(
    upskill: Upskill, six: Path, more: tuple[object, ...], message: str
) -> None:
    done = trigger(upskill, *STUDENT, *more)
    assert done.code == 2, done.err
    assert message in done.err
    if (six / "runs").exists():
        with open_store(six / "runs") as store:
            assert not list(store.runs())


def test_notes_say_what_a_number_does_not(upskill: Upskill, six: Path) -> None:
    alone = upskill("trigger", f"skills/{GREETER}", *STUDENT, "--repeats", 1)
    assert "Only this skill is in the catalog" in alone.err
    (six / "due.json").write_text(json.dumps(SIX[:3]))
    done = trigger(upskill, *STUDENT, "--repeats", 1, "--queries", "due.json")
    assert "No query should not trigger, so precision is unknown." in done.err
    assert done.code == 0


def test_the_estimate_counts_every_attempt(house: Path) -> None:
    skill = Skill.load(house / "skills" / GREETER)
    queries = Queries.parse(WORLD)
    options = PlanOptions(agent="tools", runs=2, bounds=Bounds(3))
    plan = make_trigger_plan(skill, queries, ("scripted:x",), options)
    assert plan.bounds.until_activated
    prices = {
        "scripted:x": {"input": 1.0, "output": 2.0},
        "scripted:t": {"input": 1.0, "output": 2.0},
    }
    expected = estimate(plan, plan.trials(), prices)
    assert 0 < expected.cost_usd[0] < expected.cost_usd[1]
    improving = TriggerOptions(
        skill=str(skill.folder), students=("scripted:x",), repeats=2, attempts=4
    )
    session = TriggerSession(improving, None, Events(), resolve("scripted:t"))
    session.models = Models(ModelContext(prices=prices))
    whole = estimate_improvement(session, queries, resolve("scripted:t"))
    seen, last = len(TRAIN) + len(VALIDATION), len(TEST)
    assert whole.calls == 2 * MIN_TURNS * (5 * seen + 2 * last) + 3 * 4
    assert whole.cost_usd[0] < expected.cost_usd[0]
    both = make_trigger_plan(skill, queries, ("local", "scripted:x"))
    limits = {trial.model: both.output_limit(trial) for trial in both.trials()}
    assert limits == {"local": 64, "scripted:x": 4096}, (
        "what is short for one student is no limit of another"
    )


# Writing queries.


def written(due: int = 3, not_due: int = 3, *, name: str = "guest") -> str:
    return json.dumps(
        {
            "should_trigger": [f"Welcome {name} number {number}." for number in range(due)],
            "should_not_trigger": [
                f"List the goods of {name} number {number}." for number in range(not_due)
            ],
        }
    )


def test_a_skill_without_queries_gets_them_written_and_they_are_kept(
    upskill: Upskill, house: Path
) -> None:
    twice = json.dumps(
        {"should_trigger": ["Hello.", "hello."], "should_not_trigger": ["", "a house-greeter"]}
    )
    rules = [
        {"system": WRITES, "turn": 0, "answer": twice},
        {"system": WRITES, "turn": 1, "answer": written()},
    ]
    writer = write_script(house / "writer.json", rules)
    write_script(
        house / "student.json", [{"when": "Welcome", "calls": [ACTIVATE]}, {"answer": "Done."}]
    )
    done = trigger(upskill, *STUDENT, "--test-writer", writer, "--count", 6, "--repeats", 1)
    assert done.code == 0, done.err
    file = house / "skills" / GREETER / "evals" / "eval_queries.json"
    assert f"Wrote 6 queries to {file}" in done.err
    assert len(json.loads(file.read_text())) == 6
    with open_store(house / "runs") as store:
        asked = [request for role, request, _ in store.requests() if role == "test writer"]
    assert len(asked) == 2
    for words in (
        "appears twice",
        "has an empty request",
        "names the skill",
        "has 1 usable requests",
    ):
        assert words in max(asked, key=len)
    assert all(SAILOR in request for request in asked)
    again = trigger(upskill, *STUDENT, "--repeats", 1, "--json")
    assert again.json["models"][0]["precision"]["value"] == 1.0


def test_queries_that_never_hold_up_are_an_error_and_nothing_is_kept(
    upskill: Upskill, house: Path
) -> None:
    writer = write_script(house / "writer.json", [{"system": WRITES, "answer": written(3, 1)}])
    write_script(house / "student.json", [{"answer": "Done."}])
    done = trigger(upskill, *STUDENT, "--test-writer", writer, "--count", 6)
    assert done.code == 3
    assert "no usable answer after 3 attempts" in done.err
    assert not (house / "skills" / GREETER / "evals").exists()
    with open_store(house / "runs") as store:
        assert not list(store.requests())  # the next attempt asks again


def test_without_queries_and_without_a_writer_it_says_how_to_get_some(
    upskill: Upskill, house: Path
) -> None:
    write_script(house / "student.json", [{"answer": "Done."}])
    done = trigger(upskill, *STUDENT)
    assert done.code == 2
    assert "no queries" in done.err
    assert "--test-writer" in done.err


# A better description.


def improving(upskill: Upskill, server: Loopback, *more: object) -> Done:
    return trigger(
        upskill,
        *("-m", "student", "--base-url", server.url, "--repeats", 1),
        *("--improve", "--teacher", "scripted:teacher.json"),
        *more,
    )


def asked_in(server: Loopback) -> list[str]:
    """The query of each request that the student got, in order."""
    bodies = [json.dumps(logged.body) for logged in server.requests]
    return [row["query"] for body in bodies for row in WORLD if row["query"] in body]


def test_a_better_description_raises_recall_on_validation_and_the_test_part_is_read_once_at_the_end(
    upskill: Upskill, house: Path
) -> None:
    put_queries(house)
    write_teacher(house, GREEDY, WIDE)
    folder = house / "skills" / GREETER
    body = Skill.load(folder).body
    with serving(student) as server:
        done = improving(upskill, server, "--json", "--write")
        asked = asked_in(server)
    assert done.code == 0, done.err
    found = done.json["improvement"]
    assert found["improved"]
    assert found["description"] == WIDE
    first, greedy, wide = found["attempts"]
    # One of four welcomes on validation is a greeting; no goods are taken for one until the greedy description.
    assert (first["validation"]["recall"]["value"], first["validation"]["score"]) == (0.25, 0.625)
    assert (greedy["validation"]["recall"]["value"], greedy["validation"]["score"]) == (1.0, 0.5)
    assert (wide["validation"]["recall"]["value"], wide["validation"]["score"]) == (1.0, 1.0)
    assert [one["accepted"] for one in found["attempts"]] == [None, False, True]
    test = found["test"]
    assert (test["before"]["recall"]["value"], test["after"]["recall"]["value"]) == (
        pytest.approx(1 / 9, abs=1e-6),
        1.0,
    )
    assert test["change"]["value"] == pytest.approx(8 / 14, abs=1e-6)
    assert (test["change"]["interval"][0] > 0, test["number"], test["further_queries"]) == (
        True,
        1,
        None,
    )
    assert found["saved_to"] == str(folder)
    saved = Skill.load(folder)
    assert (saved.description, saved.body) == (WIDE, body)
    # The third part: in no request of the student before the end, there once for each description, in no prompt ever.
    seen = 3 * (len(TRAIN) + len(VALIDATION))
    assert not set(asked[:seen]) & set(TEST)
    assert set(asked[:seen]) == {*TRAIN, *VALIDATION}
    assert sorted(asked[seen:]) == sorted([*TEST, *TEST])
    with open_store(house / "runs") as store:
        prompts = [request for role, request, _ in store.requests() if role == "teacher"]
        runs = [{result.trial.case for result in store.results(run)} for run in store.runs()]
        candidates = list(store.candidates(GREETER))
    assert len(prompts) == 2
    for prompt in prompts:
        assert not [text for text in (*VALIDATION, *TEST) if text in prompt]
        assert all(text in prompt for text in of_part("welcome", "train", 2))
        assert not [
            text for text in (*of_part("greeting", "train", 2), *NOT_DUE) if text in prompt
        ]  # these went well
    assert sorted(GREEDY in prompt for prompt in prompts) == [False, True]  # what was tried before
    assert SAILOR in prompts[0]
    hidden = {Query(text, should_trigger=True).id for text in TEST}
    assert [bool(cases & hidden) for cases in runs] == [False, False, False, True, True]
    assert [one.accepted for one in candidates] == [True, False, True]
    assert done.json["spent"].keys() == {"teacher", "student"}


def test_a_search_that_was_stopped_goes_on_and_writes_nothing_before(
    upskill: Upskill, house: Path
) -> None:
    put_queries(house)
    write_teacher(house, WIDE)
    with serving(student) as server:
        stopped = improving(
            upskill,
            server,
            "--set",
            f"max_calls={len(TRAIN) + len(VALIDATION)}",
            "--write",
            "--json",
        )
        assert stopped.code == 0, stopped.err
        assert "limit" in stopped.json["halted"]
        assert stopped.json["improvement"]["test"] is None
        assert Skill.load(house / "skills" / GREETER).description == NARROW
        assert not set(asked_in(server)) & set(TEST)
        midway = improving(upskill, server, "--set", "max_calls=6", "--write", "--json")
        assert "limit" in midway.json["halted"]
        done = improving(upskill, server, "--write", "--json")
        assert len(asked_in(server)) == 2 * len(WORLD)  # each query once for each description
    assert done.json["improvement"]["improved"]
    assert Skill.load(house / "skills" / GREETER).description == WIDE


def test_where_nothing_is_better_the_older_stays_and_the_test_part_is_unused(
    upskill: Upskill, house: Path
) -> None:
    put_queries(house)
    other = "Greets whoever comes. Use when a greeting is asked for."
    write_teacher(house, other, GREEDY, other)
    with serving(student) as server:
        done = improving(upskill, server, "--attempts", 3, "--write")
        asked = asked_in(server)
    assert done.code == 0, done.err
    assert "None was better on validation queries. The test queries were not used." in done.out
    assert "Descriptions tried: 3; the search ended: all attempts are used." in done.out
    assert "not kept: the same as one that was tried before" in done.err
    assert not set(asked) & set(TEST)
    assert len(asked) == 3 * (
        len(TRAIN) + len(VALIDATION)
    )  # the third is the first again, and was not run
    assert Skill.load(house / "skills" / GREETER).description == NARROW


def test_what_only_validation_queries_prefer_is_not_written(upskill: Upskill, house: Path) -> None:
    put_queries(house, world(*of_part("greeting", "test", 6), *of_part("welcome", "test", 2)))
    write_teacher(house, WIDE)
    with serving(student) as server:
        for more in (("--write",), ("-o", "better")):
            done = improving(upskill, server, *more, "--json")
            found = done.json["improvement"]
            assert (done.code, found["improved"], found["saved_to"], found["description"]) == (
                0,
                False,
                None,
                NARROW,
            )
            assert [one["accepted"] for one in found["attempts"]] == [None, True]
            assert found["test"]["change"]["value"] == pytest.approx(2 / 13, abs=1e-6)
        shown = improving(upskill, server, "--write").out
    assert Skill.load(house / "skills" / GREETER).description == NARROW
    assert not (house / "better").exists()
    assert (
        f"not shown to be better; about {2 * found['test']['further_queries']} more queries would show"
        in " ".join(shown.split())
    )
    assert "Nothing was written: the description is unchanged." in shown
    assert "The rejected description:" in shown
    assert WIDE[:40] in shown


def test_too_few_queries_for_any_result_are_refused_before_anything_is_paid(
    upskill: Upskill, house: Path
) -> None:
    put_queries(
        house,
        [
            row
            for row in WORLD
            if row["query"] in (*DUE[:2], *DUE_TEST[:2], *NOT_DUE, *NOT_DUE_TEST[:2])
        ],
    )
    write_teacher(house, WIDE)
    with serving(student) as server:
        done = improving(upskill, server, "--write")
        assert (done.code, len(server.requests)) == (2, 0)
        assert "4 test queries are too few to show that any description is better" in done.err
        assert "At least 5 are needed" in done.err
        (house / "skills" / GREETER / "evals" / "eval_queries.json").unlink()
        done = improving(upskill, server, "--count", 8)
        assert (done.code, len(server.requests)) == (2, 0)
        assert "8 queries are too few for a test" in done.err
        assert "Use --count 10 or more." in done.err


def test_every_further_description_that_is_tested_on_the_same_queries_widens_the_interval(
    upskill: Upskill, house: Path
) -> None:
    put_queries(house)
    levels: list[tuple[int, float]] = []
    with serving(student) as server:
        for text in (WIDE, f"{WIDE} Ask it.", WIDE):  # the last is the first search again
            write_teacher(house, text)
            test = improving(upskill, server, "--json").json["improvement"]["test"]
            levels.append((test["number"], test["change"]["level"]))
        again = improving(upskill, server, "--json", "--seed", 100).json["improvement"][
            "test"
        ]  # other draws
    assert levels == [(1, 0.92), (2, pytest.approx(0.99)), (1, 0.92)]
    assert again["number"] == 3


def test_a_run_that_errored_counts_against_the_new_description() -> None:
    right = {text: (text < "e",) for text in "abcdefgh"}
    wrong = {text: (text >= "e",) for text in "abcdefgh"}
    for errored, value, is_better in (("", 1.0, True), ("abc", 0.625, True), ("abcd", 0.5, False)):
        lost: dict[str, Sequence[bool | None]] = {
            text: (None,) if text in errored else (right[text]) for text in right
        }
        for before, after in ((wrong, lost), ({**wrong, **dict.fromkeys(errored, (None,))}, right)):
            change = paired_change(outcomes(before, EIGHT), outcomes(after, EIGHT), level=0.95)
            assert change is not None
            assert (change.estimate.value, change.is_better) == (value, is_better)


def test_an_answer_that_breaks_a_rule_is_asked_for_again_with_what_was_wrong(
    upskill: Upskill, house: Path
) -> None:
    put_queries(house)
    repeated = f"Greets. Use when someone says: {of_part('welcome', 'train', 1)[0]}"
    rules = [
        {"system": REWRITES, "seed": 1, "turn": 0, "answer": description("I greet people.")},
        {"system": REWRITES, "seed": 1, "turn": 1, "answer": description("Greets. " * 200)},
        {"system": REWRITES, "seed": 1, "turn": 2, "answer": description(repeated)},
        {"system": REWRITES, "seed": 2, "turn": 0, "answer": description(" ")},
        {"system": REWRITES, "seed": 2, "turn": 1, "answer": description("Greets <everyone>.")},
        {"system": REWRITES, "seed": 2, "turn": 2, "answer": description(WIDE)},
    ]
    write_script(house / "teacher.json", rules)
    with serving(student) as server:
        done = improving(upskill, server, "-o", "better/house-welcomer")
    assert done.code == 0, done.err
    assert "not kept: no usable description was proposed" in done.err
    assert f"Saved to {Path('better/house-welcomer')}" in done.out
    saved = Skill.load(house / "better" / "house-welcomer")
    assert (saved.name, saved.description) == ("house-welcomer", WIDE)
    assert not [problem for problem in saved.problems("strict") if problem.level == "error"]
    assert Skill.load(house / "skills" / GREETER).description == NARROW
    for text in (
        "  test ",
        "+57 points (+22 to +80; 92% interval, p = 0.008): better.",
        WIDE[:40],
        "Spent: ",
    ):
        assert text in done.out
    with open_store(house / "runs") as store:
        everything = "\n".join(
            request for role, request, _ in store.requests() if role == "teacher"
        )
    for text in (
        "not in the third person",
        "at most 1024 are allowed",
        "is empty",
        "angle brackets",
    ):
        assert text in everything


def test_a_student_that_cannot_be_asked_ends_the_search(upskill: Upskill, house: Path) -> None:
    put_queries(house)
    write_teacher(house, WIDE)
    write_script(house / "student.json", [{"error": "nobody is there"}])
    done = trigger(upskill, *IMPROVE)
    assert done.code == 3
    assert "the current description cannot be measured" in done.err
    assert "nobody is there" in done.err


def test_a_candidate_whose_runs_error_is_not_chosen(upskill: Upskill, house: Path) -> None:
    put_queries(house)
    write_teacher(house, WIDE)
    rules = [
        {"system": WIDE, "error": "too long"},
        {"when": "the greeting of", "turns": [{"calls": [ACTIVATE]}]},
        {"answer": "Done."},
    ]
    write_script(house / "student.json", rules)
    done = trigger(upskill, *IMPROVE, "--attempts", 1, "--json")
    assert done.code == 0
    assert not done.json["improvement"]["improved"]
    assert done.json["improvement"]["attempts"][1]["accepted"] is None
    assert "too long" in done.json["errors"][0]["message"]


def test_a_description_without_a_fault_is_left_alone(upskill: Upskill, house: Path) -> None:
    put_queries(house)
    write_teacher(house, WIDE)
    everything = [
        {"when": f"the {kind} of", "turns": [{"calls": [ACTIVATE]}]}
        for kind in ("greeting", "welcome")
    ]
    write_script(house / "student.json", [*everything, {"answer": "Done."}])
    done = trigger(upskill, *IMPROVE)
    assert done.code == 0
    assert "Descriptions tried: 0; the search ended: nothing is left to gain." in done.out


# From Python.


def test_a_library_user_measures_what_the_command_measures(upskill: Upskill, six: Path) -> None:
    options = TriggerOptions(
        skill=f"skills/{GREETER}",
        with_skills=("skills",),
        students=("scripted:student.json",),
        requirements=("recall>=0.9",),
        store="others",
    )
    results: list[Result] = []
    estimates: list[int] = []
    started: list[tuple[bool, int]] = []
    events = Events(
        started=lambda _plan, run, missing: started.append((run.resumed, len(missing))),
        result=results.append,
        estimate=lambda expected: estimates.append(expected.calls),
    )
    found = asyncio.run(measure(options, events=events))
    assert (started, len(results), estimates) == ([(False, 18)], 18, [36])
    asyncio.run(measure(options, events=events))
    assert started[1:] == [(True, 0)]
    assert [(model, ruling.held) for model, ruling in found.rulings] == [
        ("scripted:student.json", False)
    ]
    done = trigger(upskill, *STUDENT, "--require", "recall>=0.9", "--json")
    assert done.code == 1
    assert report_triggered(found).data == done.json
    with open_store("mine") as store:
        asyncio.run(measure(options, store=store))
        assert len(list(store.runs())) == 1


def test_a_library_user_improves_a_description_like_the_command(
    upskill: Upskill, house: Path
) -> None:
    put_queries(house)
    write_teacher(house, GREEDY, WIDE)
    with serving(student) as server:
        options = TriggerOptions(
            skill=f"skills/{GREETER}",
            with_skills=("skills",),
            students=("student",),
            base_url=server.url,
            teacher="scripted:teacher.json",
            repeats=1,
        )
        messages: list[str] = []
        found = asyncio.run(improve_description(options, events=Events(message=messages.append)))
        calls = len(server.requests)
        again = improving(upskill, server, "--json")  # the same search asks nobody
        assert len(server.requests) == calls
    assert found.improved
    assert found.skill.description == WIDE
    assert found.saved_to is None
    assert found.spent.keys() == {"teacher", "student"}
    data = dict_or_empty(report_improvement(found).data)
    assert data | {"spent": {}} == again.json
    assert (
        messages[0] == f"Running the current description: {len(TRAIN) + len(VALIDATION)} queries..."
    )
    assert messages[3].endswith("validation 50%: not kept (It forgot a word.)")
    assert messages[5].endswith("validation 100%: kept (It forgot a word.)")
    assert Skill.load(house / "skills" / GREETER).description == NARROW


def test_models_that_are_given_answer_and_count(six: Path) -> None:
    options = TriggerOptions(
        skill=f"skills/{GREETER}", students=("scripted:student.json",), repeats=1, log_runs=False
    )
    models = Models(ModelContext(), ledger=Ledger())
    found = asyncio.run(measure(options, models=models))
    assert models.ledger is not None
    assert models.ledger.calls == len(SIX)
    assert found.metrics[0].scored == len(SIX)
    assert found.spent.keys() == {"student"}
    assert not (six / "runs").exists()


# The example we ship.


def test_the_first_example_has_queries_for_a_search_and_a_skill_to_stand_beside() -> None:
    examples = REPOSITORY / "examples"
    queries = Queries.of(Skill.load(examples / "kernel-builder-cuda-kernels"))
    assert queries is not None
    assert (len(queries.should_trigger), len(queries.should_not_trigger)) == (10, 10)
    check_parts(queries)
    (distractors,) = load_skills([str(examples / "distractors")])
    assert distractors.problems("strict") == []
