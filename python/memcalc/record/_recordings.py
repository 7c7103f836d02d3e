"""Recordings of a module in its variants: what a variant sets, and the passes, each made once."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Mapping

import torch
import torch.utils.checkpoint

from ._run import Build, Recording, build, record as run

Example = Mapping[str, Any]


@dataclass
class Variant:
    """One forward pass that a program has: its mode, and what else makes it differ."""

    mode: str = "train"                                    # or "eval"
    keys: dict[str, bool] = field(default_factory=dict)    # as {"cache": True}
    inputs: list[str] | None = None                        # names of the inputs that are passed; None: all
    arguments: dict[str, Any] = field(default_factory=dict)  # as {"use_cache": True}
    config: dict[str, Any] = field(default_factory=dict)   # set on module.config before, see settings_of
    copies: bool = True                                    # and on the configurations of its parts
    checkpointing: bool = False                            # as under transformers' gradient checkpointing
    regions: bool = False                                  # as under diffusers', whose regions are then the program's
    gradients: bool | None = None                          # None: in train mode
    compiling: bool = False                                # as torch.compile traces it
    precisions: tuple[str, ...] | None = None              # None: those of the program


class Recordings:
    """Makes recordings of a module, which is built once for each type of weights."""

    def __init__(self, make: Any, policies: dict[str, Any], loss: Any, step: Any = None) -> None:
        self.make, self.policies, self.loss, self.step = make, policies, loss, step
        self._builds: dict[str, Build] = {}
        self._first: dict[str, Recording] = {}  # the first ones, which several questions ask for
        self.count = 0

    def built(self, precision: str) -> Build:
        key = "bfloat16" if precision.endswith("bfloat16") else "float32"
        if key not in self._builds: self._builds[key] = build(self.make, key, self.policies)
        return self._builds[key]

    def record(self, variant: Variant, precision: str, example: Example) -> Recording:
        key = repr([variant, precision, [(name, _told(item)) for name, item in example.items()]])
        if key in self._first: return self._first[key]
        made = self._record(variant, precision, example)
        if len(self._first) < _KEPT: self._first[key] = made
        return made

    def _record(self, variant: Variant, precision: str, example: Example) -> Recording:
        built = self.built(precision)
        built.precision = precision
        inputs = {k: v for k, v in example.items() if variant.inputs is None or k in variant.inputs}
        settings = settings_of(built, variant)
        before = [(owner, key, getattr(owner, key, _NOTHING)) for owner, key, _ in settings]
        for owner, key, value in settings: setattr(owner, key, value)
        try:
            made = run(built, inputs, train=variant.mode == "train", loss=self.loss, arguments=dict(variant.arguments),
                       gradients=variant.mode == "train" if variant.gradients is None else variant.gradients,
                       compiling=variant.compiling, step=self.step)
        finally:
            for owner, key, old in before:
                if old is _NOTHING: delattr(owner, key)
                else: setattr(owner, key, old)
        self.count += 1
        return made


_NOTHING = object()
_KEPT = 8  # more are not asked for twice


def _told(item: Any) -> Any:
    """What tells an input from that of other sizes: its shape, and of a few numbers (grids) these."""
    if not isinstance(item, torch.Tensor): return item
    return (tuple(item.shape), item.tolist() if item.device.type == "cpu" and item.numel() <= 64 else None)


def _called(function: Any, *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)


def _in_region(module: Any, *args: Any) -> Any:
    """ModelMixin.enable_gradient_checkpointing (diffusers 0.42)."""
    return torch.utils.checkpoint.checkpoint(module.__call__, *args, use_reentrant=False)


def settings_of(built: Build, variant: Variant) -> list[tuple[Any, str, Any]]:
    """(object, attribute, value): what a variant sets. Parts have configurations of their own, copies (T5's decoder) or
    parts of it (a text_config). In these a choice is switched off only: T5's encoder must not have a cache."""
    own = getattr(built.module, "config", None)
    found = [(own, key, value) for key, value in variant.config.items()
             if own is not None and (hasattr(own, key) or not variant.copies)]  # without copies as the Trainer: in any case
    if variant.checkpointing:
        for part in built.structure.checkpointing:
            found += [(part, "gradient_checkpointing", True), (part, "_gradient_checkpointing_func", _in_region if variant.regions else _called)]
    if not variant.copies: return found
    return found + [(config, key, value) for config in built.structure.configurations if config is not own
                    for key, value in variant.config.items() if value is False and getattr(config, key, None) is True]
