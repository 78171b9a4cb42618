"""Makes the site of the documentation in build/site, or fails: `make site`.

The pages of docs/ link to files of the repository beside them (README, changelog, benchmarks). On the site these are
pages too, so everything is gathered in build/docs first, with its links, and built from there by Zensical. A link or an
anchor that leads nowhere, a page that is not in the nav of zensical.toml, and anything that would be loaded from
another host are errors.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parent.parent
SOURCE, SITE = ROOT / "build" / "docs", ROOT / "build" / "site"
# Files of the repository that are pages of the site, and what they are called there.
PAGES = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "README.md": "readme.md",
    "bench/README.md": "benchmarks.md",
    "examples/README.md": "examples.md",
}
LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!https?:|#|mailto:)([^)\s#]+)(#[^)\s]*)?\)")
FENCED = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}


def pages() -> dict[Path, str]:
    """Every page of the site: the file, and its name there."""
    found = {
        path: path.relative_to(ROOT / "docs").as_posix()
        for path in sorted((ROOT / "docs").rglob("*.md"))
    }
    return found | {ROOT / name: target for name, target in PAGES.items()}


def gather() -> None:
    """Copy every page to build/docs, with links that hold there, and the pictures and schemas beside them."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    names = pages()
    for path, name in names.items():
        target = SOURCE / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_relinked(path, name, names), encoding="utf-8")
    for path in (ROOT / "docs").rglob("*"):
        if path.suffix in (".svg", ".png", ".json") and path.is_file():
            target = SOURCE / path.relative_to(ROOT / "docs")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)


def _relinked(path: Path, name: str, names: dict[Path, str]) -> str:
    text = path.read_text(encoding="utf-8")
    fences = [found.span() for found in FENCED.finditer(text)]

    def link(found: re.Match[str]) -> str:
        if any(start <= found.start() < end for start, end in fences):
            return found[0]
        target = (path.parent / found[2]).resolve()
        if not target.exists():
            sys.exit(f"{path.relative_to(ROOT)}: links to {found[2]}, which does not exist")
        if target in names:
            there = names[target]
        elif target.is_relative_to(ROOT / "docs"):
            there = target.relative_to(ROOT / "docs").as_posix()
        else:
            return found[1]  # a file of the repository that is no page: its name, without a link
        way = os.path.relpath(there, PurePosixPath(name).parent)
        return f"[{found[1]}]({way}{found[3] or ''})"

    return LINK.sub(link, text)


def in_nav(nav: object) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, dict):
        for each in nav.values():  # pyright: ignore[reportUnknownVariableType]
            yield from in_nav(each)  # pyright: ignore[reportUnknownArgumentType]
    elif isinstance(nav, list):
        for each in nav:  # pyright: ignore[reportUnknownVariableType]
            yield from in_nav(each)  # pyright: ignore[reportUnknownArgumentType]


class _Page(HTMLParser):
    """What a page loads, where it links to, and what can be linked to in it."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag in LOADED and given.get("rel") not in (
            "canonical",
            "next",
            "prev",
            "alternate",
            "edit",
        ):
            self.loads += [given[LOADED[tag]]] if LOADED[tag] in given else []
        if tag == "a" and "href" in given:
            self.links.append(given["href"])


def check() -> list[str]:
    """What is wrong with the built site."""
    built: dict[Path, _Page] = {}
    for path in SITE.rglob("*.html"):
        page = built[path] = _Page()
        page.feed(path.read_text(encoding="utf-8"))
    wrong: list[str] = []
    for path, page in built.items():
        if path.name == "404.html":  # its links are from the top of whatever host it is on
            continue
        name = path.relative_to(SITE)
        wrong += [
            f"{name}: loads {url} from another host"
            for url in page.loads
            if re.match(r"(https?:)?//", url)
        ]
        for url in (*page.links, *page.loads):
            place, _, anchor = url.partition("#")
            if re.match(r"[a-z]+:|//", url):
                continue
            target = (path.parent / place).resolve() if place else path
            target = target / "index.html" if target.is_dir() else target
            if not target.exists() or (
                anchor and target in built and anchor not in built[target].anchors
            ):
                wrong.append(f"{name}: links to {url}, which leads nowhere")
    for path in SITE.rglob("*.css"):
        for url in re.findall(
            r"(?:url\(|@import )\s*[\"']?((?:https?:)?//[^)\"']+)", path.read_text(encoding="utf-8")
        ):
            wrong.append(f"{path.relative_to(SITE)}: loads {url} from another host")
    return wrong


def main() -> int:
    settings = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]
    unlisted = set(pages().values()) - set(in_nav(settings["nav"]))
    if unlisted:
        sys.exit(f"not in the nav of zensical.toml: {', '.join(sorted(unlisted))}")
    gather()
    shutil.rmtree(SITE, ignore_errors=True)
    done = subprocess.run(
        [Path(sys.executable).with_name("zensical"), "build", "--clean", "--strict"],
        cwd=ROOT,
        check=False,
    )
    wrong = check() if not done.returncode else ["Zensical found something wrong, see above"]
    for line in wrong:
        print(line, file=sys.stderr)
    print(f"{SITE / 'index.html'}" if not wrong else "The site was not made.", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
