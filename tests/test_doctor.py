"""`upskill doctor` and the errors that it prevents: what runs on this machine, and the command that fixes the rest."""

from __future__ import annotations

import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from conftest import Upskill, write_skill
from upskill.errors import UsageError
from upskill.models import servers
from upskill.models.addresses import resolve
from upskill.models.endpoints import ENDPOINTS
from upskill.sandboxes import gpu
from upskill.sandboxes import gpu as toolchain

NOBODY = "http://127.0.0.1:9/v1"
LOCAL = {name: row for name, row in ENDPOINTS.items() if row.start}


@pytest.fixture
def nobody_serves(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever runs on this machine, no model server is where these tests look for one."""
    del home
    for row in LOCAL.values():
        monkeypatch.setenv(row.url_variables[0], NOBODY)
    monkeypatch.setattr(
        servers, "SECONDS", 60.0
    )  # one that a test starts may have to wait its turn


@contextmanager
def serving(body: bytes, status: int = 200) -> Generator[str]:
    """A server that answers every GET with the same; its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/v1/models" else 404)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name that is overridden
            del format, args

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def rows(upskill: Upskill) -> dict[str, dict[str, str]]:
    return {row["what"]: row for row in upskill("doctor", "--json").json}


@pytest.mark.usefixtures("nobody_serves")
def test_a_server_that_does_not_run_is_missing_and_the_command_that_starts_it_is_said(
    upskill: Upskill,
) -> None:
    found = rows(upskill)
    for name, endpoint in LOCAL.items():
        row = found[f"server {name}"]
        assert (row["state"], row["detail"], row["fix"]) == (
            "missing",
            f"not running at {NOBODY}",
            endpoint.start,
        )
    shown = " ".join(upskill("doctor").out.split())
    assert f"– server ollama not running at {NOBODY}: ollama serve" in shown


@pytest.mark.usefixtures("nobody_serves")
def test_a_server_that_runs_is_asked_for_its_models(
    upskill: Upskill, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(home))
    data = b'{"data": [{"id": "llama3.2"}, {"id": "qwen3"}, {"id": 7}, "x"]}'
    with (
        serving(data) as ollama,
        serving(b'{"data": []}') as vllm,
        serving(b"<html>") as page,
        serving(b"", 404) as no,
    ):
        for name, url in {
            "ollama": ollama,
            "vllm": vllm,
            "lmstudio": page,
            "llama.cpp": no,
        }.items():
            monkeypatch.setenv(ENDPOINTS[name].url_variables[0], url)
        found = rows(upskill)
    server = found["server ollama"]
    assert (server["state"], server["detail"]) == ("ok", f"{ollama} has llama3.2, qwen3")
    assert found["server vllm"]["detail"] == f"{vllm}: no model loaded yet"
    assert found["server lmstudio"]["detail"] == f"{page}: it is not a model server"
    assert (
        found["server llama.cpp"]["detail"] == f"{no}: it answered 404, so it is not a model server"
    )
    assert [found[f"server {name}"]["state"] for name in ("vllm", "lmstudio", "llama.cpp")] == [
        "missing"
    ] * 3
    assert "ollama:llama3.2" in found["a student"]["detail"]
    assert (found["a teacher"]["state"], found["a teacher"]["detail"]) == (
        "ok",
        "yes: ollama:llama3.2",
    )


@pytest.mark.usefixtures("nobody_serves")
def test_the_first_lines_say_what_can_be_run(
    upskill: Upskill, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(home))
    listed = upskill("doctor", "--json").json
    assert [row["what"] for row in listed[:5]] == [
        "a student",
        "a teacher",
        "an agent",
        "a sandbox",
        "on a GPU",
    ]
    assert {row["group"] for row in listed[:5]} == {"Can I run"}
    teacher = listed[1]
    assert (teacher["state"], teacher["fix"]) == (
        "missing",
        "set ANTHROPIC_API_KEY, or use --handoff FOLDER",
    )
    monkeypatch.setenv("GROQ_API_KEY", "planted")
    (home / ".env").write_text("HF_TOKEN=hf_planted_4711\n", encoding="utf-8")
    done = upskill("doctor")
    assert (done.code, "planted" in done.out) == (0, False)
    found = rows(upskill)
    assert (found["key hf"]["state"], found["store"]["state"], (home / "runs").exists()) == (
        "ok",
        "ok",
        False,
    )
    assert (found["key anthropic"]["state"], found["key anthropic"]["fix"]) == (
        "missing",
        "set ANTHROPIC_API_KEY",
    )
    assert found["a teacher"]["detail"] == "yes: hf:MODEL, groq:MODEL"
    assert "groq:MODEL" in found["a student"]["detail"]
    assert found["agent acp:COMMAND"]["state"] == "missing"
    (home / "gemini").touch(0o755)
    assert rows(upskill)["agent acp:COMMAND"]["detail"] == "acp:gemini"
    smi = home / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho 'NVIDIA H200'\n", encoding="utf-8")
    smi.chmod(0o755)
    gpu = rows(upskill)["on a GPU"]
    assert (gpu["state"], gpu["detail"]) == ("missing", "NVIDIA H200, but no server uses it")
    assert "vllm serve MODEL" in gpu["fix"]
    smi.write_text("#!/bin/sh\nexit 9\n", encoding="utf-8")
    assert rows(upskill)["on a GPU"]["detail"].startswith("no GPU found")


@pytest.mark.usefixtures("nobody_serves")
def test_what_cuda_kernels_need_is_said_with_what_fixes_it(
    upskill: Upskill, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(nvcc: str, *devices: str) -> list[tuple[str, str, str]]:
        monkeypatch.setattr(toolchain, "_candidates", lambda: iter([Path(nvcc)]))
        monkeypatch.setattr(gpu, "ANY_GPU", devices)
        said = rows(upskill)
        names = ("compile CUDA kernels", "run CUDA kernels")
        return [(said[name]["state"], said[name]["detail"], said[name]["fix"]) for name in names]

    monkeypatch.setitem(sys.modules, "torch", None)  # as if it were not installed
    (home / "nvcc").touch()
    (home / "g++").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(home))
    here = str(home / "nvcc")
    no_gpu = ("missing", "there is no NVIDIA GPU on this machine (no /dev/nvidia0)")
    compiles, runs = found(here, "/dev/nvidia-nowhere")
    assert compiles == ("ok", f"yes: {here}", "")
    assert runs[:2] == no_gpu
    compiles, runs = found("/nowhere/nvcc", "/dev/null")
    assert runs == (
        "missing",
        "PyTorch is not installed in upskill's environment",
        f"{sys.executable} -m pip install torch",
    )
    assert compiles[:2] == ("missing", "no CUDA compiler (nvcc) found")
    assert "[cuda]" in compiles[2]
    (home / "g++").unlink()
    assert found(here, "/dev/null")[0] == (
        "missing",
        f"{here} needs g++",
        "install g++ for all users",
    )


@pytest.mark.usefixtures("nobody_serves")
def test_a_long_path_stays_whole(
    upskill: Upskill, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = home / "programs-with-a-rather-long-name-to-be-wrapped" / "codex"
    program.parent.mkdir()
    program.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    monkeypatch.setenv("COLUMNS", "60")
    assert f"  ✓ agent codex\n      {program}" in upskill("doctor").out


def test_a_server_on_another_machine_is_not_contacted(
    upskill: Upskill, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLLAMA_BASE_URL", "http://ollama.invalid:1/v1")
    row = rows(upskill)["server ollama"]
    assert (row["state"], row["detail"]) == (
        "ok",
        "http://ollama.invalid:1/v1 (on another machine, contacted when used)",
    )


@pytest.mark.usefixtures("nobody_serves")
def test_a_run_against_a_server_that_does_not_run_says_so(upskill: Upskill, home: Path) -> None:
    done = upskill("eval", write_skill(home / "greeter"), "-m", "ollama:llama3.2")
    assert done.code == 3
    said = " ".join(done.out.split())
    assert (
        "Ollama is not running: nothing answers at http://127.0.0.1:9; start it with `ollama serve`"
        in said
    )


def test_the_name_of_a_provider_before_a_slash_is_recognised() -> None:
    for name, meant in {
        "openai/gpt-4o": "openai:gpt-4o",
        "anthropic/claude-haiku-5-5": "anthropic:claude-haiku-5-5",
        "ollama/llama3.2:latest": "ollama:llama3.2:latest",
        "ollama_chat/qwen3": "ollama:qwen3",
        "openrouter/qwen/qwen3-8b:free": "openrouter:qwen/qwen3-8b:free",
        "huggingface/moonshotai/Kimi-K2": "hf:moonshotai/Kimi-K2",
        "openai/gpt-oss-20b": "hf:openai/gpt-oss-20b",
        "moonshotai/Kimi-K2": "hf:moonshotai/Kimi-K2",
    }.items():
        with pytest.raises(UsageError) as error:
            resolve(name)
        assert error.value.hint == f"Did you mean {meant}?", name
        resolve(meant)
