"""Generation: greedy, sampling and beam search for anything that maps ids (B, T) to logits (B, T, V) and a memory.

Nothing here asks which model it has: it reads with `logits, memory = model(ids, memory, valid=valid)` and moves
memories with their own verbs.
"""

from recollect.generate.compiling import compiled
from recollect.generate.filters import keep_min_p, keep_top_k, keep_top_p, scale_by_temperature
from recollect.generate.sampling import Generation, Step, Stream, generate, stream
from recollect.generate.scoring import score
from recollect.generate.search import Hypothesis, beam
from recollect.generate.settings import Search, Settings
from recollect.generate.text import Passage, StopStrings, TextStream, generate_text, stream_text

__all__ = [
    "Generation",
    "Hypothesis",
    "Passage",
    "Search",
    "Settings",
    "Step",
    "StopStrings",
    "Stream",
    "TextStream",
    "beam",
    "compiled",
    "generate",
    "generate_text",
    "keep_min_p",
    "keep_top_k",
    "keep_top_p",
    "scale_by_temperature",
    "score",
    "stream",
    "stream_text",
]
