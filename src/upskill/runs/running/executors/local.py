"""`local`: trials as tasks of this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator

from upskill.errors import Paused
from upskill.runs.planning.plan import Result, Trial
from upskill.runs.running.executors import Executor, Job, Session


def _lanes(job: Job) -> dict[str, list[Trial]]:
    """By model; embedded models share the lane without a name."""
    lanes: dict[str, list[Trial]] = {}
    for trial in job.trials:
        is_embedded = job.plan.addresses[trial.model].provider == "local"
        lanes.setdefault("" if is_embedded else trial.model, []).append(trial)
    return lanes


def _embedded_servers(job: Job) -> int:
    from upskill.models.embedded.capacity import usable_cores  # noqa: PLC0415 - only for embedded models

    return job.context.servers or usable_cores()


class Local(Executor):
    """Up to `concurrency` trials of each model at a time; embedded models share the processor, and so one lane."""

    def __init__(self, concurrency: int = 8) -> None:
        self.concurrency = concurrency

    async def execute(self, job: Job, session: Session) -> AsyncGenerator[Result]:
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
                try:
                    result = await session.run_trial(trial)
                except (
                    Paused
                ) as pause:  # somebody has to answer it; the others can be asked all the same
                    unanswered.update(pause.files)
                    continue
                if result is None:
                    ended = True
                    return
                await session.persist(result)
                if result.fatal:
                    stopped.add(trial.model)
                arrived.put_nowait(result)

        async def work_all() -> None:
            try:
                async with asyncio.TaskGroup() as group:
                    for lane, trials in _lanes(job).items():
                        waiting = iter(trials)  # which the tasks of a lane share
                        width = self.concurrency if lane else _embedded_servers(job)
                        for _ in range(min(len(trials), width)):
                            group.create_task(work(waiting))
            finally:
                arrived.put_nowait(None)

        everything = asyncio.create_task(work_all())
        try:
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
