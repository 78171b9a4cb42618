"""Checks that run programs in the room.

- `command`: a line of shell; `compiles`: a compiler; `python`: a function beside the suite, called by `harness`
"""
