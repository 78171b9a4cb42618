"""A Trial is one model x one case x one arm x one draw: the unit of work, and the only thing that costs money."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from random import Random
from typing import Any, Literal

from upskill.agents import AGENTS, Agent, Bounds, ExternalAgent, Task
from upskill.agents.activation import canary_for, plant_canary
from upskill.agents.mcp import check_servers
from upskill.checks.answer import MaxLength
from upskill.errors import UsageError
from upskill.models import Address, RequestHash
from upskill.models.addresses import identity_of, resolve
from upskill.models.keys import find_keys
from upskill.plain import canonical, counted, digest, digest_text, listed, short
from upskill.runs.planning.draws import REPEATS, TEMPERATURE, DrawRules, seed_of
from upskill.skills import Skill
from upskill.skills.placebo import placebo
from upskill.suites import Case, Suite
from upskill.traces import NO_USAGE, Trace, Usage
from upskill.verdicts.outcome import Cause, Outcome

DEFAULT_OUTPUT_TOKENS = 4096
LOWEST_SEED, HIGHEST_SEED = -(2**63), 2**63 - 1  # what servers take and the store can keep
Arm = Literal["baseline", "skill", "placebo", "baseline_repeat"]
SAMPLED = TEMPERATURE
REPEAT_SEED_OFFSET = 1_000_003  # added to the seeds of the arm `baseline_repeat`
CONTROLS: tuple[Arm, ...] = ("placebo", "baseline_repeat")
BOTH_ARMS: tuple[Arm, ...] = ("baseline", "skill")
# Part of every trial's key: raise it when the same plan would be carried out differently than before.
GENERATION = 2
_ARM_IN_KEY = {"baseline_repeat": "again"}  # stored keys have this arm under its first name

# The output limit of embedded models where nobody sets one: small models ramble on until they are stopped.
MIN_TOKENS, MIN_ACTING_TOKENS = 256, 512  # for an answer, and for a turn of an agent that acts
WORD_TOKENS = 4  # for a word that a case allows: twice what a word takes, code included
ACTIVATION_TOKENS = 64  # for a turn that is only to show whether a skill is activated
TELLING_CHECKS = (
    "contains",
    "equals",
    "starts_with",
)  # what they look for is part of a good answer


@dataclass(frozen=True, slots=True)
class Trial:
    model: str
    case: str
    arm: Arm
    seed: int  # of its round: both arms of a round have the same one


# What a run is for: `eval` gives verdicts; a search compares candidates, and its runs are not listed.
Purpose = Literal["eval", "search", "gate", "trigger"]


@dataclass(frozen=True, slots=True)
class ReplaySource:
    """The file of replies that a run is replayed from. Anyone can write one, so what it says is only a claim."""

    file: str  # its name
    sha256: str
    date: str
    date_is_recorded: bool = (
        True  # False: it does not say when it was recorded, and this is the date of the file
    )

    def __str__(self) -> str:
        date = f"{'recorded' if self.date_is_recorded else 'file of'} {self.date}"
        return f"replayed from {self.file} (sha256 {self.sha256[:12]}…, {date})"


@dataclass(frozen=True)
class Plan:
    """Everything that decides what is run: plain values that can be stored or carried to another machine."""

    skill: Skill
    suite: Suite
    models: tuple[Address, ...]
    arms: tuple[Arm, ...] = BOTH_ARMS
    runs: int = 1  # rounds; an exact student has one
    seed: int = 0  # of the first round
    agent: str = "chat"
    temperature: float | None = None  # that was stated; None: what is usual for each student
    max_output_tokens: int = 4096
    limit_is_stated: bool = False  # someone chose that limit, so embedded models keep to it too
    judge: Address | None = None
    reference_skill: Skill | None = (
        None  # an older skill that takes the place of no skill in the baseline arm
    )
    distractors: tuple[Skill, ...] = ()  # on offer in every arm of an agent that acts
    bounds: Bounds = field(default_factory=Bounds)  # of an agent that acts
    sandbox: str = ""  # the kind of sandbox; empty: the first that proves itself
    purpose: Purpose = "eval"
    rounds: Mapping[str, int] = field(
        default_factory=dict[str, int]
    )  # of models that have other numbers of rounds
    from_cache: frozenset[str] = frozenset()  # models whose servers answer from a cache
    dropped: tuple[str, ...] = ()  # cases of earlier runs that had some of these
    shuffle: int = 0  # the seed of the order in which the trials of a round run
    replay: str = ""  # a hash of the recorded replies that it is played from; no part of a trial
    replay_of: tuple[str, str] | None = None  # then: the run that was recorded, and when it began
    replay_source: ReplaySource | None = None  # then: the file
    recorded_salt: str = ""  # then: the salt of that run
    recorded_keys: Mapping[Trial, str] = field(
        default_factory=dict[Trial, str]
    )  # then: the keys that trials had

    def __repr__(self) -> str:
        return f"Plan({self.skill.name!r}, {[*self.addresses]}, {counted(len(self), 'trial')})"

    def skill_of(self, arm: Arm) -> Skill | None:
        """What an arm sees: the only difference between two arms."""
        if arm == "skill":
            return self.skill
        return self._placebo if arm == "placebo" else self.reference_skill

    @property
    def labels(self) -> dict[str, str]:
        """What people read for each arm."""
        baseline, skill = "baseline", "with skill"
        if self.reference_skill:
            baseline, skill = "reference skill", "this skill"
        return {
            "baseline": baseline,
            "skill": skill,
            "placebo": "placebo",
            "baseline_repeat": "A/A control",
        }

    @cached_property
    def acts(self) -> bool:
        agent: type[Agent] = AGENTS.load(self.agent)
        return agent.needs_sandbox

    @cached_property
    def _placebo(self) -> Skill:
        return placebo(self.skill)

    @cached_property
    def addresses(self) -> dict[str, Address]:
        return {address.name: address for address in self.models}

    @cached_property
    def draws(self) -> dict[str, DrawRules]:
        """How each student answers, by its name."""
        return {
            address.name: DrawRules(
                address, self.agent, self.temperature, address.name in self.from_cache
            )
            for address in self.models
        }

    def is_exact(self, model: str) -> bool:
        return self.draws[model].is_exact

    @property
    def exact(self) -> frozenset[str]:
        return frozenset(filter(self.is_exact, self.addresses))

    def rounds_of(self, model: str) -> int:
        return self.draws[model].rounds(self.rounds.get(model, self.runs))

    def seeds_of(self, model: str) -> range:
        return range(self.seed, self.seed + self.rounds_of(model))

    @property
    def seeds(self) -> range:
        """Of all rounds that any model has."""
        return range(self.seed, self.seed + max(map(self.rounds_of, self.addresses), default=0))

    def __len__(self) -> int:
        rounds = sum(map(self.rounds_of, self.addresses))
        return rounds * len(self.arms) * len(self.suite.cases)

    def trials(self) -> Iterator[Trial]:
        """Every trial, in the order they run: round by round, and in a round all arms and cases in random order.

        An embedded model runs arm by arm, so its servers share a beginning; a trial of each skill comes first, to be
        read while others do the baseline.
        """
        for address in self.models:
            model, seeds = address.name, self.seeds_of(address.name)
            if address.provider != "local":
                for seed in seeds:
                    yield from self._shuffled_round(model, seed)
                continue
            by_arm = [
                Trial(model, case.id, arm, seed)
                for arm, seed, case in product(self.arms, seeds, self.suite.cases)
            ]
            first = [
                trial
                for trial in by_arm[:: len(by_arm) // len(self.arms)]
                if self.skill_of(trial.arm)
            ]
            yield from (*first, *(trial for trial in by_arm if trial not in first))

    def _shuffled_round(self, model: str, seed: int) -> list[Trial]:
        pairs = product(self.suite.cases, self.arms)
        trials = [Trial(model, case.id, arm, seed) for case, arm in pairs]
        Random(f"{self.shuffle} {seed}").shuffle(trials)  # noqa: S311 - an order, no secret
        return trials

    def key(self, trial: Trial) -> str:
        """A hash of everything that defines a trial: with equal keys, a result can be reused."""
        return self.key_beside(trial, self.salt)

    def key_beside(self, trial: Trial, salt: str) -> str:
        """The key that a trial had, or would have, in a run with this salt."""
        before, after = self._questions[trial.model, trial.case]
        settings, arm = self._settings[trial.model], self._arms[trial.arm]
        drawn = "" if self.draws[trial.model].is_deterministic else f",{salt}"
        return digest_text(f"[{settings},{arm},{before},{trial.seed}{after}{drawn}]")

    @cached_property
    def salt(self) -> str:
        """A hash of what makes a draw new beside its round: all texts that it is drawn beside, the part of the suite
        and the purpose. No answer of a deterministic student depends on these."""
        if self.recorded_salt:
            return self.recorded_salt
        part = self.suite.part.chosen if self.suite.part else ""
        made_of = [sorted(self._arms.values()), part, self.purpose]
        # Draws that chose the cases are in no verdict.
        return digest([*made_of, self.dropped] if self.dropped else made_of)

    @property
    def replays_old_file(self) -> bool:
        """Its replies were recorded when seeds had no salt and every student was sent a temperature."""
        return bool(self.replay) and not self.recorded_salt

    def request_seed(self, trial: Trial) -> int:
        """What a server gets. It decides which stored reply fits, so a new draw has another one."""
        # The baseline run again must be another draw: with the same seed it would be the same answer.
        again = trial.arm == "baseline_repeat"
        if self.draws[trial.model].is_deterministic or self.replays_old_file:
            return trial.seed + REPEAT_SEED_OFFSET if again else trial.seed
        return seed_of(trial.seed, self.salt, trial.arm if again else "")

    @cached_property
    def _questions(self) -> dict[tuple[str, str], tuple[str, str]]:
        """By model and case: the parts of a key before and after the seed."""
        questions: dict[tuple[str, str], tuple[str, str]] = {}
        for model, case in product(self.addresses, self.suite.by_id):
            limit = self.output_limit(Trial(model, case, "skill", 0))
            own_limit = (
                f",{limit}" if limit != self.max_output_tokens else ""
            )  # the common limit is in the settings
            questions[model, case] = f"{self._models[model]},{self._cases[case]}", own_limit
        return questions

    def output_limit(self, trial: Trial) -> int:
        """In tokens. An embedded model gets as many as fit the case: it would ramble on."""
        if own := self.suite.by_id[trial.case].max_output_tokens:
            return own
        if self.limit_is_stated or self.addresses[trial.model].provider != "local":
            return self.max_output_tokens
        return (
            ACTIVATION_TOKENS if self.bounds.until_activated else self._fitting_limits[trial.case]
        )

    @cached_property
    def _fitting_limits(self) -> dict[str, int]:
        return {case.id: fitting_limit(case, acts=self.acts) for case in self.suite.cases}

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all but the number of rounds: two plans with the same one are the same run, which may grow."""
        # Of what the trials are made from: their keys may be hundreds of thousands.
        questions = sorted("".join(parts) for parts in self._questions.values())
        replay = [f"replay {self.replay}"] if self.replay else []
        return digest([self.setup, questions, *replay])

    @cached_property
    def setup(self) -> str:
        """A hash of what the draws of a skill have in common, whatever the cases and the models."""
        return digest([self._common_settings(self.temperature), self.salt, self.seed])

    def canary(self, trial: Trial) -> str:
        return canary_for(self.recorded_keys.get(trial) or self.key(trial))

    @cached_property
    def canaries(self) -> frozenset[str]:
        return frozenset(self.canary(trial) for trial in self.trials() if self.skill_of(trial.arm))

    @cached_property
    def _settings(self) -> dict[str, str]:
        """By model: the part of a key that all its trials share."""
        return {
            model: self._common_settings(draws.temperature) for model, draws in self.draws.items()
        }

    def _common_settings(self, temperature: float | None) -> str:
        agent: Agent = AGENTS.load(self.agent)()
        settings: list[Any] = [
            GENERATION,
            [self.agent, agent.version] if isinstance(agent, ExternalAgent) else self.agent,
            temperature,
            self.max_output_tokens,
            self.limit_is_stated,
            self.judge and [self.judge, *identity_of(self.judge)],
        ]
        if self.acts:
            settings += [[skill.visible_hash for skill in self.distractors], self.bounds]
        return canonical(settings)[1:-1]

    @cached_property
    def _arms(self) -> dict[str, str]:
        hashes = {
            arm: skill.visible_hash if (skill := self.skill_of(arm)) else "" for arm in self.arms
        }
        return {arm: canonical([_ARM_IN_KEY.get(arm, arm), hashes[arm]])[1:-1] for arm in self.arms}

    @cached_property
    def _models(self) -> dict[str, str]:
        def identity(address: Address) -> list[Any]:
            in_json = (
                self.agent == "tools" and address.provider == "local"
            )  # they had calls of their own once
            return [address, *identity_of(address), *(["calls in JSON"] if in_json else [])]

        return {address.name: canonical(digest(identity(address))) for address in self.models}

    @cached_property
    def _cases(self) -> dict[str, str]:
        """What decides an outcome besides the student: the case, prompts of judges, and the sandbox."""
        identities: dict[str, str] = {}
        for case in self.suite.cases:
            prompts = [prompt for named in case.checks for prompt in named.check.prompts]
            sandbox = self.sandbox if self.acts or case.needs_sandbox else ""
            identity = [case.id, case.fingerprint, digest(prompts) if prompts else "", sandbox]
            identities[case.id] = canonical(identity)[1:-1]
        return identities


def fitting_limit(case: Case, *, acts: bool) -> int:
    """In tokens: what a good answer takes as far as the case tells, but room for a few sentences at least.

    Digits, hexadecimal bytes and many scripts take a token or two per character; prose takes a quarter of that.
    """
    expected = [str(named.config) for named in case.checks if named.name in TELLING_CHECKS]
    answers = [answer for answer in (case.reference, *case.right) if isinstance(answer, str)]
    bounds = {named.name: named.config for named in case.checks if isinstance(named.config, int)}
    longest = max(*map(len, [*expected, *answers]), bounds.get("min_length", 0))
    limit = max(
        MIN_ACTING_TOKENS if acts else MIN_TOKENS, longest, WORD_TOKENS * (case.max_words or 0)
    )
    for named in case.checks:
        if (
            isinstance(named.check, MaxLength) and named.check.brief and not acts
        ):  # characters; a longer answer fails
            limit = min(limit, 2 * named.check.characters + 16)
    return min(limit, DEFAULT_OUTPUT_TOKENS)


def task_of(plan: Plan, trial: Trial) -> Task:
    case = plan.suite.by_id[trial.case]
    skill = plan.skill_of(trial.arm)
    if skill is not None and plan.acts:
        skill = plant_canary(skill, plan.canary(trial))
    temperature = plan.draws[trial.model].temperature
    if temperature is None and plan.replays_old_file:
        temperature = plan.temperature
    return Task(
        case.prompt,
        case.files,
        skill,
        plan.request_seed(trial),
        temperature,
        plan.output_limit(trial),
        plan.distractors if plan.acts else (),
        plan.bounds,
        case.mcp_servers,
    )


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """The finding of one check, under its name in the suite."""

    check: str
    passed: bool
    reason: str
    decides: bool = True  # False: reported beside the outcome, and no part of it


@dataclass(frozen=True, slots=True)
class Result:
    """Result of one trial: passed, failed, or errored (`passed` is None and `error` says why)."""

    trial: Trial
    key: str
    passed: bool | None
    error: str = ""
    trace: Trace | None = None
    findings: tuple[CheckFinding, ...] = ()
    usage: Usage = NO_USAGE
    judging: Usage = NO_USAGE  # what grading used, on top of the student
    seconds: float = 0.0
    fatal: bool = False  # the next trial of this model would error the same way; not stored
    activated: bool | None = None  # None: no skill was on offer that an agent could open
    leak: str = ""  # what shows that this trial saw a skill that was kept from it
    traceback: str = ""  # of a bug in upskill that ended it
    cause: Cause | Literal[""] = (
        ""  # of a failure: why there was no answer that could pass; or `verbose`, `judge`
    )
    asked: tuple[RequestHash, ...] = ()  # what the student and the judge were asked, as hashes
    # False: an error before the student can have been asked, or one that leaves its answer to be graded later.
    is_final: bool = True

    def __repr__(self) -> str:
        how = {True: "passed", False: "failed", None: f"errored: {short(self.error)}"}[self.passed]
        return f"Result({self.trial}, {how})"

    @property
    def bug(self) -> bool:
        """A bug in upskill ended it, not the provider or the student."""
        return bool(self.traceback)

    @property
    def checks_passed(self) -> tuple[int, int]:
        decided = [finding.passed for finding in self.findings if finding.decides]
        return sum(decided), len(decided)

    @property
    def tool_errors(self) -> int:
        return sum(step.status == "error" for step in self.trace.calls) if self.trace else 0

    @property
    def outcome(self) -> Outcome:
        return Outcome(
            self.trial.model,
            self.trial.case,
            self.trial.arm,
            self.trial.seed,
            self.passed,
            self.usage.input_tokens,
            self.usage.output_tokens,
            self.usage.cost_usd,
            self.usage.cached_tokens,
            self.seconds,
            *self.checks_passed,
            self.activated,
            self.trace.turns if self.trace else 0,
            len(self.trace.calls) if self.trace else 0,
            self.tool_errors,
            bool(self.leak),
            self.bug,
            self.cause,
            self.trace.model if self.trace else "",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """How a skill is put to the test. Without a number of runs or a temperature, students have theirs (`draws`)."""

    base_url: str = ""  # an OpenAI-compatible server that every model is asked at
    runs: int | None = None  # how often each case is run
    seed: int = 0
    temperature: float | None = None
    max_output_tokens: int | None = None  # goes before the limits that a suite and its cases state
    baseline: bool = True
    agent: str = "chat"
    judge: str | Address = ""
    controls: bool = False
    reference_skill: Skill | None = None
    distractors: Sequence[Skill] = ()
    bounds: Bounds = field(default_factory=Bounds)
    sandbox: str = ""
    gpu: bool = False  # every case gets one, also those that do not say so
    mcp_hosts: Sequence[str] = ()  # that MCP servers of the suite may reach
    keys: Mapping[str, str] | None = None  # None: those of the environment and of .env


def make_plan(
    skill: Skill | str | Path,
    suite: Suite | str | Path | None = None,
    models: Iterable[str | Address] = ("local",),
    options: PlanOptions | None = None,
) -> Plan:
    """UsageError for a plan that cannot run. A skill and a suite may be paths; one model may be its name."""
    options = options or PlanOptions()
    keys = find_keys() if options.keys is None else options.keys
    skill = Skill.load(skill) if isinstance(skill, str | Path) else skill
    suite = Suite.load(suite) if isinstance(suite, str | Path) else suite or Suite.of(skill)
    models = [models] if isinstance(models, str) else models
    if suite is None:
        raise UsageError(
            f"{skill.folder or skill.name}: no test cases",
            "Pass a suite with --tests FILE, add evals/suite.yaml to the skill's folder, or generate a suite"
            " with --test-writer MODEL.",
        )
    addresses = tuple(dict.fromkeys(_address(model, keys, options.base_url) for model in models))
    if not addresses:
        raise UsageError("no model given", "For example: -m local")
    if not options.baseline and (options.controls or options.reference_skill):
        raise UsageError(
            f"{'controls need' if options.controls else 'a reference skill needs'} a baseline",
            "Drop --no-baseline.",
        )
    runs = REPEATS if options.runs is None else options.runs
    if runs < 1:
        raise UsageError("repeats must be at least 1")
    if not LOWEST_SEED <= options.seed <= HIGHEST_SEED - runs:
        raise UsageError(
            f"{options.seed} is not a valid seed", "Use an integer of at most 63 bits."
        )
    acting: type[Agent] = AGENTS.load(options.agent)
    if not acting.needs_sandbox and options.distractors:
        raise UsageError(
            f"the {options.agent!r} agent has no catalog for other skills",
            "Use an agent with a catalog, for example --agent tools.",
        )
    _check_servers(suite, options, acting)
    if isinstance(agent := acting(), ExternalAgent):
        for address in addresses:
            agent.check(address, keys, options.sandbox)
    skills = [skill, *options.distractors]
    names = [each.name for each in skills]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        folders = listed(
            [str(each.folder) for each in skills if each.name == twice[0] and each.folder]
        )
        message = f"two skills are named {twice[0]!r}{folders and f': {folders}'}"
        raise UsageError(message, "Agents open skills by name: drop one of them.")
    judged = [
        case.id for case in suite.cases if any(named.check.needs_judge for named in case.checks)
    ]
    if judged and not options.judge:
        cases = (
            f"{len(judged)} cases ({judged[0]!r} is the first) need"
            if judged[1:]
            else f"case {judged[0]!r} needs"
        )
        raise UsageError(
            f"{suite.source}: {cases} a judge",
            "Choose one with --judge, for example --judge sonnet.",
        )
    limit = options.max_output_tokens or suite.max_output_tokens
    if options.max_output_tokens:
        suite = replace(
            suite, cases=tuple(replace(case, max_output_tokens=None) for case in suite.cases)
        )
    if options.gpu:
        suite = replace(suite, cases=tuple(replace(case, gpu=True) for case in suite.cases))
    return Plan(
        skill,
        suite,
        addresses,
        arms=_arms_of(suite, options),
        runs=runs,
        seed=options.seed,
        agent=options.agent,
        temperature=options.temperature,
        max_output_tokens=limit or DEFAULT_OUTPUT_TOKENS,
        limit_is_stated=limit is not None,
        judge=_address(options.judge, keys) if options.judge and judged else None,
        reference_skill=options.reference_skill,
        distractors=tuple(options.distractors),
        bounds=options.bounds,
        sandbox=options.sandbox,
    )


def _arms_of(suite: Suite, options: PlanOptions) -> tuple[Arm, ...]:
    """A part of a suite shows what the skill does on it, and is compared with nothing."""
    if suite.part is not None or not options.baseline:
        return ("skill",)
    return (*BOTH_ARMS, *(CONTROLS if options.controls else ()))


def _check_servers(suite: Suite, options: PlanOptions, acting: type[Agent]) -> None:
    for case in suite.cases:
        if case.mcp_servers and not acting.needs_sandbox:
            able = [name for name in AGENTS.names() if AGENTS.load(name).needs_sandbox]
            raise UsageError(
                f"{suite.source}: case {case.id!r} has MCP servers, but the {options.agent!r} agent cannot call tools",
                f"Use an agent that can: {', '.join(f'--agent {name}' for name in able)}.",
            )
        check_servers(case.mcp_servers, options.mcp_hosts, outside=options.agent == "tools")


def _address(model: str | Address, keys: Mapping[str, str], base_url: str = "") -> Address:
    return resolve(model, base_url, keys) if isinstance(model, str) else model
