"""Batch: have the replies that a plan is missing from the providers' batch APIs, at half the price.

A batch does one thing: it puts replies on the shelf where the cache looks for them. The trials then run as they
always do and find every reply there; a request that the batch has not answered is an errored trial in the provider's
words, and never a live call. What is submitted is on disk before anyone waits for it, so that the same command, given
again after whatever ended it, goes on waiting for the same batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field, replace

from upskill.agents.chat import request_for
from upskill.errors import CeilingReached, ModelError, UpskillError, UsageError
from upskill.models import Address, Models, Reply, Request, open_model
from upskill.models.cache import BatchReplies, request_key, write_reply
from upskill.models.http.batches import BATCHES, Batches, BatchStatus, Line, can_batch
from upskill.models.http.throttling import OVERLOADED, PERMANENT
from upskill.models.http.wire import WireModel
from upskill.models.ledger import Ledger
from upskill.models.prices import BATCH_SHARE, price_of
from upskill.runs.estimate import at_most
from upskill.runs.executors import Executor, Job, Persist, RunTrial
from upskill.runs.plan import Result, task_of
from upskill.runs.stores import Batch, Store
from upskill.traces import NO_USAGE, Usage

FIRST_WAIT, LONGEST_WAIT, GROWTH = 5.0, 60.0, 1.5  # seconds between two looks, and how they grow
AT_ONCE = 500  # replies that are kept in one go
LOOKED_FOR = "The batch may have been taken all the same; the same command asks the provider for it."
LOOK = "The batch may have been taken all the same; look into the provider's console before you send it again."


def check_batchable(students: Iterable[Address]) -> None:
    """UsageError when one of them cannot be asked by batch."""
    left_out = [address.name for address in students if not can_batch(address)]
    if left_out:
        raise UsageError(
            f"--batch: {', '.join(left_out)} {'has' if len(left_out) == 1 else 'have'} no batch API",
            "anthropic:MODEL, openai:MODEL and a server given with --base-url may have one; run the others without.",
        )


@dataclass(frozen=True, slots=True)
class _Asked:
    address: Address
    request: Request


@dataclass
class _Waiting:
    """A batch at work, the part of it that this plan wants, and what was known of the server when it was written."""

    batch: Batch
    api: Batches
    wanted: dict[str, _Asked]
    unsupported_params: frozenset[str] = frozenset()
    told: BatchStatus | None = None
    quiet_about: str = ""  # the trouble that was told of last


@dataclass
class Batched:
    """An executor that has the replies fetched by batch first, and then lets another carry the trials."""

    executor: Executor
    store: Store
    models: Models
    tell: Callable[[str], None]
    waiting: list[_Waiting] = field(default_factory=list[_Waiting])  # left running when we are interrupted
    _errors: dict[str, UpskillError] = field(default_factory=dict[str, UpskillError])  # by request
    _delivered: set[str] = field(default_factory=set[str])
    _unsupported_params: dict[Address, frozenset[str]] = field(
        default_factory=dict[Address, frozenset[str]]
    )  # of earlier rounds

    async def execute(self, job: Job, run: RunTrial, persist: Persist) -> AsyncGenerator[Result]:
        plan = job.plan
        check_batchable(plan.models)
        if plan.agent != "chat":
            raise UsageError(f"the agent {plan.agent!r} cannot be batched: it may ask more than once")
        asked = {trial: _Asked(plan.addresses[trial.model], request_for(task_of(plan, trial))) for trial in job.trials}
        keys = {trial: request_key(one.address, one.request) for trial, one in asked.items()}
        fresh = self.models.cache == "refresh"
        missing = {key: asked[trial] for trial, key in keys.items() if fresh or self.store.reply(key) is None}
        self._errors.clear()
        if 0 < len(missing) < len(keys):
            self.tell(f"{len(keys) - len(missing)} of {len(keys)} requests have a stored reply.")
        run_id = stored.id if (stored := self.store.find_run(plan)) else ""
        await self._fetch(missing, run_id)
        for address in plan.models:
            self.models.stand_in(address, BatchReplies(address, self.store, self._errors))
        held = [trial for trial, key in keys.items() if isinstance(self._errors.get(key), CeilingReached)]
        ready = [trial for trial, key in keys.items() if not isinstance(self._errors.get(key), CeilingReached)]
        # Those with a reply first: an error that stands for the rest of a model would end it before they are scored.
        ready.sort(key=lambda trial: keys[trial] in self._errors)
        async with aclosing(self.executor.execute(replace(job, trials=tuple(ready)), run, persist)) as results:
            async for result in results:
                yield result
        if held:  # running into the ceiling once tells everyone that the run ends before its end
            await run(held[0])

    async def _fetch(self, missing: Mapping[str, _Asked], run: str) -> None:
        """Submit and wait until each request has a reply or an error: more than once where a server had a complaint."""
        async with AsyncExitStack() as stack:
            apis: dict[Address, Batches] = {}
            for one in missing.values():
                if one.address not in apis:
                    model = await open_model(one.address, self.models.context)
                    stack.push_async_callback(model.close)
                    assert isinstance(model, WireModel)
                    model.unsupported_params |= self._unsupported_params.get(one.address, frozenset())
                    apis[one.address] = BATCHES.load(one.address.provider)(model)
            wanted = dict(missing)
            while wanted:
                for address, api in apis.items():
                    mine = {key: one for key, one in wanted.items() if one.address == address}
                    await self._pick_up(api, mine)
                within = self._within_ceilings(wanted)
                for address, api in apis.items():
                    mine = {key: one for key, one in within.items() if one.address == address}
                    await self._submit(api, mine, run)
                wanted = await self._wait()
            self._unsupported_params |= {address: api.model.unsupported_params for address, api in apis.items()}

    async def _pick_up(self, api: Batches, wanted: Mapping[str, _Asked]) -> None:
        """Wait for the batches of an earlier command that have what we want."""
        for batch in self.store.pending_batches(api.model.url):
            mine = {key: wanted[key] for key in batch.keys if key in wanted}
            if not mine:
                continue
            try:
                found = batch if batch.id else await self._look_for(api, batch)
            except ModelError as error:
                self._fail(mine, error)
                continue
            if found is None:
                continue
            self.tell(f"{batch.model}: waiting for {len(mine)} requests of batch {found.id}, sent {batch.submitted}.")
            self._count(len(mine))
            self.waiting.append(_Waiting(found, api, mine))

    async def _look_for(self, api: Batches, batch: Batch) -> Batch | None:
        """A batch that was about to be submitted when everything stopped. Did the provider get it?

        Between the provider's yes and our writing down its id there is a moment that no program can close. Where a
        provider keeps our note with a batch, it can be asked; where not, the person is told.
        """
        if api.keeps_notes and (known := await api.find(batch.token)):
            return self.store.confirm_batch(batch, known)
        if not api.keeps_notes:
            self.tell(
                f"{batch.model}: a batch of {len(batch.keys)} requests was on its way at {batch.submitted} when upskill"
                " was stopped, and the provider has no way to ask for it: they are sent again. Its console shows"
                " whether there are two."
            )
        self.store.settle_batch(batch)
        return None

    def _within_ceilings(self, wanted: Mapping[str, _Asked]) -> dict[str, _Asked]:
        """The first of the requests that are not under way, as many as the ceilings allow at the worst."""
        under_way = {key for waiting in self.waiting for key in waiting.wanted}
        ledger = self.models.ledger or Ledger()
        prices = {one.address: price_of(one.address, self.models.context.prices) for one in wanted.values()}
        reserved = NO_USAGE
        for waiting in self.waiting:
            for one in waiting.wanted.values():
                reserved = reserved + _at_half_price(at_most(one.request, prices[one.address]))
        within: dict[str, _Asked] = {}
        reached = ""
        for key, one in wanted.items():
            if key in under_way or key in self._errors:
                continue
            after = reserved + _at_half_price(at_most(one.request, prices[one.address]))
            reached = reached or _reached(ledger, len(within) + 1, after)
            if reached:
                self._errors[key] = CeilingReached(reached)
            else:
                within[key], reserved = one, after
        return within

    async def _submit(self, api: Batches, wanted: dict[str, _Asked], run: str) -> None:
        unsupported_params = api.model.unsupported_params
        name = api.model.address.name
        written = (
            (key, api.write(key, api.model.write(one.request, unsupported_params))) for key, one in wanted.items()
        )
        for chunk in api.chunks(written):
            mine = {key: wanted[key] for key in chunk}
            batch = self.store.begin_batch(run, name, api.model.url, chunk)
            try:
                known = await api.submit(chunk.values(), batch.token)
            except ModelError as error:
                if _is_refusal(error):
                    self.store.settle_batch(batch)  # there is nothing to look for
                else:
                    error.hint = LOOKED_FOR if api.keeps_notes else LOOK
                self._fail(mine, error)
                continue
            batch = self.store.confirm_batch(batch, known)
            self._count(len(mine))
            self.waiting.append(_Waiting(batch, api, mine, unsupported_params))
            self.tell(f"{name}: submitted {len(mine)} requests as batch {known}, at half the price.")

    async def _wait(self) -> dict[str, _Asked]:
        """Look at every batch until it has ended; returns what is worth asking again."""
        pause = FIRST_WAIT
        again: dict[str, _Asked] = {}
        while True:
            for waiting in list(self.waiting):
                try:
                    progress = await waiting.api.poll(waiting.batch.id)
                    self._say(waiting, progress)
                    if progress.ended:
                        again |= await self._collect(waiting, progress)
                        self.waiting.remove(waiting)
                except ModelError as error:
                    self._stumble(waiting, error)
            if not self.waiting:
                return again
            await asyncio.sleep(pause)
            pause = min(LONGEST_WAIT, pause * GROWTH)

    def _say(self, waiting: _Waiting, progress: BatchStatus) -> None:
        if progress != waiting.told:
            waiting.told = progress
            failed = f", {progress.failed} without an answer" if progress.failed else ""
            total = progress.total or len(waiting.batch.keys)
            self.tell(
                f"{waiting.batch.model}: batch {progress.id} is {progress.word}: {progress.answered} of {total}"
                f" answered{failed}."
            )

    def _stumble(self, waiting: _Waiting, error: ModelError) -> None:
        """Give a batch up that will never be seen again; anything else heals while it works on."""
        if error.status in PERMANENT or error.status == 200:
            if error.status == 404:  # gone, with what it had; the next command submits anew
                self.store.settle_batch(waiting.batch)
            self._fail(waiting.wanted, error)
            self.waiting.remove(waiting)
        elif error.message != waiting.quiet_about:
            waiting.quiet_about = error.message
            self.tell(f"{waiting.batch.model}: batch {waiting.batch.id}: {error.message}; trying again.")

    async def _collect(self, waiting: _Waiting, progress: BatchStatus) -> dict[str, _Asked]:
        """Put the replies on the shelf, note why the others have none, and return what is worth asking again."""
        again: dict[str, _Asked] = {}
        errors: dict[str, UpskillError] = {}
        replies: dict[str, Reply] = {}
        async with aclosing(waiting.api.results(progress)) as lines:
            async for line in lines:
                one = waiting.wanted.get(line.key)
                if one is None:
                    continue
                try:
                    replies[line.key] = _reply(waiting.api, line, one.request)
                except ModelError as error:
                    errors[line.key] = error
                    if line.response and waiting.api.model.learn_from(
                        line.response, one.request, waiting.unsupported_params
                    ):
                        again[line.key] = one
                if len(replies) >= AT_ONCE:
                    await self._shelve(waiting, replies)
        await self._shelve(waiting, replies)
        for key in waiting.wanted:
            if key not in errors and key not in self._delivered:
                words = progress.trouble or f"it ended ({progress.word}) without an answer to this request"
                errors[key] = ModelError(f"batch {progress.id}: {words}", fatal=bool(progress.trouble))
        # Others may want the rest of it: only what is ours, or on the shelf, is settled.
        on_shelf = (key for key in waiting.batch.keys if self.store.reply(key) is not None)
        self.store.settle_batch(waiting.batch, {*waiting.wanted, *on_shelf})
        self._errors |= {key: error for key, error in errors.items() if key not in again}
        return again

    async def _shelve(self, waiting: _Waiting, replies: dict[str, Reply]) -> None:
        """Keep these replies, all in one commit."""
        name = waiting.batch.model
        await asyncio.gather(*(self.store.add_reply(key, name, write_reply(reply)) for key, reply in replies.items()))
        for key, reply in replies.items():
            if self.models.ledger and key not in self._delivered:
                self.models.ledger.enter("student", reply.usage)
            self._delivered.add(key)
            self._errors.pop(key, None)  # of another batch that had the same request
        replies.clear()

    def _count(self, requests: int) -> None:
        if self.models.ledger:
            self.models.ledger.calls += requests

    def _fail(self, wanted: Iterable[str], error: ModelError) -> None:
        """All of these have no reply for the same reason, which is the model's: one message is enough."""
        self._errors |= dict.fromkeys(wanted, ModelError(error.message, error.hint, status=error.status, fatal=True))


def _reply(api: Batches, line: Line, request: Request) -> Reply:
    if line.response is None:
        raise ModelError(api.model.words(line.words))
    reply = api.model.answer(line.response, request)
    return replace(reply, usage=_at_half_price(reply.usage))


def _is_refusal(error: ModelError) -> bool:
    """Whether the server has certainly not taken what it was sent."""
    return error.status is not None and (400 <= error.status < 500 or error.status in OVERLOADED)


def _at_half_price(usage: Usage) -> Usage:
    return replace(usage, cost_usd=None if usage.cost_usd is None else usage.cost_usd * BATCH_SHARE)


def _reached(ledger: Ledger, calls: int, usage: Usage) -> str:
    """The ceiling that so many further calls could break, using as much as this; nothing when they fit."""
    ceilings, total = ledger.ceilings, ledger.total + usage
    if ceilings.calls is not None and ledger.calls + calls > ceilings.calls:
        return f"the ceiling of {ceilings.calls:,} calls is reached"
    if ceilings.tokens is not None and total.total_tokens > ceilings.tokens:
        return f"the ceiling of {ceilings.tokens:,} tokens has no room for another request of the batch"
    if ceilings.cost_usd is not None and (total.cost_usd is None or total.cost_usd > ceilings.cost_usd):
        return f"the ceiling of ${ceilings.cost_usd:g} has no room for another request of the batch"
    return ""
