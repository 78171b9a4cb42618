"""A picture as PNG, drawn by resvg: the extra `png`."""

from __future__ import annotations

import re
import struct
import zlib
from functools import cache

from upskill.errors import UsageError
from upskill.installation import add_extra

SOFTWARE = b"tEXtSoftware\0upskill"
SHARPNESS = 2  # pixels of the file for each px of the picture, as on most screens
FONTS = (
    *(
        "DejaVu Sans",
        "Noto Sans",
        "Liberation Sans",
        "Arial",
        "Helvetica",
        "Helvetica Neue",
        "Segoe UI",
        "Roboto",
    ),
    *(
        "Ubuntu",
        "Cantarell",
        "Open Sans",
        "Inter",
        "Verdana",
        "Tahoma",
        "FreeSans",
        "Nimbus Sans",
        "Lato",
    ),
)
_SAMPLE = '<svg xmlns="http://www.w3.org/2000/svg" width="20" height="20"><text y="15" font-family="{}">{}</text></svg>'


def to_png(svg: str) -> bytes:
    """UsageError if the extra or any font is missing."""
    font = find_font()
    # resvg stretches some texts far beyond their textLength.
    picture = _render(re.sub(r' textLength="[^"]*" lengthAdjust="[^"]*"', "", svg), font, SHARPNESS)
    header, rest = picture[:33], picture[33:]  # the Software chunk goes after the first chunk
    return (
        header
        + struct.pack(">I", len(SOFTWARE) - 4)
        + SOFTWARE
        + struct.pack(">I", zlib.crc32(SOFTWARE))
        + rest
    )


def _render(svg: str, font: str | None = None, zoom: int = 1) -> bytes:
    try:
        import resvg_py  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise UsageError(
            f"PNG needs the `{error.name}` package, which is not installed",
            f"Run `{add_extra('png')}`, or use a file name that ends in .svg.",
        ) from error
    return bytes(resvg_py.svg_to_bytes(svg_string=svg, zoom=zoom, sans_serif_family=font))


@cache
def find_font() -> str:
    """An installed font; without one, resvg would silently leave out every text."""
    empty = _render(_SAMPLE.format("", ""))
    for name in FONTS:
        if _render(_SAMPLE.format(name, "A")) != empty:
            return name
    raise UsageError(
        "no font found to draw a PNG",
        "Install one, for example DejaVu (fonts-dejavu-core on Debian), or use a file name that ends in .svg.",
    )
