"""A real PostgreSQL server for the tests: in a temporary folder, run by an ordinary user, stopped at the end."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Any

PASSWORD = "s3cret-Wörd"  # which no output may show
QUOTED_PASSWORD = "s3cret-W%C3%B6rd"


def find_programs() -> Path | None:
    """Where Debian puts the newest version, or whatever is on the PATH."""
    found = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda file: int(file.parts[-3])
    )
    program = found[-1] if found else shutil.which("initdb")
    return Path(program).parent if program else None


class Server:
    def __init__(self, programs: Path, *settings: str) -> None:
        self.programs = programs
        self.settings = settings
        self.folder = Path(tempfile.mkdtemp(prefix="upskill-pg-"))
        self._user: dict[str, Any] = {}
        if os.geteuid() == 0:  # as whom PostgreSQL refuses to run
            nobody = pwd.getpwnam("nobody")
            os.chown(self.folder, nobody.pw_uid, nobody.pw_gid)
            self._user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        password = self.folder / "password"
        password.write_text(f"{PASSWORD}\n", encoding="utf-8")
        password.chmod(0o644)
        self._run(
            *(
                "initdb",
                "-D",
                self.folder / "data",
                "-U",
                "upskill",
                "--pwfile",
                password,
                "-A",
                "scram-sha-256",
            ),
            *("-E", "UTF8", "--no-locale"),
        )
        self._schemas = itertools.count(1)
        self.is_running = False
        self.start()

    def start(self) -> None:
        given = "".join(f" -c {setting}" for setting in ("shared_buffers=32MB", *self.settings))
        settings = f"-k {self.folder} -p {self.port} -c listen_addresses=127.0.0.1{given}"
        log = self.folder / "log"
        self._run(
            "pg_ctl",
            "-D",
            self.folder / "data",
            "-l",
            log,
            "-o",
            settings,
            "-w",
            "-t",
            "300",
            "start",
        )
        self.is_running = True

    def stop(self, mode: str = "fast") -> None:
        """`immediate` is what a crash looks like to everyone."""
        self._run("pg_ctl", "-D", self.folder / "data", "-m", mode, "-w", "-t", "300", "stop")
        self.is_running = False

    def remove(self) -> None:
        self.stop("immediate")
        shutil.rmtree(self.folder)

    def new_place(self) -> str:
        """Where there is no store yet, with the password."""
        return self.place(f"store_{next(self._schemas)}")

    def place(self, schema: str) -> str:
        return f"postgresql://upskill:{QUOTED_PASSWORD}@/postgres?host={self.folder}&port={self.port}&schema={schema}"

    def _run(self, program: str, *arguments: object) -> None:
        subprocess.run(
            [self.programs / program, *map(str, arguments)],
            check=True,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"},
            **self._user,
        )
