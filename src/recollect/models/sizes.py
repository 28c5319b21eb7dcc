"""Configs by size: every family with the same number of parameters, and the settings of well-known models.

A size counts the body of a model. Embeddings and the map to the vocabulary grow with the vocabulary, whatever the
model is: counted too, they would leave nothing for the body where there are many words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar

from recollect.core.errors import check_choice, is_own
from recollect.core.meta import on_meta
from recollect.core.settings import SettingError
from recollect.models.captioning import CaptionConfig, Captioner
from recollect.models.encoding import WITHOUT_WIDTH, EncoderConfig, count_encoder_parameters
from recollect.models.language import BLOCKS, LanguageConfig, LanguageModel
from recollect.models.masked import MaskedConfig, MaskedModel
from recollect.models.parameters import Parameters, count_apart
from recollect.models.translation import TranslationConfig, Translator

AnyConfig: TypeAlias = LanguageConfig | TranslationConfig | CaptionConfig
C = TypeVar("C", LanguageConfig, TranslationConfig, CaptionConfig)
Encoding = TypeVar("Encoding", bound=EncoderConfig)
Made = TypeVar("Made")

TARGETS = {"tiny": 250_000, "small": 2_000_000, "base": 10_000_000}  # parameters of the body
BLOCKS_OF = {"tiny": 2, "small": 3, "base": 6}
RECURRENT_LAYERS = {"tiny": 1, "small": 2, "base": 3}
TOLERANCE = 0.05
WIDEST = 1 << 14


def sized(
    family: str, vocab_size: int, size: str = "tiny", *, parameters: int | None = None, **options: Any
) -> LanguageConfig:
    """Return a family's config with the size's layers and parameters of the body, within 5 %.

    `parameters` is a number of all parameters instead, embeddings and output included. `options` are other fields.
    """
    target = Target.make(size, parameters, options)
    layers = (BLOCKS_OF if family in BLOCKS else RECURRENT_LAYERS)[size]
    if family == "window":  # as published: one network over the window
        layers = 1
    config = LanguageConfig(family, vocab_size, **{"layers": layers, **options})
    if family == "markov" or "width" in options:
        return config
    if family not in BLOCKS:
        return target.met(lambda n: replace(config, width=n))
    # First the width, a multiple of the heads, then the finer size of the feed-forward networks.
    step = 2 * config.heads  # rotary positions need even heads
    own = config.hidden
    wide = target.met(lambda n: replace(config, width=n * step, hidden=own or 3 * n * step))
    return wide if own else target.met(lambda n: replace(wide, hidden=n))


def sized_translator(
    family: str,
    source_vocab: int,
    target_vocab: int,
    size: str = "tiny",
    *,
    parameters: int | None = None,
    **options: Any,
) -> TranslationConfig:
    """Return a translator's config with the size's number of parameters; arguments are as those of `sized`."""
    target = Target.make(size, parameters, options)
    options = {"layers": RECURRENT_LAYERS[size], **options}
    config = TranslationConfig(family, source_vocab, target_vocab, **options)
    return _as_wide(config, target, options, is_fine=family == "transformer")


def sized_captioner(
    family: str,
    target_vocab: int,
    picture: tuple[int, ...],
    size: str = "tiny",
    *,
    parameters: int | None = None,
    **options: Any,
) -> CaptionConfig:
    """Return a captioner's config for pictures (h, w, c); arguments are as those of `sized`."""
    target = Target.make(size, parameters, options)
    height, breadth, channels = picture
    options = {"layers": RECURRENT_LAYERS[size], **options}
    config = CaptionConfig(family, target_vocab, height, breadth, channels, **options)
    return _as_wide(config, target, options, is_fine=True)


def sized_encoder(config: type[Encoding], family: str, vocab_size: int, size: str = "tiny", **options: Any) -> Encoding:
    """Return a classifier's or tagger's config with the size's number of parameters in its layers, or less."""
    check_choice("size", size, tuple(TARGETS))
    is_blocks = family in (*BLOCKS, "bert")
    layers = 1 if family in ("window", "per-word", "cnn") else (BLOCKS_OF if is_blocks else RECURRENT_LAYERS)[size]
    made = config(family, vocab_size, **{"layers": layers, **options})
    if "width" in options or family in WITHOUT_WIDTH:
        return made
    step = 2 * made.heads if is_blocks else 4  # a quarter of a word's vector may be its letters
    return _widest(lambda n: replace(made, width=n * step), TARGETS[size], count_encoder_parameters)


def sized_masked(family: str, vocab_size: int, size: str = "tiny", **options: Any) -> MaskedConfig:
    """Return a masked language model's config with the size's number of parameters in its body, or less."""
    check_choice("size", size, tuple(TARGETS))
    layers = (BLOCKS_OF if family == "bert" else RECURRENT_LAYERS)[size]
    made = MaskedConfig(**{"layers": layers, **options}, vocab_size=vocab_size, family=family)
    if "width" in options:
        return made
    step = 2 * made.heads
    return _widest(lambda n: replace(made, width=n * step), TARGETS[size], _masked_body)


def _masked_body(config: MaskedConfig) -> int:
    with on_meta():
        return count_apart(MaskedModel(replace(config, vocab_size=1))).body


def _as_wide(config: C, target: Target, options: Mapping[str, Any], *, is_fine: bool) -> C:
    """Return an encoder–decoder's config whose width meets the target; where `is_fine`, `hidden` does so exactly."""
    if "width" in options:
        return config
    is_transformer = config.family == "transformer"
    step, times = (2 * config.heads, 2) if is_transformer else (1, 1)
    own = options.get("hidden")
    wide = target.met(lambda n: replace(config, width=n * step, hidden=own or times * n * step))
    return target.met(lambda n: replace(wide, hidden=n)) if is_fine and not own else wide


@dataclass(frozen=True)
class Target:
    """A number of parameters that a config is to have."""

    number: int
    is_total: bool
    given: str  # the size and the settings, for messages

    @classmethod
    def make(cls, size: str, parameters: int | None, options: Mapping[str, Any]) -> Target:
        """Return a size's target; or that of all `parameters`, where given."""
        check_choice("size", size, tuple(TARGETS))
        settings = [f"{name}={value}" for name, value in options.items() if value not in (None, False)]
        return cls(parameters or TARGETS[size], parameters is not None, ", ".join([f"size={size}", *settings]))

    def met(self, make: Callable[[int], C]) -> C:
        """Return the config of the largest n whose parameters do not exceed the number; they grow with n."""
        grows = parts_of(make(4)).body > parts_of(make(2)).body
        counted = self if grows else replace(self, is_total=True)  # a body of one's own may have none
        return counted.checked(_widest(make, self.number, counted.count))

    def count(self, config: AnyConfig) -> int:
        """Return the number of a config's parameters: of its body, or of all."""
        parts = parts_of(config)
        return parts.total if self.is_total else parts.body

    def checked(self, config: C) -> C:
        """Return the config; raise a SettingError where even the narrowest one has too many parameters."""
        count = self.count(config)
        if count > (1 + TOLERANCE) * self.number:
            which = "parameters" if self.is_total else "parameters in the body"
            raise SettingError(
                f"{self.given}: at least {count:,} {which} at these settings, expected {self.number:,}; "
                f"choose a larger size, other settings, or a width"
            )
        return config


def _widest(make: Callable[[int], Made], target: int, count: Callable[[Made], int]) -> Made:
    """Return the config of the largest n whose parameters do not exceed the target; their number grows with n."""
    low, high = 1, 2
    while high < WIDEST and count(make(high)) <= target:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count(make(middle)) <= target else (low, middle)
    return make(low)


def parts_of(config: AnyConfig) -> Parameters:
    """Return the numbers of a config's parameters, without allocating them."""
    if is_own(config.family):  # a class may be defined anew under its name
        return _parts_of.__wrapped__(config)
    return _parts_of(config)


@lru_cache  # the search for a size counts the same config several times
def _parts_of(config: AnyConfig) -> Parameters:
    with on_meta():
        if isinstance(config, LanguageConfig):
            return count_apart(LanguageModel(config))
        return count_apart(Translator(config) if isinstance(config, TranslationConfig) else Captioner(config))


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
