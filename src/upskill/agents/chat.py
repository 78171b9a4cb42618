"""`chat`: one question, one answer. In the skill arm, the skill's instructions are in the system prompt."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

from upskill.agents import SYSTEM, Student, Task
from upskill.models import Message, Request
from upskill.traces import Step, Trace

if TYPE_CHECKING:
    from upskill.sandboxes import Setup


class Chat:
    """Asks once. The requests of the two arms differ in the skill's body and nothing else."""

    needs_sandbox: ClassVar[bool] = False

    def setup(self, task: Task) -> Setup:
        from upskill.sandboxes import Setup  # noqa: PLC0415 - only if a check needs a sandbox

        return Setup(files=task.files)

    async def run(self, task: Task, student: Student) -> Trace:
        reply = await student.model.reply(chat_request(task))
        thoughts = (Step("thinking", reply.thoughts),) if reply.thoughts else ()
        steps = (*thoughts, Step("assistant", reply.text))
        return Trace(steps, reply.usage, reply.stop, reply.model, turns=1, stop_details=reply.stop_details)


def chat_request(task: Task) -> Request:
    body = task.skill.body if task.skill else None
    return Request(
        _with_files(body, task) if task.files else _messages(body, task.prompt),
        max_output_tokens=task.max_output_tokens,
        temperature=task.temperature,
        seed=task.seed,
    )


@lru_cache(maxsize=2_000)
def _messages(body: str | None, prompt: str) -> tuple[Message, Message]:
    """The same for every seed, made once."""
    return Message("system", SYSTEM if body is None else _system(body)), Message("user", prompt.strip())


def _with_files(body: str | None, task: Task) -> tuple[Message, Message]:
    """The same with the files in front of the prompt."""
    files = [f"{name}:\n```\n{text.rstrip()}\n```" for name, text in task.files.items()]
    system, user = _messages(body, task.prompt)
    return system, Message("user", "\n\n".join([*files, user.text]))


@lru_cache(maxsize=8)
def _system(body: str) -> str:
    """The same text for all trials of an arm, so that its hash and its JSON are made once."""
    return f"{SYSTEM}\n\n{body}"
