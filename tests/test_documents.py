"""Documents: PDF, HTML, notebooks and Word files are read as Markdown, with a library of an extra."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pypdf
import pytest

from conftest import REPOSITORY
from upskill import UsageError
from upskill.authoring.material import documents
from upskill.authoring.material.material import Document, read_material, read_source

FILES = REPOSITORY / "tests" / "fixtures" / "documents"
HTML = """<html><head><style>p { color: red }</style><script>alert("x")</script></head><body><nav>Home</nav><main>
<h1>Tern</h1><p>Run <code>tern push</code>.</p><h2>Locked</h2><pre><code>tern unlock
</code></pre></main><footer>2026</footer></body></html>"""
NOT_SHOWN = """<html><head><style>.ghost, #gone { display : none } @media print { .paper { display: none } }
.odd::before { content: "x" } /* .kept { display: none } */</style></head><body style="visibility: hidden"><p>Shown.</p>
<p style="color: red; DISPLAY:none">secret-1</p><div hidden>secret-2<p>deep</p></div><!-- secret-3 --><p class="ghost">
secret-4</p><p id="gone">secret-5</p><template>secret-6</template><noscript>secret-7</noscript>
<script>secret8</script><span style="font-size:0">secret-9</span><p class="paper">Paper.</p><p class="kept">Kept.</p>
<p style="opacity: 0.5">Half.</p></body></html>"""
CELLS: list[dict[str, Any]] = [
    {"cell_type": "markdown", "source": ["# Tern\n", "The tool."]},
    {
        "cell_type": "code",
        "source": "tern.push()",
        "outputs": [
            {"output_type": "stream", "text": ["pushed\n"]},
            {"ename": "Locked", "evalue": "ring 3"},
        ],
    },
    {"cell_type": "code", "source": "", "outputs": []},
]


def text_of(path: Path) -> str:
    read = read_source(path)
    assert isinstance(read, Document)
    return read.text


def test_each_kind_of_document_is_read_as_markdown(home: Path) -> None:
    shutil.copy(FILES / "tern.pdf", home / "a.pdf")
    assert (
        text_of(home / "a.pdf")
        == "# Page 1\n\nRun tern push.\n\n# Page 2\n\nExit code 17 means locked."
    )
    (home / "a.HTML").write_text(HTML)
    page = text_of(home / "a.HTML")
    assert page.startswith("# Tern\n\nRun `tern push`.\n\n## Locked\n\n```\ntern unlock\n")
    assert not [word for word in ("color", "alert", "Home", "2026") if word in page]
    (home / "a.ipynb").write_text(json.dumps({"cells": CELLS, "metadata": {}, "nbformat": 4}))
    assert text_of(home / "a.ipynb") == (
        "# Tern\nThe tool.\n\n```python\ntern.push()\n```\n\n```\npushed\n```\n\n```\nLocked: ring 3\n```"
    )
    shutil.copy(FILES / "tern.docx", home / "a.docx")
    assert text_of(home / "a.docx").endswith("Tern\n\nRun tern push.")
    pieces = read_material("push", sources=["a.pdf", "a.HTML"]).pieces
    assert [(piece.id, piece.source) for piece in pieces] == [
        *[("d1", "a.pdf"), ("d2", "a.pdf")],
        *[("d3", "a.HTML"), ("d4", "a.HTML")],
    ]


def test_what_cannot_be_read_is_said_by_name(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, data, why in (
        ("broken.pdf", b"%PDF-1.4 and nothing", "could not be read as .pdf"),
        ("scan.pdf", (FILES / "blank.pdf").read_bytes(), "contains no text"),
        ("broken.docx", b"PK nothing", "could not be read as .docx"),
        ("broken.ipynb", b"[]", "it has no cells"),
        ("empty.html", b"<script>only()</script>", "contains no text"),
        ("deep.html", b"<div>" * 5000 + b"x", "could not be read as .html"),
    ):
        (home / name).write_bytes(data)
        with pytest.raises(UsageError, match=f"{name}.*{why}") as wrong:
            read_source(home / name)
        assert wrong.value.hint
    monkeypatch.setattr(documents, "MAX_UNPACKED", 100)
    with pytest.raises(UsageError, match="MB when unpacked"):
        read_source(FILES / "tern.docx")


def test_a_missing_library_is_named_with_the_command_that_adds_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pypdf", None)
    with pytest.raises(
        UsageError, match=r"reading \.pdf files needs the `pypdf` package"
    ) as missing:
        read_source(FILES / "tern.pdf")
    assert "[documents]" in missing.value.hint


def test_what_a_page_does_not_show_does_not_reach_the_teacher(home: Path) -> None:
    (home / "a.html").write_text(NOT_SHOWN)
    shown = "\n".join(piece.text for piece in read_material("read", sources=["a.html"]).pieces)
    assert shown.split() == ["Shown.", "Paper.", "Kept.", "Half."]
    (home / "a.md").write_text(
        "Run `tern <!-- x -->`.<!-- secret\n-1 -->\n\n```html\n<!-- kept -->\n```\n<!-- secret-2 -->\n"
    )
    assert text_of(home / "a.md") == "Run `tern <!-- x -->`.\n\n```html\n<!-- kept -->\n```\n\n"


def test_a_pdf_that_cannot_be_read_says_why_in_our_own_words(
    home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (home / "page.pdf").write_text("<html>Not found</html>")
    (home / "cut.pdf").write_bytes((FILES / "tern.pdf").read_bytes()[:200])
    writer: Any = pypdf.PdfWriter()
    writer.append(FILES / "tern.pdf")
    writer.encrypt("swordfish", algorithm="RC4-128")
    writer.write(home / "locked.pdf")
    for name, said in (
        ("page.pdf", "page.pdf: not a PDF file, despite its name"),
        (
            "cut.pdf",
            "cut.pdf could not be read as .pdf: it is damaged, incomplete or a different kind of file",
        ),
        ("locked.pdf", "locked.pdf: this PDF file needs a password"),
    ):
        with pytest.raises(UsageError) as error:
            read_source(name)
        assert error.value.message == said
        assert ".md or .txt" in error.value.hint
    assert capfd.readouterr() == ("", "")
