"""The captioner: from a picture to words, for the two families that attend to it at every word.

    memory = model.remember(pictures)
    logits, memory = model(ids, memory)

Convolutions turn a picture into a grid of features. The decoder reads its cells as a translator's decoder reads the
steps of a source: no other code depends on pictures.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.core.errors import check_choice
from recollect.core.memory import Layers, Memory
from recollect.core.settings import setting
from recollect.core.validate import ContractError, fill_invalid
from recollect.layers.attention.alignment import make_alignment
from recollect.layers.attention.attend import Attend
from recollect.layers.attention.cross_attention import CrossAttention
from recollect.layers.attention.score import SCORES, make_score
from recollect.layers.attention.self_attention import SelfAttention
from recollect.layers.decoder_block import DecoderBlock
from recollect.layers.pointwise import Embedding, FeedForward
from recollect.layers.positions import sinusoids
from recollect.layers.recurrent.torch_bridge import RecurrentStack
from recollect.models.attentive import Attending, BahdanauDecoder
from recollect.models.conditional import ConditionalModel
from recollect.models.encoders import Bridge
from recollect.models.transformer import ScaledEmbedding, TransformerDecoder, begin_evenly
from recollect.models.translation import CELLS, AnyDecoder

FAMILIES = ("show-attend-tell", "transformer")
ALIGNMENTS = ("soft", "hard")
USED_BY: dict[str, tuple[str, ...]] = {  # the settings that a user may choose, and the families that use them
    **dict.fromkeys(("width", "hidden", "layers", "grid", "dropout", "tied"), FAMILIES),
    **dict.fromkeys(("heads", "norm", "activation"), ("transformer",)),
    **dict.fromkeys(("cell", "score", "alignment"), ("show-attend-tell",)),
}


def settings_of(family: str) -> tuple[str, ...]:
    """Return the names of the settings that a family uses."""
    return tuple(name for name, families in USED_BY.items() if family in families)


@dataclass(frozen=True)
class CaptionConfig:
    """The config of a captioner; each family uses some of the settings.

    "show-attend-tell": a recurrent decoder attends to the grid before every word (Xu et al. 2015)
    "transformer":      a Transformer decoder attends to it in every block

    >>> config = rc.CaptionConfig("show-attend-tell", target_vocab=50, height=16, breadth=16, width=16)
    >>> type(rc.Captioner(config)).__name__
    'Captioner'
    """

    family: str
    target_vocab: int
    height: int  # of the pictures, in pixels
    breadth: int
    channels: int = setting(3, least=1)
    width: int = setting(128, least=1, help="of embeddings and features; transformer: of everything")
    hidden: int | None = setting(None, least=1, help="of the states, or of the feed-forward network; None: fitted")
    layers: int = setting(1, least=1, most=1000)
    heads: int = setting(4, least=1, most=4096, help="transformer")
    grid: int = setting(8, least=1, help="convolutions halve a picture until no side has more cells than this")
    dropout: float = setting(0.0, least=0.0, below=1.0)
    cell: Literal["gru", "lstm"] = setting("lstm", help="show-attend-tell")
    score: str = setting("additive", choices=tuple(SCORES), help="show-attend-tell")
    alignment: Literal["soft", "hard"] = setting("soft", help="show-attend-tell")
    norm: Literal["pre", "post"] = setting("pre", help="transformer")
    activation: Literal["relu", "gelu", "gelu_tanh", "swiglu"] = setting("gelu", help="transformer")
    tied: bool = setting(False, help="embedding and output share their weights")

    def __post_init__(self) -> None:
        check_choice("family", self.family, FAMILIES)
        check_choice("alignment", self.alignment, ALIGNMENTS)
        check_choice("cell", self.cell, tuple(CELLS))
        for name in ("height", "breadth", "channels", "grid", "layers"):
            if getattr(self, name) < 1:
                raise ContractError(name, getattr(self, name), "at least 1")

    @property
    def size(self) -> tuple[int, int, int]:
        """Height, width and channels of a picture."""
        return self.height, self.breadth, self.channels


class Captioner(ConditionalModel):
    """Any family as a model of captions given pictures: caption ids (B, T) to logits (B, T, V).

    >>> import torch
    >>> model = Captioner("show-attend-tell", target_vocab=30, size=(8, 8, 3), width=16)
    >>> memory = model.remember(torch.zeros(1, 8, 8, 3))
    >>> logits, memory = model(torch.tensor([[4, 5]]), memory)
    >>> logits.shape
    torch.Size([1, 2, 30])
    """

    def __init__(
        self,
        config: CaptionConfig | str,
        target_vocab: int | None = None,
        size: tuple[int, int, int] = (32, 32, 3),
        **options: Any,
    ) -> None:
        super().__init__()
        if isinstance(config, str):
            if target_vocab is None:
                raise ContractError("target_vocab", None, "the number of symbols of captions")
            config = CaptionConfig(config, target_vocab, *size, **options)
        self.config = config
        self.encoder = PictureEncoder(config)
        self.decoder = build_decoder(config)
        self.width = None
        self.width_out = self.vocab_size = config.target_vocab
        self.growth = self.decoder.growth
        if config.tied:
            self.decoder.out.weight = self.decoder.embedding.table.weight

    def remember(self, pictures: Tensor, valid: Tensor | None = None) -> Memory:
        """Return the decoder's memory of pictures (B, H, W, C), bytes or floats from 0 to 1.

        `valid` (B, S) masks the cells of the grid, in row-major order; None: all may be attended to.
        """
        features = self.encoder(pictures)
        if valid is None:
            valid = torch.ones(features.shape[:2], dtype=torch.bool, device=features.device)
        return self.decoder.begin(fill_invalid(features, valid), Layers(layers=()), valid)


class PictureEncoder(nn.Module):
    """Pictures (B, H, W, C) to a grid of features (B, S, D), its cells in row-major order.

    x ← gelu(norm(conv(x))), 3×3 with stride 2 and more channels, until the grid is small enough; then once more with
    stride 1 and a residual connection. Positions: sinusoids of a cell's row are added to half of its features, those of
    its column to the others. Norms are computed for each picture separately, so that no result depends on the batch.
    """

    def __init__(self, config: CaptionConfig) -> None:
        super().__init__()
        self.size = config.size
        halvings = max(1, math.ceil(math.log2(max(config.height, config.breadth) / config.grid)))
        widths = [config.channels, *(max(config.width >> k, 1) for k in reversed(range(halvings)))]  # doubling
        self.halve = nn.ModuleList(_Convolution(a, b, stride=2) for a, b in pairwise(widths))
        self.refine = _Convolution(widths[-1], config.width, stride=1)
        self.norm = nn.LayerNorm(config.width)

    def forward(self, pictures: Tensor) -> Tensor:
        """Return the features."""
        weight = self.norm.weight
        if pictures.dim() != 4 or tuple(pictures.shape[1:]) != self.size:
            raise ContractError("pictures", f"shape {tuple(pictures.shape)}", f"(B, {', '.join(map(str, self.size))})")
        if pictures.device != weight.device:
            raise ContractError("pictures", f"device {pictures.device}", f"{weight.device}, where this model is")
        most = 1 if pictures.is_floating_point() else 255
        x = (pictures.to(weight.dtype) * (2 / most) - 1).permute(0, 3, 1, 2)  # (B, C, H, W), from −1 to 1
        for layer in self.halve:
            x = layer(x)
        x = self.refine(x) + x
        features = self.norm(x.permute(0, 2, 3, 1))  # (B, rows, columns, D)
        return (features + _grid_positions(features)).flatten(1, 2)


class _Convolution(nn.Module):
    def __init__(self, width: int, width_out: int, *, stride: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(width, width_out, 3, stride, padding=1)
        self.norm = nn.GroupNorm(1, width_out)

    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(self.norm(self.convolution(x)))


def _grid_positions(features: Tensor) -> Tensor:
    """Return each cell's position (rows, columns, D): sinusoids of its row and of its column."""
    _, rows, columns, width = features.shape
    half = width // 2
    down, along = (torch.arange(n, device=features.device)[None] for n in (rows, columns))
    row = sinusoids(down, half, features.dtype)[0][:, None].expand(-1, columns, -1)
    column = sinusoids(along, width - half, features.dtype)[0][None].expand(rows, -1, -1)
    return torch.cat([row, column], dim=2)


class ShowAttendTellDecoder(BahdanauDecoder):
    """Bahdanau's decoder over a picture's cells, with a first state from their mean (Xu et al. 2015, section 3.1.2).

    s_0 = tanh(W mean_i a_i + b), for hidden and cell states;  z_t = Σ_i α_ti a_i,  α_t = align(score(s_{t-1}, a_i))
    s_t = cell([e(y_{t-1}); z_t], s_{t-1});  logits_t = W tanh(O [s_t; e(y_{t-1}); z_t] + b_o) + b

    "hard" samples one cell a step, and in eval mode selects the likeliest. The paper trains the sampling by REINFORCE
    with a moving baseline; here the straight-through estimator is used (`Hard`), which needs only the loss. Where we
    differ besides: no gate β_t on the context, and no penalty that makes a cell's weights sum to 1 over a caption.
    """

    def __init__(self, embedding: Embedding, cells: RecurrentStack, attend: Attend, *, dropout: float = 0.0) -> None:
        super().__init__(embedding, cells, attend, maxout=False, dropout=dropout)
        self.bridge = Bridge(attend.width_out, cells)

    def begin(self, features: Tensor, states: Layers, valid: Tensor) -> Attending:
        """Return the first memory, from the mean of the cells; `states` is not used."""
        mean = features.sum(1) / valid.sum(1, keepdim=True).clamp(min=1)
        return self.start(features, self.bridge(mean, self.cells), valid)


def build_decoder(config: CaptionConfig) -> AnyDecoder:
    """Return a family's decoder, initialised."""
    width, heads, drop = config.width, config.heads, config.dropout
    decoder: AnyDecoder
    if config.family == "transformer":
        scaled = ScaledEmbedding(config.target_vocab, width)
        blocks = [
            DecoderBlock(
                SelfAttention(width, heads, dropout=drop),
                CrossAttention(width, heads, dropout=drop),
                FeedForward(width, config.hidden, activation=config.activation, dropout=drop),
                norm=config.norm,
                dropout=drop,
            )
            for _ in range(config.layers)
        ]
        decoder = TransformerDecoder(scaled, blocks, drop)
    else:
        cells = CELLS[config.cell].stack(2 * width, config.hidden or width, config.layers, dropout=drop)
        options = {"estimator": "straight-through"} if config.alignment == "hard" else {}
        score = make_score(config.score, cells.width_out, width)
        attend = Attend(score, make_alignment(config.alignment, **options))
        decoder = ShowAttendTellDecoder(Embedding(config.target_vocab, width), cells, attend, dropout=drop)
    begin_evenly(decoder)  # small embeddings: larger ones outweigh the picture, and training takes twice as long
    return decoder
