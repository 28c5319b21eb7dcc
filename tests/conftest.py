"""Settings for all tests: one thread each, the same drawn examples in every run, and Ctrl-C as on a terminal."""

import os
import signal

import torch
from hypothesis import settings

torch.set_num_threads(1)
os.environ.setdefault("OMP_NUM_THREADS", "1")  # of commands that tests start
settings.register_profile("recollect", derandomize=True, deadline=None, max_examples=25)
settings.load_profile("recollect")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # begun by a shell with `&`: what tests start would ignore it too
    signal.signal(signal.SIGINT, signal.default_int_handler)
