"""Models that others trained, with their tokenizers: read with `from_pretrained`, written with `save_pretrained`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from torch import Tensor, nn

from recollect.core.machine import choose_device
from recollect.core.serialize import FileError
from recollect.core.types import JsonObject
from recollect.data.text.pretrained_tokenizer import PretrainedTokenizer
from recollect.data.text.tokenizer_backend import as_pretrained
from recollect.generation.continuation import stream_text
from recollect.generation.embedding import SentencePooling, at_once, embed_rows, in_chunks
from recollect.generation.settings import Settings
from recollect.models.language import LanguageModel
from recollect.models.masked import MaskedModel
from recollect.pretrained.checkpoint import read_config, read_json, read_model, write_model

POOLINGS = {  # of sentence-transformers, and ours
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "first",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_lasttoken": "last",
}


@dataclass(frozen=True, eq=False)
class Pretrained:
    """A model and its tokenizer, and what they are used for: `generate` a text, `embed` texts.

    >>> pretrained = rc.Pretrained(rc.LanguageModel("gru", 256, width=8), rc.Tokenizer("byte"))
    >>> len(pretrained.generate("a", tokens=3, greedy=True)) > 1
    True
    """

    model: LanguageModel | MaskedModel
    tokenizer: Any  # a PretrainedTokenizer, or a Tokenizer
    pooling: SentencePooling = SentencePooling()
    ends: tuple[int, ...] = ()  # the ids that end a text

    def stream(self, prompt: str, stop: Sequence[str] = (), **settings: Any) -> Iterator[str]:
        """Return an iterator over chunks of the text that follows a prompt; arguments are checked at once."""
        if not self.model.streams:
            raise ValueError(
                "a masked language model reads whole texts and continues none; use embed, or a model such as GPT-2"
            )
        how = Settings(stop=self.ends, prohibited=self.tokenizer.unseen, **settings)
        return (chunks[0] for chunks in stream_text(self.model, self.tokenizer, [prompt], how, stop=stop))

    def generate(self, prompt: str, *, tokens: int = 200, stop: Sequence[str] = (), **settings: Any) -> str:
        """Return a prompt and the model's continuation; the settings are those of `Settings`."""
        return prompt + "".join(self.stream(prompt, stop, tokens=tokens, **settings))

    def embed(self, texts: Sequence[str]) -> Tensor:
        """Return one vector for each text, (N, D); a text longer than the model reads is cut."""
        cut = {} if self.pooling.most is None else {"most": self.pooling.most}
        rows = [self.tokenizer.encode(text, **cut) for text in texts]
        read = at_once(self.model.encode) if isinstance(self.model, MaskedModel) else in_chunks(self.model)
        return embed_rows(read, rows, self.pooling, device=next(self.model.parameters()).device)


def from_pretrained(folder: str | Path, *, device: str = "cpu") -> Pretrained:
    """Return the model and the tokenizer of a folder in the layout of Hugging Face, without transformers.

    GPT-2, Llama and Mistral, BERT and the sentence encoders made of it, ALBERT: config.json, model.safetensors (or its
    shards), and tokenizer.json or the older vocabulary files. In float32, whatever the file's precision.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> model = rc.LanguageModel("transformer", 256, width=8, max_length=32, head_bias=False)
    >>> rc.save_pretrained(model, folder, rc.Tokenizer("byte"))
    >>> rc.from_pretrained(folder).generate("a", tokens=0)
    'a'
    """
    folder = Path(folder)
    model = read_model(folder).to(choose_device(device))
    tokenizer = PretrainedTokenizer.load(folder)
    config = read_config(folder)
    return Pretrained(model, tokenizer, _pooling(folder, model), _ends(folder, config))


def save_pretrained(model: nn.Module, folder: str | Path, tokenizer: Any = None) -> None:
    """Write a model, and its tokenizer, as a folder that transformers loads with `from_pretrained`.

    A Transformer with learned positions becomes GPT-2, one with rotary positions and RMS norms Llama, a masked language
    model BERT or ALBERT. Another model, or one that differs from these, raises a ValueError with the reason.

    >>> rc.save_pretrained(rc.LanguageModel("lstm", 256), "out")
    Traceback (most recent call last):
    ValueError: LanguageModel of the family lstm: transformers has no such model ...
    """
    write_model(model, folder)
    if tokenizer is not None:
        as_pretrained(tokenizer).save(folder)


def _pooling(folder: Path, model: nn.Module) -> SentencePooling:
    """Return what sentence-transformers' files say, and the longest text: the mean, normalised, without them."""
    longest = [model.config.max_length] if isinstance(model, MaskedModel) else []
    settings = folder / "sentence_bert_config.json"
    if settings.is_file():
        longest += [n for n in [read_json(settings).get("max_seq_length")] if n]
    most = min(longest, default=None)
    modules = _modules(folder)
    if not modules:
        return SentencePooling(most=most)
    normalises = any(str(module["type"]).endswith("Normalize") for module in modules)
    places = [module["path"] for module in modules if str(module["type"]).endswith("Pooling")]
    chosen: JsonObject = read_json(folder / places[0] / "config.json") if places else {}
    ways = [way for name, way in POOLINGS.items() if chosen.get(name)]
    if len(ways) > 1:
        raise ValueError(f"{folder / places[0]}: got several poolings, {', '.join(ways)}, expected one")
    return SentencePooling(cast(Any, ways[0] if ways else "mean"), normalises, most)


def _modules(folder: Path) -> list[JsonObject]:
    path = folder / "modules.json"
    if not path.is_file():
        return []
    try:
        found: list[JsonObject] = json.loads(path.read_text(encoding="utf-8"))
        return [{"type": module["type"], "path": module["path"]} for module in found]
    except (ValueError, KeyError, TypeError) as error:
        raise FileError(f"{path}: damaged, it cannot be read ({error})") from error


def _ends(folder: Path, config: JsonObject) -> tuple[int, ...]:
    """Return the ids that end a text: those of generation_config.json, else of config.json."""
    path = folder / "generation_config.json"
    given = (read_json(path) if path.is_file() else {}).get("eos_token_id", config.get("eos_token_id"))
    ids = given if isinstance(given, list) else [given]
    return tuple(i for i in ids if isinstance(i, int) and 0 <= i < int(config["vocab_size"]))
