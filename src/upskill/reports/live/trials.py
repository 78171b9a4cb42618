"""The trials of a run as the page asks for them: filtered, a page at a time, with as much work as a page may take."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from upskill.reports.html.data import trial_row, trial_to_page
from upskill.reports.trials import OUTCOMES
from upskill.runs.planning.plan import Arm, Trial
from upskill.runs.planning.stored_plan import StoredCase
from upskill.runs.stores import Run, Store
from upskill.verdicts.outcome import Outcome

PAGE = 50
LOOKED_AT = 10_000  # outcomes that one request looks through
SECONDS = 0.08  # after which it answers with what it has found, and with where to go on
AT_ONCE = 100  # outcomes that are read together
LONGEST_WANTED = 500  # characters of a text to be found


@dataclass(frozen=True, slots=True)
class TrialFilter:
    """Which trials are wanted; empty fields do not count."""

    case: str = ""
    model: str = ""
    arm: str = ""
    outcome: str = ""
    tag: str = ""
    text: str = ""

    @classmethod
    def of(cls, given: Mapping[str, str]) -> TrialFilter:
        said = {name: given.get(name, "") for name in ("case", "model", "arm", "outcome", "tag")}
        return cls(**said, text=given.get("text", "").strip().lower()[:LONGEST_WANTED])


def list_trials(store: Store, run: Run, wanted: TrialFilter, after: Trial | None) -> dict[str, Any]:
    """Up to a page of trials that fit, and where to go on; it may have to be asked again to fill a page."""
    cases = run.plan.suite.by_id
    rows: list[dict[str, Any]] = []
    last: Outcome | None = None
    began = time.monotonic()
    for looked_at, row in enumerate(_outcomes(store, run, wanted.case or None, after), start=1):
        last = row
        case = cases.get(row.case) or StoredCase(id=row.case, prompt="")
        if _fits(row, case, wanted) and (not wanted.text or _says_it(store, run, row, case, wanted.text)):
            rows.append(trial_row(row))
        if len(rows) == PAGE or looked_at == LOOKED_AT or time.monotonic() - began > SECONDS:
            break
    else:
        last = None  # that was all
    return {"rows": rows, "next": place_of(last) if last else None, "total": count(store, run, wanted)}


def _outcomes(store: Store, run: Run, case: str | None, after: Trial | None) -> Iterator[Outcome]:
    """A few at a time: who stops early has read few that were not wanted."""
    while some := list(store.outcomes(run, case, after=after, limit=AT_ONCE)):
        yield from some
        after = trial_of(some[-1])


def trial_of(row: Outcome) -> Trial:
    return Trial(row.model, row.case, cast("Arm", row.arm), row.seed)


def count(store: Store, run: Run, wanted: TrialFilter) -> int | None:
    """How many trials fit, where that is known without looking at them."""
    if wanted.case or wanted.tag or wanted.text:
        return None
    fitting = [
        row
        for row in store.tally(run)
        if (not wanted.model or row.model == wanted.model) and (not wanted.arm or row.arm == wanted.arm)
    ]
    outcomes = (wanted.outcome,) if wanted.outcome else ("passed", "failed", "errored")
    return sum(getattr(row, outcome, 0) for row in fitting for outcome in outcomes)


def find_trial(store: Store, run: Run, trial: Trial) -> dict[str, Any] | None:
    result = store.result(run, trial)
    return trial_to_page(result) if result else None


def place_of(row: Outcome) -> str:
    return json.dumps([row.case, row.model, row.arm, row.seed])


def trial_at(place: str) -> Trial:
    """ValueError where that is no place."""
    try:
        found: object = json.loads(place)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(found, list) or len(cast("list[Any]", found)) != 4:
        raise ValueError("a place is case, model, arm and seed")
    case, model, arm, seed = cast("list[Any]", found)
    if not all(isinstance(each, str) for each in (case, model, arm)) or type(seed) is not int or abs(seed) >= 2**63:
        raise ValueError("a place is three texts and a number")
    return Trial(model, case, cast("Arm", arm), seed)


def _fits(row: Outcome, case: StoredCase, wanted: TrialFilter) -> bool:
    return (
        (not wanted.model or row.model == wanted.model)
        and (not wanted.arm or row.arm == wanted.arm)
        and (not wanted.outcome or OUTCOMES[row.passed] == wanted.outcome)
        and (not wanted.tag or wanted.tag in case.tags)
    )


def _says_it(store: Store, run: Run, row: Outcome, case: StoredCase, text: str) -> bool:
    if text in f"{row.case}\n{row.model}\n{case.prompt}".lower():
        return True
    result = store.result(run, trial_of(row))
    if result is None:
        return False

    def texts() -> Iterator[str]:
        yield result.error
        for judgement in result.judgements:
            yield judgement.check
            yield judgement.reason
        for step in result.trace.steps if result.trace else ():
            yield from (step.text, step.tool, step.output, json.dumps(step.arguments, ensure_ascii=False))

    return any(text in each.lower() for each in texts())
