"""One server against two: trials a second of each embedded model, and whether every answer is the same.

python bench/embedded.py                                    all three models, about ten minutes on two cores
python bench/embedded.py --models smollm2-135m --cases 6    a shorter look

For each model the same trials (a skill and a suite of examples/, both arms, sampled at 0.7) are run four times: with
one server, with two, with two and the cases in another order, and with two in a process that is killed outright
halfway through and then resumed. Replies are never shared between the runs.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from upskill import Models, Skill, Suite, evaluate, make_plan, open_store
from upskill.models import ModelContext
from upskill.runs.planning.plan import Plan, PlanOptions
from upskill.runs.stores import Store

EXAMPLE = Path(__file__).parent.parent / "examples" / "tern-deploy"
MODELS = ("smollm2-135m", "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b")
Answers = dict[tuple[str, str], str]  # by case and arm


def plan_for(model: str, cases: int, shuffle: int | None = None) -> Plan:
    skill = Skill.load(EXAMPLE)
    suite = Suite.of(skill)
    assert suite is not None
    chosen = list(suite.cases)[:cases]
    if shuffle is not None:
        random.Random(shuffle).shuffle(chosen)
    return make_plan(
        skill,
        replace(suite, cases=tuple(chosen)),
        [f"local:{model}"],
        PlanOptions(temperature=0.7, seed=7),
    )


async def run(plan: Plan, folder: Path, servers: int) -> tuple[float, Answers]:
    """Seconds that the trials took, without the start of the servers, and what was answered."""
    with open_store(folder) as store:
        async with Models(ModelContext.load(servers=servers), replies=store) as models:
            await models.get(plan.models[0])
            started = time.monotonic()
            await evaluate(plan, store=store, models=models)
            seconds = time.monotonic() - started
        return seconds, answers_in(store, plan)


def answers_in(store: Store, plan: Plan) -> Answers:
    found = store.find_run(plan)
    assert found is not None
    results = list(store.results(found))
    assert len(results) == len(plan)
    assert all(result.trace for result in results), [each.error for each in results]
    return {(each.trial.case, each.trial.arm): each.trace.answer for each in results if each.trace}


def killed_and_resumed(model: str, cases: int, folder: Path) -> Answers:
    """Run in another process, killed with SIGKILL when half of the results are stored; then the rest here."""
    plan = plan_for(model, cases)
    command = [
        sys.executable,
        __file__,
        "--in",
        str(folder),
        "--models",
        model,
        "--cases",
        str(cases),
    ]
    with subprocess.Popen(command) as process:
        while process.poll() is None and stored(folder) < len(plan) // 2:
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
    kept = stored(folder)
    assert 0 < kept < len(plan), kept
    return asyncio.run(run(plan, folder, 2))[1]


def stored(folder: Path) -> int:
    if not (folder / "upskill.db").exists():
        return 0
    with open_store(folder) as store:
        return sum(1 for found in store.runs() for _ in store.results(found))


def compare(model: str, cases: int) -> bool:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        plan = plan_for(model, cases)
        one, first = asyncio.run(run(plan, folder / "one", 1))
        two, second = asyncio.run(run(plan, folder / "two", 2))
        _, shuffled = asyncio.run(run(plan_for(model, cases, shuffle=1), folder / "shuffled", 2))
        resumed = killed_and_resumed(model, cases, folder / "killed")
    differences = {
        "two servers": differing(first, second),
        "another order": differing(first, shuffled),
        "killed and resumed": differing(first, resumed),
    }
    print(
        f"{model}: {len(plan)} trials; one server {len(plan) / one:.2f}/s, two {len(plan) / two:.2f}/s "
        f"({one / two:.2f} x); answers that differ from one server's: "
        + ", ".join(f"{name} {count}" for name, count in differences.items()),
        flush=True,
    )
    return not any(differences.values())


def differing(first: Answers, second: Answers) -> int:
    assert first.keys() == second.keys()
    return sum(first[key] != second[key] for key in first)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="*", default=MODELS)
    parser.add_argument("--cases", type=int, default=6, help="of the suite")
    parser.add_argument(
        "--in", dest="folder", help=argparse.SUPPRESS
    )  # what is started to be killed
    options = parser.parse_args()
    if options.folder:
        asyncio.run(run(plan_for(options.models[0], options.cases), Path(options.folder), 2))
        return
    same = [compare(model, options.cases) for model in options.models]
    if not all(same):
        raise SystemExit("answers differ")


if __name__ == "__main__":
    main()
