"""Outputs: what holds the content of a run is its owner's only, and nobody else's file is overwritten."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
import zipfile
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from conftest import Upskill, greetings, write_script, write_skill
from upskill import open_store

SECRET = "ghp_" + "aB3dE6gH9kLmN2pQ5sT8vWxY" * 2
RULES = [
    {"system": "ahoy", "answer": f"ahoy, your token is {SECRET}"},
    {"answer": "hello, kittiwake9! is in it"},
]
PROMPT = "Greet me. The password is kittiwake9!"
FILES = {
    "report.html": ("report", "last", "-o"),
    "replies.jsonl.gz": ("export", "last", "--replies"),
    "runs.csv": ("runs", "--csv"),
    **{
        f"export.{kind}": ("export", "last", "--format", kind, "-o")
        for kind in ("csv", "junit", "markdown", "svg")
    },
}
FOLDERS = ("inspect", "svg", "upskill-runs")
REPORTS = ("json", "csv", "junit", "markdown", "html", "terminal")


@pytest.fixture
def run(upskill: Upskill, home: Path) -> Iterator[tuple[object, ...]]:
    """A stored run with secrets in its prompts and answers, under a mask that hides nothing; the command."""
    before = os.umask(0)
    suite = greetings(2)
    suite["cases"][0]["prompt"] = PROMPT
    write_skill(home / "greeting", suite=suite)
    line = ("eval", "greeting", "-m", write_script(home / "student.json", RULES))
    done = upskill(
        *line, *(part for kind in REPORTS for part in ("--report", f"{kind}=eval.{kind}"))
    )
    assert done.code == 0, done.err
    yield line
    os.umask(before)


def open_to_others(folder: Path) -> list[str]:
    """Files below it that another user can read or write."""
    return [
        str(path.relative_to(folder))
        for path in sorted(folder.rglob("*"))
        if path.stat().st_mode & 0o077
        and not any(
            parent.stat().st_mode & 0o077 == 0
            for parent in path.parents
            if folder in parent.parents
        )
    ]


def test_what_holds_the_content_of_a_run_is_its_owners_only(
    upskill: Upskill, run: tuple[object, ...], home: Path
) -> None:
    ours = {
        "greeting",
        "student.json",
        *(str(path.relative_to(home)) for path in (home / "greeting").rglob("*")),
    }
    for file, command in FILES.items():
        assert upskill(*command, file).code == 0
    for kind in FOLDERS:
        assert upskill("export", "last", "--format", kind, "-o", kind).code == 0
    assert upskill("eval", "greeting", "-m", "handoff:desk").code == 0
    (store,) = home.rglob("upskill.db")
    with open_store(store.parent):
        assert {path.name for path in store.parent.iterdir()} >= {
            "upskill.db",
            "upskill.db-wal",
            "upskill.db-shm",
        }
        assert {path.stat().st_mode & 0o077 for path in store.parent.glob("upskill.db*")} == {0}
        assert set(open_to_others(home)) <= ours
    assert not open_to_others(home / "desk")
    assert list((home / "desk").iterdir())
    # Existing files keep their permissions.
    Path("report.html").chmod(0o644)
    assert upskill("report", "last", "-o", "report.html").code == 0
    assert Path("report.html").stat().st_mode & 0o777 == 0o644


def test_a_file_that_upskill_did_not_write_is_overwritten_only_by_force(
    upskill: Upskill, run: tuple[object, ...]
) -> None:
    commands = FILES | {f"eval.{kind}": (*run, "--report") for kind in REPORTS}
    for file, command in commands.items():
        place = f"{file.partition('.')[2]}={file}" if file.startswith("eval.") else file
        for _ in range(2):  # its own file is replaced
            assert upskill(*command, place).code == 0, file
        for content in (
            b"years of work",
            b"upskill: my notes\nupskill show last\n",
            b"\x1f\x8b\x08 no gzip",
        ):
            Path(file).write_bytes(content)
            done = upskill(*command, place)
            assert (
                done.code,
                f"{file}: already exists, and upskill did not write it" in done.err,
            ) == (2, True), file
            assert ("or delete this one" if file.startswith("eval.") else "--force") in done.err
            assert Path(file).read_bytes() == content
        if file.startswith("eval."):
            Path(file).unlink()
        force = () if file.startswith("eval.") else ("--force",)
        assert upskill(*command, place, *force).code == 0
        assert Path(file).read_bytes() != content
        Path(file).write_bytes(b"")  # nothing is lost
        assert upskill(*command, place).code == 0


@pytest.mark.usefixtures("run")
def test_a_link_is_followed_to_see_whose_file_it_is_and_then_replaced(upskill: Upskill) -> None:
    thesis, link = Path("thesis.txt"), Path("page.html")
    thesis.write_text("years of work")
    thesis.chmod(0o644)
    link.symlink_to(thesis)
    command = ("report", "last", "-o", link)
    assert "upskill did not write it" in upskill(*command).err
    assert upskill(*command, "--force").code == 0
    assert (link.is_symlink(), link.stat().st_mode & 0o777, thesis.read_text()) == (
        False,
        0o600,
        "years of work",
    )


def test_a_changed_export_is_replaced_by_force_and_a_folder_of_somebody_else_never(
    upskill: Upskill, run: tuple[object, ...]
) -> None:
    command = ("export", "last", "--format", "inspect", "-o", "logs")
    assert upskill(*command).code == 0
    Path("logs/notes.txt").write_text("mine")
    os.utime("logs/notes.txt", (2e9, 2e9))
    assert upskill(*command).code == 2
    assert upskill(*command, "--force").code == 0
    Path("mine").mkdir()
    Path("mine/thesis.txt").write_text("years of work")
    done = upskill("export", "last", "--format", "inspect", "-o", "mine", "--force")
    assert (done.code, "contains files that upskill did not export" in done.err) == (2, True)


def test_exports_say_that_they_hold_full_text_and_redact_takes_secrets_out(
    upskill: Upskill, run: tuple[object, ...]
) -> None:
    for kind in ("csv", "inspect"):
        full, clean = (
            ("export", "last", "--format", kind, "-o", f"{name}-{kind}")
            for name in ("full", "clean")
        )
        assert "contains full prompts and answers; --redact removes secrets" in upskill(*full).err
        assert read_all(Path(f"full-{kind}")).count(SECRET.encode())
        done = upskill(*clean, "--redact")
        assert "Redacted 2 github tokens" in done.err, done.err
        text = read_all(Path(f"clean-{kind}"))
        assert (SECRET.encode() in text, b"kittiwake9!" in text) == (False, False), kind
        assert b"[REDACTED" in text
    for kind in ("markdown", "upskill-runs"):
        assert (
            "full prompts"
            not in upskill("export", "last", "--format", kind, "-o", f"full-{kind}").err
        )
    printed = upskill("export", "last", "--format", "csv", "-o", "-", "--redact")
    assert (SECRET in printed.out, "Redacted" in printed.err) == (False, True)
    assert "--redact removes secrets" in upskill("report", "last", "-o", "full.html").err
    assert SECRET.encode() in read_all(Path("full.html"))
    assert upskill("report", "last", "-o", "clean.html", "--redact").code == 0
    page = read_all(Path("clean.html"))
    assert (
        SECRET.encode() in page,
        b"kittiwake9!" in page,
        b"[REDACTED github-token]" in page,
    ) == (False, False, True)


def read_all(path: Path) -> bytes:
    if path.suffix == ".eval":
        with zipfile.ZipFile(path) as log:
            return b"".join(log.read(name) for name in log.namelist())
    if path.suffix == ".html":
        packed = re.findall(rb"H4sI[A-Za-z0-9+/=]+", path.read_bytes())
        return path.read_bytes() + b"".join(gzip.decompress(b64decode(part)) for part in packed)
    if path.is_dir():
        return b"".join(read_all(each) for each in sorted(path.rglob("*")) if each.is_file())
    return path.read_bytes()


def test_a_device_is_written_to_and_a_full_disk_is_a_message(
    upskill: Upskill, run: tuple[object, ...]
) -> None:
    for file, command in FILES.items():
        if file == "export.svg":
            continue  # is told by its ending
        assert upskill(*command, "/dev/null").code == 0, file
        done = upskill(*command, "/dev/full")
        assert (done.code, "/dev/full: cannot be written: No space left on device" in done.err) == (
            2,
            True,
        ), done.err
    assert Path("/dev/full").is_char_device()


LINES = (
    ("runs",),
    ("runs", "--json"),
    ("show", "last"),
    ("report", "last", "-o", "-"),
    ("export", "last", "--format", "csv", "-o", "-"),
    ("eval", "greeting", "-m", "scripted:student.json"),
    ("--help",),
    ("eval", "--help"),
)


def test_a_full_disk_behind_standard_output_is_a_message(run: tuple[object, ...]) -> None:
    for line in LINES:
        with Path("/dev/full").open("wb") as full:
            done = spawn(*line, stdout=full)
            assert (
                done.returncode,
                done.stderr.count(b"standard output: cannot be written: No space"),
            ) == (2, 1), line
            assert b"bug" not in done.stderr
    with Path("/dev/full").open("wb") as full:
        assert spawn("eval", "nowhere", stderr=full).returncode == 2


def spawn(
    *argv: str, stdout: IO[bytes] | int = subprocess.PIPE, stderr: IO[bytes] | int = subprocess.PIPE
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "upskill", *argv], check=False, stdout=stdout, stderr=stderr
    )


def test_forty_columns_and_a_terminal_without_utf8_are_respected(
    run: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    wide = [spawn(*line).stdout for line in LINES]
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    for line, usual in zip(LINES, wide, strict=True):
        done = spawn(*line)
        assert (done.returncode, b"Traceback" in done.stderr) == (0, False)
        if line[-1] == "-":
            assert done.stdout == usual  # a file's content is UTF-8
            continue
        shown = done.stdout.decode("ascii")
        assert re.findall(r"\d+", shown) == re.findall(r"\d+", usual.decode()) or "--json" in line
        if line[0] in ("eval", "runs", "show") and line[-1] not in ("--json", "--help"):
            assert max(map(len, shown.splitlines())) <= 40, shown
    assert json.loads(spawn("runs", "--json").stdout)
