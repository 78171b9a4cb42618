"""`handoff:FOLDER`: requests are written to files, which a person or any agent answers.

Each request of a teacher becomes `ROUND-ROLE-HASH.prompt.md`, such as `1-skill-….prompt.md`; its answer goes beside
it as `….answer.json` or `.md`. While an answer is missing, the command pauses; run it again to continue. Round and
role are the title of the request's schema; without one, the file begins with the number of the turn.

Students and judges must not learn from a file which arm it belongs to. Theirs are called `HASH.prompt.md` and are
written at the end, in the order of their names.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from upskill.errors import Paused, UsageError
from upskill.inputs import read_input_text
from upskill.models import Address, ModelContext, Reply, Request
from upskill.models.parsing import estimate_tokens, parse_json_answer
from upskill.models.prices import Price, price_for
from upskill.outputs import make_private_folder, open_private
from upskill.plain import counted, describe_json_error, digest, listed
from upskill.traces import Usage

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

PROMPT, ENDINGS = ".prompt.md", (".answer.json", ".answer.md", ".answer.txt")
SIZE_LIMITS = {
    "minItems": ("item", "at least"),
    "maxItems": ("item", "at most"),
    "maxLength": ("character", "at most"),
}
BLIND = (
    "Answer from this file alone, without looking at any other. If another file reads the same, answer each one "
    "afresh, as if you had not seen it before."
)


class WrongAnswer(UsageError):
    def __init__(self, file: str | Path, why: str) -> None:
        super().__init__(
            f"{file}: this answer cannot be used: {why}",
            "Fix the file, then run the same command again.",
        )


class HandoffModel:
    """A folder of prompts and answers: a teacher's, or a blind one."""

    def __init__(
        self,
        name: str,
        folder: Path,
        price: Price,
        *,
        blind: bool = False,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        self.name = name
        self.folder = folder
        self.price = price  # of tokens that are estimated
        self.blind = blind
        self.tell = tell
        self._own_stems: set[str] = set()  # stems of this process
        self._waiting: dict[str, Request] = {}  # blind ones, which are written at the end
        self._blinded = None if blind else HandoffModel(name, folder, price, blind=True)

    def blinded(self) -> HandoffModel:
        return self._blinded or self

    async def reply(self, request: Request) -> Reply:
        stem = digest(request)[:12] if self.blind else _stem_for(request)
        self._own_stems.add(stem)
        reply = self._read(stem, request)
        if reply is None and self.blind:
            self._waiting[stem] = request
            raise Paused([str(self.folder / f"{stem}{PROMPT}")])
        if reply is None:
            self._write(stem, request)
            raise Paused(
                str(file) for file in self._unanswered() if _stem_of(file) in self._own_stems
            )
        input_tokens = sum(estimate_tokens(message.text) for message in request.messages)
        output_tokens = estimate_tokens(reply.text)
        cost = self.price.cost(input_tokens, output_tokens)
        return replace(reply, usage=Usage(input_tokens, output_tokens, cost_usd=cost))

    async def close(self) -> None:
        if self._own_stems:
            unanswered = self._unanswered()
            for file in unanswered:
                if _stem_of(file) not in self._own_stems:
                    file.unlink(missing_ok=True)
            if not self.blind:
                self._tell_unused(
                    [file for file in unanswered if _stem_of(file) in self._own_stems]
                )
        for stem in sorted(self._waiting):
            self._write(stem, self._waiting[stem])
        self._waiting.clear()
        if self._blinded:
            await self._blinded.close()

    def _tell_unused(self, waiting: list[Path]) -> None:
        """Say which answered prompts were replaced by those that wait: upskill, the task or the material changed."""
        titles = {_title_of(file) for file in waiting}
        unused = [
            file
            for file in sorted(self.folder.glob(f"*-*{PROMPT}"))
            if _title_of(file) in titles and _stem_of(file) not in self._own_stems
        ]
        if self.tell and unused:
            files = listed([str(file) for file in unused])
            self.tell(f"No longer asked, and its answer is not used: {files}.")

    def _read(self, stem: str, request: Request) -> Reply | None:
        for ending in ENDINGS:
            file = self.folder / f"{stem}{ending}"
            if file.is_symlink() or (file.exists() and not file.is_file()):
                raise WrongAnswer(file, "it is a link or a folder, not a file")
        if (file := self._answer(stem)) is None:
            return None
        text = read_input_text(file).strip()
        if request.schema is not None:
            _check_form(file, text, request)
        return Reply(text, model=self.name, file=str(file))

    def _answer(self, stem: str) -> Path | None:
        """An empty file is no answer yet."""
        files = (self.folder / f"{stem}{ending}" for ending in ENDINGS)
        return next((file for file in files if file.is_file() and file.stat().st_size), None)

    def _unanswered(self) -> list[Path]:
        """Our own prompts without an answer: names of blind ones have no number in front."""
        known = (
            file
            for file in sorted(self.folder.glob(f"*{PROMPT}"))
            if ("-" not in file.name) == self.blind
        )
        return [file for file in known if self._answer(_stem_of(file)) is None]

    def _write(self, stem: str, request: Request) -> None:
        parts = [f"# {turn.role}\n\n{turn.text}" for turn in request.messages]
        if request.schema is not None:
            schema = json.dumps(request.schema, ensure_ascii=False)
            parts.append(
                f"# your answer\n\nOne JSON object that matches this JSON schema:\n\n```json\n{schema}\n```"
            )
        ending = ENDINGS[0] if request.schema is not None else ENDINGS[1]
        parts.append(f"Write the answer, and nothing else, to `{stem}{ending}` next to this file.")
        if self.blind:
            limit = f"It may be up to {request.max_output_tokens:,} tokens long, at about four characters per token."
            parts[-1] = f"---\n\n{parts[-1]} {limit} {BLIND}"
        try:
            make_private_folder(self.folder)
            text = "\n\n".join(parts) + "\n"
            with open_private(self.folder / f"{stem}{PROMPT}") as file:
                file.write(text)
        except OSError as error:
            raise UsageError(
                f"{self.folder}: cannot be written: {error.strerror or error}"
            ) from error


def _stem_of(file: Path) -> str:
    return file.name.removesuffix(PROMPT)


def _stem_for(request: Request) -> str:
    title = str((request.schema or {}).get("title", ""))
    turn = 1 + sum(message.role == "assistant" for message in request.messages)
    return f"{title or f'{turn:02d}'}-{digest(request)[:8]}"


def _title_of(file: Path) -> str:
    return _stem_of(file).rpartition("-")[0]


def _check_form(file: Path, text: str, request: Request) -> None:
    from jsonschema import Draft202012Validator  # noqa: PLC0415 - heavy, and only needed here

    try:
        answer = parse_json_answer(text)
    except ValueError as error:
        raise WrongAnswer(file, f"it is not JSON: {describe_json_error(error)}") from error
    errors = list(Draft202012Validator(dict(request.schema or {})).iter_errors(answer))
    if errors:
        wrong = _nearest(min(errors, key=lambda error: len(error.absolute_path)))
        message = wrong.message if len(wrong.message) <= 300 else f"{wrong.message[:299]}…"
        if limit := SIZE_LIMITS.get(str(wrong.validator)):  # not the whole value
            size = counted(len(cast("Sequence[object]", wrong.instance)), limit[0])
            message = f"{size}, but there must be {limit[1]} {wrong.validator_value}"
        raise WrongAnswer(file, f"{wrong.json_path}: {message}")


def _nearest(error: ValidationError) -> ValidationError:
    """What is wrong with the form that was meant: the one whose fixed words are all there."""
    forms: dict[Any, list[ValidationError]] = {}
    for inner in error.context or ():
        forms.setdefault(inner.relative_schema_path[0], []).append(inner)
    for errors in forms.values():
        if all(inner.validator not in ("enum", "const") for inner in errors):
            return _nearest(errors[0])
    return error


async def open_model(address: Address, context: ModelContext) -> HandoffModel:
    return HandoffModel(
        address.name, Path(address.model), price_for(address, context.prices), tell=context.tell
    )
