"""Authoring turns material (tasks, examples, documents, traces, older skills) into a proven skill."""
