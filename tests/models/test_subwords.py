"""Words as rows of subwords: flattened, framed, and one vector for each word; the contract holds."""

from __future__ import annotations

import torch

import recollect as rc
from recollect.models.inherited import saved_body
from recollect.models.subwords import Subwords

WORDS = torch.tensor([[[3, 4, 0], [5, 0, 0], [6, 7, 8]], [[9, 0, 0], [2, 2, 0], [0, 0, 0]]])  # ids plus one
VALID = torch.tensor([[True, True, True], [True, True, False]])


def tagger(parent, frame=()):
    torch.manual_seed(0)
    config = rc.TaggerConfig(
        parent.config.family,
        11,
        labels=3,
        width=parent.config.width,
        body=saved_body(parent),
        subwords=True,
        frame=frame,
    )
    model = rc.Tagger(config)
    model.adopt(parent)
    return model.eval()


def test_subwords_stand_in_order_between_their_marks():
    ids, valid, places = Subwords(frame=(9, 10)).flatten(WORDS * VALID[..., None])
    assert ids.tolist() == [[9, 2, 3, 4, 5, 6, 7, 10], [9, 8, 1, 1, 10, 0, 0, 0]]
    assert valid.sum(1).tolist() == [8, 5]
    assert places[0].tolist() == [1, 3, 4]
    assert places[1, :2].tolist() == [1, 2]
    assert Subwords(is_last=True).flatten(WORDS)[2][0].tolist() == [1, 2, 5]


def test_a_word_has_the_features_of_its_subword_in_the_parent():
    torch.manual_seed(0)
    lstm = rc.LanguageModel("lstm", 11, width=8, layers=2).eval()
    found, _ = tagger(lstm).features(WORDS[:1])
    whole, _ = lstm.features(torch.tensor([[2, 3, 4, 5, 6, 7]]))
    torch.testing.assert_close(found[0], whole[0, [1, 2, 5]])
    bert = rc.MaskedModel(vocab_size=11, width=8, heads=2, max_length=16).eval()
    found, _ = tagger(bert, (9, 10)).features(WORDS[:1])
    whole = bert.encode(torch.tensor([[9, 2, 3, 4, 5, 6, 7, 10]]))
    torch.testing.assert_close(found[0], whole[0, [1, 3, 4]])


def test_padded_words_change_nothing():
    bert = rc.MaskedModel(vocab_size=11, width=8, heads=2, max_length=16)
    model = tagger(bert, (9, 10))
    together, _ = model(WORDS, valid=VALID)
    alone, _ = model(WORDS[1:, :2])
    torch.testing.assert_close(together[1, :2], alone[0])
    assert not together[1, 2].any()


def test_a_streaming_tagger_of_subwords_reads_in_chunks():
    model = tagger(rc.LanguageModel("gru", 11, width=8, layers=1))
    whole, after = model(WORDS[:1])
    first, memory = model(WORDS[:1, :1])
    rest, last = model(WORDS[:1, 1:], memory)
    torch.testing.assert_close(torch.cat([first, rest], 1), whole)
    assert last.equals(after, 1e-6)
