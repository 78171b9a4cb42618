"""The texts we send to models, one file each."""

from __future__ import annotations

from importlib import resources


def read_prompt(name: str, **values: object) -> str:
    """The prompt of this name, with each `{value}` filled in."""
    text = resources.files("upskill.prompts").joinpath(f"{name}.md").read_text(encoding="utf-8")
    for key, value in values.items():
        text = text.replace("{" + key + "}", str(value))
    return text
