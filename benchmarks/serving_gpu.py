"""Continuous batching below HTTP on a GPU: many streams of a GPT-2-sized model beside one, and beside transformers.

    python benchmarks/serving_gpu.py [--streams 256] [--tokens 256] [--rounds 3] [--device cuda]

Prompts of 16 to 128 random ids, greedy, random weights in bfloat16 (float32 on a CPU). All streams are submitted at
once to a scheduler with as many places, a few of them to one with a single place, and all to transformers'
`generate_batch`. Contenders are interleaved; a figure is the median of the rounds. First, in float32: every stream's
ids must be those that `generate` gives for it alone, wherever the best logit leads by more than 1e-3.
RECOLLECT_SMOKE=1 tries it in small.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from statistics import median

import torch

from common import SMOKE, save_result
from recollect.generation.request import Request
from recollect.generation.sampling import generate
from recollect.generation.scheduler import Scheduler
from recollect.generation.settings import Settings
from recollect.models.language import LanguageConfig, LanguageModel
from recollect.models.sizes import gpt2_small

MARGIN = 1e-3
ALONE = 4  # streams of the scheduler with a single place
CHECKED = 32  # streams that are compared with their own generation
Prompts = list[list[int]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=8 if SMOKE else 256)
    parser.add_argument("--tokens", type=int, default=8 if SMOKE else 256)
    parser.add_argument("--rounds", type=int, default=1 if SMOKE else 3)
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    config = LanguageConfig("transformer", 64, width=32, layers=2, max_length=256) if SMOKE else gpt2_small()
    dtype = torch.bfloat16 if options.device == "cuda" else torch.float32
    prompts = prompts_of(config.vocab_size, options.streams)
    equal = compared(build(config, options.device, torch.float32), prompts[:CHECKED], options.tokens)
    model = build(config, options.device, dtype)
    contenders = {
        "together": partial(continued, model, prompts, options.streams, options.tokens),
        "alone": partial(continued, model, prompts[:ALONE], 1, options.tokens),
        "transformers": by_transformers(config, prompts, options.tokens, options.device, dtype),
    }
    rates = measured(contenders, options.rounds)
    row = {"streams": options.streams, "tokens": options.tokens, "dtype": str(dtype).removeprefix("torch."), **equal}
    row |= {"tokens_per_s": rates, "times": rates["together"] / rates["alone"], "rounds": options.rounds}
    row["beside_transformers"] = rates["together"] / rates["transformers"]
    print(row, flush=True)
    save_result("serving-gpu", [row])


def prompts_of(vocab_size: int, count: int) -> Prompts:
    """Return prompts of 16 to 128 random ids."""
    draw = torch.Generator().manual_seed(0)
    lengths = torch.randint(16, 129, (count,), generator=draw).tolist()
    return [torch.randint(vocab_size, (length,), generator=draw).tolist() for length in lengths]


def build(config: LanguageConfig, device: str, dtype: torch.dtype) -> LanguageModel:
    torch.manual_seed(0)
    return LanguageModel(config).to(device, dtype).eval()


def measured(contenders: dict[str, Callable[[], int]], rounds: int) -> dict[str, float]:
    """Return the median tokens per second of each contender; a first round is not counted."""
    found: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(1 + rounds):
        for name, work in contenders.items():
            began = time.perf_counter()
            tokens = work()
            found[name].append(tokens / (time.perf_counter() - began))
    return {name: median(rates[1:]) for name, rates in found.items()}


def ids_of(model: LanguageModel, prompts: Prompts, places: int, tokens: int) -> list[list[int]]:
    """Return what a scheduler generates for prompts that are submitted at once."""
    scheduler = Scheduler(model, most=places, queue=len(prompts))
    for number, ids in enumerate(prompts):
        scheduler.submit(Request(ids=ids, settings=Settings(tokens=tokens, greedy=True)), note=number)
    found: list[list[int]] = [[] for _ in prompts]
    while scheduler.is_busy:
        for event in scheduler.tick():
            assert event.end in (None, "length"), event.problem
            found[event.ticket.note].append(event.id)
    return found


def continued(model: LanguageModel, prompts: Prompts, places: int, tokens: int) -> int:
    """Continue prompts, and return the number of tokens."""
    return sum(len(ids) for ids in ids_of(model, prompts, places, tokens))


def by_transformers(
    config: LanguageConfig, prompts: Prompts, tokens: int, device: str, dtype: torch.dtype
) -> Callable[[], int]:
    """Return the same work by transformers' continuous batching, with a GPT-2 of the same size."""
    from transformers import GenerationConfig, GPT2Config, GPT2LMHeadModel

    width, layers = (32, 2) if SMOKE else (768, 12)
    sizes = {"vocab_size": config.vocab_size, "n_embd": width, "n_layer": layers, "n_head": max(1, width // 64)}
    peer = GPT2LMHeadModel(GPT2Config(**sizes)).eval().to(device, dtype)
    how = GenerationConfig(
        max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False, eos_token_id=-1, pad_token_id=0
    )

    def work() -> int:
        found = peer.generate_batch(inputs=prompts, generation_config=how)
        return sum(len(one.generated_tokens) for one in found.values())

    return work


@torch.no_grad()
def compared(model: LanguageModel, prompts: Prompts, tokens: int) -> dict[str, int]:
    """Return how many streams of a batch are their own undisturbed generation, and how many part where two ids tie."""
    found = {"equal": 0, "tied": 0, "wrong": 0}
    for prompt, ids in zip(prompts, ids_of(model, prompts, len(prompts), tokens), strict=True):
        (alone,) = generate(model, [prompt], Settings(tokens=tokens, greedy=True))
        place = next((i for i, (a, b) in enumerate(zip(ids, alone.ids, strict=True)) if a != b), None)
        if place is None:
            found["equal"] += 1
            continue
        read = torch.tensor([[*prompt, *ids[:place]]], device=next(model.parameters()).device)
        best = model(read)[0][0, -1].topk(2).values
        found["tied" if best[0] - best[1] < MARGIN else "wrong"] += 1
    assert not found["wrong"], found
    return found


if __name__ == "__main__":
    main()
