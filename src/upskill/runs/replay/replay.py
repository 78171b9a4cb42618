"""Replays a plan from a cassette, and explains why a request is not in it."""

from __future__ import annotations

from dataclasses import replace

from upskill.agents import Bounds
from upskill.errors import UsageError
from upskill.models.cassette import Cassette
from upskill.plain import listed
from upskill.runs.planning.plan import CONTROLS, Plan, PlanOptions, ReplaySource, Trial
from upskill.sandboxes import printable
from upskill.suites import Suite


def as_recorded(options: PlanOptions, cassette: Cassette, suite: Suite | None) -> PlanOptions:
    """Fills in options that were not given with their recorded values."""
    was = cassette.settings
    # A limit that is not the suite's own was given on the command line.
    own_limit = suite.max_output_tokens if suite else None
    limit = (
        was.max_output_tokens
        if was.limit_is_stated and was.max_output_tokens != own_limit
        else None
    )
    bounds = {
        name: value for name, value in was.bounds.items() if name in ("turns", "tokens", "seconds")
    }
    if not all(
        value is None or (isinstance(value, int | float) and value > 0) for value in bounds.values()
    ):
        raise UsageError(f"{cassette.path}: the limits are not numbers", "Download the file again.")
    judge = (
        cassette.address(options.judge)
        if isinstance(options.judge, str) and options.judge
        else options.judge
    )
    return replace(
        options,
        seed=options.seed or was.seed,
        temperature=was.temperature if options.temperature is None else options.temperature,
        max_output_tokens=options.max_output_tokens or limit,
        baseline=options.baseline and "baseline" in was.arms,
        controls=options.controls or CONTROLS[0] in was.arms,
        agent=was.agent if options.agent == "chat" else options.agent,
        judge=judge or cassette.judge or "",
        bounds=replace(Bounds(), **bounds) if options.bounds == Bounds() else options.bounds,
    )


def plan_from(plan: Plan, cassette: Cassette) -> Plan:
    """UsageError if the cassette has none of the plan's cases."""
    if not cassette.cases & plan.suite.by_id.keys():
        raise UsageError(
            f"{cassette.path}: none of the recorded cases are in {plan.suite.source}",
            f"It was recorded for {cassette.settings.skill}; pass that skill's suite with --tests.",
        )
    keys: dict[Trial, str] = {}
    if plan.acts:  # the word that is hidden in a trial's skill comes from its key, and is part of what is asked
        for trial in plan.trials():
            recorded = cassette.trial(trial.model, trial.case, trial.arm, trial.seed)
            if recorded and recorded.key:
                keys[trial] = recorded.key
    was = cassette.settings
    source = ReplaySource(printable(cassette.path.name), cassette.sha256, *cassette.date)
    return replace(
        plan,
        replay=cassette.digest,
        replay_of=(was.run, was.created),
        replay_source=source,
        recorded_keys=keys,
        recorded_salt=was.salt,
        from_cache=frozenset(was.from_cache) & plan.addresses.keys(),
    )


def explain_missing(cassette: Cassette, plan: Plan, trial: Trial) -> str:
    recorded = cassette.trial(trial.model, trial.case, trial.arm, trial.seed)
    if recorded is None:
        seeds = sorted(cassette.seeds(trial.case))
        known = (
            f"it has seeds {seeds[0]} to {seeds[-1]}" if seeds else "it has no reply for that case"
        )
        return f"{cassette.path} has no reply for case {trial.case!r}, {trial.arm}, seed {trial.seed} ({known})"
    if recorded.error:
        return recorded.error
    here = f"case {trial.case!r}, {trial.arm}"
    if recorded.redacted:
        reason = (
            "secrets were removed from an answer in this trial, so the next request has no reply"
        )
        return f"{here}: {reason} in {cassette.path}"
    settings, was = cassette.settings, f"since {cassette.path} was recorded"
    changed = [
        f"{name} changed from {before} to {now}"
        for name, before, now in (
            ("the agent", settings.agent, plan.agent),
            ("the temperature", settings.temperature, plan.temperature),
            ("the output limit", settings.max_output_tokens, plan.max_output_tokens),
        )
        if before != now
    ]
    if settings.visible_hash != plan.skill.visible_hash and trial.arm in ("skill", "placebo"):
        changed.append(f"the skill {plan.skill.name} has changed")
    if not changed and plan.acts:
        reason = "a command's output or the case has changed, so the next request has no reply"
        return f"{here}: {was}, {reason}"
    if not changed:
        what = (
            "the reference skill"
            if plan.reference_skill and trial.arm == "baseline"
            else "the case"
        )
        changed = [f"{what} has changed: its prompt, its files or its output limit"]
    return f"{here}: {was}, {listed(changed)}, so this request has no reply"
