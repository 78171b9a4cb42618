"""A registry finds built-ins and what other packages add, and says what is missing."""

from __future__ import annotations

import sys
from collections import OrderedDict
from pathlib import Path

import pytest

from upskill import UsageError
from upskill.registry import Registry

TABLE = {
    "ordered": "collections:OrderedDict",
    "method": "collections:OrderedDict.fromkeys",
    "absent": "no_such_package.inner:thing",
    "ours-missing": "upskill.no_such_module:thing",
    "ours-wrong": "upskill.errors:NoSuchThing",
}
THINGS = Registry("thing", "upskill.test-things", TABLE)


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """Another package, installed for real, that adds things of its own."""
    (tmp_path / "more_things.py").write_text("class Box:\n    lid = 'a lid'\nimport_counts = []\n")
    info = tmp_path / "more_things-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: more-things\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[upskill.test-things]\nbox = more_things:Box\nlid = more_things:Box.lid [extra]\nordered = more_things:Box\n"
        "gone = more_things:Gone\nlost = more_lost_things:Box\n[upskill.other-things]\nother = more_things:Box\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    return Registry("thing", "upskill.test-things", TABLE)


def test_a_name_stands_for_what_is_at_its_place() -> None:
    assert THINGS.load("ordered") is OrderedDict
    assert THINGS.load("method")("ab") == OrderedDict(a=None, b=None)
    assert "ordered" in THINGS
    assert "box" not in THINGS
    assert THINGS.names() == sorted(TABLE)


def test_an_unknown_name_is_a_usage_error_that_suggests_the_nearest() -> None:
    with pytest.raises(UsageError, match="no thing named 'orderd'") as error:
        THINGS.load("orderd")
    assert error.value.hint == "Did you mean 'ordered'?"
    with pytest.raises(UsageError) as error:
        THINGS.load("zzz")
    assert error.value.hint == "Known: absent, method, ordered, ours-missing, ours-wrong."


def test_a_package_that_is_not_installed_is_a_usage_error_that_names_it() -> None:
    with pytest.raises(UsageError) as error:
        THINGS.load("absent")
    assert (
        error.value.message
        == "the 'absent' thing needs the 'no_such_package' package, which is not installed"
    )
    assert error.value.hint == f"Run `{sys.executable} -m pip install no_such_package`."


def test_a_wrong_row_of_our_own_is_a_bug_and_looks_like_one() -> None:
    with pytest.raises(ModuleNotFoundError):
        THINGS.load("ours-missing")
    with pytest.raises(AttributeError):
        THINGS.load("ours-wrong")


def test_other_packages_add_rows_and_cannot_replace_ours(plugin: Registry) -> None:
    assert plugin.load("box").lid == "a lid"
    assert plugin.load("lid") == "a lid"
    assert plugin.load("ordered") is OrderedDict
    assert "box" in plugin
    assert "other" not in plugin
    assert set(plugin.names()) == {*TABLE, "box", "lid", "gone", "lost"}


def test_a_broken_package_is_a_usage_error(plugin: Registry) -> None:
    with pytest.raises(UsageError, match="cannot load the 'gone' thing from more_things:Gone"):
        plugin.load("gone")
    with pytest.raises(UsageError, match="the 'lost' thing needs the 'more_lost_things' package"):
        plugin.load("lost")
