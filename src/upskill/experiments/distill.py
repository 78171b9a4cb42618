"""Distill: the shortest version of a skill that is shown not to be worse, for each of these students."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from upskill.authoring.search.refiners import Refiner
from upskill.errors import CeilingReached, UsageError
from upskill.experiments.ablation import MARGIN, NOTHING, Ablation, Blocks, Worth, lift
from upskill.experiments.engine import RunPlan, open_engine, run_version
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
from upskill.verdicts.outcome import Outcome
from upskill.verdicts.statistics import Estimate

HELD_OUT_PAIRS = 96  # about
BUDGET_ROUNDS = 8  # fresh seeds for a skill within a budget
MAX_REWRITES = 3
PROOFS = (RECEIPT, REPLIES, BADGE, CARD)  # of the whole skill; the shorter one has none yet

Decision = Literal[
    "distilled",  # shorter, and shown not to be worse
    "best guess",  # nothing was seen to get worse, but it is not shown
    "worse on held-out cases",  # they need what no train case needs
    "over the margin",  # within the budget, but it may be worse
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
        return {
            "kind": self.block.kind,
            "path": self.block.path,
            "lines": list(self.block.lines),
            "text": self.block.text,
            "tokens": self.block.tokens,
            "fate": self.fate,
            "beside": self.beside,
            "worth": [{"model": each.model, **each.points.to_dict(), "cases": list(each.cases)} for each in self.worth],
        }


@dataclass(frozen=True, slots=True)
class Point:
    """A version of the skill on the front of tokens against pass rate."""

    name: str
    tokens: int
    model: str
    rate: Estimate | None  # on exactly these train cases
    change: Estimate | None = None  # against the whole skill, or what it is without what hurts


@dataclass
class Distilled:
    whole: Skill
    skill: Skill  # the shorter one, or the whole one
    decision: Decision
    blocks: list[BlockWorth]
    front: list[Point]
    ablation: Ablation
    margin: float
    held_out: Evaluation | None = None  # the shorter one against the whole one
    halted: str = ""
    search: str = ""

    @property
    def tokens(self) -> tuple[int, int]:
        return size_of(self.whole), size_of(self.skill)


def size_of(skill: Skill) -> int:
    """The body and its references, in tokens."""
    files = (file for file in skill.files if file.path.startswith("references/"))
    return skill.tokens + sum(estimate_tokens(file.data.decode("utf-8", "replace")) for file in files)


@dataclass(frozen=True, kw_only=True)
class DistillSettings:
    margin: float = MARGIN  # the loss of pass rate that the shorter skill may have
    budget: int | None = None  # tokens
    repeats: int | None = None  # at most; None: as many as the margin takes. 1: greedy, and what is seen is the truth
    rewriter: Refiner | None = None  # rewrites what is left
    search: str = ""  # id that versions are stored under


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
    settings, options, events = settings or DistillSettings(), options or PlanOptions(), events or Events()
    plan = plan_search(skill, suite, students, settings, options)
    async with open_engine(store, models, events) as engine:
        return await Distilling(plan, engine.store, engine.run_plan, settings, events.message).run()


def plan_search(
    skill: Skill, suite: Suite | None, students: Iterable[str], settings: DistillSettings, options: PlanOptions
) -> Plan:
    """All cases; its repeats decide whether students answer greedily."""
    return make_plan(skill, suite, students, replace(options, baseline=False, runs=settings.repeats or 2))


@dataclass
class Distilling:
    plan: Plan
    store: Store
    run_plan: RunPlan
    settings: DistillSettings = field(default_factory=DistillSettings)
    tell: Callable[[str], None] = lambda _: None

    def __post_init__(self) -> None:
        skill, suite = self.plan.skill, self.plan.suite
        # A student that does not act never sees the files: their absence would say nothing.
        self.blocks = [block for block in blocks_of(skill) if self.plan.acts or block.kind != "file"]
        if not self.blocks:
            raise UsageError(f"{skill.name}: there is nothing to take out: it has no text")
        if not suite.train:
            raise UsageError(f"{suite.source}: has no train cases", "Add cases: `upskill tests SKILL --add 10`.")
        self.rewritten: dict[int, Skill] = {}
        self.variants: set[str] = set()
        self.ablation = Ablation(
            parts=self.blocks,
            cases=tuple(case.id for case in suite.train),
            measure=self._measure,
            margin=self.settings.margin,
            rounds=self.settings.repeats or 0,
            seed=self.plan.seed,
            tell=self.tell,
        )
        # What is tried depends on it; the same search goes on where it ended.
        key = [skill.visible_hash, suite.fingerprint, [address.name for address in self.plan.models], self.plan.seed]
        self.search = self.settings.search or f"distill-{digest(key)[:16]}"

    async def run(self) -> Distilled:
        halted, held_out, ablation = "", None, self.ablation
        within: Blocks | None = None
        try:
            await ablation.search()
            if self.settings.rewriter:
                await self._rewrite(self.settings.rewriter)
            await ablation.confirm()
            within = await self._fit()
            if self.plan.suite.held_out and (within or ablation.accepted):
                held_out = await self._hold_out(self.version(within or ablation.dropped))
        except CeilingReached as reached:
            halted = reached.message
        result = self._result(within, halted)
        result.held_out = held_out
        if held_out and any(each.high < 0 and each.value < -self.settings.margin for each in self._loss(held_out)):
            result.decision = "worse on held-out cases"
        self._store(result)
        return result

    def version(self, removed: Blocks) -> Skill:
        rewrites = [number for number in removed if number in self.rewritten]
        if rewrites:
            return self.rewritten[max(rewrites)]
        return without_blocks(self.plan.skill, [self.blocks[number] for number in sorted(removed)])

    async def _measure(self, removed: Blocks, cases: Sequence[str], seeds: range) -> Sequence[Outcome]:
        skill = self.version(removed)
        self.variants.add(skill.visible_hash)
        return await run_version(self.plan, skill, cases, seeds, self.run_plan)

    async def _rewrite(self, rewriter: Refiner) -> None:
        for attempt in range(1, MAX_REWRITES + 1):
            before = self.version(self.ablation.dropped)
            proposal = await rewriter.propose(before, (), (), attempt)
            if proposal is None or proposal.skill.tokens >= before.tokens:
                return
            number = len(self.blocks) + len(self.rewritten)
            self.rewritten[number] = proposal.skill
            if not await self.ablation.try_rewrite(number):
                return
            self.tell(f"Rewritten from {before.tokens:,} to {proposal.skill.tokens:,} tokens")

    async def _fit(self) -> Blocks | None:
        """What else to take out to stay within the budget: first what is worth least per token."""
        ablation, budget = self.ablation, self.settings.budget
        removed = ablation.dropped if ablation.accepted else ablation.reference
        if budget is None or size_of(self.version(removed)) <= budget:
            return None
        for _, wider in self._further(removed.difference(self.rewritten)):
            removed = wider
            if size_of(self.version(removed)) <= budget:
                break
        else:
            least = size_of(self.version(removed))
            raise UsageError(f"even without any block, the skill has {least:,} tokens", "Use a larger --budget.")
        rounds = min(BUDGET_ROUNDS, ablation.rounds)
        for each in (removed, ablation.reference):
            await ablation.measure_anew(each, rounds)
        return removed

    def _further(self, removed: Blocks) -> Iterable[tuple[float, Blocks]]:
        """One block more each time, and what that may cost the student that it costs most."""
        worth = {
            number: max((each.points.value for each in self.ablation.worth(number)), default=0.0)
            for number in range(len(self.blocks))
            if number not in removed
        }
        cost = 0.0
        for number in sorted(worth, key=lambda number: worth[number] / max(1, self.blocks[number].tokens)):
            removed, cost = removed | {number}, cost + max(0.0, worth[number])
            yield cost, removed

    async def _hold_out(self, shorter: Skill) -> Evaluation:
        suite, ablation = self.plan.suite, self.ablation
        cases = Suite(suite.held_out, suite.source, suite.max_output_tokens)
        rounds = min(ablation.rounds, max(1, HELD_OUT_PAIRS // len(cases.cases)))
        plan = replace(
            self.plan, skill=shorter, suite=cases, arms=BOTH_ARMS, reference_skill=self.plan.skill, runs=rounds
        )
        self.tell(f"Comparing both on {counted(len(cases.cases), 'held-out case')}, once")
        return await self.run_plan(plan, RunOptions(partial=True))

    def _loss(self, held_out: Evaluation) -> Iterable[Estimate]:
        """Of each student, on exactly the held-out cases."""
        for model in self.ablation.models:
            arms = [
                {(row.case, row.seed): row.passed for row in held_out.outcomes_of(model) if row.arm == arm}
                for arm in BOTH_ARMS
            ]
            both = sorted(key for key in arms[0].keys() & arms[1].keys() if None not in (arms[0][key], arms[1][key]))
            pairs = [(key[0], float(bool(arms[0][key])), float(bool(arms[1][key]))) for key in both]
            yield lift(pairs, is_exact=self.ablation.repeats_itself)

    def _result(self, within: Blocks | None, halted: str) -> Distilled:
        ablation, whole = self.ablation, self.plan.skill
        removed = ablation.dropped if within is None else within
        decision: Decision = "distilled" if ablation.accepted else "best guess"
        if within is not None:
            change = [ablation.change(within, ablation.reference, model) for model in ablation.models]
            is_over = any(each is None or each.low < -self.settings.margin for each in change)
            decision = "over the margin" if is_over else "distilled"
        elif halted and not ablation.accepted:
            decision, removed = "not decided", NOTHING
        elif not removed:
            decision = "unchanged"
        skill = self.version(removed) if removed else whole
        if removed:
            for path in PROOFS:
                skill = skill.without_file(path)
        return Distilled(
            whole=whole,
            skill=skill,
            decision=decision,
            blocks=[self._judge(number, removed) for number in range(len(self.blocks))],
            front=list(self._front(within)),
            ablation=ablation,
            margin=self.settings.margin,
            halted=halted,
            search=self.search,
        )

    def _judge(self, number: int, removed: Blocks) -> BlockWorth:
        ablation = self.ablation
        worth = ablation.worth(number)
        tested = ablation.smallest_test(number)
        beside = len(tested.group) - 1 if tested else 0
        if ablation.harmful.get(number):
            fate = "harmful"
        elif number in removed:
            fate = "dropped"
        else:
            fate = "kept" if worth else "not tried"
        return BlockWorth(self.blocks[number], fate, worth, beside)

    def _front(self, within: Blocks | None) -> Iterable[Point]:
        ablation = self.ablation
        versions = {
            "whole": NOTHING,
            "without what hurts": ablation.reference,
            "shorter": ablation.dropped,
            "within the budget": within or NOTHING,
        }
        seen = set[Blocks]()
        for name, removed in versions.items():
            if removed in seen:
                continue
            seen.add(removed)
            for model in ablation.models:
                if rate := ablation.pass_rate(removed, model):
                    change = (
                        ablation.change(removed, ablation.reference, model) if removed - ablation.reference else None
                    )
                    yield Point(name, size_of(self.version(removed)), model, rate, change)

    def _store(self, result: Distilled) -> None:
        """As versions: the whole skill with what its blocks are worth, and the shorter one."""
        rates = {point.name: point.rate for point in reversed(result.front)}
        worth = [each.to_dict() for each in result.blocks]
        verdict = {
            "search_decision": "whole",
            "variants": sorted(self.variants),
            "worth": worth,
            **_rate(rates.get("whole")),
        }
        first = self.store.add_candidate(self.search, result.whole, None, True, "the whole skill", verdict)
        if result.skill is result.whole:
            return
        before, after = result.tokens
        note = f"{before:,} → {after:,} tokens"
        shown = {"search_decision": result.decision, **_rate(result.front[-1].rate if result.front else None)}
        accepted = True if result.decision == "distilled" else None
        self.store.add_candidate(self.search, result.skill, first.number, accepted, note, shown)


def _rate(rate: Estimate | None) -> dict[str, Any]:
    return {"skill": {"pass_rate": rate.value}} if rate else {}
