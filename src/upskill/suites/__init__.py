"""A Suite is a set of cases, each a task with checks, split into train and held-out by their ids."""

from upskill.suites.suite import (
    HELD_OUT_SHARE,
    Case,
    Suite,
    held_out_by_id,
)

__all__ = [
    "HELD_OUT_SHARE",
    "Case",
    "Suite",
    "held_out_by_id",
]
