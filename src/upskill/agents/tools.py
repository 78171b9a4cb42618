"""`tools`: our own small loop. The skill is in a catalog, and the model works in a sandbox until it answers.

It repeats chat, tool calls and results until there is an answer or a bound on turns, tokens or time is reached. At a
bound, the work so far is judged, and `Trace.stop` names the bound. If a tool fails, the model sees the error.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from upskill.agents import SYSTEM, Bounds, Student, Task, runnable_files, skill_files
from upskill.agents.activation import activated
from upskill.agents.catalog import SKILLS_FOLDER, catalog_prompt
from upskill.agents.tool_calling import Turn, tool_calling_for
from upskill.agents.toolbox import MAX_RESULT, Toolbox
from upskill.errors import AgentError, TrialError
from upskill.models import Message, Model, Reply, Request
from upskill.traces import NO_USAGE, Step, Trace

if TYPE_CHECKING:
    from upskill.sandboxes import Setup

log = logging.getLogger(__name__)

# The same in both arms.
WORKSPACE_PROMPT = (
    "You work in a workspace, which is the current folder, with the tools you are given. Do what the task asks for "
    "with them, and answer when it is done."
)


class Tools:
    """Shows the catalog, runs the tools that the model calls, and records every step.

    `system` comes before the catalog; another one lets the same loop do other work.
    """

    needs_sandbox: ClassVar[bool] = True

    def __init__(self, system: str = f"{SYSTEM}\n{WORKSPACE_PROMPT}") -> None:
        self.system = system

    def setup(self, task: Task) -> Setup:
        from upskill.sandboxes import Setup  # noqa: PLC0415 - only if there is a sandbox

        return Setup(
            files=task.files,
            home_files=skill_files(task.offered_skills, SKILLS_FOLDER),
            runnable=runnable_files(task.offered_skills, SKILLS_FOLDER),
        )

    async def run(self, task: Task, student: Student) -> Trace:
        if student.sandbox is None:
            raise AgentError("the agent 'tools' was given no sandbox to work in")
        loop = _Loop(task, student, self.system)
        try:
            return await loop.run()
        except TrialError as error:  # the turns so far were paid for
            error.usage = loop.usage + (error.usage or NO_USAGE)
            raise


class _Loop:
    """The work on one task."""

    def __init__(self, task: Task, student: Student, system: str) -> None:
        assert student.sandbox is not None
        folder = f"{student.sandbox.home}/{SKILLS_FOLDER}"
        self.task = task
        self.model: Model = student.model
        self.is_embedded = student.address.provider == "local"
        self.toolbox = Toolbox(student.sandbox, task.offered_skills, folder)
        self.calling = tool_calling_for(student.address, self.toolbox.tools, task.max_output_tokens)
        self.toolbox.max_result = self.calling.max_result or MAX_RESULT
        parts = [system, self.calling.instructions, catalog_prompt(task.offered_skills, folder)]
        self.messages = [
            Message("system", "\n\n".join(part for part in parts if part)),
            Message("user", task.prompt.strip()),
        ]
        self.steps: list[Step] = []
        self.on_step = student.on_step
        self.replay = student.replay
        self.usage = NO_USAGE
        self.turns = 0
        self.model_name = ""
        self.stop_details = ""
        self.deadline = time.monotonic() + task.bounds.seconds

    async def run(self) -> Trace:
        stop = ""
        while not stop:
            reply = await self._ask()
            if reply is None:
                stop = "seconds"
                break
            if reply.stop in ("refusal", "context") and not reply.calls:
                self._add(Step("assistant", reply.text))
                stop, self.stop_details = reply.stop, reply.stop_details
                break
            turn = self.calling.read(reply)
            tokens = f"{reply.usage.input_tokens} + {reply.usage.output_tokens} tokens"
            names = ", ".join(call.name for call in turn.calls)
            log.debug("turn %d: %s, %s", self.turns, tokens, f"calls {names}" if names else "answer")
            if reply.thoughts:
                self._add(Step("thinking", reply.thoughts))
            if turn.text or not turn.calls:
                self._add(Step("assistant", turn.text))
            if not turn.calls:
                stop = turn.stop
                break
            self.messages += self.calling.next_messages(reply, turn, await self._run_calls(turn))
            stop = self._bound_reached()
        return Trace(
            tuple(self.steps),
            self.usage,
            stop or "end",
            self.model_name,
            turns=self.turns,
            stop_details=self.stop_details,
        )

    async def _ask(self) -> Reply | None:
        """The next reply of the model; None if time runs out first."""
        request = Request(
            self.calling.fit(self.messages),
            max_output_tokens=self.task.max_output_tokens,
            temperature=self.task.temperature,
            seed=self.task.seed,
            schema=self.calling.schema,
            tools=self.calling.tools,
        )
        self.turns += 1
        asked = time.monotonic()
        # How long an embedded model takes says how busy this machine is, so it does not count.
        timeout = asyncio.timeout(None if self.is_embedded else self._seconds_left)
        try:
            async with timeout:
                reply = await self.model.reply(request)
        except TimeoutError:
            if timeout.expired():
                return None
            raise
        if self.is_embedded:
            self.deadline += time.monotonic() - asked
        self.usage = self.usage + reply.usage
        self.model_name = reply.model or self.model_name
        return reply

    async def _run_calls(self, turn: Turn) -> Sequence[Step]:
        steps: list[Step] = []
        for call in turn.calls:
            if turn.stop in ("length", "repetition", "context"):  # the end of its arguments may be missing
                why = "for repeating itself" if turn.stop == "repetition" else "where there was no more room"
                why = f"after {self.task.max_output_tokens} tokens" if turn.stop == "length" else why
                words = f"Not carried out: your turn was cut off {why}. Write less."
                step = Step("tool", tool=call.name, arguments=call.arguments, output=words, status="error")
            elif self._seconds_left <= 0:
                step = Step("tool", tool=call.name, arguments=call.arguments, output="Not carried out: time is up.")
            elif not self.replay or (step := self.replay(call)) is None:
                step = await self.toolbox.run(call, self._seconds_left)
            steps.append(step)
            self._add(step)
        return steps

    def _add(self, step: Step) -> None:
        self.steps.append(step)
        if self.on_step:
            self.on_step(step)

    @property
    def _seconds_left(self) -> float:
        return self.deadline - time.monotonic()

    def _bound_reached(self) -> str:
        """The bound that is reached; empty if none is."""
        bounds: Bounds = self.task.bounds
        skill = self.task.skill
        if bounds.until_activated and skill and activated(Trace(tuple(self.steps)), skill.name):
            return "activated"
        if self.turns >= bounds.turns:
            return "turns"
        if bounds.tokens is not None and self.usage.total_tokens >= bounds.tokens:
            return "tokens"
        return "seconds" if self._seconds_left <= 0 else ""
