"""The forecaster: values to the values after them and a memory, for every family of the line.

    raw, memory = model.forecast(values, memory)         the forecast after the last value that was read
    y, memory = model(inputs, memory)                    the same after every step: the contract of all layers

Two kinds of families. Those of a window (naive ones, linear maps, a network) remember the last `lookback` rows and map
them. Those of steps (recurrent, attention, TTT) read row by row, or segment by segment, and a linear head maps the
last state, or (head=all) the states of all steps (Nie et al. 2023); bypass=linear adds a linear map of the window, the
autoregressive component of Lai et al. (2018). These, normalisation by the window and segments need the whole window:
such a model of steps cannot be read in chunks, and `why_whole` says why.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.core.compose import Stack
from recollect.core.errors import ContractError
from recollect.core.layer import SequenceLayer
from recollect.core.memory import Layers, Memory
from recollect.core.types import AnyLayer
from recollect.layers.ngram.recent import Recent
from recollect.layers.pointwise import Linear
from recollect.models import forecast_outputs as outputs
from recollect.models.forecast_config import ForecastConfig
from recollect.models.language import LanguageConfig, hidden_layers
from recollect.models.own import MakeLayer, register_layer
from recollect.models.reversible_norm import ReversibleNorm
from recollect.models.window_maps import NAIVE, DecompositionMap, LinearMap, NetworkMap


class Forecaster(SequenceLayer[Memory]):
    """Any family as a model of series.

    Inputs (B, T, F) are the values of C channels, then (where `masked`) which of them were observed, then calendar
    features: `inputs` joins them. Outputs (B, T, H·C·Q) are the forecasts after every step.

    >>> model = rc.Forecaster("gru", channels=2, lookback=16, horizon=4, width=8)
    >>> values = torch.randn(3, 16, 2)
    >>> raw, memory = model.forecast(values)
    >>> raw.shape  # 3 rows, 4 steps ahead, 2 channels, 1 number for each: a point
    torch.Size([3, 4, 2, 1])
    >>> raw, memory = model.forecast(torch.randn(3, 1, 2), memory)  # one more value: nothing is read again
    """

    def __init__(self, config: ForecastConfig | str | MakeLayer, channels: int = 1, **options: Any) -> None:
        super().__init__()
        if not isinstance(config, ForecastConfig):
            family = config if isinstance(config, str) else register_layer(config)
            config = ForecastConfig(family, channels, **options)
        self.config = config
        self.width = config.channels * (2 if config.masked else 1) + config.marks
        self.steps = 1 if config.ahead == "free" else config.horizon  # that one output predicts
        self.numbers = outputs.NUMBERS[config.kind]
        self.width_out = self.steps * config.channels * self.numbers
        self.is_joint = config.mixing == "joint" and config.family not in (*NAIVE, "dlinear")
        together = config.channels if self.is_joint else 1
        features = together * (2 if config.masked else 1) + config.marks
        out = self.steps * together * self.numbers
        self.norm = None if config.norm == "none" else ReversibleNorm(config.channels, config.norm)
        self.map: nn.Module | None = _window_map(config, features, out) if config.is_window else None
        self.body: AnyLayer | None = None if config.is_window else _body(config, features * config.segment)
        states = config.lookback // config.segment if config.head == "all" else 1  # that the head reads
        self.head = None if config.is_window else nn.Linear(states * config.width, out)
        self.bypass = nn.Linear(config.lookback * together, out) if config.bypass == "linear" else None
        self.growth = "constant" if self.body is None else self.body.growth
        offsets = torch.zeros(config.horizon, config.channels, len(outputs.LEVELS))
        self.register_buffer("offsets", offsets)  # what calibration adds to the quantiles
        self.offsets: Tensor

    @property
    def why_whole(self) -> str | None:
        """The reason why a series cannot be read in chunks; None where it can."""
        if self.config.is_window:
            return None
        if self.config.norm != "none":
            return f"normalise={self.config.norm} needs the whole window: its mean changes with every new value"
        if self.config.segment > 1:
            return f"segment={self.config.segment} needs the whole window: segments are counted from its end"
        if self.config.head == "all":
            return "head=all needs the whole window: it reads the states of all its steps"
        if self.bypass is not None:
            return "bypass=linear needs the whole window: it is mapped to the horizon, too"
        assert self.body is not None
        return None if self.body.streams else "the layer reads in both directions"

    @property
    def streams(self) -> bool:
        """Whether a series can be read in chunks, the memory carried: one new value in, the next forecast out."""
        return self.why_whole is None

    def initial_memory(self, batch_size: int, like: Tensor | None = None) -> Memory:
        """Return the memory before the first row."""
        if self.body is None:
            options = self._like(like)
            last = torch.zeros(batch_size, self.config.reach, self.width or 0, **options)
            return Recent(last=last, length=torch.zeros(batch_size, dtype=torch.long, device=options["device"]))
        if self.is_joint:
            alone: Memory = self.body.initial_memory(batch_size, like)
            return alone
        return Layers(layers=tuple(self.body.initial_memory(batch_size, like) for _ in range(self.config.channels)))

    def inputs(self, values: Tensor, observed: Tensor | None = None, calendar: Tensor | None = None) -> Tensor:
        """Join values (B, T, C), which of them were observed, and calendar features (B, T, K) to inputs (B, T, F)."""
        parts = [values]
        if self.config.masked:
            parts.append(torch.ones_like(values) if observed is None else observed.to(values.dtype))
        if self.config.marks:
            if calendar is None:
                raise ContractError("calendar", None, f"(B, T, {self.config.marks}): the model reads calendar features")
            parts.append(calendar[:, : values.shape[1]].to(values.dtype))
        return torch.cat(parts, dim=2)

    # ---- reading ----------------------------------------------------------------------------------

    def read(self, x: Tensor, memory: Memory, valid: Tensor | None) -> tuple[Tensor, Memory]:
        """Return the forecasts after every step."""
        self._check_chunks()
        if self.body is None:
            assert isinstance(memory, Recent)
            joined, memory = memory.append(x, valid)  # (B, reach + T, F)
            windows = joined.unfold(1, self.config.reach, 1)[:, 1:].transpose(2, 3)  # (B, T, reach, F)
            return self._from_windows(windows.flatten(0, 1)).unflatten(0, x.shape[:2]).flatten(2), memory
        features, memory = self._features(x, memory, valid)
        return self._headed(features).flatten(2), memory

    def forecast(
        self,
        values: Tensor,
        memory: Memory | None = None,
        *,
        observed: Tensor | None = None,
        calendar: Tensor | None = None,
    ) -> tuple[Tensor, Memory]:
        """Return the raw outputs (B, H, C, Q) after the last value, and the memory.

        Calendar features (B, T + H, K) reach over the horizon where predictions are fed back. A model that needs its
        whole window takes no memory, and gives back the initial one.
        """
        x = self.enter(self.inputs(values, observed, calendar), None)
        if memory is not None:
            self._check_chunks()
        if self.why_whole is not None:
            return self._from_whole(x), self.initial_memory(len(x), like=x)
        raw, memory = self._after_last(x, memory)
        if self.config.ahead == "direct":
            return raw, memory
        ahead = None if calendar is None else calendar[:, values.shape[1] :]
        return self._fed_back(raw, memory, ahead), memory

    def _after_last(self, x: Tensor, memory: Memory | None) -> tuple[Tensor, Memory]:
        """Return the raw outputs (B, steps, C, Q) after the last step only."""
        memory = self.initial_memory(len(x), like=x) if memory is None else memory
        if self.body is None:
            assert isinstance(memory, Recent)
            _, memory = memory.append(x, None)
            return self._from_windows(memory.last), memory
        features, memory = self._features(x, memory, None)
        return self._headed(features[:, -1:])[:, 0], memory

    def _fed_back(self, raw: Tensor, memory: Memory, calendar: Tensor | None) -> Tensor:
        """Return the raw outputs (B, H, C, Q): each prediction is read as if it had been observed."""
        found = [raw]
        for step in range(self.config.horizon - 1):
            marks = None if calendar is None else calendar[:, step : step + 1]
            x = self.inputs(outputs.point(self.config.kind, found[-1]), None, marks)
            raw, memory = self._after_last(x, memory)
            found.append(raw)
        return torch.cat(found, dim=1)

    def _features(self, x: Tensor, memory: Memory, valid: Tensor | None) -> tuple[Tensor, Memory]:
        """Return the features of the head (B, T, C′, D) and the memory; C′ is 1 where channels are read jointly."""
        assert self.body is not None
        if self.is_joint:
            y, memory = self.body(x, memory, valid=valid)
            return y[:, :, None], memory
        if not isinstance(memory, Layers) or len(memory.layers) != self.config.channels:
            raise ContractError("memory", type(memory).__name__, f"Layers of {self.config.channels}, one a channel")
        channels, rows = self.config.channels, len(x)
        folded = self._fold(x)
        masks = None if valid is None else valid.repeat(channels, 1)
        before = memory.layers[0] if channels == 1 else type(memory.layers[0]).cat(list(memory.layers))
        y, after = self.body(folded, before, valid=masks)  # (C·B, T, D)
        parts = [after] if channels == 1 else [after.select(slice(c * rows, (c + 1) * rows)) for c in range(channels)]
        return y.unflatten(0, (channels, rows)).permute(1, 2, 0, 3), Layers(layers=tuple(parts))

    def _headed(self, features: Tensor) -> Tensor:
        """Return raw outputs (B, T, steps, C, Q) of features (B, T, C′, D)."""
        assert self.head is not None
        return self._by_step(self.head(features))

    def _by_step(self, y: Tensor) -> Tensor:
        """Return outputs (B, T, C′, out) as (B, T, steps, C, Q)."""
        if self.is_joint:
            return y[:, :, 0].unflatten(2, (self.steps, self.config.channels, self.numbers))
        return y.unflatten(3, (self.steps, self.numbers)).transpose(2, 3)

    # ---- windows ----------------------------------------------------------------------------------

    def _from_windows(self, windows: Tensor) -> Tensor:
        """Return the raw outputs (N, steps, C, Q) of windows (N, reach, F)."""
        windows, shift, scale = self._normal(windows)
        assert self.map is not None
        if self.is_joint:
            raw = self.map(windows).unflatten(1, (self.steps, self.config.channels, self.numbers))
        else:
            folded = self.map(self._fold(windows))  # (C·N, steps·Q)
            raw = folded.unflatten(0, (self.config.channels, len(windows))).transpose(0, 1)
            raw = raw.unflatten(2, (self.steps, self.numbers)).transpose(1, 2)
        return raw if self.norm is None else outputs.place(self.config.kind, raw, shift, scale)

    def _from_whole(self, x: Tensor) -> Tensor:
        """Return the raw outputs of whole windows (B, L, F), normalised and in segments where the config says so."""
        assert self.body is not None
        assert self.head is not None
        x, shift, scale = self._normal(x)
        rows = x if self.is_joint else self._fold(x)
        length = self.config.segment
        if self.config.head == "all" or self.bypass is not None:
            self._check_rows(x)
        cut = rows[:, rows.shape[1] % length :]  # segments are counted from the newest row
        y, _ = self.body(cut.unflatten(1, (-1, length)).flatten(2))  # (B or C·B, L / segment, D)
        found = y[:, -1]
        if self.config.head == "all":
            found = F.dropout(y.flatten(1), self.config.dropout, self.training)  # (B or C·B, L / segment · D)
        found = self.head(found)
        if self.bypass is not None:
            values = rows[..., : self.config.channels] if self.is_joint else rows[..., :1]
            found = found + self.bypass(values.flatten(1))
        parts = found[:, None, None] if self.is_joint else found.unflatten(0, (self.config.channels, len(x)))
        raw = self._by_step(parts if self.is_joint else parts.transpose(0, 1)[:, None])[:, 0]
        return raw if self.norm is None else outputs.place(self.config.kind, raw, shift, scale)

    def _normal(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return inputs with normal values, and the shift and scale (N, 1, C) that undo it."""
        count = self.config.channels
        if self.norm is None:
            return x, x, x
        observed = x[..., count : 2 * count] > 0 if self.config.masked else None
        values, shift, scale = self.norm(x[..., :count], observed)
        return torch.cat([values, x[..., count:]], dim=2), shift, scale

    def _fold(self, x: Tensor) -> Tensor:
        """Return inputs (B, T, F) with each channel as a row of its own, (C·B, T, F′), channel by channel."""
        count = self.config.channels
        parts = [x[..., :count, None]]
        if self.config.masked:
            parts.append(x[..., count : 2 * count, None])
        if self.config.marks:
            parts.append(x[..., None, -self.config.marks :].expand(-1, -1, count, -1))
        return torch.cat(parts, dim=3).permute(2, 0, 1, 3).flatten(0, 1)

    def _check_rows(self, x: Tensor) -> None:
        if x.shape[1] != self.config.lookback:
            expected = f"{self.config.lookback}, the lookback, where head=all or bypass=linear"
            raise ContractError("values", f"{x.shape[1]} rows", expected)

    def _check_chunks(self) -> None:
        if self.why_whole is not None:
            raise ContractError("memory", "a series in chunks", f"a whole window: {self.why_whole}")

    def _check_memory(self, memory: Memory, x: Tensor) -> None:
        if self.body is None:
            super()._check_memory(memory, x)  # else the body checks it


def _window_map(config: ForecastConfig, features: int, out: int) -> nn.Module:
    if config.family in NAIVE:
        return NAIVE[config.family](1 if config.ahead == "free" else config.horizon, config.season)
    if config.family == "dlinear":
        return DecompositionMap(config.reach, out)
    if config.family == "window":
        return NetworkMap(config.reach, features, out, config.hidden or 64, config.dropout)
    return LinearMap(config.reach, features, out)


def _body(config: ForecastConfig, features: int) -> AnyLayer:
    """Return the layers between inputs and head: those of the family's language model, over a linear map."""
    shared = ("width", "layers", "heads", "hidden", "window", "mini_batch", "convolution", "dropout")
    options = {name: getattr(config, name) for name in shared}
    return Stack(Linear(features, config.width), *hidden_layers(LanguageConfig(config.family, 1, **options)))
