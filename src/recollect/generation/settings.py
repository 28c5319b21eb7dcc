"""Settings of sampling and of beam search, checked when they are made."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Literal

from recollect.core.errors import ContractError


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How to continue a prompt, one id at a time.

    Filters apply in this order: repetition penalty, prohibited ids, temperature, top-k, top-p, min-p; an id is drawn
    from what is left, renormalised. `greedy` selects the likeliest id after penalty and prohibition instead (the lowest
    of equals). A row ends after an id of `stop`, which is still part of its ids, or after `tokens` ids. `begin` is read
    before every prompt.

    `repetition_penalty` θ (Keskar et al. 2019, section 4.1) lowers the logit x of every id that the row's prompt or
    continuation holds, to x / θ where x > 0 and x · θ where x < 0, as transformers does; 1 leaves it out, below 1
    repetition is encouraged. Ids that `memory` has read do not count: a memory does not hold them.

    >>> settings = rc.Settings(tokens=20, temperature=0.8, top_p=0.9, seed=1)
    >>> settings.tokens, settings.greedy
    (20, False)
    """

    tokens: int = 100
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float = 1.0
    greedy: bool = False
    seed: int = 0
    stop: Sequence[int] = ()
    prohibited: Sequence[int] = ()
    begin: int | None = None

    def __post_init__(self) -> None:
        _check_whole("tokens", self.tokens, 0)
        _check_whole("seed", self.seed, 0)
        if not _is_number(self.temperature) or not 0 < self.temperature < math.inf:
            raise ContractError("temperature", self.temperature, "more than 0; greedy=True selects the likeliest id")
        if self.top_k is not None:
            _check_whole("top_k", self.top_k, 1)
        if self.top_p is not None and not (_is_number(self.top_p) and 0 < self.top_p <= 1):
            raise ContractError("top_p", self.top_p, "more than 0 and at most 1")
        if self.min_p is not None and not (_is_number(self.min_p) and 0 <= self.min_p <= 1):
            raise ContractError("min_p", self.min_p, "0 to 1")
        if not _is_number(self.repetition_penalty) or not 0 < self.repetition_penalty < math.inf:
            raise ContractError("repetition_penalty", self.repetition_penalty, "more than 0; 1 leaves it out")
        _settle_ids(self, "stop", "prohibited")


@dataclass(frozen=True, kw_only=True)
class Search:
    """How to search for the likeliest continuations by beam search.

    A hypothesis of L ids, its end id counted, has the score log p / penalty:

        length="gnmt"  ((5 + L) / 6)^α   (Wu et al. 2016, eq. 14, without coverage)
        length="power" L^α               (1/L^α; α = 1 is the mean log-probability)

    α = 0 compares log p. It ends after an id of `end`, but not before `min_tokens` other ids, or after `tokens`
    ids. `no_repeat` = n forbids every n-gram that prompt and continuation already hold (Paulus et al. 2017). A prompt
    is finished

        patience="first"    as soon as `width` hypotheses have ended, so that width 1 is greedy;
        patience="current"  when, moreover, no open one would beat the worst of them if it ended now;
        patience="exact"    when no open one can beat it however long it grows.

    In transformers these are early_stopping = True, False and "never".

    >>> search = rc.Search(width=4, nbest=2, alpha=0.0)
    >>> search.width, search.tokens
    (4, 100)
    """

    width: int = 5
    tokens: int = 100
    min_tokens: int = 0
    nbest: int = 1
    length: Literal["gnmt", "power"] = "gnmt"
    alpha: float = 0.6
    patience: Literal["first", "current", "exact"] = "first"
    no_repeat: int | None = None
    end: Sequence[int] = ()
    prohibited: Sequence[int] = ()
    begin: int | None = None

    def __post_init__(self) -> None:
        _check_whole("width", self.width, 1)
        _check_whole("tokens", self.tokens, 1)
        _check_whole("min_tokens", self.min_tokens, 0)
        _check_whole("nbest", self.nbest, 1)
        if self.no_repeat is not None:
            _check_whole("no_repeat", self.no_repeat, 1)
        if self.min_tokens > self.tokens:
            raise ContractError("min_tokens", self.min_tokens, f"at most tokens, {self.tokens}")
        if self.nbest > self.width:
            raise ContractError("nbest", self.nbest, f"at most width, {self.width}")
        if not _is_number(self.alpha) or not 0 <= self.alpha < math.inf:
            raise ContractError("alpha", self.alpha, "0 or more")
        if self.length not in ("gnmt", "power"):
            raise ContractError("length", repr(self.length), "'gnmt' or 'power'")
        if self.patience not in ("first", "current", "exact"):
            raise ContractError("patience", repr(self.patience), "'first', 'current' or 'exact'")
        _settle_ids(self, "end", "prohibited")

    def normalised(self, logprob: float, length: int) -> float:
        """Return the score of a hypothesis of `length` ids."""
        base = (5 + length) / 6 if self.length == "gnmt" else float(length)
        return logprob / base**self.alpha


# ---- compilation -----------------------------------------------------------------------------------

_REQUESTED: ContextVar[bool] = ContextVar("compilation requested", default=False)


@contextmanager
def compiled() -> Iterator[None]:
    """Compile the decode steps of generations that begin in this block, however short they are.

    Long generations on a CPU are compiled in any case, where there is a C compiler and device code is not switched off.
    Compilation takes a third of a second for each new shape; later processes load it from the cache. Results agree up
    to rounding.

        with compiled():
            generate(model, prompts, Settings(tokens=40))
    """
    token = _REQUESTED.set(True)
    try:
        yield
    finally:
        _REQUESTED.reset(token)


def is_compilation_requested() -> bool:
    """Return whether the caller is inside `compiled()`."""
    return _REQUESTED.get()


# ---- checks ----------------------------------------------------------------------------------------


def check_vocabulary(settings: Settings | Search, vocab_size: int) -> None:
    """Raise if an id that ends a row, or is prohibited, is not in the vocabulary."""
    ends = {"stop": settings.stop} if isinstance(settings, Settings) else {"end": settings.end}
    for name, ids in {**ends, "prohibited": settings.prohibited}.items():
        beyond = [i for i in ids if i >= vocab_size]
        if beyond:
            raise ContractError(name, beyond[0], f"ids from 0 to {vocab_size - 1}")


def _is_number(value: object) -> bool:
    return type(value) is not bool and isinstance(value, Real)


def _check_whole(name: str, value: object, least: int) -> None:
    if type(value) is bool or not isinstance(value, Integral) or int(value) < least:
        raise ContractError(name, repr(value), f"a whole number, at least {least}")


def _settle_ids(settings: Settings | Search, *names: str) -> None:
    """Check the fields that hold ids, and make tuples of them."""
    for name in names:
        value = getattr(settings, name)
        if isinstance(value, (str, bytes)) or not hasattr(value, "__iter__"):
            raise ContractError(name, repr(value), "a list of ids")
        ids = tuple(value)
        for i in ids:
            _check_whole(name, i, 0)
        object.__setattr__(settings, name, tuple(int(i) for i in ids))
    if settings.begin is not None:
        _check_whole("begin", settings.begin, 0)
