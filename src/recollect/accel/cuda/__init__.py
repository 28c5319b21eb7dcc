"""Fast forms in CUDA C++."""

from recollect.accel.cuda import decode_loop as decode_loop
