"""A small package of somebody else, installed into a folder: entry points are proven with it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def install_plugin(
    folder: Path, module: str, source: str, entry_points: Mapping[str, str]
) -> dict[str, str]:
    """Install a package with one module, whose entry points are `"group:name": "attribute"`.

    Returns the environment of a process that can import it.
    """
    metadata = folder / f"{module}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (folder / f"{module}.py").write_text(source, encoding="utf-8")
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n", encoding="utf-8"
    )
    (metadata / "RECORD").write_text(f"{module}.py,,\n", encoding="utf-8")
    rows: list[str] = []
    for place, attribute in entry_points.items():
        group, _, name = place.partition(":")
        rows += [f"[{group}]", f"{name} = {module}:{attribute}"]
    (metadata / "entry_points.txt").write_text("\n".join(rows) + "\n", encoding="utf-8")
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": path}
