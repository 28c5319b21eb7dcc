"""Fast forms in C."""

from recollect.accel.cpu import decode as decode
