"""The server of the embedded model: its own process, which loads one GGUF file and serves chat completions on loopback.

`python -m upskill.models.embedded.server --model FILE` prints one line of JSON when it is ready (its port and API key)
and ends when its standard input does, or when the process that started it dies.
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
BATCH = 256  # tokens between two reports of progress


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m upskill.models.embedded.server", description=__doc__
    )
    parser.add_argument("--model", required=True, help="a GGUF file")
    parser.add_argument(
        "--context", type=int, default=8192, help="tokens of prompt and answer together"
    )
    parser.add_argument("--states", required=True, help="the folder for saved slot states")
    arguments = parser.parse_args()
    if sys.platform == "linux":  # die with the parent, even where that is killed outright
        import ctypes  # noqa: PLC0415  only here

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    ready_line = os.dup(1)  # native code prints to standard error
    os.dup2(2, 1)
    os.environ["OMP_WAIT_POLICY"] = "passive"  # spinning threads starve a small machine
    _server, ready = serve(arguments.model, arguments.context, arguments.states)
    os.write(ready_line, json.dumps(ready).encode() + b"\n")
    os.close(ready_line)
    sys.stdin.buffer.read()
    os._exit(0)  # at once: closing a server that is answering waits forever


def serve(model: str, context: int, states: str) -> tuple[object, dict[str, Any]]:
    """Runs while it is referenced. One thread: ggml's rounding depends on threads, and on tokens read together."""
    import xllamacpp  # noqa: PLC0415  reads the environment when it is imported

    native: Any = xllamacpp
    settings: Any = native.CommonParams()
    settings.model.path = model
    settings.n_ctx = context
    settings.n_parallel = 1
    settings.n_batch = settings.n_ubatch = BATCH
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = 1
    settings.no_extra_bufts = True  # all servers share one copy in memory
    settings.use_jinja = True
    settings.enable_reasoning = 0  # small models rarely finish thinking
    settings.cache_ram_mib = 0
    settings.slot_save_path = f"{states}{os.sep}"  # it is put in front of a file name
    settings.port = 0  # any free one
    settings.verbosity = 2  # warnings and errors
    settings.endpoint_slots = False
    key = secrets.token_urlsafe(24)
    settings.api_keys = [key]  # any web page can reach loopback
    server: Any = native.Server(settings)
    return server, {"port": urlsplit(server.listening_address).port, "key": key}


if __name__ == "__main__":
    main()
