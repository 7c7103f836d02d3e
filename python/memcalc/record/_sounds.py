"""Sound in a text: what a processor of transformers hands to a model that hears and reads, without the processor's files."""
from __future__ import annotations

import inspect
from typing import Any

import torch

from ._pictures import Pictures

_FRAMES = 3000  # of a spectrogram: the 30 s that Whisper's feature extractor makes of anything shorter
_SECONDS = "a sound is the 30 seconds that its processor pads to"


def sounds(config: Any, kind: Any, count: int) -> Pictures:
    """Of a model of the class `kind`: `count` sounds of 30 s in each sequence."""
    forward = set(inspect.signature(kind.forward).parameters)
    token_id = getattr(config, "audio_token_id", None)
    if token_id is None: token_id = getattr(config, "audio_token_index", None)
    places = _PLACES.get(config.model_type)
    if token_id is None or places is None or "input_features" not in forward:
        raise ValueError(f"{config.model_type}: how its processor puts sounds into the text is not known here")
    mask = next((name for name in ("input_features_mask", "feature_attention_mask") if name in forward), None)
    bins = int(config.audio_config.num_mel_bins)

    def tensors(batch: int, _: int) -> dict[str, torch.Tensor]:
        made = {"input_features": torch.empty(batch * count, bins, _FRAMES)}
        if mask: made[mask] = torch.ones(batch * count, _FRAMES, dtype=torch.long)
        return made

    return Pictures(count, 0, places(config), token_id, _SECONDS, tensors, None)


def _voxtral(config: Any) -> int:
    """Four frames of the encoder's, which halves those of the spectrogram, are one place."""
    return _FRAMES // 2 * int(config.audio_config.hidden_size) // int(config.audio_config.intermediate_size)


def _qwen2_audio(_: Any) -> int: return ((_FRAMES - 1) // 2 + 1 - 2) // 2 + 1


def _qwen3_asr(config: Any) -> int:
    """Each chunk passes three convolutions of stride 2 by itself."""
    chunk = 2 * int(config.audio_config.n_window)
    length = chunk
    for _ in range(3): length = (length - 1) // 2 + 1
    return _FRAMES // chunk * length


_PLACES = {"voxtral": _voxtral, "qwen2_audio": _qwen2_audio, "qwen3_asr": _qwen3_asr}
