"""Evidence is what traces and reviews show, in pieces that a line of a skill can cite.

- `evidence`: the pieces of a trace; `trace_commands`: its commands; `trace_files`: the files it wrote
- `fixes`: failed commands with the run that succeeded later; `shell` splits command lines
- `extract`: a skill compiled from traces without a model
- `summarize`: fits long material into a prompt
- `feedback`: what people said of answers
- `command_roles`, `cures`, `facts`, `placeholders`, `user_rules`, `weaker`: what extract infers
"""
