"""Ctrl-C while a run is made: an exception before the training loop, and a request to stop between two updates in it.

An exception that comes while modules are imported may be caught there, or dropped by Python in the callback of a weak
reference, and torch imports much when the first optimizer is made: of twelve trainings one continued. What was asked
for before the loop is therefore remembered too.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class Remembered:
    """A handler that raises KeyboardInterrupt and remembers that it did."""

    def __init__(self) -> None:
        self.was_asked = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handle Ctrl-C."""
        self.was_asked = True
        raise KeyboardInterrupt


@contextmanager
def remembered() -> Iterator[None]:
    """Remember within the block that Ctrl-C was pressed; it raises KeyboardInterrupt as usual."""
    with _handled(Remembered()):
        yield


@contextmanager
def asked_to_stop() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether Ctrl-C was pressed: training stops between two updates."""
    earlier = signal.getsignal(signal.SIGINT)
    asked = [signal.SIGINT] if isinstance(earlier, Remembered) and earlier.was_asked else []
    with _handled(lambda number, frame: asked.append(signal.SIGINT)):
        yield lambda: bool(asked)


@contextmanager
def _handled(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread receives signals
        return
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
