"""Documents: PDF, HTML, notebooks and Word files are read as Markdown, with a library of an extra."""

from __future__ import annotations

import json
import sys
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pypdf
import pytest

from upskill import UsageError
from upskill.authoring.material import documents
from upskill.authoring.material.material import gather, read_source

WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
PACKAGE = "http://schemas.openxmlformats.org/package/2006"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def pdf(*pages: str) -> bytes:
    """A PDF with a line of text on each page."""
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for number, text in enumerate(pages):
        stream = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET"
        fonts = "<< /Font << /F1 3 0 R >> >>"
        objects += [
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 99 99] /Contents {5 + 2 * number} 0 R /Resources {fonts} >>",
            f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream",
        ]
    data, places = b"%PDF-1.4\n", list[int]()
    for number, written in enumerate(objects, start=1):
        places.append(len(data))
        data += f"{number} 0 obj\n{written}\nendobj\n".encode()
    table = "".join(f"{place:010d} 00000 n \n" for place in places)
    end = (
        f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}trailer\n<< /Size {len(objects) + 1} /Root 1 0 R >>\n"
    )
    return data + f"{end}startxref\n{len(data)}\n%%EOF\n".encode()


def docx(heading: str, text: str) -> bytes:
    paragraph = '<w:p><w:pPr><w:pStyle w:val="Heading1"/></w:pPr><w:r><w:t>{}</w:t></w:r></w:p>'
    body = f"{paragraph.format(heading)}<w:p><w:r><w:t>{text}</w:t></w:r></w:p>"
    held = BytesIO()
    with ZipFile(held, "w") as archive:
        archive.writestr(
            "[Content_Types].xml",
            f'<Types xmlns="{PACKAGE}/content-types"><Default Extension="rels" ContentType="application/vnd.'
            'openxmlformats-package.relationships+xml"/><Override PartName="/word/document.xml"'
            ' ContentType="application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/></Types>',
        )
        archive.writestr(
            "_rels/.rels",
            f'<Relationships xmlns="{PACKAGE}/relationships"><Relationship Id="r1" Type="{OFFICE}/officeDocument"'
            ' Target="word/document.xml"/></Relationships>',
        )
        archive.writestr("word/document.xml", f'<w:document xmlns:w="{WORD}"><w:body>{body}</w:body></w:document>')
    return held.getvalue()


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
        "outputs": [{"output_type": "stream", "text": ["pushed\n"]}, {"ename": "Locked", "evalue": "ring 3"}],
    },
    {"cell_type": "code", "source": "", "outputs": []},
]


def text_of(path: Path) -> str:
    read = read_source(path)
    assert isinstance(read, str)
    return read


def test_each_kind_of_document_is_read_as_markdown(home: Path) -> None:
    (home / "a.pdf").write_bytes(pdf("Run tern push.", "Exit code 17 means locked."))
    assert text_of(home / "a.pdf") == "# Page 1\n\nRun tern push.\n\n# Page 2\n\nExit code 17 means locked."
    (home / "a.HTML").write_text(HTML)
    page = text_of(home / "a.HTML")
    assert page.startswith("# Tern\n\nRun `tern push`.\n\n## Locked\n\n```\ntern unlock\n")
    assert not [word for word in ("color", "alert", "Home", "2026") if word in page]
    (home / "a.ipynb").write_text(json.dumps({"cells": CELLS, "metadata": {}, "nbformat": 4}))
    assert text_of(home / "a.ipynb") == (
        "# Tern\nThe tool.\n\n```python\ntern.push()\n```\n\n```\npushed\n```\n\n```\nLocked: ring 3\n```"
    )
    (home / "a.docx").write_bytes(docx("Tern", "Run tern push."))
    assert text_of(home / "a.docx").endswith("Tern\n\nRun tern push.")
    pieces = gather("push", sources=["a.pdf", "a.HTML"]).pieces
    assert [(piece.id, piece.source) for piece in pieces] == [
        *[("d1", "a.pdf"), ("d2", "a.pdf")],
        *[("d3", "a.HTML"), ("d4", "a.HTML")],
    ]


def test_what_cannot_be_read_is_said_by_name(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, data, why in (
        ("broken.pdf", b"%PDF-1.4 and nothing", "cannot be read as .pdf"),
        ("scan.pdf", pdf(""), "has no text in it"),
        ("broken.docx", b"PK nothing", "cannot be read as .docx"),
        ("broken.ipynb", b"[]", "it has no cells"),
        ("empty.html", b"<script>only()</script>", "has no text in it"),
        ("deep.html", b"<div>" * 5000 + b"x", "cannot be read as .html"),
    ):
        (home / name).write_bytes(data)
        with pytest.raises(UsageError, match=f"{name}.*{why}") as wrong:
            read_source(home / name)
        assert wrong.value.hint
    monkeypatch.setattr(documents, "MAX_UNPACKED", 100)
    (home / "bomb.docx").write_bytes(docx("Tern", "x" * 1000))
    with pytest.raises(UsageError, match="unpacked it has more than"):
        read_source(home / "bomb.docx")


def test_a_missing_library_is_named_with_the_command_that_adds_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "a.pdf").write_bytes(pdf("Run tern push."))
    monkeypatch.setitem(sys.modules, "pypdf", None)
    with pytest.raises(UsageError, match=r"reading \.pdf files needs the package pypdf") as missing:
        read_source(home / "a.pdf")
    assert "[documents]" in missing.value.hint


def test_what_a_page_does_not_show_does_not_reach_the_teacher(home: Path) -> None:
    (home / "a.html").write_text(NOT_SHOWN)
    shown = "\n".join(piece.text for piece in gather("read", sources=["a.html"]).pieces)
    assert shown.split() == ["Shown.", "Paper.", "Kept.", "Half."]
    (home / "a.md").write_text(
        "Run `tern <!-- x -->`.<!-- secret\n-1 -->\n\n```html\n<!-- kept -->\n```\n<!-- secret-2 -->\n"
    )
    assert text_of(home / "a.md") == "Run `tern <!-- x -->`.\n\n```html\n<!-- kept -->\n```\n\n"


def test_a_pdf_that_cannot_be_read_says_why_in_our_own_words(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (home / "page.pdf").write_text("<html>Not found</html>")
    (home / "cut.pdf").write_bytes(pdf("Run tern push.")[:200])
    writer: Any = pypdf.PdfWriter()
    writer.append(BytesIO(pdf("Run tern push.")))
    writer.encrypt("swordfish", algorithm="RC4-128")
    writer.write(home / "locked.pdf")
    for name, said in (
        ("page.pdf", "page.pdf: is not a PDF file, whatever its name says"),
        ("cut.pdf", "cut.pdf: cannot be read as .pdf: it is damaged, not whole, or something else"),
        ("locked.pdf", "locked.pdf: is a PDF file that only a password opens"),
    ):
        with pytest.raises(UsageError) as error:
            read_source(name)
        assert error.value.message == said
        assert ".md or .txt" in error.value.hint
    assert capfd.readouterr() == ("", "")
