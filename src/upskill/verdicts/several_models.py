"""Decisions about several models together: the luckiest of eight would look helped if it were tested alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from upskill.verdicts.advice import with_advice
from upskill.verdicts.verdict import Decision, Verdict

_DIRECTED = ("helps", "hurts")


def decide_together(
    names: Iterable[str], weigh: Callable[[str, int], Verdict], *, has_reference: bool = False
) -> list[Verdict]:
    """A decision stands where it holds among all models with a lift (Holm's procedure); intervals stay as they are.

    `weigh` gives the verdict on a model at the level that is left for each of so many models.
    """
    verdicts = [weigh(name, 1) for name in names]
    models = [verdict.model for verdict in verdicts if verdict.lift is not None]
    if len(models) < 2:
        return verdicts
    cached: dict[tuple[str, int], Verdict] = {}

    def weigh_among(model: str, count: int) -> Verdict:
        if (model, count) not in cached:
            cached[model, count] = weigh(model, count)
        return cached[model, count]

    def standing(read: Callable[[Verdict], Decision]) -> tuple[set[str], int]:
        """The models whose decision stands, and for how many the level was in the end."""
        alone = {verdict.model: read(verdict) for verdict in verdicts if verdict.model in models}
        settled: set[str] = set()
        while True:
            # Only what a skill does leaves the others a larger share: "no effect" would leave chance its luckiest pick.
            count = len(models) - sum(alone[model] in _DIRECTED for model in settled)
            open_ = [
                model for model in models if model not in settled and alone[model] != "undecided"
            ]
            more = {
                model
                for model in open_
                if count == 1 or read(weigh_among(model, count)) == alone[model]
            }
            settled |= more
            if not any(alone[model] in _DIRECTED for model in more):
                return settled, count

    about_tasks, count = standing(lambda verdict: verdict.decision)
    about_these, _ = standing(
        lambda verdict: verdict.these_cases.decision if verdict.these_cases else "undecided"
    )
    together: list[Verdict] = []
    for single in verdicts:
        verdict = replace(single, models=len(models)) if single.model in models else single
        these = verdict.these_cases
        if these and these.decision != "undecided" and verdict.model not in about_these:
            reason = f"{these.decision} alone, but not among {len(models)} models"
            verdict = replace(
                verdict, these_cases=replace(these, decision="undecided", reason=reason)
            )
        if verdict.decision != "undecided" and verdict.model not in about_tasks:
            verdict = replace(
                verdict,
                decision="undecided",
                reason=f"{verdict.decision} alone, but not among {len(models)} models",
                alone=verdict.decision,
                evidence_needed=weigh_among(verdict.model, count).evidence_needed,
            )
        is_changed = (
            verdict.decision != single.decision or verdict.these_cases != single.these_cases
        )
        together.append(
            with_advice(verdict, has_reference=has_reference) if is_changed else verdict
        )
    return together
