"""The site of the documentation: what would be wrong with it is found. (`make site` builds the real one.)"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import make_site
import pytest

from conftest import REPOSITORY


def test_every_page_is_in_the_nav_once_and_nothing_else_is() -> None:
    settings = tomllib.loads((REPOSITORY / "zensical.toml").read_text(encoding="utf-8"))["project"]
    assert sorted(make_site.in_nav(settings["nav"])) == sorted(make_site.pages().values())


def test_links_to_files_of_the_repository_lead_to_their_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(make_site, "SOURCE", tmp_path)
    make_site.gather()
    assert "(changelog.md)" in (tmp_path / "index.md").read_text(encoding="utf-8")
    assert "(../benchmarks.md)" in (tmp_path / "how-to" / "cluster.md").read_text(encoding="utf-8")
    assert "(statistics.md)" in (tmp_path / "readme.md").read_text(encoding="utf-8")
    assert (tmp_path / "eval.schema.json").is_file()


def test_a_link_to_a_file_that_is_no_page_becomes_text_and_one_to_nothing_ends_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "pyproject.toml").write_text("", encoding="utf-8")
    page = "```\n[shown](as-it-is.md)\n```\n[settings](../pyproject.toml)\n"
    (tmp_path / "docs" / "page.md").write_text(page, encoding="utf-8")
    monkeypatch.setattr(make_site, "ROOT", tmp_path)
    monkeypatch.setattr(make_site, "PAGES", {})
    monkeypatch.setattr(make_site, "SOURCE", tmp_path / "build")
    make_site.gather()
    made = (tmp_path / "build" / "page.md").read_text(encoding="utf-8")
    assert made == "```\n[shown](as-it-is.md)\n```\nsettings\n"
    (tmp_path / "docs" / "page.md").write_text("[here](nowhere.md)\n", encoding="utf-8")
    with pytest.raises(SystemExit, match=r"docs/page.md: links to nowhere.md"):
        make_site.gather()


def test_missing_pages_missing_anchors_and_other_hosts_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(make_site, "SITE", tmp_path)
    good = '<link rel=stylesheet href="a.css"><h1 id="top"></h1><a href="#top">a</a><a href="https://x.example/">b</a>'
    bad = '<script src="//x.example/a.js"></script><a href="good.html#down">a</a><a href="gone.html">b</a>'
    bad += '<img src="c.png">'
    (tmp_path / "good.html").write_text(good, encoding="utf-8")
    (tmp_path / "a.css").write_text(
        "@font-face{src:url(https://x.example/f.woff2)}", encoding="utf-8"
    )
    (tmp_path / "bad.html").write_text(bad, encoding="utf-8")
    assert make_site.check() == [
        "bad.html: loads //x.example/a.js from another host",
        "bad.html: links to good.html#down, which leads nowhere",
        "bad.html: links to gone.html, which leads nowhere",
        "bad.html: links to c.png, which leads nowhere",
        "a.css: loads https://x.example/f.woff2 from another host",
    ]


def test_the_site_needs_zensical_and_nothing_of_the_test_tools() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    assert [re.match(r"[\w-]+", name)[0] for name in extras["docs"]] == ["zensical"]  # pyright: ignore[reportOptionalSubscript]
    recipes = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    assert "site: $(VENV)/.docs\n" in recipes
    recipe = recipes.split("$(VENV)/.docs: ")[1].split("\n\n")[0]
    assert '".[docs]"' in recipe
    assert ".dev" not in recipe
