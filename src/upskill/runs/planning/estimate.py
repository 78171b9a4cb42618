"""An Estimate says what trials will cost, before you pay for the first one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from upskill.agents.chat import chat_request
from upskill.errors import UsageError
from upskill.models import Address, Request
from upskill.models.prices import Price, Prices, price_for
from upskill.plain import counted
from upskill.runs.planning.plan import Arm, Plan, Trial, task_of
from upskill.skills import estimate_tokens
from upskill.traces import Usage

USUAL_ANSWER_TOKENS = 30  # tokens, where a case has no reference answer to go by
CASE_TOKENS, CASES_PROMPT = (
    400,
    1600,
)  # of a test case or ten answers to it, and of the examples in the prompt
CASES_CALLS = (
    2,
    6,
)  # one for cases and one for answers to them; at most two more for cases, and two that fix some
# Of agents that act, in tokens: what their tools are described in, one turn, and what comes back from its tools.
TOOLS, TURN, RESULT = 700, 300, 500
MIN_TURNS = 2  # one that does something, and one that answers
JUDGE_PROMPT, JUDGE_REPLY = 300, (60, 1024)

KnownPrices = Prices | Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """A range in dollars: from answers as short as the references to answers as long as allowed."""

    calls: int = 0
    tokens: tuple[int, int] = (0, 0)
    cost_usd: tuple[float, float] = (0.0, 0.0)
    unknown: tuple[str, ...] = ()  # models whose price nobody knows; they are not in the dollars
    acts: bool = False  # how many turns agents take is not known, so there may be more calls

    def __add__(self, other: CostEstimate) -> CostEstimate:
        return CostEstimate(
            self.calls + other.calls,
            (self.tokens[0] + other.tokens[0], self.tokens[1] + other.tokens[1]),
            (self.cost_usd[0] + other.cost_usd[0], self.cost_usd[1] + other.cost_usd[1]),
            tuple(dict.fromkeys((*self.unknown, *other.unknown))),
            acts=self.acts or other.acts,
        )

    @property
    def words(self) -> str:
        low, high = self.cost_usd
        calls, (least, most) = counted(self.calls, "call"), self.tokens
        calls = f"at least {calls}" if self.acts else calls
        summary = f"{calls}, {least:,} to {most:,} tokens, ${low:.2f} to ${high:.2f}"
        return summary + (f" (price unknown: {', '.join(self.unknown)})" if self.unknown else "")

    def check_prices(self) -> None:
        """UsageError when a price is unknown: then no ceiling in dollars can be kept."""
        if self.unknown:
            raise _unknown_price(self.unknown[0])


class _Sums:
    def __init__(self, addresses: Iterable[Address | None], known_prices: KnownPrices) -> None:
        self.prices = {
            address: price_for(address, known_prices) for address in addresses if address
        }
        self.calls = 0
        self.tokens = [0, 0]
        self.cost_usd = [0.0, 0.0]

    def add(
        self,
        end: int,
        address: Address,
        times: int,
        input_size: int,
        output_size: int,
        share: float = 1.0,
    ) -> None:
        """Add so many calls to the low end (0) or the high end (1); of the price, a share is paid."""
        self.tokens[end] += times * (input_size + output_size)
        self.cost_usd[end] += (
            times * share * (self.prices[address].cost(input_size, output_size) or 0.0)
        )

    def estimate(self, *, acts: bool) -> CostEstimate:
        unknown = tuple(
            address.name for address, price in self.prices.items() if not price.is_known
        )
        (least, most), (low, high) = self.tokens, self.cost_usd
        return CostEstimate(self.calls, (least, most), (low, high), unknown, acts=acts)


def check_prices(addresses: Iterable[Address], prices: KnownPrices) -> None:
    """UsageError when a price is unknown: then no ceiling in dollars can be kept."""
    for address in addresses:
        if not price_for(address, prices).is_known:
            raise _unknown_price(address.name)


def _unknown_price(model: str) -> UsageError:
    return UsageError(
        f"--max-cost cannot be enforced: the price of {model} is unknown",
        "Add it to upskill.config.yaml under `prices:` (dollars per million tokens: input, output).",
    )


def estimate(
    plan: Plan,
    trials: Iterable[Trial],
    known_prices: KnownPrices,
    *,
    student_share: float = 1.0,
) -> CostEstimate:
    """What these trials will use. Students pay `student_share` of the list price; a judge pays all of it."""
    sums = _Sums((*plan.models, plan.judge), known_prices)
    inputs: dict[tuple[str, str], int] = {}
    groups = Counter[tuple[str, str, Arm]]((trial.model, trial.case, trial.arm) for trial in trials)
    for (model, case_id, arm), times in groups.items():
        case, trial, address = (
            plan.suite.by_id[case_id],
            Trial(model, case_id, arm, plan.seed),
            plan.addresses[model],
        )
        if (case_id, arm) not in inputs:
            inputs[case_id, arm] = input_tokens(chat_request(task_of(plan, trial)))
        input_size, answer = (
            inputs[case_id, arm],
            estimate_tokens(case.reference) or USUAL_ANSWER_TOKENS,
        )
        if plan.acts:
            used = 0
            for turn in range(plan.bounds.turns):
                context = input_size + TOOLS + turn * (TURN + RESULT)
                output_size = answer if turn == MIN_TURNS - 1 else min(TURN, plan.max_output_tokens)
                if turn < MIN_TURNS:
                    sums.calls += times
                    sums.add(0, address, times, context, output_size, student_share)
                sums.add(1, address, times, context, output_size, student_share)
                used += context + output_size
                if plan.bounds.tokens is not None and used >= plan.bounds.tokens:
                    break
        else:
            sums.calls += times
            sums.add(0, address, times, input_size, answer, student_share)
            sums.add(1, address, times, input_size, plan.output_limit(trial), student_share)
        if plan.judge:
            judge_calls = times * sum(named.check.asks for named in case.checks)
            sums.calls += judge_calls
            for end, reply in enumerate(JUDGE_REPLY):
                sums.add(end, plan.judge, judge_calls, input_size + JUDGE_PROMPT + answer, reply)
    return sums.estimate(acts=plan.acts)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSize:
    """How much there is to write and try, in tokens and numbers of things."""

    material: int
    tokens: int  # of the skill
    cases: int
    attempts: int
    acts: bool = False  # whether the student is an agent that acts


def estimate_search(
    teacher: Address,
    writer: Address,
    student: Address | None,
    known_prices: KnownPrices,
    size: SearchSize,
) -> CostEstimate:
    sums = _Sums((teacher, writer, student), known_prices)

    def add(address: Address, least: int, most: int, input_size: int, output_size: int) -> None:
        sums.calls += most
        for end, times in enumerate((least, most)):
            sums.add(end, address, times, input_size, output_size)

    prompt = size.material + size.tokens + 800
    add(teacher, 1, 2 * (1 + size.attempts), prompt, 2 * size.tokens)
    if size.cases:
        add(writer, *CASES_CALLS, prompt + CASES_PROMPT, CASE_TOKENS * size.cases)
    if student is not None:
        # An agent that acts takes some turns, each of which repeats what came before.
        turns, overhead, answer = (MIN_TURNS, TOOLS + RESULT, TURN) if size.acts else (1, 60, 100)
        cases = size.cases * turns
        add(
            student,
            cases,
            cases * (1 + size.attempts),
            size.tokens + overhead,
            answer,
        )
        add(student, cases, cases, overhead, answer)
    return sums.estimate(acts=size.acts)


def estimate_writing(
    writer: Address,
    prices: KnownPrices,
    *,
    material: int,
    items: int,
    each: int = CASE_TOKENS,
    calls: tuple[int, int] = CASES_CALLS,
) -> CostEstimate:
    sums = _Sums([writer], prices)
    sums.calls = calls[1]
    for end, times in enumerate(calls):
        sums.add(end, writer, times, material + 800 + CASES_PROMPT, each * items)
    return sums.estimate(acts=False)


def input_tokens(request: Request) -> int:
    return sum(estimate_tokens(message.text) + 4 for message in request.messages)


def worst_case_usage(request: Request, price: Price) -> Usage:
    """What one call may use: an answer as long as it may be, and all of its input written into a cache."""
    input_size, output_size = input_tokens(request), request.max_output_tokens
    costs = [
        cost
        for written in (0, input_size)
        if (cost := price.cost(input_size, output_size, 0, written)) is not None
    ]
    return Usage(input_size, output_size, cost_usd=max(costs, default=None))
