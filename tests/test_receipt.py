"""Receipts: what a run proved is kept with the skill, and anyone can compute it again."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import random
import shutil
from pathlib import Path

import pytest

from conftest import Upskill
from upskill import Skill, UsageError
from upskill.runs.replay import receipt as receipts
from upskill.runs.replay.receipt import RECEIPT, REPLIES, verify

EXAMPLES = Path(__file__).parent.parent / "examples"
MUTATIONS = 200


@pytest.fixture
def proven(upskill: Upskill, home: Path) -> Path:
    """A skill with a receipt."""
    folder = home / "tern-deploy"
    shutil.copytree(EXAMPLES / "tern-deploy", folder)
    shutil.copy(EXAMPLES / "scripted.yaml", home / "scripted.yaml")
    done = upskill("eval", folder, "-m", "scripted:scripted.yaml", "--repeats", 2, "--receipt")
    assert done.code == 0, done.err
    return folder


def test_a_receipt_holds_on_a_machine_without_the_model(upskill: Upskill, proven: Path) -> None:
    (proven.parent / "scripted.yaml").unlink()
    done = upskill("verify", proven)
    assert (done.code, done.err) == (0, "")
    assert done.out == (
        "tern-deploy: holds. helps, 0% (0/40) → 70% (28/40), lift +70 (+41 to +88, 40 pairs)"
        f" (scripted:scripted.yaml, {json.loads((proven / RECEIPT).read_text())['date']})\n"
    )


def test_a_receipt_changes_no_result_and_is_the_same_again(upskill: Upskill, proven: Path) -> None:
    before = {path: path.read_bytes() for path in (proven / "evals").iterdir()}
    again = upskill("eval", proven, "-m", "scripted:scripted.yaml", "--repeats", 2, "--receipt")
    assert "nothing left to run" in again.err
    assert {path: path.read_bytes() for path in (proven / "evals").iterdir()} == before


def test_a_changed_check_is_named_with_what_it_makes_of_the_answers(upskill: Upskill, proven: Path) -> None:
    suite = proven / "evals/suite.yaml"
    suite.write_text(suite.read_text().replace("nest-name", "nest-size"))
    done = upskill("verify", proven, "--json")
    assert done.code == 1
    changes = done.json[0]["changes"]
    assert "suite: evals/suite.yaml has changed" in changes
    assert "suite: case 'service-key' has changed" in changes
    assert "scripted:scripted.yaml, skill: 28 of 40 passed, now 26 of 40" in changes


def test_a_forged_verdict_is_found_though_its_digest_fits(proven: Path) -> None:
    path = proven / RECEIPT
    content = json.loads(path.read_text())
    content["verdicts"][0] |= {"lift": 0.9, "decision": "saves"}
    content["verdicts"][0]["skill"]["passed"] = 36
    content["digest"] = receipts._digest(content)  # pyright: ignore[reportPrivateUsage]
    path.write_bytes(receipts._render(content))  # pyright: ignore[reportPrivateUsage]
    assert _changes(proven) == [
        "scripted:scripted.yaml, skill: 36 of 48 passed, now 28 of 40",
        "scripted:scripted.yaml: lift was 0.9, now 0.7; decision was saves, now helps",
    ]


def test_a_tampered_byte_anywhere_is_found_and_named(proven: Path) -> None:
    chance = random.Random(31)
    files = {name: (proven / name).read_bytes() for name in ("SKILL.md", "evals/suite.yaml", RECEIPT, REPLIES)}
    for number in range(MUTATIONS):
        name, data = list(files.items())[number % len(files)]
        at = chance.randrange(len(data))
        cut = {0: data[at + 1 :], 1: data[at:], 2: bytes([data[at] ^ 1 << chance.randrange(7)]) + data[at + 1 :]}
        changed = data[:at] + (b" " if number % 3 == 1 else b"") + cut[number % 3]
        (proven / name).write_bytes(changed)
        changes = _changes(proven)
        assert any(name in change for change in changes), (name, at, changes)
        (proven / name).write_bytes(data)
    assert _changes(proven) == []


def _changes(folder: Path) -> list[str]:
    try:
        return asyncio.run(verify(Skill.load(folder))).changes
    except UsageError as error:
        return [error.message]


@pytest.mark.parametrize("name", [REPLIES, "SKILL.md.bak", "references/more.md"])
def test_missing_and_added_files_are_named(proven: Path, name: str) -> None:
    path = proven / name
    if path.exists():
        path.unlink()
    else:
        path.parent.mkdir(exist_ok=True)
        path.write_text("more")
    assert any(name in change for change in _changes(proven))


def test_no_receipt_is_written_for_part_of_a_suite(upskill: Upskill, proven: Path) -> None:
    (proven / RECEIPT).unlink()
    done = upskill("eval", proven, "-m", "scripted:scripted.yaml", "--limit", 3, "--receipt")
    assert done.code == 2
    assert "a receipt covers a whole suite" in done.err
    missing = upskill("verify", proven)
    assert missing.code == 2
    assert "tern-deploy: no receipt (evals/receipt.json)" in missing.err


def test_badge_and_card_are_made_from_a_receipt_that_holds(upskill: Upskill, proven: Path) -> None:
    done = upskill("verify", proven, "--badge", "--card")
    assert done.code == 0, done.err
    badge, card = (proven / "evals/badge.svg").read_text(), (proven / "skill-card.md").read_text()
    assert "helps +70 points" in badge
    assert "| scripted:scripted.yaml | 0% (0/40) | 70% (28/40) | +70 points | +41 to +88 | helps |" in card
    assert upskill("verify", proven).out == done.out, "they are no part of the skill that was proven"
    owned = card.replace("## Owner\n\n_To be filled in by the owner._", "## Owner\n\nThe harbor team")
    (proven / "skill-card.md").write_text(owned)
    assert upskill("verify", proven, "--card").code == 0
    assert (proven / "skill-card.md").read_text() == owned, "what its owner wrote stays"
    (proven / "evals/badge.svg").unlink()
    (proven / "SKILL.md").write_text((proven / "SKILL.md").read_text() + "\nMore.\n")
    assert upskill("verify", proven, "--badge").code == 1
    assert not (proven / "evals/badge.svg").exists()


def test_answers_that_are_left_out_are_missed(upskill: Upskill, proven: Path) -> None:
    path, content = proven / REPLIES, json.loads((proven / RECEIPT).read_text())
    lines = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    kept = [line for line in lines if line.get("trial", {}).get("case") != "deploy-billing"]
    kept[-1]["end"]["trials"] = sum("trial" in line for line in kept)
    path.write_bytes(gzip.compress("".join(json.dumps(line) + "\n" for line in kept).encode()))
    content["replies"]["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    content["digest"] = receipts._digest(content)  # pyright: ignore[reportPrivateUsage]
    (proven / RECEIPT).write_bytes(receipts._render(content))  # pyright: ignore[reportPrivateUsage]
    assert "evals/replies.jsonl.gz: the answers of 4 trials are missing" in _changes(proven)
