"""Authoring turns material (tasks, examples, documents, traces, older skills) into a proven skill.

Verbs: `generate`, `teach` (in `lesson`), `trigger`; each has `options` and `events`.

- `inputs`: what one call of `generate` works with, read and checked before the first paid call
- `material`: what a teacher writes from
- `writing`: a model writes the skill and its tests
- `revising`: a better text from the failures on shown cases
- `trigger`: on which queries a skill activates
- `lesson`: a teacher does a task in a sandbox
- `saving`: finished skills and their records
- `upstream`: functions with the names and signatures of upstream's library
"""
