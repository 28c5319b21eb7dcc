"""C32: Most models only need local information.

中文：大多数模型只需要捕捉局部的信息。
Seed: 002_c6efc9a4698e0e4d.txt:166
Budget: minutes
Expected: a language model of characters has nearly all of what context gives it from the last 32 characters; where a digit must be recalled over 40 letters, these are worth nothing and the whole is worth everything
预期：字符语言模型从上下文得到的好处，几乎全部来自最后 32 个字符；要隔 40 个字母回忆一个数字时，最后 32 个字符毫无用处，全文才有用
Rule: with the share of the gain, from the last character alone to the longest context, that the last 32 characters give: holds if its interval is above 0.9 in text and the accuracy of recall with them above 0.9; holds if … (the text's dependencies are short) where above 0.9 in text, while recall is below 0.2 with them and above 0.9 with all; does not hold if below 0.9 in text; else not shown
"""

from __future__ import annotations

import statistics

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.core.compose import Stack
from recollect.data.synthetic.builtin import needle
from recollect.layers.attention.self_attention import SelfAttention
from recollect.layers.pointwise import Embedding, FeedForward, Linear
from recollect.layers.positions import Positions
from recollect.layers.recurrent.gru import GRU
from recollect.story.claim import Budget, Chart, Check, Control, Curve, Result, Verdict
from recollect.story.fitting import fit
from recollect.story.judging import interval, looks_ahead
from recollect.story.texts import characters
from recollect.views.bilingual import Bilingual

COUNT, HELD_OUT = 200_000, 20_000  # characters
CONTEXTS, LOCAL, STEPS = (1, 2, 4, 8, 16, 32, 64, 128, 256), 32, 128
DISTANCE, LINES, TRAINED, ROWS = 40, 3000, 2500, 400


def run(budget: Budget) -> Result:
    seeds = range(budget.seeds)
    text, size = characters(COUNT)
    measured = [_losses(text, size, seed, 3 if budget.is_small else 300) for seed in seeds]
    recalled = [_recall(seed, 3 if budget.is_small else 300) for seed in seeds]
    at = CONTEXTS.index(LOCAL)
    shares = [(losses[0] - losses[at]) / (losses[0] - losses[-1]) for losses, _ in measured]
    low, high = interval(shares)
    mean = [statistics.fmean(column) for column in zip(*(losses for losses, _ in measured), strict=True)]
    near, far = ([pair[i] for pair in recalled] for i in (0, 1))
    shown = ", ".join(f"{n}: {loss:.2f}" for n, loss in zip(CONTEXTS, mean, strict=True))
    found = Bilingual(
        f"Nats of a held-out character by the characters of context: {shown}. The last {LOCAL} give {statistics.fmean(shares):.1%} [{low:.1%}, {high:.1%}] of the "
        f"gain. A digit {DISTANCE} letters back is recalled in {statistics.fmean(near):.0%} with {LOCAL} characters, in {statistics.fmean(far):.0%} with all.",
        f"按上下文字符数，留出字符的奈特数：{shown}。最后 {LOCAL} 个字符占全部好处的 {statistics.fmean(shares):.1%} [{low:.1%}, {high:.1%}]。隔 {DISTANCE} 个字母的数字，"
        f"只看 {LOCAL} 个字符时回忆正确率 {statistics.fmean(near):.0%}，看全文时 {statistics.fmean(far):.0%}。",
    )
    chart = Chart(
        Bilingual("What context is worth", "上下文的价值"),
        Bilingual("characters of context", "上下文的字符数"),
        Bilingual("nats of a held-out character", "留出字符的奈特数"),
        [Curve("GRU", list(zip(map(float, CONTEXTS), mean, strict=True)))],
        log_x=True,
    )
    return Result(
        verdict_of((low, high), interval(near), interval(far)),
        found,
        statistics.fmean(shares),
        (low, high),
        Control(Bilingual("recall of a digit by chance", "随机回忆一个数字"), 0.1),
        Check(
            Bilingual("no prediction changes with a later character", "任何预测都不随后面的字符改变"),
            not any(leaks for _, leaks in measured),
        ),
        condition=Bilingual("the text's dependencies are short", "文本中的依赖较短"),
        chart=chart,
    )


def verdict_of(text: tuple[float, float], near: tuple[float, float], far: tuple[float, float]) -> Verdict:
    """Return the verdict of the intervals of the share in text, and of recall with local context and with all."""
    if text[0] > 0.9:
        if near[0] > 0.9:
            return "holds"
        return "holds if" if near[1] < 0.2 and far[0] > 0.9 else "not shown"
    return "does not hold" if text[1] < 0.9 else "not shown"


def _losses(text: Tensor, size: int, seed: int, updates: int) -> tuple[list[float], bool]:
    """Return the loss of held-out characters for each length of context, and whether the model looks ahead."""
    torch.manual_seed(seed)
    model = Stack(Embedding(size, 64), GRU(64, 128), Linear(128, size))
    known, held = text[:-HELD_OUT], text[-HELD_OUT:]

    def loss() -> Tensor:
        begin = torch.randint(len(known) - STEPS, (16, 1))
        rows = known[begin + torch.arange(STEPS + 1)]
        return F.cross_entropy(model(rows[:, :-1])[0].flatten(0, 1), rows[:, 1:].flatten())

    fit(model, loss, updates, rate=5e-3)
    ends = torch.randint(CONTEXTS[-1], len(held), (ROWS, 1))
    losses = []
    with torch.no_grad():
        for context in CONTEXTS:
            logits = model(held[ends - context + torch.arange(context)])[0][:, -1]
            losses.append(float(F.cross_entropy(logits, held[ends[:, 0]])))
    return losses, looks_ahead(lambda rows: model(rows)[0], held[:64][None], 40)


def _recall(seed: int, updates: int) -> tuple[float, float]:
    """Return the share of digits recalled by attention from the last characters, and from all."""
    lines = list(needle(distance=DISTANCE, count=LINES, seed=seed))
    alphabet = {symbol: number for number, symbol in enumerate(sorted(set("".join(lines))))}
    ids = torch.tensor([[alphabet[symbol] for symbol in line.strip()] for line in lines])
    torch.manual_seed(seed)
    width = 32
    mixing = SelfAttention(width, 4, causal=True)
    model = Stack(
        Embedding(len(alphabet), width), Positions(width), mixing, FeedForward(width), Linear(width, len(alphabet))
    )

    def loss() -> Tensor:
        rows = ids[torch.randint(TRAINED, (64,))]
        return F.cross_entropy(model(rows[:, :-1])[0][:, -1], rows[:, -1])

    fit(model, loss, updates, rate=5e-3, enough=0.02)
    with torch.no_grad():
        held = ids[TRAINED:]
        said = [model(held[:, -1 - context : -1])[0][:, -1].argmax(1) for context in (LOCAL, held.shape[1] - 1)]
    near, far = (float((one == held[:, -1]).float().mean()) for one in said)
    return near, far
