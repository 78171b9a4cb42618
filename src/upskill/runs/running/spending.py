"""A command that is killed and the one that goes on with its run share their ceilings: the store says what was spent.

While a command runs under a ceiling, its run has a note of what had been spent before it. A command that ends takes the
note away, and the next one starts from nothing. One that finds it knows that the last one did not end.
"""

from __future__ import annotations

from typing import Any

from upskill.models.ledger import Ceilings, Ledger
from upskill.runs.stores import Run, Store
from upskill.traces import NO_USAGE, Usage

NOTE = "spent_before"


def stop_spending(run: Run) -> dict[str, Any]:
    """Takes the note away."""
    return {NOTE: None} if run.plan.spent_before else {}


def go_on_spending(store: Store, run: Run, ledger: Ledger | None) -> dict[str, Any]:
    """The note to keep with the run, after what a command that did not end has spent was put into the ledger."""
    if ledger is None or ledger.ceilings == Ceilings():
        return {}
    calls = store.count_calls(run)
    spent = {role: Usage(tokens, cost_usd=cost) for role, (tokens, cost) in store.spent(run).items()}
    if note := run.plan.spent_before:
        ledger.calls += max(0, calls - note["calls"])
        for role, usage in spent.items():
            tokens, cost = note["spent"].get(role, (0, 0.0))
            since = usage - Usage(tokens, cost_usd=cost)
            ledger.spent[role] = ledger.spent.get(role, NO_USAGE) + since
        return {NOTE: note}
    return {NOTE: {"calls": calls, "spent": {role: (one.total_tokens, one.cost_usd) for role, one in spent.items()}}}
