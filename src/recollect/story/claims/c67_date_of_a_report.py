"""C67: Asked for the time of a news report, attention finds the date in it.

中文：用“时间”作为查询，注意力能在一篇新闻报道中找到日期。
Seed: 003_d30a3ba1164faeec.txt:225
Budget: minutes
Expected: with a learned query for "when" the largest weight is on a word of the date in at least 95 % of new reports; with the queries "where" and "who" it is there in almost none
预期：用学到的“何时”查询，至少 95% 的新报道中最大权重落在日期的词上；用“何地”“何人”查询时几乎从不如此
Rule: with the share of reports whose largest weight is on the date: holds if its interval is above 0.95 with the query "when" and below 0.05 with each other query; does not hold if the first is below 0.95 or one of the others above 0.5; else not shown
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from recollect.core.compose import Bidirectional
from recollect.data.synthetic.match_generators import ASKED, reports
from recollect.layers.attention.attend import Attend
from recollect.layers.attention.score import ScaledDot
from recollect.layers.pointwise import Embedding
from recollect.layers.recurrent.gru import GRU
from recollect.story.claim import Budget, Check, Control, Result, Verdict
from recollect.story.fitting import fit
from recollect.story.judging import interval
from recollect.story.sentences import as_ids, numbers_of
from recollect.views.bilingual import Bilingual

COUNT, TRAINED, WIDTH = 1500, 1200, 32
WHEN, ROWS = 0, 32


class Finder(nn.Module):
    """A learned query for each question attends to the states of a bidirectional GRU: weights (B, T)."""

    def __init__(self, words: int) -> None:
        super().__init__()
        self.embedding = Embedding(words, WIDTH)
        self.encoder = Bidirectional(GRU(WIDTH, WIDTH // 2), GRU(WIDTH, WIDTH // 2))
        self.attend = Attend(ScaledDot(WIDTH, WIDTH))
        self.key = nn.Linear(WIDTH, WIDTH)
        self.queries = nn.Parameter(torch.randn(len(ASKED), WIDTH))

    def forward(self, ids: Tensor, valid: Tensor, asked: Tensor) -> Tensor:
        """Return the weight of each word, for the question of each row."""
        states, _ = self.encoder(self.embedding.map(ids), valid=valid)
        source = self.attend.remember(self.key(states), valid)
        return self.attend.look(self.queries[asked][:, None], source).weights[:, 0]


def run(budget: Budget) -> Result:
    updates = 5 if budget.is_small else 250
    measured = [_measure(seed, updates) for seed in range(budget.seeds)]
    shares = list(zip(*(found for found, _, _ in measured), strict=True))  # of each query
    bounds = [interval(values) for values in shares]
    mean = [statistics.fmean(values) for values in shares]
    fixed, shuffled = (statistics.fmean(values) for values in list(zip(*measured, strict=True))[1:])
    found = Bilingual(
        f"The largest weight is on the date in {mean[0]:.1%} of new reports with the query “when”, {mean[1]:.1%} with “where”, {mean[2]:.1%} with “who”; "
        f"the place most usual for a date is right in {fixed:.1%}.",
        f"最大权重落在日期上的新报道所占比例：“何时”查询 {mean[0]:.1%}，“何地”{mean[1]:.1%}，“何人”{mean[2]:.1%}；总是指向日期最常出现的位置时为 {fixed:.1%}。",
    )
    return Result(
        verdict_of(bounds[WHEN], bounds[WHEN + 1 :]),
        found,
        mean[WHEN],
        bounds[WHEN],
        Control(Bilingual("the most usual place of a date", "日期最常出现的位置"), fixed),
        Check(
            Bilingual(
                "with another report's weights it is no better than the usual place",
                "换成别的报道的权重时不优于最常出现的位置",
            ),
            shuffled < fixed + 0.05,
        ),
        rows=[{"query": query, "share on the date": share} for query, share in zip(ASKED, mean, strict=True)],
    )


def verdict_of(when: tuple[float, float], others: Sequence[tuple[float, float]]) -> Verdict:
    """Return the verdict of the intervals of the share on the date, with the right query and with the others."""
    if when[0] > 0.95 and all(high < 0.05 for _, high in others):
        return "holds"
    return "does not hold" if when[1] < 0.95 or any(low > 0.5 for low, _ in others) else "not shown"


def _measure(seed: int, updates: int) -> tuple[list[float], float, float]:
    """Return the shares of new reports with the largest weight on the date, by query; by place; by another's weights."""
    made = list(reports(count=COUNT, seed=seed))
    sentences = [one.texts[0].split() for one in made]
    numbers = numbers_of(sentences)
    ids, valid = as_ids(sentences, numbers)
    asked = torch.tensor([ASKED.index(one.query) for one in made])
    right = torch.stack(
        [_places(words, str(one.answer), ids.shape[1]) for words, one in zip(sentences, made, strict=True)]
    )
    torch.manual_seed(seed)
    model = Finder(len(numbers))

    def loss() -> Tensor:
        rows = torch.randint(TRAINED, (ROWS,))
        weights = model(ids[rows], valid[rows], asked[rows])
        return -(weights * right[rows]).sum(1).clamp(min=1e-9).log().mean()

    fit(model, loss, updates, rate=0.01)
    dated = torch.arange(COUNT)[(asked == WHEN) & (torch.arange(COUNT) >= TRAINED)]
    dates = right[dated]
    with torch.no_grad():
        best = [model(ids[dated], valid[dated], torch.full_like(dated, query)).argmax(1) for query in range(len(ASKED))]
    usual = right[:TRAINED][asked[:TRAINED] == WHEN].float().sum(0).argmax().expand(len(dated))
    shares = [_share(dates, places) for places in (*best, usual, best[WHEN].roll(1))]
    return shares[: len(ASKED)], *shares[len(ASKED) :]  # type: ignore[return-value]


def _share(right: Tensor, places: Tensor) -> float:
    return float(right.gather(1, places[:, None]).float().mean())


def _places(words: Sequence[str], answer: str, length: int) -> Tensor:
    """Return where the answer stands (T,)."""
    parts = answer.split()
    found = torch.zeros(length, dtype=torch.bool)
    for start in range(len(words) - len(parts) + 1):
        if list(words[start : start + len(parts)]) == parts:
            found[start : start + len(parts)] = True
    return found
