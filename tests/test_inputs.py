"""Inputs: whatever reads a file that a person named, refuses at once what is no regular file, or is far too large."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import Upskill, write_skill
from upskill.errors import UsageError
from upskill.inputs import open_input, read_input, read_input_text


def commands(skill: Path, given: Path) -> Iterator[tuple[object, ...]]:
    """Every way to hand a file to a command."""
    yield ("eval", skill, "-m", "scripted:answers.yaml", "--tests", given)
    yield ("benchmark", skill, "-m", "scripted:answers.yaml", "--tests", given)
    yield ("eval", skill, "-m", f"scripted:{given}")
    yield ("eval", skill, "-m", f"local:{given}")
    yield ("eval", given, "-m", "scripted:answers.yaml")
    yield ("validate", given)
    yield ("eval", given, "-m", "scripted:answers.yaml", "--plan")
    yield ("install", given, "--to", "codex")
    yield ("trace", "show", given)
    yield ("trigger", skill, "-m", "scripted:answers.yaml", "--queries", given)
    for kind in ("", "doc:", "trace:", "skill:"):
        yield (
            "generate",
            "-m",
            "scripted:answers.yaml",
            "--from",
            f"{kind}{given}",
            "greet people",
        )
    yield ("generate", "-m", "scripted:answers.yaml", "--tool", given, "greet people")
    yield ("generate", "-m", "scripted:answers.yaml", "--tests", given, "greet people")
    yield ("teach", "greet people", "-m", "scripted:answers.yaml", "--files", given)
    yield ("doctor", "--sandbox", "none", "--stdin", given, "--", "cat")


@pytest.fixture
def endless(home: Path) -> dict[str, Path]:
    """Files that never end, or would fill the memory."""
    os.mkfifo(home / "fifo")
    with (home / "sparse").open("wb") as stream:
        stream.truncate(10**13)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
    (home / "link").symlink_to("/dev/zero")
    names = ("fifo", "sparse", "socket", "link")
    return {"device": Path("/dev/zero"), **{name: home / name for name in names}}


def test_every_command_refuses_at_once_a_file_that_may_never_end(
    upskill: Upskill, home: Path, endless: dict[str, Path]
) -> None:
    skill = write_skill(home / "greet")
    (home / "answers.yaml").write_text("- answer: hello\n", encoding="utf-8")
    for kind, given in endless.items():
        for argv in commands(skill, given):
            done = upskill(*argv)
            said = done.err + done.out  # `validate` answers on standard output
            assert done.code == 2, (kind, argv, said)
            assert given.name in said, (kind, argv, said)
            assert "bug in upskill" not in said, (kind, argv, said)


def test_settings_and_keys_are_only_read_from_files(
    upskill: Upskill, home: Path, endless: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    skill = write_skill(home / "greet")
    (home / ".env").symlink_to(endless["fifo"])  # not a file, so there is none
    for kind, given in endless.items():
        monkeypatch.setenv("UPSKILL_CONFIG", str(given))
        done = upskill("eval", skill, "-m", "scripted:answers.yaml")
        assert (done.code, given.name in done.err) == (2, True), (kind, done.err)


def test_an_input_says_what_it_is_and_what_to_do(home: Path, endless: dict[str, Path]) -> None:
    expected = {
        "fifo": ": a FIFO, not a file",
        "device": ": a device, not a file",
        "link": ": a device, not a file",
        "sparse": ": larger than 100 MB",
    }
    for name, words in expected.items():
        with pytest.raises(UsageError, match=words) as caught:
            read_input(endless[name])
        assert caught.value.hint
    with pytest.raises(UsageError, match=": a folder, not a file"):
        read_input(home)
    with pytest.raises(UsageError, match="No such file"):
        open_input(home / "missing")
    with pytest.raises(UsageError, match="null byte"):
        read_input("a\0b")
    (home / "latin").write_bytes(b"caf\xe9")
    with pytest.raises(UsageError, match=": not UTF-8 text"):
        read_input_text(home / "latin")
    (home / "marked").write_bytes(b"\xef\xbb\xbfhello")
    assert read_input_text(home / "marked", most=8) == "hello"
    with pytest.raises(UsageError, match="larger than 7 bytes"):
        read_input_text(home / "marked", most=7)


def test_a_file_of_the_system_without_a_size_is_read_no_further_than_its_limit() -> None:
    assert Path("/proc/self/maps").stat().st_size == 0
    with pytest.raises(UsageError, match="larger than 100 bytes"):
        read_input("/proc/self/maps", most=100)
