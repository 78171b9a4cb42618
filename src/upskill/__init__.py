"""upskill teaches cheap models what expensive models know, as an Agent Skill, and measures whether it worked.

The names below are loaded when they are first used, so `import upskill` costs nothing.
"""

from __future__ import annotations

from importlib import import_module

from upskill.version import __version__ as __version__

TYPE_CHECKING = (
    False  # what type checkers take for true; importing `typing` would load twenty modules more
)

_NAMES = {
    "upskill.authoring.events": "AuthoringEvents",
    "upskill.authoring.generate": "Generated generate generate_now",
    "upskill.authoring.lesson.teach": "LessonFailed TeachResult teach",
    "upskill.authoring.material.material": "Material read_material",
    "upskill.authoring.options": "GenerateOptions TeachOptions",
    "upskill.authoring.trigger.description": "improve_description",
    "upskill.authoring.trigger.trigger": "TriggerOptions trigger",
    "upskill.authoring.upstream": "evaluate_skill generate_skill generate_tests refine_skill",
    "upskill.authoring.writing.skill_writer": "write_skill",
    "upskill.authoring.writing.suite_writer": "write_suite",
    "upskill.checks": "Check Evidence Finding",
    "upskill.errors": "RunFailed TrialError UpskillError UsageError",
    "upskill.experiments.counterexamples": "Challenged ChallengeSettings challenge",
    "upskill.experiments.distill": "Distilled DistillSettings distill",
    "upskill.experiments.matrix": "Matrix MatrixSettings matrix",
    "upskill.experiments.mutation": "Score score",
    "upskill.models": "Address ModelContext",
    "upskill.models.pool": "Models",
    "upskill.runs.planning.plan": "Plan PlanOptions Result Trial make_plan",
    "upskill.runs.results.evaluation": "Evaluation",
    "upskill.runs.running.evaluate": "RunOptions evaluate evaluate_now",
    "upskill.runs.running.events": "Events",
    "upskill.runs.running.trial": "run_trial",
    "upskill.runs.stores": "Store open_store",
    "upskill.settings": "Config Settings",
    "upskill.skills": "Skill",
    "upskill.skills.install": "install",
    "upskill.suites": "Case Suite",
    "upskill.traces": "Trace",
    "upskill.verdicts.compute": "compute_verdict",
    "upskill.verdicts.outcome": "Outcome",
    "upskill.verdicts.verdict": "Verdict VerdictOptions",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}

if TYPE_CHECKING:
    from typing import Any

    from upskill.authoring.events import AuthoringEvents as AuthoringEvents
    from upskill.authoring.generate import Generated as Generated
    from upskill.authoring.generate import generate as generate
    from upskill.authoring.generate import generate_now as generate_now
    from upskill.authoring.lesson.teach import LessonFailed as LessonFailed
    from upskill.authoring.lesson.teach import TeachResult as TeachResult
    from upskill.authoring.lesson.teach import teach as teach
    from upskill.authoring.material.material import Material as Material
    from upskill.authoring.material.material import read_material as read_material
    from upskill.authoring.options import GenerateOptions as GenerateOptions
    from upskill.authoring.options import TeachOptions as TeachOptions
    from upskill.authoring.trigger.description import improve_description as improve_description
    from upskill.authoring.trigger.trigger import TriggerOptions as TriggerOptions
    from upskill.authoring.trigger.trigger import trigger as trigger
    from upskill.authoring.upstream import evaluate_skill as evaluate_skill
    from upskill.authoring.upstream import generate_skill as generate_skill
    from upskill.authoring.upstream import generate_tests as generate_tests
    from upskill.authoring.upstream import refine_skill as refine_skill
    from upskill.authoring.writing.skill_writer import write_skill as write_skill
    from upskill.authoring.writing.suite_writer import write_suite as write_suite
    from upskill.checks import Check as Check
    from upskill.checks import Evidence as Evidence
    from upskill.checks import Finding as Finding
    from upskill.errors import RunFailed as RunFailed
    from upskill.errors import TrialError as TrialError
    from upskill.errors import UpskillError as UpskillError
    from upskill.errors import UsageError as UsageError
    from upskill.experiments.counterexamples import Challenged as Challenged
    from upskill.experiments.counterexamples import ChallengeSettings as ChallengeSettings
    from upskill.experiments.counterexamples import challenge as challenge
    from upskill.experiments.distill import Distilled as Distilled
    from upskill.experiments.distill import DistillSettings as DistillSettings
    from upskill.experiments.distill import distill as distill
    from upskill.experiments.matrix import Matrix as Matrix
    from upskill.experiments.matrix import MatrixSettings as MatrixSettings
    from upskill.experiments.matrix import matrix as matrix
    from upskill.experiments.mutation import Score as Score
    from upskill.experiments.mutation import score as score
    from upskill.models import Address as Address
    from upskill.models import ModelContext as ModelContext
    from upskill.models.pool import Models as Models
    from upskill.runs.planning.plan import Plan as Plan
    from upskill.runs.planning.plan import PlanOptions as PlanOptions
    from upskill.runs.planning.plan import Result as Result
    from upskill.runs.planning.plan import Trial as Trial
    from upskill.runs.planning.plan import make_plan as make_plan
    from upskill.runs.results.evaluation import Evaluation as Evaluation
    from upskill.runs.running.evaluate import RunOptions as RunOptions
    from upskill.runs.running.evaluate import evaluate as evaluate
    from upskill.runs.running.evaluate import evaluate_now as evaluate_now
    from upskill.runs.running.events import Events as Events
    from upskill.runs.running.trial import run_trial as run_trial
    from upskill.runs.stores import Store as Store
    from upskill.runs.stores import open_store as open_store
    from upskill.settings import Config as Config
    from upskill.settings import Settings as Settings
    from upskill.skills import Skill as Skill
    from upskill.skills.install import install as install
    from upskill.suites import Case as Case
    from upskill.suites import Suite as Suite
    from upskill.traces import Trace as Trace
    from upskill.verdicts.compute import compute_verdict as compute_verdict
    from upskill.verdicts.outcome import Outcome as Outcome
    from upskill.verdicts.verdict import Verdict as Verdict
    from upskill.verdicts.verdict import VerdictOptions as VerdictOptions
else:
    __all__ = sorted(_MODULES)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'upskill' has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES])
