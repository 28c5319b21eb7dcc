"""Beam search: the likeliest continuations of many prompts at once.

Every prompt has `width` rows. A step scores all their continuations by one id; those among the best `width` that chose
an end id are finished, and the search continues with the best `width` others: the rule of transformers, fairseq and
others. Memories follow their hypotheses with `reorder`, within each prompt's rows; finished prompts leave the batch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from recollect.core.memory import Memory
from recollect.core.threads import pace
from recollect.generation.filters import check_logits, prohibit
from recollect.generation.prefill import Model, PromptReader, Prompts, undisturbed
from recollect.generation.settings import Search, check_vocabulary

PATIENCE = 4  # steps read with the model itself: rows are first repeated `width` times, and prompts may finish soon

Ended: TypeAlias = Literal["stop", "length", "blocked"]


@dataclass(frozen=True)
class Hypothesis:
    """One continuation: its ids, an end id included, and log p of each; `score` is their sum over the length penalty.

    `reason`: "stop" at an end id, "length" after the last allowed id, "blocked" where no id was allowed any more.
    """

    ids: list[int]
    logprobs: list[float]
    score: float
    reason: Ended


@dataclass(frozen=True, eq=False)
class Beams:
    """The open hypotheses of the prompts that are not finished, W for each; a dead one has the total −∞."""

    prompts: list[int]  # index of each prompt
    history: Tensor  # (B, W, P + L) prompts, left padded with −1, then the ids generated since
    logprobs: Tensor  # (B, W, L)
    totals: Tensor  # (B, W) log p

    @property
    def generated(self) -> Tensor:
        """(B, W, L) the ids after the prompts."""
        return self.history[..., self.history.shape[2] - self.logprobs.shape[2] :]

    def select(self, keep: list[int]) -> Beams:
        """Return the beams of some of the prompts."""
        prompts = [self.prompts[i] for i in keep]
        return Beams(prompts, self.history[keep], self.logprobs[keep], self.totals[keep])


@dataclass(frozen=True, eq=False)
class Candidates:
    """The best continuations by one id, K for each prompt, best first."""

    parents: Tensor  # (B, K) indices of the hypotheses that they continue
    ids: Tensor  # (B, K)
    logprobs: Tensor  # (B, K) of these ids only
    totals: Tensor  # (B, K)


def beam(
    model: Model,
    prompts: Prompts,
    search: Search | None = None,
    memory: Memory | None = None,
    *,
    logits: Tensor | None = None,
) -> list[list[Hypothesis]]:
    """Return the `nbest` best continuations of each prompt, best first.

    Prompts, `memory` and `logits` are as in `stream`; a prompt is a forced prefix and not part of the hypotheses.

    >>> model = rc.Markov(3, order=1)
    >>> model.count(torch.tensor([[0, 1, 2, 0, 1, 2, 0]]))
    >>> best = rc.beam(model, [[0]], rc.Search(width=2, tokens=4))[0][0]
    >>> best.ids
    [1, 2, 0, 1]
    """
    search = search or Search()
    modules = list(model.modules())
    with undisturbed(modules):
        reader = PromptReader(
            model, prompts, search.tokens, search.begin, memory, logits, patience=PATIENCE, modules=modules
        )
        check_vocabulary(search, reader.logits.shape[-1])
        pools: list[list[Hypothesis]] = [[] for _ in reader.prompts]
        beams = _first_beams(reader, search)
        for step in range(search.tokens):
            pace()
            if not beams.prompts:
                break
            beams = _advance(reader, beams, pools, search, is_last=step + 1 == search.tokens)
    return [pool[: search.nbest] for pool in pools]


def _first_beams(reader: PromptReader, search: Search) -> Beams:
    """Repeat each prompt in `width` rows, of which only the first is alive."""
    count = len(reader.prompts)
    width = search.width
    reader.select(torch.arange(count, device=reader.device).repeat_interleave(width))
    longest = max((len(p) for p in reader.prompts), default=0)
    history = torch.full((count, longest), -1)
    for row, prompt in zip(history, reader.prompts, strict=True):
        row[longest - len(prompt) :] = prompt
    totals = reader.logits.new_full((count, width), -torch.inf)
    totals[:, :1] = 0
    history = history.to(reader.device)[:, None].repeat(1, width, 1)
    return Beams(list(range(count)), history, totals.new_zeros(count, width, 0), totals)


def _advance(
    reader: PromptReader, beams: Beams, pools: list[list[Hypothesis]], search: Search, *, is_last: bool
) -> Beams:
    """Extend every open hypothesis by one id; collect those that ended; drop finished prompts; read the rest."""
    logprobs = _logprobs(reader, beams, search)  # (B, W, V)
    found = _best(beams.totals, logprobs, (1 + len(search.end)) * search.width)
    ends = torch.isin(found.ids, torch.tensor(search.end, dtype=torch.long, device=found.ids.device))  # (B, K)
    _collect_ended(beams, found, ends, pools, search, is_last=is_last)
    after, parents = _continue(beams, found, ends, search.width)
    best = after.totals.amax(1).tolist()
    keep = [i for i, b in enumerate(best) if not _is_done(i, b, beams, after, pools, search)]
    if is_last or not keep:
        return after.select([])
    _move(reader, parents, keep, len(beams.prompts))
    after = after.select(keep)
    reader.read(after.history[..., -1].flatten())
    return after


def _logprobs(reader: PromptReader, beams: Beams, search: Search) -> Tensor:
    """Return log p of every next id, −∞ where it is not allowed."""
    check_logits(reader.logits, beams.totals.flatten() > -torch.inf)
    logprobs = prohibit(reader.logits.log_softmax(dim=-1), list(search.prohibited))  # (B W, V)
    if beams.logprobs.shape[2] < search.min_tokens:
        logprobs = prohibit(logprobs, list(search.end))
    if search.no_repeat is not None:
        repeats = completed_ngrams(beams.history.flatten(0, 1), search.no_repeat, logprobs.shape[-1])
        logprobs = logprobs.masked_fill(repeats, -torch.inf)
    return logprobs.unflatten(0, beams.totals.shape)


def completed_ngrams(history: Tensor, n: int, vocab_size: int) -> Tensor:
    """Return which ids (B, V) would repeat an n-gram of their row of history (B, L), in which −1 is padding."""
    banned = torch.zeros(len(history), vocab_size + 1, dtype=torch.bool, device=history.device)
    if history.shape[1] >= n:
        windows = history.unfold(1, n, 1)  # (B, L - n + 1, n)
        newest = history[:, None, history.shape[1] - n + 1 :]  # (B, 1, n - 1)
        completes = (windows[..., :-1] == newest).all(-1)
        after = windows[..., -1]
        is_id = completes & (after >= 0) & (after < vocab_size)
        banned.scatter_(1, after.masked_fill(~is_id, vocab_size), True)
    return banned[:, :vocab_size]


def _best(totals: Tensor, logprobs: Tensor, count: int) -> Candidates:
    vocab_size = logprobs.shape[-1]
    values, index = top((totals[..., None] + logprobs).flatten(1), count)  # (B, K)
    # Gathered, not subtracted from the totals: for a dead hypothesis −∞ − −∞ would be NaN.
    return Candidates(index // vocab_size, index % vocab_size, logprobs.flatten(1).gather(1, index), values)


def top(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the `count` largest values of each row and their indices, largest first; ties in order of index."""
    if count < values.shape[1]:
        found, index = values.topk(count + 1)
        if bool((found[:, count] < found[:, count - 1]).all()):  # no tie at the cut-off: the set is unique
            index = index[:, :count].sort(dim=1).values
            found, order = values.gather(1, index).sort(dim=1, descending=True, stable=True)
            return found, index.gather(1, order)
    found, index = values.sort(dim=1, descending=True, stable=True)
    return found[:, :count], index[:, :count]


def _collect_ended(
    beams: Beams, found: Candidates, ends: Tensor, pools: list[list[Hypothesis]], search: Search, *, is_last: bool
) -> None:
    """Add the ended hypotheses among the best `width` to the prompts' pools, which keep their best `width`."""
    alive = found.totals[:, : search.width] > -torch.inf
    ended = alive if is_last else alive & ends[:, : search.width]
    for i, j in ended.nonzero().tolist():
        parent = int(found.parents[i, j])
        ids = [*beams.generated[i, parent].tolist(), int(found.ids[i, j])]
        logprobs = [*beams.logprobs[i, parent].tolist(), float(found.logprobs[i, j])]
        reason: Ended = "stop" if ends[i, j] else "length"
        _keep(pools[beams.prompts[i]], ids, logprobs, reason, search)


def _keep(pool: list[Hypothesis], ids: list[int], logprobs: list[float], reason: Ended, search: Search) -> None:
    pool.append(Hypothesis(ids, logprobs, search.normalised(sum(logprobs), max(1, len(ids))), reason))
    pool.sort(key=lambda hypothesis: -hypothesis.score)
    del pool[search.width :]


def _continue(beams: Beams, found: Candidates, ends: Tensor, width: int) -> tuple[Beams, Tensor]:
    """Return the best `width` hypotheses that did not end, and the indices (B, W) of their parents."""
    missing = max(0, width - ends.shape[1])
    order = ends.to(torch.uint8).argsort(dim=1, stable=True)[:, :width]  # (B, W) open ones first
    order = torch.cat([order, order[:, :1].expand(-1, missing)], dim=1)
    totals = found.totals.gather(1, order).masked_fill(ends.gather(1, order), -torch.inf)
    totals[:, width - missing :] = -torch.inf
    parents = found.parents.gather(1, order)
    history = torch.cat([_rows_of(beams.history, parents), found.ids.gather(1, order)[..., None]], dim=2)
    logprobs = torch.cat([_rows_of(beams.logprobs, parents), found.logprobs.gather(1, order)[..., None]], dim=2)
    return replace(beams, history=history, logprobs=logprobs, totals=totals), parents


def _rows_of(t: Tensor, parents: Tensor) -> Tensor:
    return t.gather(1, parents[..., None].expand(-1, -1, t.shape[2]))


def _is_done(i: int, best: float, before: Beams, after: Beams, pools: list[list[Hypothesis]], search: Search) -> bool:
    """Return whether the search of prompt i is finished; `best` is log p of its likeliest open hypothesis."""
    pool = pools[after.prompts[i]]
    if best == -torch.inf:
        if not pool:  # no id is allowed and none has ended: keep the hypotheses as they were
            for w in (before.totals[i] > -torch.inf).nonzero()[:, 0].tolist():
                _keep(pool, before.generated[i, w].tolist(), before.logprobs[i, w].tolist(), "blocked", search)
        return True
    if len(pool) < search.width:
        return False
    length = search.tokens if search.patience == "exact" else after.logprobs.shape[2]
    return search.patience == "first" or search.normalised(best, length) <= pool[-1].score


def _move(reader: PromptReader, parents: Tensor, keep: list[int], count: int) -> None:
    """Reorder the rows of the memory as the hypotheses were, and drop those of finished prompts."""
    width = parents.shape[1]
    first = torch.arange(count, device=parents.device)[:, None] * width  # (B, 1) each prompt's first row
    rows = first + parents
    if not bool((parents == torch.arange(width, device=parents.device)).all()):
        reader.reorder(rows.flatten())
    if len(keep) < count:
        kept = torch.tensor(keep, device=parents.device)[:, None] * width + torch.arange(width, device=parents.device)
        reader.select(kept.flatten())
