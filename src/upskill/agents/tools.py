"""`tools`: our own small loop. The skill is in a catalog, and the model acts in a sandbox until it answers.

Chat, tool calls, results, and again, until an answer or a bound on turns, tokens or time. A bound ends the work and
nothing else: what was done until then is judged, and `Trace.stop` says which bound it was. A tool that fails is told
to the model.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from upskill.agents import SYSTEM, Bounds, Student, Task, runnable_files, skill_files
from upskill.agents.activation import activated
from upskill.agents.catalog import SKILLS, catalog
from upskill.agents.tool_calling import Turn, tool_calling_for
from upskill.agents.toolbox import MOST_SHOWN, Toolbox
from upskill.errors import AgentError, TrialError
from upskill.models import Message, Model, Reply, Request
from upskill.traces import NO_USAGE, Step, Trace

if TYPE_CHECKING:
    from upskill.sandboxes import Setup

# The same in both arms.
WORK = (
    "You work in a workspace, which is the current folder, with the tools you are given. Do what the task asks for "
    "with them, and answer when it is done."
)


class Tools:
    """Shows the catalog, carries out what the model calls for, and writes it all down.

    `system` stands before the catalog. It is there for those who have other work done by the same loop.
    """

    acts: ClassVar[bool] = True

    def __init__(self, system: str = f"{SYSTEM}\n{WORK}") -> None:
        self.system = system

    def setup(self, task: Task) -> Setup:
        from upskill.sandboxes import Setup  # noqa: PLC0415 - the page of agents is read where nothing acts

        return Setup(
            files=task.files,
            home_files=skill_files(task.offered, SKILLS),
            runnable=runnable_files(task.offered, SKILLS),
        )

    async def run(self, task: Task, student: Student) -> Trace:
        if student.sandbox is None:
            raise AgentError("the agent 'tools' was given no sandbox to work in")
        work = _Work(task, student, self.system)
        try:
            return await work.done()
        except TrialError as error:  # the turns before it were paid for
            error.usage = work.usage + (error.usage or NO_USAGE)
            raise


class _Work:
    """One task under way."""

    def __init__(self, task: Task, student: Student, system: str) -> None:
        assert student.sandbox is not None
        folder = f"{student.sandbox.home}/{SKILLS}"
        self.task = task
        self.model: Model = student.model
        self.toolbox = Toolbox(student.sandbox, task.offered, folder)
        self.calling = tool_calling_for(student.address, self.toolbox.tools, task.max_output_tokens)
        self.toolbox.most = self.calling.shown or MOST_SHOWN
        parts = [system, self.calling.words, catalog(task.offered, folder)]
        self.messages = [
            Message("system", "\n\n".join(part for part in parts if part)),
            Message("user", task.prompt.strip()),
        ]
        self.steps: list[Step] = []
        self.watch = student.watch
        self.usage = NO_USAGE
        self.turns = 0
        self.name = ""
        self.until = time.monotonic() + task.bounds.seconds

    async def done(self) -> Trace:
        stop = ""
        while not stop:
            reply = await self._ask()
            if reply is None:
                stop = "seconds"
                break
            said = self.calling.read(reply)
            if reply.thoughts:
                self._add(Step("thinking", reply.thoughts))
            if said.text or not said.calls:
                self._add(Step("assistant", said.text))
            if not said.calls:
                stop = said.stop
                break
            self.messages += self.calling.turn(reply, said, await self._carry_out(said))
            stop = self._bound()
        return Trace(tuple(self.steps), self.usage, stop or "end", self.name, turns=self.turns)

    async def _ask(self) -> Reply | None:
        """The next turn of the model; None where the time is up before it comes."""
        request = Request(
            self.calling.fitting(self.messages),
            max_output_tokens=self.task.max_output_tokens,
            temperature=self.task.temperature,
            seed=self.task.seed,
            schema=self.calling.schema,
            tools=self.calling.tools,
        )
        self.turns += 1
        patience = asyncio.timeout(self._left)
        try:
            async with patience:
                reply = await self.model.reply(request)
        except TimeoutError:
            if patience.expired():
                return None
            raise
        self.usage = self.usage + reply.usage
        self.name = reply.model or self.name
        return reply

    async def _carry_out(self, said: Turn) -> Sequence[Step]:
        steps: list[Step] = []
        for call in said.calls:
            if said.stop == "length":  # the end of its arguments may be missing
                words = (
                    f"Not carried out: your turn was cut off after {self.task.max_output_tokens} tokens. Write less."
                )
                step = Step("tool", tool=call.name, arguments=call.arguments, output=words, status="error")
            elif self._left <= 0:
                step = Step("tool", tool=call.name, arguments=call.arguments, output="Not carried out: time is up.")
            else:
                step = await self.toolbox.use(call, self._left)
            steps.append(step)
            self._add(step)
        return steps

    def _add(self, step: Step) -> None:
        self.steps.append(step)
        if self.watch:
            self.watch(step)

    @property
    def _left(self) -> float:
        return self.until - time.monotonic()

    def _bound(self) -> str:
        """The bound that is reached; empty where none is."""
        bounds: Bounds = self.task.bounds
        skill = self.task.skill
        if bounds.until_activated and skill and activated(Trace(tuple(self.steps)), skill.name):
            return "activated"
        if self.turns >= bounds.turns:
            return "turns"
        if bounds.tokens is not None and self.usage.total_tokens >= bounds.tokens:
            return "tokens"
        return "seconds" if self._left <= 0 else ""
