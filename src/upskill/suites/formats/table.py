"""Rows with a prompt and the expected answer, or with columns named after checks, from CSV or JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from upskill.plain import as_list, as_mapping, list_or_empty
from upskill.suites.files import Rows
from upskill.suites.formats import Draft, Format, Source, place_of
from upskill.suites.shapes import (
    EXPECTED_FIELDS,
    PROMPT_FIELDS,
    check_expected,
    mapping_or_empty,
    text_of,
)

CHECK_FIELDS = (
    "contains",
    "contains_any",
    "not_contains",
    "equals",
    "starts_with",
    "regex",
    "not_regex",
    "judge",
)
OURS = ("reference", "output_file", "expected_output")


def recognizes(data: object) -> bool:
    rows = as_list(data)
    row = as_mapping(rows[0]) if rows else None
    if isinstance(data, Rows):
        return True
    if (
        row is None
        or {"vars", "checks", "verifiers"} & set(row)
        or {"input", "expected"} <= set(row)
    ):
        return False  # others', and upstream's, which is read as it is
    return any(field in row for field in PROMPT_FIELDS) and any(
        field in row for field in EXPECTED_FIELDS
    )


def cases(source: Source) -> Iterator[Draft]:
    for number, item in enumerate(list_or_empty(source.data), start=1):
        yield _read(mapping_or_empty(item), number, source)


def _read(row: dict[str, Any], number: int, source: Source) -> Draft:
    prompt = next((field for field in PROMPT_FIELDS if field in row), "")
    draft = Draft(
        place_of(number, row),
        source.notes,
        prompt=text_of(row.get(prompt)),
        id=row.get("id") or None,
    )
    tags = as_list(row.get("tags")) or text_of(row.get("tags")).replace(";", ",").split(",")
    draft.more["tags"] = [text for tag in tags if (text := text_of(tag).strip())]
    named = [field for field in row if field in CHECK_FIELDS and text_of(row[field]).strip()]
    draft.checks = [{field: row[field]} for field in named]
    expected = next(
        (field for field in EXPECTED_FIELDS if field in row and text_of(row[field]).strip()), ""
    )
    if expected and not (named and expected in OURS):
        draft.checks += check_expected(row[expected])
    if expected and not named and "reference" not in row and isinstance(row[expected], str):
        draft.more["reference"] = row[expected]
    draft.more |= {field: row[field] for field in OURS if row.get(field)}
    used = {prompt, expected, "id", "tags", *named, *OURS}
    draft.keep(row, used)
    draft.nothing = "empty: needs a value in `expected` or in a column named after a check"
    return draft


FORMAT = Format("a table", recognizes, cases)
