"""The prompts that teachers and test writers get, one Markdown file each."""

from __future__ import annotations

from functools import partial

from upskill.models import prompt

read_prompt = partial(prompt.read_prompt, "upskill.authoring.writing.prompts")
