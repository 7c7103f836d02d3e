"""Tensors in nested tuples, lists, dicts and slices, as arguments and results of calls are."""
from __future__ import annotations

from typing import Any, Callable

import torch
from torch._subclasses.fake_tensor import FakeTensor

_LEAVES = frozenset([int, str, bool, float, type(None), torch.dtype, torch.device])


def tensors_in(thing: Any) -> list[torch.Tensor]:
    """Tensors in nested tuples, lists and dicts, in order."""
    found: list[torch.Tensor] = []
    _gather(thing, found)
    return found


def _gather(thing: Any, found: list[torch.Tensor]) -> None:
    kind = type(thing)
    if kind is FakeTensor: found.append(thing)
    elif kind in _LEAVES: pass
    elif isinstance(thing, (list, tuple)):
        for item in thing: _gather(item, found)
    elif isinstance(thing, torch.Tensor): found.append(thing)
    elif isinstance(thing, dict):
        for item in thing.values(): _gather(item, found)
    elif kind is slice:
        for item in (thing.start, thing.stop, thing.step): _gather(item, found)


def with_tensors(thing: Any, change: Callable[[Any], Any]) -> Any:
    """The same nest with each leaf changed."""
    if isinstance(thing, torch.Size): return thing
    if isinstance(thing, tuple):
        items = [with_tensors(item, change) for item in thing]
        if hasattr(thing, "_fields"): return type(thing)(*items)
        return tuple(items) if type(thing) is tuple else type(thing)(items)
    if isinstance(thing, list): return [with_tensors(item, change) for item in thing]
    if isinstance(thing, dict): return {key: with_tensors(item, change) for key, item in thing.items()}
    if isinstance(thing, slice):
        return slice(change(thing.start), change(thing.stop), change(thing.step))
    return change(thing)
