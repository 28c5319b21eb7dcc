"""Every family learns to say short sequences backwards: greedy, whole targets, on sequences drawn anew."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from recollect.core.compose import reverse_rows
from recollect.generation.sampling import generate
from recollect.generation.settings import Settings
from recollect.models.translation import TranslationConfig, Translator
from tiers import slow_after

SYMBOLS, BEGIN, END = 6, 6, 7
CASES: dict[str, dict] = {
    "sutskever": {"longest": 4, "updates": 250},
    "cho": {"longest": 4, "updates": 250},
    "static attention": {"longest": 4, "updates": 250, "family": "static", "context": "attention"},
    "bahdanau": {"longest": 6, "updates": 120},
    "luong": {"longest": 6, "updates": 120},
    "transformer": {"longest": 5, "updates": 300},
    "transformer pre-norm": {"longest": 5, "updates": 300, "family": "transformer", "norm": "pre"},
}


def draw(longest: int, count: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Give sources, which of their ids are real, and their reversal with an end, padded by ends."""
    valid = torch.arange(longest) < torch.randint(1, longest + 1, (count, 1))
    source = torch.randint(SYMBOLS, (count, longest)).masked_fill(~valid, 0)
    target = reverse_rows(source, valid).masked_fill(~valid, END)
    return source, valid, F.pad(target, (0, 1), value=END)


@pytest.mark.parametrize("name", slow_after(1, ("luong", *(name for name in CASES if name != "luong"))))
def test_every_family_learns_to_reverse(name):
    options = dict(CASES[name])
    longest, updates = options.pop("longest"), options.pop("updates")
    torch.manual_seed(0)
    shape = {"family": name, "width": 32, "hidden": 64, "heads": 4, **options}
    model = Translator(TranslationConfig(source_vocab=SYMBOLS, target_vocab=SYMBOLS + 2, **shape))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for update in range(updates):
        for group in optimizer.param_groups:
            group["lr"] = 5e-3 * min(1, update / 20) * (1 - update / updates)
        source, valid, target = draw(longest, 64)
        read = F.pad(target[:, :-1], (1, 0), value=BEGIN)
        logits, _ = model(read, model.remember(source, valid))
        loss = F.cross_entropy(logits.flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    source, valid, target = draw(longest, 100)
    settings = Settings(tokens=longest + 1, greedy=True, begin=BEGIN, stop=[END])
    said = generate(model, [[]] * 100, settings, model.remember(source, valid))
    wanted = [[*row[:length].tolist(), END] for row, length in zip(target, valid.sum(1).tolist(), strict=True)]
    right = sum(found.ids == ids for found, ids in zip(said, wanted, strict=True))
    assert right >= 95, right
