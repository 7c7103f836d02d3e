"""Images in a text: what a processor of transformers hands to a vision-language model, without the processor's files."""
from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable

import torch


@dataclass
class Pictures:
    """Images of one size. `tensors(batch)`: what stands beside input_ids, for the images of all sequences."""

    count: int         # images of a sequence
    edge: int          # pixels
    tokens: int        # places of one image in the text
    token_id: int
    reason: str        # why the size is fixed
    tensors: Callable[[int], dict[str, torch.Tensor]]
    types: str | None  # the input that tells which places are an image's
    policies: dict[str, Any] = field(default_factory=dict)

    @property
    def all_tokens(self) -> int:
        """Those of all images and the token before each."""
        return self.count * (self.tokens + 1)


def pictures(config: Any, kind: Any, count: int, edge: int | None) -> Pictures:
    """Of a model of the class `kind`."""
    forward = set(inspect.signature(kind.forward).parameters)
    vision = config.vision_config
    token_id = getattr(config, "image_token_id", None)
    if token_id is None: token_id = getattr(config, "image_token_index", None)
    if token_id is None or "pixel_values" not in forward:
        raise ValueError(f"{config.model_type}: how its processor puts images into the text is not known here")
    types = next((name for name in ("mm_token_type_ids", "token_type_ids") if name in forward), None)
    if "image_grid_thw" in forward: return _patches(config, vision, count, edge, token_id, types)
    if vision.model_type == "pixtral" and "image_sizes" in forward: return _sized(config, vision, count, edge, token_id, types)
    own = _single(getattr(vision, "image_size", None))
    if own is None: raise ValueError(f"{config.model_type}: how its processor puts images into the text is not known here")
    if edge not in (None, own) and config.model_type not in ("idefics3", "smolvlm"):
        raise ValueError(f"{config.model_type} takes images of {own} pixels alone, not {edge}")
    edge = edge or own
    side = edge // _single(vision.patch_size)
    tokens = _tokens(config, side * side)
    channels = getattr(vision, "num_channels", 3)

    def tensors(batch: int) -> dict[str, torch.Tensor]:
        nested = config.model_type in ("idefics3", "smolvlm")  # whose images are a dimension of their own
        return {"pixel_values": torch.empty(*((batch, count) if nested else (batch * count,)), channels, edge, edge)}

    return Pictures(count, edge, tokens, token_id, "an image has as many places in the text as its size gives", tensors, types,
                    _no_empty_image(kind) if config.model_type in ("idefics3", "smolvlm") else {})


def _no_empty_image(kind: Any) -> dict[str, Any]:
    """Where Idefics 3 leaves out images whose pixels are all zero: there is none."""
    source = Path(inspect.getfile(kind))
    lines = source.read_text().splitlines()
    return {f"{source.name}:{i + 1}": True for i, line in enumerate(lines) if "[real_images_inds]" in line}


def _single(size: Any) -> Any:
    return size[0] if isinstance(size, (tuple, list)) else size


def _tokens(config: Any, patches: int) -> int:
    """Places of an image in the text, as the model's projector makes them from the patches."""
    kind = config.model_type
    if kind == "gemma3": return int(config.mm_tokens_per_image)
    if kind in ("llava", "vipllava"):
        return patches + (getattr(config, "vision_feature_select_strategy", "default") == "full")
    if kind == "paligemma": return patches
    if kind in ("idefics3", "smolvlm"): return patches // int(config.scale_factor) ** 2
    if kind == "internvl": return int(patches * float(config.downsample_ratio) ** 2)
    if kind == "aya_vision": return patches // int(config.downsample_factor) ** 2
    raise ValueError(f"{kind}: how many places its images have in the text is not known here")


def _patches(config: Any, vision: Any, count: int, edge: int | None, token_id: int, types: str | None) -> Pictures:
    """Qwen2-VL and its like: an image is a grid of patches, all images are one list of patches."""
    patch, merge = int(vision.patch_size), int(vision.spatial_merge_size)
    edge = edge or 16 * patch * merge
    if edge % (patch * merge): raise ValueError(f"{config.model_type} takes images whose edge is a multiple of {patch * merge}")
    side = edge // patch
    width = int(getattr(vision, "in_channels", 3)) * int(vision.temporal_patch_size) * patch * patch

    def tensors(batch: int) -> dict[str, torch.Tensor]:
        return {"pixel_values": torch.empty(batch * count * side * side, width),
                "image_grid_thw": torch.tensor([[1, side, side]] * (batch * count))}

    return Pictures(count, edge, side * side // merge**2, token_id, "an image has as many places in the text as its size gives",
                    tensors, types)


def _sized(config: Any, vision: Any, count: int, edge: int | None, token_id: int, types: str | None) -> Pictures:
    """Pixtral's tower: images of any size, which stands beside their pixels."""
    step = int(_single(vision.patch_size)) * int(getattr(config, "spatial_merge_size", 1))
    edge = edge or 16 * step
    if edge % step: raise ValueError(f"{config.model_type} takes images whose edge is a multiple of {step}")

    def tensors(batch: int) -> dict[str, torch.Tensor]:
        return {"pixel_values": torch.empty(batch * count, vision.num_channels, edge, edge),
                "image_sizes": torch.tensor([[edge, edge]] * (batch * count))}

    return Pictures(count, edge, (edge // step) ** 2, token_id, "an image has as many places in the text as its size gives",
                    tensors, types)
