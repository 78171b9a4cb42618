"""A server of chat completions that answers after a fixed time and costs next to nothing, for benchmarks.

python bench/server.py            # prints its base URL, then serves until it is ended
python bench/server.py --count F  # and the first 8 bytes of this file say how many requests there were

It is no judge of requests: tests/loopback.py is. A request that has WORD in it gets it back in the answer, any other
one does not.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import mmap
import re
from pathlib import Path

WORD = "kumquat"  # what the benchmark's check looks for
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


def answer(text: str) -> bytes:
    body = json.dumps(
        {
            "id": "chatcmpl-benchmark",
            "object": "chat.completion",
            "created": 1_760_000_000,
            "model": "benchmark",
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": text, "refusal": None},
                    "logprobs": None,
                    "finish_reason": "stop",
                }
            ],
            "usage": {"prompt_tokens": 420, "completion_tokens": 24, "total_tokens": 444},
        }
    ).encode()
    head = (
        f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


# In several words: a student that always says the same is taken for exact, and asked once.
WORDS = ("as far as anyone can tell", "if I am not mistaken", "I would say")
RIGHT = [answer(f"The fruit that is meant here is the {WORD}, {words}.") for words in WORDS]
WRONG = [answer(f"The fruit that is meant here is the orange, {words}.") for words in WORDS]


class Connection(asyncio.Protocol):
    """One client: requests come one after the other, with their length in the head."""

    latency = 0.05
    asked = 0  # by all clients
    counter: mmap.mmap | bytearray = bytearray(8)

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data
        while (end := self.received.find(b"\r\n\r\n")) >= 0:
            length = LENGTH.search(self.received, 0, end)
            whole = end + 4 + (int(length.group(1)) if length else 0)
            if len(self.received) < whole:
                return
            request, self.received = self.received[:whole], self.received[whole:]
            Connection.asked += 1
            Connection.counter[:8] = Connection.asked.to_bytes(8, "little")
            asyncio.get_running_loop().call_later(self.latency, self.say, self.reply_to(request))

    def reply_to(self, request: bytes) -> bytes:
        replies = RIGHT if WORD.encode() in request else WRONG
        return replies[Connection.asked % len(replies)]

    def say(self, reply: bytes) -> None:
        assert self.transport is not None
        if not self.transport.is_closing():
            self.transport.write(reply)


async def serve(port: int, latency: float) -> None:
    Connection.latency = latency
    server = await asyncio.get_running_loop().create_server(
        Connection, "127.0.0.1", port, backlog=4096
    )
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument(
        "--latency", type=float, default=0.05, help="seconds from a request to its answer"
    )
    parser.add_argument("--count", type=Path, metavar="FILE")
    options = parser.parse_args()
    if options.count:
        options.count.write_bytes(bytes(8))
        with options.count.open("r+b") as file:
            Connection.counter = mmap.mmap(file.fileno(), 8)
    asyncio.run(serve(options.port, options.latency))


if __name__ == "__main__":
    main()
