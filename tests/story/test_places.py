"""What a correction says stands where the user meets the matter, not in the list of corrections only."""

from __future__ import annotations

from pathlib import Path

import pytest

from recollect.story.register import claim_named

ROOT = Path(__file__).resolve().parents[2]
PLACES = [  # the correction, the file, and the words there that keep a user from the mistake
    ("E2", "src/recollect/layers/recurrent/torch_arguments.py", "the last states are y[:, -1], for y[-1] is the last"),
    ("E3", "src/recollect/layers/recurrent/torch_arguments.py", "batch first always, there is no flag"),
    ("E3b", "src/recollect/layers/recurrent/rnn.py", "as in torch there are two, whose sum it is"),
    ("E5", "docs/guide/language.md", "equal probabilities have the perplexity of the vocabulary's size"),
    ("E5", "docs/guide/language.zh-CN.md", "等概率预测的困惑度等于词表大小"),
    ("E6", "docs/guide/language.md", "below about 2 a text of characters was memorised"),
    ("E6", "docs/guide/language.zh-CN.md", "字符文本的困惑度低于 2 左右"),
    ("E7", "src/recollect/training/truncation.py", '"full" goes back to the row\'s beginning'),
    ("E8", "src/recollect/training/truncation.py", "both drop the gradient\nfrom before the cut"),
    ("E8b", "src/recollect/training/truncation.py", "its expectation is the full gradient"),
    ("E8c", "docs/guide/language.md", "or the unbiased `reweighted`"),
    ("E10", "src/recollect/layers/recurrent/gru.py", "W_hh (r_t ⊙ h_{t-1}) + b_hh"),
    ("E11", "src/recollect/models/decoders.py", "logits_t = W readout(h_t, e(y_{t-1}), c) + b"),
    ("E11b", "src/recollect/models/encoders.py", "c = q(h_m) = tanh(V h_m + b)"),
    ("E11c", "src/recollect/models/decoders.py", "The source is the first state, and enters nowhere else"),
    ("E15", "docs/guide/masked.md", "self-attention to both sides"),
    ("E17", "src/recollect/layers/attention/attend.py", "scores=scores, weights=weights, context=context"),
    ("E18", "src/recollect/layers/attention/score.py", "Scores e(q, k) of a query against a step of a source"),
    ("E19", "src/recollect/runs/config.py", "largest norm of the gradient"),
    ("E25", "src/recollect/layers/ngram/markov.py", "the next symbol depends on the last few"),
    ("E28", "src/recollect/layers/recurrent/numpy_rnn.py", "by W_hhᵀ, not W_hh"),
    ("E29", "src/recollect/layers/recurrent/gru.py", "h_t = z_t ⊙ h_{t-1} + (1 - z_t) ⊙ h̃_t"),
    ("E33", "src/recollect/layers/recurrent/lstm.py", "so that the cell is kept at first"),
    ("E44", "src/recollect/tasks/language.py", "exp(nats per symbol), over the known symbols"),
    ("E45", "src/recollect/models/line.py", 'name="cho"'),
]


@pytest.mark.parametrize(("name", "file", "words"), PLACES)
def test_the_user_reads_it_there(name, file, words):
    assert claim_named(name).is_correction
    text = (ROOT / file).read_text(encoding="utf-8")
    assert " ".join(words.split()) in " ".join(text.split())  # however its lines are broken
