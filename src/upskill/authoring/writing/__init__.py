"""Writing: a teacher writes a skill, and a test writer its cases.

- `skill_writer`: the skill, whose scripts and references are tried; `prompts` has the texts
- `suite_writer`: its cases, answers to them, and their checks fixed; also cases that a student fails without the skill
- `summarize`: fits long material into a prompt
- `structured`: asks a model for JSON and sends back what is wrong with it
- `grounding`: whether a line's exact values occur in the evidence it cites
- `teachers`: which teachers work on this machine
"""
