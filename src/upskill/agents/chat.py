"""`chat`: one question, one answer. In the skill arm, the skill's instructions are in the system prompt."""

from __future__ import annotations

from typing import ClassVar

from upskill.agents import SYSTEM, Student, Task
from upskill.models import Message, Request
from upskill.sandboxes import Setup
from upskill.traces import Step, Trace


class Chat:
    needs_sandbox: ClassVar[bool] = False

    def setup(self, task: Task) -> Setup:
        return Setup(files=task.files)

    async def run(self, task: Task, student: Student) -> Trace:
        reply = await student.model.reply(chat_request(task))
        thoughts = (Step("thinking", reply.thoughts),) if reply.thoughts else ()
        steps = (*thoughts, Step("assistant", reply.text))
        return Trace(
            steps, reply.usage, reply.stop, reply.model, turns=1, stop_details=reply.stop_details
        )


def chat_request(task: Task) -> Request:
    system = f"{SYSTEM}\n\n{task.skill.body}" if task.skill else SYSTEM
    files = [f"{name}:\n```\n{text.rstrip()}\n```" for name, text in task.files.items()]
    return Request(
        (Message("system", system), Message("user", "\n\n".join([*files, task.prompt.strip()]))),
        max_output_tokens=task.max_output_tokens,
        temperature=task.temperature,
        seed=task.seed,
    )
