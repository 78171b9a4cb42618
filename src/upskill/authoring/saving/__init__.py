"""Saving: where finished skills go, and what is recorded about them.

- `output`: folders of finished skills, what a person edited since, and what was replaced
- `provenance`: skill_meta.json
"""
