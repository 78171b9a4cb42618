"""`gepa`: the GEPA optimizer (extra `gepa`) evolves the body on train cases. An attempt is one run of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeVar

from upskill.authoring.search.refiners import Edit, Failure, Proposal, Refiner, TriedEdits
from upskill.errors import UsageError
from upskill.installation import add_extra
from upskill.models import Message, Request
from upskill.skills import Skill
from upskill.suites import Case
from upskill.traces.redaction.redact import redact

PROPOSALS = 3  # of the teacher, in each attempt
MAX_ITERATIONS = 4 * PROPOSALS  # one whose cases all pass proposes nothing
BODY = "body"  # of the skill, as GEPA's only component

T = TypeVar("T")
logger = logging.getLogger(__name__)


class Gepa(Refiner):
    proposals = 0  # in this attempt

    async def propose(
        self, skill: Skill, failures: Sequence[Failure], tried: Sequence[TriedEdits], attempt: int
    ) -> Proposal | None:
        try:
            gepa: Any = import_module("gepa")
        except ImportError as missing:
            raise UsageError(
                "--refiner gepa needs the `gepa` package, which is not installed",
                f"Run `{add_extra('gepa')}`.",
            ) from missing
        if redact(skill.body) != skill.body:
            raise UsageError(
                "GEPA rewrites the whole body, which contains a secret", "Remove it from the skill."
            )
        self.proposals = 0
        adapter = _Adapter(self, skill, asyncio.get_running_loop())
        result: Any = await asyncio.to_thread(
            gepa.optimize,
            {BODY: skill.body},
            trainset=list(self.cases),
            adapter=adapter,
            reflection_lm=adapter.reflect,
            stop_callbacks=self.is_done,
            logger=adapter,
            seed=attempt,
        )
        body = str(result.best_candidate[BODY])
        if body == skill.body:
            return None
        return Proposal(skill.with_body(body), (Edit("replace", 1, body),), "found by GEPA")

    def is_done(self, state: Any) -> bool:
        return self.proposals >= PROPOSALS or state.i >= MAX_ITERATIONS

    async def reflect(self, prompt: str) -> str:
        self.proposals += 1
        text = (
            f"{redact(prompt)}\n\n{self.material.quoted()}"
            if self.material.pieces
            else redact(prompt)
        )
        request = Request(
            (Message("user", text),), max_output_tokens=4 * self.tokens + 1000, seed=self.proposals
        )
        return (await self.model.reply(request)).text


@dataclass
class _Adapter:
    """GEPA's view of a search: it runs in a thread, and what it waits for runs in the loop of the search."""

    refiner: Gepa
    skill: Skill
    loop: asyncio.AbstractEventLoop
    propose_new_texts: None = None

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def reflect(self, prompt: object) -> str:
        return self.wait_for(self.refiner.reflect(str(prompt)))

    def log(self, message: str) -> None:
        logger.debug(message)

    def evaluate(
        self, batch: list[Case], candidate: Mapping[str, str], capture_traces: bool = False
    ) -> Any:
        assert self.refiner.run is not None
        failures = self.wait_for(self.refiner.run(self.skill.with_body(candidate[BODY]), batch))
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
