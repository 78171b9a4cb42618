"""A Store keeps runs with results, looks and feedback, replies of models, batches, and candidates for better skills.

Kinds: `sqlite` (a file in a folder, or memory) and `postgresql` (a server). `open_store` picks one by the place it is
given: a folder, a URL whose scheme is the name of a kind, or None for memory.

A kind implements `Store`, which is seven smaller protocols; code that needs one of them asks for no more than that.
What was added is durable when the call returns. Everything that may be long is an iterator that reads as it goes:
writing while iterating is fine, and memory does not grow with the run.

- `rows`: Run, Tally, Progress, Page, Look, Review, Batch, Candidate, ResultRow: what a store hands out
  and how a result is written
- `sql`, `sql_progress`, `sql_searches`: the tables, in SQL for every kind; `database`: what that runs on
- `group_writer`: many writes in one commit; `key_filter`: which replies are surely not stored
- `copying`, `checking`, `pruning`: what `upskill store` does
- `sqlite`: the kind; `sqlite_file`: its file; `sqlite_tables`: its migrations; `file_lock`: one process to a run
- `postgres`: the kind; `postgres_server`: its connections; `postgres_driver`: the extra it needs; `postgres_url`,
  `postgres_errors`: where it is and what it says; `postgres_writes`: rows in bulk; `postgres_tables`: its migrations
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol, Self

from upskill.errors import UsageError
from upskill.models import ReplyStore
from upskill.registry import Registry
from upskill.runs.planning.plan import Plan, Result, Trial
from upskill.runs.stores.rows import Batch, Candidate, Look, Page, Progress, Review, Run, Tally
from upskill.skills import Skill
from upskill.suites import Suite
from upskill.verdicts.outcome import Outcome

__all__ = [
    "STORES",
    "Batch",
    "BatchStore",
    "Candidate",
    "CandidateStore",
    "FeedbackStore",
    "Look",
    "LookStore",
    "Page",
    "Progress",
    "ProgressStore",
    "ReplyStore",
    "Review",
    "Run",
    "RunStore",
    "Store",
    "Tally",
    "find_store",
    "is_url",
    "open_store",
    "without_password",
]

STORES = Registry(
    "store",
    "upskill.stores",
    {
        "sqlite": "upskill.runs.stores.sqlite:open_sqlite",
        "postgresql": "upskill.runs.stores.postgres:open_postgres",
    },
)
_ALIASES = {"postgres": "postgresql"}
_URL = r"(?i)([a-z][a-z0-9+.-]+)://"
_HOST = r"(?:\[[^]@/?#]*\]|[^]\[:,@/?#]*)(?::\d*)?"
# A URL in which nothing that may be part of a password stands where it is not hidden.
_PUBLIC = (
    rf"(?i)(?P<scheme>[a-z][a-z0-9+.-]+://)(?:(?P<user>[^:@/?#]*)(?::[^@/?#]*)?@)?(?P<hosts>{_HOST}(?:,{_HOST})*)"
    r"(?P<path>/[^@?#]*)?(?:\?(?P<query>[^@#]*))?"
)
_PUBLIC_PARAMETERS = {"dbname", "host", "hostaddr", "port", "schema", "service", "user"}


class LookStore(Protocol):
    """What was reported of skills, so that looking again is counted."""

    def add_look(self, look: Look) -> Look:
        """Store a look with its number. One that is stored already stays as it is, and is returned."""
        ...

    def looks_at(self, run: str) -> list[Look]:
        """The looks at the run with this id, oldest first."""
        ...

    def latest_looks(self, skill: str, count: int) -> list[Look]:
        """The latest looks at the skill of this name, newest first."""
        ...

    def looks(self, skill: str, suite: Suite | None = None) -> Iterator[Look]:
        """Looks at the skill of this name, oldest first: all, or those that share the id of a case with this suite."""
        ...


class ProgressStore(Protocol):
    """How far runs have come. Nothing here takes longer for a larger run, so that it can be asked all the time."""

    def tally(self, run: Run) -> list[Tally]:
        """How the trials ended, by model and arm."""
        ...

    def progress(self, run: Run) -> list[Progress]:
        """The same, with what was spent."""
        ...

    def revision(self, run: Run | None = None) -> int:
        """A number that grows when anything of this run changes, or of any run."""
        ...

    def changed_runs(self, revision: int) -> list[str]:
        """The ids of the runs that have changed after this revision of the store, the latest last."""
        ...

    def summary(self, run: Run) -> tuple[int, str] | None:
        """What this version of upskill kept as the summary of a run, and the revision that the run had then."""
        ...

    def keep_summary(self, run: Run, revision: int, document: str) -> None: ...


class FeedbackStore(Protocol):
    """What people say of answers."""

    def add_review(self, run: Run, review: Review) -> None:
        """Store a review; it replaces an earlier one of the same trial."""
        ...

    def remove_review(self, run: Run, trial: Trial) -> None: ...

    def reviews(self, run: Run) -> list[Review]:
        """The reviews of a run, in the order of `results`."""
        ...


class RunStore(LookStore, ProgressStore, FeedbackStore, Protocol):
    """Runs and the results of their trials, how far they have come, who looked at them, and what people say."""

    @property
    def place(self) -> str | None:
        """What `open_store` takes to open the same store in another process; may hold a password. None for memory."""
        ...

    def check_damage(self) -> None:
        """StoreError when what is stored is damaged; asked before anything is paid for."""
        ...

    def find_run(self, plan: Plan) -> Run | None:
        """The latest run of this plan."""
        ...

    def start_run(self, plan: Plan, version: str, *, fresh: bool = False) -> tuple[Run, bool]:
        """The latest run of this plan and True, or a new one and False. `fresh` always starts a new one."""
        ...

    def annotate(self, run: Run, **settings: Any) -> Run:
        """Store with the plan of a run how it is analysed: settings that are not part of its trials."""
        ...

    def run(self, name: str) -> Run:
        """A run by its id, the beginning of its id, or `last`; UsageError unless there is exactly one."""
        ...

    def runs(self, skill: str | None = None, *, newest_first: bool = False) -> Iterator[Run]:
        """Every run, or those of the skill with this name, with their counts."""
        ...

    def latest_runs(self, count: int, before: int | None = None) -> list[Run]:
        """The latest runs, newest first: of all, or of those before the one with this number."""
        ...

    def skills(self) -> Mapping[str, tuple[int, str]]:
        """By name, sorted: how many runs each skill has, and the id of the latest."""
        ...

    def count_runs(self) -> int: ...

    def find_results(self, skill: str, keys: Iterable[str]) -> dict[str, int]:
        """By key: the number of the first run of the skill with this name that has a scored result under it.

        The first one: what was drawn again may have been, because somebody did not like it. For the same reason
        nothing is taken from a run of a part of the suite. Nor is it from a run that was played from a file: somebody
        else says that this is what was answered.
        """
        ...

    def copy_results(self, run: Run, found: Mapping[str, int]) -> None:
        """Give a run the results that other runs, by their numbers, have under these keys."""
        ...

    def delete_run(self, run: Run) -> None:
        """Delete a run with its results."""
        ...

    def claim(self, run: Run) -> AbstractContextManager[None]:
        """Have a run to ourselves: UsageError where another process has it. A process that dies gives it up."""
        ...

    def is_claimed(self, run: Run) -> bool:
        """Whether some process has the run to itself, and so is working on it."""
        ...

    async def add_result(self, run: Run, result: Result) -> None:
        """Store a result; durable when it returns. It replaces an errored result of its trial, never a scored one."""
        ...

    def results(
        self,
        run: Run,
        case: str | None = None,
        model: str | None = None,
        arm: str | None = None,
        *,
        failed: bool = False,
        page: Page | None = None,
    ) -> Iterator[Result]:
        """Whole results, ordered by case, model, seed and arm; `failed`: only those that failed or errored."""
        ...

    def result(self, run: Run, trial: Trial) -> Result | None:
        """The whole result of one trial."""
        ...

    def errored(self, run: Run) -> Iterator[Result]:
        """The whole results of the trials that are errored."""
        ...

    def outcomes(
        self, run: Run, case: str | None = None, *, after: Trial | None = None, limit: int = -1
    ) -> Iterator[Outcome]:
        """The numbers of every result, without its trace, in the order of `results`; far faster than that.

        Of one case; those that come after a trial; so many at most: a page of them costs the same wherever it begins.
        """
        ...

    def scores(self, run: Run, model: str, arm: str) -> dict[str, tuple[int, int]]:
        """By case: how many trials of this model and arm passed, and how many were scored."""
        ...

    def scored_in_each(self, run: Run) -> dict[tuple[str, str, str], int]:
        """By model, case and arm: how many trials passed or failed."""
        ...

    def scored(self, run: Run, case: str = "") -> Iterator[tuple[str, str, str, int]]:
        """Model, case, arm and seed of the trials that passed or failed, and so need not be run again; of one case, or
        all."""
        ...

    def scored_under(self, run: Run, keys: Sequence[str]) -> Iterator[Result]:
        """The whole results under these keys of trials that passed or failed."""
        ...

    def count_calls(self, run: Run) -> int:
        """How often models were called for the results that are stored, at least: a retry is not seen here."""
        ...

    def spent(self, *runs: Run) -> dict[str, tuple[int, float | None]]:
        """Tokens and dollars by role, errored tries included; None where a price is not known. A trial in several runs
        was paid for once."""
        ...

    def errors(self, run: Run, limit: int = 100) -> list[tuple[str, str, int]]:
        """The distinct errors but for bugs, most frequent first: model, message, number of trials."""
        ...

    def snapshots(self, run: Run) -> dict[str, dict[str, int]]:
        """The names that each model's provider answered under, and how many trials each answered."""
        ...

    def leaks(self, run: Run) -> list[tuple[Trial, str]]:
        """The trials that saw a skill that was kept from them, and what shows it."""
        ...

    def bugs(self, run: Run) -> Iterator[tuple[Trial, str, str]]:
        """The trials that a bug in upskill ended, each with its error and its traceback."""
        ...


class BatchStore(Protocol):
    """Batches that were submitted to a provider and are not yet collected."""

    def pending_batches(self, url: str) -> list[Batch]:
        """The batches at this URL with something to collect, whichever run submitted them."""
        ...

    def begin_batch(self, run: str, model: str, url: str, keys: Iterable[str]) -> Batch:
        """Record that these requests are about to be submitted, so that a crash afterwards loses nothing."""
        ...

    def confirm_batch(self, batch: Batch, provider_id: str) -> Batch:
        """Record that the provider has it, under this id."""
        ...

    def settle_batch(self, batch: Batch, keys: Iterable[str] | None = None) -> None:
        """Stop waiting for these of its requests; without keys, for all of them."""
        ...


class CandidateStore(Protocol):
    """Skills that were tried in searches for a better one."""

    def add_candidate(
        self,
        search: str,
        skill: Skill,
        parent: int | None,
        accepted: bool | None,
        note: str,
        verdict: Mapping[str, Any],
    ) -> Candidate:
        """Store a candidate; adding it to the same search again updates the decision, the note and the verdict."""
        ...

    def candidates(self, skill: str) -> Iterator[Candidate]:
        """Every candidate for the skill of this name, oldest first."""
        ...

    def skills_with_candidates(self) -> Mapping[str, int]:
        """The names of the skills that have candidates, sorted, and how many."""
        ...


class Store(RunStore, ReplyStore, BatchStore, CandidateStore, Protocol):
    """All of it in one place, and a context manager that closes it."""

    @property
    def location(self) -> str | None:
        """Where it is, in words for the person; None for memory, which forgets everything at the end."""
        ...

    def requests(self) -> Iterator[tuple[str, str, str]]:
        """Everything that teachers, test writers and judges were asked: role, request and reply, as JSON."""
        ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class StoreOpener(Protocol):
    """What a row of `STORES` names: opens the store at a place. None: there is none, and it was not to be made."""

    def __call__(self, place: str | None, *, create: bool) -> Store | None:
        """One that was not to be made is opened for reading, where it cannot be written."""
        ...


def open_store(place: str | Path | None) -> Store:
    """Open the store at this place and create it if need be; None keeps everything in memory."""
    store = _opener(place)(_text(place), create=True)
    assert store is not None
    return store


def find_store(place: str | Path) -> Store | None:
    """Open the store at this place if there is one. Looking at runs never creates a store."""
    return _opener(place)(_text(place), create=False)


def is_url(place: str) -> bool:
    """Whether a place is a URL; anything else is a folder."""
    return bool(re.match(_URL, place))


def without_password(place: str) -> str:
    """A place in words for the person: a folder as it is, a URL without what may be secret."""
    if not is_url(place) or place.lower().startswith("sqlite://"):
        return place
    if not (parts := re.fullmatch(_PUBLIC, place)):  # a password with a character that would have to be escaped
        return f"{place.partition('://')[0]}://…"
    user = f"{parts['user']}@" if parts["user"] else ""
    query = "&".join(
        each for each in (parts["query"] or "").split("&") if each.partition("=")[0].lower() in _PUBLIC_PARAMETERS
    )
    return f"{parts['scheme']}{user}{parts['hosts']}{parts['path'] or ''}{f'?{query}' if query else ''}"


def _text(place: str | Path | None) -> str | None:
    return None if place is None else str(place)


def _opener(place: str | Path | None) -> StoreOpener:
    if place == "":
        raise UsageError("the place of the runs is empty", "Name a folder; it is upskill's own where none is named.")
    url = re.match(_URL, place) if isinstance(place, str) else None
    kind = url[1].lower() if url else "sqlite"
    kind = _ALIASES.get(kind, kind)
    if kind not in STORES:
        kinds = ", ".join(f"{name}://" for name in STORES.names())
        # Without the rest of the URL, which may hold a password.
        raise UsageError(f"{kind!r} is not a kind of store", f"Give a folder, or a URL that starts with {kinds}.")
    return STORES.load(kind)
