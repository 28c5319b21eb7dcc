"""Cells on the machines of a Ray cluster, each a task on a core, or a GPU, of one of them.

A task starts the same process as a comparison without a cluster does. All machines see the comparison's folder, the
data and the files of own layers at the same paths (a shared file system) and have the same version of this package.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias

from recollect.comparison.digests import changed, digests_of
from recollect.comparison.plan import Plan
from recollect.comparison.processes import Slot
from recollect.core.machine import cpu_model
from recollect.core.serialize import FileError
from recollect.core.settings import SettingError
from recollect.core.threads import separate_cores
from recollect.version import __version__

Node: TypeAlias = dict[str, Any]  # as Ray tells it
Machine: TypeAlias = dict[str, Any]  # as `look_around` does
BOOT = Path("/proc/sys/kernel/random/boot_id")  # of the machine, also within a container
STATISTICS = "RAY_USAGE_STATS_ENABLED"


class RemoteCell:
    """The process of a cell on another machine, with the methods of a `subprocess.Popen` that are needed."""

    stdin = None

    def __init__(self, task: Any, slot: Slot, errors: Path) -> None:
        self.task = task
        self.slot = slot
        self.errors = errors

    def poll(self) -> int | None:
        """Return the exit code; None while it runs or waits for its machine."""
        import ray

        done, _ = ray.wait([self.task], timeout=0)
        return self.wait() if done else None

    def wait(self) -> int:
        """Return the exit code; 1 where the task was lost, with the reason in the file of errors."""
        import ray
        from ray.exceptions import NodeDiedError, RayError, TaskUnschedulableError

        try:
            code: int = ray.get(self.task)
            return code
        except RayError as error:
            self.slot.is_lost = isinstance(error, NodeDiedError | TaskUnschedulableError)
            reason = str(error).strip().partition("\n")[0].partition(". ")[0]
            self.errors.write_text(f"lost by the cluster: {type(error).__name__}: {reason}", encoding="utf-8")
            return 1

    def kill(self) -> None:
        """End the task, and with it the cell, whose standard input is closed."""
        import ray

        ray.cancel(self.task, force=True)


class RemoteSlot(Slot):
    """A core or a GPU of a machine of the cluster."""

    def __init__(self, node: str, core: int | None, device: str | None) -> None:
        super().__init__(core, device)
        self.node = node

    def start(self, folder: Path, name: str, extra: str) -> None:
        """Start a cell on the machine; where its core need not be its own, on any other if that one is gone."""
        options = {"num_cpus": 1, "num_gpus": 0 if self.device is None else 1, "max_retries": 0}
        task = on_node(run_cell, self.node, is_soft=self.core is None, **options)
        words = (os.getcwd(), str(folder.resolve()), name, extra, self.core, self.device)
        self.process = RemoteCell(task.remote(*words), self, folder / "cells" / f"{name}.err")
        self.name = name


def run_cell(here: str, folder: str, name: str, extra: str, core: int | None, device: str | None) -> int:
    """Run a cell on this machine, in the driver's directory; return the exit code of its process."""
    os.chdir(here)
    slot = Slot(core, device)
    slot.start(Path(folder), name, extra)
    assert slot.process is not None
    return slot.process.wait()


def look_around(here: str, folder: str, saved: str, digests: dict[str, str]) -> Machine:
    """Return what a machine has, and what of the comparison it does not see as the driver does; empty for nothing."""
    unseen = here
    with suppress(OSError):
        os.chdir(here)
        unseen = folder
        if (Path(folder) / "plan.json").read_text(encoding="utf-8") == saved:
            unseen = changed(digests, digests_of(digests)) or ""
    own = BOOT.read_text(encoding="utf-8") if BOOT.exists() else platform.node()
    return {"unseen": unseen, "own": own, "cores": separate_cores(), "processor": cpu_model(), "version": __version__}


def on_node(function: Any, node: str, is_soft: bool = False, **options: float) -> Any:
    """Return a function as a task of one machine."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    strategy = NodeAffinitySchedulingStrategy(node_id=node, soft=is_soft)
    return ray.remote(function).options(scheduling_strategy=strategy, **options)


@contextmanager
def cluster(plan: Plan, folder: Path, jobs: int | None) -> Iterator[list[Slot]]:
    """Connect to a cluster and yield its slots.

    It is the one that RAY_ADDRESS names or that runs on this machine; where there is none, one is started here.
    """
    try:
        import ray
    except ImportError as error:
        raise SettingError("ray is not installed; try: pip install 'recollect[cluster]'") from error
    is_ours = not ray.is_initialized()
    if is_ours:
        with _without_statistics():
            ray.init(log_to_driver=False, configure_logging=False)
    try:
        nodes = [node for node in _nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]
        saved = (folder / "plan.json").read_text(encoding="utf-8")
        told = (os.getcwd(), str(folder.resolve()), saved, dict(plan.digests))
        machines = ray.get([on_node(look_around, one["NodeID"], num_cpus=0).remote(*told) for one in nodes])
        check_machines(nodes, machines, plan)
        yield places(nodes, machines, plan)[:jobs]
    finally:
        if is_ours:
            ray.shutdown()


def _nodes() -> list[Node]:
    """Return the nodes of the cluster."""
    import ray

    found: list[Node] = ray.nodes()  # type: ignore[no-untyped-call]
    return found


@contextmanager
def _without_statistics() -> Iterator[None]:
    """Let a cluster that is started here report its use to nobody."""
    before = os.environ.get(STATISTICS)
    os.environ[STATISTICS] = "0"
    try:
        yield
    finally:
        if before is None:
            del os.environ[STATISTICS]
        else:
            os.environ[STATISTICS] = before


def check_machines(nodes: Sequence[Node], machines: Sequence[Machine], plan: Plan) -> None:
    """Raise where there is none, one has other files or another version, or they differ under a budget of seconds."""
    if not nodes:
        raise SettingError("--ray: got a cluster without a machine that has a CPU to give, expected at least one")
    for node, machine in zip(nodes, machines, strict=True):
        name = node["NodeManagerHostname"]
        if machine["unseen"]:
            raise FileError(
                f"{machine['unseen']}: is not on {name} as it is here; put data, own code and --out where all machines "
                "of the cluster see them"
            )
        if machine["version"] != __version__:
            raise SettingError(f"{name}: has recollect {machine['version']}, expected {__version__} as here")
    kinds = sorted({machine["processor"] for machine in machines})
    if plan.is_by_seconds and len(kinds) > 1:
        raise SettingError(
            f"--budget: got seconds on machines that differ ({', '.join(kinds)}), expected steps=… or 1e6tok"
        )


def places(nodes: Sequence[Node], machines: Sequence[Machine], plan: Plan) -> list[Slot]:
    """Return where cells may run: a core each, or where there are GPUs one at a time on each of them.

    Several nodes may be on one machine, as containers are: none of its cores is given twice.
    """
    gpus = [0 if plan.device == "cpu" else int(node["Resources"].get("GPU", 0)) for node in nodes]
    found: list[Slot] = []
    given: set[tuple[str, int]] = set()
    for node, machine, count in zip(nodes, machines, gpus, strict=True):
        if any(gpus):
            found += [RemoteSlot(node["NodeID"], None, "cuda:0") for _ in range(count)]
            continue
        free = [core for core in machine["cores"] if (machine["own"], core) not in given]
        cores = free[: int(node["Resources"]["CPU"])]
        given |= {(machine["own"], core) for core in cores}
        found += [RemoteSlot(node["NodeID"], core if plan.is_by_seconds else None, None) for core in cores]
    return found
