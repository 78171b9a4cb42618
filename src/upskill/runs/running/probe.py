"""Probe for a cache: a server that gives two requests with different seeds the same free prose draws nothing anew."""

from __future__ import annotations

from upskill.errors import ModelError
from upskill.models import Message, Model, Reply, Request
from upskill.runs.planning.draws import TEMPERATURE
from upskill.runs.planning.stored_plan import ProbeResult
from upskill.traces import NO_USAGE

PROMPT = "Write a few sentences about anything you like."
TOKENS = 60
SEEDS = (1, 2)
MIN_PROSE = 80  # characters: a shorter answer ("I do not know.") may well come twice


async def probe_for_cache(model: Model) -> ProbeResult:
    """Two calls that are in the bill, and in no verdict. CeilingReached where they may not be paid."""
    # One after the other: a cache has an answer only once it was given.
    first, second = [await _ask(model, seed) for seed in SEEDS]
    usage = first.usage + second.usage
    are_usable = {first.stop, second.stop} <= {"end", "length"}
    is_prose = len(first.text.strip()) >= MIN_PROSE
    return ProbeResult(
        from_cache=are_usable and is_prose and first.text == second.text,
        tokens=usage.total_tokens,
        cost_usd=usage.cost_usd,
    )


async def _ask(model: Model, seed: int) -> Reply:
    """Without text where there is no answer, but with what it cost: the trials will say what is wrong."""
    message = Message("user", PROMPT)
    request = Request((message,), max_output_tokens=TOKENS, temperature=TEMPERATURE, seed=seed)
    try:
        return await model.reply(request)
    except ModelError as error:
        return Reply("", error.usage or NO_USAGE)
