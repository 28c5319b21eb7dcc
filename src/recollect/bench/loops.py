"""Contests of generation at batch 1: ours, a straightforward loop in torch, and transformers.

All with the same weights, greedily. The generated ids must agree up to a tie.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.bench.contests import Contest
from recollect.bench.timing import Differs, Work
from recollect.core.compose import Stack
from recollect.generation.sampling import generate
from recollect.generation.settings import Settings
from recollect.models.language import LanguageConfig, LanguageModel

VOCAB = 256
PROMPT = (1, 2, 3)
DEPTH = 2
TOLERANCE = 1e-3  # of log-probabilities
FAMILIES = ("rnn", "gru", "lstm", "transformer")

KeyValue: TypeAlias = tuple[Tensor, Tensor]  # (1, N, T, H) each
States: TypeAlias = list[Any]  # one for each layer: a KeyValue, or what nn.RNN, nn.GRU or nn.LSTM returns
Step: TypeAlias = Callable[[Tensor, States | None], tuple[Tensor, States]]  # ids (1, T) to logits (1, V)


class Generated(NamedTuple):
    """Generated ids, and the log-probability of each."""

    ids: list[int]
    logprobs: list[float]


def generation_contests(width: int, tokens: int, has_others: bool) -> Iterator[Contest]:
    """Yield a contest for every family; `has_others` adds transformers, where it is installed."""
    for family in FAMILIES:
        yield generation_contest(family, width, tokens, has_others)


def generation_contest(family: str, width: int, tokens: int, has_others: bool = False) -> Contest:
    """Return the contest of a model and a plain loop that generate as many ids."""
    torch.manual_seed(0)
    length = len(PROMPT) + tokens if family == "transformer" else None
    heads = max(width // 64, 1)
    config = LanguageConfig(family, VOCAB, width=width, layers=DEPTH, heads=heads, max_length=length)
    model = LanguageModel(config).eval()
    step = attention_step(model) if family == "transformer" else recurrent_step(model)
    results: dict[str, Work] = {
        "ours": lambda: our_words(model, tokens),
        "a torch loop": lambda: loop(step, tokens, is_scored=True),
    }
    contenders: dict[str, Work] = {**results, "a torch loop": lambda: loop(step, tokens)}
    if has_others and family == "transformer" and find_spec("transformers"):
        theirs = their_model(model)
        contenders["transformers"] = lambda: their_words(theirs, tokens)
        results["transformers"] = lambda: their_words(theirs, tokens, is_scored=True)
    weights = sum(p.nbytes for p in model.parameters()) - VOCAB * width * 4  # a token reads one row of the embedding
    return Contest(
        family,
        "generation",
        {"batch": 1, "steps": tokens, "hidden": width, "dtype": "float32", "device": "cpu"},
        contenders,
        results,
        words_differ,
        TOLERANCE,
        operations=tokens * weights / 2,
        bytes=tokens * weights,
        weights=weights,
    )


def words_differ(ours: Generated, theirs: Generated, tolerance: float) -> float:
    """Return the largest difference of log-probabilities, up to the first id that differs: there it must be a tie."""
    same = next((i for i, (a, b) in enumerate(zip(ours.ids, theirs.ids, strict=True)) if a != b), len(ours.ids))
    pairs = list(zip(ours.logprobs, theirs.logprobs, strict=True))[: same + 1]
    difference = max(abs(a - b) for a, b in pairs)
    if not difference <= tolerance:
        raise Differs(f"log-probabilities: got a difference of {difference:.1e}, expected at most {tolerance}")
    return difference


def our_words(model: LanguageModel, tokens: int) -> Generated:
    """Generate with `recollect`."""
    (result,) = generate(model, [list(PROMPT)], Settings(tokens=tokens, greedy=True))
    return Generated(result.ids, result.logprobs)


@torch.inference_mode()
def loop(step: Step, tokens: int, is_scored: bool = False) -> Generated:
    """Generate ids in a loop; the scores are for the comparison, and not timed."""
    x = torch.tensor([PROMPT])
    memory = None
    result = Generated([], [])
    for _ in range(tokens):
        logits, memory = step(x, memory)
        x = logits.argmax(-1, keepdim=True)
        result.ids.append(int(x))
        if is_scored:
            result.logprobs.append(float(logits.log_softmax(-1).max()))
    return result


def parts_of(model: LanguageModel) -> list[Any]:
    """Return a model's layers, from the embedding to the map to the vocabulary."""
    assert isinstance(model.body, Stack)
    return list(model.body)


def recurrent_step(model: LanguageModel) -> Step:
    """Return the step of nn.RNN, nn.GRU or nn.LSTM with the model's weights."""
    embedding, *layers, top = parts_of(model)
    inside = [layer.to_torch().eval() for layer in layers]

    def step(x: Tensor, memory: States | None) -> tuple[Tensor, States]:
        h = embedding.table(x)
        after = []
        for layer, state in zip(inside, memory or [None] * len(inside), strict=True):
            h, state = layer(h, state)
            after.append(state)
        return top.linear(h[:, -1]), after

    return step


def attention_step(model: LanguageModel) -> Step:
    """Return a straightforward step with the model's weights: keys and values are kept and concatenated."""
    embedding, places, *blocks, norm, top = parts_of(model)

    def step(x: Tensor, memory: States | None) -> tuple[Tensor, States]:
        start = 0 if memory is None else memory[0][0].shape[2]
        h = embedding.table(x) + places.table[start : start + x.shape[1]]
        after = []
        for block, kept in zip(blocks, memory or [None] * len(blocks), strict=True):
            h, kept = _block_step(block, h, kept)
            after.append(kept)
        return top.linear(norm.norm(h[:, -1])), after

    return step


def _block_step(block: Any, h: Tensor, kept: KeyValue | None) -> tuple[Tensor, KeyValue]:
    mixer = block.mixer
    wide = block.feed_forward
    parts = mixer.qkv(block.mixer_norm.norm(h)).unflatten(2, (3, mixer.heads, mixer.head_width))
    q, k, v = parts.permute(2, 0, 3, 1, 4)  # (B, N, T, H)
    if kept is not None:
        k, v = (torch.cat(pair, dim=2) for pair in zip(kept, (k, v), strict=True))
    context = F.scaled_dot_product_attention(q, k, v, is_causal=kept is None)
    h = h + mixer.out(context.transpose(1, 2).flatten(2))
    return h + wide.down(F.gelu(wide.up(block.feed_forward_norm.norm(h)))), (k, v)


# ---- transformers ------------------------------------------------------------------------------------


def their_model(model: LanguageModel) -> Any:
    """Return transformers' GPT-2 with our weights."""
    library: Any = import_module("transformers")  # optional
    of = model.config
    size = model.config.max_length
    shape = {"vocab_size": VOCAB, "n_embd": of.width, "n_layer": of.layers, "n_head": of.heads, "n_positions": size}
    quiet = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None, "tie_word_embeddings": False}
    theirs = library.GPT2LMHeadModel(library.GPT2Config(activation_function="gelu", **shape, **quiet)).eval()
    embedding, places, *blocks, norm, top = parts_of(model)
    inside = theirs.transformer
    with torch.no_grad():
        inside.wte.weight.copy_(embedding.table.weight)
        inside.wpe.weight.copy_(places.table)
        for block, own in zip(inside.h, blocks, strict=True):
            _copy_block(block, own)
        inside.ln_f.load_state_dict(norm.norm.state_dict())
        theirs.lm_head.weight.copy_(top.linear.weight)  # it has no bias, and ours is zero
    return theirs


def _copy_block(theirs: Any, ours: Any) -> None:
    theirs.ln_1.load_state_dict(ours.mixer_norm.norm.state_dict())
    theirs.ln_2.load_state_dict(ours.feed_forward_norm.norm.state_dict())
    pairs: list[tuple[Any, nn.Linear]] = [
        (theirs.attn.c_attn, ours.mixer.qkv),
        (theirs.attn.c_proj, ours.mixer.out),
        (theirs.mlp.c_fc, ours.feed_forward.up),
        (theirs.mlp.c_proj, ours.feed_forward.down),
    ]
    for to, of in pairs:  # theirs are transposed
        to.weight.copy_(of.weight.T)
        to.bias.copy_(of.bias)


def their_words(theirs: Any, tokens: int, is_scored: bool = False) -> Generated:
    """Generate with transformers, as its documentation shows."""
    prompt = torch.tensor([PROMPT])
    options = {"max_new_tokens": tokens, "do_sample": False, "attention_mask": torch.ones_like(prompt)}
    result = theirs.generate(prompt, **options, output_logits=is_scored, return_dict_in_generate=True)
    logits = result.logits if is_scored else ()
    return Generated(result.sequences[0, len(PROMPT) :].tolist(), [float(row.log_softmax(-1).max()) for row in logits])
