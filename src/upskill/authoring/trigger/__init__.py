"""Trigger measures on which queries a skill activates.

- `trigger`: the verb, its trials and its test queries
- `metrics`: the rates of activation and how sure they are
- `description`: searches for a description that triggers better
"""
