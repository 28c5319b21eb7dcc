"""A mask that is no prefix is refused by every layer on the CPU, and looked at once for a whole stack."""

from __future__ import annotations

import pytest
import torch

from layers_under_test import LAYERS, build, inputs_for
from recollect.core import validate
from recollect.core.compose import Bidirectional, Stack
from recollect.core.validate import ContractError, without_looks
from recollect.layers.pointwise import LayerNorm, Linear
from recollect.layers.recurrent.rnn import RNN

LEFT_PADDED = torch.tensor([[True, True, True], [False, True, True]])
WORDS = "valid: got row 1 valid again at step 1, expected a prefix of True.*rc.pad"


@pytest.mark.parametrize("factory", [pytest.param(factory, id=name) for name, factory in LAYERS])
def test_every_layer_refuses_left_padding(factory):
    layer = build(factory)
    with pytest.raises(ContractError, match=WORDS):
        layer(inputs_for(layer, 2, 3), valid=LEFT_PADDED)


@pytest.fixture
def looked(monkeypatch):
    """Count the masks that are looked at."""
    masks = []
    look = validate.check_prefix
    monkeypatch.setattr(validate, "check_prefix", lambda valid: (masks.append(valid), look(valid)))
    return masks


def right_padded(steps: int = 3) -> torch.Tensor:
    return torch.arange(steps) < torch.tensor([[steps], [1]])


def test_a_stack_looks_at_its_mask_once(looked):
    layer = Stack(LayerNorm(2), Stack(RNN(2, 2), Linear(2, 2)), Bidirectional(RNN(2, 2), RNN(2, 2)))
    valid = right_padded()
    for _ in range(2):
        layer(torch.randn(2, 3, 2), valid=valid)
    assert len(looked) == 1


def test_a_mask_that_was_written_to_is_looked_at_again():
    layer, x, valid = Linear(2, 2), torch.randn(2, 3, 2), right_padded()
    layer(x, valid=valid)
    valid.copy_(LEFT_PADDED)
    with pytest.raises(ContractError, match=WORDS):
        layer(x, valid=valid)


def test_a_mask_made_in_inference_mode_is_looked_at():
    layer = Linear(2, 2)
    with torch.inference_mode():
        valid = right_padded()
        layer(torch.randn(2, 3, 2), valid=valid)
        valid.copy_(LEFT_PADDED)
        with pytest.raises(ContractError, match=WORDS):
            layer(torch.randn(2, 3, 2), valid=valid)


def test_single_steps_and_no_steps_are_not_looked_at(looked):
    for steps in (0, 1):
        Linear(2, 2)(torch.randn(2, steps, 2), valid=torch.zeros(2, steps, dtype=torch.bool))
    assert looked == []


def test_nobody_looks_inside_without_looks(looked):
    with without_looks():
        Linear(2, 2)(torch.randn(2, 3, 2), valid=right_padded())
    assert looked == []


def test_compiled_layers_do_not_look():
    layer = torch.compile(Linear(2, 2), backend="eager", fullgraph=True)
    x = torch.randn(2, 3, 2)
    y, _ = layer(x, valid=right_padded())
    assert (y[1, 1:] == 0).all()
