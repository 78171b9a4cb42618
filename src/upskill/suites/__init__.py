"""A Suite is a set of cases, each a task with checks, split into train and held-out by their ids."""

from upskill.suites.suite import Case, Suite

__all__ = ["Case", "Suite"]
