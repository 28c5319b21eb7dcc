"""Llama (Touvron et al. 2023) as Hugging Face stores it: a language model of our transformer family."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import nn

from recollect.core.serialize import FileError
from recollect.core.types import JsonMapping, JsonObject
from recollect.layers.block import Block
from recollect.layers.positions import ROTARY_BASE
from recollect.models.language import LanguageConfig, LanguageModel
from recollect.pretrained.entries import Entry, affine, rotary, same, stacked
from recollect.pretrained.format import OTHER_KIND, Copies, refuse, required

LONGEST = 1 << 20  # steps: rotary positions have no end, but transformers wants a number


class Llama:
    """Rotary positions, RMS norms, SwiGLU, grouped keys and values, no biases."""

    model_type = "llama"
    prefix = "model."
    ignored = r"rotary_emb\.inv_freq$"
    copies: Copies = (("lm_head.weight", "model.embed_tokens.weight"),)

    def read(self, config: JsonMapping, names: Iterable[str]) -> LanguageConfig:
        """Return our config."""
        refuse(config, "hidden_act", unless=("silu", "swish"))
        refuse(config, "attention_bias", unless=(False,))
        refuse(config, "mlp_bias", unless=(False,))
        width, heads = required(config, "hidden_size"), required(config, "num_attention_heads")
        refuse(config, "head_dim", unless=(width // heads, None))
        return LanguageConfig(
            "transformer",
            required(config, "vocab_size"),
            width=width,
            layers=required(config, "num_hidden_layers"),
            heads=heads,
            kv_heads=config.get("num_key_value_heads") or heads,
            hidden=required(config, "intermediate_size"),
            window=config.get("sliding_window"),
            norm_kind="rms",
            activation="swiglu",
            bias=False,
            eps=config.get("rms_norm_eps", 1e-6),
            rotary_base=rotary_base(config),
            tied=config.get("tie_word_embeddings", False),
        )

    def build(self, config: LanguageConfig) -> LanguageModel:
        """Return a language model."""
        return LanguageModel(config)

    def entries(self, model: LanguageModel) -> list[Entry]:
        """Return the entries of embedding, blocks, last norm and head."""
        body: Any = model.body
        last = len(body) - 1
        found = [
            same("body.layers.0.table.weight", "model.embed_tokens.weight"),
            same(f"body.layers.{last - 1}.norm.weight", "model.norm.weight"),
        ]
        if not model.config.tied:
            found.append(same(f"body.layers.{last}.linear.weight", "lm_head.weight"))
        blocks = [(i, layer) for i, layer in enumerate(body) if isinstance(layer, Block)]
        for number, (place, block) in enumerate(blocks):
            found += _block(f"body.layers.{place}", f"model.layers.{number}", block.mixer)
        return found

    def refusals(self, model: nn.Module) -> list[str]:
        """Return what differs from Llama."""
        if not isinstance(model, LanguageModel) or model.config.family != "transformer":
            return [f"{OTHER_KIND} Transformer language model"]
        config = model.config
        differing = {
            "positions are learned (leave out max_length)": config.max_length is not None,
            "attention has a window": config.window is not None,
            "norms are no RMS norms (set norm_kind=rms)": config.norm_kind != "rms",
            "feed-forward networks are not gated (set activation=swiglu)": config.activation != "swiglu",
            "there are biases (set bias=false)": config.bias or bool(config.head_bias),
        }
        return [reason for reason, differs in differing.items() if differs]

    def write(self, model: LanguageModel) -> JsonObject:
        """Return Llama's config."""
        config = model.config
        return {
            "architectures": ["LlamaForCausalLM"],
            "vocab_size": config.vocab_size,
            "hidden_size": config.width,
            "num_hidden_layers": config.layers,
            "num_attention_heads": config.heads,
            "num_key_value_heads": config.kv_heads or config.heads,
            "intermediate_size": config.hidden or 4 * config.width,
            "hidden_act": "silu",
            "rms_norm_eps": config.eps,
            "rope_theta": config.rotary_base,
            "max_position_embeddings": LONGEST,
            "attention_dropout": config.dropout,
            "tie_word_embeddings": config.tied,
        }


def _block(ours: str, theirs: str, attention: Any) -> list[Entry]:
    three = [f"{theirs}.self_attn.{name}_proj.weight" for name in "qkv"]
    both = [f"{theirs}.mlp.{name}_proj.weight" for name in ("gate", "up")]
    return [
        rotary(f"{ours}.mixer.qkv.weight", three, attention.heads, attention.kv_heads, attention.head_width),
        stacked(f"{ours}.feed_forward.up.weight", both),
        *affine(f"{ours}.mixer.out", f"{theirs}.self_attn.o_proj", bias=False),
        *affine(f"{ours}.feed_forward.down", f"{theirs}.mlp.down_proj", bias=False),
        *affine(f"{ours}.mixer_norm.norm", f"{theirs}.input_layernorm", bias=False),
        *affine(f"{ours}.feed_forward_norm.norm", f"{theirs}.post_attention_layernorm", bias=False),
    ]


def rotary_base(config: JsonMapping) -> float:
    """Return the base of the angles; raise a `FileError` where angles are scaled, as for longer contexts."""
    given: JsonMapping = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = given.get("rope_type", given.get("type", "default"))
    if kind != "default":
        raise FileError(f"config.json: rope_type: got {kind!r}, expected 'default': recollect does not scale angles")
    return float(given.get("rope_theta") or config.get("rope_theta") or ROTARY_BASE)
