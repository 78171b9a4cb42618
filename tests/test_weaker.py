"""Weaker: a success that does less than the failure tried is no cure, and is not taught as what worked."""

from __future__ import annotations

from upskill.authoring.evidence.evidence import TraceEvidence, evidence_of
from upskill.traces import Step, Trace


def ran(command: str, output: str = "", *, failed: bool = False) -> Step:
    return Step("tool", tool="Bash", arguments={"command": command}, output=output, status="error" if failed else "ok")


def tried(command: str, error: str, then: str) -> TraceEvidence:
    return evidence_of(Trace((Step("user", "Go."), ran(command, error, failed=True), ran(then, "ok"))))


def test_skipping_forcing_or_narrowing_the_work_is_no_cure() -> None:
    for command, error, then in (
        ("kestrel test", "error: 3 slow checks failed", "kestrel test --skip-slow"),
        ("kestrel publish", "error: publishing needs approval", "kestrel publish --force"),
        ("kestrel publish", "error: publishing needs approval, or --force", "kestrel publish --force"),
        ("kestrel push", "error: the hook failed", "kestrel push --no-verify"),
        ("kestrel lint", "error: 12 problems", "kestrel lint || true"),
        ("kestrel lint", "error: 12 problems", "kestrel lint --exit-zero"),
        ("kestrel cover --min 80", "error: coverage 71 is below the minimum 80", "kestrel cover --min 70"),
        ("kestrel cover --max-missing 5", "error: 9 missing, more than 5", "kestrel cover --max-missing 10"),
        ("kestrel verify --strict", "error: 2 violations", "kestrel verify"),
        ("kestrel test", "error: test_tide failed", "kestrel test tests/test_moon.py"),
        ("kestrel test", "error: test_tide failed", "kestrel test -k moon"),
        ("kestrel publish", "error: no index is named", "kestrel publish --dry-run"),
        ("kestrel sync", "error: 2 files are too new", "kestrel sync --only small"),
    ):
        found = tried(command, error, then)
        assert found.fixes == (), (command, then)
        assert found.workflow == (), (command, then)


def test_what_the_error_asks_for_is_a_cure() -> None:
    for command, error, then, fix in (
        (
            "cairn save",
            "error: newer than the clock (--allow-future permits it)",
            "cairn save --allow-future",
            "--allow-future",
        ),
        ("cairn save --fast", "error: unknown option --fast", "cairn save", ""),
        ("cairn wait --timeout 5", "error: timed out", "cairn wait --timeout 60", "--timeout 60"),
    ):
        (found,) = tried(command, error, then).fixes
        assert " ".join(found.added) == fix
        assert found.related


def test_a_full_success_later_counts_beside_a_weaker_one() -> None:
    steps = (
        Step("user", "Go."),
        ran("kestrel pack", "error: the depot is not named", failed=True),
        ran("kestrel pack --skip-depot", "ok"),
        ran("kestrel pack --depot south", "ok"),
    )
    found = evidence_of(Trace(steps))
    assert [item.command for item in found.workflow] == ["kestrel pack --depot south"]
    assert [fix.added for fix in found.fixes] == [("--depot south",)]


def test_what_passes_by_itself_has_no_cure() -> None:
    for error in ("error: connection reset by peer", "error: 503 Service Unavailable", "error: try again later"):
        steps = (
            Step("user", "Go."),
            ran("whimbrel sync --from eu", error, failed=True),
            ran("npm install left-pad", "added 1 package"),
            ran("whimbrel sync --from eu", "ok"),
        )
        assert not any(fix.related for fix in evidence_of(Trace(steps)).fixes)
        assert not any(fix.related for fix in tried("whimbrel sync", error, "whimbrel sync --colour teal").fixes)
