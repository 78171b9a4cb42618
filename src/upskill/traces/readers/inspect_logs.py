"""Logs of inspect_ai as plain data: a zip archive of JSON files (`.eval`), or one JSON document."""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from dataclasses import dataclass
from typing import Any

from upskill.errors import UsageError
from upskill.plain import as_list, as_mapping, load_json
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
            samples = [as_row(sample) for sample in load_json(f"[{','.join(texts)}]")]
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
    found: list[Row] = []
    for sample in samples:
        if "input" in sample and "target" in sample:
            apart = _Attachments(sample.child("attachments"))
            long = {name: apart.put_back(sample[name]) for name in LONG if name in sample}
            found.append(Row(sample | long))
    return found


@dataclass(slots=True)
class _Attachments:
    """Texts that a sample names, each as often as it likes."""

    texts: Row
    left: int = MAX_UNPACKED

    def put_back(self, value: Any) -> Any:
        if isinstance(value, str) and value.startswith(ATTACHMENT):
            text = self.texts.text(value.removeprefix(ATTACHMENT)) or value
            self.left -= len(text)
            if self.left < 0:
                raise UsageError(
                    f"a sample has more than {MAX_UNPACKED // 10**6} MB of attachments", HINT
                )
            return text
        if (items := as_list(value)) is not None:
            return [self.put_back(item) for item in items]
        if (fields := as_mapping(value)) is not None:
            return {name: self.put_back(item) for name, item in fields.items()}
        return value
