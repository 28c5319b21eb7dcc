"""The generators that lie beside exported weights: programs of about 30 lines that need no recollect."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

ONNX_SCRIPT = '''\
"""Continue a text greedily: python generate.py "The " [TOKENS]. Needs onnxruntime, safetensors, tokenizers."""

import sys
from pathlib import Path

import numpy as np
import onnxruntime
from safetensors.numpy import load_file
from tokenizers import Tokenizer

here = Path(__file__).parent
tokenizer = Tokenizer.from_file(str(here / "tokenizer.json"))
session = onnxruntime.InferenceSession(str(here / "model.onnx"), providers=["CPUExecutionProvider"])
memory = load_file(here / "memory.safetensors")  # what is remembered before the first symbol
NEVER = []  # ids of symbols that stand for no text
names = [given.name for given in session.get_inputs() if given.name != "token"]


def step(token):
    """Read one id, update the memory, and return the logits of the next."""
    given = {"token": np.array([token], dtype=np.int64)} | {name: memory[name] for name in names}
    logits, *after = session.run(None, given)
    memory.update(zip(names, after))
    logits[0, NEVER] = -np.inf
    return logits[0]


ids = tokenizer.encode(sys.argv[1]).ids
for token in ids:
    logits = step(token)
for _ in range(int(sys.argv[2]) if len(sys.argv) > 2 else 100):
    ids.append(int(logits.argmax()))
    logits = step(ids[-1])
print(tokenizer.decode(ids))
'''

TORCH_SCRIPT = '''\
"""Continue a text greedily: python generate.py "The " [TOKENS]. Needs torch, safetensors, tokenizers."""

import sys
from pathlib import Path

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import nn

here = Path(__file__).parent
tokenizer = Tokenizer.from_file(str(here / "tokenizer.json"))
model = nn.ModuleDict(
    {
        "embedding": nn.EMBEDDING,
        "rnn": nn.RECURRENCE,
        "head": nn.HEAD,
    }
)
model.load_state_dict(load_file(here / "model.safetensors"))
model.eval()
NEVER = []  # ids of symbols that stand for no text

ids = tokenizer.encode(sys.argv[1]).ids
given, state = torch.tensor([ids]), None
with torch.no_grad():
    for _ in range(int(sys.argv[2]) if len(sys.argv) > 2 else 100):
        outputs, state = model["rnn"](model["embedding"](given), state)
        logits = model["head"](outputs[0, -1])
        logits[NEVER] = -torch.inf
        ids.append(int(logits.argmax()))
        given = torch.tensor([ids[-1:]])
print(tokenizer.decode(ids))
'''


def onnx_script(unseen: Sequence[int]) -> str:
    """Return the generator that uses ONNX Runtime and never emits the ids in `unseen`."""
    return ONNX_SCRIPT.replace("[]", str(list(unseen)), 1)


def torch_script(modules: nn.ModuleDict, unseen: Sequence[int]) -> str:
    """Return the generator for modules of these sizes: their own descriptions are the calls that make them."""
    script = TORCH_SCRIPT.replace("[]", str(list(unseen)), 1).replace("EMBEDDING", repr(modules["embedding"]))
    return script.replace("RECURRENCE", repr(modules["rnn"])).replace("HEAD", repr(modules["head"]))
