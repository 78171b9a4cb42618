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
    "Evaluation": "upskill.runs.results.evaluation",
    "Events": "upskill.runs.running.events",
    "Evidence": "upskill.checks",
    "Finding": "upskill.checks",
    "GenerateOptions": "upskill.authoring.options",
    "Generated": "upskill.authoring.generate",
    "LessonFailed": "upskill.authoring.lesson.teach",
    "Material": "upskill.authoring.material.material",
    "ModelContext": "upskill.models",
    "Models": "upskill.models.pool",
    "Outcome": "upskill.verdicts.outcome",
    "Plan": "upskill.runs.planning.plan",
    "PlanOptions": "upskill.runs.planning.plan",
    "RefineOptions": "upskill.authoring.search.refine",
    "Refinement": "upskill.authoring.search.refine",
    "Result": "upskill.runs.planning.plan",
    "RunOptions": "upskill.runs.running.evaluate",
    "Settings": "upskill.settings",
    "Skill": "upskill.skills",
    "Store": "upskill.runs.stores",
    "Suite": "upskill.suites",
    "TeachResult": "upskill.authoring.lesson.teach",
    "TeachOptions": "upskill.authoring.options",
    "Trace": "upskill.traces",
    "Trial": "upskill.runs.planning.plan",
    "TrialError": "upskill.errors",
    "TriggerOptions": "upskill.authoring.trigger.trigger",
    "UpskillError": "upskill.errors",
    "UsageError": "upskill.errors",
    "Verdict": "upskill.verdicts.verdict",
    "VerdictOptions": "upskill.verdicts.verdict",
    "compute_verdict": "upskill.verdicts.compute",
    "evaluate": "upskill.runs.running.evaluate",
    "evaluate_now": "upskill.runs.running.evaluate",
    "evaluate_skill": "upskill.authoring.upstream",
    "gather": "upskill.authoring.material.material",
    "generate": "upskill.authoring.generate",
    "generate_now": "upskill.authoring.generate",
    "generate_skill": "upskill.authoring.upstream",
    "generate_tests": "upskill.authoring.upstream",
    "improve_description": "upskill.authoring.trigger.description",
    "install": "upskill.skills.install",
    "make_plan": "upskill.runs.planning.plan",
    "open_store": "upskill.runs.stores",
    "refine": "upskill.authoring.search.refine",
    "refine_skill": "upskill.authoring.upstream",
    "run_trial": "upskill.runs.running.trial",
    "teach": "upskill.authoring.lesson.teach",
    "trigger": "upskill.authoring.trigger.trigger",
    "write_skill": "upskill.authoring.writing.skill_writer",
    "write_suite": "upskill.authoring.writing.suite_writer",
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
    "TeachOptions",
    "TeachResult",
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

    from upskill.authoring.events import AuthoringEvents
    from upskill.authoring.generate import Generated, generate, generate_now
    from upskill.authoring.lesson.teach import LessonFailed, TeachResult, teach
    from upskill.authoring.material.material import Material, gather
    from upskill.authoring.options import GenerateOptions, TeachOptions
    from upskill.authoring.search.refine import Refinement, RefineOptions, refine
    from upskill.authoring.trigger.description import improve_description
    from upskill.authoring.trigger.trigger import TriggerOptions, trigger
    from upskill.authoring.upstream import evaluate_skill, generate_skill, generate_tests, refine_skill
    from upskill.authoring.writing.skill_writer import write_skill
    from upskill.authoring.writing.suite_writer import write_suite
    from upskill.checks import Check, Evidence, Finding
    from upskill.errors import TrialError, UpskillError, UsageError
    from upskill.models import Address, ModelContext
    from upskill.models.pool import Models
    from upskill.runs.planning.plan import Plan, PlanOptions, Result, Trial, make_plan
    from upskill.runs.results.evaluation import Evaluation
    from upskill.runs.running.evaluate import RunOptions, evaluate, evaluate_now
    from upskill.runs.running.events import Events
    from upskill.runs.running.trial import run_trial
    from upskill.runs.stores import Store, open_store
    from upskill.settings import Config, Settings
    from upskill.skills import Skill
    from upskill.skills.install import install
    from upskill.suites import Case, Suite
    from upskill.traces import Trace
    from upskill.verdicts.compute import compute_verdict
    from upskill.verdicts.outcome import Outcome
    from upskill.verdicts.verdict import Verdict, VerdictOptions


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'upskill' has no attribute {name!r}")
    value = getattr(import_module(_WHERE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
