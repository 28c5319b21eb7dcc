"""The names of a trace's arrays: the same in Python, in JSON, on the page and in the documents.

A name that begins with `layers.#.` stands for every remembering layer, `layers.0.hidden`, `layers.1.hidden` …; those of
an encoder begin with `encoder.`, and their tokens are the source.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

AXES = {  # axis: letter, meaning
    "token": ("T", "what the model read, in order"),
    "input": ("S", "what predictions are explained by: the tokens, or of a model with a source the source"),
    "attended": ("S", "what a layer attends to: the tokens, or the source where its `attends_to` is `source`"),
    "outcome": ("O", "predictions that are explained"),
    "candidate": ("K", "the likeliest next tokens, best first"),
    "label": ("C", "labels or tags"),
    "head": ("N", "heads"),
    "unit": ("H", "features of a state"),
    "gate": ("G", "blocks of W_hh: one for each gate and the candidate"),
    "part": ("2", "real and imaginary part"),
    "distance": ("D", "steps back, from 0"),
    "power": ("E", "exponents of a matrix, from 0"),
    "step": ("F", "steps ahead of a forecast"),
    "channel": ("X", "channels of a series"),
    "factor": ("P", "learned factors of a recommender"),
}


@dataclass(frozen=True)
class Name:
    """One array: its axes and what it holds."""

    axes: tuple[str, ...]
    meaning: str


def _name(axes: str, meaning: str) -> Name:
    return Name(tuple(axes.split()), meaning)


NAMES = {
    "ids": _name("token", "the tokens' ids"),
    "values": _name("token channel", "the values read, of a series, of frames or of vectors"),
    "next.ids": _name("token candidate", "ids of the likeliest tokens after each token"),
    "next.texts": _name("token candidate", "their texts"),
    "next.probabilities": _name("token candidate", "their probabilities, at the temperature asked for"),
    "next.entropy": _name("token", "entropy of the whole distribution of the next token, in nats"),
    "loss": _name("token", "−ln p of each token, given those before; null where nothing predicted it"),
    "memory.bytes": _name("token", "bytes of the model's memory after each token, all tensors counted"),
    "label.probabilities": _name("label", "of a whole sequence's labels"),
    "label.by_step": _name("token label", "of the labels of what has been read so far; of a tagger: of each tag"),
    "forecast": _name("step channel", "the values forecast"),
    "filled": _name("token channel", "the estimates of a gap filler, of every row"),
    "user.tastes": _name("factor", "p_u of a recommender"),
    "item.features": _name("factor", "q_i of a recommender"),
    "outcome.at": _name("outcome", "the last token that each prediction may depend on"),
    "outcome.logprob": _name("outcome", "ln p of what is explained; of a value: the value"),
    "reach": _name("outcome input", "‖∂ outcome / ∂ x_s‖: how strongly a prediction depends on each input's vector"),
    "reach.curve": _name("distance", "mean of `reach` over predictions, by the distance of the input"),
    "saliency": _name("outcome input", "x_s · ∂ outcome / ∂ x_s: input × gradient"),
    "left_out": _name("outcome input", "how much lower an outcome is when one input is left out"),
    "alignment": _name("outcome input", "attention weights to the source, the mean over heads and layers"),
    "pool.weights": _name("input", "weights of an attention pool, or of a class token, over the inputs"),
    "rollout": _name(
        "token attended", "attention rollout: weights and residual connections, multiplied over the layers"
    ),
    "token_distance": _name(
        "token attended",
        "fewest sequential operations from an input to a token's last output; null where none leads there",
    ),
    "positions": _name("token unit", "the vectors added for the positions"),
    "layers.#.hidden": _name("token unit", "h_t"),
    "layers.#.cell": _name("token unit", "c_t of an LSTM"),
    "layers.#.input_gate": _name("token unit", "i_t"),
    "layers.#.forget_gate": _name("token unit", "f_t"),
    "layers.#.output_gate": _name("token unit", "o_t"),
    "layers.#.reset_gate": _name("token unit", "r_t of a GRU"),
    "layers.#.update_gate": _name("token unit", "z_t of a GRU: 1 keeps the state"),
    "layers.#.candidate": _name("token unit", "c̃_t, or h̃_t of a GRU"),
    "layers.#.weights": _name("head token attended", "attention weights a_ts"),
    "layers.#.scores": _name("head token attended", "attention scores e_ts before the softmax; null where not allowed"),
    "layers.#.entropy": _name("head token", "entropy of the attention weights, in nats"),
    "layers.#.mean_distance": _name("head token", "mean distance of what is attended to, Σ_s a_ts · abs(t − s)"),
    "layers.#.inner_loss": _name("token head", "TTT: ℓ(W_t'; x_t), before the step is learned"),
    "layers.#.inner_loss_after": _name("token head", "TTT: ℓ(W_t; x_t)"),
    "layers.#.inner_rate": _name("token head", "TTT: η_t"),
    "layers.#.movement": _name("token head", "TTT: ‖W_t − W_0‖ over all inner weights"),
    "layers.#.spectrum": _name("gate unit part", "eigenvalues of W_hh, largest modulus first"),
    "layers.#.radius": _name("gate", "spectral radius of W_hh"),
    "layers.#.largest": _name("gate", "largest singular value of W_hh"),
    "layers.#.powers": _name("gate power", "‖W_hh^k‖₂: what a linear recurrence keeps of a state after k steps"),
    "layers.#.product_norms": _name("distance", "‖∂ state_T / ∂ state_{T−d}‖₂: the product of the steps' Jacobians"),
    "layers.#.context_length": _name("token", "Markov: symbols of the longest context that was counted"),
}
NUMBER = re.compile(r"layers\.\d+\.")


def known(name: str) -> Name | None:
    """Return what is declared of a name; None: it is not one of ours."""
    return NAMES.get(NUMBER.sub("layers.#.", name.removeprefix("encoder."), count=1))


def table() -> list[str]:
    """Return the names as the rows of a Markdown table."""
    rows = ["| name | axes | holds |", "| --- | --- | --- |"]
    for name, one in NAMES.items():
        letters = ", ".join(AXES[axis][0] for axis in one.axes)
        rows.append(f"| `{name}` | {' '.join(one.axes)} ({letters}) | {one.meaning} |")
    return rows
