"""`chat`: one question, one answer. The skill's instructions stand in the system prompt of the skill arm."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from upskill.agents import SYSTEM, Student, Task
from upskill.models import Message, Request
from upskill.traces import Step, Trace

if TYPE_CHECKING:
    from upskill.sandboxes import Setup


class Chat:
    """Asks once. What the model is shown differs between the arms by the skill's body and by nothing else."""

    acts: ClassVar[bool] = False

    def setup(self, task: Task) -> Setup:
        from upskill.sandboxes import Setup  # noqa: PLC0415 - only where a check wants a place to look in

        return Setup(files=task.files)

    async def run(self, task: Task, student: Student) -> Trace:
        reply = await student.model.reply(request_for(task))
        thoughts = (Step("thinking", reply.thoughts),) if reply.thoughts else ()
        return Trace((*thoughts, Step("assistant", reply.text)), reply.usage, reply.stop, reply.model, turns=1)


def request_for(task: Task) -> Request:
    system = f"{SYSTEM}\n\n{task.skill.body}" if task.skill else SYSTEM
    return Request(
        (Message("system", system), Message("user", _user_text(task))),
        max_output_tokens=task.max_output_tokens,
        temperature=task.temperature,
        seed=task.seed,
    )


def _user_text(task: Task) -> str:
    """The prompt, after the files it is about."""
    shown = [f"{name}:\n```\n{text.rstrip()}\n```" for name, text in task.files.items()]
    return "\n\n".join([*shown, task.prompt.strip()])
