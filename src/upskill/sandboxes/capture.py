"""What a command writes, kept up to a limit and handed on as it comes."""

from __future__ import annotations

from asyncio import StreamReader

from upskill.sandboxes import OnOutput, Stream


class Capture:
    """Two streams under one limit. `full` once more has come than is kept."""

    def __init__(self, most: int, on_output: OnOutput | None) -> None:
        self.most = most
        self.left = most
        self.full = False
        self._hear = on_output
        self._kept: dict[Stream, bytearray] = {"output": bytearray(), "error": bytearray()}

    def add(self, stream: Stream, data: bytes) -> None:
        if len(data) > self.left:
            self.full = True
            data = data[: self.left]
        self.left -= len(data)
        self._kept[stream] += data
        if data and self._hear is not None:
            self._hear(stream, data)

    async def listen(self, stream: Stream, reader: StreamReader) -> None:
        """All that comes from a pipe, until it is closed."""
        while data := await reader.read(65536):
            self.add(stream, data)

    def text(self, stream: Stream) -> str:
        return self._kept[stream].decode("utf-8", "replace")
