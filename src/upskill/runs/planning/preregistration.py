"""A Registration is a plan written down before the run.

If you see results before you choose how to weigh them, you always find something. A run that follows its registration
counts as a planned look, whatever you looked at after writing it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from upskill.errors import UsageError
from upskill.inputs import read_input_text
from upskill.plain import short
from upskill.runs.planning.plan import Plan
from upskill.runs.stores.rows import timestamp
from upskill.version import __version__

MAX_BYTES = 1_000_000  # bytes of a registration's file
RULE = (
    "helps: the 95 % interval of the lift lies above 0. hurts: below 0. saves: the lift is not below minus the margin,"
    " and tokens or cost per pass are lower beyond doubt. no effect: the interval lies within the margin. undecided:"
    " anything else, more than 10 % of either arm errored, or errors could explain it."
)


@dataclass(frozen=True, slots=True)
class Registration:
    """What was registered, where, and when."""

    path: str
    registered: str
    plan: Mapping[str, Any]
    results_before: int  # scored trials of the plan that were stored already

    def to_dict(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "registered": self.registered,
            "results_before": self.results_before,
        }

    def check(self, plan: Plan, margin: float, scope: str | None) -> None:
        """UsageError unless a run would follow it."""
        now = describe(plan, margin, scope)
        if differ := [key for key in {**self.plan, **now} if self.plan.get(key) != now.get(key)]:
            what = "; ".join(
                f"{key} is {short(now.get(key))}, not {short(self.plan.get(key))}"
                for key in differ[:5]
            )
            raise UsageError(
                f"{self.path}: this is not the registered run: {what}",
                "Run the registered plan, or drop --preregister: the run then counts as one more look.",
            )


_REGISTRATIONS = TypeAdapter(Registration)


def describe(plan: Plan, margin: float, scope: str | None) -> dict[str, Any]:
    return {
        "skill": {"name": plan.skill.name, "hash": plan.skill.visible_hash},
        "against": plan.reference_skill.visible_hash if plan.reference_skill else None,
        "suite": plan.suite.fingerprint,
        "cases": len(plan.suite.cases),
        "models": sorted(plan.addresses),
        "agent": plan.agent,
        "arms": list(plan.arms),
        "runs": plan.runs,
        "seed": plan.seed,
        "temperature": plan.temperature,
        "trials": len(plan),
        "margin": margin,
        "level": 0.95,
        "until_decided": scope,
        "decision_rule": RULE,
    }


def read_registration(path: Path) -> Registration | None:
    """None when there is no such file."""
    try:
        if not path.exists():
            return None
        document = json.loads(read_input_text(path, most=MAX_BYTES))
        return _REGISTRATIONS.validate_python({**document, "path": str(path)})
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error
    except (UsageError, ValueError, RecursionError, TypeError) as error:
        raise UsageError(
            f"{path}: not a preregistration file", "Choose a file that does not exist yet."
        ) from error


def register(
    path: Path, plan: Plan, margin: float, scope: str | None, results_before: int
) -> Registration:
    """Write a plan down. An existing file is never overwritten."""
    registered, planned = timestamp(), describe(plan, margin, scope)
    document = {
        "registered": registered,
        "upskill": __version__,
        "results_before": results_before,
        "plan": planned,
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as stream:
            stream.write(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    except OSError as error:
        raise UsageError(
            f"{path}: {error.strerror or error}", "Choose a path you can write to."
        ) from error
    return Registration(str(path), registered, planned, results_before)
