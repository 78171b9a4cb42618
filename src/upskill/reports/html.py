"""`html`: a report as one page that opens anywhere, without a network, and is read without scripts."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any, TypeGuard

from jinja2 import Environment, FunctionLoader, StrictUndefined, Template
from markupsafe import Markup, escape

from upskill.reports.numbers import dollars, format_cell, format_measure, percent
from upskill.reports.report import (
    ArmAnswers,
    CaseAnswers,
    Cell,
    Change,
    Draw,
    Headline,
    Kind,
    Measure,
    ModelAnswers,
    Note,
    Outcome,
    Rate,
    Report,
    Table,
    Tone,
)
from upskill.reports.svg import Scale, for_page
from upskill.reports.trial_rows import write_arguments
from upskill.sandboxes import printable
from upskill.traces import Step
from upskill.version import __version__

OPEN = 20  # cases of a group that fail
NOTES = 3  # besides caveats; more are folded
MAX_MARKS = 10  # draws that have a sign each
SIGNS = {True: "✓", False: "✗", None: "·"}
WORDS: Mapping[bool | None, Tone] = {True: "good", False: "bad", None: "open"}
TONES: Mapping[Outcome, Tone] = {
    "worse": "bad",
    "failing": "bad",
    "sometimes": "bad",
    "fixed": "good",
    "passing": "good",
    "missing": "open",
}


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What a server adds to the page of a report."""

    script: str = ""
    policy: str = ""  # what else the page may do
    links: Sequence[tuple[str, str]] = ()  # above the title: words and address
    addresses: Mapping[str, str] = field(default_factory=dict[str, str])  # of what cells name
    cases: str = ""  # where a case is shown without limits, before its id
    data: Mapping[str, str] = field(
        default_factory=dict[str, str]
    )  # for its script; `run` takes reviews


def render(report: Report, surroundings: Surroundings | None = None) -> str:
    surroundings = surroundings or Surroundings()
    groups = list(report.groups())
    notes: dict[str, list[Note]] = {"alarm": [], "caveat": [], "note": [], "detail": []}
    for note in report.notes:
        notes[note.kind].append(note)
    html = _template().render(
        report=report,
        headlines=_headlines(report),
        notes=notes,
        groups=groups,
        is_one_case=sum(len(group.cases) for group in groups) == 1,
        pictures=[(_as_address(wide), _as_address(narrow)) for wide, narrow in for_page(report)],
        script=Markup(_script(surroundings)),  # noqa: S704 - ours
        style=Markup(asset("page.css")),  # noqa: S704 - ours
        policy=policy_of(surroundings),
        surroundings=surroundings,
        version=__version__,
        OPEN=OPEN,
        NOTES=NOTES,
    )
    return html.lstrip()


def policy_of(surroundings: Surroundings) -> str:
    """Only our own script and style, and nothing is fetched."""
    return (
        f"default-src 'none'; script-src {_hash(_script(surroundings))}; style-src {_hash(asset('page.css'))};"
        f" img-src data:; base-uri 'none'; form-action 'none'{surroundings.policy}"
    )


def _script(surroundings: Surroundings) -> str:
    return asset("page.js") + surroundings.script


def _headlines(report: Report) -> Sequence[Headline]:
    """Without the decisions that the title or the table has."""
    has_decisions = any(map(is_decided, report.tables[:1]))
    return [
        each
        for each in report.headlines
        if each.text not in report.title and not (each.sign and has_decisions)
    ]


# Numbers and words
# ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PageColumn:
    number: int
    name: str
    kind: Kind
    scale: Scale | None = None  # that all intervals of the column share
    has_decision: bool = False  # that of the row, below its name

    @property
    def style(self) -> str:
        if self.scale:
            return "measure"
        return "" if self.kind in ("text", "code") else "number"


def columns_of(table: Table, is_result: bool) -> Iterator[PageColumn]:
    has_decision = is_result and is_decided(table)
    for number, column in enumerate(table.columns):
        if not (has_decision and number == 1):
            scale = _scale_of(table, number) if has_decision else None
            yield PageColumn(number, column.name, column.kind, scale, has_decision)


def _scale_of(table: Table, number: int) -> Scale | None:
    cells = [row[number] for row in table.rows]
    measures = [cell for cell in cells if is_measure(cell)]
    return Scale.around(measures, 2, 98) if measures else None


def write_cell(cell: Cell, kind: Kind) -> Markup:
    """A pair of rates has its counts below it."""
    if isinstance(cell, Change) and isinstance(cell.before, Rate) and isinstance(cell.after, Rate):
        rates = cell.before, cell.after
        shares = " → ".join(percent(rate.value) for rate in rates)
        counts = " → ".join(f"{rate.passed:,}/{rate.of:,}" for rate in rates)
        return Markup("{} <small>{}</small>").format(shares, counts)
    text = format_cell(cell, kind)
    if kind == "code" and isinstance(cell, str):
        return Markup("<code>{}</code>").format(printable(text))
    return write_text(text)


def write_text(text: str) -> Markup:
    """A sentence, with what stands between backticks as code."""
    parts = re.split(r"`([^`\n]+)`", printable(text))
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if number % 2 else escape(part)
        for number, part in enumerate(parts)
    )


def is_decided(table: Table) -> bool:
    """Whether its second column is the decision of each row, which stands below the name."""
    return bool(table.rows) and all(
        len(row) > 1 and isinstance(row[1], Headline) for row in table.rows
    )


def is_measure(cell: Cell) -> TypeGuard[Measure]:
    return isinstance(cell, Measure) and cell.value is not None


def is_headline(cell: Cell) -> bool:
    return isinstance(cell, Headline)


def write_marks(answers: ModelAnswers) -> Markup:
    """✓✓✗ → ✓✓✓: without the skill, then with it."""
    arms = [arm for arm in reversed(answers.arms) if not arm.is_control]
    signs = " → ".join(map(_signs, arms))
    words = ", ".join(f"{arm.label}: {_share(arm)}" for arm in arms)
    return Markup('<span class="marks {}" role="img" aria-label="{}">{}</span>').format(
        TONES[answers.outcome], words, signs
    )


def _signs(arm: ArmAnswers) -> str:
    if len(arm.outcomes) > MAX_MARKS:
        return f"{sum(map(bool, arm.outcomes))}/{len(arm.outcomes)}"
    return "".join(SIGNS[passed] for passed in arm.outcomes)


def _share(arm: ArmAnswers) -> str:
    return f"{sum(map(bool, arm.outcomes))} of {len(arm.outcomes)} pass"


def is_long(text: str) -> bool:
    """Whether it may need to scroll, for which it has to be reached with the keyboard."""
    return len(text) + 40 * text.count("\n") > 800


def is_cut(case: CaseAnswers) -> bool:
    """Whether there is more to see of it than what is here."""
    arms = [arm for answers in case.models for arm in answers.arms]
    is_any_draw_cut = any(draw.left_out for arm in arms for draw in arm.draws)
    return bool(case.left_out) or is_any_draw_cut or any(arm.left_out for arm in arms)


def short_name(model: str) -> str:
    return re.split("[:/]", model)[-1] or model


def describe_draw(draw: Draw) -> str:
    """3 of 4 checks pass · 220 + 12 tokens · the same 2 times."""
    parts = [f"{draw.input_tokens:,} + {draw.output_tokens:,} tokens"]
    if draw.findings:
        passed = sum(map(bool, (finding.passed for finding in draw.findings)))
        parts.insert(0, f"{passed} of {len(draw.findings)} checks pass")
    if len(draw.seeds) > 1:
        parts.append(f"the same {len(draw.seeds)} times")
    return " · ".join(parts)


def describe_step(step: Step) -> str:
    return write_arguments(step.arguments) if step.kind == "tool" else step.text


# The template
# ------------------------------------------------------------------------------------------------


def _finalize(value: object) -> object:
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@cache
def _template() -> Template:
    environment = Environment(
        loader=FunctionLoader(asset),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        finalize=_finalize,
    )
    filters: dict[str, Any] = {
        "sentence": write_text,
        "cell": write_cell,
        "measure": format_measure,
        "marks": write_marks,
        "short_name": short_name,
        "step": describe_step,
        "describe": describe_draw,
        "money": dollars,
    }
    tests: dict[str, Any] = {
        "measure": is_measure,
        "cut": is_cut,
        "long": is_long,
        "headline": is_headline,
    }
    names: dict[str, Any] = {
        "columns_of": columns_of,
        "SIGNS": SIGNS,
        "WORDS": WORDS,
        "TONES": TONES,
    }
    environment.filters.update(filters)
    environment.tests.update(tests)
    environment.globals.update(names)
    return environment.get_template("page.html.j2")


def _as_address(svg: str) -> str:
    return f"data:image/svg+xml;base64,{b64encode(svg.encode()).decode('ascii')}"


def _hash(text: str) -> str:
    """Of an inline script or style, for a Content-Security-Policy."""
    return f"'sha256-{b64encode(sha256(text.encode('utf-8')).digest()).decode('ascii')}'"


@cache
def asset(name: str) -> str:
    return files("upskill.reports").joinpath(name).read_text(encoding="utf-8")
