"""A Suite is a set of cases, each a task with checks, split into train and held-out.

- `suite`: Case, Suite, the split, ids; Part and CaseFilter: a chosen part of the cases
- `shapes`: the forms a case may be written in; `files`: reads suite files as plain data
- `formats`: files of other tools, one module each; `kernelbench`: problems of KernelBench as kernel tasks
- `appending`: adds cases to a suite file and leaves its text alone
- `installs`: what the scripts of other tools' tasks install
- `grading`: grades what a student left, in a room of its own
- `quality`: probes that must fail before you spend money on a suite
- `near_duplicates`: cases that ask nearly the same thing
- `queries`: Query, Queries: what should and should not activate a skill
"""

from upskill.suites.suite import (
    FAILED_BY,
    HELD_OUT_SHARE,
    LOOK_UP,
    READ,
    Case,
    Reading,
    Suite,
    are_from_memory,
    count_authors,
    describe_authors,
    split,
)

__all__ = [
    "FAILED_BY",
    "HELD_OUT_SHARE",
    "LOOK_UP",
    "READ",
    "Case",
    "Reading",
    "Suite",
    "are_from_memory",
    "count_authors",
    "describe_authors",
    "split",
]
