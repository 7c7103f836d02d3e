"""Images in a text: what a processor of transformers hands to a vision-language model, without the processor's files."""
from __future__ import annotations

import copy
import inspect
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable

import torch


_SIZED = "an image has as many places in the text as its size gives"
_UNKNOWN_PLACES = "how many places its images have in the text is not known here"


@dataclass
class Pictures:
    """Images of one size. `tensors`: what stands beside input_ids, for the images of all sequences."""

    count: int         # images of a sequence
    edge: int          # pixels
    tokens: int        # places of one image in the text
    token_id: int
    reason: str        # why the size is fixed
    tensors: Callable[[int, int], dict[str, torch.Tensor]]  # of batch and sequence
    types: str | None  # the input that tells which places are an image's
    policies: dict[str, Any] = field(default_factory=dict)
    start_id: int | None = None  # the token before each

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
    if config.model_type in ("llava_next", "llava_onevision"): return _anyres(config, vision, count, edge, token_id, types)
    if config.model_type == "lfm2_vl": return _padded_patches(config, vision, count, edge, token_id, types)
    if config.model_type == "minicpmv4_6": return _packed(config, vision, count, edge, token_id, types)
    if config.model_type == "mllama": return _tiles_aside(config, vision, count, edge, token_id, types)
    if config.model_type == "llama4": return _tiles(config, vision, count, edge, token_id, types)
    if "image_grid_thw" in forward: return _patches(config, vision, forward, count, edge, token_id, types)
    if vision.model_type == "pixtral" and "image_sizes" in forward: return _sized(config, vision, count, edge, token_id, types)
    own = _single(getattr(vision, "image_size", None))
    if own is None: raise ValueError(f"{config.model_type}: how its processor puts images into the text is not known here")
    if edge not in (None, own) and config.model_type not in ("idefics3", "smolvlm"):
        raise ValueError(f"{config.model_type} takes images of {own} pixels alone, not {edge}")
    edge = edge or own
    side = edge // _single(vision.patch_size)
    tokens = _tokens(config, kind, side * side, edge)
    channels = getattr(vision, "num_channels", 3)

    def tensors(batch: int, _: int) -> dict[str, torch.Tensor]:
        nested = config.model_type in ("idefics3", "smolvlm")  # whose images are a dimension of their own
        return {"pixel_values": torch.empty(*((batch, count) if nested else (batch * count,)), channels, edge, edge)}

    return Pictures(count, edge, tokens, token_id, _SIZED, tensors, types,
                    _no_empty_image(kind) if config.model_type in ("idefics3", "smolvlm") else {})


def _no_empty_image(kind: Any) -> dict[str, Any]:
    """Where Idefics 3 leaves out images whose pixels are all zero: there is none."""
    source = Path(inspect.getfile(kind))
    lines = source.read_text().splitlines()
    return {f"{source.name}:{i + 1}": True for i, line in enumerate(lines) if "[real_images_inds]" in line}


def _single(size: Any) -> Any:
    return size[0] if isinstance(size, (tuple, list)) else size


def _tokens(config: Any, model: Any, patches: int, edge: int) -> int:
    """Places of an image in the text, as the model's projector makes them from the patches."""
    kind = config.model_type
    if kind == "gemma3": return int(config.mm_tokens_per_image)
    if kind in ("llava", "vipllava"):
        return patches + (getattr(config, "vision_feature_select_strategy", "default") == "full")
    if kind == "paligemma": return patches
    if kind in ("idefics3", "smolvlm"): return patches // int(config.scale_factor) ** 2
    if kind == "internvl": return int(patches * float(config.downsample_ratio) ** 2)
    if kind == "aya_vision": return patches // int(config.downsample_factor) ** 2
    return _features(config, model, edge)


def _features(config: Any, model: Any, edge: int) -> int:
    """What get_image_features() of a model of the class `model` gives for an image: it must have as many places."""
    brief = copy.deepcopy(config)
    text = brief.get_text_config()
    for name, value in (("num_hidden_layers", 1), ("layer_types", (getattr(text, "layer_types", None) or [])[:1] or None)):
        if hasattr(text, name): setattr(text, name, value)
    try:
        with torch.device("meta"):
            made = model(brief)
            given = getattr(made, "get_image_features", None) or made.model.get_image_features
            found = given(pixel_values=torch.empty(1, getattr(config.vision_config, "num_channels", 3), edge, edge))
    except Exception as error:  # of the module's own code, which wants more than pixels, or values of them
        raise ValueError(f"{config.model_type}: {_UNKNOWN_PLACES}") from error
    found = getattr(found, "pooler_output", found)
    each = found[0] if isinstance(found, (tuple, list)) else found
    return int(each.numel()) // int(each.shape[-1])


def _patches(config: Any, vision: Any, forward: set[str], count: int, edge: int | None, token_id: int,
             types: str | None) -> Pictures:
    """Qwen2-VL and its like: an image is a grid of patches, all images are one list of patches."""
    told = "image_merge_sizes" in forward  # VideoLLaMA 3, beside the grid: 1 of images, 2 of videos
    if not told and not hasattr(vision, "spatial_merge_size"): raise ValueError(f"{config.model_type}: {_UNKNOWN_PLACES}")
    patch, merge = int(vision.patch_size), 1 if told else int(vision.spatial_merge_size)
    edge = edge or 16 * patch * merge
    if edge % (patch * merge): raise ValueError(f"{config.model_type} takes images whose edge is a multiple of {patch * merge}")
    side = edge // patch
    width = int(getattr(vision, "in_channels", 3)) * int(getattr(vision, "temporal_patch_size", 1)) * patch * patch
    of_patch = (vision.num_channels, patch, patch) if config.model_type == "paddleocr_vl" else (width,)
    start_id = None
    if config.model_type in ("qwen2_5_omni_thinker", "qwen3_omni_moe_thinker"):
        if count > 1: raise ValueError(f"{config.model_type}: between two images its processor sets two tokens, here is one")
        start_id = int(config.vision_start_token_id)  # which the class finds them by; the thinker's configuration may lack it

    def tensors(batch: int, _: int) -> dict[str, torch.Tensor]:
        made = {"pixel_values": torch.empty(batch * count * side * side, *of_patch),
                "image_grid_thw": torch.tensor([[1, side, side]] * (batch * count))}
        if told: made["image_merge_sizes"] = torch.tensor([1] * (batch * count))
        return made

    return Pictures(count, edge, side * side // merge**2, token_id, _SIZED, tensors, types, start_id=start_id)


def _packed(config: Any, vision: Any, count: int, edge: int | None, token_id: int, types: str | None) -> Pictures:
    """MiniCPM-V 4.6: patches of all images side by side, as one row of pixels; 448 pixels are not cut into slices."""
    patch, most = int(_single(vision.patch_size)), 448
    step = patch * 2 * int(config.merge_kernel_size[0]) ** int(config.merger_times)  # the tower's own merging and the merger's
    edge = edge or most
    if edge > most or edge % step: raise ValueError(f"minicpmv4_6: images whose edge is a multiple of {step} up to {most}; larger ones are cut")
    side = edge // patch

    def tensors(batch: int, _: int) -> dict[str, torch.Tensor]:
        return {"pixel_values": torch.empty(1, vision.num_channels, patch, batch * count * side * side * patch),
                "target_sizes": torch.tensor([[side, side]] * (batch * count), dtype=torch.int32)}

    return Pictures(count, edge, (edge // step) ** 2, token_id, _SIZED, tensors, types)


def _sized(config: Any, vision: Any, count: int, edge: int | None, token_id: int, types: str | None) -> Pictures:
    """Pixtral's tower: images of any size, which stands beside their pixels."""
    step = int(_single(vision.patch_size)) * int(getattr(config, "spatial_merge_size", 1))
    edge = edge or 16 * step
    if edge % step: raise ValueError(f"{config.model_type} takes images whose edge is a multiple of {step}")

    def tensors(batch: int, _: int) -> dict[str, torch.Tensor]:
        return {"pixel_values": torch.empty(batch * count, vision.num_channels, edge, edge),
                "image_sizes": torch.tensor([[edge, edge]] * (batch * count))}

    return Pictures(count, edge, (edge // step) ** 2, token_id, _SIZED, tensors, types)


def _anyres(config: Any, vision: Any, count: int, edge: int | None, token_id: int, types: str | None) -> Pictures:
    """LLaVA-NeXT and LLaVA-OneVision: the image as a whole and, at the best of the sizes that config.json lists, in tiles; a
    row of places ends with one more (pack_image_features, whose arithmetic this is)."""
    from transformers.image_processing_utils import select_best_resolution

    tile = int(vision.image_size)
    side = tile // int(vision.patch_size)
    edge = edge or 2 * tile
    high, wide = (n // tile for n in select_best_resolution((edge, edge), config.image_grid_pinpoints))
    rows, columns = (min(high, wide) * side,) * 2  # without what pads the square image
    rows, columns = rows + (high * side - rows) % 2, columns + (wide * side - columns) % 2  # which is cut on both sides
    if config.model_type == "llava_onevision":
        ratio = math.sqrt(rows * columns / (int(config.vision_aspect_ratio.removeprefix("anyres_max_")) * side**2))
        if ratio > 1.1: rows, columns = int(rows // ratio), int(columns // ratio)

    def tensors(batch: int, _: int) -> dict[str, torch.Tensor]:
        return {"pixel_values": torch.empty(batch * count, 1 + high * wide, vision.num_channels, tile, tile),
                "image_sizes": torch.tensor([[edge, edge]] * (batch * count))}

    return Pictures(count, edge, side * side + rows * (columns + 1), token_id, _SIZED, tensors, types)


def _padded_patches(config: Any, vision: Any, count: int, edge: int | None, token_id: int, types: str | None) -> Pictures:
    """LFM2-VL: an image is a list of patches that is padded to the most that one has, and a mask (its processor's
    tile_size 512, above which it splits an image)."""
    patch, most = int(vision.patch_size), 512
    step = patch * int(config.downsample_factor)
    edge = edge or most
    if edge > most or edge % step: raise ValueError(f"lfm2_vl: images whose edge is a multiple of {step} up to {most}; larger ones are split")
    side, all_patches = edge // patch, (most // patch) ** 2

    def tensors(batch: int, _: int) -> dict[str, torch.Tensor]:
        mask = torch.zeros(batch * count, all_patches, dtype=torch.int32)
        mask[:, :side * side] = 1
        return {"pixel_values": torch.empty(batch * count, all_patches, vision.num_channels * patch * patch),
                "pixel_attention_mask": mask, "spatial_shapes": torch.tensor([[side, side]] * (batch * count))}

    return Pictures(count, edge, (edge // step) ** 2, token_id, _SIZED, tensors, types)


def _tiles(config: Any, vision: Any, count: int, edge: int | None, token_id: int, types: str | None) -> Pictures:
    """Llama 4: tiles, and where there are several, the whole image as one more. The tokens between tiles are text here."""
    tile = int(vision.image_size)
    edge = edge or 2 * tile
    if edge % tile or edge > 4 * tile: raise ValueError(f"llama4 takes images whose edge is a multiple of {tile} up to {4 * tile}")
    tiles = (edge // tile) ** 2
    tiles += tiles > 1
    tokens = int((tile // int(vision.patch_size)) ** 2 * float(vision.pixel_shuffle_ratio) ** 2)

    def tensors(batch: int, _: int) -> dict[str, torch.Tensor]:
        return {"pixel_values": torch.empty(batch * count * tiles, vision.num_channels, tile, tile)}

    return Pictures(count, edge, tiles * tokens, token_id, _SIZED, tensors, types)


def _tiles_aside(config: Any, vision: Any, count: int, edge: int | None, token_id: int, types: str | None) -> Pictures:
    """Mllama: an image has one place in the text, which looks at its tiles; there are always as many as it can have."""
    tile, most = int(vision.image_size), int(vision.max_num_tiles)
    edge = edge or 2 * tile
    if edge != 2 * tile: raise ValueError(f"mllama: images of {2 * tile} pixels, whose tiles are none of them padding")
    ratio = 1 + [list(each) for each in vision.supported_aspect_ratios].index([2, 2])

    def tensors(batch: int, sequence: int) -> dict[str, torch.Tensor]:
        return {"pixel_values": torch.empty(batch, count, most, vision.num_channels, tile, tile),
                "aspect_ratio_ids": torch.full((batch, count), ratio), "aspect_ratio_mask": torch.ones(batch, count, most, dtype=torch.long),
                "cross_attention_mask": torch.ones(batch, sequence, count, most, dtype=torch.long)}

    return Pictures(count, edge, 1, token_id, "an image is as many tiles as it can have", tensors, types)
