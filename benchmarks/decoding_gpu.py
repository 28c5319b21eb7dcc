"""Generation on a GPU: tokens per second beside transformers' `generate` and a compiled loop with a static cache.

    python benchmarks/decoding_gpu.py [--only gpt2 gpt2-64 lstm flat] [--rounds N]

- gpt2, gpt2-64: GPT-2 of 124 M parameters in bfloat16, batches of 1 and 64, beside the same network with keys and
  values in static buffers, `torch.compile`d as in gpt-fast (one CUDA graph per token, tuned matrix-vector products),
  and at batch 1 beside transformers' GPT-2 with its defaults. In float32 ours must generate the ids that a full forward
  pass predicts, wherever the best logit leads by more than 1e-3.
- lstm: 4 × 1024, 10,000 symbols, beside `nn.LSTM` called one step at a time.
- flat: the time of a token after 1k … 128k others, for LSTM and TTT; the memory still depends on the first symbol.

Random weights. Contenders are interleaved in one process; every row is saved as soon as it is measured.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common import earlier, interleave, save_result, summary
from recollect.core.record import readable
from recollect.generation.sampling import generate
from recollect.generation.settings import Settings
from recollect.models.language import LanguageConfig, LanguageModel
from recollect.models.sizes import gpt2_small

TOKENS, PROMPT = 256, 32
CONTEXTS = (1 << 10, 1 << 13, 1 << 15, 1 << 17)
NAME = "decoding-gpu"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    for part in options.only:
        for row in PARTS[part](options.rounds):
            print({k: v for k, v in row.items() if k != "spreads"}, flush=True)
            kept = [r for r in earlier(NAME) if (r["part"], r["setting"]) != (row["part"], row["setting"])]
            save_result(NAME, [*kept, row])


# ---- GPT-2 ---------------------------------------------------------------------------------------


def gpt2(rounds: int) -> Any:
    model = build(gpt2_small(), torch.bfloat16)
    yield {"part": "gpt2", "setting": "the same as reading all again, float32", **uncached(build(gpt2_small()))}
    contenders = {"ours": partial(say, model, 1), "transformers": transformers_gpt2()}
    yield compared("gpt2", "batch 1, transformers", contenders, 2, 1, warmup=1)  # a round takes ten seconds
    yield beside_static(model, 1, rounds)


def gpt2_of_many(rounds: int) -> Any:
    yield beside_static(build(gpt2_small(), torch.bfloat16), 64, rounds)


def beside_static(model: LanguageModel, rows: int, rounds: int) -> dict[str, Any]:
    contenders = {"ours": partial(say, model, rows), "static": partial(StaticLoop(model, rows), start(rows))}
    return compared("gpt2", f"batch {rows}", contenders, rounds, rows)


def transformers_gpt2() -> Callable[[], Any]:
    from transformers import GPT2Config, GPT2LMHeadModel

    peer, prompt = GPT2LMHeadModel(GPT2Config()).eval().to("cuda", torch.bfloat16), start(1)
    options: dict[str, Any] = {"do_sample": False, "max_new_tokens": TOKENS, "min_new_tokens": TOKENS}
    return lambda: peer.generate(prompt, attention_mask=torch.ones_like(prompt), pad_token_id=0, **options)


class StaticLoop:
    """The same weights with keys and values in static buffers, compiled: optimized code in torch alone."""

    def __init__(self, model: LanguageModel, rows: int) -> None:
        self.body = list(model.body)
        self.cache = torch.zeros(12, 2, rows, 12, PROMPT + TOKENS, 64, dtype=torch.bfloat16, device="cuda")
        torch._dynamo.mark_static_address(self.cache)  # otherwise writing to it would rule out a CUDA graph
        self.places = torch.arange(PROMPT + TOKENS, device="cuda")
        torch._inductor.config.coordinate_descent_tuning = True
        self.step = torch.compile(self._step, mode="reduce-overhead", fullgraph=True)

    @torch.no_grad()
    def __call__(self, prompt: Tensor) -> list[Tensor]:
        """Continue prompts (B, PROMPT)."""
        ids = self._step(prompt, torch.arange(prompt.shape[1], device="cuda"))
        said = [ids]
        for place in range(PROMPT, PROMPT + TOKENS - 1):
            ids = self.step(ids.clone(), torch.tensor([place], device="cuda"))
            said.append(ids.clone())
        torch.cuda.synchronize()
        return said

    def _step(self, ids: Tensor, at: Tensor) -> Tensor:
        embedding, positions, *blocks, norm, head = self.body
        x = embedding.table(ids) + F.embedding(at, positions.table)
        allowed = self.places[None] <= at[:, None]  # (T, S)
        for i, block in enumerate(b for b in blocks if hasattr(b, "mixer")):
            x = x + self._attend(block.mixer, block.mixer_norm.norm(x), i, at, allowed)
            x = x + block.feed_forward.down(F.gelu(block.feed_forward.up(block.feed_forward_norm.norm(x))))
        return head.linear(norm.norm(x[:, -1:])).argmax(-1)

    def _attend(self, mixer: Any, x: Tensor, i: int, at: Tensor, allowed: Tensor) -> Tensor:
        q, k, v = (t.unflatten(2, (12, 64)).transpose(1, 2) for t in mixer.qkv(x).chunk(3, dim=2))  # (B, N, T, H)
        self.cache[i, 0].index_copy_(2, at, k)
        self.cache[i, 1].index_copy_(2, at, v)
        y = F.scaled_dot_product_attention(q, self.cache[i, 0], self.cache[i, 1], attn_mask=allowed)
        return mixer.out(y.transpose(1, 2).flatten(2))


@torch.no_grad()
def uncached(model: LanguageModel) -> dict[str, Any]:
    """Return the ids generated with a memory, and those that a full forward pass predicts."""
    prompt = [list(range(PROMPT))]
    ids = generate(model, prompt, Settings(tokens=TOKENS, greedy=True))[0].ids
    with readable():
        logits = model(torch.tensor([prompt[0] + ids], device="cuda"))[0][0, PROMPT - 1 : -1]  # (T, V)
    best = logits.topk(2).values
    margin, want = (best[:, 0] - best[:, 1]).tolist(), logits.argmax(-1).tolist()
    clear = [(i, w) for i, w, m in zip(ids, want, margin, strict=True) if m > 1e-3]
    return {"clear": len(clear), "same": sum(i == w for i, w in clear), "tokens": TOKENS}


# ---- LSTM ----------------------------------------------------------------------------------------


def lstm(rounds: int) -> Any:
    config = LanguageConfig("lstm", 10_000, width=1024, layers=4)
    model = build(config, torch.bfloat16)
    for rows in (1, 64):
        contenders = {"ours": partial(say, model, rows), "torch": torch_loop(rows)}
        yield compared("lstm", f"batch {rows}", contenders, rounds, rows)


def torch_loop(rows: int) -> Callable[[], Any]:
    table, cell = nn.Embedding(10_000, 1024), nn.LSTM(1024, 1024, 4, batch_first=True)
    head = nn.Linear(1024, 10_000)
    for module in (table, cell, head):
        module.to("cuda", torch.bfloat16)

    @torch.no_grad()
    def loop() -> Tensor:
        ids, state = torch.zeros(rows, 1, dtype=torch.long, device="cuda"), None
        for _ in range(TOKENS):
            y, state = cell(table(ids), state)
            ids = head(y).argmax(-1)
        torch.cuda.synchronize()
        return ids

    return loop


# ---- long contexts -------------------------------------------------------------------------------


def flat(rounds: int) -> Any:
    for family in ("lstm", "ttt-linear"):
        model = build(LanguageConfig(family, 256, width=512, layers=4, heads=8), torch.float32)
        for layer in model.modules():
            if family == "lstm" and getattr(layer, "forget_bias", None):
                with torch.no_grad():
                    layer.bias_ih[512:1024] = 12.0  # forgets a thousandth in 128k steps
        for context in CONTEXTS:
            yield {"part": "flat", "setting": f"{family}, after {context}", **after(model, context, rounds)}


@torch.no_grad()
def after(model: LanguageModel, context: int, rounds: int) -> dict[str, Any]:
    ids = torch.randint(1, 256, (1, context), generator=torch.Generator().manual_seed(2)).cuda()
    memory, logits = remembered(model, ids)
    ids[0, 0] = 0
    other, _ = remembered(model, ids)
    pairs = zip(memory.tensors().values(), other.tensors().values(), strict=True)
    moved = max(float((a.double() - b.double()).abs().max()) for a, b in pairs)
    settings = Settings(tokens=TOKENS, greedy=True)
    times = interleave({"ours": lambda: generate(model, [[]], settings, memory, logits=logits)}, rounds)["ours"]
    return {"us_per_token": 1e6 * summary(times)[0] / TOKENS, "spread": summary(times)[1], "first_moved": moved}


def remembered(model: LanguageModel, ids: Tensor) -> tuple[Any, Tensor]:
    memory, logits = None, None
    for stretch in ids.split(4096, dim=1):
        y, memory = model(stretch, memory)
        logits = y[:, -1]
    assert logits is not None
    return memory, logits


# ---- shared --------------------------------------------------------------------------------------


def start(rows: int) -> Tensor:
    return torch.randint(256, (rows, PROMPT), generator=torch.Generator().manual_seed(1)).cuda()


def say(model: LanguageModel, rows: int) -> Any:
    return generate(model, start(rows), Settings(tokens=TOKENS, greedy=True))


def build(config: LanguageConfig, dtype: torch.dtype = torch.float32) -> LanguageModel:
    torch.manual_seed(0)
    return LanguageModel(config).eval().to("cuda", dtype)


def compared(
    part: str, setting: str, contenders: dict[str, Callable[[], Any]], rounds: int, rows: int, warmup: int = 2
) -> dict[str, Any]:
    begun = time.perf_counter()
    found = {name: summary(times) for name, times in interleave(contenders, rounds, warmup=warmup).items()}
    rates = {f"{name}_tokens_per_s": rows * TOKENS / median for name, (median, _) in found.items()}
    ratios = {f"times_{name}": found[name][0] / found["ours"][0] for name in found if name != "ours"}
    spreads = {name: spread for name, (_, spread) in found.items()}
    took = time.perf_counter() - begun
    return {"part": part, "setting": setting, **rates, **ratios, "spreads": spreads, "took_s": took}


PARTS: dict[str, Callable[[int], Any]] = {"gpt2": gpt2, "gpt2-64": gpt2_of_many, "lstm": lstm, "flat": flat}

if __name__ == "__main__":
    main()
