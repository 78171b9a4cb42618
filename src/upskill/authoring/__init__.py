"""Authoring turns material (tasks, examples, documents, traces, older skills) into a proven skill.

`generate` writes a skill and its tests, improves it on train cases and proves it on held-out ones. The other verbs are
`teach` (in `lesson`), `refine` (in `search`) and `trigger`. Each has an options class (`options`) and `events`.

- `material`: what a teacher writes from
- `evidence`: what traces show, in pieces that a line can cite
- `writing`: a model writes the skill and its tests
- `search`: a better skill on train cases
- `trigger`: on which queries a skill activates
- `lesson`: a teacher does a task in a sandbox
- `saving`: finished skills and their records
- `upstream`: functions with the names and signatures of upstream's library
"""
