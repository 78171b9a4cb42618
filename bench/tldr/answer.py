"""Answers requests with upskill's embedded engine, on a machine that has this repository, xllamacpp and weights.

python bench/tldr/answer.py WEIGHTS REQUESTS ANSWERS

One server for each core, as upskill runs it: the system message is read on its own, and its state restored before each
question. Run it again to continue.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import urllib.request
from itertools import groupby
from pathlib import Path
from typing import Any

SERVER = Path(__file__).parents[2] / "src" / "upskill" / "models" / "embedded" / "server.py"
EXACT = {"temperature": 0.0, "seed": 0}


def answer_group(weights: str, requests: list[dict[str, Any]]) -> list[dict[str, str]]:
    """The answers to requests that have one system message."""
    with tempfile.TemporaryDirectory() as states:
        command = [sys.executable, str(SERVER), "--model", weights, "--states", states]
        # It ends when its standard input does.
        server = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert server.stdout is not None
        ready = json.loads(server.stdout.readline())

        def post(path: str, body: dict[str, Any]) -> dict[str, Any]:
            headers = {
                "Content-Type": "application/json",
                "Authorization": f"Bearer {ready['key']}",
            }
            url = f"http://127.0.0.1:{ready['port']}{path}"
            request = urllib.request.Request(url, json.dumps(body).encode(), headers)
            with urllib.request.urlopen(request) as response:
                return json.load(response)

        system = {"role": "system", "content": requests[0]["system"]}
        post(
            "/v1/chat/completions",
            EXACT | {"messages": [system], "max_tokens": 0, "cache_prompt": False},
        )
        post("/slots/0?action=save", {"filename": "system"})
        answers: list[dict[str, str]] = []
        for request in requests:
            post("/slots/0?action=restore", {"filename": "system"})
            messages = [system, {"role": "user", "content": request["prompt"]}]
            body = {"messages": messages, "max_tokens": request["max_tokens"], "cache_prompt": True}
            reply = post("/v1/chat/completions", EXACT | body)
            text = reply["choices"][0]["message"]["content"] or ""
            answers.append({"key": request["key"], "hash": request["hash"], "text": text})
        server.kill()
        return answers


def main(weights: str, requests_file: str, answers_file: str) -> None:
    done = Path(answers_file)
    done.touch()
    known = {json.loads(line)["key"] for line in done.read_text().splitlines()}
    requests = [json.loads(line) for line in Path(requests_file).read_text().splitlines()]
    missing = sorted(
        (each for each in requests if each["key"] not in known), key=lambda each: each["system"]
    )
    groups = [
        (weights, list(group)) for _, group in groupby(missing, key=lambda each: each["system"])
    ]
    with multiprocessing.Pool(os.cpu_count()) as pool, done.open("a") as file:
        for job in [pool.apply_async(answer_group, group) for group in groups]:
            file.writelines(json.dumps(answer) + "\n" for answer in job.get())
            file.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
