"""What the routes of a server share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from recollect.serving.engine import Engine
from recollect.serving.errors import ApiError
from recollect.serving.metrics import Metrics
from recollect.serving.served import Served, named
from recollect.serving.sessions import Sessions


@dataclass(frozen=True)
class Limits:
    """What one server allows."""

    seconds: float = 300.0  # of one request
    body_bytes: int = 8 * 2**20
    body_seconds: float = 20.0  # until a request has arrived
    session_bytes: int = 2**30  # of all sessions
    sessions: int = 10_000


@dataclass(eq=False)
class State:
    """The models of a server, what computes, what is kept, and what is counted."""

    models: Sequence[Served]
    limits: Limits
    engine: Engine
    sessions: Sessions
    metrics: Metrics = field(default_factory=Metrics)
    folders: Sequence[str] = ()  # that were asked for: the page looks for trainings in them
    command: str = ""  # that starts the same server
    notice: Callable[[str], None] = lambda text: None

    @classmethod
    def of(
        cls,
        models: Sequence[Served],
        limits: Limits | None = None,
        folder: Path | None = None,
        notice: Callable[[str], None] = lambda text: None,
        folders: Sequence[str] = (),
        command: str = "",
    ) -> State:
        """Return the state of a new server; `notice` is told of what the person at the terminal should know."""
        limits = limits or Limits()
        engine = Engine([one.scheduler for one in models if one.scheduler is not None], notice)
        sessions = Sessions(models, folder, limits.session_bytes, limits.sessions)
        return cls(models, limits, engine, sessions, folders=folders, command=command, notice=notice)

    def find(self, name: str) -> Served:
        """Return a model; raise an `ApiError` for an unknown one."""
        try:
            return named(self.models, name)
        except KeyError as error:
            raise ApiError(404, error.args[0], "model_not_found") from error
