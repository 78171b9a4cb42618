"""Trigger measures on which queries a skill activates.

- `trigger`: the verb; `plan`: its trials; `queries`: its test queries
- `description`: searches for a description that triggers better
"""
