"""Documents that are not plain text (PDF, HTML, notebooks, Word) as Markdown, read by libraries of an extra."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from io import BytesIO
from typing import Any
from zipfile import ZipFile

from upskill.errors import UsageError
from upskill.installation import add_extra
from upskill.plain import dict_or_empty, list_or_empty, load_json

EXTRA = "documents"
_log = logging.getLogger(__name__)
MAX_UNPACKED = 200_000_000  # bytes of a Word file
HIDING = re.compile(
    r"display\s*:\s*none|visibility\s*:\s*(?:hidden|collapse)|(?:opacity|font-size)\s*:\s*0(?![.\d])",
    re.I,
)
AT_RULE = re.compile(
    r"@[^{};]*\{(?:[^{}]*\{[^{}]*\})*[^{}]*\}|@[^{};]*;|/\*.*?\*/", re.DOTALL
)  # for print, for phones
NOT_CONTENT = ("script", "style", "noscript", "template", "svg", "nav", "footer", "aside", "form")


def read_document(name: str, suffix: str, data: bytes) -> str:
    try:
        text = KINDS[suffix](data)
    except ImportError as error:
        raise UsageError(
            f"{name}: reading {suffix} files needs the `{error.name}` package, which is not installed",
            f"Run `{add_extra(EXTRA)}`, or save the text as a .md or .txt file.",
        ) from error
    except _Unreadable as error:
        raise UsageError(f"{name}: {error}", "Save its text as a .md or .txt file.") from error
    except (Exception, RecursionError) as error:  # a broken file can fail in any way
        _log.debug("%s: %s", name, error)
        raise UsageError(
            f"{name} could not be read as {suffix}: it is damaged, incomplete or a different kind of file",
            "Open it in the program it was made with, and save its text as a .md or .txt file.",
        ) from error
    if not text.strip():
        raise UsageError(
            f"{name}: contains no text",
            "A scan has only pictures of text; run it through OCR first.",
        )
    return text


def without_comments(markdown: str) -> str:
    """Markdown without HTML comments, which no reader sees; in code they are text."""
    return re.sub(
        r"^(?P<fence>```+|~~~+).*?^(?P=fence)|`[^`\n]*`|(?P<comment><!--.{0,20000}?-->)",
        lambda match: "" if match["comment"] else match[0],
        markdown,
        flags=re.DOTALL | re.MULTILINE,
    )


class _Unreadable(Exception):
    """Why a document has no text for us, in our own words."""


def _pdf(data: bytes) -> str:
    if b"%PDF-" not in data[:1024]:
        raise _Unreadable("not a PDF file, despite its name")
    pypdf: Any = import_module("pypdf")
    logging.getLogger("pypdf").setLevel(
        logging.CRITICAL
    )  # it would say in words of its own what is wrong
    reader: Any = pypdf.PdfReader(BytesIO(data))
    if reader.is_encrypted:
        try:
            opened = reader.decrypt("")
        except Exception:  # a way of encrypting that takes another library
            opened = False
        if not opened:
            raise _Unreadable("this PDF file needs a password")
    texts = (str(page.extract_text()).strip() for page in reader.pages)
    return "\n\n".join(f"# Page {number}\n\n{text}" for number, text in enumerate(texts, 1) if text)


def _html(data: bytes | str) -> str:
    soup: Any = import_module("bs4").BeautifulSoup(data, "html.parser")
    hidden = [*soup(hidden=True), *soup(style=HIDING), *_hidden_by_rules(soup)]
    for tag in [*soup(NOT_CONTENT), *(tag for tag in hidden if tag.name not in ("html", "body"))]:
        if not tag.decomposed:
            tag.decompose()
    content = soup.find("main") or soup.find("article") or soup.body or soup
    return str(import_module("markdownify").markdownify(str(content), heading_style="ATX")).strip()


def _hidden_by_rules(soup: Any) -> Iterator[Any]:
    for sheet in soup("style"):
        for selector, rules in re.findall(
            r"([^{}]+)\{([^{}]*)\}", AT_RULE.sub("", sheet.get_text())
        ):
            if HIDING.search(rules):
                try:
                    yield from soup.select(selector.strip())
                except Exception:  # noqa: S112 - a selector that our library does not know hides nothing
                    continue


def _docx(data: bytes) -> str:
    mammoth: Any = import_module("mammoth")
    with ZipFile(BytesIO(data)) as archive:
        if sum(member.file_size for member in archive.infolist()) > MAX_UNPACKED:
            raise _Unreadable(f"too large: more than {MAX_UNPACKED // 10**6} MB when unpacked")
    return _html(str(mammoth.convert_to_html(BytesIO(data)).value))


def _notebook(data: bytes) -> str:
    notebook = dict_or_empty(load_json(data))
    if "cells" not in notebook:
        raise _Unreadable("not a notebook: it has no cells")
    language = dict_or_empty(dict_or_empty(notebook.get("metadata")).get("kernelspec")).get(
        "language", "python"
    )
    parts: list[str] = []
    for cell in map(dict_or_empty, list_or_empty(notebook["cells"])):
        source = _joined(cell.get("source")).strip()
        if not source or cell.get("cell_type") != "code":
            parts.append(source)
            continue
        parts.append(f"```{language}\n{source}\n```")
        for output in map(dict_or_empty, list_or_empty(cell.get("outputs"))):
            text = _joined(
                output.get("text") or dict_or_empty(output.get("data")).get("text/plain")
            )
            text = text or f"{output.get('ename', '')}: {output.get('evalue', '')}".strip(": ")
            parts.append(f"```\n{text.strip()}\n```" if text.strip() else "")
    return "\n\n".join(filter(None, parts))


def _joined(source: object) -> str:
    return source if isinstance(source, str) else "".join(map(str, list_or_empty(source)))


KINDS: dict[str, Callable[[bytes], str]] = {
    ".pdf": _pdf,
    ".html": _html,
    ".htm": _html,
    ".ipynb": _notebook,
    ".docx": _docx,
}
