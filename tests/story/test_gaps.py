"""The recall task of experiments on long dependencies, and what the claims that use it compute by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from recollect.layers.recurrent.numpy_rnn import NumpyRNN
from recollect.story import gaps
from recollect.story.claims.c13_memory_is_finite import _past, _symbols_in_one_number
from recollect.story.claims.c14_sharing_lowers_over_fitting import STEPS, CharacterRNN
from recollect.story.claims.c16_numpy_network_learns_sentiment import _parts, _update
from recollect.story.claims.c21_vanishing_and_long_dependencies import rank_correlation
from recollect.story.claims.c27_one_path_of_many_nonlinearities import PATHS, PathRNN


def test_only_the_first_symbol_tells_the_answer():
    ids, cues = gaps.draw(7, 200)
    assert ids.shape == (200, 9)
    assert torch.equal(ids[:, 0], cues)
    assert set(cues.tolist()) == set(range(gaps.CUES))
    between = ids[:, 1:-1]
    assert int(between.min()) >= gaps.CUES
    assert int(between.max()) < gaps.QUERY
    assert (ids[:, -1] == gaps.QUERY).all()


def test_accuracies_are_of_the_own_cue_and_of_others():
    own, other = gaps.accuracies(lambda ids: (F.one_hot(ids[:, :1], gaps.SYMBOLS).float(), None), 5)
    assert own == 1.0
    assert other == pytest.approx(gaps.CHANCE, abs=0.1)


def test_what_else_tells_the_answer_is_found(monkeypatch):
    """The cue a second time, as the last distractor: another cue at the beginning does not hide it."""

    def draw(gap, rows):
        cues = torch.randint(gaps.CUES, (rows,))
        ids = torch.randint(gaps.CUES, gaps.QUERY, (rows, gap + 2))
        ids[:, 0] = ids[:, -2] = cues
        return ids, cues

    monkeypatch.setattr(gaps, "draw", draw)
    own, other = gaps.accuracies(lambda ids: (F.one_hot(ids[:, -2:-1], gaps.SYMBOLS).float(), None), 5)
    assert own == other == 1.0


def test_rank_correlation_is_spearmans():
    assert rank_correlation([1, 2, 3, 4], [10, 20, 30, 1000]) == pytest.approx(1)
    assert rank_correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
    assert rank_correlation([1, 2, 3, 4], [1, 1, 2, 2]) == pytest.approx(0.8944, abs=1e-4)  # scipy.stats.spearmanr
    assert rank_correlation([1, 1, 1], [1, 2, 3]) == 0


def test_the_loop_with_paths_equals_the_layer_where_there_is_one():
    model = PathRNN(PATHS["usual"])
    ids, _ = gaps.draw(20, 4)
    assert torch.allclose(model(ids), model.head(model.cell(model.table(ids))[0][:, -1]), atol=1e-5)


def test_a_second_path_reaches_past_the_others():
    """With no W_hh the cue's state reaches the query by the second path only."""
    for name, reaches in (("usual", False), ("second path", True)):
        model = PathRNN(PATHS[name])
        with torch.no_grad():
            model.cell.weight_hh.zero_()
        ids, _ = gaps.draw(49, 1)
        changed = ids.clone()
        changed[0, 0] = (ids[0, 0] + 1) % gaps.CUES
        assert torch.equal(model(ids), model(changed)) != reaches


def test_cells_of_their_own_equal_shared_ones_with_the_same_weights():
    shared, own = CharacterRNN(10, True), CharacterRNN(10, False)
    assert len(own.cells) == STEPS
    for cell in own.cells:
        cell.load_state_dict(shared.cells[0].state_dict())
    own.table.load_state_dict(shared.table.state_dict())
    own.head.load_state_dict(shared.head.state_dict())
    ids = torch.randint(10, (3, STEPS))
    assert torch.allclose(shared(ids), own(ids), atol=1e-5)
    with pytest.raises(ValueError, match="longer than"):
        own(torch.randint(10, (3, STEPS + 1)))


def test_the_past_is_read_back_from_the_last_symbol():
    ids = torch.arange(60)[None]
    assert _past(ids)[0, 0].tolist() == list(range(39, -1, -1))
    assert _past(ids)[0, -1].tolist() == list(range(59, 19, -1))


def test_one_number_holds_as_many_symbols_as_its_mantissa():
    assert _symbols_in_one_number(torch.float32) == 24 // 2
    assert _symbols_in_one_number(torch.float64) == 53 // 2


def test_phrases_are_all_different_and_negations_turn_them():
    trained, new = _parts(1 / 5, 0)
    assert (len(trained), len(new)) == (58, 20)
    assert sum("not" in words for words, _ in trained) == 12
    assert len({word for words, _ in (*trained, *new) for word in words}) == 16
    assert len({" ".join(words) for words, _ in (*trained, *new)}) == len(trained) + len(new)
    for words, label in (*trained, *new):
        is_kind = bool({"good", "happy"} & set(words))
        assert label == int(is_kind != ("not" in words))


def test_an_update_lowers_the_loss_of_its_phrase():
    network = NumpyRNN(3, 2, rng=np.random.default_rng(0))
    inputs = [np.eye(3)[:, [i]] for i in (0, 1, 2)]
    losses = [_update(network, inputs, 1) for _ in range(5)]
    assert losses == sorted(losses, reverse=True)
