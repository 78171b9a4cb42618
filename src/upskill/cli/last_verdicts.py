"""The last reported verdicts of a skill: stored, not computed anew."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, cast

from upskill.errors import UsageError
from upskill.models.addresses import identity_of, resolve
from upskill.plain import dict_or_empty
from upskill.reports.runs import skill_verdicts, verdict_in_line
from upskill.runs.planning.stored_plan import other_suite
from upskill.runs.replay.receipt import MUST_SAY, read_receipt, terms_of
from upskill.runs.stores import Store
from upskill.skills import Skill
from upskill.suites.suite import PATHS_IN_SKILL, suite_fingerprint

CHANGED = "another version"


def last_verdicts(store: Store | None, skill: Skill) -> list[dict[str, Any]]:
    """For each model, the latest on the skill's own suite, or else on another, which `other_suite` names.

    `of` says what it covers, unless that is this skill on a whole suite; `changed` which of skill, suite and model are
    not what they were.
    """
    rows = skill_verdicts(store, skill.name, skill.visible_hash) if store else []
    for row in rows:
        plan = cast("Store", store).run(row["run"]).plan
        address = next(
            (asdict(each) for each in plan.models if each.name == row["model"]), dict[str, Any]()
        )
        suite = plan.suite.source, plan.suite.fingerprint
        row["changed"] = _changed(skill, plan.skill.visible_hash, suite, address)
        row["of"] = CHANGED if "skill" in row["changed"] else row["of"]
    return rows


def verdicts_on_record(store: Store | None, skill: Skill) -> list[dict[str, Any]]:
    """The last verdicts, or those in the skill's receipt where the store has none."""
    if rows := last_verdicts(store, skill):
        return rows
    try:
        receipt = read_receipt(skill)
    except UsageError:
        return []
    was, suite = (dict_or_empty(receipt.get(name)) for name in ("skill", "suite"))
    models = {
        model["name"]: model
        for model in map(dict_or_empty, receipt.get("models", ()))
        if "name" in model
    }
    verdicts = map(dict_or_empty, receipt.get("verdicts", ()))
    rows = [verdict_in_line(verdict) for verdict in verdicts if verdict.keys() >= {*MUST_SAY}]
    for row in rows:
        source = str(suite.get("file", "")), str(suite.get("fingerprint", ""))
        changed = _changed(
            skill, str(was.get("visible_hash", "")), source, models.get(row["model"], {})
        )
        of = CHANGED if "skill" in changed else terms_of(receipt)
        row |= {
            "run": receipt.get("run"),
            "of": of,
            "other_suite": other_suite(source[0], skill.name),
        }
        row["changed"] = changed
    return rows


def _changed(
    skill: Skill, visible_hash: str, suite: tuple[str, str], model: Mapping[str, Any]
) -> list[str]:
    """What the names stand for now, beside what they stood for. A suite from elsewhere is not known here."""
    changed = ["skill"] if skill.visible_hash != visible_hash else []
    source, fingerprint = suite
    is_own = source.endswith(PATHS_IN_SKILL) and not other_suite(source, skill.name)
    if is_own and suite_fingerprint(skill) not in (None, fingerprint):
        changed.append("suite")
    try:
        now = resolve(str(model.get("name", "")))
    except UsageError:  # of a server that `--base-url` named
        return changed
    is_other = any(
        getattr(now, name) != model.get(name, "")
        for name in ("provider", "model", "endpoint", "effort")
    )
    has_other_weights = now.provider == "local" and model.get("identity") not in (
        None,
        identity_of(now),
    )
    if is_other or has_other_weights:
        changed.append("model")
    return changed


def is_proven(row: dict[str, Any]) -> bool:
    return row["decision"] in ("helps", "saves") and not row["of"]
