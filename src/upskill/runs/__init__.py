"""A Run is a plan of trials with their results, kept in a store and resumable at any time."""
