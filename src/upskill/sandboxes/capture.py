"""The output of a command, kept up to a limit and passed on as it comes."""

from __future__ import annotations

from asyncio import StreamReader

from upskill.sandboxes import OnOutput, Stream


class Capture:
    """Two streams under one limit. `full` as soon as more has come than is kept."""

    def __init__(self, max_bytes: int, on_output: OnOutput | None = None) -> None:
        self.max_bytes = max_bytes
        self.remaining = max_bytes
        self.full = False
        self._on_output = on_output
        self._kept: dict[Stream, bytearray] = {"output": bytearray(), "error": bytearray()}

    def add(self, stream: Stream, data: bytes) -> None:
        if len(data) > self.remaining:
            self.full = True
            data = data[: self.remaining]
        self.remaining -= len(data)
        self._kept[stream] += data
        if data and self._on_output is not None:
            self._on_output(stream, data)

    async def read_from(self, stream: Stream, reader: StreamReader) -> None:
        """Everything that comes from a pipe, until it is closed."""
        while data := await reader.read(65536):
            self.add(stream, data)

    def text(self, stream: Stream) -> str:
        return self._kept[stream].decode("utf-8", "replace")
