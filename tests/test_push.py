"""Push puts a skill on the Hub: against an imitation of the Hub's API on this machine, never the Hub itself."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Generator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from conftest import Upskill, write_script, write_skill
from upskill import Skill

pytest.importorskip("huggingface_hub")

TOKEN = "hf_loopback"
AT = "/api/models/my-org/my-skill"


@dataclass
class Hub:
    """An imitation: one repository without branches, whose files are all small."""

    url: str = ""
    files: dict[str, bytes] | None = None  # None: there is no such repository
    asked: list[str] = field(default_factory=list[str])
    commits: list[str] = field(default_factory=list[str])
    is_private: bool | None = None

    def answer(
        self, method: str, path: str, body: bytes, token: str
    ) -> tuple[int, dict[str, str], Any]:
        self.asked.append(f"{method} {path}")
        if token != f"Bearer {TOKEN}":
            return 401, {}, {"error": "Invalid credentials"}
        if path == "/api/repos/create":
            wanted = json.loads(body)
            assert (wanted["organization"], wanted["name"]) == ("my-org", "my-skill")
            if self.files is not None:
                return (
                    409,
                    {},
                    {
                        "error": "You already created this model repo",
                        "url": f"{self.url}/my-org/my-skill",
                    },
                )
            self.files, self.is_private = (
                {".gitattributes": b""},
                wanted.get("visibility", "public") == "private",
            )
            return 200, {}, {"url": f"{self.url}/my-org/my-skill"}
        if self.files is None:
            return 404, {"X-Error-Code": "RepoNotFound"}, {"error": "Repository not found"}
        if path.startswith(f"{AT}/tree/main"):
            rows: list[dict[str, Any]] = [{"type": "directory", "path": "scripts", "oid": "0"}]
            for name, data in self.files.items():
                rows.append({"type": "file", "path": name, "oid": blob_id(data), "size": len(data)})
            return 200, {}, rows
        if path == f"{AT}/preupload/main":
            wanted = [file["path"] for file in json.loads(body)["files"]]
            oids = {name: blob_id(data) for name, data in self.files.items()}
            rows = [
                {
                    "path": name,
                    "uploadMode": "regular",
                    "shouldIgnore": False,
                    "oid": oids.get(name),
                }
                for name in wanted
            ]
            return 200, {}, {"files": rows}
        assert path == f"{AT}/commit/main", path
        for row in map(json.loads, body.splitlines()):
            if row["key"] == "header":
                self.commits.append(row["value"]["summary"])
            elif row["key"] == "file":
                self.files[row["value"]["path"]] = base64.b64decode(row["value"]["content"])
            else:
                assert row["key"] == "deletedFile"
                del self.files[row["value"]["path"]]
        number = f"{len(self.commits):040}"
        return (
            200,
            {},
            {
                "success": True,
                "commitOid": number,
                "commitUrl": f"{self.url}/my-org/my-skill/commit/{number}",
            },
        )


def blob_id(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Generator[Hub]:
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, headers, content = hub.answer(
                self.command, self.path, body, self.headers.get("Authorization") or ""
            )
            data = json.dumps(content).encode()
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(data))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        do_POST = do_GET  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - named by the library
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    yield hub
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_skill_is_pushed_in_one_commit_and_once(home: Path, upskill: Upskill, hub: Hub) -> None:
    source = Skill.load(write_skill(home / "my-skill")).with_file(
        "scripts/run.sh", b"ls", executable=True
    )
    source.save(home / "my-skill", overwrite=True)
    push = ("push", "my-skill", "hf:my-org/my-skill", "--unproven")
    assert upskill(*push, "--dry-run").out == f"would push: {hub.url}/my-org/my-skill\n"
    assert hub.files is None
    done = upskill(*push, "--private")
    assert done.out == f"pushed: {hub.url}/my-org/my-skill/commit/{1:040}\n"
    assert done.err.splitlines()[:2] == ["new: SKILL.md", "new: scripts/run.sh"]
    assert "does not preserve executable permissions" in done.err
    assert hub.files == {
        ".gitattributes": b"",
        "SKILL.md": source.read("SKILL.md"),
        "scripts/run.sh": b"ls",
    }
    assert (hub.is_private, hub.commits) == (True, ["Update my-skill"])

    hub.asked.clear()
    done = upskill(*push)
    assert (done.out, len(hub.commits)) == (f"unchanged: {hub.url}/my-org/my-skill\n", 1)
    assert [asked.split("?")[0] for asked in hub.asked] == [f"GET {AT}/tree/main"]

    assert hub.files
    hub.files["README.md"] = b"Written on the website."
    source.without_file("scripts/run.sh").with_body("Other.").save(
        home / "my-skill", overwrite=True
    )
    changes = upskill(*push, "--json").json
    assert changes["changes"] == {"SKILL.md": "changed", "scripts/run.sh": "removed"}
    assert sorted(hub.files) == [".gitattributes", "README.md", "SKILL.md"]
    assert upskill(*push, "--json").json["pushed"] is False


def test_an_unproven_skill_is_not_pushed_unless_told(
    home: Path, upskill: Upskill, hub: Hub
) -> None:
    write_skill(home / "my-skill", cases=12)
    push = ("push", "my-skill", "hf:my-org/my-skill")
    done = upskill(*push)
    assert (done.code, hub.asked) == (2, [])
    assert "no evidence that this skill helps (no stored run, no receipt)" in done.err
    upskill("eval", "my-skill", "-m", write_script(home / "model.yaml"))
    assert upskill(*push).code == 0
    assert hub.commits == ["Update my-skill"]


def test_a_skill_with_a_secret_is_not_pushed_unless_told(
    home: Path, upskill: Upskill, hub: Hub
) -> None:
    key = "sk-ant-api03-" + "Zx9Qw3Er5T" * 8
    folder = write_skill(home / "my-skill")
    Skill.load(folder).with_file(
        "references/setup.md", f"export ANTHROPIC_API_KEY={key}".encode()
    ).save(folder, overwrite=True)
    push = ("push", "my-skill", "hf:my-org/my-skill", "--unproven")
    done = upskill(*push)
    assert (done.code, hub.asked) == (2, [])
    assert "possible secret in references/setup.md" in done.err
    assert key not in done.err
    assert upskill(*push, "--with-secrets").code == 0


@pytest.mark.parametrize("address", ["hf:my-skill", "my-org/my-skill", "hf:a/b/c", "hf:../x"])
def test_an_address_that_is_none_is_a_usage_error(
    address: str, home: Path, upskill: Upskill, hub: Hub
) -> None:
    write_skill(home / "my-skill")
    done = upskill("push", "my-skill", address, "--unproven")
    assert (done.code, hub.asked) == (2, [])


def test_what_the_hub_refuses_is_said_with_what_to_do(
    home: Path, upskill: Upskill, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_skill(home / "my-skill")
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    done = upskill("push", "my-skill", "hf:my-org/my-skill", "--unproven")
    assert done.code == 2
    assert f"{hub.url}/my-org/my-skill: the Hub refused: " in done.err
    assert "hf auth login" in done.err
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setattr(
        "huggingface_hub.utils._http.time.sleep", float
    )  # does not wait between its tries
    done = upskill("push", "my-skill", "hf:my-org/my-skill", "--unproven")
    assert (done.code, "cannot be reached" in done.err) == (2, True)
