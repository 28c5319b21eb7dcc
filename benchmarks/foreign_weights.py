"""Containers of weights that the package does not read: base64 in JSON, llama2.c's .bin, TensorFlow.js manifests.

Each converter returns a model of ours; `benchmarks/pretrained.py` compares them with what their authors shipped.
"""

from __future__ import annotations

import base64
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
import torch
from numpy.typing import NDArray
from tokenizers import decoders, models, normalizers, processors
from torch import Tensor

import recollect as rc
from recollect.pretrained.checkpoint import FORMATS
from recollect.pretrained.entries import load_tensors

Floats = NDArray[np.float32]


# ---- base64 in JSON: minGPT's gpt-nano -----------------------------------------------------------


def decoded(part: dict[str, Any]) -> Tensor:
    """Return one tensor of {"shape", "dtype", "data"}."""
    flat = np.frombuffer(base64.b64decode(part["data"]), dtype=np.float32)
    return torch.from_numpy(flat.reshape(part["shape"]).copy())


def json_tensors(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the config and the tensors of a file."""
    content = json.loads(path.read_text(encoding="utf-8"))
    config = content.pop("config")
    return config, {name: decoded(part) for name, part in content.items()}


def gpt_nano(path: Path) -> rc.LanguageModel:
    """Return minGPT's model: GPT-2's tensors, whose matrices are not transposed, and an output that is not tied."""
    config, tensors = json_tensors(path)
    sizes = {"width": config["n_embd"], "layers": config["n_layer"], "heads": config["n_head"]}
    model = rc.LanguageModel(
        "transformer",
        config["vocab_size"],
        max_length=config["block_size"],
        activation="gelu_tanh",
        head_bias=False,
        **sizes,
    )
    kept = {name: t for name, t in tensors.items() if not name.endswith(".attn.bias")}  # the causal mask
    turned = {name: t.T if t.dim() == 2 and ".h." in name else t for name, t in kept.items()}
    load_tensors(model, FORMATS["gpt2"].entries(model), turned, str(path))
    return model.eval()


# ---- llama2.c ------------------------------------------------------------------------------------


def llama2c(path: Path) -> rc.LanguageModel:
    """Return the model of a .bin file, version 0: seven numbers, then all weights; rotary pairs are as ours."""
    data = path.read_bytes()
    width, hidden, layers, heads, kv_heads, vocab_size, steps = struct.unpack("7i", data[:28])
    flat = np.frombuffer(data, dtype=np.float32, offset=28)
    keys = width // heads * kv_heads
    place = 0

    def take(*shape: int) -> Tensor:
        nonlocal place
        size = int(np.prod(shape))
        place += size
        return torch.from_numpy(flat[place - size : place].reshape(shape).copy())

    embedding = take(abs(vocab_size), width)
    attention_norm = take(layers, width)
    q, k, v = take(layers, width, width), take(layers, keys, width), take(layers, keys, width)
    out, forward_norm = take(layers, width, width), take(layers, width)
    gate, down, up = take(layers, hidden, width), take(layers, width, hidden), take(layers, hidden, width)
    last_norm = take(width)
    take(steps, width // heads)  # tables of cosines and sines
    head = embedding if vocab_size > 0 else take(-vocab_size, width)
    assert place == len(flat), f"{path}: got {len(flat)} numbers, expected {place}"
    sizes = {"width": width, "layers": layers, "heads": heads, "kv_heads": kv_heads, "hidden": hidden}
    structure = {"norm_kind": "rms", "activation": "swiglu", "bias": False, "tied": vocab_size > 0}
    model = rc.LanguageModel("transformer", abs(vocab_size), **sizes, **structure)
    state = {"0.table.weight": embedding, f"{layers + 1}.norm.weight": last_norm, f"{layers + 2}.linear.weight": head}
    for i in range(layers):
        state |= {
            f"{i + 1}.mixer_norm.norm.weight": attention_norm[i],
            f"{i + 1}.mixer.qkv.weight": torch.cat([q[i], k[i], v[i]]),
            f"{i + 1}.mixer.out.weight": out[i],
            f"{i + 1}.feed_forward_norm.norm.weight": forward_norm[i],
            f"{i + 1}.feed_forward.up.weight": torch.cat([gate[i], up[i]]),
            f"{i + 1}.feed_forward.down.weight": down[i],
        }
    model.load_state_dict({f"body.layers.{name}": t for name, t in state.items()})
    return model.eval()


def llama2c_tokenizer(path: Path) -> rc.PretrainedTokenizer:
    """Return the tokenizer of a tok*.bin file: SentencePiece's byte pairs, best score first, and single bytes."""
    data = path.read_bytes()
    place, pieces = 4, []
    while place < len(data):
        score, size = struct.unpack("fi", data[place : place + 8])
        pieces.append((data[place + 8 : place + 8 + size].decode("utf-8", errors="replace"), score))
        place += 8 + size
    names = [piece.strip("\n") if i in (1, 2) else piece.replace(" ", "▁") for i, (piece, _) in enumerate(pieces)]
    ids = {name: i for i, name in enumerate(names)}
    by_score = sorted(range(3 + 256, len(names)), key=lambda i: -pieces[i][1])
    splits = [(names[i][:cut], names[i][cut:]) for i in by_score for cut in range(1, len(names[i]))]
    merges = [(a, b) for a, b in splits if a in ids and b in ids]
    found = tokenizers.Tokenizer(models.BPE(ids, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    found.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    blanks = decoders.Replace("▁", " ")
    found.decoder = decoders.Sequence([blanks, decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    found.post_processor = processors.TemplateProcessing("<s> $A", None, [("<s>", ids["<s>"])])
    found.add_special_tokens(["<unk>", "<s>", "</s>"])
    return rc.PretrainedTokenizer(found)


# ---- TensorFlow.js -------------------------------------------------------------------------------


def manifest_arrays(folder: Path) -> dict[str, Floats]:
    """Return the arrays of a manifest, under the last parts of their names."""
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    return {
        name: np.fromfile(folder / part["filename"], dtype=np.float32).reshape(part["shape"])
        for name, part in manifest.items()
    }


def char_rnn(folder: Path) -> tuple[rc.LanguageModel, dict[str, int]]:
    """Return a model of ml5's charRNN and its symbols: TensorFlow's BasicLSTMCell, gates i, j, f, o, f biased by 1."""
    arrays = manifest_arrays(folder)
    symbols = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    vocab_size, width = arrays["embedding"].shape
    model = rc.LanguageModel("lstm", vocab_size, width=width, layers=2)
    state = {"0.table.weight": arrays["embedding"], "3.linear.weight": arrays["rnnlm/softmax_w"].T}
    state["3.linear.bias"] = arrays["rnnlm/softmax_b"]
    for layer in range(2):
        weight, bias = cell_of(arrays, layer)
        i, j, f, o = np.split(weight.T, 4)
        bias_i, bias_j, bias_f, bias_o = np.split(bias, 4)
        ordered = np.concatenate([i, f, j, o])  # (4H, in + H)
        state[f"{layer + 1}.weight_ih"] = ordered[:, :width]
        state[f"{layer + 1}.weight_hh"] = ordered[:, width:]
        state[f"{layer + 1}.bias_ih"] = np.concatenate([bias_i, bias_f + 1, bias_j, bias_o])
        state[f"{layer + 1}.bias_hh"] = np.zeros_like(bias)
    model.load_state_dict({f"body.layers.{name}": torch.from_numpy(a.copy()) for name, a in state.items()})
    return model.eval(), symbols


def cell_of(arrays: dict[str, Floats], layer: int) -> tuple[Floats, Floats]:
    """Return a cell's weights (in + H, 4H) and bias, which TensorFlow has named in two ways."""
    start = f"rnnlm/multi_rnn_cell/cell_{layer}/basic_lstm_cell"
    names = ("kernel", "bias") if f"{start}/kernel" in arrays else ("weights", "biases")
    return arrays[f"{start}/{names[0]}"], arrays[f"{start}/{names[1]}"]
