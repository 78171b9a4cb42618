"""Which package is the tool of a page (rule 2 in README.md). Packages are unpacked; nothing of them runs here."""

from __future__ import annotations

import csv
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import repeat
from pathlib import Path
from urllib.parse import urlparse

from pages import Page

from upskill.plain import dict_or_empty

PYTHON = sys.executable
PIP = f"{PYTHON} -m pip --quiet"
WHEELS = "--only-binary :all:"  # building from source runs code of the package
FORGES = ("github.com", "gitlab.com", "codeberg.org", "bitbucket.org", "sr.ht")
# Domains of many projects: there, the whole host and the beginning of the path have to be the same.
SHARED = (
    *(
        "gnu.org",
        "sourceforge.net",
        "sourceforge.io",
        "readthedocs.io",
        "readthedocs.org",
        "google.com",
    ),
    *(
        "microsoft.com",
        "debian.org",
        "kde.org",
        "gnome.org",
        "freedesktop.org",
        "apache.org",
        "kernel.org",
    ),
    *("netlify.app", "vercel.app", "gitbook.io", "python.org"),
)
MAN_PAGES = "manned.org"  # has the man pages of Debian and others
INDEXES = (MAN_PAGES, "man7.org", "die.net", "wikipedia.org", "archlinux.org", "ubuntu.com")
COLUMNS = ("name", "source", "package", "version", "evidence", "reason")
FETCH = {
    "pip": f"{PIP} download --no-deps {WHEELS} {{name}}=={{version}} && {PYTHON} -m zipfile -e *.whl ../unpacked",
    "npm": "npm pack --ignore-scripts {name}@{version} && tar -xzf *.tgz -C ../unpacked",
    "apt": "apt-get download {name}={version} && dpkg-deb -x *.deb ../unpacked",
}
Row = dict[str, str]


@dataclass(frozen=True)
class Package:
    name: str
    version: str
    project: str  # of which there may be several packages
    urls: list[str]


def call(command: str, folder: Path | None = None) -> str:
    """What a line of shell prints; empty if it fails. One that hangs ends the build, which continues when run again."""
    bash = ["bash", "-c", command]
    done = subprocess.run(
        bash, check=False, cwd=folder, capture_output=True, text=True, timeout=900
    )
    return done.stdout if done.returncode == 0 else ""


def find_place(url: str) -> str:
    """What the addresses of one project have in common; empty if this one says nothing."""
    if re.fullmatch(r"(github:)?[\w.-]+/[\w.-]+", url):
        url = f"https://github.com/{url.removeprefix('github:')}"
    parsed = urlparse(url.replace("git@github.com:", "https://github.com/"))
    host = (parsed.hostname or "").removeprefix("www.").removeprefix("git.")
    path = [part.lower().removesuffix(".git") for part in parsed.path.split("/") if part]
    domain = ".".join(host.split(".")[-2:])
    if domain in INDEXES:
        return ""
    if host in FORGES:
        return "/".join([host, *path[:2]]) if len(path) >= 2 else ""
    if domain in ("github.io", "gitlab.io"):
        return "/".join([f"{domain[:6]}.com", host.split(".")[0], *path[:1]])
    return "/".join([host, *path[:2]]) if domain in SHARED else domain


def ask_pip(name: str) -> Package | None:
    options = f"--dry-run --ignore-installed --no-deps {WHEELS} --report -"
    report = call(f"{PIP} install {options} {shlex.quote(name)}")
    if not report:
        return None
    metadata = json.loads(report)["install"][0]["metadata"]
    urls = [url.rpartition(", ")[2] for url in metadata.get("project_url", [])]
    return Package(
        metadata["name"],
        metadata["version"],
        metadata["name"],
        [*urls, metadata.get("home_page", "")],
    )


def ask_npm(name: str) -> Package | None:
    answer = call(f"npm view {shlex.quote(name)} name version repository.url homepage --json")
    fields = dict_or_empty(json.loads(answer) if answer else None)
    if "name" not in fields:
        return None
    urls = [fields.get("repository.url", "").removeprefix("git+"), fields.get("homepage", "")]
    return Package(fields["name"], fields["version"], fields["name"], urls)


def ask_apt(name: str) -> Package | None:
    control = call(f"apt-cache show --no-all-versions {shlex.quote(name)}")
    fields = dict(re.findall(r"^([\w-]+): (.+)$", control, re.MULTILINE))
    if fields.get("Package") != name:
        return None
    project = fields.get("Source", name).split()[0]
    return Package(name, fields["Version"], project, [fields.get("Homepage", "")])


ASK = {"pip": ask_pip, "npm": ask_npm, "apt": ask_apt}


@cache
def packages_by_program() -> dict[str, list[str]]:
    """Debian's packages by the programs that they install, from the lists of contents that apt keeps."""
    files = "apt-get indextargets --format '$(FILENAME)' 'Created-By: Contents-deb'"
    programs = "grep -E '^usr/(s?bin|games)/[^/ ]+ '"
    packages: dict[str, list[str]] = {}
    for line in call(f"/usr/lib/apt/apt-helper cat-file $({files}) | {programs}").splitlines():
        path, names = line.split()
        names = [name.rpartition("/")[2] for name in names.split(",")]
        packages.setdefault(path.rpartition("/")[2], []).extend(names)
    return packages


def list_names(page: Page) -> Iterator[tuple[str, str]]:
    """Where the tool may be: a package of its name, of its repository's, of its owner's scope, or with its program."""
    places = [find_place(link).split("/") for link in page.links]
    repositories = [place[1:] for place in places if len(place) == 3]
    if any(map(find_place, page.links)):
        names = [page.name.lower(), *(name for _, name in repositories)]
        yield from (("pip", name) for name in dict.fromkeys(names))
        yield "npm", page.name
        yield from (("npm", f"@{owner}/{page.name}") for owner, _ in repositories)
    yield from (("apt", name) for name in dict.fromkeys(packages_by_program().get(page.name, [])))


def fetch(source: str, name: str, version: str, folder: Path) -> Path:
    """The folder with the package's files."""
    files, unpacked = folder / "file", folder / "unpacked"
    if not unpacked.exists():
        files.mkdir(parents=True, exist_ok=True)
        unpacked.mkdir()
        package = {"name": shlex.quote(name), "version": shlex.quote(version)}
        call(FETCH[source].format(**package), files)
    return unpacked


def has_program(folder: Path, name: str) -> bool:
    for metadata in folder.glob("*.dist-info/entry_points.txt"):
        scripts = metadata.read_text().partition("[console_scripts]")[2].partition("\n[")[0]
        if re.search(rf"^{re.escape(name)}\s*=", scripts, re.MULTILINE):
            return True
    for metadata in folder.glob("package/package.json"):
        fields = json.loads(metadata.read_text())
        programs = fields.get("bin", {})
        return (
            fields["name"].rpartition("/")[2] == name
            if isinstance(programs, str)
            else name in programs
        )
    files = [
        *folder.glob(f"*.data/scripts/{name}"),
        *folder.glob(f"usr/*bin/{name}"),
        *folder.glob(f"usr/games/{name}"),
    ]
    return bool(files)


def find_evidence(page: Page, package: Package, folder: Path) -> str:
    """What the page's link and the package have in common: an address, or a man page if the link is to an index."""
    places = {find_place(link) for link in page.links} - {""}
    copyrights = [
        file.read_text("utf-8", "replace") for file in folder.glob("usr/share/doc/*/copyright")
    ]
    sources = re.findall(r"^(?:Source|Upstream-\w+): (\S+)", "\n".join(copyrights), re.MULTILINE)
    for url in [*package.urls, *sources]:
        if url and find_place(url) in places:
            return url
    manuals = [*folder.glob(f"usr/share/man/man[18]/{page.name}.[18]*")]
    return manuals[0].name if manuals and any(MAN_PAGES in link for link in page.links) else ""


def identify(page: Page, folder: Path) -> Row:
    """The package that is the page's tool, or why there is none."""
    reason = "no such package"
    for source, name in list_names(page):
        package = ASK[source](name)
        if package is None:
            continue
        own = folder / page.name / source / package.name.replace("/", "+")
        if source == "apt":  # the others can be hostile: they are fetched when their metadata fit
            fetch(source, package.name, package.version, own)
        evidence = find_evidence(page, package, own / "unpacked")
        if not evidence:
            reason = f"{source}: the package names another project or none"
        elif not has_program(fetch(source, package.name, package.version, own), page.name):
            reason = f"{source}: no such program in the package"
        else:
            found = {"source": source, "package": package.name, "version": package.version}
            return {
                "name": page.name,
                **found,
                "evidence": f"{package.project}: {evidence}",
                "reason": "",
            }
    return {"name": page.name, "reason": reason}


def identify_all(pages: list[Page], folder: Path, table: Path) -> dict[str, Row]:
    """The table of tools. A row that is there is kept, so that every build takes the same packages."""
    rows: dict[str, Row] = {}
    if table.exists():
        with table.open(newline="") as file:
            rows = {row["name"]: row for row in csv.DictReader(file)}
    missing = [page for page in pages if page.name not in rows]
    packages_by_program()
    with ThreadPoolExecutor(6) as pool:
        for row in pool.map(identify, missing, repeat(folder)):
            rows[row["name"]] = row
            with table.open("w", newline="") as file:
                writer = csv.writer(file, lineterminator="\n")
                writer.writerow(COLUMNS)
                writer.writerows(
                    [each.get(column, "") for column in COLUMNS] for each in rows.values()
                )
    return rows
