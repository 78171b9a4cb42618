"""`local`: trials as tasks of this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import contextmanager

from upskill.errors import Paused
from upskill.models.embedded.capacity import usable_cores
from upskill.runs.executors import Job, Persist, RunTrial
from upskill.runs.executors.garbage import rare_collections
from upskill.runs.left import of_group
from upskill.runs.plan import Result, Trial


@contextmanager
def _collect_files(unanswered: set[str]) -> Generator[None]:
    """Note what a trial waits for, and go on: the others can be asked all the same."""
    try:
        yield
    except Paused as pause:
        unanswered.update(pause.files)


class Local:
    """Up to `concurrency` trials of each model at a time. Embedded models share the processor, so they share a lane
    that is as wide as there are servers."""

    def __init__(self, concurrency: int = 8) -> None:
        self.concurrency = concurrency

    async def execute(self, job: Job, run: RunTrial, persist: Persist) -> AsyncGenerator[Result]:
        lanes: dict[str, list[str]] = {}  # and the models that share each
        for model, address in job.plan.addresses.items():
            lanes.setdefault("" if address.provider == "local" else model, []).append(model)
        servers = job.context.servers or usable_cores()
        arrived: asyncio.Queue[Result | None] = asyncio.Queue()
        stopped: set[str] = set()
        unanswered: set[str] = set()
        ended = False

        async def work(waiting: Iterator[Trial]) -> None:
            nonlocal ended
            for trial in waiting:
                if ended:
                    return
                if trial.model in stopped:
                    continue
                with _collect_files(unanswered):
                    result = await run(trial)
                    if result is None:
                        ended = True
                        return
                    await persist(result)
                    if result.fatal:
                        stopped.add(trial.model)
                    arrived.put_nowait(result)

        async def work_all() -> None:
            try:
                async with asyncio.TaskGroup() as group:
                    for lane, models in lanes.items():
                        trials = of_group(job.trials, models)
                        waiting = iter(trials)  # which the tasks of a lane share
                        for _ in range(min(len(trials), self.concurrency if lane else servers)):
                            group.create_task(work(waiting))
            finally:
                arrived.put_nowait(None)

        everything = asyncio.create_task(work_all())
        try:
            with rare_collections():
                while (result := await arrived.get()) is not None:
                    yield result
                await everything
            if unanswered:
                raise Paused(unanswered)
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        finally:
            everything.cancel()
            await asyncio.gather(everything, return_exceptions=True)
