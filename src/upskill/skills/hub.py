"""A repository of the Hugging Face Hub that holds one skill. Needs the extra `hub`."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Literal

from upskill.errors import UsageError
from upskill.installation import add_extra
from upskill.skills.files import SkillFile

_ADDRESS = re.compile(r"hf:(?P<name>[\w.-]+/[\w.-]+)")
THEIRS = (".gitattributes", "README.md")  # made by the Hub or on its website: never removed

Change = Literal["new", "changed", "removed"]


class HubRepository:
    """At `hf:ORG/NAME`, of the kind that the Hub calls a model."""

    def __init__(self, address: str) -> None:
        named = _ADDRESS.fullmatch(address)
        if named is None:
            raise UsageError(f"{address!r} is not an address to push to", "Write hf:ORG/NAME.")
        try:
            self._hub: Any = import_module("huggingface_hub")
        except ImportError as missing:
            raise UsageError(
                "push needs the `huggingface_hub` package, which is not installed",
                f"Run `{add_extra('hub')}`.",
            ) from missing
        self.name = named["name"]
        endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
        self.url = f"{endpoint}/{self.name}"
        self._exists = True
        self._api = self._hub.HfApi(endpoint=endpoint, library_name="upskill")

    def compare(self, files: Iterable[SkillFile]) -> dict[str, Change]:
        """What an upload of these files would change there."""
        there = self._hashes()
        here = {file.path: file for file in files}
        changes: dict[str, Change] = {path: "new" for path in here if path not in there}
        changes |= {
            path: "changed"
            for path, file in here.items()
            if path in there and not _is_same(file, there[path])
        }
        changes |= {path: "removed" for path in there if path not in here and path not in THEIRS}
        return changes

    def upload(
        self,
        files: Iterable[SkillFile],
        changes: Mapping[str, Change],
        title: str,
        *,
        private: bool,
    ) -> str:
        """One commit; its address."""
        add, delete = self._hub.CommitOperationAdd, self._hub.CommitOperationDelete
        operations = [add(file.path, file.data) for file in files if file.path in changes]
        operations += [delete(path) for path, change in changes.items() if change == "removed"]
        with self._errors():
            if not self._exists:
                self._api.create_repo(self.name, private=private, exist_ok=True)
            return str(
                self._api.create_commit(self.name, operations, commit_message=title).commit_url
            )

    def _hashes(self) -> dict[str, str]:
        """By path: the id that git gives to the content, or the SHA-256 of a large file."""
        with self._errors():
            try:
                entries = list(self._api.list_repo_tree(self.name, recursive=True))
            except self._hub.errors.RepositoryNotFoundError:
                self._exists = False
                return {}
            files = [
                entry for entry in entries if hasattr(entry, "blob_id")
            ]  # the others are folders
            return {file.path: file.lfs.sha256 if file.lfs else file.blob_id for file in files}

    @contextmanager
    def _errors(self) -> Generator[None]:
        kinds = self._hub.errors
        try:
            yield
        except kinds.HFValidationError as error:
            raise UsageError(
                f"{self.name}: not a valid repository name: {error}", "Write hf:ORG/NAME."
            ) from error
        except (kinds.HfHubHTTPError, kinds.LocalTokenNotFoundError) as error:
            hint = "Check the address and the Hub's status."
            if getattr(getattr(error, "response", None), "status_code", 401) in (401, 403):
                hint = "Run `hf auth login`, or set HF_TOKEN to a token with write access."
            raise UsageError(
                f"{self.url}: the Hub refused: {str(error).strip().splitlines()[0]}", hint
            ) from error
        except Exception as error:
            if not type(error).__module__.startswith(
                "httpx"
            ):  # whichever HTTP library the Hub's client uses
                raise
            raise UsageError(
                f"{self.url}: cannot be reached: {error}", "Check the network and HF_ENDPOINT."
            ) from error


def _is_same(file: SkillFile, known: str) -> bool:
    blob = hashlib.sha1(
        b"blob %d\0" % len(file.data) + file.data, usedforsecurity=False
    ).hexdigest()
    return known in (blob, hashlib.sha256(file.data).hexdigest())
