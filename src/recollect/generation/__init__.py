"""Generation: greedy, sampling and beam search for anything that maps ids (B, T) to logits (B, T, V) and a memory.

Nothing here depends on the kind of model: steps are `logits, memory = model(ids, memory, valid=valid)`, and rows of a
memory are moved with its own methods (`select`, `reorder`).
"""

from recollect.generation.settings import compiled as compiled
