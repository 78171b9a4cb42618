"""The page as one file: markup, style and script that its own policy allows, and the data as inert blocks."""

from __future__ import annotations

import html
import json
from base64 import b64encode
from functools import cache, partial
from hashlib import sha256
from importlib.resources import files
from typing import Any

from upskill.reports import ReportContext, pictures
from upskill.reports.html.blocks import Blocks, compress, longest_that_fits
from upskill.reports.html.data import LONGEST_PROMPT, cases_to_page, page_seed, summary, to_json_bytes
from upskill.runs.results.evaluation import Evaluation
from upskill.runs.results.feedback import feedback_document
from upskill.sandboxes import CONTROL_RANGES, printable

# Bytes of a page of up to so many trials, and bytes that each further one may add. Where the texts of a run come to
# more, answers are cut first, and then what the cases say, which never takes the last bytes from the answers.
LARGEST, TRIALS, EACH = 950_000, 1_000, 600
MOST_TRIALS = 50_000  # of a page: of a larger run it has the first seeds of each case, and says so
FOR_ANSWERS = 300_000
SHORTEST_PROMPT = 100  # characters of one text of a case
# In this order: each may use what stands in those before it.
SCRIPTS = ("text", "source", "diff", "feedback", "firing", "overview", "findings", "cases", "trials", "opened", "main")


def render(evaluation: Evaluation, context: ReportContext | None = None) -> str:
    """The report of an evaluation: one file, with every trial where the context can read them."""
    results, trials = context.results if context else None, len(evaluation.outcomes)
    found = summary(evaluation)
    if context and context.first_results and trials > MOST_TRIALS:
        seeds = max(1, evaluation.plan.runs * MOST_TRIALS // trials)
        results, trials = partial(context.first_results, seeds), MOST_TRIALS
        found["run"]["seeds"] = found["run"]["seeds"][:seeds]
    found["reviews"] = _reviews(evaluation)
    said = [found["headline"], *found["conclusions"]] if len(found["conclusions"]) > 1 else found["conclusions"]
    words = f"<noscript>{''.join(f'<p>{_text(line)}</p>' for line in said)}</noscript>"
    title, start = f"{found['run']['skill']} · upskill", "startReport(embeddedSource());"
    room = LARGEST + EACH * max(0, trials - TRIALS) - len(document(title, words, start).encode())
    whole = compress(to_json_bytes(found))
    blocks = Blocks(results or (lambda: ()), max(room - len(whole), FOR_ANSWERS))
    text = whole if len(whole) + blocks.size <= room else _shortened(found, evaluation, room - blocks.size)
    data = [_block("summary", text), _block("index", blocks.packed_index)]
    data += [_block(f"trials-{number}", text) for number, text in enumerate(blocks.texts)]
    return document(title, "\n".join([words, *data]), start)


def _shortened(found: dict[str, Any], evaluation: Evaluation, room: int) -> str:
    """The summary, with the texts of cases as long as they fit."""
    text = ""

    def make(most: int) -> bool:
        nonlocal text
        cases = cases_to_page(evaluation.run.plan.suite, most)
        text = compress(to_json_bytes(found | {"cases": cases}))
        return len(text) <= room

    longest_that_fits(make, SHORTEST_PROMPT, LONGEST_PROMPT)
    return text


def _reviews(evaluation: Evaluation) -> list[dict[str, Any]]:
    """What people said of the answers before the page was made, as feedback.json has it."""
    reviews = feedback_document(evaluation.run, evaluation.people.reviews if evaluation.people else ())["reviews"]
    return [review | {"seed": page_seed(review["seed"])} for review in reviews]


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
