"""The page as one file: markup, style and script that its own policy allows, and the data as inert blocks."""

from __future__ import annotations

import html
import json
from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any

from upskill.reports import ReportContext, pictures
from upskill.reports.html.blocks import Blocks, compress
from upskill.reports.html.data import cases_to_page, summary, to_json_bytes
from upskill.runs.evaluation import Evaluation
from upskill.sandboxes import CONTROL_RANGES, printable

LARGEST_SUMMARY = 250_000  # bytes, where the prompts and files of cases can be cut to fit
PROMPTS = (5_000, 1_500, 500, 150)  # characters of one text of a case, tried in turn
# In this order: each may use what stands in those before it.
SCRIPTS = ("text", "source", "diff", "feedback", "overview", "findings", "cases", "trials", "opened", "main")


def render(evaluation: Evaluation, context: ReportContext | None = None) -> str:
    """The report of an evaluation: one file, with every trial where the context can read them."""
    results = context.results if context else None
    found = summary(evaluation)
    blocks = Blocks(results or (lambda: ()), len(evaluation.outcomes))
    data = [_block("summary", _compress(found, evaluation)), _block("index", compress(to_json_bytes(blocks.index)))]
    data += [_block(f"trials-{number}", text) for number, text in enumerate(blocks.texts)]
    said = [found["headline"], *found["conclusions"]] if len(found["conclusions"]) > 1 else found["conclusions"]
    return document(
        title=f"{found['run']['skill']} · upskill",
        body=f"<noscript>{''.join(f'<p>{_text(line)}</p>' for line in said)}</noscript>\n{chr(10).join(data)}",
        start="startReport(embeddedSource());",
    )


def _compress(found: dict[str, Any], evaluation: Evaluation) -> str:
    """The summary, with the texts of cases as long as they fit."""
    text = compress(to_json_bytes(found))
    for most in PROMPTS:
        if len(text) <= LARGEST_SUMMARY:
            break
        cases = cases_to_page(evaluation.run.plan["suite"], most)
        text = compress(to_json_bytes(found | {"cases": cases}))
    return text


def document(title: str, body: str, start: str) -> str:
    """A page with our style and script, in which nothing else may run and nothing may be fetched."""
    code = f"{script()}\n{start}\n"
    policy = (
        f"default-src 'none'; script-src {digest(code)}; style-src {digest(style())}; img-src data:;"
        " base-uri 'none'; form-action 'none'"
    )
    filled = {"POLICY": html.escape(policy), "TITLE": _text(title), "STYLE": style(), "BODY": body, "SCRIPT": code}
    # By hand, from left to right: nothing that was filled in is looked at again.
    parts = _asset("page.html").split("%%")
    return "".join(filled[part] if number % 2 else part for number, part in enumerate(parts))


@cache
def style() -> str:
    """The style of the page and of the pictures on it, whose colours follow the theme that somebody chose."""
    chosen = [f':root[data-theme="{theme}"]{{{pictures.custom_properties(theme)}}}' for theme in ("light", "dark")]
    return "\n".join([f":root{{{pictures.custom_properties('light')}}}", pictures.style(), *chosen, _asset("page.css")])


@cache
def script() -> str:
    """All scripts in one, with the characters that are shown as escapes."""
    ranges = f"const CONTROL_RANGES = {json.dumps(CONTROL_RANGES)};"
    return "\n".join(['"use strict";', ranges, *(_asset(f"{name}.js") for name in SCRIPTS)])


def digest(text: str) -> str:
    """What a Content-Security-Policy calls an inline script or style by."""
    return f"'sha256-{b64encode(sha256(text.encode('utf-8')).digest()).decode('ascii')}'"


def _block(name: str, data: str) -> str:
    return f'<script type="application/octet-stream" id="{name}">{data}</script>'


def _text(text: str) -> str:
    return html.escape(printable(text))


def _asset(name: str) -> str:
    return (files("upskill.reports.html") / "assets" / name).read_text(encoding="utf-8")
