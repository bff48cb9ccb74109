"""Small models of diffusers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from benchmarks.libraries import torchvision_operators
from benchmarks.libraries.models import Model
from benchmarks.libraries.specimen import Specimen

torchvision_operators.define()
import diffusers

_BLOCKS: Final = {"block_out_channels": (32, 64), "layers_per_block": 1, "norm_num_groups": 8}
_UNET: Final = {
    **_BLOCKS,
    "sample_size": 16,
    "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
    "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
}
_CONDITIONED: Final = {
    **_BLOCKS,
    "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
    "cross_attention_dim": 16,
    "attention_head_dim": 8,
}
_ENCODER: Final = {
    **_BLOCKS,
    "down_block_types": ("DownEncoderBlock2D",) * 2,
    "up_block_types": ("UpDecoderBlock2D",) * 2,
}
_HEADS: Final = {"num_attention_heads": 2, "attention_head_dim": 8}
_SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "AutoencoderKL": _ENCODER,
    "AutoencoderTiny": {},
    "AsymmetricAutoencoderKL": {
        "down_block_out_channels": (32, 64),
        "up_block_out_channels": (32, 64),
        "norm_num_groups": 8,
        "down_block_types": ("DownEncoderBlock2D",) * 2,
        "up_block_types": ("UpDecoderBlock2D",) * 2,
    },
    "ControlNetModel": {**_CONDITIONED, "conditioning_embedding_out_channels": (8, 16)},
    "DiTTransformer2DModel": {**_HEADS, "num_layers": 2, "sample_size": 8, "norm_num_groups": 4},
    "PixArtTransformer2DModel": {
        **_HEADS,
        "num_layers": 2,
        "sample_size": 8,
        "cross_attention_dim": 16,
        "caption_channels": 8,
    },
    "PriorTransformer": {**_HEADS, "num_layers": 2, "embedding_dim": 16, "num_embeddings": 7},
    "SD3Transformer2DModel": {
        **_HEADS,
        "num_layers": 2,
        "sample_size": 8,
        "joint_attention_dim": 16,
        "caption_projection_dim": 16,
        "pooled_projection_dim": 16,
    },
    "T5FilmDecoder": {
        "input_dims": 8,
        "targets_length": 16,
        "d_model": 16,
        "num_layers": 1,
        "num_heads": 2,
        "d_kv": 8,
        "d_ff": 16,
    },
    "Transformer2DModel": {**_HEADS, "in_channels": 8, "norm_num_groups": 4, "num_layers": 2},
    "UNet1DModel": {"block_out_channels": (8, 8, 16)},
    "UNet2DConditionModel": {**_CONDITIONED, "sample_size": 16, "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D")},
    "UNet2DModel": _UNET,
    "UNetMotionModel": {
        **_BLOCKS,
        "down_block_types": ("CrossAttnDownBlockMotion", "DownBlockMotion"),
        "up_block_types": ("UpBlockMotion", "CrossAttnUpBlockMotion"),
        "cross_attention_dim": 16,
        "num_attention_heads": 2,
        "motion_num_attention_heads": 2,
    },
    "VQModel": _ENCODER,
}


def names() -> Iterable[str]:
    """The models that have small settings here."""
    return list(_SETTINGS)


def make(name: str, seed: int) -> Specimen:
    """A small model."""
    return Model(seed, lambda: getattr(diffusers, name)(**_SETTINGS[name]))
