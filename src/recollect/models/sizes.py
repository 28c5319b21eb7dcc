"""Sizes: every family at the same number of parameters, and the settings of well-known models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from recollect.core.validate import check_choice
from recollect.models.captioning import CaptionConfig, count_caption_parameters
from recollect.models.language import BLOCKS, LanguageConfig, count_parameters
from recollect.models.translation import TranslationConfig, count_translation_parameters

C = TypeVar("C")

TARGETS = {"tiny": 250_000, "small": 2_000_000, "base": 10_000_000}  # parameters, embeddings included
DEPTHS = {"tiny": 2, "small": 3, "base": 6}
RECURRENT_DEPTHS = {"tiny": 1, "small": 2, "base": 3}
TOLERANCE = 0.05


def sized(
    family: str,
    vocab_size: int,
    size: str = "tiny",
    *,
    depth: int | None = None,
    parameters: int | None = None,
    **options: Any,
) -> LanguageConfig:
    """Give a family's config with the size's depth and number of parameters, or others; options are the config's.

    The number is met within 5 %.
    """
    check_choice("size", size, tuple(TARGETS))
    config, target = LanguageConfig(family, vocab_size, **options), parameters or TARGETS[size]
    if family == "markov":
        return replace(config, dropout=0.0, tied=False)
    config = replace(config, depth=depth or (DEPTHS if family in BLOCKS else RECURRENT_DEPTHS)[size])
    if family in BLOCKS:
        return _fit_blocks(config, target)
    wide = _widest(lambda n: replace(config, width=n), target, count_parameters)
    return _checked(wide, target, count_parameters(wide), vocab_size)


def sized_translator(
    family: str, source_vocab: int, target_vocab: int, size: str = "tiny", **options: Any
) -> TranslationConfig:
    """Give a translator's config with the size's number of parameters, within 5 %; options are the config's."""
    check_choice("size", size, tuple(TARGETS))
    config = TranslationConfig(family, source_vocab, target_vocab, depth=RECURRENT_DEPTHS[size], **options)
    step = 2 * config.heads if family == "transformer" else 1
    count = count_translation_parameters

    def make(n: int) -> TranslationConfig:
        return replace(config, width=n * step, hidden=(2 if family == "transformer" else 1) * n * step)

    wide = _widest(make, TARGETS[size], count)
    if family == "transformer":
        wide = _widest(lambda n: replace(wide, hidden=n), TARGETS[size], count)
    return _checked(wide, TARGETS[size], count(wide), max(source_vocab, target_vocab))


def sized_captioner(
    family: str, target_vocab: int, picture: tuple[int, ...], size: str = "tiny", **options: Any
) -> CaptionConfig:
    """Give a captioner's config with the size's number of parameters, within 5 %, for pictures (h, w, c)."""
    check_choice("size", size, tuple(TARGETS))
    height, breadth, channels = picture
    config = CaptionConfig(family, target_vocab, height, breadth, channels, depth=RECURRENT_DEPTHS[size], **options)
    is_transformer, count = family == "transformer", count_caption_parameters
    step, times = (2 * config.heads, 2) if is_transformer else (1, 1)
    wide = _widest(lambda n: replace(config, width=n * step, hidden=times * n * step), TARGETS[size], count)
    wide = _widest(lambda n: replace(wide, hidden=n), TARGETS[size], count)
    return _checked(wide, TARGETS[size], count(wide), target_vocab)


def _fit_blocks(config: LanguageConfig, target: int) -> LanguageConfig:
    """Choose the width, which heads divide, then the feed-forward networks' size, which is fine-grained."""
    step = 2 * config.heads  # rotary positions want even heads
    wide = _widest(lambda n: replace(config, width=n * step, hidden=3 * n * step), target, count_parameters)
    full = _widest(lambda n: replace(wide, hidden=n), target, count_parameters)
    return _checked(full, target, count_parameters(full), full.vocab_size)


def _widest(make: Callable[[int], C], target: int, count: Callable[[C], int]) -> C:
    """Find the largest n whose model does not pass the target; parameters grow with n."""
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
            f"many for it; take a larger size or a smaller vocabulary"
        )
    return config


# ---- as published -------------------------------------------------------------------------------------


def zaremba(size: str, vocab_size: int = 10_000) -> LanguageConfig:
    """Zaremba et al. 2014: two LSTM layers of 200 (small), 650 (medium) or 1500 (large).

    Dropout 0, .5, .65; weights drawn from ±.1, ±.05, ±.04.
    """
    sizes = {"small": (200, 0.0, 0.1), "medium": (650, 0.5, 0.05), "large": (1500, 0.65, 0.04)}
    width, dropout, start = sizes[size]
    return LanguageConfig("lstm", vocab_size, width=width, depth=2, dropout=dropout, start=start)


def nanogpt_char(vocab_size: int = 65) -> LanguageConfig:
    """nanoGPT's train_shakespeare_char: 6 layers, 6 heads, width 384, context 256, dropout 0.2, tied.

    Where we differ: products and norms have biases, as in GPT-2.
    """
    shape: dict[str, Any] = {"width": 384, "depth": 6, "heads": 6, "max_length": 256}
    return LanguageConfig("transformer", vocab_size, **shape, dropout=0.2, tied=True)


def gpt2_small(vocab_size: int = 50_257) -> LanguageConfig:
    """GPT-2 small (Radford et al. 2019): 12 layers, 12 heads, width 768, context 1024, tied."""
    shape: dict[str, Any] = {"width": 768, "depth": 12, "heads": 12, "max_length": 1024}
    return LanguageConfig("transformer", vocab_size, **shape, dropout=0.1, tied=True)
