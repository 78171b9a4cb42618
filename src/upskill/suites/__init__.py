"""A Suite is a set of cases, each a task with checks, split into train and held-out.

- `split`: which cases are held out
- `suite`: Case, Suite; `shapes`: the forms a case may be written in; `files`: reads suite files as plain data;
  `ids`: for cases that have none; `writing`: a suite as YAML that a person edits
- `formats`: files of other tools, one module each; `words`: the fields and checks that they have
- `quality`: probes that a suite has to fail before money is spent on it; `trying`: holds checks against an answer;
  `schema_filler`: JSON in form only
- `part`: Part, CaseFilter: some of the cases, which somebody chose
- `twins`: cases that ask nearly the same
- `queries`: Query, Queries: what should and should not make a skill fire
"""

from upskill.suites.split import HELD_OUT_SHARE, split
from upskill.suites.suite import (
    OWN_FACTS,
    Case,
    Suite,
)

__all__ = [
    "HELD_OUT_SHARE",
    "OWN_FACTS",
    "Case",
    "Suite",
    "split",
]
