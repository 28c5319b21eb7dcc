"""Run experiments side by side, each worker in a process of its own: one that crashes loses one claim."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from recollect.story.claim import Budget, Claim, Result
from recollect.story.register import claim_named, experiment
from recollect.story.results import is_fresh, result_of, save


@dataclass(frozen=True)
class Outcome:
    """A claim with what came of it: a result, or the reason why there is none."""

    claim: Claim
    result: Result | None
    seconds: float = 0.0
    problem: str = ""


def measure(name: str, budget: Budget) -> tuple[Result, float]:
    """Run one experiment; return its result and how long it took."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    begun = time.perf_counter()
    result = experiment(claim_named(name))(budget).judged()
    return result, time.perf_counter() - begun


def run_claims(
    asked: Sequence[Claim],
    budget: Budget,
    folder: Path,
    report: Callable[[Outcome], None] = lambda outcome: None,
    is_again: bool = False,
    workers: int | None = None,
) -> list[Outcome]:
    """Run the experiments that have no result of their present version, or all with `is_again`; return the outcomes.

    Those that measure time run one at a time after the others.
    """
    due = [claim for claim in _with_cited(asked) if _is_run(claim)]
    due = [claim for claim in due if is_again or not is_fresh(claim, folder)]
    problems: dict[str, str] = {}
    seconds: dict[str, float] = {}
    beside = [claim for claim in due if not claim.is_alone]
    alone = [claim for claim in due if claim.is_alone]
    for part, count in ((beside, workers or os.cpu_count() or 1), (alone, 1)):
        for claim, found in _in_processes(part, budget, count):
            if isinstance(found, str):
                problems[claim.id] = found
            else:
                save(claim, found[0], found[1], folder)
                seconds[claim.id] = found[1]
            if claim in asked:
                report(_outcome(claim, folder, seconds, problems))
    reported = seconds.keys() | problems.keys()
    outcomes = [_outcome(claim, folder, seconds, problems) for claim in asked]
    for outcome in outcomes:
        if outcome.claim.id not in reported:
            report(outcome)
    return outcomes


def _is_run(claim: Claim) -> bool:
    return claim.budget != "source" and not claim.cites


def _with_cited(asked: Sequence[Claim]) -> list[Claim]:
    """Return the claims with those that they cite."""
    cited = [claim_named(name) for claim in asked for name, _ in claim.cites]
    return [*asked, *(claim for claim in dict.fromkeys(cited) if claim not in asked)]


def _outcome(claim: Claim, folder: Path, seconds: dict[str, float], problems: dict[str, str]) -> Outcome:
    problem = problems.get(claim.id, "")
    result = None if problem else result_of(claim, folder)
    return Outcome(claim, result, seconds.get(claim.id, 0.0), problem)


def _in_processes(
    part: Sequence[Claim], budget: Budget, count: int
) -> Iterator[tuple[Claim, tuple[Result, float] | str]]:
    """Yield each claim with its result and seconds, or with what went wrong.

    A worker that dies takes the pool with it: what was not finished then runs once more, each in a pool of its own.
    """
    left = list(part)
    broken = False
    with _pool(min(count, len(part))) as pool:
        futures = {pool.submit(measure, claim.id, budget): claim for claim in part}
        for future in as_completed(futures):
            found = _found(future)
            broken = broken or found is None
            if found is not None:
                left.remove(futures[future])
                yield futures[future], found
    for claim in left if broken else []:
        with _pool(1) as pool:
            yield claim, _found(pool.submit(measure, claim.id, budget)) or "its process was killed"


def _pool(count: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(max(count, 1), mp_context=get_context("spawn"))


def _found(future: Future[tuple[Result, float]]) -> tuple[Result, float] | str | None:
    """Return what a worker returned, its error in words, or None where it died."""
    try:
        return future.result()
    except BrokenProcessPool:
        return None
    except Exception as error:
        return f"{type(error).__name__}: {error}"
