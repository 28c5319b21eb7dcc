"""The CUDA driver, through ctypes: loads compiled kernels and launches them on torch's current stream."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from threading import Lock, local
from typing import Any, NamedTuple

import torch

from recollect.accel.cuda import nvrtc
from recollect.accel.cuda.recurrent.plan import Chip, Chore, KernelPlan

MAX_DYNAMIC_SHARED_BYTES, NON_PORTABLE_CLUSTERS = 8, 14  # CUfunction_attribute
COOPERATIVE, CLUSTER_DIMENSION = 2, 4  # CUlaunchAttributeID
BLOCKS_AT_ONCE = 8  # of a chore, per multiprocessor


class DriverError(RuntimeError):
    """The driver returned an error."""


class _Attribute(ctypes.Structure):
    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_char * 4), ("value", ctypes.c_uint * 16))


class _Config(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("attribute_count", ctypes.c_uint),
    )


_Parameters = ctypes.c_void_p * 1


class Cuda:
    """One GPU, as the recurrent kernels need it."""

    def __init__(self, device: torch.device) -> None:
        properties = torch.cuda.get_device_properties(device)
        self.device = device
        self.arch = f"sm_{properties.major}{properties.minor}a"
        shared_bytes = getattr(properties, "shared_memory_per_block_optin", Chip.shared_bytes)
        self.chip = Chip(properties.multi_processor_count, shared_bytes)
        self._pinned = torch.zeros(1, dtype=torch.int32, pin_memory=True)
        self.told = ctypes.c_int.from_address(self._pinned.data_ptr())  # a kernel that gave up writes here
        self._kernels: dict[KernelPlan | Chore, tuple[ctypes.c_void_p, LaunchShape]] = {}
        self._at_once: dict[KernelPlan, int] = {}  # blocks; 0 where the driver refuses the launch
        self._lock = Lock()

    def fits(self, plan: KernelPlan, copies: int = 1) -> bool:
        """Return whether all blocks of so many copies can be resident at once; copies do not share a multiprocessor."""
        if copies > 1 and copies * plan.grid > self.chip.multiprocessors:
            return False
        if plan not in self._at_once:
            with torch.cuda.device(self.device):
                self._at_once[plan] = self._try(plan)
        return self._at_once[plan] >= copies * plan.grid

    def _try(self, plan: KernelPlan) -> int:
        """Compile a plan's kernels; return how many blocks fit at once, 0 where a launch of no steps is refused."""
        nothing = (ctypes.c_byte * 1024)()
        for chore in Chore.all_of(plan).values():
            self._kernel(chore)
        at_once = self._blocks_at_once(plan)
        here = torch.cuda.current_device()
        is_accepted = at_once >= plan.grid and _start(*self._kernel(plan), ctypes.addressof(nothing), here) == 0
        return at_once if is_accepted else 0

    def launch(self, plan: KernelPlan, arguments: ctypes.Structure) -> None:
        """Launch on the current stream."""
        launch(*self._kernel(plan), arguments, self.device)

    def do(self, chore: Chore, count: int, arguments: ctypes.Structure) -> None:
        """Launch on the current stream: a thread per item, up to as many as are resident at once."""
        blocks = max(1, min(-(-count // chore.threads), BLOCKS_AT_ONCE * self.chip.multiprocessors))
        shape = LaunchShape(blocks, chore.threads, chore.shared_bytes)
        launch(self._kernel(chore)[0], shape, arguments, self.device)

    def _blocks_at_once(self, plan: KernelPlan) -> int:
        count, (function, shape) = ctypes.c_int(), self._kernel(plan)
        if plan.cluster == 1:
            size = (plan.threads, ctypes.c_size_t(plan.shared_bytes))
            _check(_driver().cuOccupancyMaxActiveBlocksPerMultiprocessor(ctypes.byref(count), function, *size))
            return count.value * self.chip.multiprocessors
        config = _configure(shape)
        status = _driver().cuOccupancyMaxActiveClusters(ctypes.byref(count), function, ctypes.byref(config))
        return 0 if status else count.value * plan.cluster  # a cluster that large may be refused

    def _kernel(self, kernel: KernelPlan | Chore) -> tuple[ctypes.c_void_p, LaunchShape]:
        found = self._kernels.get(kernel)
        if found is None:
            with self._lock:
                shape = LaunchShape(kernel.grid, kernel.threads, kernel.shared_bytes, kernel.cluster, kernel.through_l2)
                if kernel not in self._kernels:  # another thread may have been quicker
                    loaded = load(kernel.source, kernel.entry, kernel.macros, self.arch, shape)
                    self._kernels[kernel] = loaded, shape
                found = self._kernels[kernel]
        return found


class LaunchShape(NamedTuple):
    """How a kernel is launched: blocks, threads in each, shared memory, clusters, whether all run at once."""

    blocks: int
    threads: int
    shared_bytes: int
    cluster: int = 1
    cooperative: bool = False


def load(source: str, entry: str, macros: Mapping[str, int | str], arch: str, shape: LaunchShape) -> ctypes.c_void_p:
    """Compile a kernel for a chip, or read it from the cache, and load it for the current device."""
    code = nvrtc.build(sources(), f"{source}.cu", macros, arch)
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    _enter_context()
    _check(_driver().cuModuleLoadData(ctypes.byref(module), code))
    _check(_driver().cuModuleGetFunction(ctypes.byref(function), module, entry.encode()))
    _check(_driver().cuFuncSetAttribute(function, MAX_DYNAMIC_SHARED_BYTES, shape.shared_bytes))
    if shape.cluster > 8:
        _check(_driver().cuFuncSetAttribute(function, NON_PORTABLE_CLUSTERS, 1))
    return function


def launch(function: ctypes.c_void_p, shape: LaunchShape, arguments: ctypes.Structure, device: torch.device) -> None:
    """Launch a kernel, whose one argument is a structure, on a device's current stream."""
    if torch.cuda.current_device() == device.index:  # asked once: every query costs time
        status = _start(function, shape, ctypes.addressof(arguments), device.index)
    else:
        with torch.cuda.device(device):
            status = _start(function, shape, ctypes.addressof(arguments), device.index)
    if status:
        _check(status)


def _start(function: ctypes.c_void_p, shape: LaunchShape, arguments: int, device: int) -> int:
    _enter_context()
    kept = _configure(shape)
    config = _Config.from_buffer_copy(kept)  # its own: threads may launch at the same time
    config.stream = torch._C._cuda_getCurrentRawStream(device)
    status: int = _driver().cuLaunchKernelEx(ctypes.byref(config), function, _Parameters(arguments), None)
    return status


class _Thread(local):
    has_context = False


_thread = _Thread()


def _enter_context() -> None:
    """Set torch's context for this thread: autograd's threads have none before torch's first launch there."""
    if _thread.has_context:
        return
    context = ctypes.c_void_p()
    _check(_driver().cuCtxGetCurrent(ctypes.byref(context)))
    if not context.value:
        _check(_driver().cuDevicePrimaryCtxRetain(ctypes.byref(context), torch.cuda.current_device()))
        _check(_driver().cuCtxSetCurrent(context))
    _thread.has_context = True


@lru_cache
def sources() -> dict[str, str]:
    """Return the kernels' sources by file name."""
    folder = files("recollect.accel.cuda") / "sources"
    return {
        path.name: path.read_text(encoding="utf-8") for path in folder.iterdir() if path.name.endswith((".cu", ".cuh"))
    }


@lru_cache(maxsize=1024)
def _configure(shape: LaunchShape) -> _Config:
    attributes = []
    if shape.cluster > 1:
        attributes.append(_Attribute(id=CLUSTER_DIMENSION, value=(shape.cluster, 1, 1)))
    if shape.cooperative:
        attributes.append(_Attribute(id=COOPERATIVE, value=(1,)))
    array = (_Attribute * max(1, len(attributes)))(*attributes)
    return _Config((shape.blocks, 1, 1), (shape.threads, 1, 1), shape.shared_bytes, None, array, len(attributes))


@lru_cache
def _driver() -> Any:
    return ctypes.CDLL("libcuda.so.1")


def _check(status: int) -> None:
    if status:
        text = ctypes.c_char_p()
        _driver().cuGetErrorString(status, ctypes.byref(text))
        raise DriverError(f"the CUDA driver returned {status}: {(text.value or b'unknown').decode()}")
