"""C68: In "today at noon I ran to KFC and ate three burgers" attention finds I, KFC, three and burgers, and passes over "ran".

中文：在“我今天中午跑到肯德基吃了仨汉堡”中，注意力会落在“我”“肯德基”“仨”“汉堡”上，而忽略“跑”。
Seed: 003_d30a3ba1164faeec.txt:199
Budget: seconds
Expected: a model that is asked who, where, how many and what gives each of these words more weight than "ran"; one that is also asked how the person went gives "ran" as much as the others: the question decides which words are the key ones
预期：被问“谁、去哪、几个、吃什么”的模型给这些词的权重都高于“跑”；若还问“怎么去的”，“跑”得到与其他关键词同样的权重：哪些词关键取决于问题
Rule: with the weight of the least attended key word minus that of "ran": holds if its interval is above 0 in a model asked for the key words and in one also asked how, and asking how does not raise "ran" above the most attended word that is not asked for (interval below 0); holds if … (nobody asks how) where above 0 in the first, and asking how raises it above (interval above 0); does not hold if below 0 in the first; else not shown
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.layers.attention.attend import Attend, Looked
from recollect.layers.attention.score import Additive
from recollect.layers.pointwise import Embedding
from recollect.layers.positions import Positions
from recollect.story.claim import Budget, Check, Control, Result, Verdict
from recollect.story.fitting import fit
from recollect.story.judging import interval
from recollect.views.bilingual import Bilingual

SLOTS: Mapping[str, tuple[str, ...]] = {  # the words that may stand at each place, in the order of the sentence
    "who": ("我", "你", "小王", "老师", "妈妈", "同学"),
    "day": ("今天", "昨天", "周一", "周末"),
    "time": ("中午", "早上", "晚上", "下午"),
    "how": ("跑", "走", "骑车", "开车", "赶", "溜达"),
    "to": ("到了",),
    "where": ("肯德基", "食堂", "面馆", "学校", "公园", "商场"),
    "ate": ("吃了", "买了"),
    "many": ("一个", "俩", "仨", "四个", "五个", "六个"),
    "what": ("汉堡", "包子", "苹果", "蛋糕", "饺子", "橘子"),
}
NAMES = tuple(SLOTS)
KEYS = ("who", "where", "many", "what")
CHOICES, WIDTH, ROWS = 6, 24, 400
FIRST = {name: sum(map(len, list(SLOTS.values())[:i])) for i, name in enumerate(NAMES)}  # number of a slot's first word
SHOWN = {  # the words of the sentence
    "who": Bilingual("I", "我"),
    "where": Bilingual("KFC", "肯德基"),
    "many": Bilingual("three", "仨"),
    "what": Bilingual("burgers", "汉堡"),
}
WORDS = sum(map(len, SLOTS.values()))
Found = Mapping[str, float]


class Asked(nn.Module):
    """One attention over the words of a sentence, and an answer to each question from its context."""

    def __init__(self, questions: int) -> None:
        super().__init__()
        self.words, self.positions = Embedding(WORDS, WIDTH), Positions(WIDTH)
        nn.init.normal_(self.words.table.weight, std=WIDTH**-0.5)
        self.attend = Attend(Additive(WIDTH, WIDTH))
        self.query = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.out = nn.Linear(WIDTH, questions * CHOICES)

    def look(self, x: Tensor) -> Looked:
        """Attend to vectors of words (B, T, D)."""
        return self.attend.look(self.query.expand(len(x), -1, -1), self.attend.remember(x))

    def embed(self, ids: Tensor) -> Tensor:
        """Return the vectors of words with their places (B, T, D)."""
        return self.positions(self.words.map(ids))[0]

    def answers(self, context: Tensor) -> Tensor:
        """Return the logits of every question (B, Q, choices) from contexts (B, 1, D)."""
        logits: Tensor = self.out(context[:, 0]).unflatten(1, (-1, CHOICES))
        return logits


def run(budget: Budget) -> Result:
    updates = 5 if budget.is_small else 300
    seeds = range(budget.seeds)
    plain = [_measure(seed, updates, KEYS) for seed in seeds]
    manner = [_measure(seed, updates, (*KEYS, "how")) for seed in seeds]
    mean, other = ({name: statistics.fmean(row[name] for row in rows) for name in rows[0]} for rows in (plain, manner))
    first, second = (interval([row["least"] - row["how"] for row in rows]) for rows in (plain, manner))
    lifted = interval([row["how"] - row["unasked"] for row in manner])
    found = Bilingual(
        f"Asked who, where, how many and what ({mean['right']:.0%} right), the weights are {_shown(mean).en}, “ran” {mean['how']:.3f}; its share of the gradient is "
        f"{mean['slope of how']:.3f}, of the loss when a word is left out {mean['effect of how']:.3f}. Asked how as well ({other['right']:.0%} right): {_shown(other).en}, "
        f"“ran” {other['how']:.3f}.",
        f"被问“谁、去哪、几个、吃什么”时（正确率 {mean['right']:.0%}），权重为 {_shown(mean).zh}，“跑”{mean['how']:.3f}；“跑”占梯度的 {mean['slope of how']:.3f}，占逐词去掉时损失增量的 "
        f"{mean['effect of how']:.3f}。还问“怎么去的”时（正确率 {other['right']:.0%}）：{_shown(other).zh}，“跑”{other['how']:.3f}。",
    )
    figures = (first, second, lifted)
    return Result(
        verdict_of(*figures),
        found,
        statistics.fmean(row["least"] - row["how"] for row in plain),
        first,
        Control(Bilingual("equal weights", "权重相等"), 0.0),
        Check(
            Bilingual("with another sentence's answers it is at chance", "换成别的句子的答案时处于随机水平"),
            abs(mean["shuffled"] - 1 / CHOICES) < 0.03,
        ),
        condition=Bilingual(
            "nobody asks how; the question decides which words are the key ones",
            "没有人问怎么去的；哪些词关键取决于问题",
        ),
        rows=[{"asked": "who, where, how many, what", **mean}, {"asked": "and how", **other}],
        figures=figures,
    )


def verdict_of(plain: tuple[float, float], manner: tuple[float, float], lifted: tuple[float, float]) -> Verdict:
    """Return the verdict of intervals of weights: key words minus "ran" in both models, "ran" minus unasked words."""
    if plain[0] > 0:
        if lifted[0] > 0:
            return "holds if"
        return "holds" if manner[0] > 0 and lifted[1] < 0 else "not shown"
    return "does not hold" if plain[1] < 0 else "not shown"


def _shown(mean: Found) -> Bilingual:
    pairs = [(SHOWN[name], f" {mean[name]:.3f}") for name in KEYS]
    return Bilingual(
        ", ".join(word.en + share for word, share in pairs), "、".join(word.zh + share for word, share in pairs)
    )


def _measure(seed: int, updates: int, asked: tuple[str, ...]) -> Found:
    """Return the mean weight of each slot on new sentences, and what else tells of importance."""
    torch.manual_seed(seed)
    model = Asked(len(asked))

    def loss() -> Tensor:
        ids, answers = _draw(64, asked)
        return F.cross_entropy(model.answers(model.look(model.embed(ids)).context).flatten(0, 1), answers.flatten())

    fit(model, loss, updates, rate=0.01)
    ids, answers = _draw(ROWS, asked)
    x = model.embed(ids).detach().requires_grad_()
    looked = model.look(x)
    logits = model.answers(looked.context)
    (slope,) = torch.autograd.grad(F.cross_entropy(logits.flatten(0, 1), answers.flatten(), reduction="sum"), x)
    weights = dict(zip(NAMES, looked.weights[:, 0].mean(0).tolist(), strict=True))
    effects, slopes = _effects(model, x, answers), slope.norm(dim=2).mean(0)
    at = NAMES.index("how")
    return {
        **weights,
        "least": min(weights[name] for name in KEYS),
        "unasked": max(weight for name, weight in weights.items() if name not in (*KEYS, "how")),
        "slope of how": float(slopes[at] / slopes.sum()),
        "effect of how": float(effects[at] / effects.sum()),
        "right": float((logits.argmax(2) == answers).float().mean()),
        "shuffled": float((logits.argmax(2) == answers.roll(1, 0)).float().mean()),
    }


@torch.no_grad()
def _effects(model: Asked, x: Tensor, answers: Tensor) -> Tensor:
    """Return by how much the loss changes when each word is left out (T,)."""
    losses = []
    for place in range(-1, len(NAMES)):
        kept = [i for i in range(len(NAMES)) if i != place]
        logits = model.answers(model.look(x[:, kept]).context)
        losses.append(F.cross_entropy(logits.flatten(0, 1), answers.flatten()))
    return (torch.stack(losses[1:]) - losses[0]).abs()


def _draw(rows: int, asked: tuple[str, ...]) -> tuple[Tensor, Tensor]:
    """Return sentences (B, T), and the answers to the questions (B, Q)."""
    choices = {name: torch.randint(len(words), (rows,)) for name, words in SLOTS.items()}
    ids = torch.stack([FIRST[name] + choice for name, choice in choices.items()], 1)
    return ids, torch.stack([choices[name] for name in asked], 1)
