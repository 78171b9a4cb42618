"""`handoff:FOLDER`: requests are written to files, which a person or any agent answers.

Each request becomes `N-HASH.prompt.md`; its answer goes beside it as `N-HASH.answer.json` (or `.answer.md`). While an
answer is missing the command ends and says which; run again, it continues with the answers.
"""

from __future__ import annotations

import json
from pathlib import Path

from upskill.errors import UsageError
from upskill.inputs import read_input_text
from upskill.models import Address, ModelContext, Reply, Request
from upskill.plain import digest

ENDINGS = (".answer.json", ".answer.md", ".answer.txt")


class AnswersMissing(UsageError):
    """Some prompts have no answer yet."""


class HandoffModel:
    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder

    async def reply(self, request: Request) -> Reply:
        stem = self._stem(request)
        for ending in ENDINGS:
            file = self.folder / f"{stem}{ending}"
            if file.is_file():
                return Reply(read_input_text(file).strip(), model=self.name)
        self._write(stem, request)
        raise self._answers_missing()

    async def close(self) -> None:
        pass

    def _stem(self, request: Request) -> str:
        """The stem of this request's files: the one it has, or the next number."""
        key = digest(request)[:8]
        known = sorted(self.folder.glob("*.prompt.md"))
        for file in known:
            if file.name == f"{file.name.partition('-')[0]}-{key}.prompt.md":
                return file.name.removesuffix(".prompt.md")
        numbers = [int(head) for file in known if (head := file.name.partition("-")[0]).isdigit()]
        return f"{max(numbers, default=0) + 1:02d}-{key}"

    def _write(self, stem: str, request: Request) -> None:
        parts = [f"# {turn.role}\n\n{turn.text}" for turn in request.messages]
        if request.schema is not None:
            schema = json.dumps(request.schema, indent=1, ensure_ascii=False)
            parts.append(f"# your answer\n\nOne JSON object of this JSON schema:\n\n```json\n{schema}\n```")
        parts.append(f"Write the answer, and nothing else, to `{stem}.answer.json` beside this file.")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / f"{stem}.prompt.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{self.folder}: cannot be written: {error.strerror or error}") from error

    def _answers_missing(self) -> AnswersMissing:
        unanswered = [
            file
            for file in sorted(self.folder.glob("*.prompt.md"))
            if not any(file.with_name(file.name.removesuffix(".prompt.md") + ending).is_file() for ending in ENDINGS)
        ]
        names = ", ".join(str(file) for file in unanswered)
        count = "1 prompt waits" if len(unanswered) == 1 else f"{len(unanswered)} prompts wait"
        return AnswersMissing(
            f"{count} for an answer: {names}",
            "Write each answer to the file of the same name with .answer.json, then run the same command again.",
        )


async def open_model(address: Address, context: ModelContext) -> HandoffModel:
    del context
    return HandoffModel(address.name, Path(address.model))
