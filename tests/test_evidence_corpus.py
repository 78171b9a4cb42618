"""The labelled traces: what is found in them is right, and most of what is in them is found."""

from __future__ import annotations

import importlib.util
import sys

import pytest

from conftest import REPOSITORY


def test_findings_are_right_and_most_are_found_also_in_traces_kept_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_file_location("bench_evidence", REPOSITORY / "bench" / "evidence.py")
    assert spec is not None
    assert spec.loader is not None
    bench = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, bench)
    spec.loader.exec_module(bench)
    by_format, by_kind = bench.measure()
    known = bench.labels()
    assert len(known) >= 12
    assert sum(bool(wanted.get("kept_aside")) for wanted in known.values()) >= 4
    assert len(set(by_format) - {"all", "kept aside"}) >= 6
    for name, score in [*by_kind.items(), ("all", by_format["all"]), ("kept aside", by_format["kept aside"])]:
        assert (name, score.precision >= 0.85, score.recall >= 0.70) == (name, True, True), score.misses
