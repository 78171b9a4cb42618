"""Snapshots: the names that a provider answered under, which may change within a run."""

from __future__ import annotations

from collections.abc import Mapping

from upskill.plain import counted


def mixed_snapshots(snapshots: Mapping[str, Mapping[str, int]]) -> list[str]:
    """What to warn of where several snapshots of a model answered the trials of one run."""
    return [
        f"{model}: {len(found)} snapshots of it answered ("
        + ", ".join(f"{name}: {counted(trials, 'trial')}" for name, trials in found.items())
        + "), so the arms may not have met the same model; --fresh runs all trials again"
        for model, found in snapshots.items()
        if len(found) > 1
    ]
