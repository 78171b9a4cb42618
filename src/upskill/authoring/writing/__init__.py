"""Writing: a teacher writes a skill, and a test writer its cases.

- `skill_writer`: the skill, whose scripts and references are tried; `prompts` has the texts
- `suite_writer`: its cases, answers to them, and their checks fixed
- `hard_cases`: more cases, most of which a student fails without the skill
- `summarize`: fits long material into a prompt
- `structured`: asks a model for JSON until it is usable
- `grounding`: whether a line's exact values occur in the evidence it cites
- `teachers`: which teachers work on this machine
"""
