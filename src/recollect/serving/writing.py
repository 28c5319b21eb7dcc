"""Continuations for the page: every model from the same prompt, and from what another model wrote."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from recollect.core.types import JsonObject
from recollect.generation.continuation import stream_text
from recollect.generation.settings import Settings
from recollect.serving.shown_model import ShownModel

TEMPERATURES = (0.5, 0.8, 1.0)  # of the continuations in a file
TOKENS = 120  # symbols that are added
AT = 40  # symbols after which a text is handed to another model
PROMPT = 24  # characters of the text that the prompt takes at least, to the end of a word


def prompt_of(text: str, models: Sequence[ShownModel]) -> str:
    """Return the beginning of a text, cut at a blank; of an empty one, a prompt that the first run knows."""
    if not text.strip():
        runs = [one.run for one in models if one.run is not None]
        return runs[0].prompt() if runs else "The "
    end = text.find(" ", PROMPT)
    return text[: 2 * PROMPT] if end < 0 or end > 2 * PROMPT else text[: end + 1]


def stream_of(shown: ShownModel, prompt: str, temperature: float, seed: int = 0, tokens: int = TOKENS) -> Iterator[str]:
    """Return an iterator over the chunks that a model adds to a prompt."""
    return (chunks[0] for chunks in _rows(shown, [prompt], temperature, seed, tokens))


def _rows(shown: ShownModel, prompts: list[str], temperature: float, seed: int, tokens: int) -> Iterator[list[str]]:
    longest = max(len(shown.tokenizer.encode(prompt)) for prompt in prompts)
    left = tokens if shown.most is None else max(0, min(tokens, shown.most - longest))
    settings = Settings(tokens=left, temperature=temperature, seed=seed, prohibited=tuple(shown.tokenizer.unseen))
    return stream_text(shown.model, shown.tokenizer, prompts, settings)


def written(models: Sequence[ShownModel], prompt: str) -> JsonObject:
    """Return continuations by model and temperature, and by temperature and pair: what one adds after another's."""
    texts = {one.id: {f"{heat:g}": list(stream_of(one, prompt, heat)) for heat in TEMPERATURES} for one in models}
    swaps = {f"{heat:g}": handed(models, prompt, texts, heat) for heat in TEMPERATURES}
    return {"prompt": prompt, "at": AT, "temperatures": list(swaps), "texts": texts, "swaps": swaps}


def handed(
    models: Sequence[ShownModel], prompt: str, texts: Mapping[str, Mapping[str, list[str]]], temperature: float
) -> dict[str, list[str]]:
    """Return for each pair FIRST>SECOND what the second adds after the prompt and the first's `AT` symbols."""
    found: dict[str, list[str]] = {}
    for second in models:
        firsts = [one.id for one in models if one is not second]
        begun = [prompt + "".join(texts[first][f"{temperature:g}"][:AT]) for first in firsts]
        chunks = list(_rows(second, begun, temperature, 0, TOKENS - AT)) if begun else []
        found |= {f"{first}>{second.id}": [step[row] for step in chunks] for row, first in enumerate(firsts)}
    return found
