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
    "Config": "upskill.settings",
    "Evaluation": "upskill.evaluation",
    "Evidence": "upskill.checks",
    "Finding": "upskill.checks",
    "Material": "upskill.material",
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
    "evaluate_skill": "upskill.evaluate",
    "gather": "upskill.material",
    "generate_skill": "upskill.create",
    "generate_tests": "upskill.create",
    "install": "upskill.install",
    "make_plan": "upskill.evaluate",
    "refine": "upskill.refine",
    "refine_skill": "upskill.refine",
    "run_trial": "upskill.evaluate",
    "weigh": "upskill.verdict",
    "write_skill": "upskill.create",
    "write_suite": "upskill.create",
}

__all__ = [
    "Address",
    "Case",
    "Check",
    "Config",
    "Evaluation",
    "Evidence",
    "Finding",
    "Material",
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
    "evaluate_skill",
    "gather",
    "generate_skill",
    "generate_tests",
    "install",
    "make_plan",
    "refine",
    "refine_skill",
    "run_trial",
    "weigh",
    "write_skill",
    "write_suite",
]

if TYPE_CHECKING:
    from upskill.checks import Check, Evidence, Finding
    from upskill.create import generate_skill, generate_tests, write_skill, write_suite
    from upskill.errors import TrialError, UpskillError, UsageError
    from upskill.evaluate import evaluate, evaluate_now, evaluate_skill, make_plan, run_trial
    from upskill.evaluation import Evaluation
    from upskill.install import install
    from upskill.material import Material, gather
    from upskill.models import Address, Models, Surroundings
    from upskill.refine import refine, refine_skill
    from upskill.settings import Config, Settings
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
