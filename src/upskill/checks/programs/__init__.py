"""Checks that run programs where the agent was.

- `command`: a line of shell; `compiles`: a compiler; `python`: a function beside the suite, called by `harness`
- `guard`: what a student left must not steer these programs (`ownership`: whose a file is; `plants`: what was added to
  steer them)
"""
