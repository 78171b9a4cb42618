"""Options that every verb which calls models shares: what it may spend, how it calls, and where runs are kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from upskill.agents import Bounds
from upskill.errors import UsageError
from upskill.models import CacheMode, ModelContext
from upskill.models.ledger import Ceilings
from upskill.options import option
from upskill.runs.running.events import Events
from upskill.runs.running.executors import EXECUTORS, Executor, Resources
from upskill.runs.stores import Store, find_store, is_url, open_store
from upskill.settings import Settings


@dataclass(kw_only=True, eq=False, repr=False)
class CommonOptions:
    """What a person may say about any work with models."""

    max_cost: float | None = option(
        "--max-cost", default=None, help="Stop before this much is spent.", metavar="USD", minimum=0
    )
    max_tokens: int | None = option(
        "--max-tokens", default=None, help="Stop at this many tokens.", metavar="N", minimum=0
    )
    max_calls: int | None = option("--max-calls", default=None, help="Stop at this many calls.", metavar="N", minimum=0)
    concurrency: int | None = option(
        "--concurrency", default=None, help="Calls at a time for each model (default 8).", metavar="N", minimum=1
    )
    servers: int = option(
        "--servers",
        default=0,
        help="Servers of each embedded model (default: one for each core, as far as memory allows).",
        metavar="N",
        minimum=0,
    )
    timeout: float | None = option(
        "--timeout", default=None, help="Time limit of one call.", metavar="SECONDS", minimum=0, above_minimum=True
    )
    executor: str = option(
        "--executor",
        default="local",
        help="Where trials run: local (this process), or ray (all cores of this machine, or a cluster).",
        metavar="KIND",
    )
    ray_address: str = option(
        "--ray-address",
        default="",
        help="The Ray cluster to join (default: RAY_ADDRESS, or one that is started here).",
        metavar="ADDRESS",
    )
    trial_cpus: float | None = option(
        "--trial-cpus", default=None, help="With ray: CPUs that a trial needs (default 1).", metavar="N", minimum=0
    )
    trial_gpus: float | None = option(
        "--trial-gpus", default=None, help="With ray: GPUs that a trial needs.", metavar="N", minimum=0
    )
    trial_memory: float | None = option(
        "--trial-memory", default=None, help="With ray: memory that a trial needs.", metavar="MB", minimum=0
    )
    offline: bool = option("--offline", default=False, help="Download nothing.")
    runs_dir: str | None = option(
        *("-d", "--store", "--runs-dir"),
        default=None,
        help="Where runs are kept: a folder (default ./runs), or a postgresql:// URL.",
        metavar="PLACE",
    )
    log_runs: bool = option(
        "--log-runs/--no-log-runs", default=True, help="Keep runs in the store (default) or forget them."
    )
    settings: Settings = field(default_factory=Settings.load)

    @property
    def runs_folder(self) -> Path:
        """The folder for what is kept as files: that of the store, where it is one."""
        location = self.runs_dir or self.settings.store
        return Path("runs" if is_url(location) else location)

    @property
    def ceilings(self) -> Ceilings:
        return Ceilings(self.max_cost, self.max_tokens, self.max_calls)

    def open_store(self, skill: str = "") -> Store:
        """The store where runs are kept. With --no-log-runs it is in memory, with earlier looks at the skill."""
        location = self.runs_dir or self.settings.store
        if self.log_runs:
            return open_store(location)
        store = open_store(None)
        if skill and (kept := find_store(location)):
            with kept:
                for look in kept.looks(skill):
                    store.add_look(look)
        return store

    def open_executor(self) -> Executor:
        kind = EXECUTORS.load(self.executor)
        concurrency = self.concurrency or self.settings.concurrency
        resources = Resources(self.trial_cpus, self.trial_gpus, self.trial_memory)
        if self.executor == "ray":
            return kind(concurrency, self.ray_address, resources)
        if self.ray_address or resources.are_stated:
            flag = "--ray-address ADDRESS" if self.ray_address else "what a trial needs (--trial-cpus and the like)"
            raise UsageError(f"{flag} is only for --executor ray", "Add --executor ray.")
        return kind(concurrency)

    def model_context(self, events: Events | None = None) -> ModelContext:
        """The keys, prices and limits that models are opened with."""
        return ModelContext.load(
            self.settings,
            offline=self.offline,
            timeout=self.timeout or self.settings.timeout,
            connections=self.concurrency or self.settings.concurrency,
            servers=self.servers,
            **({"tell": events.message, "reading": events.reading} if events else {}),
        )


@dataclass(kw_only=True, eq=False, repr=False)
class CacheOptions:
    """Whether stored replies may answer."""

    fresh: bool = option("--fresh", default=False, help="Start over, even if the store has results of this plan.")
    no_cache: bool = option("--no-cache", default=False, help="Neither use nor store replies.")

    @property
    def cache_mode(self) -> CacheMode:
        if self.no_cache:
            return "off"
        return "refresh" if self.fresh else "use"


@dataclass(kw_only=True, eq=False, repr=False)
class SamplingOptions:
    """How answers are drawn."""

    seed: int = option(
        "--seed", default=0, help="The first seed; run N uses seed + N - 1.", metavar="N", show_default=True
    )
    temperature: float | None = option(
        "--temperature",
        default=None,
        help="Default: 0 for one run, 0.7 for several.",
        metavar="T",
        minimum=0,
        maximum=2,
    )


@dataclass(kw_only=True, eq=False, repr=False)
class AgentOptions:
    """Where an agent acts, and how far it may go."""

    default_bounds: ClassVar[Bounds] = Bounds()

    sandbox: str = option(
        "--sandbox",
        default="",
        help="Where commands run: bubblewrap, container (docker or podman), landlock, seatbelt or none (default: the "
        "first that works here; `upskill sandbox` says which).",
        metavar="KIND",
    )
    max_turns: int | None = option(
        "--max-turns",
        default=None,
        help="Most turns that an agent may take (default 20; a teacher 60).",
        metavar="N",
        minimum=1,
    )
    trial_tokens: int | None = option(
        "--trial-tokens", default=None, help="Most tokens that an agent may use.", metavar="N", minimum=1
    )
    trial_timeout: float | None = option(
        "--trial-timeout",
        default=None,
        help="Most time that an agent may take (default 600; a teacher 1800).",
        metavar="SECONDS",
        minimum=0,
        above_minimum=True,
    )

    @property
    def bounds(self) -> Bounds:
        usual = self.default_bounds
        return Bounds(self.max_turns or usual.turns, self.trial_tokens, self.trial_timeout or usual.seconds)


def choose_students(
    named: Sequence[str], settings: Settings, tell: Callable[[str], None], flag: str = "-m"
) -> tuple[str, ...]:
    """The models to evaluate: those named, the one in the settings, or the embedded one with a line saying so.

    `flag` is what names a student on the command line of the verb that asks.
    """
    if named:
        return tuple(named)
    if settings.eval_model:
        return (settings.eval_model,)
    from upskill.models.embedded.local_models import DEFAULT_LOCAL_MODEL  # noqa: PLC0415 - only where it is used

    tell(f"No student was named, so it is `local`, the embedded {DEFAULT_LOCAL_MODEL}. Choose others with {flag}.")
    return ("local",)
