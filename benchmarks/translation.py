"""Greedy translation on a CPU beside transformers' `generate`: tokens per second at batch 1 and 32.

    python benchmarks/translation.py

Ours is the family "transformer"; theirs a MarianMT of the same depth, widths and vocabulary, with its cache and its
defaults. Both have random weights, encode sources of 20 symbols and generate 40 each, with the end prohibited on both
sides. Runs are interleaved in one process, with the same number of threads, after one call of each: the first call
of ours on a machine compiles its decode step, which is then kept.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers import MarianConfig, MarianMTModel

from common import interleave, save_result, summary
from recollect.generation.settings import Search
from recollect.generation.translation import search_targets
from recollect.models.translation import TranslationConfig, Translator

VOCAB, SOURCE, TARGET = 10_000, 20, 40
END, BEGIN = 0, VOCAB - 1  # begin also pads theirs
SIZES = {
    "small": {"width": 256, "hidden": 512, "layers": 3, "heads": 8},
    "base": {"width": 256, "hidden": 1024, "layers": 4, "heads": 8},
}
GOALS = {1: 3.0, 32: 1.5}  # by batch, as called


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = [row for size in SIZES for row in compare(size, options.rounds)]
    versions = {"transformers": transformers.__version__}
    save_result("translation", rows, threads=options.threads, goals=GOALS, peers=versions)
    return 0 if all(row["times_faster"] >= GOALS[row["batch"]] for row in rows if row["size"] == "base") else 1


def compare(size: str, rounds: int) -> list[dict[str, Any]]:
    torch.manual_seed(0)
    ours, theirs = our_model(**SIZES[size]), their_model(**SIZES[size])
    counts = [sum(p.numel() for p in model.parameters()) for model in (ours, theirs)]
    assert abs(counts[0] / counts[1] - 1) < 0.05, counts
    return [{"size": size, "parameters": counts, **measure(ours, theirs, batch, rounds)} for batch in GOALS]


def measure(ours: Translator, theirs: Any, batch: int, rounds: int) -> dict[str, Any]:
    source = torch.randint(1, BEGIN, (batch, SOURCE), generator=torch.Generator().manual_seed(batch))
    contenders: dict[str, Callable[[], Tensor]] = {
        "ours": lambda: our_translation(ours, source),
        "theirs": lambda: their_translation(theirs, source),
    }
    for name, translate in contenders.items():
        assert translate().shape == (batch, TARGET), name
    times = {name: summary(taken) for name, taken in interleave(contenders, rounds).items()}
    row: dict[str, Any] = {"batch": batch, "times_faster": times["theirs"][0] / times["ours"][0]}
    for name, (median, spread) in times.items():
        row[name] = {"tokens_per_s": batch * TARGET / median, "spread": spread}
    print(row, flush=True)
    return row


def our_model(**shape: int) -> Translator:
    return Translator(TranslationConfig("transformer", VOCAB, VOCAB, **shape)).eval()


def their_model(*, width: int, hidden: int, layers: int, heads: int) -> Any:
    sides = ("encoder", "decoder")
    shape = {
        f"{side}_{name}": value
        for side in sides
        for name, value in {"layers": layers, "attention_heads": heads, "ffn_dim": hidden}.items()
    }
    ids = {"pad_token_id": BEGIN, "eos_token_id": END, "decoder_start_token_id": BEGIN, "forced_eos_token_id": None}
    untied = {"tie_word_embeddings": False, "share_encoder_decoder_embeddings": False}
    usual = {"activation_function": "relu", "scale_embedding": True, "max_position_embeddings": 128}
    return MarianMTModel(MarianConfig(vocab_size=VOCAB, d_model=width, **shape, **ids, **untied, **usual)).eval()


def our_translation(model: Translator, source: Tensor) -> Tensor:
    search = Search(width=1, tokens=TARGET, begin=BEGIN, prohibited=[END])
    return torch.tensor([best[0].ids for best in search_targets(model, source.tolist(), search)])


def their_translation(model: Any, source: Tensor) -> Tensor:
    options = {"max_new_tokens": TARGET, "min_new_tokens": TARGET, "num_beams": 1, "do_sample": False}
    return model.generate(input_ids=source, attention_mask=torch.ones_like(source), **options)[:, 1:]


if __name__ == "__main__":
    warnings.filterwarnings("ignore", module="transformers")
    sys.exit(main())
