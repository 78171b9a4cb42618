"""Writing: a teacher writes a skill, and a test writer its cases.

- `skill_writer`, `suite_writer`: what is asked for and how answers are read; `prompts` has the texts
- `summarize`: fits long material into a prompt
- `structured`: asks a model for JSON until it is usable
- `skill_files`: tries the scripts and references of a draft
- `grounding`: whether a line's exact values occur in the evidence it cites
- `teachers`: which teachers work on this machine
"""
