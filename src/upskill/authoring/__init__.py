"""Authoring turns material (tasks, examples, documents, traces, older skills) into a proven skill.

Verbs: `generate`, `teach` (in `lesson`), `refine` (in `search`), `trigger`; each has `options` and `events`.

- `material`: what a teacher writes from
- `evidence`: what traces show, in pieces that a line can cite
- `writing`: a model writes the skill and its tests
- `search`: a better skill on train cases
- `trigger`: on which queries a skill activates
- `lesson`: a teacher does a task in a sandbox
- `saving`: finished skills and their records
- `upstream`: functions with the names and signatures of upstream's library
"""
