"""What tokens cost in US dollars: given by the person, nothing on one's own machine, else from genai-prices, offline.

None means that nobody knows, which is not the same as nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import urlsplit

from upskill.errors import UsageError, did_you_mean
from upskill.models import Address
from upskill.models.endpoints import ENDPOINTS, Endpoint

Prices = Mapping[str, Mapping[str, float]]  # model name -> input, output, cached, written: USD per million tokens
BATCH_SHARE = 0.5  # of the list price, at every provider that has a batch API
FREE = "free"  # the price row of one's own machine
ROUTER = "huggingface"  # its price is that of whoever serves the model, known where the name says it: MODEL:HOST
PROBE = 1_000  # tokens: far below where any price list has its first tier
LAST_FLAT = 100_000  # input tokens; above them some models cost more a token


@dataclass(frozen=True, slots=True)
class Price:
    """Dollars a million tokens. `cached` are read from a cache, `written` into one; both are part of the input."""

    input: float
    output: float
    cached: float
    written: float
    provider: str = ""  # where longer prompts have to be looked up
    model: str = ""

    def of(self, taken: int, given: int, cached: int = 0, written: int = 0) -> float | None:
        if self.provider and taken > LAST_FLAT:
            return _look_up(self.provider, self.model, (taken, given, cached, written))
        plain = max(0, taken - cached - written)
        dollars = plain * self.input + cached * self.cached + written * self.written + given * self.output
        return dollars / 1_000_000


@dataclass(frozen=True, slots=True)
class UnknownPrice:
    def of(self, taken: int, given: int, cached: int = 0, written: int = 0) -> float | None:
        del taken, given, cached, written
        return None


UNKNOWN = UnknownPrice()


def find_price(provider: str, *names: str, given: Prices | None = None) -> Price | UnknownPrice:
    """The price of the model with any of these names; the last is the one its provider uses.

    A price the person has given wins. `provider` is an id of the price list, `free`, or empty where none has it.
    """
    for name in names:
        if given and name in given:
            return _given_price(name, given[name])
    if provider == FREE:
        return Price(0.0, 0.0, 0.0, 0.0)
    model = names[-1]
    if provider == ROUTER:
        model, _, host = model.partition(":")
        provider = f"{ROUTER}_{host}" if host else ""
    return _listed_price(provider, model) if provider and model else UNKNOWN


def price_of(address: Address, given: Prices | None = None) -> Price | UnknownPrice:
    """The price of the model at an address, before it is opened."""
    provider = {"local": FREE, "scripted": FREE, "anthropic": "anthropic"}.get(address.provider, "")
    if address.provider == "openai":
        provider = price_list(ENDPOINTS[address.endpoint or "openai"], address.base_url)
    return find_price(provider, address.name, address.model, given=given)


def price_list(endpoint: Endpoint, base_url: str) -> str:
    """The id of the price list for a row reached at this URL.

    A server of nobody's row on this machine is free. A row that has a list keeps it there too: what answers on this
    machine under a provider's name is a proxy, and the provider sends its bill all the same.
    """
    return endpoint.prices or (FREE if on_this_machine(base_url) else "")


def on_this_machine(url: str) -> bool:
    """Whether a server is reached over the loopback interface."""
    host = urlsplit(url).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")


def _given_price(name: str, rates: Mapping[str, float]) -> Price:
    known = ("input", "output", "cached", "written")
    for word in rates:
        if word not in known:
            raise UsageError(f"prices: {name}: {word!r} is not a kind of tokens", did_you_mean(word, known))
    if "input" not in rates or "output" not in rates:
        raise UsageError(
            f"prices: {name}: both `input` and `output` are needed", "Give them in US dollars per million tokens."
        )
    cost = float(rates["input"])
    return Price(cost, float(rates["output"]), float(rates.get("cached", cost)), float(rates.get("written", cost)))


@lru_cache(maxsize=256)
def _listed_price(provider: str, model: str) -> Price | UnknownPrice:
    """The flat rates of a model, asked for once: a look-up costs as much CPU as a whole call on the wire."""
    probes = ((PROBE, 0, 0, 0), (0, PROBE, 0, 0), (PROBE, 0, PROBE, 0), (PROBE, 0, 0, PROBE))
    found = [_look_up(provider, model, probe) for probe in probes]
    rates = [dollars / PROBE * 1_000_000 for dollars in found if dollars is not None]
    return Price(*rates, provider=provider, model=model) if len(rates) == len(probes) else UNKNOWN


def _look_up(provider: str, model: str, tokens: tuple[int, int, int, int]) -> float | None:
    from genai_prices import Usage, calc_price  # noqa: PLC0415  half a second of imports, only for models that cost

    taken, given, cached, written = tokens
    usage = Usage(input_tokens=taken, output_tokens=given, cache_read_tokens=cached, cache_write_tokens=written)
    try:
        return float(calc_price(usage, model_ref=model, provider_id=provider).total_price)
    except LookupError:
        return None
