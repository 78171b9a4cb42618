"""Models that run in a process of their own on this machine, with weights that upskill fetches."""
