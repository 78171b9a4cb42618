"""Options of all verbs that call models: what they may spend, how they call, and where they keep runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from upskill.agents import Bounds
from upskill.models import CacheMode, ModelContext
from upskill.models.ledger import Ceilings
from upskill.options import option
from upskill.runs.planning.draws import REPEATS
from upskill.runs.running.events import Events
from upskill.runs.running.executors import EXECUTORS, Executor, Resources
from upskill.runs.stores import Store, is_url, open_store
from upskill.settings import DEFAULT_STORE, Settings
from upskill.skills.agent_specs import REAL_AGENTS

MAX_REPEATS = 1_000_000  # of a case: each is planned before the first is run


def model_option(*flags: str, help: str, many: bool = False) -> Any:  # noqa: A002 - click's own word
    return option(*flags, default=() if many else None, help=help, metavar="MODEL")


@dataclass(kw_only=True)
class CommonOptions:
    """Options of every command that calls models."""

    max_cost: float | None = option(
        "--max-cost",
        default=None,
        help="Stop before spending more than this.",
        metavar="USD",
        minimum=0,
    )
    concurrency: int | None = option(
        "--concurrency",
        default=None,
        help="Concurrent calls per model (default 8).",
        metavar="N",
        minimum=1,
    )
    executor: str = option(
        "--executor",
        default="local",
        help="Where trials run: local (this process), or ray (all cores of this machine, or a cluster).",
        metavar="KIND",
    )
    store: str | None = option(
        *("-d", "--store"),
        default=None,
        help="Where runs are kept: a folder (default ./runs), or a postgresql:// URL.",
        metavar="STORE",
    )
    log_runs: bool | None = option(
        "--log-runs/--no-log-runs",
        default=None,
        help="Keep runs in the store, or discard them.",
        hidden=True,
    )
    settings: Settings = field(default_factory=Settings.load)

    @property
    def store_location(self) -> str:
        return self.store or self.settings.store

    @property
    def keeps_runs(self) -> bool:
        return self.settings.log_runs if self.log_runs is None else self.log_runs

    @property
    def runs_folder(self) -> Path:
        """The folder for what is kept as files: that of the store, where it is one."""
        return Path("runs" if is_url(self.store_location) else self.store_location)

    @property
    def ceilings(self) -> Ceilings:
        return Ceilings(self.max_cost, self.settings.max_tokens, self.settings.max_calls)

    def open_store(self) -> Store:
        """In memory where runs are not kept."""
        if not self.keeps_runs:
            return open_store(None)
        store = open_store(self.store_location)
        ignore = self.runs_folder / ".gitignore"
        # Only where nobody named the folder: one that was named may be meant to be committed.
        if self.store_location == DEFAULT_STORE and not ignore.exists():
            ignore.write_text("*\n", encoding="utf-8")
        return store

    def open_executor(self) -> Executor:
        kind = EXECUTORS.load(self.executor)
        settings, concurrency = self.settings, self.concurrency or self.settings.concurrency
        if self.executor == "ray":
            resources = Resources(settings.trial_cpus, settings.trial_gpus, settings.trial_memory)
            return kind(concurrency, settings.ray_address, resources)
        return kind(concurrency)

    def model_context(self, events: Events | None = None) -> ModelContext:
        return ModelContext.load(
            self.settings,
            offline=self.settings.offline,
            timeout=self.settings.timeout,
            connections=self.concurrency or self.settings.concurrency,
            servers=self.settings.servers,
            **({"tell": events.message, "reading": events.reading} if events else {}),
        )


@dataclass(kw_only=True)
class StudentOptions(CommonOptions):
    """How a student is run."""

    default_bounds: ClassVar[Bounds] = Bounds()
    default_repeats: ClassVar[int] = REPEATS

    base_url: str = option(
        "--base-url",
        default="",
        help="An OpenAI-compatible server; the student is a model name on that server.",
        metavar="URL",
    )
    agent: str = option(
        "--agent",
        default="chat",
        help="How the student works: chat (skill in the prompt, one answer), tools (built-in agent: skill in a "
        f"catalog, commands and files in a sandbox), or a real agent: {REAL_AGENTS}.",
        metavar="AGENT",
        show_default=True,
    )
    sandbox: str = option(
        "--sandbox",  # a flag and no setting: `none` has to be typed, not read from the file of a cloned project
        default="",
        help="Where commands run: bubblewrap, container (docker or podman), seatbelt or none (default: the "
        "first that works here; `upskill doctor --sandbox` shows which).",
        metavar="KIND",
    )
    repeats: int | None = option(
        "--repeats",
        default=None,
        help="Draws of each case in each arm. A student that always gives the same answer draws once.",
        metavar="N",
        minimum=1,
        maximum=MAX_REPEATS,
        show_default="default_repeats",
    )

    @property
    def repeat_count(self) -> int:
        return self.repeats or self.default_repeats

    @property
    def bounds(self) -> Bounds:
        settings, usual = self.settings, self.default_bounds
        return Bounds(
            settings.max_turns or usual.turns,
            settings.trial_tokens,
            settings.trial_timeout or usual.seconds,
        )


@dataclass(kw_only=True)
class MeasureOptions(StudentOptions):
    """How a skill is measured: students, other skills, seeds."""

    students: tuple[str, ...] = model_option(
        "-m", "--student", help="The model to test; repeatable. Default: local.", many=True
    )
    with_skills: tuple[str, ...] = option(
        "--with-skills",
        default=(),
        help="Other skills to install in every trial: a skill, or a folder of skills; repeatable.",
        metavar="DIR",
    )
    seed: int = option(
        "--seed",
        default=0,
        help="The first seed; each further repeat uses the next one.",
        metavar="N",
        show_default=True,
    )
    redraw: bool = option(
        "--redraw",
        default=False,
        help="Draw as many rounds again as are stored; all of them count.",
    )

    @property
    def cache_mode(self) -> CacheMode:
        return "use" if self.settings.cache else "off"

    @property
    def tolerated_share(self) -> float:
        return self.settings.tolerance / 100


def choose_students(
    named: Sequence[str], settings: Settings, tell: Callable[[str], None], flag: str = "-m"
) -> tuple[str, ...]:
    """The named models, the one in the settings, or the embedded one (which is announced)."""
    if named:
        return tuple(named)
    if settings.student:
        return (settings.student,)
    from upskill.models.embedded.local_models import DEFAULT_LOCAL_MODEL  # noqa: PLC0415 - only where it is used

    tell(
        f"No student given: using `local`, the embedded {DEFAULT_LOCAL_MODEL}. Choose another with {flag}."
    )
    return ("local",)
