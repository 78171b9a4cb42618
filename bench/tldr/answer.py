"""Answers requests with upskill's embedded engine, on a machine that has this repository, xllamacpp and the weights.

python bench/tldr/answer.py WEIGHTS REQUESTS ANSWERS

REQUESTS is a folder that `run.py export` wrote, such as bench/out/tldr/requests/qwen2.5-coder-1.5b. Each of its files
has one system message, which is read on its own and restored before each question, as upskill does. There is a server
for each core. What has an answer is kept, so run it again to continue.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import Any

SERVER = Path(__file__).parents[2] / "src" / "upskill" / "models" / "embedded" / "server.py"


def answer_file(requests: Path, weights: str, answers: Path) -> None:
    file = answers / f"{requests.parent.name}.{requests.name}"
    if file.exists():
        return
    asked = json.loads(requests.read_text())
    with tempfile.TemporaryDirectory() as states:
        command = [sys.executable, str(SERVER), "--model", weights, "--states", states]
        # It ends when its standard input does.
        server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert server.stdout is not None
        ready = json.loads(server.stdout.readline())

        def post(path: str, **body: Any) -> dict[str, Any]:
            url = f"http://127.0.0.1:{ready['port']}{path}"
            headers = {
                "Content-Type": "application/json",
                "Authorization": f"Bearer {ready['key']}",
            }
            request = urllib.request.Request(url, json.dumps(body).encode(), headers)
            with urllib.request.urlopen(request) as response:
                return json.load(response)

        def chat(*messages: dict[str, str], **settings: Any) -> str:
            reply = post(
                "/v1/chat/completions", messages=messages, temperature=0.0, seed=0, **settings
            )
            return reply["choices"][0]["message"]["content"] or ""

        system = {"role": "system", "content": asked["system"]}
        chat(system, max_tokens=0, cache_prompt=False)
        post("/slots/0?action=save", filename="system")
        texts: dict[str, str] = {}
        for case, prompt in asked["prompts"].items():
            post("/slots/0?action=restore", filename="system")
            question = {"role": "user", "content": prompt}
            texts[case] = chat(system, question, max_tokens=asked["max_tokens"], cache_prompt=True)
        server.kill()
    answers.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(texts, indent=1))


def main(weights: str, requests: str, answers: str) -> None:
    os.environ["OMP_WAIT_POLICY"] = "passive"
    files = sorted(Path(requests).glob("*/*.json"))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(answer_file, files, repeat(weights), repeat(Path(answers))))


if __name__ == "__main__":
    main(*sys.argv[1:])
