"""The embedded model's server: a process of its own that loads one GGUF file and answers chat completions on loopback.

`python -m upskill.models.embedded.server --model FILE` prints one line of JSON when it is ready (its port, the key it
asks for, the tokens its context holds) and ends when its standard input does, or when the process that started it dies.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import signal
import sys
from typing import Any
from urllib.parse import urlsplit

PR_SET_PDEATHSIG = 1
# ggml's attention takes another path, with other roundings, for batches above 64 tokens. Below it an answer depends on
# the prompt alone: not on how much of it was cached, nor on what was asked before. Costs a fifth of the speed at which
# a prompt is read that is new altogether, which happens once for each skill.
BATCH = 32
KEPT_PROMPTS = 512  # MiB of prompts kept for the next time: both arms of a run and some more


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m upskill.models.embedded.server", description=__doc__)
    parser.add_argument("--model", required=True, help="a GGUF file")
    parser.add_argument("--context", type=int, default=8192, help="tokens of prompt and answer together")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--port", type=int, default=0, help="0: any free one")
    asked = parser.parse_args()
    die_with_parent()
    ready_line = keep_output_for_ourselves()
    os.environ["OMP_WAIT_POLICY"] = "passive"  # threads that spin while they wait starve a small machine
    _server, ready = serve(asked.model, asked.context, asked.threads, asked.port)
    os.write(ready_line, json.dumps(ready).encode() + b"\n")
    os.close(ready_line)
    sys.stdin.buffer.read()
    os._exit(0)  # at once: letting go of a server that is answering waits forever


def serve(model: str, context: int, threads: int, port: int) -> tuple[object, dict[str, Any]]:
    """The running server, which lives as long as it is held, and what a client has to know."""
    import xllamacpp  # noqa: PLC0415  reads its environment when it is loaded

    native: Any = xllamacpp
    settings: Any = native.CommonParams()
    settings.model.path = model
    settings.n_ctx = context
    settings.n_parallel = 1
    settings.n_ubatch = BATCH
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = threads
    settings.use_jinja = True
    settings.enable_reasoning = 0  # a student that may think does so at length, and rarely ends within its limit
    settings.cache_ram_mib = KEPT_PROMPTS
    settings.port = port
    settings.verbosity = 2  # warnings and errors
    settings.endpoint_slots = False
    key = secrets.token_urlsafe(24)
    settings.api_keys = [key]  # loopback is open to every user and every web page of this machine
    server: Any = native.Server(settings)
    return server, {"port": urlsplit(server.listening_address).port, "key": key}


def die_with_parent() -> None:
    """Linux kills this process with its parent, also when the parent is killed in a way it cannot notice."""
    if sys.platform == "linux":
        import ctypes  # noqa: PLC0415  only here

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def keep_output_for_ourselves() -> int:
    """Standard output for the ready line alone: whatever native code prints goes to standard error."""
    ours = os.dup(1)
    os.dup2(2, 1)
    return ours


if __name__ == "__main__":
    main()
