"""Example inputs at any sizes of the symbols, and the sizes at which a module is recorded."""
from __future__ import annotations

import copy
import inspect
import itertools
import math
from typing import Any, Callable, Mapping

import torch

from ._recordings import Example
from ._solve import Sizes


def _resized(tensor: torch.Tensor, dimension: int, size: int) -> torch.Tensor:
    if tensor.shape[dimension] == size: return tensor
    return tensor.index_select(dimension, torch.arange(size) % tensor.shape[dimension])


class Source:
    """Example inputs at any sizes of the symbols."""

    def __init__(self, module: Any, example: Any, symbols: Mapping[str, Any] | None) -> None:
        self.bound: dict[str, list[tuple[str, int]]] = {}
        self.defaults: Sizes = {}
        self._make: Callable[..., Example] | None = None
        if callable(example) and not isinstance(example, torch.Tensor):
            self._make = example
            self.defaults = {name: int(value) for name, value in (symbols or {}).items()}
            self.base = dict(example(**self.defaults))
            return
        self.base = self._named(module, example)
        for name, places in (symbols if symbols is not None else self._guess()).items():
            if isinstance(places, int): places = self._places(places)
            self.bound[name] = [(p.rsplit(".", 1)[0], int(p.rsplit(".", 1)[1])) for p in places]
            tensor, dimension = self.bound[name][0]
            self.defaults[name] = self.base[tensor].shape[dimension]

    def _named(self, module: Any, example: Any) -> dict[str, Any]:
        if isinstance(example, Mapping): return dict(example)
        items = list(example) if isinstance(example, (tuple, list)) else [example]
        if not isinstance(module, torch.nn.Module): raise TypeError("example_inputs by name are needed with a factory")
        return dict(zip(list(inspect.signature(module.forward).parameters), items))

    def _places(self, size: int) -> list[str]:
        return [f"{name}.{i}" for name, t in self.base.items() if isinstance(t, torch.Tensor)
                for i, n in enumerate(t.shape) if n == size]

    def _guess(self) -> dict[str, list[str]]:
        """`batch`: the first dimension of all inputs; `sequence`: the second one of the integer inputs of two."""
        tensors = {name: t for name, t in self.base.items() if isinstance(t, torch.Tensor) and t.dim() > 0}
        found: dict[str, list[str]] = {}
        if tensors and len({t.shape[0] for t in tensors.values()}) == 1: found["batch"] = [f"{name}.0" for name in tensors]
        lengths = {name: t for name, t in tensors.items() if t.dim() == 2 and not t.is_floating_point()}
        if "batch" in found and lengths and len({t.shape[1] for t in lengths.values()}) == 1:
            found["sequence"] = [f"{name}.1" for name in lengths]
        return found

    def at(self, sizes: Sizes) -> dict[str, Any]:
        if self._make is not None: return dict(self._make(**sizes))
        made = dict(self.base)
        for symbol, places in self.bound.items():
            for name, dimension in places: made[name] = _resized(made[name], dimension, sizes[symbol])
        return made


def other_sizes(name: str, default: int, multiple: int, chosen: Mapping[str, list[int]]) -> list[int]:
    """Three further sizes without common factors, or those that were chosen."""
    if name in chosen:
        fitting = [n for n in chosen[name] if n != default]
        if len(fitting) < 3: raise ValueError(f"sizes of {name}: three that are not the example's {default} are needed, not {chosen[name]}")
        return fitting
    if default <= 16: return [n for n in (3, 5, 7, 11) if n != default][:3]
    if multiple > 1:
        steps = [n for n in (11, 7, 5, 3, 2, 13) if n * multiple != default]
        return [n * multiple for n in sorted(steps, key=lambda n: abs(n * multiple / default - 0.7))[:3]]

    def prime(n: int) -> bool: return all(n % d for d in range(2, int(n**0.5) + 1))

    found: list[int] = []
    for share in (0.65, 0.41, 0.29) if multiple == 1 else (0.65, 0.79, 1.3):  # longer ones for loops with few runs
        n = int(default * share)
        while not prime(n) or n in found: n -= 1
        found.append(max(n, 3))
    return found


def points(defaults: Sizes, free: list[str], others: dict[str, list[int]]) -> list[Sizes]:
    """Sizes to record at: the defaults, each symbol alone, mixed ones, and one where all are different, as a check."""
    points = [dict(defaults)]
    for symbol in free: points.append({**defaults, symbol: others[symbol][0]})
    if len(free) == 1:
        points.append({**defaults, free[0]: others[free[0]][1]})
    else:
        for symbol in free:
            points.append({**defaults, **{s: others[s][1 if s == symbol else 0] for s in free}})
    if free: points.append({**defaults, **{s: others[s][2] for s in free}})
    points += [{**defaults, s: size} for s in free for size in others[s][3:]]
    return points


def apart(source: Source, symbol: str, choices: list[list[int]]) -> tuple[Source, list[list[int]]]:
    """The source with another default of the symbol, and the further sizes at which it is then recorded."""
    sizes = [n for n in choices[0] if n != source.defaults[symbol]]
    step = math.gcd(*sizes)
    apart = copy.copy(source)
    apart.defaults = {**source.defaults, symbol: next(n for n in itertools.count(max(sizes) + step, step) if n != source.defaults[symbol])}
    return apart, [sizes]
