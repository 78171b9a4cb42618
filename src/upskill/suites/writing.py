"""A suite as YAML that a person reads and edits, with comments that tell what became of the file it came from."""

from __future__ import annotations

import re
from typing import Any

import yaml

from upskill.plain import printable
from upskill.suites.suite import Suite

_UNSEEN = re.compile("[\x80-\x9f\u2028\u2029\ufeff]")  # what YAML takes for text or a line break; escaped in quotes


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        del indentless
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    block = "\n" in text and all(line == line.rstrip() for line in text.splitlines())
    style = '"' if _UNSEEN.search(text) else "|" if block else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def as_yaml(suite: Suite) -> str:
    """The suite file; what was left out and changed stands at its top."""
    body = yaml.dump(suite.plain(), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
    return "".join(f"# {line}\n" for line in _remarks(suite)) + body


def _remarks(suite: Suite) -> list[str]:
    notes = suite.notes
    if notes is None:
        return [printable(f"From {suite.source}.")]
    lines = [f"From {suite.source} ({notes.title}): {notes.summary}."]
    for title, told in (("Changed", notes.changed()), ("Left out", notes.left_out())):
        found = list(told)
        lines += [f"{title}:", *(f"  {line}" for line in found)] if found else []
    lines += [f"Fields {notes.metadata}."] if notes.metadata else []
    return [printable(line) for line in lines]
