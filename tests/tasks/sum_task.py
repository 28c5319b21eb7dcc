"""A task that the package does not have: the sum of a sequence of digits."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn

import recollect as rc
from recollect.core.settings import Settings


@dataclass(frozen=True)
class SumOptions(Settings):
    batch_size: int = rc.setting(16, least=1)


@dataclass(frozen=True)
class SumConfig:
    family: str
    width: int = rc.setting(16, least=1)


@dataclass(frozen=True)
class Digits:
    x: torch.Tensor  # (N, T, 1)
    name: str = "digits"
    count: int = property(lambda self: len(self.x))
    train = valid = test = property(lambda self: self)

    def to(self, device):
        return replace(self, x=self.x.to(device))


class DigitBatches:
    def __init__(self, data, size, seed):
        self.data, self.size, self.draw, self.predicted = data, size, np.random.default_rng(seed), len(data.x)

    def __iter__(self):
        while True:
            yield Digits(self.data.x[self.draw.integers(0, len(self.data.x), self.size)])

    def state(self):
        return {"draw": self.draw.bit_generator.state}

    def load_state(self, state):
        self.draw.bit_generator.state = state["draw"]


class Summer(nn.Module):
    growth = "constant"

    def __init__(self, config):
        super().__init__()
        self.config, self.layer, self.out = config, rc.GRU(1, config.width), nn.Linear(config.width, 1)

    def forward(self, x):
        return self.out(self.layer(x)[0][:, -1])[:, 0]


class SumTask:
    name, Options, Config, families, default_model, shows_names = "sum", SumOptions, SumConfig, ("gru",), "gru", True
    error = rc.Measure("error", "mean absolute difference from the sum")

    def __init__(self, options):
        self.options = options

    def open(self, source):
        return Digits(torch.from_numpy(np.random.default_rng(len(source)).integers(0, 10, (200, 5, 1)) / 10).float())

    reopen = open
    read = lambda self, source, assets: self.open(source)
    settings = staticmethod(lambda family: ("width",))
    config = lambda self, family, size, data, settings: SumConfig(family, **settings)
    build = lambda self, config: Summer(SumConfig(**config))
    assets = lambda self, data: {}
    load_assets = lambda self, folder: {}
    batches = lambda self, data, model, seed: DigitBatches(data, self.options.batch_size, seed)
    loss = lambda self, model, b, memory: rc.Loss((model(b.x) - b.x.sum((1, 2))).square().sum(), b.count)
    baselines = lambda self, data: [rc.Baseline("mean", float((data.x.sum(1) - data.x.sum(1).mean()).abs().mean()))]
    evaluate = lambda self, model, data, assets, steps: self.measure(model, data, "test")
    sample = lambda self, model, dataset: ("0.1 0.2", f" → {next(self.predict(model, {}, '0.1 0.2')).targets[0].text}")

    @torch.no_grad()
    def measure(self, model, dataset, split, limit=None):
        found = (model(dataset.x) - dataset.x.sum((1, 2))).abs().mean().item()
        return rc.Scores({"error": self.error}, {"all": {"error": found}})

    @torch.no_grad()
    def predict(self, model, assets, inputs):
        x = torch.tensor([float(word) for word in inputs.split()]).view(1, -1, 1)
        yield rc.Prediction(inputs, [rc.Answer(f"{model(x).item():.3f}", 0.0, 0.0)])

    def about(self, data, model):
        size, noun = len(data.x), {"en": "A model of sums", "zh": "求和模型"}
        return rc.About(noun, "digit", 10, (size,) * 3, {"en": "rows", "zh": "行"}, {5: 4 * model.config.width}, "predict")
