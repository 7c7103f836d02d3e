"""Modules of no library, for scripts/record_programs: what many train and write themselves."""
from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class LstmTagger(nn.Module):
    """A tag for each token from a bidirectional LSTM: sizes as in Lample et al. 2016 (recalled) with words alone."""

    def __init__(self, vocabulary: int = 30_000, width: int = 300, hidden: int = 256, tags: int = 17) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, hidden, num_layers=2, batch_first=True, dropout=0.5, bidirectional=True)
        self.dropout = nn.Dropout(0.5)
        self.head = nn.Linear(2 * hidden, tags)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        states, _ = self.lstm(self.embedding(x))
        return self.head(self.dropout(states))


class _Convolution(nn.Sequential):
    def __init__(self, channels: int, features: int, stride: int) -> None:
        super().__init__(nn.Conv3d(channels, features, 3, stride, 1), nn.InstanceNorm3d(features, affine=True),
                         nn.LeakyReLU(inplace=True))


class PlainUnet3d(nn.Module):
    """nnU-Net's PlainConvUNet with six stages of two convolutions, each way, and an output of each but the lowest
    (dynamic_network_architectures: unet.py, unet_decoder.py, simple_conv_blocks.py, read 2026-11-27)."""

    def __init__(self, channels: int = 1, classes: int = 3, features: tuple[int, ...] = (32, 64, 128, 256, 320, 320)) -> None:
        super().__init__()
        self.down, self.decoder, self.up, self.outputs = (nn.ModuleList() for _ in range(4))
        for i, width in enumerate(features):
            self.down.append(nn.Sequential(_Convolution(channels, width, 1 if i == 0 else 2), _Convolution(width, width, 1)))
            channels = width
        for below, width in zip(features[:0:-1], features[-2::-1]):
            self.up.append(nn.ConvTranspose3d(below, width, 2, 2))
            self.decoder.append(nn.Sequential(_Convolution(2 * width, width, 1), _Convolution(width, width, 1)))
            self.outputs.append(nn.Conv3d(width, classes, 1))

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        skips = []
        for stage in self.down:
            x = stage(x)
            skips.append(x)
        made = []
        x = skips[-1]
        for i, (up, stage, output) in enumerate(zip(self.up, self.decoder, self.outputs)):
            x = up(x)
            x = torch.cat((x, skips[-(i + 2)]), 1)
            x = stage(x)
            made.append(output(x))
        return made[::-1]


def _dice(scores: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """MemoryEfficientSoftDiceLoss (nnunetv2/training/loss/dice.py) without background, of each sample."""
    x = torch.softmax(scores, 1)[:, 1:]
    axes = tuple(range(2, x.dim()))
    with torch.no_grad():
        ones = torch.zeros(scores.shape, device=scores.device, dtype=torch.bool)
        ones.scatter_(1, target.long(), 1)
        ones = ones[:, 1:]
        given = ones.sum(axes)
    both = (x * ones).sum(axes)
    return -((2 * both + 1e-5) / torch.clip(given + x.sum(axes) + 1e-5, 1e-8)).mean()


def _dice_and_cross_entropy(outputs: list[torch.Tensor], given: dict[str, torch.Tensor]) -> torch.Tensor:
    """DC_and_CE_loss of each resolution, each counted half as much as the larger one; the last not at all."""
    losses = []
    for i, scores in enumerate(outputs[:-1]):
        target = given[f"target_{i}"]
        dice = _dice(scores, target)
        losses.append((functional.cross_entropy(scores, target[:, 0].long()) + dice) / 2**i)
    return sum(losses)


def source(sources, name: str, batch: int):
    """What of a module is recorded (memcalc.record._sources.Source)."""
    variants = [sources.Variant("train"), sources.Variant("eval")]
    if name == "LstmTagger":
        def tokens(batch: int, sequence: int) -> dict[str, torch.Tensor]:
            return {"x": torch.zeros(batch, sequence, dtype=torch.long), "y": torch.zeros(batch, sequence, dtype=torch.long)}

        def tagged(scores: torch.Tensor, given: dict[str, torch.Tensor]) -> torch.Tensor:
            return functional.cross_entropy(scores.flatten(0, 1), given["y"].flatten())

        return sources.Source(LstmTagger, tokens, {"batch": batch, "sequence": 64}, variants, name, "tokcls", tagged)
    if name == "PlainUnet3d":
        def volumes(batch: int, image: int) -> dict[str, torch.Tensor]:
            targets = {f"target_{i}": torch.zeros(batch, 1, *3 * [image >> i], dtype=torch.int16) for i in range(5)}
            return {"x": torch.empty(batch, 1, image, image, image), **targets}

        return sources.Source(PlainUnet3d, volumes, {"batch": batch, "image": 128}, variants, name, "segmentation",
                              _dice_and_cross_entropy, sizes={"image": [96, 160, 224]}, multiples={"image": 32})
    raise ValueError(f"scripts/program_modules.py has no {name}")
