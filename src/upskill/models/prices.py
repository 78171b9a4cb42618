"""What tokens cost in US dollars: the user's own prices, zero on this machine, otherwise genai-prices, offline.

A cost of None means that the price is unknown, which is not the same as free.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from upskill.errors import UsageError
from upskill.models import Address
from upskill.models.endpoints import ENDPOINTS, is_loopback
from upskill.skills.agent_specs import AGENT_SPECS

Prices = Mapping[str, Mapping[str, float]]  # by model name: USD per million tokens
BATCH_SHARE = 0.5  # of the list price, at every provider that has a batch API
# opencode's names of providers that have another name in our table of endpoints.
OPENCODE_ENDPOINTS = {
    "togetherai": "together",
    "fireworks-ai": "fireworks",
    "huggingface": "hf",
    "google": "gemini",
}
FREE = "free"  # the price list id of this machine
HF_ROUTER = "huggingface"  # costs what the host costs: MODEL:HOST
PROBE_TOKENS = 1_000  # far below the first tier of any price list
FLAT_RATE_TOKENS = 100_000  # of input; above, some models cost more per token


@dataclass(frozen=True, slots=True)
class Price:
    """Dollars per million tokens; those read from or written into a cache are input too."""

    input: float
    output: float
    cached: float
    written: float
    provider: str = ""  # where the price of longer prompts is looked up
    model: str = ""
    is_known: bool = True

    def cost(
        self, input_tokens: int, output_tokens: int, cached_tokens: int = 0, written_tokens: int = 0
    ) -> float | None:
        if not self.is_known:
            return None
        if self.provider and input_tokens > FLAT_RATE_TOKENS:
            return _look_up(
                self.provider,
                self.model,
                (input_tokens, output_tokens, cached_tokens, written_tokens),
            )
        uncached = max(0, input_tokens - cached_tokens - written_tokens)
        cached = cached_tokens * self.cached + written_tokens * self.written
        return (uncached * self.input + cached + output_tokens * self.output) / 1_000_000


UNKNOWN_PRICE = Price(0.0, 0.0, 0.0, 0.0, is_known=False)


def price_for(address: Address, prices: Prices | None = None) -> Price:
    for name in (address.name, address.model):
        if prices and name in prices:
            return _configured_price(name, prices[name])
    provider, model = _price_list_entry(address)
    if provider == FREE:
        return Price(0.0, 0.0, 0.0, 0.0)
    if provider == HF_ROUTER:
        model, _, host = model.partition(":")
        provider = f"{HF_ROUTER}_{host}" if host else ""
    return _listed_price(provider, model) if provider and model else UNKNOWN_PRICE


def _price_list_entry(address: Address) -> tuple[str, str]:
    """Provider and model in the price list; an empty provider: in none."""
    model = address.model
    if address.provider in ("local", "scripted", "handoff"):
        return FREE, model
    if address.provider == "openai":
        # One that has a list keeps it on this machine: what answers there is a proxy.
        prices = ENDPOINTS[address.endpoint or "openai"].prices
        return prices or (FREE if is_loopback(address.base_url) else ""), model
    if address.provider == "command" and (spec := AGENT_SPECS.get(address.endpoint)):
        if spec.prices:
            return spec.prices, model
        provider, _, model = model.partition("/")  # opencode:PROVIDER/MODEL
        provider = OPENCODE_ENDPOINTS.get(provider, provider)
        return ENDPOINTS[provider].prices if provider in ENDPOINTS else provider, model
    if address.provider == "pydantic-ai":
        provider, _, model = model.partition(":")
        return provider, model
    return ("anthropic" if address.provider == "anthropic" else ""), model


def _configured_price(name: str, rates: Mapping[str, float]) -> Price:
    unknown = sorted(rates.keys() - {"input", "output", "cached", "written"})
    if unknown or not {"input", "output"} <= rates.keys():
        only = f"needs `input` and `output`, but has {('only ' + ', '.join(rates)) if rates else 'neither'}"
        raise UsageError(
            f"prices: {name}: {f'unknown rate {unknown[0]!r}' if unknown else only}",
            "Set `input` and `output`, and `cached` and `written` if they differ: US dollars per million tokens.",
        )
    cost = float(rates["input"])
    return Price(
        cost,
        float(rates["output"]),
        float(rates.get("cached", cost)),
        float(rates.get("written", cost)),
    )


@lru_cache(maxsize=256)
def _listed_price(provider: str, model: str) -> Price:
    """The flat rates of a model. Cached: a look-up costs as much CPU as a whole call."""
    probes = ((PROBE_TOKENS, 0, 0, 0), (0, PROBE_TOKENS, 0, 0), (PROBE_TOKENS, 0, PROBE_TOKENS, 0))
    costs = [
        _look_up(provider, model, probe) for probe in (*probes, (PROBE_TOKENS, 0, 0, PROBE_TOKENS))
    ]
    rates = [cost / PROBE_TOKENS * 1_000_000 for cost in costs if cost is not None]
    return (
        Price(*rates, provider=provider, model=model) if len(rates) == len(costs) else UNKNOWN_PRICE
    )


def _look_up(provider: str, model: str, tokens: tuple[int, int, int, int]) -> float | None:
    from genai_prices import Usage, calc_price  # noqa: PLC0415  half a second of imports

    total, output, cached, written = tokens
    usage = Usage(
        input_tokens=total,
        output_tokens=output,
        cache_read_tokens=cached,
        cache_write_tokens=written,
    )
    try:
        return float(calc_price(usage, model_ref=model, provider_id=provider).total_price)
    except LookupError:
        return None
