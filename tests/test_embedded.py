"""What surrounds the embedded model: room for servers, steps of a prompt, repetition, limits and keys."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conftest import write_skill
from upskill import Skill, Suite, make_plan
from upskill.models import Message, Request, Tool
from upskill.models.addresses import resolve
from upskill.models.cache import request_key
from upskill.models.embedded import capacity, local_models
from upskill.models.embedded.capacity import Capacity, capacity_for
from upskill.models.embedded.client import StreamedAnswer, is_repeating
from upskill.models.embedded.local import SavedStates, state_name, steps_to
from upskill.runs.planning.plan import Plan, PlanOptions, Trial, fitting_limit
from upskill.suites import Case

GIB = 1 << 30


@pytest.mark.parametrize(
    ("cores", "free", "asked", "expected"),
    [
        (2, 20 * GIB, 0, Capacity(2, 32_768)),
        (2, 20 * GIB, 5, Capacity(5, 32_768)),  # asked for more than there are cores
        (16, 64 * GIB, 0, Capacity(16, 32_768)),
        (16, 8 * GIB, 0, Capacity(16, 11_264)),  # contexts get shorter before servers get fewer
        (16, 4 * GIB, 0, Capacity(8, 8_960)),
        (2, 1 * GIB, 0, Capacity(1, 4_096)),  # too little for anything: one server, and a try
        (1, 20 * GIB, 0, Capacity(1, 32_768)),
    ],
)
def test_there_are_as_many_servers_as_cores_and_memory_allow(
    monkeypatch: pytest.MonkeyPatch, cores: int, free: int, asked: int, expected: Capacity
) -> None:
    monkeypatch.setattr(capacity, "usable_cores", lambda: cores)
    monkeypatch.setattr(capacity, "available_memory", lambda: free)
    assert capacity_for(491_400_064, 12_288, 32_768, asked) == expected


def test_this_machine_has_a_core_and_memory() -> None:
    assert capacity.usable_cores() >= 1
    assert capacity.available_memory() > 64 << 20


REPEATING = {
    "a word": "And so it is: " + "echo " * 60,
    "a line": "The steps:\n" + "- Run the build again.\n" * 12,
    "two lines": "It is " + "yes, it is.\nno, it is not.\n" * 12,
    "blanks": "The answer is 5.\n" + "\n" * 130,
    "spaces": "{" + " " * 200,
}
HONEST = {
    "nothing": "",
    "a table": "| name | value |\n|---|---|\n"
    + "".join(f"| row {number} | {number * 7} |\n" for number in range(40)),
    "a ruler": "Title\n" + "=" * 80 + "\ntext",
    "zeros": "weights = [" + "0, " * 40 + "1]",
    "code": "\n".join(f"    self.field_{name} = {name}" for name in "abcdefghijklmnopqrst"),
    "said three times": "Run `kernel-builder build` and wait for it to end. " * 3,
}


@pytest.mark.parametrize("text", REPEATING.values(), ids=REPEATING)
def test_repetition_is_seen(text: str) -> None:
    assert is_repeating(text)


@pytest.mark.parametrize("text", HONEST.values(), ids=HONEST)
def test_what_only_looks_alike_goes_on(text: str) -> None:
    assert not any(is_repeating(text[:end]) for end in range(len(text) + 1))


SYSTEM, USER = Message("system", "Be brief."), Message("user", "Hello?")
LIST = Tool("list", "List files.", {"type": "object", "properties": {}, "required": []})


def turn(number: int) -> tuple[Message, Message]:
    return Message("assistant", f"turn {number}"), Message(
        "tool", f"result {number}", call_id=str(number)
    )


@pytest.mark.parametrize(
    ("request_", "ends"),
    [
        (Request((USER,)), []),
        (Request((SYSTEM, USER)), [1]),
        (Request((SYSTEM, USER), tools=(LIST,)), [1, 2]),
        (Request((SYSTEM, USER, *turn(1)), tools=(LIST,)), [1, 2, 4]),
        (Request((SYSTEM, USER, *turn(1), *turn(2)), tools=(LIST,)), [1, 2, 4, 6]),
    ],
)
def test_a_prompt_is_read_in_steps_that_earlier_turns_have_read(
    request_: Request, ends: list[int]
) -> None:
    steps = steps_to(request_)
    assert [len(step.messages) for step in steps] == ends
    assert all(step.messages == request_.messages[: len(step.messages)] for step in steps)
    assert all((step.max_output_tokens, step.schema) == (0, None) for step in steps)


def test_the_steps_of_a_turn_begin_with_those_of_the_turn_before() -> None:
    before = Request((SYSTEM, USER, *turn(1)), seed=1, tools=(LIST,))
    after = Request((SYSTEM, USER, *turn(1), *turn(2)), seed=2, temperature=0.5, tools=(LIST,))
    names = [[state_name(step) for step in steps_to(one)] for one in (before, after)]
    assert names[1][: len(names[0])] == names[0]
    assert state_name(steps_to(replace(before, tools=()))[0]) != names[0][0]


def test_states_that_are_least_used_go_when_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("upskill.models.embedded.local.MAX_STATE_BYTES", 250)
    states = SavedStates()
    try:
        for name in "abc":
            (states.folder / name).write_bytes(b"x" * 100)
            states.add(name)
            states.use("a")
        assert list(states.sizes) == ["c", "a"]
        assert sorted(file.name for file in states.folder.iterdir()) == ["a", "c"]
    finally:
        states.close()
    assert not states.folder.exists()


def test_an_answer_is_put_together_from_its_pieces() -> None:
    answer = StreamedAnswer()
    deltas: list[dict[str, Any]] = [
        {"role": "assistant", "content": None},
        {"content": "Let me "},
        {"content": "look."},
        {
            "tool_calls": [
                {"index": 0, "id": "x", "function": {"name": "list", "arguments": '{"path": '}}
            ]
        },
        {"tool_calls": [{"index": 0, "function": {"arguments": '"src"}'}}]},
    ]
    for delta in deltas:
        answer.add(
            {
                "choices": [{"delta": delta, "finish_reason": None}],
                "timings": {"prompt_n": 3, "predicted_n": 9},
            }
        )
    document = answer.as_document()
    message = document["choices"][0]["message"]
    assert message["content"] == "Let me look."
    assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == {"path": "src"}
    assert document["usage"]["completion_tokens"] == 9  # it was stopped before the server said so


def case(**fields: Any) -> Case:
    checks = fields.pop("checks", [{"contains": "yes"}])
    suite = Suite.parse({"cases": [{"prompt": "Say yes.", "checks": checks, **fields}]}, "test")
    return suite.cases[0]


@pytest.mark.parametrize(
    ("fields", "acts", "tokens"),
    [
        ({}, False, 256),
        ({}, True, 512),
        ({"reference": "yes, " * 200}, False, 1000),
        ({"reference": "yes, " * 2000}, False, 4096),
        ({"checks": [{"contains": "7" * 400}]}, False, 400),
        (
            {"checks": [{"contains": "yes"}, {"max_length": {"characters": 100, "brief": True}}]},
            False,
            216,
        ),
        (
            {"checks": [{"contains": "yes"}, {"max_length": {"characters": 100, "brief": True}}]},
            True,
            512,
        ),
        (
            {"checks": [{"contains": "yes"}, {"max_length": 100}]},
            False,
            256,
        ),  # a longer answer is no failure
        ({"right": ["yes, " * 100]}, False, 500),
        ({"max_words": 150}, False, 600),  # twice the room that its words take
        ({"max_words": 20}, False, 256),
    ],
)
def test_an_embedded_model_gets_as_much_room_as_the_case_needs(
    fields: dict[str, Any], acts: bool, tokens: int
) -> None:
    assert fitting_limit(case(**fields), acts=acts) == tokens


def plan(folder: Path, *models: str, **options: Any) -> Plan:
    suite = {"cases": [{"id": "one", "prompt": "Say yes.", "checks": [{"contains": "yes"}]}]}
    skill = Skill.load(write_skill(folder / "skill", suite=suite))
    return make_plan(skill, models=models, options=PlanOptions(keys={}, **options))


def test_only_embedded_models_have_a_limit_by_case(tmp_path: Path) -> None:
    found = plan(tmp_path, "local", "haiku")
    assert found.output_limit(Trial("local", "one", "skill", 0)) == 256
    assert found.output_limit(Trial("haiku", "one", "skill", 0)) == 4096
    suite = Suite.parse(
        {
            "max_output_tokens": 50,
            "cases": [
                {"id": "one", "prompt": "Say yes.", "checks": [{"contains": "yes"}]},
                {
                    "id": "two",
                    "prompt": "Say much.",
                    "checks": [{"contains": "yes"}],
                    "max_output_tokens": 700,
                },
            ],
        }
    )
    for options, limits in (
        (PlanOptions(keys={}), [50, 700]),
        (PlanOptions(keys={}, max_output_tokens=33), [33, 33]),
    ):
        by_case = make_plan(found.skill, suite, ("local", "haiku"), options)
        for model in ("local", "haiku"):
            assert [
                by_case.output_limit(Trial(model, case, "skill", 0)) for case in ("one", "two")
            ] == limits
    stated = plan(tmp_path, "local", max_output_tokens=33)
    assert stated.output_limit(Trial("local", "one", "skill", 0)) == 33


def test_what_local_means_is_part_of_a_trials_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = Trial("local", "one", "skill", 0)
    request = Request((USER,))
    before = plan(tmp_path, "local").key(trial), request_key(resolve("local"), request)
    rows = local_models.LOCAL_MODELS
    other = replace(rows[local_models.DEFAULT_LOCAL_MODEL], sha256="0" * 64)
    monkeypatch.setitem(rows, local_models.DEFAULT_LOCAL_MODEL, other)
    after = plan(tmp_path, "local").key(trial), request_key(resolve("local"), request)
    assert before[0] != after[0]
    assert before[1] != after[1]


def test_a_file_of_ones_own_is_known_by_what_is_in_it(tmp_path: Path) -> None:
    file = tmp_path / "x.gguf"
    name = f"local:{file}"
    keys: list[str] = []
    for content in (b"GGUF one", b"GGUF two", b"GGUF one"):
        file.unlink(missing_ok=True)
        file.write_bytes(content)
        keys.append(plan(tmp_path, name).key(Trial(name, "one", "skill", 0)))
    assert keys[0] == keys[2] != keys[1]
