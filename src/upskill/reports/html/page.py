"""The page as one file: markup, style and script that its own policy allows, and the data as inert blocks."""

from __future__ import annotations

import gzip
import html
import json
import math
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from hashlib import sha256
from importlib.resources import files
from itertools import chain
from typing import Any

from upskill.reports import ReportContext, pictures
from upskill.reports.html.data import (
    COLUMNS,
    MAX_PROMPT,
    MAX_TEXT,
    cases_to_page,
    page_seed,
    summary,
    to_json_bytes,
    trial_to_page,
)
from upskill.runs.planning.plan import Result
from upskill.runs.results.evaluation import Evaluation
from upskill.runs.results.reviews import review_rows
from upskill.sandboxes import CONTROL_RANGES, printable

# Bytes of a page with up to this many trials, and bytes that each further one may add. If a run has more text,
# answers are cut first, then the texts of the cases, which never take the last bytes from the answers.
MAX_BYTES, TRIALS, EACH = 950_000, 1_000, 600
MAX_TRIALS = 50_000  # on a page: of a larger run it shows the first seeds of each case, and says so
FOR_ANSWERS = 300_000
FOR_TAGS = 2_000  # around the blocks of data
MIN_PROMPT = 100  # characters of one text of a case
# In this order: each may use the ones before it.
SCRIPTS = (
    "text",
    "source",
    "diff",
    "feedback",
    "trigger",
    "overview",
    "findings",
    "cases",
    "trials",
    "opened",
    "main",
)


def render(evaluation: Evaluation, context: ReportContext | None = None) -> str:
    run = evaluation.run
    results, trials = context.results if context else None, run.passed + run.failed + run.errored
    report = summary(evaluation)
    if context and context.first_results and trials > MAX_TRIALS:
        seeds = max(1, len(report["run"]["seeds"]) * MAX_TRIALS // trials)
        results, trials = partial(context.first_results, seeds), MAX_TRIALS
        report["run"]["seeds"] = report["run"]["seeds"][:seeds]
    report["reviews"] = [
        row | {"seed": page_seed(row["seed"])} for row in review_rows(evaluation.reviews)
    ]
    lines = (
        [report["headline"], *report["conclusions"]]
        if len(report["conclusions"]) > 1
        else report["conclusions"]
    )
    lines = [*lines, *report["caveats"]]
    plain = f"<noscript>{''.join(f'<p>{_text(line)}</p>' for line in lines)}</noscript>"
    title, start = f"{report['run']['skill']} · upskill", "startReport(embeddedSource());"
    room = (
        MAX_BYTES
        + EACH * max(0, trials - TRIALS)
        - FOR_TAGS
        - len(document(title, plain, start).encode())
    )
    packed = compress(to_json_bytes(report))

    # While trials are missing, the scored ones would reveal how the arms differ so far.
    def shown() -> Iterator[Result]:
        each_result = results() if results else ()
        return (
            each
            for each in each_result
            if each.passed is None or each.trial.model not in evaluation.unfinished
        )

    blocks = Blocks(shown, max(room - len(packed), FOR_ANSWERS))
    text = (
        packed
        if len(packed) + blocks.size <= room
        else _shortened(report, evaluation, room - blocks.size)
    )
    data = [_block("summary", text), _block("index", blocks.packed_index)]
    data += [_block(f"trials-{number}", text) for number, text in enumerate(blocks.texts)]
    return document(title, "\n".join([plain, *data]), start)


def _shortened(report: dict[str, Any], evaluation: Evaluation, room: int) -> str:
    text = ""

    def make(most: int) -> bool:
        nonlocal text
        cases = cases_to_page(evaluation, most)
        text = compress(to_json_bytes(report | {"cases": cases}))
        return len(text) <= room

    longest_that_fits(make, MIN_PROMPT, MAX_PROMPT)
    return text


def document(title: str, body: str, start: str) -> str:
    """A page in which only our script may run and nothing may be fetched."""
    code = f"{script()}\n{start}\n"
    policy = (
        f"default-src 'none'; script-src {digest(code)}; style-src {digest(style())}; img-src data:;"
        " base-uri 'none'; form-action 'none'"
    )
    filled = {
        "POLICY": html.escape(policy),
        "TITLE": _text(title),
        "STYLE": style(),
        "BODY": body,
        "SCRIPT": code,
    }
    # By hand, from left to right: inserted text is not searched for placeholders.
    parts = _asset("page.html").split("%%")
    return "".join(filled[part] if number % 2 else part for number, part in enumerate(parts))


@cache
def style() -> str:
    """The style of the page and its pictures, whose colors follow the chosen theme."""
    chosen = [
        f':root[data-theme="{theme}"]{{{pictures.custom_properties(theme)}}}'
        for theme in ("light", "dark")
    ]
    return "\n".join(
        [
            f":root{{{pictures.custom_properties('light')}}}",
            pictures.style(),
            *chosen,
            _asset("page.css"),
        ]
    )


@cache
def script() -> str:
    ranges = f"const CONTROL_RANGES = {json.dumps(CONTROL_RANGES)};"
    return "\n".join(['"use strict";', ranges, *(_asset(f"{name}.js") for name in SCRIPTS)])


def digest(text: str) -> str:
    """The hash of an inline script or style for a Content-Security-Policy."""
    return f"'sha256-{b64encode(sha256(text.encode('utf-8')).digest()).decode('ascii')}'"


def _block(name: str, data: str) -> str:
    return f'<script type="application/octet-stream" id="{name}">{data}</script>'


def _text(text: str) -> str:
    return html.escape(printable(text))


def _asset(name: str) -> str:
    return (files("upskill.reports.html") / "assets" / name).read_text(encoding="utf-8")


# Trials in compressed blocks: the page opens one when it needs it, and the file stays small.


BLOCK = 150_000  # bytes of JSON after which a block is closed
MIN_TEXT = 60  # characters of a text that are kept, however many trials there are
CLOSE = (
    1.06  # stop when a text length that fits and one that does not differ by at most this factor
)


class Blocks:
    def __init__(self, results: Callable[[], Iterable[Result]], room: int) -> None:
        """Texts are as long as the byte limit allows."""
        self._results, self._room = results, room
        longest_that_fits(self._make, MIN_TEXT, MAX_TEXT)

    def _make(self, limit: int) -> bool:
        self.limit, self.texts, self.sizes, self.size = limit, list[str](), list[int](), 0
        self.columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
        rows: list[bytes] = []
        for result in chain(self._results(), [None]):  # None closes the last block
            if result is not None:
                trial = trial_to_page(result, limit)
                for name in COLUMNS:
                    self.columns[name].append(trial.pop(name))
                rows.append(to_json_bytes(trial))
            if rows and (result is None or sum(map(len, rows)) >= BLOCK):
                self.texts.append(compress(b"[" + b",".join(rows) + b"]"))
                self.sizes.append(len(rows))
                self.size += len(self.texts[-1])
                rows = []
                if self.size > self._room and limit != MIN_TEXT:
                    return False
        self.packed_index = compress(to_json_bytes(self.index))
        self.size += len(self.packed_index)
        return self.size <= self._room

    @property
    def index(self) -> dict[str, Any]:
        columns: dict[str, Any] = {}
        for name, values in self.columns.items():
            if name in ("case", "model", "arm", "outcome", "cause"):
                names = list(dict.fromkeys(values))
                positions = {value: position for position, value in enumerate(names)}
                columns[name] = {"names": names, "values": [positions[value] for value in values]}
            else:
                columns[name] = {"values": values}
        return {"columns": columns, "blocks": self.sizes, "limit": self.limit}


def longest_that_fits(make: Callable[[int], bool], shortest: int, longest: int) -> None:
    """Call `make` with the longest texts that fit, or the shortest; its last call is the one to use."""
    if make(longest):
        return
    made = None
    while longest > CLOSE * shortest:
        middle = round(math.sqrt(shortest * longest))
        made = middle
        if make(middle):
            shortest = middle
        else:
            longest = middle
    if made != shortest:
        make(shortest)


def compress(data: bytes) -> str:
    """As a browser's DecompressionStream reads it, in letters that HTML leaves alone."""
    return b64encode(gzip.compress(data, 9, mtime=0)).decode("ascii")
