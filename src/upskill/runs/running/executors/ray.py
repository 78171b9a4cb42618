"""`ray`: chunks of trials as Ray tasks, on all cores of this machine or on a cluster.

If a worker dies, this process sends its chunk again; only this process knows what is left to do.

Keys, and the location of the store with its password, travel as an object that workers fetch by reference. In a task's
arguments or environment they would show up in Ray's state and dashboard.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import tempfile
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, cast

from upskill.errors import CeilingReached, UsageError
from upskill.installation import add_extra
from upskill.models.ledger import Ledger
from upskill.models.pool import Models
from upskill.runs.planning.plan import Plan, Result
from upskill.runs.running.executors import Executor, Job, Resources, Session
from upskill.runs.running.executors.chunks import (
    Assignment,
    Chunk,
    ChunkQueue,
    Done,
    Shared,
    Worker,
    brief,
)
from upskill.runs.stores import is_url

NAME = "upskill trials"  # of a task, as Ray shows it
MAX_CRASHES_IN_A_ROW = 100  # of workers, with nothing done in between
OBJECT_STORE = 100 * 2**20  # bytes; results do not pass through it
CONNECT_SECONDS = 10.0
COUNTED_AGAIN_AFTER = 5.0  # seconds
STARTS = 5  # of Ray on this machine, which gives up after 30 seconds
PATIENCE = {  # a machine that is busy is not one that is dead
    "RAY_health_check_timeout_ms": "120000",
    "RAY_worker_register_timeout_seconds": "600",
    "RAY_gcs_server_request_timeout_seconds": "600",
}
logger = logging.getLogger(__name__)


class Ray(Executor):
    """Up to `concurrency` trials at each server at a time, over all machines."""

    is_remote = True

    def __init__(
        self, concurrency: int = 8, address: str = "", resources: Resources | None = None
    ) -> None:
        self.concurrency = concurrency
        self.address = address
        self.resources = resources or Resources()
        self._cluster: Cluster | None = None
        import_ray()

    def check(self, plan: Plan, models: Models) -> None:
        for address in (*plan.models, *([plan.judge] if plan.judge else ())):
            if address.provider == "local":
                raise UsageError(
                    f"{address.name}: an embedded model already uses all cores of this machine",
                    "Drop --executor ray, or serve the model and pass the server with --base-url.",
                )
            if address.provider == "handoff":
                raise UsageError(
                    f"{address.name}: nothing to parallelize while a person answers",
                    "Drop --executor ray.",
                )
        if models.cache == "replay":
            raise UsageError(
                "--replay does not call models, so there is nothing for Ray to do",
                "Drop --replay or --executor ray.",
            )

    def open(self, plan: Plan, store: str | None) -> None:
        del plan  # workers look for the tools of checks themselves
        if self._cluster is None or not self._cluster.ray.is_initialized():
            self._cluster = Cluster(self.address, self.resources)
        others = {node["NodeManagerHostname"] for node in self._cluster.nodes()} - {
            socket.gethostname()
        }
        if store and not is_url(store) and others:
            raise UsageError(
                f"{min(others)} in this Ray cluster cannot write to {store}",
                "Keep a cluster's runs in PostgreSQL: --store postgresql://…",
            )

    async def execute(self, job: Job, session: Session) -> AsyncGenerator[Result]:
        models, cluster = session.models, self._cluster
        assert cluster is not None
        queue = ChunkQueue(
            job,
            self.concurrency,
            models.ledger or Ledger(),
            one_at_a_time=self.resources.are_stated,
        )
        shared = Shared(job.plan, session.run, job.context, session.store, models.cache)
        tasks, shown_lines = _Tasks(cluster, queue, shared, session), set[str]()
        try:
            async for done in tasks.run():
                for line in done.messages:
                    if line not in shown_lines:
                        shown_lines.add(line)
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

    def __init__(
        self, cluster: Cluster, queue: ChunkQueue, shared: Shared, session: Session
    ) -> None:
        self.cluster = cluster
        self.queue = queue
        self.plan = shared.plan
        self.session = session
        self.halted: CeilingReached | None = None
        self._shared = cluster.ray.put(shared)
        # Not tried again by Ray: what the lost worker may have spent has to be accounted for first.
        self._task: Any = cluster.ray.remote(_run).options(
            max_retries=0, name=NAME, **cluster.task_options
        )
        self._running: dict[asyncio.Future[Done], tuple[Assignment, Any]] = {}
        self._crashes = 0  # in a row

    async def run(self) -> AsyncGenerator[Done]:
        self._submit()
        while self.queue.left or self._running:
            if self._running:
                timeout = self.queue.pause() or None
                ended, _ = await asyncio.wait(
                    self._running, timeout=timeout, return_when=asyncio.FIRST_COMPLETED
                )
            else:
                ended = set[asyncio.Future[Done]]()
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
                assignment = self.queue.assign(workers)
            except CeilingReached as reached:
                self.halted = reached
                self.queue.clear()
                return
            if assignment is None:
                return
            reference = self._task.remote([self._shared], assignment.chunk)
            self._running[asyncio.wrap_future(reference.future())] = (assignment, reference)

    def _settle(self, assignment: Assignment, future: asyncio.Future[Done]) -> Done:
        exceptions = self.cluster.ray.exceptions
        try:
            done = future.result()
        except exceptions.RayTaskError as error:
            if "No module named 'upskill" not in str(error):
                raise
            hint = "Install the same version on every node."
            raise UsageError(
                "upskill is not installed on the workers of this Ray cluster", hint
            ) from None
        except exceptions.RayError as error:
            return self._requeue_lost(assignment, type(error).__name__)
        self._crashes = 0
        self.queue.settle(assignment, done)
        for model in {result.trial.model for result in done.results if result.fatal}:
            self.queue.stop(model)
        return done

    def _requeue_lost(self, assignment: Assignment, how: str) -> Done:
        self._crashes += 1
        self.cluster.recount()  # a node may be gone
        if self._crashes > MAX_CRASHES_IN_A_ROW:
            raise UsageError(
                f"Ray workers died {self._crashes} times in a row ({how})",
                "Is there enough memory? Finished trials are stored.",
            )
        keys = [self.plan.key(trial) for trial in assignment.chunk.trials]
        stored = list(self.session.settled(keys)) if self.session.store else None
        given_up = self.queue.requeue_lost(assignment, stored)
        if given_up is None:
            return Done(results=[brief(result) for result in stored or ()])
        error = f"every worker that ran this trial died ({how})"
        return Done(results=[Result(given_up, self.plan.key(given_up), None, error)], stored=False)


_workers: dict[str, Worker] = {}  # by what it was told all chunks have in common; one at a time


def _run(shared: list[Any], chunk: Chunk) -> Done:
    """What a process of Ray calls. A reference inside a list is not replaced by its object at every call."""
    reference = shared[0]
    if (worker := _workers.get(reference.hex())) is None:
        while _workers:
            _workers.popitem()[1].close()
        worker = _workers[reference.hex()] = Worker(import_ray().get(reference))
    return worker.run(chunk)


def import_ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent anywhere
    os.environ.setdefault(
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0"
    )  # or it warns of that at every start
    try:
        import ray  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise UsageError(
            "--executor ray needs Ray, which is not installed", f"Run `{add_extra('ray')}`."
        ) from error
    return ray


def start_ray(ray: Any, address: str = "", **options: Any) -> None:
    """Start Ray on this machine, or join the cluster at an address, without a word on standard output."""
    if not address:
        options = {
            "address": "local",
            "include_dashboard": False,
            "object_store_memory": OBJECT_STORE,
        } | options
        for name, value in PATIENCE.items():
            os.environ.setdefault(name, value)
    else:
        options["address"] = address
    for start in range(STARTS):
        try:
            ray.init(
                log_to_driver=False, logging_level=logging.ERROR, namespace="upskill", **options
            )
            break
        except Exception as error:
            ray.shutdown()
            if address or "timed out during startup" not in str(error):
                raise
            if start == STARTS - 1:
                raise TimeoutError("this machine is too busy") from error
    # The death of a worker would be printed to standard output, which belongs to the result; no setting prevents it.
    ray._private.worker._worker_logs_enabled = False


def _check_reachable(address: str) -> None:
    """UsageError if nothing is listening: Ray itself would try for minutes."""
    if address == "auto":
        note = (
            Path(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir())
            / "ray"
            / "ray_current_cluster"
        )
        if not note.is_file():
            raise UsageError(
                "no Ray cluster is running on this machine", "Start one with `ray start --head`."
            )
        address = note.read_text(encoding="utf-8").strip()
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise UsageError(f"{address!r} is not a Ray cluster address", "Use HOST:PORT, or auto.")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        hint = "Run `ray status` on one of its nodes to see whether it is running."
        raise UsageError(f"cannot join the Ray cluster at {address}: {error}", hint) from error


class Cluster:
    """Ray as this process has it: started here, joined, or set up by whoever called us."""

    def __init__(self, address: str, resources: Resources) -> None:
        self.ray = import_ray()
        self.address = (address or os.environ.get("RAY_ADDRESS", "")).removeprefix("local")
        self.resources = resources
        self.recount()
        if not self.ray.is_initialized():
            self._init()
        if not self.workers:
            needs = {
                "trial_cpus": resources.cpus,
                "trial_gpus": resources.gpus,
                "trial_memory": resources.memory_mb,
            }
            stated = " ".join(
                f"{name} {value:g}" for name, value in needs.items() if value is not None
            )
            if stated:
                raise UsageError(
                    f"no node in this Ray cluster has room for a trial with {stated}",
                    "Request less.",
                )
            raise UsageError("no node in this Ray cluster has a CPU for trials")

    @property
    def task_options(self) -> dict[str, Any]:
        needs = self.resources
        memory = None if needs.memory_mb is None else int(needs.memory_mb * 2**20)
        options = {
            "num_cpus": needs.cpus if needs.cpus is not None else 1,
            "num_gpus": needs.gpus,
            "memory": memory,
        }
        return {name: value for name, value in options.items() if value is not None}

    @property
    def workers(self) -> int:
        if time.monotonic() - self._counted_at > COUNTED_AGAIN_AFTER or not self._workers:
            self._workers = sum(self._fit(node["Resources"]) for node in self.nodes())
            self._counted_at = time.monotonic()
        return self._workers

    def recount(self) -> None:
        self._workers, self._counted_at = 0, 0.0

    def nodes(self) -> list[dict[str, Any]]:
        return [node for node in cast("list[dict[str, Any]]", self.ray.nodes()) if node["Alive"]]

    def _fit(self, node: dict[str, float]) -> int:
        names = {"num_cpus": "CPU", "num_gpus": "GPU", "memory": "memory"}
        needs = {names[name]: value for name, value in self.task_options.items() if value}
        return int(
            min(
                (node.get(name, 0.0) / value for name, value in needs.items()),
                default=node.get("CPU", 1.0),
            )
        )

    def _init(self) -> None:
        if self.address.startswith("ray://"):
            raise UsageError(
                f"{self.address}: the Ray client is not supported",
                "Run upskill on a node of the cluster with --set ray_address=auto, or submit it as a Ray job.",
            )
        if self.address:
            _check_reachable(self.address)
        try:
            start_ray(self.ray, self.address)
        except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
            where = (
                f"cannot join the Ray cluster at {self.address}"
                if self.address
                else "cannot start Ray"
            )
            raise UsageError(
                f"{where}: {str(error).strip()}",
                "Run `ray status` on one of its nodes to see more.",
            ) from error
        logger.info("Ray has room for %d chunks", self.workers)
