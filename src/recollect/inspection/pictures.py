"""The pictures by name: those of the story, each drawn from traces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from recollect.core.errors import check_choice
from recollect.inspection import (
    arrangement_diagram,
    attention_diagrams,
    cell_diagrams,
    family_diagram,
    source_diagrams,
    trace_pictures,
    transformer_diagram,
    unrolled_diagrams,
)
from recollect.inspection.trace import Trace
from recollect.inspection.words import Say
from recollect.views.picture import Picture


@dataclass(frozen=True)
class Drawing:
    """One kind of picture: how it is drawn, and what it needs."""

    draw: Callable[..., Picture]
    needs: str


PICTURES = {
    "attention": Drawing(trace_pictures.attention, "attention"),
    "arcs": Drawing(trace_pictures.arcs, "self-attention"),
    "alignment": Drawing(trace_pictures.alignment, "attention to a source"),
    "gates": Drawing(trace_pictures.gates, "an LSTM or a GRU"),
    "states": Drawing(trace_pictures.states, "a recurrent model"),
    "reach": Drawing(trace_pictures.reach, "any trained models"),
    "reach-map": Drawing(trace_pictures.reach_map, "any trained model"),
    "influence": Drawing(trace_pictures.influence, "any model"),
    "spectrum": Drawing(trace_pictures.spectrum, "a recurrent model"),
    "memory": Drawing(trace_pictures.memory, "any models"),
    "positions": Drawing(trace_pictures.positions, "added positions"),
    "next": Drawing(trace_pictures.following, "a model of text"),
    "learning": Drawing(trace_pictures.learning, "test-time training"),
    "unrolled": Drawing(unrolled_diagrams.unrolled, "a recurrent model"),
    "back-propagation": Drawing(unrolled_diagrams.back_propagation, "a recurrent model"),
    "truncation": Drawing(unrolled_diagrams.truncations, "any text"),
    "lstm-cell": Drawing(cell_diagrams.lstm_cell, "an LSTM"),
    "gru-cell": Drawing(cell_diagrams.gru_cell, "a GRU"),
    "latent-autoregression": Drawing(unrolled_diagrams.latent_autoregression, "a recurrent language model"),
    "arrangements": Drawing(arrangement_diagram.arrangements, "any model"),
    "encoder-decoder": Drawing(source_diagrams.encoder_decoder, "a translator whose source is one state: sutskever"),
    "context-at-each-step": Drawing(source_diagrams.context_at_each_step, "a translator with one context: cho"),
    "soft-alignment": Drawing(source_diagrams.soft_alignment, "attention to a source"),
    "beam-tree": Drawing(source_diagrams.beam_tree, "hypotheses of a beam search"),
    "task-model": Drawing(attention_diagrams.task_model, "attention"),
    "self-attention": Drawing(attention_diagrams.self_attention, "self-attention without parameters"),
    "queries-keys-values": Drawing(attention_diagrams.queries_keys_values, "self-attention"),
    "attention-family": Drawing(family_diagram.attention_family, "attention; without a trace no member is marked"),
    "transformer": Drawing(transformer_diagram.transformer, "a Transformer"),
    "three-memories": Drawing(attention_diagrams.three_memories, "traces of an RNN, TTT and attention"),
    "tastes": Drawing(attention_diagrams.tastes, "a recommender"),
}


def picture(name: str, traces: Trace | Sequence[Trace] = (), *, lang: str = "en", **options: Any) -> Picture:
    """Return a picture by name, in English or Chinese, of one trace or of several.

    `recollect.inspection.pictures.PICTURES` lists the names and what each needs. Options are those of the picture:
    `layer`, `head`, `token`, `outcome`, `first`, `truncation`, `seed`, `hypotheses`.

    >>> model = rc.LanguageModel("lstm", vocab_size=256, width=16, layers=1)
    >>> trace = rc.inspect(model, "to be", tokenizer=rc.Tokenizer("byte"))
    >>> rc.picture("lstm-cell", trace, lang="zh").title
    'LSTM 单元，词元“e”'
    """
    check_choice("picture", name, tuple(PICTURES))
    given = [traces] if isinstance(traces, Trace) else list(traces)
    drawing = PICTURES[name]
    if not given and name not in ("attention-family", "beam-tree", "arrangements"):
        raise ValueError(f"{name}: got no trace, expected one of {drawing.needs}, as rc.inspect returns it")
    try:
        return drawing.draw(given, Say(lang), **options)
    except KeyError as error:
        raise ValueError(f"{name}: {error.args[0]}; it needs {drawing.needs}") from error
