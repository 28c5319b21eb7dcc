"""GPT-2 (Radford et al. 2019) as Hugging Face stores it: a language model of our transformer family."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import nn

from recollect.core.types import JsonMapping, JsonObject
from recollect.layers.block import Block
from recollect.models.language import LanguageConfig, LanguageModel
from recollect.pretrained.entries import Entry, affine, same, transposed
from recollect.pretrained.format import OTHER_KIND, THEIR_ACTIVATIONS, Copies, activation_of, refuse, required


class GPT2:
    """Learned positions, pre-norm blocks, biases everywhere but at the output; matrices are stored transposed."""

    model_type = "gpt2"
    prefix = "transformer."
    ignored = r"\.attn\.(masked_)?bias$"
    copies: Copies = (("lm_head.weight", "transformer.wte.weight"),)

    def read(self, config: JsonMapping, names: Iterable[str]) -> LanguageConfig:
        """Return our config."""
        refuse(config, "scale_attn_weights", unless=(True,))
        refuse(config, "scale_attn_by_inverse_layer_idx", unless=(False,))
        refuse(config, "add_cross_attention", unless=(False,))
        return LanguageConfig(
            "transformer",
            required(config, "vocab_size"),
            width=required(config, "n_embd", "hidden_size"),
            layers=required(config, "n_layer", "num_hidden_layers"),
            heads=required(config, "n_head", "num_attention_heads"),
            hidden=config.get("n_inner"),
            max_length=required(config, "n_positions", "n_ctx"),
            activation=activation_of(config, "activation_function", "gelu_new"),  # type: ignore[arg-type]
            eps=config.get("layer_norm_epsilon", 1e-5),
            dropout=config.get("resid_pdrop", 0.1),
            head_bias=False,
            tied=config.get("tie_word_embeddings", True),
        )

    def build(self, config: LanguageConfig) -> LanguageModel:
        """Return a language model."""
        return LanguageModel(config)

    def entries(self, model: LanguageModel) -> list[Entry]:
        """Return the entries of embedding, positions, blocks, last norm and head."""
        body: Any = model.body
        last = len(body) - 1
        found = [
            same("body.layers.0.table.weight", "transformer.wte.weight"),
            same("body.layers.1.table", "transformer.wpe.weight"),
            *affine(f"body.layers.{last - 1}.norm", "transformer.ln_f"),
        ]
        if not model.config.tied:
            found.append(same(f"body.layers.{last}.linear.weight", "lm_head.weight"))
        blocks = [i for i, layer in enumerate(body) if isinstance(layer, Block)]
        for number, place in enumerate(blocks):
            ours, theirs = f"body.layers.{place}", f"transformer.h.{number}"
            found += affine(f"{ours}.mixer_norm.norm", f"{theirs}.ln_1")
            found += affine(f"{ours}.feed_forward_norm.norm", f"{theirs}.ln_2")
            for mine, other in PRODUCTS.items():
                found.append(transposed(f"{ours}.{mine}.weight", f"{theirs}.{other}.weight"))
                found.append(same(f"{ours}.{mine}.bias", f"{theirs}.{other}.bias"))
        return found

    def refusals(self, model: nn.Module) -> list[str]:
        """Return what differs from GPT-2."""
        if not isinstance(model, LanguageModel) or model.config.family != "transformer":
            return [f"{OTHER_KIND} Transformer language model"]
        config = model.config
        has_head_bias = config.bias if config.head_bias is None else config.head_bias
        differing = {
            "positions are rotary (set max_length)": config.max_length is None,
            "attention has a window": config.window is not None,
            "keys and values are shared between heads": config.kv_heads not in (None, config.heads),
            "norms are RMS norms": config.norm_kind != "layer",
            "feed-forward networks are gated": config.activation not in THEIR_ACTIVATIONS,
            "blocks have no biases": not config.bias,
            "the map to the vocabulary has a bias (set head_bias=false)": has_head_bias,
        }
        return [reason for reason, differs in differing.items() if differs]

    def write(self, model: LanguageModel) -> JsonObject:
        """Return GPT-2's config."""
        config = model.config
        return {
            "architectures": ["GPT2LMHeadModel"],
            "vocab_size": config.vocab_size,
            "n_embd": config.width,
            "n_layer": config.layers,
            "n_head": config.heads,
            "n_inner": config.hidden,
            "n_positions": config.max_length,
            "activation_function": THEIR_ACTIVATIONS[config.activation],
            "layer_norm_epsilon": config.eps,
            **dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), config.dropout),
            "tie_word_embeddings": config.tied,
        }


PRODUCTS = {
    "mixer.qkv": "attn.c_attn",
    "mixer.out": "attn.c_proj",
    "feed_forward.up": "mlp.c_fc",
    "feed_forward.down": "mlp.c_proj",
}
