"""A Suite is a set of cases, each a task with checks, split into train and held-out by their ids.

- `suite`: Case, Suite, and the forms they may be written in; `files`: reads suite files as plain data
- `quality`: probes that a suite has to fail before money is spent on it; `schema_filler`: JSON in form only
- `twins`: cases that ask nearly the same
- `queries`: Query, Queries: what should and should not make a skill fire
"""

from upskill.suites.suite import (
    HELD_OUT_SHARE,
    OWN_FACTS,
    Case,
    Suite,
    held_out_by_id,
)

__all__ = [
    "HELD_OUT_SHARE",
    "OWN_FACTS",
    "Case",
    "Suite",
    "held_out_by_id",
]
