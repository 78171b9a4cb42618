"""The versions of a skill, as `upskill versions` and the live page count them."""

from __future__ import annotations

from dataclasses import replace

from upskill.plain import dict_or_empty
from upskill.runs.results.shown import rank_of
from upskill.runs.stores import Candidate, Store
from upskill.runs.stores.rows import files_to_json
from upskill.skills import Skill
from upskill.verdicts.advice import decision_in_words


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
    for run in store.runs(name, whole=True):
        skill = run.plan.skill
        if skill.visible_hash in tried:
            continue
        look = next((look for look in store.looks_at(run.id) if look.verdict), None)
        rank = rank_of(run, look.decision) if look else (False, False)
        if rank < ranks.get(skill.visible_hash, rank):
            look = None
        ranks[skill.visible_hash] = max(rank, ranks.get(skill.visible_hash, rank))
        verdict = dict(look.verdict) if look else {}
        before = written.pop(skill.visible_hash, None)
        why = f"evaluated in {run.id}"
        if look:
            why += f" with {look.model}"
            these = str(dict_or_empty(verdict.get("these_cases")).get("decision", ""))
            decision = decision_in_words(
                verdict["decision"], verdict.get("reason", ""), run.plan.replayed, these
            )
            verdict |= {"run": run.id, "search_decision": decision}
        written[skill.visible_hash] = Candidate(
            number=-run.number,
            search="",
            skill=name,
            fingerprint=skill.visible_hash,
            parent=None,
            created=before.created if before else run.created,
            accepted=None,
            note=why if look or not before else before.note,
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
