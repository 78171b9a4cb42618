"""Grading: every check of a case looks at what a student left, and one that breaks on it is the student's failure.

A student must not be able to choose an error. So a check that breaks is made again on the case's reference answer, and
on a workspace where nothing was done: if it runs there, what the student left has broken it, and the trial has failed.
If it breaks there too, the check is broken, or something that it needs is missing, and the trial is errored.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from upskill.checks import Evidence, Finding
from upskill.errors import CheckError, MissingTool, ModelError, TrialError, wrap_trial_errors
from upskill.models import Unanswered
from upskill.runs.planning.plan import Judgement
from upskill.suites import Case
from upskill.traces import Step, Trace

if TYPE_CHECKING:
    from upskill.sandboxes import Sandbox

logger = logging.getLogger(__name__)
# What a provider says to a request that it will not take because of what is in it.
REFUSED_CONTENT = (400, 413, 422)

OpenSandbox = Callable[[], AbstractAsyncContextManager["Sandbox | None"]]


@dataclass(slots=True, eq=False, repr=False)
class Grading:
    """The checks of one case. `open_untouched` opens a sandbox as the student found its own."""

    case: Case
    open_untouched: OpenSandbox
    judgements: list[Judgement]
    broken: bool = field(default=False, init=False)  # a check broke on what the student left
    verbose: bool = field(default=False, init=False)  # the answer is longer than wanted

    async def grade(self, evidence: Evidence) -> None:
        """Add a judgement for every check; TrialError where one breaks and the student is not to blame."""
        for number, named in enumerate(self.case.checks):
            finding = await self._look(number, evidence)
            read = named.check.reads_answer and evidence.output is not None
            reason = f"{self.case.output_file} as the answer: {finding.reason}" if read else finding.reason
            decides = named.check.decides and finding.decides
            self.judgements.append(Judgement(named.name, finding.passed, reason, decides))
            self.verbose = self.verbose or not finding.decides

    async def _look(self, number: int, evidence: Evidence) -> Finding:
        named = self.case.checks[number]
        doing = f"checking {named.name} of {self.case.id}"
        try:
            with wrap_trial_errors(CheckError, doing):
                return await named.check.run(evidence)
        except MissingTool as error:  # whatever the case: reports count such errors together
            error.message = f"checking {named.name}{error.message.removeprefix(doing)}"
            raise
        except TrialError as error:
            if _came_from_outside(error) or not await self._runs_without_student(number, evidence):
                raise
            logger.info("%s%s", error.message, f"\n{error.traceback}" if error.traceback else "")
            self.broken = True
            return Finding(False, f"what the student left broke the check, which runs without it: {error.message}")

    async def _runs_without_student(self, number: int, evidence: Evidence) -> bool:
        *before, last = self.case.checks[: number + 1]
        for answer in dict.fromkeys([self.case.reference, ""]):
            async with self.open_untouched() as sandbox:
                trace = Trace((Step("assistant", answer),))
                untouched = replace(evidence, trace=trace, sandbox=sandbox, output=None)
                with suppress(Exception):
                    for named in before:
                        if named.check.needs_sandbox and not named.check.needs_judge:  # it may leave files for the last
                            with suppress(Exception):
                                await named.check.run(untouched)
                    await last.check.run(untouched)
                    return True
        return False


def _came_from_outside(error: TrialError) -> bool:
    """Whether no answer can have caused it: a missing program, the network, a key, a quota, a server in trouble.

    A judge that was reached but refused, or had no room, may have been brought to that by what it was shown.
    """
    if isinstance(error, ModelError):
        return not isinstance(error, Unanswered) and error.status not in REFUSED_CONTENT
    return isinstance(error, MissingTool)
