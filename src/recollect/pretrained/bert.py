"""BERT (Devlin et al. 2019) and ALBERT (Lan et al. 2020) as Hugging Face stores them: our masked language model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import nn

from recollect.core.types import JsonMapping, JsonObject
from recollect.layers.block import Block
from recollect.models.masked import MaskedConfig, MaskedModel
from recollect.pretrained.entries import Entry, affine, same, stacked
from recollect.pretrained.format import OTHER_KIND, THEIR_ACTIVATIONS, Copies, activation_of, refuse, required


class BERT:
    """Post-norm blocks over embeddings of symbols, positions and segments; the heads are those of the checkpoint."""

    model_type = "bert"
    prefix = "bert."
    ignored = r"embeddings\.position_ids$"
    copies: Copies = (
        ("cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"),
        ("cls.predictions.decoder.bias", "cls.predictions.bias"),
    )
    pooler = "bert.pooler.dense"
    predictions = "cls.predictions"
    transform = "cls.predictions.transform"
    next_sentence = "cls.seq_relationship"

    def architecture_of(self, config: MaskedConfig) -> str:
        """Return the class of transformers that has these heads."""
        if config.next_sentence:
            return "BertForPreTraining"
        return "BertForMaskedLM" if config.masked else "BertModel"

    def read(self, config: JsonMapping, names: Iterable[str]) -> MaskedConfig:
        """Return our config."""
        refuse(config, "position_embedding_type", unless=("absolute",))
        refuse(config, "is_decoder", unless=(False,))
        return MaskedConfig(**self._common(config, set(names)))

    def _common(self, config: JsonMapping, names: set[str]) -> dict[str, Any]:
        refuse(config, "tie_word_embeddings", unless=(True,))
        plain = {name.removeprefix(self.prefix) for name in names}
        pooler = f"{self.pooler}.weight".removeprefix(self.prefix)
        return {
            "vocab_size": required(config, "vocab_size"),
            "width": required(config, "hidden_size"),
            "layers": required(config, "num_hidden_layers"),
            "heads": required(config, "num_attention_heads"),
            "hidden": required(config, "intermediate_size"),
            "max_length": required(config, "max_position_embeddings"),
            "segments": config.get("type_vocab_size", 2),
            "activation": activation_of(config, "hidden_act", "gelu"),
            "eps": config.get("layer_norm_eps", 1e-12),
            "dropout": float(config.get("hidden_dropout_prob", 0.1)),
            "masked": f"{self.transform}.dense.weight" in plain,
            "pooled": pooler in plain,
            "next_sentence": f"{self.next_sentence}.weight" in plain,
        }

    def build(self, config: MaskedConfig) -> MaskedModel:
        """Return a masked language model."""
        return MaskedModel(config)

    def entries(self, model: MaskedModel) -> list[Entry]:
        """Return the entries of embeddings, blocks and heads."""
        found = [*self._embeddings(), *self._heads(model)]
        blocks = [i for i, layer in enumerate(model.body) if isinstance(layer, Block)]
        for number, place in enumerate(blocks):
            theirs = f"bert.encoder.layer.{number}"
            found += _block(
                f"body.layers.{place}",
                [f"{theirs}.attention.self.{name}" for name in ("query", "key", "value")],
                {
                    "mixer.out": f"{theirs}.attention.output.dense",
                    "mixer_norm.norm": f"{theirs}.attention.output.LayerNorm",
                    "feed_forward.up": f"{theirs}.intermediate.dense",
                    "feed_forward.down": f"{theirs}.output.dense",
                    "feed_forward_norm.norm": f"{theirs}.output.LayerNorm",
                },
            )
        return found

    def _embeddings(self) -> list[Entry]:
        theirs = f"{self.prefix}embeddings"
        return [
            same("embedding.table.weight", f"{theirs}.word_embeddings.weight"),
            same("segment.weight", f"{theirs}.token_type_embeddings.weight"),
            same("body.layers.0.table", f"{theirs}.position_embeddings.weight"),
            *affine("body.layers.1.norm", f"{theirs}.LayerNorm"),
        ]

    def _heads(self, model: MaskedModel) -> list[Entry]:
        found: list[Entry] = []
        if model.config.masked:
            found += affine("transform.dense", f"{self.transform}.dense")
            found += affine("transform.norm", f"{self.transform}.LayerNorm")
            found.append(same("out.bias", f"{self.predictions}.bias"))
        if model.config.pooled:
            found += affine("pooler", self.pooler)
        if model.config.next_sentence:
            found += affine("next_sentence", self.next_sentence)
        return found

    def refusals(self, model: nn.Module) -> list[str]:
        """Return what differs from BERT."""
        if not isinstance(model, MaskedModel):
            return [f"{OTHER_KIND} masked language model"]
        differing = {
            "layers are shared": model.config.shared,
            "embeddings have another width": model.config.embedding is not None,
        }
        return self._refusals(model) + [reason for reason, differs in differing.items() if differs]

    def _refusals(self, model: MaskedModel) -> list[str]:
        config = model.config
        is_tied = model.out is None or model.out.weight is model.embedding.table.weight
        differing = {
            f"its layers are recurrent ({config.family})": config.family != "bert",
            "norms come before the layers (set norm=post)": config.norm != "post",
            "its head is another": not is_tied,
        }
        return [reason for reason, differs in differing.items() if differs]

    def write(self, model: MaskedModel) -> JsonObject:
        """Return BERT's config."""
        config = model.config
        return {
            "architectures": [self.architecture_of(config)],
            "vocab_size": config.vocab_size,
            "hidden_size": config.width,
            "num_hidden_layers": config.layers,
            "num_attention_heads": config.heads,
            "intermediate_size": config.hidden or 4 * config.width,
            "max_position_embeddings": config.max_length,
            "type_vocab_size": config.segments,
            "hidden_act": THEIR_ACTIVATIONS[config.activation],
            "layer_norm_eps": config.eps,
            "hidden_dropout_prob": config.dropout,
            "attention_probs_dropout_prob": config.dropout,
            "tie_word_embeddings": True,
        }


class ALBERT(BERT):
    """BERT whose layers have the same weights, and whose embeddings are narrower."""

    model_type = "albert"
    prefix = "albert."
    copies: Copies = (
        ("predictions.decoder.weight", "albert.embeddings.word_embeddings.weight"),
        ("predictions.decoder.bias", "predictions.bias"),
    )
    pooler = "albert.pooler"
    predictions = "predictions"
    transform = "predictions"
    next_sentence = "sop_classifier.classifier"

    def architecture_of(self, config: MaskedConfig) -> str:
        """Return the class of transformers that has these heads."""
        if config.next_sentence:
            return "AlbertForPreTraining"
        return "AlbertForMaskedLM" if config.masked else "AlbertModel"

    def read(self, config: JsonMapping, names: Iterable[str]) -> MaskedConfig:
        """Return our config."""
        refuse(config, "num_hidden_groups", unless=(1,))
        refuse(config, "inner_group_num", unless=(1,))
        common = self._common({"hidden_act": "gelu_new", **config}, set(names))
        return MaskedConfig(**common, embedding=required(config, "embedding_size"), shared=True)

    def entries(self, model: MaskedModel) -> list[Entry]:
        """Return the entries of embeddings, the one block and heads."""
        last = len(model.body) - 1
        theirs = "albert.encoder.albert_layer_groups.0.albert_layers.0"
        block = _block(
            f"body.layers.{last}.layer",
            [f"{theirs}.attention.{name}" for name in ("query", "key", "value")],
            {
                "mixer.out": f"{theirs}.attention.dense",
                "mixer_norm.norm": f"{theirs}.attention.LayerNorm",
                "feed_forward.up": f"{theirs}.ffn",
                "feed_forward.down": f"{theirs}.ffn_output",
                "feed_forward_norm.norm": f"{theirs}.full_layer_layer_norm",
            },
        )
        wider = affine(f"body.layers.{last - 1}.linear", "albert.encoder.embedding_hidden_mapping_in")
        return [*self._embeddings(), *wider, *block, *self._heads(model)]

    def refusals(self, model: nn.Module) -> list[str]:
        """Return what differs from ALBERT."""
        if not isinstance(model, MaskedModel):
            return [f"{OTHER_KIND} masked language model"]
        differing = {
            "layers are not shared (set shared=true)": not model.config.shared,
            "embeddings have the layers' width (set embedding)": model.config.embedding is None,
        }
        return self._refusals(model) + [reason for reason, differs in differing.items() if differs]

    def write(self, model: MaskedModel) -> JsonObject:
        """Return ALBERT's config."""
        groups = {"num_hidden_groups": 1, "inner_group_num": 1}
        return {**super().write(model), "embedding_size": model.config.embedding, **groups}


def _block(ours: str, three: list[str], rest: dict[str, str]) -> list[Entry]:
    """Return the entries of a block: of queries, keys and values, which are separate there, and of the rest."""
    qkv = [stacked(f"{ours}.mixer.qkv.{part}", [f"{name}.{part}" for name in three]) for part in ("weight", "bias")]
    return qkv + [entry for mine, theirs in rest.items() for entry in affine(f"{ours}.{mine}", theirs)]
