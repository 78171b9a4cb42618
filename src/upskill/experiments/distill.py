"""Distill: the shortest version of a skill that is shown not to be worse, for each of these students."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from upskill.authoring.revising import RevisionRequest
from upskill.authoring.revising.rewrite import propose_edits
from upskill.errors import CeilingReached, UsageError
from upskill.experiments.ablation import NOTHING, TOLERANCE, Ablation, Blocks, Worth
from upskill.experiments.engine import Engine, fit_rounds, open_engine, until_ceiling
from upskill.models.pool import Models
from upskill.plain import counted, digest
from upskill.runs.planning.plan import BOTH_ARMS, Plan, PlanOptions, make_plan
from upskill.runs.results.evaluation import Evaluation
from upskill.runs.running.evaluate import RunOptions
from upskill.runs.running.events import Events
from upskill.runs.stores import Store
from upskill.skills import BADGE, CARD, RECEIPT, REPLIES, Skill, estimate_tokens
from upskill.skills.blocks import Block, blocks_of, without_blocks
from upskill.suites import Suite
from upskill.verdicts.interval import Estimate
from upskill.verdicts.outcome import Outcome
from upskill.verdicts.verdict import Verdict

HELD_OUT_PAIRS = 96  # about
MAX_REWRITES = 3
PROOFS = (RECEIPT, REPLIES, BADGE, CARD)  # of the whole skill; the shorter one has none yet

Decision = Literal[
    "distilled",  # shorter, and shown not to be worse
    "best guess",  # nothing was seen to get worse, but it is not shown
    "worse on held-out cases",  # they need what no train case needs
    "over the tolerance",  # within the budget, but it may be worse
    "unchanged",
    "not decided",  # a ceiling came first
]


@dataclass(frozen=True, slots=True)
class BlockWorth:
    block: Block
    fate: Literal["kept", "dropped", "harmful", "not tried"]
    worth: Sequence[Worth]  # to each student
    beside: int = 0  # other blocks that were taken out with it

    def to_dict(self) -> dict[str, Any]:
        worth = [
            {"model": each.model, **each.points.to_dict(), "cases": list(each.cases)}
            for each in self.worth
        ]
        return self.block.to_dict() | {"fate": self.fate, "beside": self.beside, "worth": worth}


@dataclass(frozen=True, slots=True)
class Point:
    """A version of the skill on the front of tokens against pass rate."""

    name: str
    tokens: int
    model: str
    rate: Estimate  # on exactly these train cases
    change: Estimate | None = None  # against the whole skill, or what it is without what hurts


def size_of(skill: Skill) -> int:
    """The body and its references, in tokens."""
    files = (file for file in skill.files if file.path.startswith("references/"))
    return skill.tokens + sum(
        estimate_tokens(file.data.decode("utf-8", "replace")) for file in files
    )


@dataclass(frozen=True, kw_only=True)
class DistillSettings:
    tolerance: float = TOLERANCE  # the loss of pass rate that the shorter skill may have
    budget: int | None = None  # tokens
    repeats: int | None = (
        None  # at most; None: as many as that takes. 1: greedy, and what is seen is the truth
    )
    rewriter: RevisionRequest | None = None  # rewrites what is left


async def distill(
    skill: Skill,
    suite: Suite | None = None,
    students: Sequence[str] = ("local",),
    *,
    settings: DistillSettings | None = None,
    options: PlanOptions | None = None,
    store: Store | None = None,
    models: Models | None = None,
    events: Events | None = None,
) -> Distilled:
    """The shortest version of the skill that is shown not to be worse. Held-out cases are run once, at the end."""
    settings, options = settings or DistillSettings(), options or PlanOptions()
    plan = make_plan(
        skill, suite, students, replace(options, baseline=False, runs=settings.repeats or 2)
    )
    async with open_engine(store, models, events) as engine:
        return await Distilled(plan, engine, settings).run()


@dataclass
class Distilled:
    """The search and, once it has run, its result."""

    plan: Plan
    engine: Engine
    settings: DistillSettings
    decision: Decision = "not decided"
    blocks: Sequence[BlockWorth] = ()
    front: Sequence[Point] = ()
    within: Blocks | None = None  # what is taken out to stay within the budget
    held_out: Evaluation | None = None  # the shorter one against the whole one
    halted: str = ""

    def __post_init__(self) -> None:
        self.plan, rounds = fit_rounds(self.plan, self.settings.repeats, usual=0)
        skill, suite = self.plan.skill, self.plan.suite
        self.whole = self.skill = skill  # later the shorter one
        # A student that does not act never sees the files: their absence would say nothing.
        self.parts = [block for block in blocks_of(skill) if self.plan.acts or block.kind != "file"]
        if not self.parts:
            raise UsageError(f"{skill.name}: there is nothing to take out: it has no text")
        if not suite.train:
            raise UsageError(
                f"{suite.source}: has no train cases", "Add cases: `upskill tests SKILL --add 10`."
            )
        self.rewritten: dict[int, Skill] = {}
        every = frozenset(range(len(self.parts)))
        least = min(size_of(self.version(every - {number})) for number in every)
        if (self.settings.budget or least) < least:
            raise UsageError(
                f"with a single block, the skill has at least {least:,} tokens",
                "Use a larger --budget.",
            )
        self.ablation = Ablation(
            sections=[block.section for block in self.parts],
            cases=tuple(case.id for case in suite.train),
            measure=self._measure,
            tolerance=self.settings.tolerance,
            rounds=rounds,
            seed=self.plan.seed,
            tell=self.engine.tell,
        )
        # What is tried depends on it; the same search goes on where it ended.
        key = [
            skill.visible_hash,
            suite.fingerprint,
            [address.name for address in self.plan.models],
            self.plan.seed,
        ]
        self.search = f"distill-{digest(key)[:16]}"

    async def run(self) -> Distilled:
        self.halted = await until_ceiling(self._search())
        self._conclude()
        if any(
            each.worth for each in self.blocks
        ):  # otherwise what an earlier search has found stays
            self._store()
        return self

    @property
    def tokens(self) -> tuple[int, int]:
        return size_of(self.whole), size_of(self.skill)

    async def _search(self) -> None:
        ablation = self.ablation
        await ablation.search()
        if self.settings.rewriter and not ablation.has_nothing_to_lose:
            await self._rewrite(self.settings.rewriter)
        await ablation.confirm()
        self.within = await self._fit()
        if self.plan.suite.held_out and (self.within or ablation.accepted):
            self.held_out = await self._hold_out(self.version(self.within or ablation.dropped))

    def version(self, removed: Blocks) -> Skill:
        rewrites = [number for number in removed if number in self.rewritten]
        if rewrites:
            return self.rewritten[max(rewrites)]
        return without_blocks(self.plan.skill, [self.parts[number] for number in sorted(removed)])

    async def _measure(
        self, removed: Blocks, cases: Sequence[str], seeds: range
    ) -> Sequence[Outcome]:
        return (
            await self.engine.run_part(
                replace(self.plan, skill=self.version(removed)), cases, seeds
            )
        ).outcomes

    async def _rewrite(self, rewriter: RevisionRequest) -> None:
        for attempt in range(1, MAX_REWRITES + 1):
            before = self.version(self.ablation.dropped)
            asked = replace(rewriter, skill=before, attempt=attempt, title=f"{attempt}-shorter")
            proposal = await propose_edits(asked)
            # Of a new description or file, a student that chats would notice nothing.
            shorter = before.with_body(proposal.skill.body) if proposal else before
            if shorter.tokens >= before.tokens:
                self.engine.tell("The teacher proposed nothing shorter.")
                return
            number = len(self.parts) + len(self.rewritten)
            self.rewritten[number] = shorter
            if not await self.ablation.try_rewrite(number):
                return
            self.engine.tell(f"Rewritten from {before.tokens:,} to {shorter.tokens:,} tokens")

    async def _fit(self) -> Blocks | None:
        """What else to take out to stay within the budget: first what is worth least per token."""
        ablation, budget = self.ablation, self.settings.budget
        removed = ablation.dropped if ablation.accepted else ablation.reference
        if budget is None or size_of(self.version(removed)) <= budget:
            return None
        removed = removed.difference(self.rewritten)
        left = sorted({*range(len(self.parts))} - removed, key=self._worth_per_token)
        for number in left:
            removed |= {number} if size_of(self.version(removed)) > budget else NOTHING
        for number in reversed(
            left
        ):  # a long one may have gone after short ones that fit without it
            removed -= {number} if size_of(self.version(removed - {number})) <= budget else NOTHING
        ablation.accepted, _ = await ablation.is_good_enough(removed)
        return removed

    def _worth_per_token(self, number: int) -> float:
        """To the student that it is worth most to."""
        worth = max((each.points.value for each in self.ablation.worth(number)), default=0.0)
        return worth / max(1, self.parts[number].tokens)

    async def _hold_out(self, shorter: Skill) -> Evaluation:
        suite, ablation = self.plan.suite, self.ablation
        cases = Suite(suite.held_out, suite.source, suite.max_output_tokens)
        rounds = min(ablation.rounds, max(1, HELD_OUT_PAIRS // len(cases.cases)))
        plan = replace(
            self.plan,
            skill=shorter,
            suite=cases,
            arms=BOTH_ARMS,
            reference_skill=self.plan.skill,
            runs=rounds,
        )
        self.engine.tell(f"Comparing both on {counted(len(cases.cases), 'held-out case')}, once")
        evaluation = await self.engine.run_plan(plan, RunOptions(purpose="search", partial=True))
        if evaluation.halted:
            raise CeilingReached(evaluation.halted)
        return evaluation

    def _is_worse(self, held_out: Verdict) -> bool:
        """On exactly these cases."""
        lift, interval = held_out.these.lift, held_out.these.interval
        if lift is None or interval is None or lift >= -self.settings.tolerance:
            return False
        return interval[1] < 0 or self.ablation.is_exact

    def _conclude(self) -> None:
        ablation, within = self.ablation, self.within
        removed = ablation.dropped if within is None else within
        self.decision = "distilled" if ablation.accepted else "best guess"
        if self.halted:
            self.decision, removed = "not decided", NOTHING
        elif within is not None:
            self.decision = "distilled" if ablation.accepted else "over the tolerance"
        elif not removed:
            self.decision = "unchanged"
        if (
            self.decision == "distilled"
            and self.held_out
            and any(map(self._is_worse, self.held_out.verdicts))
        ):
            self.decision = "worse on held-out cases"
        if removed:
            self.skill = self.version(removed)
            for path in PROOFS:
                self.skill = self.skill.without_file(path)
        self.blocks = [self._judge(number, removed) for number in range(len(self.parts))]
        self.front = list(self._front())

    def _judge(self, number: int, removed: Blocks) -> BlockWorth:
        ablation = self.ablation
        worth, tested = list(ablation.worth(number)), ablation.smallest_test(number)
        beside = len(tested.group) - 1 if tested else 0
        left = "kept" if worth else "not tried"
        fate = (
            "harmful" if ablation.harmful.get(number) else "dropped" if number in removed else left
        )
        return BlockWorth(self.parts[number], fate, worth, beside)

    def _front(self) -> Iterable[Point]:
        ablation = self.ablation
        versions = {
            "whole": NOTHING,
            "without what hurts": ablation.reference,
            "shorter": ablation.dropped,
            "within the budget": self.within or NOTHING,
        }
        first = {removed: name for name, removed in reversed(versions.items())}
        for name, removed in versions.items():
            for model in ablation.models if first[removed] == name else ():
                if rate := ablation.pass_rate(removed, model):
                    is_shorter = bool(removed - ablation.reference)
                    change = (
                        ablation.change(removed, ablation.reference, model) if is_shorter else None
                    )
                    yield Point(name, size_of(self.version(removed)), model, rate, change)

    def _store(self) -> None:
        """As versions: the whole skill with what its blocks are worth, and the shorter one."""
        store, (before, after) = self.engine.store, self.tokens
        rates = {
            point.name: {"skill": {"pass_rate": point.rate.value}} for point in reversed(self.front)
        } or {"": {}}
        worth = [each.to_dict() for each in self.blocks]
        verdict = {"search_decision": "whole", "worth": worth, **rates.get("whole", {})}
        first = store.add_candidate(self.search, self.whole, None, True, "the whole skill", verdict)
        if self.skill is not self.whole:
            verdict = {"search_decision": self.decision, **next(iter(rates.values()))}
            accepted, note = self.decision == "distilled" or None, f"{before:,} → {after:,} tokens"
            store.add_candidate(self.search, self.skill, first.number, accepted, note, verdict)
