"""Lightricks' video networks of diffusers 0.42, whose latents are a list of places: LTX-Video, and LTX-2, which makes sound, too.

Inputs as their pipelines make them (pipeline_ltx.py, pipeline_ltx2.py): a mask of the prompt is always given; sound is 25
latents a second, and 24 pictures a second are one latent each eight.
"""
from __future__ import annotations

from typing import Any

import torch

PROMPT_TOKENS = {"LTXVideoTransformer3DModel": 128, "LTX2VideoTransformer3DModel": 1024}


def inputs(name: str, config: dict[str, Any], batch: int, frames: int, height: int, width: int) -> dict[str, Any]:
    """Of a batch of videos, in latents."""
    places, tokens = frames * height * width, PROMPT_TOKENS[name]
    captions = config["caption_channels"]
    made: dict[str, Any] = {
        "hidden_states": torch.empty(batch, places, config["in_channels"]), "encoder_hidden_states": torch.empty(batch, tokens, captions),
        "timestep": torch.zeros(batch, dtype=torch.long), "encoder_attention_mask": torch.ones(batch, tokens, dtype=torch.long),
        "num_frames": frames, "height": height, "width": width, "noise": torch.empty(batch, places, config["out_channels"])}
    if name == "LTX2VideoTransformer3DModel":
        heard = round((8 * (frames - 1) + 1) / 24 * 25)
        channels = config["audio_in_channels"]
        made |= {"audio_hidden_states": torch.empty(batch, heard, channels), "audio_encoder_hidden_states": torch.empty(batch, tokens, captions),
                 "audio_encoder_attention_mask": torch.ones(batch, tokens, dtype=torch.long), "audio_num_frames": heard,
                 "audio_noise": torch.empty(batch, heard, channels)}
    return made


def squares(output: Any, given: dict[str, Any]) -> Any:
    """The loss of the pictures, and of the sound where there is some."""
    loss = torch.nn.functional.mse_loss(output.sample.float(), given["noise"].float())
    if "audio_noise" in given: loss = loss + torch.nn.functional.mse_loss(output.audio_sample.float(), given["audio_noise"].float())
    return loss
