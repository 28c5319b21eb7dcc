"""A task that the package does not have: the sum of a sequence of digits."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

import recollect as rc


@dataclass(frozen=True)
class SumOptions(rc.CheckedSettings):
    batch_size: int = rc.setting(16, least=1)


@dataclass(frozen=True)
class SumConfig:
    family: str
    width: int = rc.setting(16, least=1)


class Digits:
    """Rows of digits: all of them as data, some of them as a batch."""

    def __init__(self, x, name="digits"):
        self.x, self.y, self.count, self.name = x, x.sum((1, 2)), len(x), name  # (N, T, 1), (N,)

    def to(self, device):
        return Digits(self.x.to(device))


class DigitBatches:
    def __init__(self, data, size, seed):
        self.data, self.size, self.draw, self.predicted = data, size, np.random.default_rng(seed), data.count

    def __iter__(self):
        while True:
            yield Digits(self.data.x[self.draw.integers(0, self.data.count, self.size)])

    def state(self):
        return self.draw.bit_generator.state

    def load_state(self, state):
        self.draw.bit_generator.state = state


class Summer(nn.Module):
    growth = "constant"

    def __init__(self, config):
        super().__init__()
        self.config, self.layer, self.out = config, rc.GRU(1, config.width), nn.Linear(config.width, 1)

    def forward(self, x):
        return self.out(self.layer(x)[0][:, -1])[:, 0]


class SumTask(rc.TaskDefaults):
    name, Options, Config, families, default_model = "sum", SumOptions, SumConfig, ("gru",), "gru"

    def open(self, source):
        return Digits(torch.from_numpy(np.random.default_rng(len(source)).integers(0, 10, (200, 5, 1)) / 10).float())

    def build(self, config):
        return Summer(SumConfig(**config))

    def batches(self, data, model, seed):
        return DigitBatches(data, self.options.batch_size, seed)

    def loss(self, model, batch, memory):
        return rc.Loss((model(batch.x) - batch.y).square().sum(), batch.count)

    @torch.no_grad()
    def measure(self, model, dataset, split, limit=None):
        error = (model(dataset.x) - dataset.y).abs().mean().item()
        return rc.Scores({"error": rc.Measure("error", "mean absolute error")}, {"all": {"error": error}})

    @torch.no_grad()
    def predict(self, model, assets, inputs):
        x = torch.tensor([float(word) for word in inputs.split()]).view(1, -1, 1)
        yield rc.Prediction(inputs, [rc.Answer(f"{model(x).item():.3f}", 0.0, 0.0)])

    def sample(self, model, dataset):
        return "0.1 0.2", f" → {next(self.predict(model, {}, '0.1 0.2')).targets[0].text}"

    def about(self, data, model):
        noun, unit = {"en": "A model of sums", "zh": "求和模型"}, {"en": "rows", "zh": "行"}
        return rc.About(noun, "digit", 10, (data.count,) * 3, unit, {5: 4 * model.config.width}, "predict")
