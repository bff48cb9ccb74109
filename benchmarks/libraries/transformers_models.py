"""A small model of each kind of transformers."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable
from functools import partial
from typing import Any

import torch

from benchmarks.libraries import torchvision_operators
from benchmarks.libraries.models import Model, parameters
from benchmarks.libraries.specimen import Specimen, UntriedError

torchvision_operators.define()
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING, CONFIG_MAPPING_NAMES
from transformers.models.auto.modeling_auto import MODEL_MAPPING, MODEL_MAPPING_NAMES

_MOST = 5_000_000
_WORDS = 99
_SMALL: tuple[tuple[tuple[str, ...], Any], ...] = (
    (("hidden_size", "d_model", "n_embd", "embed_dim", "dim", "embedding_size", "n_embed", "projection_dim"), 32),
    (("emb_dim", "hidden_dim", "dim_model", "d_embed", "decoder_hidden_size", "encoder_hidden_size", "output_dim"), 32),
    (("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers", "depth"), 2),
    (("num_decoder_layers", "num_encoder_layers", "num_blocks", "num_stages_layers", "decoder_num_hidden_layers"), 2),
    (
        ("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads", "decoder_attention_heads"),
        4,
    ),
    (("num_key_value_heads", "num_query_groups"), 2),
    (("head_dim", "d_kv", "attention_head_size", "kv_channels"), 8),
    (
        (
            "intermediate_size",
            "ffn_dim",
            "encoder_ffn_dim",
            "decoder_ffn_dim",
            "d_ff",
            "n_inner",
            "moe_intermediate_size",
        ),
        64,
    ),
    (("vocab_size",), _WORDS),
    (("image_size",), 32),
    (("patch_size",), 8),
    (("num_experts", "num_local_experts", "n_routed_experts"), 4),
    (("num_experts_per_tok", "top_k"), 2),
    (("max_position_embeddings", "n_positions", "max_seq_len"), 64),
)


def names() -> Iterable[str]:
    """Kinds of models, each by the name of its configuration; shuffled, so that the first ones stand for all."""
    found = sorted(kind for kind in CONFIG_MAPPING_NAMES if kind in MODEL_MAPPING_NAMES)
    return sorted(found, key=lambda kind: hashlib.sha256(kind.encode()).digest())


def make(name: str, seed: int) -> Specimen:
    """A small model of a kind, with random values."""
    config_class = CONFIG_MAPPING[name]
    found = MODEL_MAPPING[config_class]
    kind = found[0] if isinstance(found, (list, tuple)) else found
    config = _shrunk(config_class)
    size = parameters(partial(kind, config))
    if size > _MOST:
        raise UntriedError(f"its configuration could not be made small: {size} parameters")
    return Model(seed, partial(kind, config), *_INPUTS)


def _shrunk(config_class: Any) -> Any:
    """A configuration with small numbers where it has one of the usual names, as far as it permits them."""
    config = config_class()
    for each in (
        config,
        *(value for value in vars(config).values() if isinstance(value, transformers.PretrainedConfig)),
    ):
        for names, value in _SMALL:
            for name in names:
                if isinstance(getattr(each, name, None), int) and not isinstance(getattr(each, name), bool):
                    try:
                        if getattr(each, name) > value:
                            setattr(each, name, value)
                    except (AttributeError, NotImplementedError, ValueError, TypeError):
                        continue
        layers = getattr(each, "num_hidden_layers", None)
        kinds = getattr(each, "layer_types", None)
        if isinstance(kinds, list) and isinstance(layers, int):
            with contextlib.suppress(AttributeError):  # some compute it
                each.layer_types = kinds[:layers]
        for name in ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"):
            token = getattr(each, name, None)
            if isinstance(token, int) and token >= _WORDS:
                setattr(each, name, 1)
    return config


def _tokens() -> Any:
    return torch.randint(3, _WORDS, (2, 12))


def _pixels() -> Any:
    return torch.randn(2, 3, 32, 32)


_INPUTS = (
    lambda: {"input_ids": _tokens()},
    lambda: {"input_ids": _tokens(), "decoder_input_ids": _tokens()},
    lambda: {"pixel_values": _pixels()},
    lambda: {"pixel_values": torch.randn(2, 3, 224, 224)},
    lambda: {"input_ids": _tokens(), "pixel_values": _pixels()},
    lambda: {"input_values": torch.randn(2, 4000)},
    lambda: {"input_features": torch.randn(2, 80, 3000)},
    lambda: {"input_features": torch.randn(2, 80, 3000), "decoder_input_ids": _tokens()},
)
