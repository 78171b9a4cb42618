"""upskill teaches cheap models what expensive models know, as an Agent Skill, and proves that it worked.

The names below are loaded when they are first used, so `import upskill` costs nothing.
"""

from __future__ import annotations

from importlib import import_module

from upskill.version import __version__ as __version__

TYPE_CHECKING = False  # what type checkers take for true; importing `typing` would load twenty modules more

_WHERE = {
    "Address": "upskill.models",
    "AuthoringEvents": "upskill.authoring.events",
    "Case": "upskill.suites",
    "Check": "upskill.checks",
    "Config": "upskill.settings",
    "Evaluation": "upskill.runs.evaluation",
    "Events": "upskill.runs.events",
    "Evidence": "upskill.checks",
    "Finding": "upskill.checks",
    "GenerateOptions": "upskill.authoring.options",
    "Generated": "upskill.authoring.generated",
    "LessonFailed": "upskill.authoring.teach",
    "Material": "upskill.authoring.material",
    "ModelContext": "upskill.models",
    "Models": "upskill.models",
    "Outcome": "upskill.verdicts.outcome",
    "Plan": "upskill.runs.plan",
    "PlanOptions": "upskill.runs.plan",
    "RefineOptions": "upskill.authoring.refine",
    "Refinement": "upskill.authoring.refine",
    "Result": "upskill.runs.plan",
    "RunOptions": "upskill.runs.evaluate",
    "Settings": "upskill.settings",
    "Skill": "upskill.skills",
    "Store": "upskill.runs.stores",
    "Suite": "upskill.suites",
    "Taught": "upskill.authoring.teach",
    "TeachOptions": "upskill.authoring.options",
    "Trace": "upskill.traces",
    "Trial": "upskill.runs.plan",
    "TrialError": "upskill.errors",
    "TriggerOptions": "upskill.authoring.trigger",
    "UpskillError": "upskill.errors",
    "UsageError": "upskill.errors",
    "Verdict": "upskill.verdicts.verdict",
    "VerdictOptions": "upskill.verdicts.verdict",
    "compute_verdict": "upskill.verdicts.verdict",
    "evaluate": "upskill.runs.evaluate",
    "evaluate_now": "upskill.runs.evaluate",
    "evaluate_skill": "upskill.runs.evaluate",
    "gather": "upskill.authoring.material",
    "generate": "upskill.authoring.generate",
    "generate_now": "upskill.authoring.generate",
    "generate_skill": "upskill.authoring.skill_writer",
    "generate_tests": "upskill.authoring.suite_writer",
    "improve_description": "upskill.authoring.description",
    "install": "upskill.skills.install",
    "make_plan": "upskill.runs.plan",
    "open_store": "upskill.runs.stores",
    "refine": "upskill.authoring.refine",
    "refine_skill": "upskill.authoring.refine",
    "run_trial": "upskill.runs.trial",
    "teach": "upskill.authoring.teach",
    "trigger": "upskill.authoring.trigger",
    "write_skill": "upskill.authoring.skill_writer",
    "write_suite": "upskill.authoring.suite_writer",
}

__all__ = [
    "Address",
    "AuthoringEvents",
    "Case",
    "Check",
    "Config",
    "Evaluation",
    "Events",
    "Evidence",
    "Finding",
    "GenerateOptions",
    "Generated",
    "LessonFailed",
    "Material",
    "ModelContext",
    "Models",
    "Outcome",
    "Plan",
    "PlanOptions",
    "RefineOptions",
    "Refinement",
    "Result",
    "RunOptions",
    "Settings",
    "Skill",
    "Store",
    "Suite",
    "Taught",
    "TeachOptions",
    "Trace",
    "Trial",
    "TrialError",
    "TriggerOptions",
    "UpskillError",
    "UsageError",
    "Verdict",
    "VerdictOptions",
    "compute_verdict",
    "evaluate",
    "evaluate_now",
    "evaluate_skill",
    "gather",
    "generate",
    "generate_now",
    "generate_skill",
    "generate_tests",
    "improve_description",
    "install",
    "make_plan",
    "open_store",
    "refine",
    "refine_skill",
    "run_trial",
    "teach",
    "trigger",
    "write_skill",
    "write_suite",
]

if TYPE_CHECKING:
    from typing import Any

    from upskill.authoring.description import improve_description
    from upskill.authoring.events import AuthoringEvents
    from upskill.authoring.generate import generate, generate_now
    from upskill.authoring.generated import Generated
    from upskill.authoring.material import Material, gather
    from upskill.authoring.options import GenerateOptions, TeachOptions
    from upskill.authoring.refine import Refinement, RefineOptions, refine, refine_skill
    from upskill.authoring.skill_writer import generate_skill, write_skill
    from upskill.authoring.suite_writer import generate_tests, write_suite
    from upskill.authoring.teach import LessonFailed, Taught, teach
    from upskill.authoring.trigger import TriggerOptions, trigger
    from upskill.checks import Check, Evidence, Finding
    from upskill.errors import TrialError, UpskillError, UsageError
    from upskill.models import Address, ModelContext, Models
    from upskill.runs.evaluate import RunOptions, evaluate, evaluate_now, evaluate_skill
    from upskill.runs.evaluation import Evaluation
    from upskill.runs.events import Events
    from upskill.runs.plan import Plan, PlanOptions, Result, Trial, make_plan
    from upskill.runs.stores import Store, open_store
    from upskill.runs.trial import run_trial
    from upskill.settings import Config, Settings
    from upskill.skills import Skill
    from upskill.skills.install import install
    from upskill.suites import Case, Suite
    from upskill.traces import Trace
    from upskill.verdicts.outcome import Outcome
    from upskill.verdicts.verdict import Verdict, VerdictOptions, compute_verdict


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'upskill' has no attribute {name!r}")
    value = getattr(import_module(_WHERE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
