"""What `recollect generate` does: a run goes on from a prompt, piece by piece."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from recollect.generate import Settings, stream_text
from recollect.run import Run


def speak(
    run: Run, prompt: str, settings: dict[str, Any], stop: Sequence[str] = (), device: str = "cpu"
) -> Iterator[str]:
    """Give the text that follows, as it becomes certain. Symbols that the run never saw are refused."""
    model, tokenizer = run.load(device)
    tokenizer.encode(prompt, strict=True)  # complains of unknown symbols
    how = Settings(prohibited=tokenizer.unseen, **settings)
    for pieces in stream_text(model, tokenizer, [prompt], how, stop=stop):
        yield pieces[0]
