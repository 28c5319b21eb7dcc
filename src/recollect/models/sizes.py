"""Configs by size: every family at the same number of parameters, and the settings of well-known models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from recollect.core.errors import check_choice
from recollect.models.captioning import CaptionConfig, count_caption_parameters
from recollect.models.encoding import EncoderConfig, count_encoder_parameters
from recollect.models.language import BLOCKS, LanguageConfig, count_parameters
from recollect.models.translation import TranslationConfig, count_translation_parameters

C = TypeVar("C")
Encoding = TypeVar("Encoding", bound=EncoderConfig)

TARGETS = {"tiny": 250_000, "small": 2_000_000, "base": 10_000_000}  # parameters, embeddings included
BLOCKS_OF = {"tiny": 2, "small": 3, "base": 6}
RECURRENT_LAYERS = {"tiny": 1, "small": 2, "base": 3}
TOLERANCE = 0.05


def sized(
    family: str,
    vocab_size: int,
    size: str = "tiny",
    *,
    layers: int | None = None,
    parameters: int | None = None,
    **options: Any,
) -> LanguageConfig:
    """Return a family's config with the size's layers and number of parameters, or given ones, within 5 %.

    `options` are other fields of the config.
    """
    check_choice("size", size, tuple(TARGETS))
    config = LanguageConfig(family, vocab_size, **options)
    target = parameters or TARGETS[size]
    if family == "markov":
        return config
    config = replace(config, layers=layers or _layers_of(family, size))
    if "width" in options:
        return config
    if family in BLOCKS:  # first the width, a multiple of the heads, then the finer size of the feed-forward networks
        step = 2 * config.heads  # rotary positions need even heads
        own = config.hidden
        wide = _widest(lambda n: replace(config, width=n * step, hidden=own or 3 * n * step), target, count_parameters)
        if not own:
            wide = _widest(lambda n: replace(wide, hidden=n), target, count_parameters)
    else:
        wide = _widest(lambda n: replace(config, width=n), target, count_parameters)
    return _checked(wide, target, count_parameters(wide), vocab_size)


def _layers_of(family: str, size: str) -> int:
    if family == "window":  # as published: one network over the window
        return 1
    return (BLOCKS_OF if family in BLOCKS else RECURRENT_LAYERS)[size]


def sized_translator(
    family: str, source_vocab: int, target_vocab: int, size: str = "tiny", **options: Any
) -> TranslationConfig:
    """Return a translator's config with the size's number of parameters, within 5 %; options are its other fields."""
    check_choice("size", size, tuple(TARGETS))
    options = {"layers": RECURRENT_LAYERS[size], **options}
    config = TranslationConfig(family, source_vocab, target_vocab, **options)
    if "width" in options:
        return config
    step = 2 * config.heads if family == "transformer" else 1
    count = count_translation_parameters

    def make(n: int) -> TranslationConfig:
        hidden = options.get("hidden") or (2 if family == "transformer" else 1) * n * step
        return replace(config, width=n * step, hidden=hidden)

    wide = _widest(make, TARGETS[size], count)
    if family == "transformer" and "hidden" not in options:
        wide = _widest(lambda n: replace(wide, hidden=n), TARGETS[size], count)
    return _checked(wide, TARGETS[size], count(wide), max(source_vocab, target_vocab))


def sized_captioner(
    family: str, target_vocab: int, picture: tuple[int, ...], size: str = "tiny", **options: Any
) -> CaptionConfig:
    """Return a captioner's config with the size's number of parameters, within 5 %, for pictures (h, w, c)."""
    check_choice("size", size, tuple(TARGETS))
    height, breadth, channels = picture
    options = {"layers": RECURRENT_LAYERS[size], **options}
    config = CaptionConfig(family, target_vocab, height, breadth, channels, **options)
    if "width" in options:
        return config
    count = count_caption_parameters
    step, times = (2 * config.heads, 2) if family == "transformer" else (1, 1)
    own = options.get("hidden")
    wide = _widest(lambda n: replace(config, width=n * step, hidden=own or times * n * step), TARGETS[size], count)
    if own is None:
        wide = _widest(lambda n: replace(wide, hidden=n), TARGETS[size], count)
    return _checked(wide, TARGETS[size], count(wide), target_vocab)


def sized_encoder(config: type[Encoding], family: str, vocab_size: int, size: str = "tiny", **options: Any) -> Encoding:
    """Return a classifier's or tagger's config with the size's number of parameters in its layers, or less."""
    check_choice("size", size, tuple(TARGETS))
    is_blocks = family in (*BLOCKS, "bert")
    layers = 1 if family in ("window", "per-word", "cnn") else (BLOCKS_OF if is_blocks else RECURRENT_LAYERS)[size]
    made = config(family, vocab_size, **{"layers": layers, **options})
    if "width" in options or family in ("majority", "bag-of-words"):
        return made
    step = 2 * made.heads if is_blocks else 4  # a quarter of a word's vector may be its letters
    return _widest(lambda n: replace(made, width=n * step), TARGETS[size], count_encoder_parameters)


def _widest(make: Callable[[int], C], target: int, count: Callable[[C], int]) -> C:
    """Return the config of the largest n whose parameters do not exceed the target; their number grows with n."""
    low, high = 1, 2
    while count(make(high)) <= target:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count(make(middle)) <= target else (low, middle)
    return make(low)


def _checked(config: C, target: int, count: int, vocab_size: int) -> C:
    if abs(count - target) > TOLERANCE * target:
        raise ValueError(
            f"size: got {count:,} parameters at least, expected {target:,}: {vocab_size:,} symbols are too "
            f"many for it; choose a larger size or a smaller vocabulary"
        )
    return config


# ---- as published -------------------------------------------------------------------------------------


def zaremba(size: str, vocab_size: int = 10_000) -> LanguageConfig:
    """Return the config of Zaremba et al. 2014: two LSTM layers of 200 (small), 650 (medium) or 1500 (large).

    Dropout 0, 0.5, 0.65; weights drawn uniformly from ±0.1, ±0.05, ±0.04.
    """
    sizes = {"small": (200, 0.0, 0.1), "medium": (650, 0.5, 0.05), "large": (1500, 0.65, 0.04)}
    width, dropout, start = sizes[size]
    return LanguageConfig("lstm", vocab_size, width=width, layers=2, dropout=dropout, start=start)


def nanogpt_char(vocab_size: int = 65) -> LanguageConfig:
    """Return nanoGPT's train_shakespeare_char: 6 layers, 6 heads, width 384, context 256, dropout 0.2, tied.

    Where we differ: linear maps and norms have biases, as in GPT-2.
    """
    return LanguageConfig(
        "transformer", vocab_size, width=384, layers=6, heads=6, max_length=256, dropout=0.2, tied=True
    )


def gpt2_small(vocab_size: int = 50_257) -> LanguageConfig:
    """Return GPT-2 small (Radford et al. 2019): 12 layers, 12 heads, width 768, context 1024, tied."""
    return LanguageConfig(
        "transformer", vocab_size, width=768, layers=12, heads=12, max_length=1024, dropout=0.1, tied=True
    )
