"""The record of seen cases: by case id, the text of the skill (its `text_hash`) that was current when a result of the
case was first shown; empty for none.

A case is fresh for a text if it is not in the record, or stands there with this very text. The record lies in the
skill's `skill_meta.json`, one case a line, so that it goes along with a copy, a rename or a clone; for a suite outside
the skill's folder it lies in the store. It is part of no hash, and never of what `ci` compares.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from upskill.errors import UpskillError
from upskill.outputs import whole_file
from upskill.plain import dict_or_empty, json_members, load_json
from upskill.skills.files import SkillFile

METADATA, KEY = "skill_meta.json", "seen"


class SeenSkill(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def folder(self) -> Path | None: ...
    def read(self, path: str, /) -> bytes | None: ...


class SeenSuite(Protocol):
    @property
    def source(self) -> str: ...


class Notes(Protocol):
    """A store, which keeps what is written first under each key."""

    def notes(self, beginning: str) -> dict[str, str]: ...
    def add_notes(self, notes: Mapping[str, str]) -> None: ...


def merge_seen(before: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
    """What stands there already stays as it is."""
    return dict(sorted({**more, **before}.items()))


def fresh_cases(seen: Mapping[str, str], text_hash: str, case_ids: Iterable[str]) -> frozenset[str]:
    return frozenset(case for case in case_ids if seen.get(case, text_hash) == text_hash)


def load_seen(skill: SeenSkill, suite: SeenSuite, store: Notes | None) -> dict[str, str]:
    """As the skill was when it was loaded; also for the skill of a stored run."""
    beginning = _beginning(skill, suite)
    stored = store.notes(beginning) if store else {}
    outside = {key.removeprefix(beginning): text_hash for key, text_hash in stored.items()}
    return merge_seen(read_seen(skill.read(METADATA) or b""), outside)


def mark_seen(
    skill: SeenSkill,
    suite: SeenSuite,
    case_ids: Collection[str],
    text_hash: str,
    store: Notes | None,
) -> str:
    """Write down that results of these cases were shown. A caveat where that is not possible, else empty."""
    shown = dict.fromkeys(case_ids, text_hash)
    folder, beginning = skill.folder, _beginning(skill, suite)
    where = f"the store's record of {skill.name}"
    try:
        if folder and Path(suite.source).resolve().is_relative_to(folder):
            where = str(folder / METADATA)
            _mark_in_folder(folder, shown)
        elif store and (new := shown.keys() - load_seen(skill, suite, store)):
            store.add_notes({beginning + case: text_hash for case in new})
    except (OSError, UpskillError, ValueError) as error:
        cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
        why = getattr(cause, "strerror", None) or cause
        return (
            "A later version of the skill will take the cases shown here for fresh ones:"
            f" {where} cannot be written ({why})."
        )
    return ""


def _mark_in_folder(folder: Path, shown: Mapping[str, str]) -> None:
    file = (folder / METADATA).resolve()  # what a link leads to, not the link, is replaced
    before = file.read_bytes() if file.exists() else b""
    after = add_seen(before, shown)
    if after != before:
        with whole_file(file) as stream:
            stream.write(after)


def add_seen(metadata: bytes, more: Mapping[str, str]) -> bytes:
    """`skill_meta.json` with these cases in its record, and otherwise the same bytes; ValueError if it is no object."""
    mark, text = _decode(metadata)
    text = text if text.strip() else "{}\n"
    before = read_seen(metadata)
    merged = merge_seen(before, more)
    if merged == before:
        return metadata
    line_end = "\r\n" if "\r\n" in text else "\n"
    written = json.dumps(merged, indent=2, ensure_ascii=False).replace("\n", f"{line_end}  ")
    if not isinstance(json.loads(text), dict):
        raise ValueError("not a JSON object")
    start, members = json_members(text)
    known = next((member for member in members if member.key == KEY), None)
    if known:
        text = text[: known.value] + written + text[known.end :]
    elif members:
        end = members[-1].end
        text = f'{text[:end]},{line_end}  "{KEY}": {written}{text[end:]}'
    else:
        rest = text[start:].lstrip()
        text = f'{text[:start]}{line_end}  "{KEY}": {written}{line_end}{rest}'
    return mark + text.encode()


def without_seen(file: SkillFile) -> SkillFile | None:
    """A file as hashes and comparisons see it; None for one that holds the record alone."""
    if Path(file.path).name != METADATA or not read_seen(file.data):
        return file
    mark, text = _decode(file.data)
    _, members = json_members(text)
    place = next(number for number, member in enumerate(members) if member.key == KEY)
    if len(members) == 1:
        return None
    if place:
        cut = text[: members[place - 1].end] + text[members[place].end :]
    else:
        cut = text[: members[0].start] + text[members[1].start :]
    return replace(file, data=mark + cut.encode())


def read_seen(metadata: bytes) -> dict[str, str]:
    try:
        fields = dict_or_empty(load_json(_decode(metadata)[1]))
    except ValueError:
        return {}
    return {case: str(text_hash) for case, text_hash in dict_or_empty(fields.get(KEY)).items()}


def _decode(data: bytes) -> tuple[bytes, str]:
    """The mark that some editors put in front, and the text."""
    mark = b"\xef\xbb\xbf"
    return (mark, data[3:].decode()) if data.startswith(mark) else (b"", data.decode())


def _beginning(skill: SeenSkill, suite: SeenSuite) -> str:
    """Of the keys in a store: it follows the suite's file wherever that is moved."""
    return f"seen:{skill.name}:{Path(suite.source).name}:"
