"""How upskill was installed, and the command that adds a missing extra."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path, PurePath
from typing import Any

from upskill.version import __version__

DISTRIBUTION = "skill-lift"  # `upskill` is another package on PyPI


def add_extra(extra: str) -> str:
    return command_for(extra, PurePath(sys.prefix), _origin())


def command_for(extra: str, prefix: PurePath, origin: dict[str, Any]) -> str:
    """The same for an installation below `prefix` with this `direct_url.json`, which is empty for one from an index."""
    about: Any = origin.get("dir_info")
    requirement = f'"{requirement_for(extra, origin)}"'
    if about and about.get("editable"):
        requirement = f'--editable "{_folder(origin)}[{extra}]"'
    parts = [part.lower() for part in prefix.parts]
    if "pipx" in parts:
        return f"pipx install --force {requirement}"
    if "uv" in parts and "tools" in parts:
        return f"uv tool install --force {requirement}"
    if "uv" in parts and any(
        part.startswith(("archive-", "builds-", "environments-")) for part in parts
    ):
        return f"uvx --from {requirement} upskill"
    python = f'"{sys.executable}"' if " " in sys.executable else sys.executable
    if find_spec("pip") is None:
        return f"uv pip install --python {python} {requirement}"
    return f"{python} -m pip install {requirement}"


def requirement_elsewhere(extra: str) -> tuple[str, bool]:
    """The requirement that installs the same upskill on another machine, and whether it works there.

    A path inside the working directory, which is shipped with it; a URL; a version from an index; or a local path.
    """
    origin = _origin()
    folder = _folder(origin)
    if folder and Path(folder).is_relative_to(Path.cwd()):
        return f"./{Path(folder).relative_to(Path.cwd()).as_posix()}[{extra}]", True
    version = "" if origin else f"=={__version__}"
    return requirement_for(extra, origin) + version, not folder


def requirement_for(extra: str, origin: dict[str, Any]) -> str:
    url = str(origin.get("url", ""))
    if vcs := origin.get("vcs_info"):
        url = f"{vcs['vcs']}+{url}@{vcs['commit_id']}"
    inside = f"#subdirectory={origin['subdirectory']}" if origin.get("subdirectory") else ""
    return f"{DISTRIBUTION}[{extra}] @ {url}{inside}" if url else f"{DISTRIBUTION}[{extra}]"


def _folder(origin: dict[str, Any]) -> str:
    """The path it was installed from; empty if that was a URL or an index."""
    from urllib.parse import urlsplit  # noqa: PLC0415 - slow, and needed only when something is missing
    from urllib.request import url2pathname  # noqa: PLC0415

    url = str(origin.get("url", ""))
    return url2pathname(urlsplit(url).path) if url.startswith("file:") else ""


def _origin() -> dict[str, Any]:
    """Where it came from (PEP 610); a clone that is merely on the path counts as an editable one."""
    from importlib.metadata import PackageNotFoundError, distribution  # noqa: PLC0415

    try:
        text = distribution(DISTRIBUTION).read_text("direct_url.json")
    except PackageNotFoundError:
        clone = Path(__file__).resolve().parents[2]
        here = (clone / "pyproject.toml").is_file()
        return {"url": clone.as_uri(), "dir_info": {"editable": True}} if here else {}
    return json.loads(text) if text else {}
