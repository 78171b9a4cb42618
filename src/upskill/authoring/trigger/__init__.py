"""Trigger measures on which queries a skill activates.

- `trigger`: the verb, its trials and its test queries
- `description`: searches for a description that triggers better
"""
