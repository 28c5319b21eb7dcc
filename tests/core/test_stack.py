"""Stacks: what may stand in one, parts of one, and one as a model to train."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from recollect.core.compose import Bidirectional, Residual, Stack
from recollect.core.validate import ContractError
from recollect.layers.attention.self_attention import SelfAttention
from recollect.layers.pointwise import Embedding, Linear
from recollect.layers.recurrent.gru import GRU
from recollect.layers.recurrent.lstm import LSTM


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: Stack(LSTM(2, 3), nn.Linear(3, 3)), r"layers\[1\]: got torch.nn.Linear, expected .*; use rc.Linear"),
        (lambda: Stack(nn.Embedding(7, 3), LSTM(3, 3)), r"layers\[0\]: got torch.nn.Embedding, .*; use rc.Embedding"),
        (lambda: Stack(nn.Sequential()), r"layers\[0\]: got torch.nn.Sequential, .*; use rc.Stack"),
        (lambda: Stack(LSTM(2, 3), nn.Softmax(2)), r"layers\[1\]: got torch.nn.Softmax, .*CONTRIBUTING.md"),
        (lambda: Stack([LSTM(2, 3)]), r"layers\[0\]: got list, expected a SequenceLayer"),
        (lambda: Residual(nn.LSTM(3, 3)), "layer: got torch.nn.LSTM, .*; use rc.LSTM"),
        (lambda: Bidirectional(LSTM(3, 3), nn.GRU(3, 3)), "backward: got torch.nn.GRU, .*; use rc.GRU"),
    ],
)
def test_what_is_no_layer_is_refused_by_place_and_kind(build, words):
    with pytest.raises(ContractError, match=words):
        build()


def test_a_slice_is_a_stack_of_the_same_layers():
    body = Stack(Embedding(7, 2), LSTM(2, 3), GRU(3, 4), Linear(4, 7))
    features = body[:-1]
    assert isinstance(features, Stack)
    assert [features[i] is body[i] for i in range(3)] == [True] * 3
    assert (features.width, features.width_out, features.vocab_size) == (None, 4, 7)
    ids = torch.tensor([[1, 2, 3]])
    assert torch.equal(body[-1](features(ids)[0])[0], body(ids)[0])
    assert [type(layer) for layer in body[1:3]] == [LSTM, GRU]
    with pytest.raises(ContractError, match=r"layers\[1\]: got width 4, expected 3"):
        body[1::2]


def test_an_empty_slice_is_refused_and_an_index_beyond_the_end_too():
    body = Stack(LSTM(2, 3), GRU(3, 4))
    with pytest.raises(ValueError, match=r"layers: got none, as \[2:\] of 2, expected at least one layer"):
        body[2:]
    with pytest.raises(IndexError):
        body[2]


def test_a_part_of_a_deep_recurrent_stack():
    body = LSTM.stack(2, 3, 3)
    assert [layer.width for layer in body[1:]] == [3, 3]


def test_every_layer_says_whether_training_carries_its_memory():
    assert LSTM(2, 2).carries
    assert SelfAttention(8, 2, window=4).carries
    assert not SelfAttention(8, 2).carries
    assert not Stack(LSTM(8, 8), SelfAttention(8, 2)).carries
