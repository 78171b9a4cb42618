"""What open sandboxes have in common: leaving one stops it, and files held on the host are reached by their folder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from upskill.errors import SandboxError
from upskill.sandboxes import Entry, MiB
from upskill.sandboxes.files import Folder


class OpenSandbox(ABC):
    @abstractmethod
    async def stop(self) -> None: ...

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()


class FolderSandbox(OpenSandbox):
    """A sandbox whose folders are held open out here; none is once it was stopped."""

    workspace: str
    _folders: dict[str, Folder]  # by their path inside

    async def read(self, path: str, max_bytes: int = 16 * MiB) -> bytes:
        return self._folder(path).read(path, max_bytes)

    async def write(self, path: str, content: str | bytes, *, executable: bool = False) -> None:
        self._folder(path).write(path, content, executable=executable)

    async def list(self, path: str = "", max_entries: int = 10_000) -> list[Entry]:
        return self._folder(path).list(path, max_entries)

    def _folder(self, path: str) -> Folder:
        if self.workspace not in self._folders:
            raise SandboxError("the sandbox was stopped, and its files with it")
        for place, folder in self._folders.items():
            if path.startswith(place + "/"):
                return folder
        return self._folders[self.workspace]
