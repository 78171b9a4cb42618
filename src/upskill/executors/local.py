"""`local`: trials as tasks of this process."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterable

from upskill.executors import Keep, RunTrial
from upskill.trial import Plan, Result, Trial


class Local:
    """Up to `concurrency` trials of each model at a time. Embedded models share the processor, so they share a lane."""

    def __init__(self, concurrency: int = 8) -> None:
        self.concurrency = concurrency

    async def carry(self, plan: Plan, trials: Iterable[Trial], run: RunTrial, keep: Keep) -> AsyncGenerator[Result]:
        lanes: dict[str, deque[Trial]] = {}
        for trial in trials:
            lane = "" if plan.addresses[trial.model].provider == "local" else trial.model
            lanes.setdefault(lane, deque()).append(trial)
        arrived: asyncio.Queue[Result | None] = asyncio.Queue()
        stopped: set[str] = set()

        async def work(waiting: deque[Trial]) -> None:
            while waiting:
                trial = waiting.popleft()
                if trial.model in stopped:
                    continue
                result = await run(plan, trial)
                if result is None:
                    for lane in lanes.values():
                        lane.clear()
                    return
                await keep(result)
                if result.fatal:
                    stopped.add(trial.model)
                arrived.put_nowait(result)

        async def work_all() -> None:
            try:
                async with asyncio.TaskGroup() as group:
                    for lane, waiting in lanes.items():
                        for _ in range(min(len(waiting), self.concurrency if lane else 1)):
                            group.create_task(work(waiting))
            finally:
                arrived.put_nowait(None)

        everything = asyncio.create_task(work_all())
        try:
            while (result := await arrived.get()) is not None:
                yield result
            await everything
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        finally:
            everything.cancel()
            await asyncio.gather(everything, return_exceptions=True)
