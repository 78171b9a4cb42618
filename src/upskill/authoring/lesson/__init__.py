"""A lesson is a task that a teacher does in a sandbox, recorded to make a skill from.

- `teach`: the verb; `lesson`: one lesson, also one that is done by hand and paused
"""
