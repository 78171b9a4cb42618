"""Replay: a run graded again from recorded replies.

- `replies`: a file of the replies of a run; `replay`: a plan that is played from one
"""
