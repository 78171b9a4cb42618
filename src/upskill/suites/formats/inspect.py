"""Datasets and logs of inspect_ai: samples with `input` and `target`, and `choices` where one of them is right."""

from __future__ import annotations

from collections.abc import Iterator
from string import ascii_uppercase
from typing import Any

from upskill.errors import UsageError
from upskill.plain import as_list, as_mapping, load_json
from upskill.suites.files import Rows
from upskill.suites.formats import Draft, Format, Source, place_of
from upskill.suites.shapes import check_expected, mapping_or_empty, messages_text, text_of, texts_of
from upskill.traces.readers.inspect_logs import samples_of

_USED = {
    "id",
    "input",
    "target",
    "choices",
    "files",
    "metadata",
    "sandbox",
    "setup",
    "epoch",
    "output",
    "scores",
}


def recognizes(data: object) -> bool:
    return bool(samples_of(data)) or any(map(_is_sample, as_list(data) or [data]))


def _is_sample(item: object) -> bool:
    sample = mapping_or_empty(item)
    return "input" in sample and "target" in sample and not {"expected", "checks"} & set(sample)


def cases(source: Source) -> Iterator[Draft]:
    seen: set[str] = set()
    logged = samples_of(source.data)
    if logged:
        source.notes.change(
            f"this is a log: its answers become metadata, and `upskill trace show {source.where}/ID` shows them"
        )
    for number, item in enumerate(logged or as_list(source.data) or [source.data], start=1):
        sample = mapping_or_empty(item)
        name = text_of(sample.get("id"))
        if name and name in seen and text_of(sample.get("epoch")) not in ("", "1"):
            source.notes.change("epochs: a sample that ran several times becomes one case")
            continue
        seen.add(name)
        yield _read(sample, number, source, logged=bool(logged))


def _read(sample: dict[str, Any], number: int, source: Source, *, logged: bool) -> Draft:
    draft = Draft(place_of(number, sample), source.notes, id=sample.get("id"))
    draft.prompt, only_text = messages_text(sample.get("input"))
    if not only_text:
        draft.problem = UsageError(
            "its input contains an image or another file", "Describe it in words."
        )
    choices = texts_of(sample.get("choices") or [])
    if isinstance(source.data, Rows) and choices:
        choices = [choice.strip() for choice in choices[0].split(",")]
    draft.nothing = "the target is empty"
    if logged:
        draft.nothing += f"; `upskill trace show {source.where}/{sample.get('id')}` shows the trace"
    if choices:
        source.notes.change("choices: the prompt lists them and asks for a line `ANSWER: A`")
        _choose(draft, choices, texts_of(sample.get("target")))
    else:
        draft.checks = check_expected(sample.get("target"))
        if draft.checks and "judge" in draft.checks[0]:
            draft.change("long targets: a judge compares them (--judge)")
    draft.more["files"] = _texts(sample.get("files"), draft, source)
    others = (
        {}
        if logged
        else {key: value for key, value in sample.items() if key not in _USED and value}
    )
    draft.metadata = (
        others | dict(as_mapping(_decoded(sample.get("metadata"))) or {}) | _answered(sample)
    )
    if sample.get("sandbox") or sample.get("setup"):
        draft.leave_out("sandbox", "its image and setup script are not run")
    return draft


def _choose(draft: Draft, choices: list[str], target: list[str]) -> None:
    letters = ascii_uppercase[: len(choices)]
    listed = "\n".join(
        f"{letter}) {choice}" for letter, choice in zip(letters, choices, strict=False)
    )
    right = [
        text.strip()
        if text.strip() in letters
        else letters[choices.index(text)]
        if text in choices
        else ""
        for text in target
    ]
    right = sorted({letter for each in right for letter in each})
    letters_due = (
        "the letter of the right one" if len(right) < 2 else "the letters of all that are right"
    )
    draft.prompt = (
        f"{draft.prompt.rstrip()}\n\n{listed}\n\nEnd with a line `ANSWER: ` and {letters_due}."
    )
    if right:
        begun, ended = r"^[\s*_`]*ANSWER", r"[\s.)*_`]*$"
        later = rf"(?![\s\S]*{begun}[\s*_`]*(?::|[A-Z]{ended}))"  # only the last line that answers counts
        pattern = r"[\s,and*_`]*".join(right)
        draft.checks = [{"regex": rf"(?im){begun}[\s*_`:]*{pattern}{ended}{later}"}]


def _texts(files: object, draft: Draft, source: Source) -> dict[str, str]:
    texts: dict[str, str] = {}
    for path, content in mapping_or_empty(_decoded(files)).items():
        try:
            texts[path] = source.text_or_file(content)
        except UsageError as error:
            draft.leave_out("file", error.message)
    return texts


def _decoded(cell: object) -> object:
    try:
        return load_json(cell) if isinstance(cell, str) and cell.lstrip().startswith("{") else cell
    except ValueError:
        return cell


def _answered(sample: dict[str, Any]) -> dict[str, Any]:
    output = mapping_or_empty(sample.get("output"))
    answer = output.get("completion")
    if answer is None and (listed := as_list(output.get("choices"))):
        message = mapping_or_empty(mapping_or_empty(listed[0]).get("message"))
        answer = messages_text([message])[0].removeprefix("Assistant: ")
    scores = {
        name: score.get("value")
        for name, item in mapping_or_empty(sample.get("scores")).items()
        if (score := as_mapping(item))
    }
    return ({"answered": answer} if answer else {}) | ({"scores": scores} if scores else {})


FORMAT = Format("inspect_ai", recognizes, cases)
