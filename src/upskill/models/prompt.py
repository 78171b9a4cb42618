"""Reads prompt texts from Markdown files next to the code that sends them."""

from __future__ import annotations

from importlib import resources


def read_prompt(package: str, name: str, **values: object) -> str:
    text = resources.files(package).joinpath(f"{name}.md").read_text(encoding="utf-8")
    for key, value in values.items():
        text = text.replace("{" + key + "}", str(value))
    return text
