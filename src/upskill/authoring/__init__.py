"""Authoring turns material (tasks, examples, documents, traces, older skills) into a proven skill.

The verbs, each with an options class (`options`) and events (`events`):
- `generate`: writes a skill and its tests, improves it on train cases, and proves it on held-out ones; its result is
  `generated`
- `teach`: lets a teacher do a task in a sandbox (`lesson`; `journal` continues one that is done by hand), and generates
  a skill from the recording
- `trigger`: measures on which queries a skill fires (`trigger_plan`, `trigger_queries`); `description` looks for a
  description that fires better
- `refine`: searches for a better skill; `comparison` decides what is kept, `failures` is what a refiner may see,
  `refiners` are the kinds of it
- `extract`: compiles traces into a skill by rules alone; `facts` are its lines and questions, `cures` what to do about
  an error, `user_rules` what the person said, `placeholders` stand for the values of one run

What they use:
- `material`: what a teacher is given to write from; `summarize` fits it into a prompt; `mcp` asks tool servers,
  `documents` reads PDF, HTML, notebooks and Word files
- `evidence`: what a trace can teach, found in its commands (`trace_commands`) and files (`trace_files`); `fixes` are
  errors with what mended them, `weaker` tells a success that does less, `shell` splits lines, `command_roles` says
  what a command is for
- `skill_writer`, `suite_writer`: a model writes a skill, or test cases; `structured` asks it for JSON; `prompts` are
  the texts it gets
- `skill_files`: tries the scripts and references of a draft
- `grounding`: whether what a line says stands in the evidence that it cites
- `teachers`: who can write a skill on this machine
- `feedback`: what people said of its answers, as evidence and stronger cases
- `improve`: what an older skill brings along, and cases for what is asked for; `source_files`: where its documents and
  traces lie
- `output`: where drafts and finished skills are saved; `provenance`: its skill_meta.json; `versions`: what a person has
  edited since, and what was replaced
"""
