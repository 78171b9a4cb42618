"""Batch: fetch missing replies through the providers' batch APIs, at half the price.

A batch only stores replies where the cache looks for them; trials then run as always. If the batch does not answer a
request, the trial errors; it never becomes a live call. Submitted batches are on disk before the wait begins, so after
any interruption the same command waits for the same batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field, replace

from upskill.agents.chat import chat_request
from upskill.errors import CeilingReached, ModelError, UpskillError, UsageError
from upskill.models import Address, Reply, Request, Unanswered, open_model
from upskill.models.cache import BatchReplies, request_key, write_reply
from upskill.models.failures import OVERLOADED
from upskill.models.http.batches import BATCHES, Batches, BatchResult, BatchStatus, supports_batches
from upskill.models.http.model import HttpModel
from upskill.models.ledger import Ledger
from upskill.models.pool import Models
from upskill.models.prices import BATCH_SHARE, price_for
from upskill.models.throttling import PERMANENT
from upskill.runs.planning.estimate import worst_case_usage
from upskill.runs.planning.plan import Result, task_of
from upskill.runs.running.executors import Executor, Job, Session
from upskill.runs.stores import Batch, Store
from upskill.traces import NO_USAGE, Usage

FIRST_WAIT, MAX_WAIT, GROWTH = 5.0, 60.0, 1.5  # seconds between two polls, and how they grow
REPLIES_PER_COMMIT = 500  # replies stored at a time
ASKED_ON_RESUME = "The provider may have accepted the batch; run the same command to find out."
CHECK_CONSOLE = (
    "The provider may have accepted the batch; check its console before sending it again."
)


def check_batchable(students: Iterable[Address]) -> None:
    left_out = [address.name for address in students if not supports_batches(address)]
    if left_out:
        raise UsageError(
            f"--batch: {', '.join(left_out)} {'has' if len(left_out) == 1 else 'have'} no batch API",
            "anthropic:MODEL, openai:MODEL and servers passed with --base-url may have one. Drop --batch for others.",
        )


@dataclass(frozen=True, slots=True)
class _PendingRequest:
    address: Address
    request: Request


@dataclass
class _PendingBatch:
    """A submitted batch, the requests of it that this plan needs, and the parameters left out when it was written."""

    batch: Batch
    api: Batches
    requests: dict[str, _PendingRequest]
    unsupported_params: frozenset[str] = frozenset()
    last_status: BatchStatus | None = None
    last_error: str = ""  # the message that was shown last


@dataclass
class BatchExecutor(Executor):
    """Fetches the replies by batch, then lets another executor run the trials."""

    makes_live_calls = False
    executor: Executor
    store: Store
    models: Models
    message: Callable[[str], None]
    # They go on at the provider when we are interrupted.
    pending: list[_PendingBatch] = field(default_factory=list[_PendingBatch])
    _errors: dict[str, UpskillError] = field(default_factory=dict[str, UpskillError])  # by request
    _delivered: set[str] = field(default_factory=set[str])
    _unsupported_params: dict[Address, frozenset[str]] = field(
        default_factory=dict[Address, frozenset[str]]
    )

    async def execute(self, job: Job, session: Session) -> AsyncGenerator[Result]:
        plan = job.plan
        check_batchable(plan.models)
        if plan.agent != "chat":
            raise UsageError(
                f"the {plan.agent!r} agent cannot be batched: it may make several requests per trial"
            )
        requests = {
            trial: _PendingRequest(plan.addresses[trial.model], chat_request(task_of(plan, trial)))
            for trial in job.trials
        }
        keys = {
            trial: request_key(pending.address, pending.request)
            for trial, pending in requests.items()
        }
        anew = self.models.cache == "refresh"
        missing = {
            key: requests[trial]
            for trial, key in keys.items()
            if anew or self.store.reply(key) is None
        }
        self._errors.clear()
        if 0 < len(missing) < len(keys):
            self.message(f"{len(keys) - len(missing)} of {len(keys)} requests have a stored reply.")
        await self._fetch(missing, session.run.id)
        for address in plan.models:
            self.models.stand_in(address, BatchReplies(address, self.store, self._errors))
        held = [
            trial
            for trial, key in keys.items()
            if isinstance(self._errors.get(key), CeilingReached)
        ]
        ready = [
            trial
            for trial, key in keys.items()
            if not isinstance(self._errors.get(key), CeilingReached)
        ]
        # Those with a reply first: an error that stands for the rest of a model would end it before they are scored.
        ready.sort(key=lambda trial: keys[trial] in self._errors)
        async with aclosing(
            self.executor.execute(replace(job, trials=tuple(ready)), session)
        ) as results:
            async for result in results:
                yield result
        if held:  # running into the ceiling once tells everyone that the run ends before its end
            await session.run_trial(held[0])

    async def _fetch(self, missing: Mapping[str, _PendingRequest], run: str) -> None:
        """Submit and wait until each request has a reply or an error; again where a server complained."""
        async with AsyncExitStack() as stack:
            apis: dict[Address, Batches] = {}
            for pending in missing.values():
                if pending.address not in apis:
                    model = await open_model(pending.address, self.models.context)
                    stack.push_async_callback(model.close)
                    assert isinstance(model, HttpModel)
                    model.unsupported_params |= self._unsupported_params.get(
                        pending.address, frozenset()
                    )
                    apis[pending.address] = BATCHES.load(pending.address.provider)(model)
            unanswered = dict(missing)
            while unanswered:
                for address, api in apis.items():
                    mine = {
                        key: pending
                        for key, pending in unanswered.items()
                        if pending.address == address
                    }
                    await self._resume_batches(api, mine)
                within = self._within_ceilings(unanswered)
                for address, api in apis.items():
                    mine = {
                        key: pending
                        for key, pending in within.items()
                        if pending.address == address
                    }
                    await self._submit(api, mine, run)
                unanswered = await self._wait()
            self._unsupported_params |= {
                address: api.model.unsupported_params for address, api in apis.items()
            }

    async def _resume_batches(
        self, api: Batches, unanswered: Mapping[str, _PendingRequest]
    ) -> None:
        for batch in self.store.pending_batches(api.model.url):
            mine = {key: unanswered[key] for key in batch.keys if key in unanswered}
            if not mine:
                continue
            try:
                known = batch if batch.id else await self._find_at_provider(api, batch)
            except ModelError as error:
                self._fail(mine, error, failure="not asked")
                continue
            if known is None:
                continue
            self.message(
                f"{batch.model}: waiting for {len(mine)} requests in batch {known.id}, sent {batch.submitted}."
            )
            self._count_calls(len(mine))
            self.pending.append(_PendingBatch(known, api, mine))

    async def _find_at_provider(self, api: Batches, batch: Batch) -> Batch | None:
        """Did the provider get a batch whose id we never stored, because everything stopped first?

        A provider that keeps our token with a batch can be asked; otherwise the person is told.
        """
        if api.has_notes and (known := await api.find(batch.token)):
            return self.store.confirm_batch(batch, known)
        if not api.has_notes:
            self.message(
                f"{batch.model}: a batch of {len(batch.keys)} requests was being sent at {batch.submitted} when upskill"
                " stopped. The provider cannot say whether it arrived, so it is sent again. Check its console for a"
                " duplicate."
            )
        self.store.settle_batch(batch)
        return None

    def _within_ceilings(
        self, requests: Mapping[str, _PendingRequest]
    ) -> dict[str, _PendingRequest]:
        """The first requests that are not pending yet, as many as the ceilings allow at their worst."""
        pending = {key for waiting in self.pending for key in waiting.requests}
        ledger = self.models.ledger or Ledger()

        def worst_case(request: _PendingRequest) -> Usage:
            price = price_for(request.address, self.models.context.prices)
            return _at_half_price(worst_case_usage(request.request, price))

        reserved = sum(
            (worst_case(request) for each in self.pending for request in each.requests.values()),
            NO_USAGE,
        )
        within: dict[str, _PendingRequest] = {}
        reached = ""
        for key, request in requests.items():
            if key in pending or key in self._errors:
                continue
            after = reserved + worst_case(request)
            reached = reached or _ceiling_reached(ledger, len(within) + 1, after)
            if reached:
                self._errors[key] = CeilingReached(reached)
            else:
                within[key], reserved = request, after
        return within

    async def _submit(self, api: Batches, requests: dict[str, _PendingRequest], run: str) -> None:
        unsupported_params = api.model.unsupported_params
        name = api.model.address.name
        written = (
            (
                key,
                api.encode_request(key, api.model.build_body(pending.request, unsupported_params)),
            )
            for key, pending in requests.items()
        )
        for chunk in api.chunks(written):
            mine = {key: requests[key] for key in chunk}
            batch = self.store.begin_batch(run, name, api.model.url, chunk)
            try:
                known = await api.submit(chunk.values(), batch.token)
            except ModelError as error:
                if _is_refusal(error):
                    self.store.settle_batch(batch)  # there is nothing to look for
                else:
                    error.hint = ASKED_ON_RESUME if api.has_notes else CHECK_CONSOLE
                self._fail(mine, error, failure="not asked")
                continue
            batch = self.store.confirm_batch(batch, known)
            self._count_calls(len(mine))
            self.pending.append(_PendingBatch(batch, api, mine, unsupported_params))
            self.message(
                f"{name}: submitted {len(mine)} requests as batch {known}, at half the price."
            )

    async def _wait(self) -> dict[str, _PendingRequest]:
        """Returns the requests that are worth asking again."""
        pause = FIRST_WAIT
        again: dict[str, _PendingRequest] = {}
        while True:
            for waiting in list(self.pending):
                try:
                    progress = await waiting.api.poll(waiting.batch.id)
                    if progress != waiting.last_status:
                        waiting.last_status = progress
                        failed = f", {progress.failed} without an answer" if progress.failed else ""
                        answered = f"{progress.answered} of {progress.total or len(waiting.batch.keys)} answered"
                        name = f"{waiting.batch.model}: batch {progress.id}"
                        self.message(f"{name} is {progress.status}: {answered}{failed}.")
                    if progress.ended:
                        again |= await self._collect(waiting, progress)
                        self.pending.remove(waiting)
                except ModelError as error:
                    self._handle_poll_error(waiting, error)
            if not self.pending:
                return again
            await asyncio.sleep(pause)
            pause = min(MAX_WAIT, pause * GROWTH)

    def _handle_poll_error(self, waiting: _PendingBatch, error: ModelError) -> None:
        """Give up a batch that is lost; any other error may pass while the provider works on."""
        if error.status in PERMANENT or error.status == 200:
            if error.status == 404:  # gone, with what it had
                self.store.settle_batch(waiting.batch)
            self._fail(waiting.requests, error)
            self.pending.remove(waiting)
        elif error.message != waiting.last_error:
            waiting.last_error = error.message
            self.message(
                f"{waiting.batch.model}: batch {waiting.batch.id}: {error.message}; trying again."
            )

    async def _collect(
        self, waiting: _PendingBatch, progress: BatchStatus
    ) -> dict[str, _PendingRequest]:
        """Returns what is worth asking again."""
        again: dict[str, _PendingRequest] = {}
        errors: dict[str, UpskillError] = {}
        replies: dict[str, Reply] = {}
        async with aclosing(waiting.api.results(progress)) as lines:
            async for line in lines:
                pending = waiting.requests.get(line.key)
                if pending is None:
                    continue
                try:
                    replies[line.key] = _read_reply(waiting.api, line, pending.request)
                except ModelError as error:
                    errors[line.key] = error
                    if line.response and waiting.api.model.learn_from(
                        line.response, pending.request, waiting.unsupported_params
                    ):
                        again[line.key] = pending
                if len(replies) >= REPLIES_PER_COMMIT:
                    await self._store_replies(waiting, replies)
        await self._store_replies(waiting, replies)
        for key in waiting.requests:
            if key not in errors and key not in self._delivered:
                reason = (
                    progress.error or f"it ended ({progress.status}) without answering this request"
                )
                errors[key] = ModelError(
                    f"batch {progress.id}: {reason}",
                    fatal=bool(progress.error),
                    failure="not asked" if progress.error else "",  # it was turned down whole
                )
        # Another plan may need the rest of it: only what is ours, or stored, is settled.
        stored = (key for key in waiting.batch.keys if self.store.reply(key) is not None)
        self.store.settle_batch(waiting.batch, {*waiting.requests, *stored})
        self._errors |= {key: error for key, error in errors.items() if key not in again}
        return again

    async def _store_replies(self, waiting: _PendingBatch, replies: dict[str, Reply]) -> None:
        name = waiting.batch.model
        await asyncio.gather(
            *(self.store.add_reply(key, name, write_reply(reply)) for key, reply in replies.items())
        )
        for key, reply in replies.items():
            if self.models.ledger and key not in self._delivered:
                self.models.ledger.record("student", reply.usage)
            self._delivered.add(key)
            self._errors.pop(key, None)  # of another batch that had the same request
        replies.clear()

    def _count_calls(self, requests: int) -> None:
        if self.models.ledger:
            self.models.ledger.calls += requests

    def _fail(self, keys: Iterable[str], error: ModelError, failure: str = "") -> None:
        failed = ModelError(
            error.message,
            error.hint,
            status=error.status,
            fatal=True,
            failure=failure or error.failure,
        )
        self._errors |= dict.fromkeys(keys, failed)


def _read_reply(api: Batches, line: BatchResult, request: Request) -> Reply:
    if line.response is None:
        raise ModelError(api.model.excerpt(line.error))
    try:
        reply = api.model.parse_response(line.response, request)
    except Unanswered as unanswered:  # what a student did instead of answering
        reply = unanswered.as_reply(request)
    return replace(reply, usage=_at_half_price(reply.usage))


def _is_refusal(error: ModelError) -> bool:
    """Whether the server has certainly not accepted what it was sent."""
    return error.status is not None and (400 <= error.status < 500 or error.status in OVERLOADED)


def _at_half_price(usage: Usage) -> Usage:
    return replace(usage, cost_usd=None if usage.cost_usd is None else usage.cost_usd * BATCH_SHARE)


def _ceiling_reached(ledger: Ledger, calls: int, usage: Usage) -> str:
    """The ceiling that these calls could break; empty when they fit."""
    ceilings, total = ledger.ceilings, ledger.total + usage
    if ceilings.calls is not None and ledger.calls + calls > ceilings.calls:
        return f"the limit of {ceilings.calls:,} calls was reached"
    if ceilings.tokens is not None and total.total_tokens > ceilings.tokens:
        return f"the limit of {ceilings.tokens:,} tokens leaves no room for another request in the batch"
    if ceilings.cost_usd is not None and (
        total.cost_usd is None or total.cost_usd > ceilings.cost_usd
    ):
        return (
            f"the limit of ${ceilings.cost_usd:g} leaves no room for another request in the batch"
        )
    return ""
