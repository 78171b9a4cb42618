"""Starts Ray on this machine, or joins a cluster, and says how many chunks fit on it."""

from __future__ import annotations

import logging
import os
import socket
import tempfile
import time
from pathlib import Path
from typing import Any, cast

from upskill.errors import UsageError
from upskill.installation import add_extra
from upskill.runs.running.executors import Resources

OBJECT_STORE = 100 * 2**20  # bytes; results do not pass through it
CONNECT_SECONDS = 10.0
COUNTED_AGAIN_AFTER = 5.0  # seconds
STARTS = 5  # of Ray on this machine, which gives up after 30 seconds
PATIENCE = {  # a machine that is busy is not one that is dead
    "RAY_health_check_timeout_ms": "120000",
    "RAY_worker_register_timeout_seconds": "600",
    "RAY_gcs_server_request_timeout_seconds": "600",
}
logger = logging.getLogger(__name__)


def import_ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent anywhere
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # or it warns of that at every start
    try:
        import ray  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise UsageError("--executor ray needs Ray, which is not installed", f"Run `{add_extra('ray')}`.") from error
    return ray


def start_ray(ray: Any, address: str = "", **options: Any) -> None:
    """Start Ray on this machine, or join the cluster at an address, without a word on standard output."""
    if not address:
        options = {"address": "local", "include_dashboard": False, "object_store_memory": OBJECT_STORE} | options
        for name, value in PATIENCE.items():
            os.environ.setdefault(name, value)
    else:
        options["address"] = address
    for start in range(STARTS):
        try:
            ray.init(log_to_driver=False, logging_level=logging.ERROR, namespace="upskill", **options)
            break
        except Exception as error:
            ray.shutdown()
            if address or "timed out during startup" not in str(error):
                raise
            if start == STARTS - 1:
                raise TimeoutError("this machine is too busy") from error
    # The death of a worker would be printed to standard output, which belongs to the result; no setting prevents it.
    ray._private.worker._worker_logs_enabled = False


def _check_reachable(address: str) -> None:
    """UsageError where nobody listens: Ray itself tries for minutes."""
    if address == "auto":
        note = Path(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()) / "ray" / "ray_current_cluster"
        if not note.is_file():
            raise UsageError("no node of a Ray cluster runs on this machine", "Start one with `ray start --head`.")
        address = note.read_text(encoding="utf-8").strip()
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise UsageError(f"{address!r} is not the address of a Ray cluster", "It has the form HOST:PORT, or is auto.")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        hint = "`ray status` on one of its nodes says whether it runs."
        raise UsageError(f"cannot join the Ray cluster at {address}: {error}", hint) from error


class Cluster:
    """Ray as this process has it: started here, joined, or set up by whoever called us."""

    def __init__(self, address: str, resources: Resources) -> None:
        self.ray = import_ray()
        self.address = (address or os.environ.get("RAY_ADDRESS", "")).removeprefix("local")
        self.resources = resources
        self._workers = 0
        self._counted_at = 0.0
        if not self.ray.is_initialized():
            self._init()
        if not self.workers:
            self._explain_misfit()

    @property
    def task_options(self) -> dict[str, Any]:
        given = self.resources
        memory = None if given.memory_mb is None else int(given.memory_mb * 2**20)
        wanted = {"num_cpus": given.cpus if given.cpus is not None else 1, "num_gpus": given.gpus, "memory": memory}
        return {name: value for name, value in wanted.items() if value is not None}

    @property
    def workers(self) -> int:
        """How many chunks fit on the nodes there are now."""
        if time.monotonic() - self._counted_at > COUNTED_AGAIN_AFTER or not self._workers:
            self._workers = sum(self._fit(node["Resources"]) for node in self._nodes())
            self._counted_at = time.monotonic()
        return self._workers

    def recount(self) -> None:
        """A node may be gone."""
        self._counted_at = 0.0

    def other_machines(self) -> list[str]:
        """The names of nodes that are not on the machine of this process."""
        here = os.uname().nodename
        return sorted({node["NodeManagerHostname"] for node in self._nodes()} - {here})

    def _nodes(self) -> list[dict[str, Any]]:
        return [node for node in cast("list[dict[str, Any]]", self.ray.nodes()) if node["Alive"]]

    def _fit(self, node: dict[str, float]) -> int:
        names = {"num_cpus": "CPU", "num_gpus": "GPU", "memory": "memory"}
        wanted = {names[name]: value for name, value in self.task_options.items() if value}
        return int(min((node.get(name, 0.0) / value for name, value in wanted.items()), default=node.get("CPU", 1.0)))

    def _init(self) -> None:
        if self.address.startswith("ray://"):
            raise UsageError(
                f"{self.address}: the Ray client is not supported",
                "Run upskill on a node of the cluster with --ray-address auto, or submit it as a Ray job.",
            )
        if self.address:
            _check_reachable(self.address)
        try:
            start_ray(self.ray, self.address)
        except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
            where = f"cannot join the Ray cluster at {self.address}" if self.address else "cannot start Ray"
            raise UsageError(f"{where}: {str(error).strip()}", "`ray status` on one of its nodes says more.") from error
        logger.info("Ray has room for %d chunks", self.workers)

    def _explain_misfit(self) -> None:
        given = self.resources
        flags = {"--trial-cpus": given.cpus, "--trial-gpus": given.gpus, "--trial-memory": given.memory_mb}
        wanted = " ".join(f"{flag} {value:g}" for flag, value in flags.items() if value is not None)
        if wanted:
            raise UsageError(f"no node of this Ray cluster has room for a trial with {wanted}", "Ask for less.")
        raise UsageError("no node of this Ray cluster has a CPU for trials")
