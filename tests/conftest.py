"""Settings for all tests: one thread each, and the same drawn examples in every run."""

import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("recollect", derandomize=True, deadline=None, max_examples=25)
settings.load_profile("recollect")
