"""Habits from torch.nn: arguments that are refused with our way, and modules that come from there and go back."""

from __future__ import annotations

import pickle
from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from recollect import GRU, LSTM, RNN
from recollect.core.validate import ContractError

KINDS = [RNN, GRU, LSTM]

REFUSED = {
    "num_layers": (lambda: LSTM(4, 5, num_layers=2), r"LSTM: got num_layers=2, expected LSTM\.stack\(4, 5, layers=2\)"),
    "a third": (lambda: GRU(4, 5, 3), r"got num_layers=3, expected GRU\.stack\(4, 5, layers=3\)"),
    "bidirectional": (
        lambda: LSTM(4, 5, bidirectional=True),
        r"expected LSTM\.stack\(4, 5, layers=1, bidirectional=True\)",
    ),
    "dropout": (lambda: RNN(4, 5, dropout=0.1), r"expected RNN\.stack\(4, 5, layers=2, dropout=0\.1\)"),
    "all of a stack": (
        lambda: LSTM(4, 5, batch_first=True, num_layers=3, dropout=0.1, bidirectional=True),
        r"expected LSTM\.stack\(4, 5, layers=3, bidirectional=True, dropout=0\.1\)",
    ),
    "batch_first": (lambda: LSTM(4, 5, batch_first=True), "got batch_first=True, expected .*batch first always"),
    "time first": (lambda: LSTM(4, 5, batch_first=False), r"expected inputs of shape \(B, T, D\)"),
    "proj_size": (lambda: LSTM(4, 5, proj_size=2), r"expected Stack\(LSTM\(…\), Linear\(…\)\)"),
    "sizes": (lambda: GRU(input_size=4, hidden_size=5), "GRU: got input_size=4, expected width=4"),
    "in a stack": (lambda: LSTM.stack(4, 5, 2, batch_first=True), "batch first always"),
    "a slip": (lambda: LSTM(4, 5, forget_bais=1.0), "got forget_bais=1.0, expected forget_bias"),
    "unknown": (lambda: GRU(4, 5, zoneout=0.1), "expected one of width, hidden, reset, bias"),
}


@pytest.mark.parametrize("habit", REFUSED)
def test_arguments_of_torch_are_refused_with_our_way(habit):
    build, message = REFUSED[habit]
    with pytest.raises(TypeError, match=message):
        build()


def test_our_own_arguments_are_not_refused():
    layer = LSTM(4, 5, bias=False, forget_bias=0.5, dtype=torch.float64, device="cpu")
    assert layer.weight_ih.dtype == torch.float64
    copies = deepcopy(layer), pickle.loads(pickle.dumps(layer))
    assert all(torch.equal(copy.weight_ih, layer.weight_ih) for copy in copies)


def frozen(module: nn.Module, name: str) -> dict[str, bool]:
    for key, p in module.named_parameters():
        p.requires_grad_(name not in key)
    return {key: p.requires_grad for key, p in module.named_parameters()}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_frozen_stays_so_both_ways(kind):
    theirs = getattr(nn, kind.__name__)(3, 4, num_layers=2, batch_first=True)
    wanted = frozen(theirs, "weight_hh")
    ours = kind.from_torch(theirs)
    assert [p.requires_grad for p in ours.parameters()] == list(wanted.values())
    assert {key: p.requires_grad for key, p in ours.to_torch().named_parameters()} == wanted


@pytest.mark.parametrize("kind", KINDS)
def test_weights_made_of_others_go_to_torch_as_they_are(kind):
    layer, x = kind(3, 4), torch.randn(2, 5, 3)
    parametrizations.weight_norm(layer, "weight_hh")
    theirs = layer.to_torch()
    assert type(theirs) is getattr(nn, kind.__name__)
    torch.testing.assert_close(theirs(x)[0], layer(x)[0])


@pytest.mark.parametrize("kind", KINDS)
def test_weights_made_of_others_come_from_torch_as_they_are(kind):
    theirs, x = getattr(nn, kind.__name__)(3, 4, batch_first=True), torch.randn(2, 5, 3)
    parametrizations.weight_norm(theirs, "weight_hh_l0")
    ours = kind.from_torch(theirs)
    assert type(ours) is kind
    torch.testing.assert_close(theirs(x)[0], ours(x)[0])


class Named(nn.LSTM):
    """A subclass that reads as torch's does."""


class Doubled(nn.LSTM):
    """A subclass that reads otherwise."""

    def forward(self, *given):
        y, state = super().forward(*given)
        return 2 * y, state


def test_a_subclass_of_torchs_is_copied_if_it_reads_as_torchs_does():
    theirs, x = Named(3, 4, batch_first=True), torch.randn(2, 5, 3)
    torch.testing.assert_close(LSTM.from_torch(theirs)(x)[0], theirs(x)[0])
    with pytest.raises(ContractError, match="Doubled with a forward of its own"):
        LSTM.from_torch(Doubled(3, 4))


class Renamed(LSTM):
    """A subclass of ours with the same equations."""


class Open(LSTM):
    """A subclass of ours with others."""

    def step(self, from_x, memory):
        renewed, inner = super().step(from_x, memory)
        return type(renewed)(hidden=renewed.cell.tanh(), cell=renewed.cell), inner


def test_a_subclass_of_ours_goes_to_torch_if_it_has_our_equations():
    layer, x = Renamed(3, 4), torch.randn(2, 5, 3)
    torch.testing.assert_close(layer.to_torch()(x)[0], layer(x)[0])
    assert type(Renamed.from_torch(layer.to_torch())) is Renamed
    with pytest.raises(ContractError, match="Open with equations of its own"):
        Open(3, 4).to_torch()
