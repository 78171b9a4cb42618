"""Matrix: which skill takes the requests of another when all of a folder are installed, for each of these students."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from upskill.authoring.trigger.trigger import TRIGGER_PLAN, make_trigger_plan, skills_opened
from upskill.errors import UsageError
from upskill.experiments.engine import Engine, fit_rounds, open_engine, until_ceiling
from upskill.experiments.shadowing import MAX_ROUNDS, TOLERANCE, Asked, Conflict, Names, Shadowing
from upskill.models.pool import Models
from upskill.runs.planning.plan import Plan, PlanOptions
from upskill.runs.running.events import Events
from upskill.runs.stores import Store
from upskill.skills import Skill
from upskill.skills.agent_specs import AGENT_SPECS
from upskill.skills.catalogs import shown_descriptions
from upskill.suites import Suite
from upskill.suites.near_duplicates import telling_words
from upskill.suites.queries import Queries, Query
from upskill.verdicts.interval import rounded

NEARLY_ALL = 0.9  # of a skill's requests: a skill that takes so many makes it useless
MAX_SHARED, MIN_WORD = 6, 4  # words that are named, and letters of one
NO_DESCRIPTION = "..."  # of a skill that a catalog lists by its name only


@dataclass(frozen=True, kw_only=True)
class MatrixSettings:
    catalog: str = ""  # an agent of `AGENT_SPECS` whose catalog cuts the descriptions; empty: all are shown whole
    tolerance: float = TOLERANCE  # of the requests that a skill seems to lose
    repeats: int | None = (
        None  # of the last test, at most; 1: greedy, and what is seen is the truth
    )


@dataclass(frozen=True, slots=True)
class Advice:
    kind: Literal["merge", "drop", "reword", "shorten", "look"]
    words: str


async def matrix(
    skills: Iterable[Skill],
    students: Sequence[str] = ("local",),
    *,
    settings: MatrixSettings | None = None,
    options: PlanOptions | None = None,
    store: Store | None = None,
    models: Models | None = None,
    events: Events | None = None,
) -> list[Matrix]:
    """For each student, which of the skills take the requests of others when all are installed."""
    installed, settings, options = (
        tuple(skills),
        settings or MatrixSettings(),
        options or TRIGGER_PLAN,
    )
    searches = [Matrix(installed, name, settings, options) for name in students]
    async with open_engine(store, models, events) as engine:
        return [await each.run(engine) for each in searches]


def find_requests(skill: Skill) -> Queries | None:
    """What should trigger it: its queries, or the prompts of its train cases."""
    if (queries := Queries.of(skill)) and queries.should_trigger:
        return Queries(queries.should_trigger, queries.source)
    if (suite := Suite.of(skill)) and (
        prompts := dict.fromkeys(case.prompt.strip() for case in suite.train)
    ):
        return Queries(
            tuple(Query(prompt, should_trigger=True) for prompt in prompts), suite.source
        )
    return None


@dataclass
class Matrix:
    """What one student does with all skills installed: the search and, once it has run, its result.

    A UsageError when it is made, before anything is paid for, if it cannot be run.
    """

    skills: tuple[Skill, ...]
    student: str
    settings: MatrixSettings
    options: PlanOptions
    plans: dict[str, Plan] = field(
        default_factory=dict[str, Plan]
    )  # of each skill with requests, beside all others
    halted: str = ""

    def __post_init__(self) -> None:
        settings, given = self.settings, self.options
        if len(self.skills) < 2:
            raise UsageError(
                "a matrix needs at least two skills", "Name a folder with several skills."
            )
        self.always = frozenset(
            skill.name for skill in given.distractors
        )  # installed in every trial
        self.by_name = {skill.name: skill for skill in (*self.skills, *given.distractors)}
        self.spec = AGENT_SPECS.get(settings.catalog)
        self.catalog = self.spec.title if self.spec else ""
        if settings.catalog and not (self.spec and self.spec.catalog):
            known = ", ".join(name for name, spec in AGENT_SPECS.items() if spec.catalog)
            raise UsageError(
                f"the catalog of {settings.catalog!r} is not known", f"Known: {known}."
            )
        self.requests = {
            skill.name: found for skill in self.skills if (found := find_requests(skill))
        }
        if not self.requests:
            hint = "Put eval_queries.json or a suite in their folders; `upskill trigger --test-writer` writes queries."
            raise UsageError("none of these skills has queries or test cases", hint)
        rounds = MAX_ROUNDS
        for name, queries in self.requests.items():
            others = [
                skill
                for skill in (*self.skills, *given.distractors)
                if skill is not self.by_name[name]
            ]
            options = replace(given, distractors=others, runs=settings.repeats or 2)
            plan = make_trigger_plan(self.by_name[name], queries, [self.student], options)
            self.plans[name], rounds = fit_rounds(plan, settings.repeats, MAX_ROUNDS)
        self.shadowing = Shadowing(
            skills=tuple(skill.name for skill in self.skills),
            queries={
                name: tuple(query.id for query in queries)
                for name, queries in self.requests.items()
            },
            measure=self._measure,
            rounds=rounds,
            tolerance=settings.tolerance,
            seed=given.seed,
        )
        offered = self._offered(frozenset(self.by_name)).items()
        # What the catalog shows of each description, with all installed.
        self.shown = {name: skill.description if skill else None for name, skill in offered}

    @property
    def notes(self) -> tuple[str, ...]:
        from_suite = [name for name in self.requests if not Queries.of(self.by_name[name])]
        without = [skill.name for skill in self.skills if skill.name not in self.requests]
        notes = {
            "No queries, so prompts from the suite are used": from_suite,
            "No queries that should trigger it and no suite, so it can only take requests": without,
        }
        return tuple(f"{why}: {', '.join(names)}." for why, names in notes.items() if names)

    async def run(self, engine: Engine) -> Matrix:
        self.engine, self.shadowing.tell = engine, engine.tell
        self.halted = await until_ceiling(self.shadowing.run())
        return self

    def _offered(self, names: Names) -> dict[str, Skill | None]:
        """What the catalog shows if these are installed; None: it leaves the skill out."""
        skills = [self.by_name[name] for name in sorted(names | self.always)]
        if not self.spec or not self.spec.catalog:
            return {skill.name: skill for skill in skills}
        descriptions = shown_descriptions(
            self.spec.catalog, [(skill.name, skill.description) for skill in skills]
        )
        return {
            skill.name: None
            if shown is None
            else skill.with_description(shown.strip() or NO_DESCRIPTION)
            for skill, shown in zip(skills, descriptions, strict=True)
        }

    async def _measure(
        self, skill: str, others: Names, queries: Sequence[str], seeds: range
    ) -> Iterable[Asked]:
        offered = self._offered(others | {skill})
        own = offered.pop(skill)
        if own is None:  # nobody can open what is not in the catalog
            return [Asked(query, seed, ()) for query in queries for seed in seeds]
        beside = tuple(other for other in offered.values() if other)
        plan = replace(self.plans[skill], skill=own, distractors=beside)
        evaluation = await self.engine.run_part(plan, queries, seeds)
        return [
            Asked(each.trial.case, each.trial.seed, skills_opened(each, skill, others))
            for each in self.engine.store.results(evaluation.run)
        ]

    @property
    def conflicts(self) -> list[Conflict]:
        """Those that are shown; the largest loss first."""
        return sorted(
            self.shadowing.shown, key=lambda each: each.change.value if each.change else 0.0
        )

    @property
    def cut(self) -> list[str]:
        """Skills whose description the catalog cuts or leaves out."""
        return [each.name for each in self.skills if self.shown[each.name] != each.description]

    def taken(self, conflict: Conflict) -> float:
        """The share of the skill's requests that the others were opened for instead, with all installed."""
        shares = self.shadowing.shares(conflict.skill)
        return sum(shares.get(other, 0.0) for other in conflict.others)

    def advice(self, conflict: Conflict) -> Advice:
        skill = conflict.skill
        if len(conflict.others) > 1:
            if skill in self.cut:
                seen = "leaves it out" if self.shown[skill] is None else "cuts its description"
                return Advice(
                    "shorten",
                    f"The catalog of {self.catalog} {seen}: shorten descriptions, or drop skills.",
                )
            return Advice(
                "look",
                "No single one of them is responsible: it loses requests only beside several.",
            )
        (other,) = conflict.others
        if any((each.skill, each.others) == (other, {skill}) for each in self.shadowing.shown):
            return Advice(
                "merge",
                "They take each other's requests: merge them, or say in each what only that skill does.",
            )
        if self.taken(conflict) >= NEARLY_ALL:
            return Advice(
                "drop",
                f"It gets nearly none of its requests: drop it, or say what {other} does not do.",
            )
        words = self.shared_words(conflict)
        both = f" Words in both descriptions: {', '.join(words)}." if words else ""
        return Advice(
            "reword", f"Say in {other} what it is not for, and in {skill} what only it does.{both}"
        )

    def shared_words(self, conflict: Conflict) -> list[str]:
        """Of both descriptions; first those of the lost requests, then those that few other skills have."""
        (other,) = conflict.others
        of_skill = {each.name: telling_words(each.description) for each in self.skills}
        counts = Counter(word for words in of_skill.values() for word in words)
        texts = {query.id: query.text for query in self.requests[conflict.skill]}
        asked = {word for query in conflict.queries for word in telling_words(texts[query])}
        shared = [
            word
            for word in of_skill[conflict.skill] & of_skill[other]
            if counts[word] <= max(3, len(self.skills) // 2) and len(word) >= MIN_WORD
        ]
        return sorted(shared, key=lambda word: (word not in asked, counts[word], word))[:MAX_SHARED]

    def to_dict(self) -> dict[str, Any]:
        return {
            "student": self.student,
            "catalog": self.catalog or None,
            "skills": [self._skill_to_dict(skill) for skill in self.skills],
            "conflicts": [self._conflict_to_dict(each) for each in self.conflicts],
            "not_shown": [
                {"skill": each.skill, "others": sorted(each.others), "cleared": each.cleared}
                for each in self.shadowing.conflicts
                if not each.shown
            ],
            "trials": self.shadowing.trials,
            "notes": list(self.notes),
            "halted": self.halted or None,
        }

    def _skill_to_dict(self, skill: Skill) -> dict[str, Any]:
        shadowing, name = self.shadowing, skill.name
        requests = self.requests.get(name)
        shares = shadowing.shares(name) if requests else {}
        return {
            "name": name,
            "description_shown": self.shown[name],
            "requests": len(requests or ()),
            "source": requests and requests.source,
            "alone": rounded(shadowing.alone(name)) if requests else None,
            "opened": {other: rounded(share) for other, share in sorted(shares.items()) if other},
        }

    def _conflict_to_dict(self, conflict: Conflict) -> dict[str, Any]:
        advice, texts = (
            self.advice(conflict),
            {query.id: query.text for query in self.requests[conflict.skill]},
        )
        return {
            "skill": conflict.skill,
            "others": sorted(conflict.others),
            "requests": [texts[query] for query in conflict.queries],
            "taken": rounded(self.taken(conflict)),
            "change": conflict.change.to_dict() if conflict.change else None,
            "rounds": conflict.rounds,
            "advice": advice.kind,
            "what_to_do": advice.words,
        }
