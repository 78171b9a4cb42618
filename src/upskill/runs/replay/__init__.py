"""Replay: a run graded again from recorded replies.

- `replies`: a file of the replies of a run; `replay`: a plan that is played from one
- `receipt`: what a run says of a skill, kept with its answers, and computed again
"""
