"""`gepa`: the GEPA optimizer (extra `gepa`) evolves the body on shown cases. An attempt is one run of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeVar

from upskill.authoring.revising import Edit, Failure, Proposal, RevisionRequest
from upskill.errors import UsageError
from upskill.installation import add_extra
from upskill.models import Message, Request
from upskill.suites import Case
from upskill.traces.redaction.redact import redact

PROPOSALS = 3  # of the teacher, in each attempt
MAX_ITERATIONS = 4 * PROPOSALS  # one whose cases all pass proposes nothing
BODY = "body"  # of the skill, as GEPA's only component

T = TypeVar("T")
logger = logging.getLogger(__name__)


async def optimize(asked: RevisionRequest) -> Proposal | None:
    try:
        gepa: Any = import_module("gepa")
    except ImportError as missing:
        raise UsageError(
            "--refiner gepa needs the `gepa` package, which is not installed",
            f"Run `{add_extra('gepa')}`.",
        ) from missing
    skill = asked.skill
    if redact(skill.body) != skill.body:
        raise UsageError(
            "GEPA rewrites the whole body, which contains a secret", "Remove it from the skill."
        )
    adapter = _Adapter(asked, asyncio.get_running_loop())
    result: Any = await asyncio.to_thread(
        gepa.optimize,
        {BODY: skill.body},
        trainset=list(asked.cases),
        adapter=adapter,
        reflection_lm=adapter.reflect,
        stop_callbacks=adapter.is_done,
        logger=adapter,
        seed=asked.attempt,
    )
    body = str(result.best_candidate[BODY])
    if body == skill.body:
        return None
    return Proposal(skill.with_body(body), (Edit("replace", 1, body),), "found by GEPA")


@dataclass
class _Adapter:
    """GEPA's view of us: it runs in a thread, and what it waits for runs in our loop."""

    asked: RevisionRequest
    loop: asyncio.AbstractEventLoop
    proposals: int = 0
    propose_new_texts: None = None

    def is_done(self, state: Any) -> bool:
        return self.proposals >= PROPOSALS or state.i >= MAX_ITERATIONS

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def reflect(self, prompt: object) -> str:
        return self.wait_for(self._reflect(redact(str(prompt))))

    async def _reflect(self, prompt: str) -> str:
        self.proposals += 1
        asked = self.asked
        if asked.material.pieces:
            prompt = f"{prompt}\n\n{asked.material.quoted()}"
        limit = 4 * asked.tokens + 1000
        request = Request((Message("user", prompt),), limit, seed=self.proposals)
        return (await asked.model.reply(request)).text

    def log(self, message: str) -> None:
        logger.debug(message)

    def evaluate(
        self, batch: list[Case], candidate: Mapping[str, str], capture_traces: bool = False
    ) -> Any:
        run = self.asked.run
        assert run is not None

        async def run_batch() -> Sequence[Failure | None]:
            return await run(self.asked.skill.with_body(candidate[BODY]), batch)

        failures = self.wait_for(run_batch())
        examples = list(zip(batch, failures, strict=True)) if capture_traces else None
        scores = [float(failure is None) for failure in failures]
        return import_module("gepa.core.adapter").EvaluationBatch(failures, scores, examples)

    def make_reflective_dataset(
        self, candidate: Mapping[str, str], evaluated: Any, components: Sequence[str]
    ) -> dict[str, list[dict[str, str]]]:
        examples: Sequence[tuple[Case, Failure | None]] = evaluated.trajectories
        return {
            BODY: [
                {
                    "Inputs": failure.prompt if failure else case.prompt,
                    "Generated Outputs": failure.answer if failure else "(a right answer)",
                    "Feedback": "\n".join(failure.reasons) if failure else "This is right.",
                }
                for case, failure in examples
            ]
        }
