"""Replay: a run graded again from recorded replies.

- `replies`: exports a run's replies to a file; `replay`: runs a plan from such a file
- `receipt`: the verdicts on a skill, kept with the answers so that anyone can compute them again
"""
