"""The templates, styles and scripts of pages and summaries, which lie beside this file."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from jinja2 import Environment, FunctionLoader, StrictUndefined, Template
from markupsafe import Markup

from upskill.sandboxes import printable


@cache
def asset(name: str) -> str:
    return files("upskill.reports").joinpath(name).read_text(encoding="utf-8")


def load_template(name: str) -> Template:
    """What a page shows is text, and harmless."""
    environment = Environment(
        loader=FunctionLoader(asset),
        autoescape=name.endswith(".html.j2"),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        finalize=_finalize,
    )
    return environment.get_template(name)


def _finalize(value: object) -> object:
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value
