"""C70: Features of films that are learned from ratings come to have a meaning each, such as romance, although nobody named them.

中文：从评分中学到的电影特征，即使没有人说明含义，每一维也会自发对应某种意义，例如“浪漫”。
Seed: 001_9b45f3fd679b11ad.txt:54, 001_9b45f3fd679b11ad.txt:57
Budget: seconds
Expected: held-out ratings are predicted almost to their noise of 0.3; a linear map of the learned features is the true ones (R² above 0.95), but a single feature is a mixture: the ratings fix the features up to an invertible map only
预期：留出评分的预测误差接近噪声 0.3；学到的特征经线性变换即为真实特征（R² 高于 0.95），但单个特征是混合物：评分只在相差一个可逆变换的意义下确定特征
Rule: with the best absolute correlation of a true feature with a single learned one, averaged over features and eight trainings of each seed: holds if its interval is above 0.99; holds if … (all features together are meant) where it is below 0.99 and the interval of R² of a linear map is above 0.95; does not hold if that of R² is below 0.5; else not shown
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from functools import lru_cache

import torch
from torch import Tensor

from recollect.data.synthetic.tastes import GENRES, MIDDLE, NOISE, hidden_tastes, tastes
from recollect.story.claim import Budget, Check, Control, Result, Verdict
from recollect.story.judging import interval
from recollect.views.bilingual import Bilingual

USERS, FILMS, EACH, HELD_OUT = 300, 200, 40, 2000  # ratings of each user; of all
STARTS = 8  # trainings of each seed, from other initial features: a mixture differs from one to the next
SHRINK = 0.1  # weight of the squares of features
Found = Mapping[str, float]


def run(budget: Budget) -> Result:
    rounds = 1 if budget.is_small else 20
    seeds = range(budget.seeds)
    measured = [_mean_of([_measure(seed, start, rounds) for start in range(STARTS)]) for seed in seeds]
    mean = _mean_of(measured)
    low, high = interval([found["single"] for found in measured])
    together = interval([found["together"] for found in measured])
    found = Bilingual(
        f"Held-out error {mean['error']:.3f} (noise {NOISE}; the mean {mean['mean']:.2f}). A true feature correlates with the nearest learned one by "
        f"{mean['single']:.3f} [{low:.3f}, {high:.3f}], with a linear map of all by R² {mean['together']:.3f}. Where the signs of both sides agree, all of "
        f"{mean['agreeing']:,.0f} terms of the dot products are positive.",
        f"留出误差 {mean['error']:.3f}（噪声 {NOISE}；只用均值 {mean['mean']:.2f}）。真实特征与最接近的单个学到的特征的相关系数为 {mean['single']:.3f} [{low:.3f}, {high:.3f}]，"
        f"与全部特征的线性变换的 R² 为 {mean['together']:.3f}。两侧符号一致时，点积的 {mean['agreeing']:,.0f} 个项全部为正。",
    )
    return Result(
        verdict_of((low, high), together),
        found,
        mean["single"],
        (low, high),
        Control(Bilingual("features before training", "训练前的特征"), mean["untrained"]),
        Check(
            Bilingual(
                "trained on shuffled ratings it predicts no better than the mean", "用打乱的评分训练时不优于均值"
            ),
            _measure(0, 0, rounds, is_shuffled=True)["error"] > mean["mean"],
        ),
        condition=Bilingual(
            "all features together are meant; single ones are mixtures", "指全部特征的整体；单个特征是混合物"
        ),
        rows=measured,
    )


def verdict_of(single: tuple[float, float], together: tuple[float, float]) -> Verdict:
    """Return the verdict of the intervals of the correlation with a single feature, and of R² with all of them."""
    if single[0] > 0.99:
        return "holds"
    if single[1] < 0.99 and together[0] > 0.95:
        return "holds if"
    return "does not hold" if together[1] < 0.5 else "not shown"


def _mean_of(rows: Sequence[Found]) -> Found:
    return {name: statistics.fmean(row[name] for row in rows) for name in rows[0]}


def _measure(seed: int, start: int, rounds: int, *, is_shuffled: bool = False) -> Found:
    """Learn features from ratings; return how well they predict, and how near they are to the true ones."""
    torch.manual_seed(STARTS * seed + start)
    users, films, ratings = _ratings(seed)
    given = ratings[HELD_OUT:]
    if is_shuffled:
        given = given[torch.randperm(len(given))]
    features = before = torch.randn(FILMS, len(GENRES))
    for _ in range(rounds):  # alternating least squares: each side is the best for the other (Koren et al. 2009)
        likes = _solve(users[HELD_OUT:], features[films[HELD_OUT:]], given, USERS)
        features = _solve(films[HELD_OUT:], likes[users[HELD_OUT:]], given, FILMS)
    said = (likes[users[:HELD_OUT]] * features[films[:HELD_OUT]]).sum(1)
    true = hidden_tastes(USERS, FILMS, seed)
    terms = torch.tensor(true.users)[:, None] * torch.tensor(true.films)
    agreeing = torch.tensor(true.users)[:, None].sign() == torch.tensor(true.films).sign()
    return {
        "error": float((said - ratings[:HELD_OUT]).square().mean().sqrt()),
        "mean": float((ratings[:HELD_OUT] - ratings[HELD_OUT:].mean()).square().mean().sqrt()),
        "single": _single(features, torch.tensor(true.films)),
        "together": _together(features, torch.tensor(true.films)),
        "untrained": _single(before, torch.tensor(true.films)),
        "agreeing": float(agreeing.sum()) if bool((terms[agreeing] > 0).all()) else 0.0,
    }


@lru_cache(maxsize=1)
def _rows(seed: int) -> list[tuple[str, str, float]]:
    return list(tastes(users=USERS, films=FILMS, each=EACH, seed=seed))


def _ratings(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return users, films and their ratings above the middle, no pair twice, in random order."""
    rows = _rows(seed)
    order = torch.randperm(len(rows))
    users = torch.tensor([int(user.partition("-")[2]) for user, _, _ in rows])[order]
    films = torch.tensor([int(film.partition("-")[2]) for _, film, _ in rows])[order]
    return users, films, torch.tensor([rating - MIDDLE for *_, rating in rows])[order]


def _solve(owners: Tensor, known: Tensor, ratings: Tensor, count: int) -> Tensor:
    """Return each owner's features (count, K), the least squares of ratings (N,) on the other side's known (N, K)."""
    width = known.shape[1]
    squares = torch.zeros(count, width, width).index_add_(0, owners, known[:, :, None] * known[:, None])
    sums = torch.zeros(count, width).index_add_(0, owners, known * ratings[:, None])
    found: Tensor = torch.linalg.solve(squares + SHRINK * torch.eye(width), sums)
    return found


def _single(learned: Tensor, true: Tensor) -> float:
    """Return each true feature's largest absolute correlation with a learned one, averaged."""
    both = torch.corrcoef(torch.cat([true, learned], 1).T)
    return float(both[: true.shape[1], true.shape[1] :].abs().amax(1).mean())


def _together(learned: Tensor, true: Tensor) -> float:
    """Return R² of the true features as a linear map of the learned ones, averaged."""
    known = torch.cat([learned, torch.ones(len(learned), 1)], 1)
    left = true - known @ torch.linalg.lstsq(known, true).solution
    return float((1 - left.square().sum(0) / (true - true.mean(0)).square().sum(0)).mean())
