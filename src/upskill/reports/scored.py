"""What `upskill tests --score` found: the rules that no case would miss, and the cases that test nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import RenderableType

from upskill.authoring.saving.provenance import own_suite
from upskill.experiments.mutation import Rule, Score
from upskill.plain import counted, listed
from upskill.reports.layout import render_result
from upskill.reports.numbers import percent

MAX_NAMED = 12  # rules or cases of a kind
NO_RULES = "Nothing in the skill counts as a rule: it has no number, flag or name in code."


def conclusion(score: Score) -> str:
    rules, share = score.counted_rules, score.share
    if share is None:
        named = sum(not each.is_untestable for each in rules)
        return f"The cases mention {named} of {counted(len(rules), 'rule')}." if rules else NO_RULES
    who = listed(score.models)
    if score.gutted_noticed is False and not share.value:
        return f"The suite would not notice if the whole skill were gone: {who} passes as often without it."
    noticed = sum(each.status == "noticed" for each in rules)
    up_to = f" to {percent(share.high)}" if share.high > share.low else ""
    of = f"{noticed} of {counted(len(rules), 'rule')}"
    return f"The suite would notice a change to {of} ({percent(share.low)}{up_to})."


def render(score: Score, *, hint: bool = True) -> Iterator[RenderableType]:
    return render_result(conclusion(score), _lines(score, hint=hint))


def _lines(score: Score, *, hint: bool) -> Iterator[str]:
    if score.models:
        unnoticed = [each for each in score.counted_rules if each.status == "unnoticed"]
        yield from _named(unnoticed, "No case notices", score.failing_cases)
        yield from _named(
            [each for each in score.counted_rules if each.status == "undecided"], "Undecided"
        )
        if by_opposite := sum(each.noticed_by == "opposite" for each in score.rules):
            why = "the student knows them or the skill says them twice"
            yield f"Noticed only when reversed, because {why}: {counted(by_opposite, 'rule')}"
        yield from _cases(score.idle_cases, "Pass without the skill, so they test nothing of it")
        yield from _cases(score.failing_cases, "Fail too often with the skill to notice anything")
    else:
        yield from _named([each for each in score.rules if each.is_untestable], "No case mentions")
    if score.halted:
        yield f"Stopped early: {score.halted}. Run the same command with a higher ceiling to continue."
    name = score.skill.folder or score.skill.name
    if hint and score.uncovered and not own_suite(score.skill):
        student = "".join(f" -m {model}" for model in score.models)
        yield f"To have a test writer cover them: upskill tests {name} --score{student} --fix MODEL"
    vague = [each for each in score.rules if not each.counts]
    if vague:
        yield f"Not counted, because they have no number, flag or name in code: {counted(len(vague), 'block')}"
    if score.models:
        yield from _named(
            [each for each in vague if each.status == "unnoticed"],
            "Not counted, and no case notices",
        )
        yield f"It took {counted(score.trials, 'trial')}."
    else:
        yield f"To see whether a case fails when a rule is removed: upskill tests {name} --score -m MODEL"


def _named(rules: Sequence[Rule], what: str, failing: Sequence[str] = ()) -> Iterator[str]:
    for each in rules[:MAX_NAMED]:
        able = [case for case in each.shared_by if case not in failing]
        hint = f"mentioned by {', '.join(able[:3])}" if able else "no case mentions it"
        if each.shared_by and not able:
            hint = f"mentioned only by cases that fail anyway: {', '.join(each.shared_by[:3])}"
        shown = f" ({hint})" if each.status != "not tried" and each.terms else ""
        yield f"{what}: {each.block.title}{shown}"
    if len(rules) > MAX_NAMED:
        yield f"… and {len(rules) - MAX_NAMED} more; --json has all."


def _cases(names: Sequence[str], what: str) -> Iterator[str]:
    if names:
        more = ", …" if len(names) > MAX_NAMED else ""
        yield f"{what}: {', '.join(names[:MAX_NAMED])}{more}"


def to_json(score: Score) -> dict[str, Any]:
    return {
        "skill": score.skill.name,
        "conclusion": conclusion(score),
        "models": score.models,
        "share": score.share.to_dict() if score.share else None,
        "gutted_noticed": score.gutted_noticed,
        "rules": [each.to_dict() for each in score.rules],
        "idle_cases": score.idle_cases,
        "failing_cases": score.failing_cases,
        "trials": score.trials,
        "halted": score.halted,
    }
