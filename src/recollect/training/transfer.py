"""How a model that begins from a trained one is trained: frozen and unfrozen layers, rates by layer, LoRA.

The head is new and is trained from the first update on. Below it, from the top to the bottom, each layer has a lower
rate than the one above (discriminative fine-tuning) and may be frozen at first (gradual unfreezing): both as in ULMFiT,
Howard & Ruder 2018, sections 3.2 and 3.3. Where we differ: layers are unfrozen by the share of the budget that is
spent, not by epochs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from recollect.core.settings import CheckedSettings, SettingError, refuse_unused, setting
from recollect.training.lora import TARGETS, add_lora, merge_lora

ORIGINAL = ".original"  # the end of the name of a matrix that is adapted


@dataclass(frozen=True)
class Transfer(CheckedSettings):
    """Settings of a fine-tuning, and the model that it began from."""

    parent: str = ""
    digest: str = ""  # SHA-256 of the parent's weights
    frozen: bool = setting(False, help="train the head alone")
    unfreeze: float = setting(
        0.0,
        least=0.0,
        most=1.0,
        help="share of the budget during which layers are unfrozen, from the top; 0: all at once",
    )
    layer_decay: float = setting(1.0, above=0.0, most=1.0, help="factor of the rate of each layer and the one above it")
    head_factor: float = setting(1.0, above=0.0, help="factor of the rate of the new head")
    lora_rank: int | None = setting(None, least=1, help="train matrices of this rank beside those of the layers")
    lora_alpha: float = setting(16.0, above=0.0, help="LoRA: the product is multiplied by alpha / rank")
    lora_targets: str = setting(",".join(TARGETS), help="LoRA: names of the matrices, divided by commas")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.frozen and (self.lora_rank is not None or self.unfreeze):
            raise SettingError(
                "frozen: got true with lora_rank or unfreeze, expected one of them: frozen layers stay as they are"
            )
        unused = ["layer_decay"] * self.frozen + ["lora_alpha", "lora_targets"] * (self.lora_rank is None)
        why = "frozen layers have no rate" if self.frozen else "without lora_rank=N nothing is adapted"
        refuse_unused(self, unused, why)

    @property
    def is_partial(self) -> bool:
        """Whether some weights are not trained, at first or at all."""
        return self.frozen or self.unfreeze > 0 or self.lora_rank is not None

    def prepare(self, model: Any) -> None:
        """Add LoRA's matrices, and freeze what is never trained."""
        stages: list[list[nn.Module]] = model.stages()
        if self.lora_rank is not None:
            parts = [part for stage in stages[1:] for part in stage]
            add_lora(parts, self.lora_rank, self.lora_alpha, self.lora_targets.split(","))
        if not self.frozen and self.lora_rank is None:
            return
        for stage in stages:
            for part in stage:
                for name, p in part.named_parameters():
                    p.requires_grad_(
                        self.lora_rank is not None and "parametrizations" in name and not name.endswith(ORIGINAL)
                    )

    def merge(self, model: Any) -> None:
        """Make the model that was prepared an ordinary one."""
        if self.lora_rank is not None:
            merge_lora(model)

    def groups(self, model: Any) -> dict[str, tuple[float, float]]:
        """Return, by the name of each parameter, the factor of its rate and the share of the budget it begins at."""
        stages: list[list[nn.Module]] = model.stages()
        depth_of = {
            id(p): len(stages) - number
            for number, stage in enumerate(stages)
            for part in stage
            for p in part.parameters()
        }
        found = {}
        for name, p in model.named_parameters():
            depth = depth_of.get(id(p), 0)  # 0: the head; 1: the layer below it …
            factor = self.layer_decay**depth if depth else self.head_factor
            found[name] = (factor, self.unfreeze * depth / len(stages) if depth else 0.0)
        return found
