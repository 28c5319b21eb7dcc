"""The repetition penalty against transformers' `RepetitionPenaltyLogitsProcessor`, alone and while generating."""

from __future__ import annotations

import pytest
import torch
from transformers import RepetitionPenaltyLogitsProcessor

from generate_models import language_model, next_logprobs
from recollect.core.dispatch import without_accel
from recollect.core.validate import ContractError
from recollect.generation.filters import penalise_repetition
from recollect.generation.sampling import generate
from recollect.generation.settings import Settings, compiled


@pytest.mark.parametrize("penalty", [0.5, 1.0, 1.2, 7.0])
def test_logits_equal_transformers(penalty):
    draw = torch.Generator().manual_seed(0)
    logits = torch.randn(4, 30, generator=draw, dtype=torch.float64)
    logits[0, :3] = torch.tensor([0.0, -0.0, -torch.inf])
    seen = torch.randint(30, (4, 12), generator=draw)  # with repeats
    seen[0, :3] = torch.arange(3)
    found = penalise_repetition(logits, list(seen), penalty)
    assert torch.equal(found, RepetitionPenaltyLogitsProcessor(penalty)(seen, logits.clone()))
    assert torch.equal(penalise_repetition(logits, [torch.empty(0, dtype=torch.long)] * 4, penalty), logits)


def slow_greedy(name: str, prompt: list[int], penalty: float, tokens: int) -> list[int]:
    """Read everything anew for each id, and let transformers penalise the model's logits."""
    model, ids = language_model(name).eval(), list(prompt)
    process = RepetitionPenaltyLogitsProcessor(penalty)
    with torch.no_grad():
        for _ in range(tokens):
            logits = model(torch.tensor([ids]))[0][:, -1]
            ids.append(int(process(torch.tensor([ids]), logits).argmax()))
    return ids[len(prompt) :]


@pytest.mark.parametrize("name", ["lstm", "attention"])
def test_rows_of_different_prompts_generate_as_each_alone_by_transformers(name):
    prompts = [[1, 2, 3], [4], [0, 0]]
    settings = Settings(tokens=12, greedy=True, repetition_penalty=1.7)
    found = generate(language_model(name), prompts, settings)
    assert [g.ids for g in found] == [slow_greedy(name, prompt, 1.7, 12) for prompt in prompts]
    assert [g.ids for g in found] != [
        g.ids for g in generate(language_model(name), prompts, Settings(tokens=12, greedy=True))
    ]


def test_log_probabilities_stay_the_models_own():
    settings = Settings(tokens=5, greedy=True, repetition_penalty=3.0)
    (found,) = generate(language_model("lstm"), [[1]], settings)
    for i, (id, logprob) in enumerate(zip(found.ids, found.logprobs, strict=True)):
        assert logprob == pytest.approx(float(next_logprobs(language_model("lstm"), [1, *found.ids[:i]])[id]), abs=1e-9)


@pytest.mark.parametrize("rows", [1, 3])
def test_loops_that_do_not_know_it_leave_the_choice_to_filters(rows):
    model, settings = language_model("lstm"), Settings(tokens=40, seed=2, repetition_penalty=1.5)
    with compiled():
        found = generate(model, [[1, 2]] * rows, settings)
    with without_accel():
        plain = generate(model, [[1, 2]] * rows, settings)
    assert [g.ids for g in found] == [g.ids for g in plain]
    assert found[0].ids != generate(model, [[1, 2]], Settings(tokens=40, seed=2))[0].ids


@pytest.mark.parametrize("penalty", [0, -1.0, float("inf"), float("nan"), "1.2", True])
def test_other_values_are_refused(penalty):
    with pytest.raises(ContractError, match="repetition_penalty"):
        Settings(repetition_penalty=penalty)
