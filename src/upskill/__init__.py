"""upskill teaches cheap models what expensive models know, as an Agent Skill, and proves that it worked.

The names below are loaded when they are first used, so `import upskill` costs nothing.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_WHERE = {
    "Address": "upskill.models",
    "Case": "upskill.suite",
    "Check": "upskill.checks",
    "Evaluation": "upskill.evaluation",
    "Evidence": "upskill.checks",
    "Finding": "upskill.checks",
    "Models": "upskill.models",
    "Outcome": "upskill.trial",
    "Plan": "upskill.trial",
    "Result": "upskill.trial",
    "Settings": "upskill.settings",
    "Skill": "upskill.skill",
    "Store": "upskill.store",
    "Suite": "upskill.suite",
    "Surroundings": "upskill.models",
    "Trace": "upskill.traces",
    "Trial": "upskill.trial",
    "TrialError": "upskill.errors",
    "UpskillError": "upskill.errors",
    "UsageError": "upskill.errors",
    "Verdict": "upskill.verdict",
    "evaluate": "upskill.evaluate",
    "evaluate_now": "upskill.evaluate",
    "install": "upskill.install",
    "make_plan": "upskill.evaluate",
    "run_trial": "upskill.evaluate",
    "weigh": "upskill.verdict",
}

__all__ = [
    "Address",
    "Case",
    "Check",
    "Evaluation",
    "Evidence",
    "Finding",
    "Models",
    "Outcome",
    "Plan",
    "Result",
    "Settings",
    "Skill",
    "Store",
    "Suite",
    "Surroundings",
    "Trace",
    "Trial",
    "TrialError",
    "UpskillError",
    "UsageError",
    "Verdict",
    "evaluate",
    "evaluate_now",
    "install",
    "make_plan",
    "run_trial",
    "weigh",
]

if TYPE_CHECKING:
    from upskill.checks import Check, Evidence, Finding
    from upskill.errors import TrialError, UpskillError, UsageError
    from upskill.evaluate import evaluate, evaluate_now, make_plan, run_trial
    from upskill.evaluation import Evaluation
    from upskill.install import install
    from upskill.models import Address, Models, Surroundings
    from upskill.settings import Settings
    from upskill.skill import Skill
    from upskill.store import Store
    from upskill.suite import Case, Suite
    from upskill.traces import Trace
    from upskill.trial import Outcome, Plan, Result, Trial
    from upskill.verdict import Verdict, weigh


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'upskill' has no attribute {name!r}")
    value = getattr(import_module(_WHERE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])


class _Package(ModuleType):
    """Keeps `upskill.evaluate` the verb: importing a submodule would bind the module under the same name."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, getattr(value, name) if name in _WHERE and isinstance(value, ModuleType) else value)


sys.modules[__name__].__class__ = _Package
