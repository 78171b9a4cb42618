"""Which teachers work on this machine. Without a key of Anthropic's, none is the default."""

from __future__ import annotations

import asyncio
import shlex
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from upskill.authoring.material.material import Tools, read_tools
from upskill.authoring.options import GenerateOptions
from upskill.errors import UsageError
from upskill.models import Address
from upskill.models.addresses import ALIASES, resolve
from upskill.models.endpoints import ENDPOINTS
from upskill.models.keys import find_keys
from upskill.models.pool import Models
from upskill.models.servers import find_servers
from upskill.settings import Settings
from upskill.skills.agent_specs import AGENT_SPECS

KEYS = {"anthropic": ("ANTHROPIC_API_KEY",)} | {
    name: row.key_variables for name, row in ENDPOINTS.items() if row.key_required
}
AGENTS = [spec for spec in AGENT_SPECS.values() if spec.model]
NEEDED = (
    f"an agent on the PATH ({', '.join(spec.program for spec in AGENTS)}), a key (ANTHROPIC_API_KEY, OPENAI_API_KEY,"
    " HF_TOKEN, …), or a server on this machine"
    f" ({', '.join(name for name, row in ENDPOINTS.items() if row.prices == 'free')})"
)

Choice = tuple[str, str]  # what to type, and why it works
HANDOFF: Choice = ("--handoff DIR", "writes the prompts to files, for you or any agent to answer")
HANDOFF_MODEL: Choice = ("-m handoff:DIR", HANDOFF[1])  # where there is no such flag


def teacher_name(options: GenerateOptions, keys: Mapping[str, str]) -> str:
    """Empty if none was named and no key stands for one."""
    usual = "sonnet" if keys.get("ANTHROPIC_API_KEY") else ""
    return options.teacher or options.settings.teacher or usual


def find_test_writer(settings: Settings, keys: Mapping[str, str]) -> str:
    """Who writes test cases where nobody is named; empty for nobody."""
    usual = "sonnet" if keys.get("ANTHROPIC_API_KEY") else ""
    return settings.test_writer or settings.teacher or usual


def add_command(skill: str, settings: Settings, keys: Mapping[str, str]) -> str:
    """What appends cases to the suite of a skill, with {} for their number; empty where nobody writes any."""
    return (
        f"upskill tests {shlex.quote(skill)} --add {{}}" if find_test_writer(settings, keys) else ""
    )


# Who may answer a prompt of each role.
CHATS = {
    "skill": "in a chat of its own, which sees no tests",
    "tests": "in a chat of its own, which never sees the skill",
    "answers": "in a chat of its own, which has seen neither the checks nor the skill",
    "checks": "in the chat that wrote the tests, or a new one",
    "revision": "in the chat that wrote the skill, or a new one",
}


def describe_chats(files: Iterable[str]) -> list[str]:
    """Of prompts that wait for an answer, which need a chat of their own."""
    lines: list[str] = []
    for file in files:
        round_and_role = Path(file).name.rpartition("-")[0]
        if chat := CHATS.get(round_and_role.partition("-")[2]):
            lines.append(f"{round_and_role}: {chat}")
    return lines


class NoTeacher(UsageError):
    """Nobody was named to write the skill, or its tests. The hint lists what works here, `own_ways` without a model."""

    def __init__(
        self,
        keys: Mapping[str, str],
        own_ways: Iterable[Choice] = (HANDOFF,),
        *,
        role: str = "teacher",
    ) -> None:
        choices = [*own_ways, *_find_choices(keys)]
        width = max(len(flag) for flag, _ in choices)
        lines = "".join(f"\n    {flag:<{width}}  {why}" for flag, why in choices)
        super().__init__(
            f"no {role} was chosen, so nothing was run",
            f"What works here:{lines}\n  What works anywhere: {NEEDED}.",
        )


def _find_choices(keys: Mapping[str, str]) -> Iterator[Choice]:
    for spec in AGENTS:
        if shutil.which(spec.program):
            yield f"-m {spec.name}", f"`{spec.program}` is installed"
    for provider, variables in KEYS.items():
        if name := next((name for name in variables if keys.get(name)), ""):
            alias = next(
                (alias for alias, full in ALIASES.items() if full.startswith(f"{provider}:")), ""
            )
            yield f"-m {alias or f'{provider}:MODEL'}", f"{name} is set"
    for server in find_servers(keys):
        if server.is_running:
            yield (
                f"-m {server.name}:{server.models[0] if server.models else 'MODEL'}",
                f"answers at {server.url}",
            )


def choose_teacher(options: GenerateOptions, keys: Mapping[str, str]) -> Address:
    if options.handoff:
        if options.teacher:
            raise UsageError(
                "--handoff and -m (--teacher) cannot be used together", "Drop one of them."
            )
        return resolve(f"handoff:{options.handoff}")
    return resolve(teacher_name(options, keys), keys=keys)


async def check_start(options: GenerateOptions, models: Models | None) -> list[Tools]:
    """The tools that were given, each server asked once; NoTeacher or UsageError before anything is run."""
    if options.no_eval and (options.student or options.base_url):
        raise UsageError(
            "--no-eval and --student cannot be used together: without an evaluation, there is no student to test",
            "Drop one of them.",
        )
    keys = models.context.keys if models else find_keys()
    if not (options.handoff or teacher_name(options, keys)):
        raise await asyncio.to_thread(NoTeacher, keys)
    return [await asyncio.to_thread(read_tools, name) for name in options.tools]
