"""What a teacher writes from. Every piece but the task has an id that a line of a skill can cite, and no secrets.

Ids: `e1` an example, `d3` a part of a document, `s12` a step of a session (`r2-s12` of the second one), `a1` an answer
to a question of the teacher. Nothing here judges what a step is worth: the teacher gets the steps in the order of time.

What a skill was made from is kept in its folder as `evals/material.jsonl`, never installed or packed. A row is a piece:
`{"id", "kind", "from", "text"}`. With `sha256` in place of the text, the piece is known and not kept (the examples of
this repository are like that); with `"part": true`, the text is only its beginning.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

from upskill.authoring.material.documents import KINDS, read_document, without_comments
from upskill.authoring.material.mcp import list_tools
from upskill.authoring.material.sessions import in_order_of_time, session_labels
from upskill.authoring.saving.provenance import MATERIAL, OWN_KNOWLEDGE, Provenance
from upskill.errors import UsageError, did_you_mean
from upskill.inputs import read_input, read_input_text
from upskill.plain import as_list, counted, dict_or_empty, digest_text, load_json, short
from upskill.skills import Skill, estimate_tokens
from upskill.skills.markdown import read_fences
from upskill.traces import FORMATS, Trace
from upskill.traces.formats import Sample, describe_skipped, detect_format, read_trace
from upskill.traces.redaction.redact import Redactor, redact, redact_trace
from upskill.traces.sessions import SESSION_AGENTS, find_trace

TASK = "task"  # may be cited like a piece, as may OWN_KNOWLEDGE
MAX_DOCUMENT_BYTES = 20_000_000  # bytes
PART_CHARACTERS = 1_500  # of a document, about
MAX_EXCERPT = 400  # characters of a piece that are stored with a skill that cites it
MAX_FILES = 1_000  # of a folder
MAX_REASONS = 3  # why files of a folder were left out
MANIFESTS = ("SKILL.md", "skill.md")
_REMINDER = re.compile(r"\s*<system-reminder>.*?</system-reminder>", re.S)


@dataclass(frozen=True, slots=True)
class Tools:
    schemas: tuple[tuple[dict[str, Any], str], ...]  # and where each is from
    about: str  # how they were read


@dataclass(frozen=True, slots=True)
class Document:
    text: str
    characters: int  # of the file, or of the text in it
    note: str = ""  # on the characters


@dataclass(frozen=True, slots=True)
class Piece:
    id: str
    kind: str  # example, tool, document, step, failure, note, answer
    text: str
    source: str = ""  # for people
    based_on: tuple[str, ...] = ()  # the pieces that a note or a quotation is made from

    @property
    def tokens(self) -> int:
        return estimate_tokens(self.text) + 20

    @property
    def excerpt(self) -> str:
        return _cut(self.text)

    def to_dict(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"id": self.id, "kind": self.kind, "text": self.text}
        return fields | ({"from": list(self.based_on)} if self.based_on else {})


@dataclass(frozen=True)
class Material:
    task: str
    pieces: tuple[Piece, ...] = ()
    skill: Skill | None = None  # to be improved
    traces: tuple[Trace, ...] = ()  # without their secrets, in the order of their times
    redacted: Mapping[str, int] = field(
        default_factory=dict[str, int]
    )  # how many secrets of each kind
    sources: tuple[str, ...] = ()  # how each was read and how much of it a teacher sees, in words
    left_out: tuple[str, ...] = ()  # what else a teacher does not see
    partial: frozenset[str] = frozenset()  # ids of pieces of which only the beginning is known

    def __repr__(self) -> str:
        return f"Material({short(self.task)}, {counted(len(self.pieces), 'piece')}, ~{self.tokens} tokens)"

    @property
    def tokens(self) -> int:
        return sum(piece.tokens for piece in self.pieces)

    @property
    def by_id(self) -> dict[str, Piece]:
        return {piece.id: piece for piece in self.pieces}

    @property
    def ids(self) -> frozenset[str]:
        behind = (name for piece in self.pieces for name in piece.based_on)
        return frozenset([TASK, OWN_KNOWLEDGE, *(piece.id for piece in self.pieces), *behind])

    def quoted(self) -> str:
        return quote(self.pieces)

    def cited(self, ids: Iterable[str]) -> tuple[Piece, ...]:
        """The pieces with these ids, or behind them; all of them where an id is missing."""
        wanted = {*ids} - {TASK, OWN_KNOWLEDGE}
        pieces = tuple(each for each in self.pieces if wanted & {each.id, *each.based_on})
        return pieces or self.pieces

    def resolve_citations(self, ids: Iterable[str]) -> tuple[str, ...]:
        """The ids that exist, with notes replaced by the pieces they are based on."""
        existing: list[str] = []
        for name in ids:
            piece = self.by_id.get(name)
            existing += (
                piece.based_on if piece and piece.based_on else [name] if name in self.ids else []
            )
        return tuple(dict.fromkeys(existing))

    def excerpts(self) -> dict[str, dict[str, str]]:
        return {TASK: {"kind": TASK, "from": "", "text": _cut(self.task)}} | {
            piece.id: {"kind": piece.kind, "from": piece.source, "text": piece.excerpt}
            for piece in self.pieces
        }


def quote(pieces: Iterable[Piece]) -> str:
    """Pieces as lines of JSON between marks with a hash of them: nothing inside can end the quotation."""
    lines = "\n".join(json.dumps(piece.to_dict(), ensure_ascii=False) for piece in pieces)
    mark = digest_text(lines)
    return f"<<<MATERIAL {mark}\n{lines}\nMATERIAL {mark}>>>"


def read_material(
    task: str,
    *,
    examples: Sequence[str] = (),
    tools: Sequence[Tools] = (),
    sources: Sequence[str | Path | Skill | Trace] = (),
) -> Material:
    """Read everything that a person gave; UsageError, before anything is paid for, if something cannot be used."""
    redactor = Redactor()
    told: list[str] = []
    pieces = [*_example_pieces(examples, redactor, told), *_tool_pieces(tools, told)]
    skill: Skill | None = None
    traces: list[Trace] = []
    for name, read in _open_sources(sources, told):
        if isinstance(read, Skill):
            if skill is not None:
                raise UsageError(
                    f"{name}: only one skill can be improved at a time; {skill.name} was given first"
                )
            skill = read
            place = name.removeprefix("skill:")
            told.append(f"{place}: skill to improve, about {skill.tokens:,} tokens")
        elif isinstance(read, Trace):
            traces.append(redact_trace(read, redactor).trace)
        else:
            file = name.removeprefix("doc:")
            shown = f"{len(read.text):,} of {read.characters:,} characters"
            told.append(f"{file}: document, {shown}{read.note}")
            first = 1 + sum(piece.kind == "document" for piece in pieces)
            for number, text in enumerate(_parts(read.text), first):
                pieces.append(Piece(f"d{number}", "document", text, Path(file).name))
    pieces = [replace(piece, text=redactor.text(piece.text)) for piece in pieces]
    # Sessions are redacted before they become JSON, in which the `\n` after a password would look like a part of it.
    sessions = in_order_of_time(traces)
    for number, label in enumerate(session_labels(sessions)):
        steps, about = _step_pieces(sessions[number], number, label)
        pieces += steps
        told.append(about)
    # A secret that was recognized in one piece may stand in another without what gave it away.
    pieces = [replace(piece, text=redactor.replace_known(piece.text)) for piece in pieces]
    return Material(
        task=redactor.text(task.strip()),
        pieces=tuple(pieces),
        skill=skill,
        traces=tuple(sessions),
        redacted=dict(redactor.counts),
        sources=tuple(told),
    )


def _example_pieces(
    examples: Sequence[str], redactor: Redactor, told: list[str]
) -> Iterator[Piece]:
    for number, example in enumerate(examples, start=1):
        before, _, after = (part.strip() for part in example.partition("->"))
        if not before or not after:
            raise UsageError(f"{example!r} is not an example", 'Write -e "input -> output".')
        text = json.dumps(redactor.value({"input": before, "output": after}), ensure_ascii=False)
        yield Piece(f"e{number}", "example", text, "-e")
    if examples:
        told.append(f"-e: {counted(len(examples), 'example')}")


def _tool_pieces(tools: Sequence[Tools], told: list[str]) -> Iterator[Piece]:
    schemas: dict[str, str] = {}
    for each in tools:
        told.append(each.about)
        for tool, source in each.schemas:
            schemas[json.dumps(tool, ensure_ascii=False)] = source
    for number, (schema, source) in enumerate(schemas.items(), start=1):
        yield Piece(f"t{number}", "tool", schema, source)


def _open_sources(
    sources: Sequence[str | Path | Skill | Trace], told: list[str]
) -> Iterator[tuple[str, Skill | Trace | Document]]:
    for source in sources:
        if isinstance(source, Skill):
            yield str(source.folder or source.name), source
        elif isinstance(source, Trace):
            yield source.source, source
        elif _is_folder(*_split(source)):
            yield from _read_folder(*_split(source), told)
        else:
            yield str(source), read_source(source)


def _split(name: str | Path) -> tuple[str, Path]:
    """The kind that a name forces, and the path."""
    kind, _, after = str(name).partition(":")
    return (kind, Path(after)) if kind in ("doc", "trace", "skill") and after else ("", Path(name))


def _is_folder(kind: str, path: Path) -> bool:
    """Of things to read, which is no skill."""
    with suppress(OSError):
        if path.is_dir() and kind != "skill":
            return bool(kind) or not any((path / name).exists() for name in MANIFESTS)
    return False


def _read_folder(
    kind: str, folder: Path, told: list[str]
) -> Iterator[tuple[str, Trace | Document]]:
    """The documents and sessions below a folder by their paths; `told` gets what was left out."""
    left_out: Counter[str] = Counter()
    opened: list[tuple[str, Trace | Document]] = []
    reasons: list[str] = []
    for path in sorted(_walk(folder, left_out)):
        if len(opened) >= MAX_FILES:
            raise UsageError(
                f"{folder}: more than {MAX_FILES:,} files",
                "Choose a smaller folder, or pass single files.",
            )
        # A skill in a folder of other things is one of the things, not the one to improve.
        forced = "doc" if path.name in MANIFESTS else kind
        try:
            read = read_source(f"{forced}:{path}" if forced else path)
        except UsageError as error:
            left_out["unreadable"] += 1
            reasons.append(error.message)
            continue
        if not isinstance(read, Skill):
            opened.append((str(path), read))
    counts = ", ".join(f"{number:,} {reason}" for reason, number in sorted(left_out.items()))
    if reasons:
        more = ["…"] if len(reasons) > MAX_REASONS else []
        counts += f" ({'; '.join([*reasons[:MAX_REASONS], *more])})"
    if not opened:
        raise UsageError(
            f"{folder}: no SKILL.md and no readable file in it{counts and ': '}{counts}"
        )
    sessions = sum(isinstance(read, Trace) for _, read in opened)
    about = f"{folder}: folder, {counted(len(opened) - sessions, 'document')} and {counted(sessions, 'session')}"
    told.append(about + (f"; left out: {counts}" if counts else ""))
    yield from opened


def _walk(folder: Path, left_out: Counter[str]) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.name.startswith("."):
            left_out["hidden"] += 1
        elif path.is_symlink():
            left_out["linked"] += 1
        elif path.is_dir():
            if path.name == "subagents" and folder.with_name(f"{folder.name}.jsonl").is_file():
                continue  # read with its session
            if path.name in ("message", "part") and (folder / "session").is_dir():
                continue  # opencode's: read with its session, too
            yield from _walk(path, left_out)
        else:
            yield path


def read_source(name: str | Path) -> Skill | Trace | Document:
    """A skill, trace or document: `doc:PATH`, `trace:PATH` and `skill:PATH` say which; also `claude-code:last`."""
    agent, _, after = str(name).partition(":")
    if agent in SESSION_AGENTS and after:
        return read_trace(find_trace(str(name)))
    kind, path = _split(name)
    address = str(name).removeprefix(f"{kind}:")
    if address.startswith(("http://", "https://")):
        raise UsageError(
            f"{address}: upskill reads files, not web pages",
            f"Save the page first: curl -L -o page.html '{address}'. Then use --from page.html.",
        )
    try:
        is_skill = path.is_dir() or path.name.lower() == "skill.md"
        exists = path.exists()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error
    if not exists:
        raise UsageError(
            f"{path}: no such file or folder", "Pass a trace, a document or a skill's folder."
        )
    if kind == "skill" or (is_skill and not kind):
        return Skill.load(path)
    if kind == "trace":
        return read_trace(path)
    if kind == "doc" or path.suffix.lower() in KINDS or not _is_trace(path):
        return _as_document(path)
    try:
        return read_trace(path)
    except UsageError as error:
        raise UsageError(
            error.message, f"{error.hint} If it is a document, write --from doc:{path}."
        ) from error


def _is_trace(path: Path) -> bool:
    try:
        return bool(detect_format(path))
    except UsageError:
        with suppress(UsageError):
            return bool(Sample.open(path).foreign_note)  # a session, although none that can be read
        return False


def no_task(material: Material, sources: Sequence[str]) -> UsageError:
    """What is wrong where nobody said what to do; a file that was meant as a trace may be in an unknown format."""
    why = ""
    if sources and not material.traces and not _is_folder(*_split(sources[0])):
        why = f": {sources[0]}: only commands, no message from a person"
        try:
            read_trace(_split(sources[0])[1])
        except UsageError as error:
            why = f": {error.message}"
    return UsageError(
        f"no task was given, and no trace to take one from{why}",
        'Say what the skill is for: upskill generate "…" --from TRACE. Known trace formats:'
        f" {', '.join(FORMATS.names())}.",
    )


def _as_document(path: Path) -> Document:
    data = read_input(path, most=MAX_DOCUMENT_BYTES)
    if (suffix := path.suffix.lower()) in KINDS:
        text = read_document(str(path), suffix, data)
        return Document(text, len(text), f" of text in a {suffix} file of {len(data):,} bytes")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path}: neither a trace nor UTF-8 text", "Save it as plain text first."
        ) from error
    shown = without_comments(text) if path.suffix.lower() in (".md", ".markdown") else text
    if not shown.strip() or "\0" in text:
        raise UsageError(f"{path}: contains no text")
    return Document(
        shown, len(text), "; left out: comments, which no reader sees" if shown != text else ""
    )


def read_tools(name: str) -> Tools:
    """The tools in a file of MCP schemas or of a running server, or the one named after `#`."""
    file, _, tool_name = name.partition("#")
    hint = "Use --tool FILE or --tool FILE#NAME, where FILE has MCP tool schemas."
    try:
        if file.startswith(("mcp:", "http://", "https://")):
            value: object = list_tools(file)
        else:
            value = load_json(read_input_text(file, hint=hint))
    except OSError as error:  # of a running server
        raise UsageError(f"{file}: {error.strerror or error}", hint) from error
    except ValueError as error:
        raise UsageError(f"{file}: not JSON: {error}", hint) from error
    page = dict_or_empty(value)
    page = dict_or_empty(page.get("result", page))
    entries = _entries(value)
    tools = {str(tool["name"]): tool for tool in entries if isinstance(tool.get("name"), str)}
    if not tools:
        raise UsageError(
            f"{file}: contains no tools", "A tool needs a name, a description and an inputSchema."
        )
    if tool_name and tool_name not in tools:
        raise UsageError(f"{file}: no tool named {tool_name!r}", did_you_mean(tool_name, tools))
    chosen = {tool_name: tools[tool_name]} if tool_name else tools
    about = f"{file}: {len(chosen)} of {counted(len(entries), 'tool')}"
    if nameless := sum(not tool.get("name") for tool in entries):
        about += f"; left out: {nameless} without a name"
    if page.get("nextCursor"):
        about += "; the list is incomplete (it has a nextCursor): add the tools from the next page"
    schemas = ((tool, f"{Path(file).name}#{name}") for name, tool in chosen.items())
    return Tools(tuple(schemas), about)


def _entries(value: object) -> list[dict[str, Any]]:
    """The entries of a list of tools, whether it is bare or in a reply of a server; also a tool alone."""
    fields = dict_or_empty(value)
    for key in ("result", "tools"):
        if key in fields:
            return _entries(fields[key])
    items = as_list(value) or ([fields] if {"name", "function"} & fields.keys() else [])
    tools = [dict_or_empty(item) for item in items]
    return [dict_or_empty(tool.get("function", tool)) for tool in tools]  # as chat completions do


def _parts(text: str) -> Iterator[str]:
    """Split at headings and empty lines, but never inside a code block."""
    part: list[str] = []
    size = 0
    for line, kind in read_fences(text.splitlines()):
        starts = kind == "text" and (
            bool(re.match(r"#{1,6} ", line)) or (not line.strip() and size > PART_CHARACTERS)
        )
        if starts and size:
            yield "\n".join(part).strip()
            part, size = [], 0
        part.append(line)
        size += len(line.strip())
    if size:
        yield "\n".join(part).strip()


def _step_pieces(trace: Trace, number: int, label: str) -> tuple[list[Piece], str]:
    """The steps of a session, counted from 1, but for empty ones and the agent's set-up; and how much of it that is.

    Where there are several sessions, each step says when its session began.
    """
    prefix = f"r{number + 1}-" if number else ""
    source = Path(trace.source).name or trace.agent
    pieces: list[Piece] = []
    left_out: Counter[str] = Counter()
    for position, step in enumerate(trace.steps, start=1):
        text, output = (_REMINDER.sub("", each) for each in (step.text, step.output))
        if step.kind == "system":
            left_out["set-up step"] += 1
        elif not (text or step.tool or output):
            left_out["empty step"] += 1
        else:
            left_out["system reminder"] += (text, output) != (step.text, step.output)
            status = step.status if step.status != "unknown" else ""
            fields = {
                "by": step.kind,
                "session": label,
                "agent": step.agent,
                "text": text,
                "tool": step.tool,
                "arguments": dict(step.arguments),
                "status": status,
                "output": output,
            }
            shown = {name: value for name, value in fields.items() if value}
            line = json.dumps(shown, ensure_ascii=False, default=str)
            pieces.append(Piece(f"{prefix}s{position}", "step", line, source))
    about = f"{trace.source or trace.agent or 'session'}: trace"
    about += f" ({trace.agent})" if trace.agent else ""
    about += f", {label}" if label else ""
    parts = [f"{about}, {len(pieces):,} of {counted(len(trace.steps), 'step')}"]
    kinds = [counted(number, kind) for kind, number in left_out.most_common() if number]
    if kinds:
        parts.append(f"left out: {', '.join(kinds)}")
    parts += trace.warnings
    if trace.skipped:
        parts.append(f"skipped in the file: {describe_skipped(trace.skipped)}")
    return pieces, "; ".join(parts)


def chunks(pieces: Iterable[Piece], budget: int) -> list[list[Piece]]:
    """Groups of at most `budget` tokens. A larger piece is cut into parts that keep its id."""
    groups: list[list[Piece]] = []
    room = 0
    for piece in pieces:
        for part in _cut_to_fit(piece, budget):
            if part.tokens > room or not groups:
                groups.append([])
                room = budget
            groups[-1].append(part)
            room -= part.tokens
    return groups


def _cut_to_fit(piece: Piece, budget: int) -> list[Piece]:
    if piece.tokens <= budget:
        return [piece]
    size = max(200, budget - 40)  # characters: four bytes make a token, and some letters have four
    texts = [piece.text[start : start + size] for start in range(0, len(piece.text), size)]
    return [
        replace(piece, text=f"(part {number} of {len(texts)}) {text}")
        for number, text in enumerate(texts, 1)
    ]


def _cut(text: str) -> str:
    return text if len(text) <= MAX_EXCERPT else text[: MAX_EXCERPT - 1] + "…"


def free_id(name: str, used: Collection[str]) -> str:
    if name not in used:
        return name
    return next(free for number in count(2) if (free := f"{name}-{number}") not in used)


# What an older skill was made from
# ------------------------------------------------------------------------------------------------


def add_material(skill: Skill, material: Material) -> Skill:
    lines: list[str] = []
    for piece in material.pieces:
        row = {"id": piece.id, "kind": piece.kind, "from": piece.source, "text": piece.text}
        part = {"part": True} if piece.id in material.partial else {}
        lines.append(json.dumps({**row, **part}, ensure_ascii=False) + "\n")
    return skill.with_file(MATERIAL, "".join(lines).encode()) if lines else skill


def with_stored(material: Material) -> Material:
    """With the pieces that the older skill was made from. New pieces get other ids, unless they are the same."""
    older = material.skill
    if older is None:
        return material
    lines = (older.read(MATERIAL) or b"").decode().splitlines()
    rows = {str(row.get("id")): row for row in map(dict_or_empty, map(load_json, lines))}
    is_stored = bool(rows)
    # What the lines of the skill cite is kept beside them too, up to a length.
    for name, cited in Provenance.of(older).evidence.items():
        if name not in (TASK, OWN_KNOWLEDGE) and "text" not in rows.get(name, {}):
            rows[name] = {**cited, "part": True}
    stored = [
        Piece(name, row.get("kind", "note"), redact(str(row["text"])), str(row.get("from", "")))
        for name, row in rows.items()
        if row.get("text")
    ]
    known = {(piece.source, piece.text) for piece in stored}
    used = {piece.id for piece in stored}
    pieces = [*stored]
    for piece in material.pieces:
        if (piece.source, piece.text) not in known:
            pieces.append(replace(piece, id=free_id(piece.id, used)))
            used.add(pieces[-1].id)
    partial = frozenset(name for name, row in rows.items() if row.get("part"))
    again = "pass it again with --from"
    left_out = [*material.left_out]
    if missing := len(rows) - len(stored):
        what = counted(missing, "piece")
        left_out.append(f"{what} of the older material, of which only hashes are stored: {again}")
    if partial and not is_stored:
        left_out.append(
            f"the rest of what {older.name} was made from, as only what its lines cite is stored:"
            f" {again} to show it all"
        )
    return replace(material, pieces=tuple(pieces), partial=partial, left_out=tuple(left_out))
