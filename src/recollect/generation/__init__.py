"""Generation: greedy, sampling and beam search for anything that maps ids (B, T) to logits (B, T, V) and a memory.

Nothing here asks which model it has: it reads with `logits, memory = model(ids, memory, valid=valid)` and moves
memories with their own verbs.
"""

from recollect.generation.settings import compiled as compiled
