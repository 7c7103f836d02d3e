"""Programs recorded from any `nn.Module`: `memcalc.record(module, example_inputs)`, `python -m memcalc.record`.

Needs PyTorch 2.4 or later, no card and no weights. A program is a forward pass as calls of torch functions on numbered
values, the deaths of Python variables, modules entered and left; docs/programs.md is its format.
"""
from __future__ import annotations

import sys
import types
from typing import Any

__all__ = ["record"]  # the others need torch: they are found when they are asked for


def record(*args: Any, **kwargs: Any) -> Any:  # a Program, whose module needs torch
    """See `memcalc.record._program.record`: torch is imported when something is recorded, not before."""
    from ._program import record as run
    return run(*args, **kwargs)


def __getattr__(name: str) -> Any:
    if name == "Program":
        from ._program import Program
        return Program
    if name == "Variant":
        from ._recordings import Variant
        return Variant
    if name == "Depths":
        from ._stretch import Depths
        return Depths
    if name == "ValueNeeded":
        from ._values import ValueNeeded
        return ValueNeeded
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class _Callable(types.ModuleType):
    """`memcalc.record` is this package and the function at once."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return record(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
