"""Generation at batch 1 on a CPU: tokens per second beside a torch step loop and beside transformers' `generate`.

    python benchmarks/decoding.py [--only "gpt sampled"]

- An LSTM of 2 × 256 (vocabularies of 65 and 1,000) beside `nn.LSTM` with the same weights, one step at a time under
  no_grad, followed by argmax, or by top-k 40, softmax and `multinomial`.
- A GPT of 10.8 M parameters (nanoGPT's characters) beside transformers' GPT-2 with the same weights and its defaults:
  eager, its cache of keys and values.

Runs are interleaved in one process with the same number of threads. Greedy decoding must generate the same ids, but for
ties within rounding; sampling as many ids. Ours is timed after its step has been compiled; `first_s` is the time of the
first generation on a machine, `again_s` that of the first in another process, with the cache.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel

from common import COMMIT, earlier, interleave, save_result, summary
from recollect.accel.cpu.decode import compilation as compiling
from recollect.generation.sampling import generate
from recollect.generation.settings import Settings, compiled
from recollect.models.language import LanguageConfig, LanguageModel
from recollect.models.sizes import parts_of

TOP_K = 40
GOALS = {"lstm": 10.0, "gpt": 3.0}
CONFIGS = {
    "lstm 65": LanguageConfig("lstm", 65, width=256, layers=2),
    "lstm 1000": LanguageConfig("lstm", 1000, width=256, layers=2),
    "gpt": LanguageConfig("transformer", 65, width=384, layers=6, heads=6, max_length=256, tied=True),
}
TOKENS = {"lstm 65": 1000, "lstm 1000": 1000, "gpt": 200}
CASES = {f"{name} {choice}": (name, choice == "greedy") for name in CONFIGS for choice in ("greedy", "sampled")}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--only", choices=CASES, help="measure this, and keep the other rows as they are")
    parser.add_argument("--begin", choices=CONFIGS, help="time the first generation of this process, and exit")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.begin:
        print(first_generation(options.begin))
        return 0
    found = {row["case"]: row for row in earlier("decoding")}
    for case in [options.only] if options.only else CASES:
        found[case] = compare(case, options.rounds)
    rows, versions = [found[case] for case in CASES if case in found], {"transformers": transformers.__version__}
    save_result("decoding", rows, threads=options.threads, goals=GOALS, peers=versions)
    return 0 if all(row["times_faster"] >= GOALS[row["case"].split()[0]] for row in rows) else 1


def compare(case: str, rounds: int) -> dict[str, Any]:
    name, greedy = CASES[case]
    torch.manual_seed(0)
    model = sharpened(LanguageModel(CONFIGS[name]).eval())
    peer = TorchLSTM(model) if name != "gpt" else gpt2_of(model)
    row = {"case": case, "parameters": parts_of(CONFIGS[name]).total, "commit": COMMIT, **beginnings(name)}
    row |= measure(model, peer, TOKENS[name], greedy, rounds)
    print(row, flush=True)
    return row


def sharpened(model: LanguageModel) -> LanguageModel:
    """Scale the weights so that the next id depends on those before it: with random weights ids repeat."""
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(3 if p.dim() > 1 else 1)
    return model


def measure(model: LanguageModel, peer: Any, tokens: int, greedy: bool, rounds: int) -> dict[str, Any]:
    their_work = looped_ids if isinstance(peer, TorchLSTM) else their_ids
    contenders: dict[str, Callable[[], list[int]]] = {
        "ours": lambda: our_ids(model, tokens, greedy),
        "theirs": lambda: their_work(peer, tokens, greedy),
    }
    said = {contender: work() for contender, work in contenders.items()}
    check(said, model, greedy, tokens)
    times = {contender: summary(taken) for contender, taken in interleave(contenders, rounds, warmup=1).items()}
    row: dict[str, Any] = {"tokens": tokens, "times_faster": times["theirs"][0] / times["ours"][0]}
    for contender, (median, spread) in times.items():
        row[contender] = {"tokens_per_s": tokens / median, "us_per_token": 1e6 * median / tokens, "spread": spread}
    return row


def check(said: dict[str, list[int]], model: LanguageModel, greedy: bool, tokens: int) -> None:
    """Assert that all generated `tokens` ids; with `greedy` the same ones, or ones as likely within rounding."""
    assert not compiling.REASONS, compiling.REASONS
    for contender, ids in said.items():
        assert len(ids) == tokens, contender
        assert max(ids) < model.vocab_size, contender
        differs = next((i for i, (a, b) in enumerate(zip(ids, said["ours"], strict=True)) if a != b), None)
        if greedy and differs is not None:
            with torch.no_grad():
                logits = model(torch.tensor([[1, *ids[:differs]]]))[0][0, -1]
            assert torch.isclose(logits[ids[differs]], logits[said["ours"][differs]], atol=1e-4), contender


def our_ids(model: LanguageModel, tokens: int, greedy: bool) -> list[int]:
    with compiled():
        return generate(model, [[1]], Settings(tokens=tokens, greedy=greedy, top_k=None if greedy else TOP_K))[0].ids


# ---- peers ---------------------------------------------------------------------------------------


class TorchLSTM(nn.Module):
    """The same model written directly with torch.nn."""

    def __init__(self, model: LanguageModel) -> None:
        super().__init__()
        embedding, *layers, head = model.body
        self.embedding, self.head = embedding.table, head.linear
        width = embedding.width_out
        self.lstm = nn.LSTM(width, width, len(layers), batch_first=True).eval()
        for i, layer in enumerate(layers):
            for ours in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                getattr(self.lstm, f"{ours}_l{i}").data.copy_(getattr(layer, ours))

    def forward(self, ids: Tensor, memory: Any = None) -> tuple[Tensor, Any]:
        """Read ids (B, T)."""
        y, memory = self.lstm(self.embedding(ids), memory)
        return self.head(y), memory


@torch.no_grad()
def looped_ids(model: TorchLSTM, tokens: int, greedy: bool) -> list[int]:
    """Generate ids one step at a time."""
    ids, memory, said = torch.tensor([[1]]), None, []
    for _ in range(tokens):
        logits, memory = model(ids, memory)
        logits = logits[:, -1]
        if greedy:
            ids = logits.argmax(-1, keepdim=True)
        else:
            least = logits.topk(TOP_K).values[:, -1:]
            ids = logits.masked_fill(logits < least, -torch.inf).softmax(-1).multinomial(1)
        said.append(ids.item())
    return said


def gpt2_of(model: LanguageModel) -> GPT2LMHeadModel:
    """Return transformers' GPT-2 with our weights."""
    config = model.config
    shape = {"n_layer": config.layers, "n_head": config.heads, "n_embd": config.width, "n_positions": config.max_length}
    ends = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": 0}
    peer = GPT2LMHeadModel(GPT2Config(vocab_size=config.vocab_size, activation_function="gelu", **shape, **ends)).eval()
    embedding, places, *blocks, norm, _ = model.body
    body = peer.transformer
    pairs = [(body.wte.weight, embedding.table.weight), (body.wpe.weight, places.table)]
    pairs += [(getattr(body.ln_f, name), getattr(norm.norm, name)) for name in ("weight", "bias")]
    for theirs, ours in zip(body.h, blocks, strict=True):
        products = [(theirs.attn.c_attn, ours.mixer.qkv), (theirs.attn.c_proj, ours.mixer.out)]
        products += [(theirs.mlp.c_fc, ours.feed_forward.up), (theirs.mlp.c_proj, ours.feed_forward.down)]
        norms = [(theirs.ln_1, ours.mixer_norm.norm), (theirs.ln_2, ours.feed_forward_norm.norm)]
        pairs += [(a.weight, b.weight.t()) for a, b in products] + [(a.weight, b.weight) for a, b in norms]
        pairs += [(a.bias, b.bias) for a, b in (*products, *norms)]
    for theirs, ours in pairs:
        theirs.data.copy_(ours)
    return peer


def their_ids(model: GPT2LMHeadModel, tokens: int, greedy: bool) -> list[int]:
    asked = {"max_new_tokens": tokens, "do_sample": not greedy}
    sampled = {} if greedy else {"temperature": 1.0, "top_k": TOP_K}
    prompt = torch.tensor([[1]])
    return model.generate(prompt, attention_mask=torch.ones_like(prompt), **asked, **sampled)[0, 1:].tolist()


# ---- the first time ------------------------------------------------------------------------------


def first_generation(name: str) -> float:
    """Return the seconds of the first generation of a process, recording and compilation included."""
    torch.manual_seed(0)
    model = LanguageModel(CONFIGS[name]).eval()
    start = time.perf_counter()
    our_ids(model, TOKENS[name], True)
    return time.perf_counter() - start


def beginnings(name: str) -> dict[str, float]:
    """Return the times of a first generation with an empty cache, and of one in another process with that cache."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--begin", name]
        environment = {**os.environ, "XDG_CACHE_HOME": folder}
        first, again = (
            float(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
            for _ in range(2)
        )
    return {"first_s": first, "again_s": again}


if __name__ == "__main__":
    warnings.filterwarnings("ignore", module="transformers")
    sys.exit(main())
