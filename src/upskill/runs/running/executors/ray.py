"""`ray`: chunks of trials as Ray tasks, on all cores of this machine or on a cluster.

This process cuts the chunks, leases them their share of the ceilings, and sends a chunk again whose worker died. So
nothing is lost with a worker or a node: what is stored is stored, and only this process knows what is still to be done.

Keys, and the place of the store with its password, travel as an object that workers fetch by reference. In a task's
arguments or environment they would be seen in Ray's state and dashboard.
"""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncGenerator
from typing import Any

from upskill.errors import CeilingReached, UsageError
from upskill.models import Models
from upskill.models.ledger import Ledger
from upskill.runs.planning.plan import Plan, Result
from upskill.runs.running.executors import Job, Resources, Session
from upskill.runs.running.executors.chunk import Chunk, Done, Shared, Worker, brief
from upskill.runs.running.executors.chunk_queue import ChunkQueue, Cut
from upskill.runs.running.executors.leases import LeaseBook
from upskill.runs.running.executors.ray_cluster import Cluster, import_ray
from upskill.runs.stores import is_url

NAME = "upskill trials"  # of a task, as Ray shows it
MOST_CRASHES_IN_A_ROW = 100  # of workers, with nothing done in between


class Ray:
    """Up to `concurrency` trials at each server at a time, over all machines."""

    def __init__(self, concurrency: int = 8, address: str = "", resources: Resources | None = None) -> None:
        self.concurrency = concurrency
        self.address = address
        self.resources = resources or Resources()
        self._cluster: Cluster | None = None
        import_ray()

    def check(self, plan: Plan, models: Models) -> None:
        for address in (*plan.models, *([plan.judge] if plan.judge else ())):
            if address.provider == "local":
                raise UsageError(
                    f"{address.name}: an embedded model uses all cores of this machine already",
                    "Leave --executor ray out, or serve the model and name the server with --base-url.",
                )
            if address.provider == "handoff":
                raise UsageError(f"{address.name}: nothing runs while a person answers", "Leave --executor ray out.")
        if models.cache == "replay":
            raise UsageError(
                "with --replay nobody is asked, so there is nothing for Ray to do", "Leave one of them out."
            )

    def open(self, store: str | None) -> None:
        if self._cluster is None or not self._cluster.ray.is_initialized():
            self._cluster = Cluster(self.address, self.resources)
        if store and not is_url(store) and (others := self._cluster.other_machines()):
            raise UsageError(
                f"{others[0]} of this Ray cluster cannot write to {store}",
                "Keep the runs of a cluster in PostgreSQL: --store postgresql://…",
            )

    async def execute_remotely(self, job: Job, session: Session) -> AsyncGenerator[Result]:
        models, cluster = session.models, self._cluster
        assert cluster is not None
        leases = LeaseBook(models.ledger or Ledger())
        queue = ChunkQueue(job, self.concurrency, leases, one_at_a_time=self.resources.given)
        shared = Shared(job.plan, session.run, job.context, session.store, models.cache)
        tasks, told = _Tasks(cluster, queue, shared, session), set[str]()
        try:
            async for done in tasks.run():
                for line in dict.fromkeys(done.told):
                    if line not in told:
                        told.add(line)
                        models.context.tell(line)
                models.hits_elsewhere += done.hits
                if done.error:
                    raise done.error
                for result in done.results:
                    if not done.stored:
                        await session.persist(result)
                    yield result
        finally:
            tasks.cancel()
        if tasks.halted:
            raise tasks.halted


class _Tasks:
    """Chunks as Ray tasks, as many at a time as the cluster has room for."""

    def __init__(self, cluster: Cluster, queue: ChunkQueue, shared: Shared, session: Session) -> None:
        self.cluster = cluster
        self.queue = queue
        self.plan = shared.plan
        self.session = session
        self.halted: CeilingReached | None = None
        self._shared = cluster.ray.put(shared)
        # Not tried again by Ray: what the lost worker may have spent has to be accounted for first.
        self._task: Any = cluster.ray.remote(_run).options(max_retries=0, name=NAME, **cluster.task_options)
        self._running: dict[asyncio.Future[bytes], tuple[Cut, Any]] = {}
        self._crashes = 0  # in a row

    async def run(self) -> AsyncGenerator[Done]:
        """How each chunk ended, as they end."""
        self._submit()
        while self.queue.left or self._running:
            if self._running:
                timeout = self.queue.pause() or None
                ended, _ = await asyncio.wait(self._running, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            else:
                ended = set[asyncio.Future[bytes]]()
                await asyncio.sleep(self.queue.pause())
            settled = [self._settle(self._running.pop(future)[0], future) for future in ended]
            self._submit()  # first, so that nobody waits while results are counted
            for done in settled:
                yield done

    def cancel(self) -> None:
        for _, reference in self._running.values():
            self.cluster.ray.cancel(reference, force=True)
        for future in self._running:
            future.cancel()
        self._running.clear()

    def _submit(self) -> None:
        workers = max(1, self.cluster.workers)  # where there is none any more, Ray waits for one
        while self.queue.left and len(self._running) < workers:
            try:
                cut = self.queue.cut(workers)
            except CeilingReached as reached:
                self.halted = reached
                self.queue.clear()
                return
            if cut is None:
                return
            reference = self._task.remote([self._shared], cut.chunk)
            self._running[asyncio.wrap_future(reference.future())] = (cut, reference)

    def _settle(self, cut: Cut, future: asyncio.Future[bytes]) -> Done:
        exceptions = self.cluster.ray.exceptions
        try:
            done: Done = pickle.loads(future.result())  # noqa: S301 - from a worker of ours
        except exceptions.RayTaskError as error:
            if "No module named 'upskill" in str(error):
                raise UsageError(
                    "the workers of this Ray cluster do not have upskill",
                    "Install the same version on every node.",
                ) from None
            raise
        except exceptions.RayError as error:
            return self._lose(cut, type(error).__name__)
        self._crashes = 0
        self.queue.settle(cut, done)
        for model in {result.trial.model for result in done.results if result.fatal}:
            self.queue.stop(model)
        return done

    def _lose(self, cut: Cut, how: str) -> Done:
        self._crashes += 1
        if self._crashes > MOST_CRASHES_IN_A_ROW:
            raise UsageError(
                f"the workers of Ray have died {self._crashes} times in a row ({how})",
                "Is there enough memory? What was finished is stored.",
            )
        self.cluster.recount()
        keys = [self.plan.key(trial) for trial in cut.chunk.trials]
        stored = list(self.session.scored(keys)) if self.session.store else None
        given_up = self.queue.lose(cut, stored)
        if given_up is None:
            return Done(results=[brief(result) for result in stored or ()])
        error = f"every worker that ran this trial died ({how})"
        return Done(results=[Result(given_up, self.plan.key(given_up), None, error)], stored=False)


_workers: dict[str, Worker] = {}  # by what it was told all chunks have in common; one at a time


def _run(shared: list[Any], chunk: Chunk) -> bytes:
    """What a process of Ray calls. A reference inside a list is not replaced by its object at every call.

    Returns a `Done`, pickled here: Ray's own pickler, which could also send code, takes twice as long.
    """
    reference = shared[0]
    if (worker := _workers.get(reference.hex())) is None:
        while _workers:
            _workers.popitem()[1].close()
        worker = _workers[reference.hex()] = Worker(import_ray().get(reference))
    return pickle.dumps(worker.run(chunk), pickle.HIGHEST_PROTOCOL)
