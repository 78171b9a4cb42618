"""What is wrong with a skill by the Agent Skills specification."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from upskill.errors import UsageError
from upskill.skills import frontmatter
from upskill.skills.files import MANIFEST, SkillFile
from upskill.skills.frontmatter import Level, Problem

FIELDS = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")
# What clients, registries and authors have added, as found in public skills.
CLIENT_FIELDS = (
    "agent", "argument-hint", "context", "disable-model-invocation", "effort", "hooks", "model", "paths", "tools",
    "user-invocable", "when_to_use",
    "author", "capabilities", "category", "compatible-with", "dependencies", "domain", "emoji", "homepage", "icon",
    "keywords", "language", "origin", "priority", "repository", "requires", "risk", "scope", "source", "tags",
    "triggers", "type", "version",
)  # fmt: skip

Profile = Literal["strict", "clients"]


def manifest_problems(manifest: SkillFile) -> Iterator[Problem]:
    if manifest.path != MANIFEST:
        yield Problem("warning", f"{manifest.path} should be called {MANIFEST}")
    if manifest.data.startswith(b"\xef\xbb\xbf"):
        yield Problem("error", f"{manifest.path} starts with a byte order mark; save it as plain UTF-8")


def read_fields(text: str, where: str, profile: Profile) -> tuple[Mapping[str, Any], list[Problem], bool]:
    """The fields, what is wrong with their YAML, and whether the reference validator reads others than we do.

    It ends the frontmatter at the first two `---`, wherever they are; for the strict profile, so do we.
    """
    head = frontmatter.split(text, where)[0]
    cut = frontmatter.reference_split(text)
    is_ambiguous = cut is not None and cut[0].strip() != head.strip()
    syntax: list[Problem] = []
    if cut is not None and is_ambiguous and profile == "strict":
        try:
            return frontmatter.parse(cut[0], MANIFEST, syntax), syntax, is_ambiguous
        except UsageError as error:
            return {}, [Problem("error", f"{error.message} (as far as the first ---)")], is_ambiguous
    if "\t" in text.partition("\n")[0]:
        syntax.append(Problem("error", "there is a tab after the first ---; remove it", is_style=True))
    return frontmatter.parse(head, where, syntax), syntax, is_ambiguous


def field_problems(fields: Mapping[str, Any], profile: Profile) -> Iterator[Problem]:
    for key, value in fields.items():
        if key not in FIELDS:
            level: Level = "warning" if profile == "clients" else "error"
            yield Problem(level, f"{key!r} is {_kind_of_field(key, fields)}")
        elif key == "metadata":
            if not isinstance(value, Mapping):
                yield Problem("warning", "metadata should be a list of `name: text` lines")
        elif not isinstance(value, str):
            level = "error" if key in ("name", "description", "compatibility") else "warning"
            yield Problem(level, f"{key} is not text")
    compatibility = fields.get("compatibility")
    if isinstance(compatibility, str) and len(compatibility) > 500:
        yield Problem("error", f"compatibility is longer than 500 characters ({len(compatibility)})")


def _kind_of_field(key: str, fields: Mapping[str, Any]) -> str:
    if key in CLIENT_FIELDS:
        return "a client's own field"
    free = [name for name in FIELDS if name not in fields]
    near = difflib.get_close_matches(key.lower().replace("_", "-"), free, n=1, cutoff=0.8)
    return "not a field of the specification" + (f". Did you mean {near[0]!r}?" if near else "")


def name_problems(written: object, folder: str | None) -> Iterator[Problem]:
    if not isinstance(written, str) or not written.strip():
        yield Problem("error", "name is missing")
        return
    name = unicodedata.normalize("NFKC", written.strip())
    if len(name) > 64:
        yield Problem("error", f"name is longer than 64 characters ({len(name)})")
    if name != name.lower():
        yield Problem("error", f"name {name!r} has capital letters")
    if not all(letter.isalnum() or letter == "-" for letter in name):
        yield Problem("error", f"name {name!r} has characters other than letters, digits and -")
    if name.startswith("-") or name.endswith("-") or "--" in name:
        yield Problem("error", f"name {name!r} starts or ends with - or has two in a row")
    if folder is not None and unicodedata.normalize("NFKC", folder) != name:
        yield Problem("error", f"name {name!r} differs from the folder's name {folder!r}")


def description_problems(written: object) -> Iterator[Problem]:
    if not isinstance(written, str) or not written.strip():
        yield Problem("error", "description is missing")
    elif len(written) > 1024:
        yield Problem("error", f"description is longer than 1024 characters ({len(written)})")
