"""docs/how-to/cluster.md: what it gives to Ray, Slurm and Kubernetes is what those take."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from conftest import REPOSITORY

FILE = REPOSITORY / "docs" / "how-to" / "cluster.md"
PAGE = FILE.read_text(encoding="utf-8")


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_the_yaml_of_a_ray_cluster_is_one_that_ray_accepts() -> None:
    util = pytest.importorskip("ray.autoscaler._private.util")
    cluster: dict[str, Any] = yaml.safe_load(blocks("yaml")[0])
    util.validate_config(util.prepare_config(cluster))
    assert len(cluster["provider"]["worker_ips"]) == cluster["max_workers"]


def test_every_ray_command_exists_with_its_options() -> None:
    scripts = pytest.importorskip("ray.scripts.scripts")
    text = "\n".join([*blocks("bash"), *blocks("yaml")]).replace("\\\n", " ")
    lines = re.findall(
        r"(?:^|- |bin/|until |srun .* )\s*(?:[A-Z_]+=\w+ ~/venv/bin/)?(ray [a-z].*)$",
        text,
        re.MULTILINE,
    )
    words = [
        shlex.split(re.split(r"\s+#|; do| 2>", line.rstrip(" &"))[0], comments=True)[1:]
        for line in lines
    ]
    assert {line[0] for line in words} >= {
        "start",
        "stop",
        "up",
        "down",
        "attach",
        "rsync-up",
        "health-check",
    }
    for name, *options in words:
        command = scripts.cli.get_command(None, name)
        assert command is not None, name
        given = [re.sub(r"\$\{?\w+(#\*:)?\}?", "1", word) for word in options]
        command.make_context(
            name, [str(FILE) if word == "cluster.yaml" else word for word in given]
        )


def test_a_ray_job_is_whole_and_only_its_head_has_the_secret() -> None:
    job: dict[str, Any] = yaml.safe_load(blocks("yaml")[1])
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    cluster = job["spec"]["rayClusterSpec"]
    [head] = cluster["headGroupSpec"]["template"]["spec"]["containers"]
    [group] = cluster["workerGroupSpecs"]
    [worker] = group["template"]["spec"]["containers"]
    assert cluster["headGroupSpec"]["rayStartParams"] == {"num-cpus": "0"}
    assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    assert head["image"] == worker["image"]
    assert f"rayproject/ray:{cluster['rayVersion']}-" in blocks("dockerfile")[0]
    assert head["envFrom"] == [{"secretRef": {"name": "upskill"}}]
    assert not {"env", "envFrom"} & worker.keys()
    skill = shlex.split(job["spec"]["entrypoint"])[2]
    assert f"COPY my-skill {skill}\n" in blocks("dockerfile")[0]


def test_the_slurm_script_starts_a_head_then_the_others_and_joins_them(home: Path) -> None:
    """With stand-ins for Slurm's commands, Ray's and ours, which write down how they were called."""
    [script] = [block for block in blocks("bash") if block.startswith("#!/bin/bash")]
    programs, log = home / "bin", home / "log"
    programs.mkdir()
    (home / "venv" / "bin").mkdir(parents=True)
    (home / "venv" / "bin" / "activate").write_text("", encoding="utf-8")
    (home / ".config").mkdir()
    (home / ".config" / "upskill.env").write_text(
        "UPSKILL_STORE=postgresql://db/x\n", encoding="utf-8"
    )
    stand_ins = {
        "scontrol": "printf 'n1\\nn2\\nn3\\nn4\\n'",
        "openssl": "echo 0123",
        "srun": f'echo "srun $* token=$RAY_AUTH_TOKEN" >> {log}',
        "ray": f'echo "ray $* token=$RAY_AUTH_TOKEN" >> {log}',
        "upskill": f'echo "upskill $* store=$UPSKILL_STORE mode=$RAY_AUTH_MODE" >> {log}',
    }
    for name, body in stand_ins.items():
        (programs / name).write_text(f"#!/bin/bash\n{body}\n", encoding="utf-8")
        (programs / name).chmod(0o755)
    slurm = {"SLURM_JOB_NODELIST": "n[1-4]", "SLURM_JOB_ID": "4711", "SLURM_JOB_NUM_NODES": "4"}
    environment = {
        "HOME": str(home),
        "PATH": f"{programs}:{os.environ['PATH']}",
        "SLURM_CPUS_PER_TASK": "32",
    } | slurm
    (home / "upskill.sbatch").write_text(
        f"{script}\nwait\n", encoding="utf-8"
    )  # the stand-ins end by themselves
    subprocess.run(["/bin/bash", "upskill.sbatch"], cwd=home, env=environment, check=True)
    said = sorted(log.read_text(encoding="utf-8").splitlines())
    head = "ray start --head --port=24711 --num-cpus=32 --include-dashboard=false --block"
    given = "--repeats 20 --executor ray --set ray_address=n1:24711 --concurrency 256 --quiet"
    assert said == [
        "ray health-check --address n1:24711 token=0123",
        f"srun --nodes=1 --ntasks=1 --nodelist=n1 {head} token=0123",
        "srun --nodes=3 --ntasks=3 --exclude=n1 ray start --address=n1:24711 --num-cpus=32 --block token=0123",
        f"upskill eval my-skill -m haiku {given} store=postgresql://db/x mode=token",
    ]
