"""Beam search and greedy decoding against transformers' `generate`, on the same weights.

Theirs works on log-probabilities in float32 whatever the model's dtype, and divides by the number of generated ids to
the power of `length_penalty`: the end id counts, the start id does not, as in our length="power". So the n-best must be
the same ids in the same order; scores equal theirs to float32's precision, and to 1e-9 those that the same rule gives
to transformers' own float64 logits of their ids.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import BartConfig, BartForConditionalGeneration

from recollect import SequenceLayer
from recollect.core.memory import Fixed, Memory, grows
from recollect.generation.beam import beam
from recollect.generation.sampling import generate
from recollect.generation.settings import Search, Settings

VOCAB, BEGIN, PAD, END = 23, 0, 1, 2  # theirs pads with the end where the pad id is 0
PATIENCE = {"first": True, "current": False, "exact": "never"}


@dataclass(frozen=True, eq=False, kw_only=True)
class Features(Fixed):
    """What transformers' encoder made of the sources."""

    features: Tensor = grows(1)  # (B, S, D)
    mask: Tensor = grows(1)  # (B, S)


@dataclass(frozen=True, eq=False, kw_only=True)
class Said(Memory):
    """The target so far, to be read anew at every step."""

    ids: Tensor = grows(1)  # (B, L)
    source: Features


class Adapter(SequenceLayer[Said]):
    """A model of transformers behind our contract: it remembers the ids and decodes them all again."""

    growth = "linear"

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        self.width, self.width_out, self.vocab_size = None, VOCAB, VOCAB

    def remember(self, source: Tensor, mask: Tensor) -> Said:
        with torch.no_grad():
            features = self.model.get_encoder()(source, attention_mask=mask.long()).last_hidden_state
        return Said(ids=source[:, :0], source=Features(features=features, mask=mask))

    def read(self, x: Tensor, memory: Said, valid: Tensor | None) -> tuple[Tensor, Said]:
        assert valid is None
        ids = torch.cat([memory.ids, x], dim=1)
        said = self.model(
            encoder_outputs=(memory.source.features,),
            attention_mask=memory.source.mask.long(),
            decoder_input_ids=ids,
            use_cache=False,
        )
        return said.logits[:, -x.shape[1] :], Said(ids=ids, source=memory.source)

    def _check_memory(self, memory: Said, x: Tensor) -> None:
        pass


@pytest.fixture(scope="module")
def theirs() -> Any:
    """Give a small model, sharp enough that what was said matters for what comes next."""
    torch.manual_seed(0)
    sizes = {"d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    ids = {"pad_token_id": PAD, "bos_token_id": BEGIN, "eos_token_id": END, "decoder_start_token_id": BEGIN}
    shape = {"vocab_size": VOCAB, "max_position_embeddings": 64, "init_std": 1.0, "tie_word_embeddings": False}
    config = BartConfig(**shape, **sizes, **heads, **ids, forced_eos_token_id=None)
    model = BartForConditionalGeneration(config).double().eval()
    model.final_logits_bias[0, END] = 5  # so that hypotheses end early, late and not at all
    return model


def sources(batch: int) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(batch)
    lengths = torch.randint(1, 9, (batch, 1), generator=draw)
    mask = torch.arange(8) < lengths
    return torch.randint(3, VOCAB, (batch, 8), generator=draw).masked_fill(~mask, PAD), mask


def their_best(model: Any, batch: int, search: Search) -> tuple[list[list[list[int]]], list[list[float]]]:
    """Give transformers' n-best for each source: ids without start and padding, and scores."""
    source, mask = sources(batch)
    found = model.generate(
        input_ids=source,
        attention_mask=mask.long(),
        num_beams=search.width,
        num_return_sequences=search.nbest,
        length_penalty=search.alpha,
        early_stopping=PATIENCE[search.patience],
        no_repeat_ngram_size=search.no_repeat or 0,
        min_new_tokens=search.min_tokens or None,
        max_new_tokens=search.tokens,
        bad_words_ids=[[i] for i in search.prohibited] or None,
        do_sample=False,
        return_dict_in_generate=True,
        output_scores=True,
    )
    ids = [[i for i in row if i != PAD] for row in found.sequences[:, 1:].tolist()]
    scores, n = found.sequences_scores.tolist(), search.nbest
    return [ids[i : i + n] for i in range(0, len(ids), n)], [scores[i : i + n] for i in range(0, len(ids), n)]


def float64_score(model: Any, source: Tensor, mask: Tensor, ids: list[int], alpha: float) -> float:
    """Apply their rule to their logits, in float64."""
    target = torch.tensor([[BEGIN, *ids]])
    with torch.no_grad():
        said = model(input_ids=source[None], attention_mask=mask[None].long(), decoder_input_ids=target[:, :-1])
    logprobs = said.logits.log_softmax(-1).gather(-1, target[:, 1:, None])
    return float(logprobs.sum()) / len(ids) ** alpha


@pytest.mark.parametrize("batch", [1, 7])
@pytest.mark.parametrize("patience", PATIENCE)
@pytest.mark.parametrize(
    "options",
    [
        {"width": 4, "nbest": 4, "alpha": 1.0, "tokens": 12},
        {"width": 2, "nbest": 1, "alpha": 0.0, "tokens": 9},
        {"width": 5, "nbest": 3, "alpha": 0.6, "tokens": 15, "no_repeat": 2},
        {"width": 3, "nbest": 3, "alpha": 2.0, "tokens": 10, "min_tokens": 4},
        {"width": 6, "nbest": 6, "alpha": 0.5, "tokens": 8, "no_repeat": 1, "min_tokens": 2},
    ],
)
def test_the_same_n_best_as_transformers(theirs, batch, patience, options):
    # Padding is prohibited on both sides: theirs could not be told from what they pad their answers with.
    search = Search(length="power", patience=patience, end=[END], begin=BEGIN, prohibited=[PAD], **options)
    source, mask = sources(batch)
    adapter = Adapter(theirs)
    ours = beam(adapter, [[]] * batch, search, adapter.remember(source, mask))
    ids, scores = their_best(theirs, batch, search)
    assert [[h.ids for h in best] for best in ours] == ids
    for row, best in enumerate(ours):
        assert [h.score for h in best] == pytest.approx(scores[row], abs=1e-5)
        want = [float64_score(theirs, source[row], mask[row], h.ids, search.alpha) for h in best]
        assert [h.score for h in best] == pytest.approx(want, abs=1e-9)


def test_the_settings_above_tell_the_three_patiences_apart(theirs):
    """Otherwise equality under all three would say little."""
    options = {"width": 4, "nbest": 4, "alpha": 1.0, "tokens": 12, "length": "power", "prohibited": [PAD]}
    found = {patience: their_best(theirs, 7, Search(patience=patience, **options))[0] for patience in PATIENCE}
    assert found["first"] != found["current"]
    assert found["current"] != found["exact"]
    assert len({len(ids) for best in found["exact"] for ids in best}) > 2


def test_the_same_greedy_ids_as_transformers(theirs):
    source, mask = sources(7)
    adapter = Adapter(theirs)
    settings = Settings(tokens=12, greedy=True, begin=BEGIN, stop=[END], prohibited=[PAD])
    search = Search(width=1, tokens=12, begin=BEGIN, end=[END], prohibited=[PAD])
    options = {"max_new_tokens": 12, "num_beams": 1, "do_sample": False, "bad_words_ids": [[PAD]]}
    want = theirs.generate(input_ids=source, attention_mask=mask.long(), **options)
    rows = [[i for i in row if i != PAD] for row in want[:, 1:].tolist()]
    one_by_one = [
        generate(adapter, [[]], settings, adapter.remember(source[i : i + 1], mask[i : i + 1]))[0].ids for i in range(7)
    ]
    together = [best[0].ids for best in beam(adapter, [[]] * 7, search, adapter.remember(source, mask))]
    assert one_by_one == together == rows
