"""A decode step recorded once and compiled to C: the hooks "decode_step" and "decode_loop" on a CPU."""

from recollect.accel.cpu.decode.choice_loop import loop_in_c
from recollect.accel.cpu.decode.repeated_step import decode_steps, refusal
from recollect.core.dispatch import register

register("decode_step", "cpu", decode_steps)
register("decode_loop", "cpu", loop_in_c)
register("decode_refusal", "cpu", refusal)
