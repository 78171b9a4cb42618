"""`inspect`: logs that inspect_ai reads and `inspect view` opens, one for each model and arm.

A case is a sample, a seed an epoch, a check a score beside the score `outcome`, which wants all of them. A log is a zip
file of JSON: every sample by itself, a summary of each, and a header that says what they come to.
"""

from __future__ import annotations

import json
import math
import tempfile
from datetime import datetime
from pathlib import Path
from typing import IO, Any
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from upskill.plain import digest
from upskill.reports.exports import FolderExport, StoredRun, file_name
from upskill.reports.exports.inspect_samples import OUTCOME, add_usage, clean, sample, sample_id, summarise
from upskill.version import __version__

VERSION = 2  # of the format


def write(source: StoredRun, folder: Path) -> None:
    created = datetime.fromisoformat(source.run.created)
    models = source.run.models
    for number, model in enumerate(models, start=1):
        name = file_name(model, number if len(models) > 1 else 0).replace("_", "-")  # which parts the parts of a name
        for arm in source.run.plan.arms:
            log = _Log(source, model, arm)
            task = file_name(f"{source.run.skill}-{arm}").replace("_", "-")
            log.write(folder / f"{created:%Y-%m-%dT%H-%M-%S}-00-00_{task}_{name}.eval")


class _Log:
    """The trials of one model and arm."""

    def __init__(self, source: StoredRun, model: str, arm: str) -> None:
        self.source = source
        self.model = model
        self.arm = arm
        self.scored: dict[str, list[int]] = {}  # by score: how many are right, and how many there are
        self.usage: dict[str, dict[str, Any]] = {}
        self.samples = self.errored = 0

    def write(self, path: Path) -> None:
        spec = self._spec()
        with ZipFile(path, "w", ZIP_DEFLATED) as log, tempfile.TemporaryFile("w+", encoding="utf-8") as summaries:
            _add(log, "_journal/start.json", {"version": VERSION, "eval": spec, "plan": self._plan()})
            self._write_samples(log, summaries)
            summaries.seek(0)
            with log.open(ZipInfo("summaries.json"), "w", force_zip64=True) as file:
                file.write(b"[")
                for number, line in enumerate(summaries):
                    file.write((b"," if number else b"") + line.encode())
                file.write(b"]")
            _add(log, "header.json", self._header(spec))

    def _write_samples(self, log: ZipFile, summaries: IO[str]) -> None:
        for result in self.source.results(self.model, self.arm):
            written = sample(self.source, result)
            self.samples += 1
            self.errored += result.passed is None
            scores: dict[str, Any] = written["scores"] or {}
            for name, score in scores.items():
                right = self.scored.setdefault(name, [0, 0])
                right[0] += score["value"] == "C"
                right[1] += 1
            for name, used in written["model_usage"].items():
                add_usage(self.usage, name, used)
            _add(log, f"samples/{written['id']}_epoch_{written['epoch']}.json", written)
            summaries.write(json.dumps(clean(summarise(written))) + "\n")

    def _spec(self) -> dict[str, Any]:
        run = self.source.run
        plan = run.plan
        return {
            "eval_id": digest([run.id, self.model, self.arm]),
            "run_id": run.id,
            "created": run.created,
            "task": f"{run.skill} ({self._arm})",
            "task_id": digest([run.skill, self.arm]),
            "task_version": plan.skill.fingerprint,
            "solver": f"upskill/{plan.agent}",
            "tags": [self.arm],
            "dataset": {
                "name": run.skill,
                "samples": len(self.source.cases),
                "sample_ids": [sample_id(self.source, case) for case in self.source.cases],
                "shuffled": False,
            },
            "model": self.model,
            "model_generate_config": {
                "temperature": plan.temperature,
                "max_tokens": plan.max_output_tokens,
                "seed": plan.seed,
            },
            "config": {"epochs": plan.runs},
            "packages": {"upskill": __version__},
            "metadata": {"arm": self.arm, "skill": run.skill, "suite": plan.suite.fingerprint},
        }

    @property
    def _arm(self) -> str:
        return self.source.baseline if self.arm == "baseline" else self.arm

    def _plan(self) -> dict[str, Any]:
        return {"name": "upskill", "steps": [{"solver": f"upskill/{self.source.run.plan.agent}", "params": {}}]}

    def _header(self, spec: dict[str, Any]) -> dict[str, Any]:
        run = self.source.run
        wanted = len(self.source.cases) * run.plan.runs
        names = sorted(self.scored, key=lambda name: name != OUTCOME)
        return {
            "version": VERSION,
            "status": "success" if self.samples == wanted else "cancelled",
            "eval": spec,
            "plan": self._plan(),
            "results": {
                "total_samples": wanted,
                "completed_samples": self.samples - self.errored,
                "scores": [self._score(name) for name in names],
            },
            "stats": {"started_at": run.created, "completed_at": run.created, "model_usage": self.usage},
        }

    def _score(self, name: str) -> dict[str, Any]:
        right, count = self.scored[name]
        rate = right / count
        error = math.sqrt(rate * (1 - rate) / (count - 1)) if count > 1 else 0.0
        metrics = {"accuracy": rate, "stderr": error}
        return {
            "name": name,
            "scorer": name,
            "scored_samples": count,
            "unscored_samples": self.samples - count,
            "metrics": {metric: {"name": metric, "value": value} for metric, value in metrics.items()},
        }


def _add(log: ZipFile, name: str, value: dict[str, Any]) -> None:
    info = ZipInfo(name)  # of no date: the same run gives the same bytes
    info.compress_type = ZIP_DEFLATED
    log.writestr(info, json.dumps(clean(value)))


EXPORT = FolderExport(write)
