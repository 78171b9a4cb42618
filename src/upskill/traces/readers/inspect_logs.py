"""Logs of inspect_ai as plain data: a zip archive of JSON files (`.eval`), or one JSON document."""

from __future__ import annotations

import io
import json
import re
import zipfile
import zlib
from typing import Any

from upskill.errors import UsageError
from upskill.plain import as_list, as_mapping, expect_few_values
from upskill.traces.values import Row, as_row

ARCHIVE = b"PK\x03\x04"
ATTACHMENT = "attachment://"
MAX_UNPACKED = 200_000_000  # bytes
LONG = (
    "input",
    "target",
    "choices",
    "messages",
    "output",
    "metadata",
    "files",
)  # fields with long texts
HINT = "Check that this is the right file, and that all of it was copied."


def unpack_log(data: bytes, where: str) -> dict[str, Any]:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = [
                file
                for file in archive.infolist()
                if re.fullmatch(r"samples/[^/]+\.json", file.filename)
            ]
            if not members:
                raise UsageError(f"{where}: a zip archive without inspect_ai samples", HINT)
            if sum(file.file_size for file in members) > MAX_UNPACKED:
                raise UsageError(
                    f"{where}: larger than {MAX_UNPACKED // 10**6} MB when unpacked", HINT
                )
            texts = [archive.read(file).decode() for file in members]
            expect_few_values("".join(texts))
            samples = [as_row(json.loads(text)) for text in texts]
    except (
        zipfile.BadZipFile,
        zlib.error,
        NotImplementedError,
        OSError,
        EOFError,
        ValueError,
        RuntimeError,
    ) as error:
        raise UsageError(f"{where}: cannot be unpacked: {error}", HINT) from error
    return {"eval": {}, "samples": sorted(samples, key=_order)}


def _order(sample: Row) -> tuple[int, str, str]:
    name = str(sample.get("id", ""))
    return (
        int(name) if name.isdecimal() and len(name) < 19 else 0,
        name,
        str(sample.get("epoch", "")),
    )


def samples_of(log: object) -> list[Row]:
    """The samples of a log, with the long texts that it keeps apart put back in; empty if it is not one."""
    fields = as_row(log)
    samples = fields.children("samples") if "eval" in fields else []
    return [
        Row(
            sample
            | {
                name: _put_back(sample[name], sample.child("attachments"))
                for name in LONG
                if name in sample
            }
        )
        for sample in samples
        if "input" in sample and "target" in sample
    ]


def _put_back(value: Any, texts: Row) -> Any:
    if isinstance(value, str) and value.startswith(ATTACHMENT):
        return texts.get(value.removeprefix(ATTACHMENT), value)
    if (items := as_list(value)) is not None:
        return [_put_back(item, texts) for item in items]
    if (fields := as_mapping(value)) is not None:
        return {name: _put_back(item, texts) for name, item in fields.items()}
    return value
