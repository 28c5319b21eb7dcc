"""The config of a forecaster: which family, what it reads and predicts, and which settings each family uses."""

from __future__ import annotations

from dataclasses import dataclass

from recollect.core.errors import ContractError, check_choice, is_own
from recollect.core.settings import setting
from recollect.models import forecast_outputs as outputs
from recollect.models.language import BLOCKS, RECURRENT
from recollect.models.window_maps import NAIVE

WINDOWS = (*NAIVE, "linear", "nlinear", "dlinear", "window")
STEPS = (*RECURRENT, *BLOCKS)
FORECASTERS = (*WINDOWS, *STEPS)
KINDS = ("point", "gaussian", "quantile")
USED_BY: dict[str, tuple[str, ...]] = {  # the settings that a user may choose, and the families that use them
    "width": STEPS,
    "layers": STEPS,
    "heads": BLOCKS,
    "hidden": ("window", *BLOCKS),
    "order": ("linear", "nlinear", "window"),
    "window": ("transformer",),
    "mini_batch": ("ttt-linear", "ttt-mlp"),
    "convolution": ("linear-attention", "ttt-linear", "ttt-mlp"),
    "dropout": ("window", *STEPS),
    "normalise": ("linear", "dlinear", "window", *STEPS),
    "segment": STEPS,
    "head": STEPS,
    "bypass": STEPS,
    "mixing": ("linear", "nlinear", "window", *STEPS),
}
OWN_USES = ("width", "layers", "dropout", "normalise", "segment", "head", "bypass", "mixing")


@dataclass(frozen=True)
class ForecastConfig:
    """The config of a forecaster; each family uses some of the settings.

    >>> config = rc.ForecastConfig("gru", channels=7, lookback=96, horizon=24, width=32)
    >>> rc.Forecaster(config).width_out  # 24 steps of 7 channels
    168
    """

    family: str
    channels: int
    lookback: int
    horizon: int
    ahead: str = "direct"  # direct: one output for each step ahead; free: one step, fed back
    output: str = "point"
    season: int = 1
    masked: bool = False  # inputs have a channel that tells values from filling, beside each channel
    marks: int = 0  # calendar features of a step
    width: int = setting(64, least=1)
    layers: int = setting(1, least=1)
    heads: int = setting(4, least=1, most=4096)
    hidden: int | None = setting(None, least=1, help="of the networks; None: 4 widths, window: 64")
    order: int | None = setting(None, least=1, help="linear, nlinear, window: rows that are read; None: the lookback")
    window: int | None = setting(None, least=1, help="transformer: attend to the nearest so many steps")
    mini_batch: int = setting(16, least=1, help="ttt: steps between two inner updates")
    convolution: int = setting(4, least=1, help="linear attention, ttt: steps of the convolution before the mixer")
    dropout: float = setting(0.0, least=0.0, below=1.0)
    normalise: str = setting(
        "none",
        choices=("none", "last", "instance"),
        help="of each window: subtract its last value, or mean and deviation",
    )
    segment: int = setting(1, least=1, help="rows that are read as one step")
    head: str = setting("last", choices=("last", "all"), help="what is mapped to the horizon: the last state, or all")
    bypass: str = setting("none", choices=("none", "linear"), help="linear: add a linear map of the window")
    mixing: str = setting(
        "independent", choices=("independent", "joint"), help="each channel alone, with shared weights, or all at once"
    )

    def __post_init__(self) -> None:
        if not is_own(self.family):
            check_choice("family", self.family, FORECASTERS)
        check_choice("output", self.output, KINDS)
        check_choice("ahead", self.ahead, ("direct", "free"))
        for name in ("channels", "lookback", "horizon"):
            if getattr(self, name) < 1:
                raise ContractError(name, getattr(self, name), "at least 1")
        if self.segment > self.lookback:
            raise ContractError("segment", self.segment, f"at most the lookback, {self.lookback}")
        if self.ahead == "free" and self.segment > 1:
            raise ContractError("segment", self.segment, "1 where ahead=free: predictions are fed back one by one")
        for name, usual in (("head", "last"), ("bypass", "none")):
            if self.ahead == "free" and getattr(self, name) != usual:
                why = f"{usual} where ahead=free: the window changes with each prediction"
                raise ContractError(name, getattr(self, name), why)
        if self.ahead == "free" and not self.is_window and self.normalise != "none":
            raise ContractError(
                "normalise", self.normalise, "none where ahead=free: the window changes with each prediction"
            )

    @property
    def is_window(self) -> bool:
        """Whether the family maps a window."""
        return self.family in WINDOWS

    @property
    def kind(self) -> outputs.Kind:
        """What is stated about each value; naive families state a point."""
        return "point" if self.family in NAIVE else self.output  # type: ignore[return-value]

    @property
    def norm(self) -> str:
        """The normalisation; nlinear's is its own."""
        return "last" if self.family == "nlinear" else self.normalise

    @property
    def reach(self) -> int:
        """The number of rows that a window family remembers."""
        return self.lookback if self.family in NAIVE or self.family == "dlinear" else self.order or self.lookback


def forecast_settings(family: str) -> tuple[str, ...]:
    """Return the names of the settings that a family uses."""
    return OWN_USES if is_own(family) else tuple(name for name, families in USED_BY.items() if family in families)
