"""The versions of a skill, as `upskill versions` and the live page count them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from upskill.runs.results.shown import rank_of
from upskill.runs.stores import Candidate, Store
from upskill.runs.stores.rows import files_to_json
from upskill.skills import Skill
from upskill.verdicts.line import decision_in_words


def list_versions(store: Store, name: str) -> list[Candidate]:
    """Versions that a search tried, and other evaluated texts, oldest first."""
    versions = list(store.candidates(name))
    whole = {
        version.fingerprint
        for version in versions
        if version.verdict.get("search_decision") == "whole"
    }
    tried = {
        version.fingerprint
        for version in versions
        if version.verdict.get("search_decision") != "unproven"
    }
    tried -= whole  # `distill` only took parts out of these
    tried |= {
        variant for version in versions for variant in version.verdict.get("variants", ())
    }  # parts of a search
    written: dict[str, Candidate] = {}
    ranks: dict[str, tuple[bool, bool]] = {}
    for run in store.runs(name, listed=True):
        skill = run.plan.skill
        if skill.visible_hash in tried:
            continue
        with_results = (
            dict(each)
            for each in run.plan.analysis.kept.verdicts
            if each["skill"]["pass_rate"] is not None
        )
        verdict = next(with_results, dict[str, Any]())
        rank = rank_of(run, str(verdict["decision"])) if verdict else (False, False)
        if rank < ranks.get(skill.visible_hash, rank):
            verdict = {}
        ranks[skill.visible_hash] = max(rank, ranks.get(skill.visible_hash, rank))
        before = written.pop(skill.visible_hash, None)
        why = f"evaluated in {run.id}"
        if verdict:
            why += f" with {verdict['model']}"
            verdict |= {"run": run.id, "search_decision": decision_in_words(verdict)}
        written[skill.visible_hash] = Candidate(
            number=-run.number,
            search="",
            skill=name,
            fingerprint=skill.visible_hash,
            parent=None,
            created=before.created if before else run.created,
            accepted=None,
            note=why if verdict or not before else before.note,
            verdict=verdict or (before.verdict if before else {}),
            files=files_to_json(Skill.new(name, skill.description, skill.body).files),
        )
    known = {version.fingerprint for version in versions}
    versions = [
        replace(
            version,
            verdict={**version.verdict, **run.verdict},
            note=run.note,
            created=min(run.created, version.created),
        )
        if (run := written.get(version.fingerprint)) and run.verdict
        else version
        for version in versions
    ]
    versions += [version for version in written.values() if version.fingerprint not in known]
    versions.sort(key=lambda version: version.created)
    return [
        replace(version, parent=before.number)
        if before and version.fingerprint not in known - whole
        else version
        for before, version in zip([None, *versions], versions, strict=False)
    ]
