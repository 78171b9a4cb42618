"""The known-good kernels of examples/h100-kernels, tier by tier, and how fast they are beside PyTorch.

Takes an H100 or H200.

python bench/kernels.py
python bench/kernels.py rmsnorm softmax --tiers compiles resources
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

from upskill.checks import Evidence, Finding, read_checks
from upskill.checks.kernel.gpu_process import expect_gpu
from upskill.errors import CheckError, MissingTool
from upskill.sandboxes import SANDBOXES, Sandbox, Setup
from upskill.traces import Step, Trace

logger = logging.getLogger("upskill.bench")
EVALS = Path(__file__).parent.parent / "examples" / "h100-kernels" / "evals"
TIERS = ["compiles", "resources", "correct", "faster"]
RATIO = r"([\d.]+)× the speed of {} \[([\d.]+), ([\d.]+)\]"


async def grade(name: str, tiers: list[str], sandbox: Sandbox) -> dict[str, Finding]:
    """What each tier says of one kernel, given as a student would give it; nothing more after one that fails."""
    code = (EVALS / "kernels" / f"{name}.cu").read_text(encoding="utf-8")
    evidence = Evidence(Trace((Step("assistant", f"```cuda\n{code}```\n"),)), sandbox=sandbox)
    # Anything above 0 passes here, so that the figures of a slower kernel are read too.
    least = {"at_least": 1e-6} if "faster" in tiers else {}
    block = {"kernel": {"task": f"tasks/{name}.py", "tiers": tiers, **least}}
    checks = read_checks(block, name, lambda path: (EVALS / path).read_text(encoding="utf-8"))
    findings: dict[str, Finding] = {}
    for named in checks:
        began = time.monotonic()
        try:
            finding = await named.check.run(evidence)
        except CheckError as error:
            finding = Finding(False, str(error))
        logger.info("%s: %s took %.1f s", name, named.name, time.monotonic() - began)
        findings[named.name.removeprefix("kernel_")] = finding
        if not finding.passed:
            break
    return findings


def ratio(said: str, rival: str) -> tuple[str, float, float]:
    """How fast a kernel is beside a rival: for a table, the ratio, and the lower end of its interval."""
    found = re.search(RATIO.format(re.escape(rival)), said)
    assert found, said
    return f"{found[1]} [{found[2]}, {found[3]}]", float(found[1]), float(found[2])


def row(name: str, findings: dict[str, Finding]) -> str:
    failed = next(
        (f"{tier}: {finding.reason}" for tier, finding in findings.items() if not finding.passed),
        "",
    )
    if failed or "faster" not in findings:
        return f"| {name} | {failed or findings[list(findings)[-1]].reason} |"
    said = findings["faster"].reason
    share = re.search(r"(\d+%) of the bandwidth", said)
    eager, compiled = (ratio(said, rival)[0] for rival in ("PyTorch eager", "torch.compile"))
    return f"| {name} | {said.split(':')[0]} | {share[1] if share else ''} | {eager} | {compiled} |"


async def main(options: Any) -> None:
    if {"correct", "faster"} & set(options.tiers):
        expect_gpu()
    print(
        "| kernel | median | of a copy's bandwidth | beside eager | beside torch.compile |\n|---|---:|---:|---:|---:|"
    )
    graded: list[dict[str, Finding]] = []
    names: list[str] = options.kernels or sorted(
        path.stem for path in (EVALS / "kernels").glob("*.cu")
    )
    async with await SANDBOXES.load(options.sandbox)().open(Setup()) as sandbox:
        few = asyncio.Semaphore(os.cpu_count() or 1)

        async def build(name: str) -> None:
            async with few:
                await grade(name, ["compiles"], sandbox)

        await asyncio.gather(*map(build, names))  # all at once, and kept for the tiers that run
        for name in names:
            graded.append(await grade(name, options.tiers, sandbox))
            print(row(name, graded[-1]), flush=True)
    passed = [
        findings for findings in graded if all(finding.passed for finding in findings.values())
    ]
    print(f"\n{len(passed)} of {len(graded)} pass {', '.join(options.tiers)}", end="")
    if "faster" in options.tiers:
        said = [findings["faster"].reason for findings in passed]
        eager = sum(ratio(one, "PyTorch eager")[1] >= 1 for one in said)
        compiled = [ratio(one, "torch.compile") for one in said]
        print(
            f"; {eager} are at least as fast as eager, {sum(mid > 1 for _, mid, _ in compiled)} faster than "
            f"torch.compile ({sum(low > 1 for _, _, low in compiled)} with the whole interval above 1)",
            end="",
        )
    print()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kernels", nargs="*", help="all, unless named")
    parser.add_argument("--tiers", nargs="+", choices=TIERS, default=TIERS)
    parser.add_argument("--sandbox", default="bubblewrap")
    parser.add_argument("--stages", action="store_true", help="also say where the time goes")
    given = parser.parse_args()
    if given.stages:
        logging.basicConfig(format="%(relativeCreated)8.0f ms  %(message)s")
        logging.getLogger("upskill").setLevel(logging.INFO)
    try:
        asyncio.run(main(given))
    except MissingTool as missing:
        sys.exit(f"bench/kernels.py: {missing}")
