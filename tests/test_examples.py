"""The examples we ship: valid skills, and suites that tell knowing from not knowing."""

from __future__ import annotations

import asyncio
import re
import shlex

import click
import pytest
import skills_ref

from conftest import REPOSITORY
from upskill import Skill, Suite
from upskill.cli import upskill as command_line
from upskill.runs.replay.receipt import verify
from upskill.suites.near_duplicates import near_duplicates
from upskill.suites.quality import probe_suite

EXAMPLES = {
    "kernel-builder-cuda-kernels": 40,
    "kernel-builder": 30,
    "tern-deploy": 20,
    "tern": 24,
    "house-commit-messages": 20,
    "pidgin-language": 36,
    "lodge-desk": 14,
}


def example(name: str) -> tuple[Skill, Suite]:
    skill = Skill.load(REPOSITORY / "examples" / name)
    suite = Suite.of(skill)
    assert suite is not None
    return skill, suite


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_a_valid_skill(name: str) -> None:
    skill, _ = example(name)
    assert [problem for problem in skill.problems("strict") if problem.rule != "security"] == []
    assert skills_ref.validate(REPOSITORY / "examples" / name) == []


@pytest.mark.parametrize(("name", "cases"), EXAMPLES.items())
def test_its_suite_lets_no_answer_through_that_knows_nothing(name: str, cases: int) -> None:
    skill, suite = example(name)
    assert len(suite.cases) >= cases
    assert all(case.reference for case in suite.cases)
    assert [str(leak) for leak in asyncio.run(probe_suite(suite, skill))] == []
    assert near_duplicates(suite.cases) == []
    assert 0.2 < len(suite.held_out) / len(suite.cases) < 0.6


def test_the_first_example_has_the_size_that_works_best() -> None:
    skill, _ = example("kernel-builder-cuda-kernels")
    assert 400 <= skill.tokens <= 900


def test_the_skill_about_upskill_is_proven_and_every_command_in_it_and_its_suite_can_be_typed() -> (
    None
):
    skill = Skill.load(REPOSITORY / "skills" / "upskill")
    suite = Suite.of(skill)
    assert suite
    assert len(suite.cases) >= 12
    assert [problem for problem in skill.problems("strict") if problem.rule != "security"] == []
    assert skill.tokens <= 650
    assert asyncio.run(verify(skill)).changes == []
    commands = [case.reference for case in suite.cases if case.reference.startswith("upskill ")]
    commands += re.findall(r"`(upskill \w[^`]*)`", skill.body)
    assert len(commands) > 24
    context = click.Context(command_line)
    for name, *arguments in (shlex.split(re.sub(r"\bN\b", "2", text))[1:] for text in commands):
        command = command_line.get_command(context, name)
        assert command, name
        command.make_context(name, arguments)  # parses them
