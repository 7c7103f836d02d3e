"""Functions that memcalc's table does not have and that ATen composes of operators that it has: what they call is recorded in their place."""
from __future__ import annotations

from typing import Any, Callable

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ._names import MODELLED
from ._nests import tensors_in

Json = Any
# ATen's names for what the table has under another one.
_SAME = {"_unsafe_view": "view", "alias": "detach"}
_VALUES = frozenset("_local_scalar_dense is_nonzero".split())


class NotComposed(Exception):
    """It calls what the table does not have, or nothing but itself."""


def _is_composite(function: Any) -> bool:
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(function.name(), "CompositeImplicitAutograd"))


_COMPOSED = torch._C.DispatchKey.CompositeImplicitAutograd


def _is_cast_of_autocast() -> bool:
    return bool(torch._C._dispatch_tls_is_dispatch_key_excluded(torch._C.DispatchKey.AutocastCUDA))


class Inside(TorchDispatchMode):
    """Hears the operators of ATen that a function calls: `heard(name, args, kwargs, result)` each; `same(of, tensor)` where a
    tensor is another one that autocast has cast."""

    def __init__(self, heard: Callable[[str, Any, Any, Any], None], same: Callable[[torch.Tensor, torch.Tensor], None]) -> None:
        super().__init__()
        self.heard, self.same = heard, same
        self._depth = 0  # composed functions that run

    def _inside(self, function: Any, args: Any, kwargs: Any) -> Any:
        is_cast = function._schema.name == "aten::to"
        self._depth += not is_cast
        try:
            with self: return function._op_dk(_COMPOSED, *args, **kwargs)  # not what Python has in its place (decompose)
        finally: self._depth -= not is_cast

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function.namespace != "aten": return function(*args, **kwargs)
        if _is_composite(function): return self._inside(function, args, kwargs)
        name = function._schema.name.removeprefix("aten::")
        if name == "equal":  # istft asks whether a window's sum is zero somewhere, and would fail
            self.heard("__bool__", args[:1], {}, None)
            return False
        result = function(*args, **kwargs)
        # What autocast casts for an operator of the inside, it casts for that in a program, too; for the function itself it does not.
        if self._depth > 0 and name == "_to_copy" and torch.is_autocast_enabled("cuda") and _is_cast_of_autocast():
            self.same(args[0], result)
            return result
        self.heard(*_told(name, args, kwargs, result))
        return result


def _told(name: str, args: Any, kwargs: Any, result: Any) -> tuple[str, Any, Any, Any]:
    """The call as the table has it."""
    if name in _VALUES: raise NotComposed(name)
    kwargs = {key: item for key, item in kwargs.items() if item is not None and key not in ("layout", "pin_memory", "non_blocking")}
    if name == "_to_copy":
        kwargs = {key: item for key, item in kwargs.items() if key in ("dtype", "memory_format")}
        return ("to" if kwargs else "clone"), args, kwargs, result
    if name == "slice":
        parts: list[Any] = [*args, *[0, None, None, 1][len(args) - 1:]]
        this, dim, start, end, step = parts
        if step != 1: return "__getitem__", (this, (*(slice(None),) * (dim % this.dim()), slice(start, end, step))), {}, result
        return "narrow", (this, dim, (start or 0) % max(this.size(dim), 1) if (start or 0) < 0 else start or 0, result.size(dim)), {}, result
    if name == "index": return "__getitem__", (args[0], tuple(slice(None) if item is None else item for item in args[1])), {}, result
    if name in ("_fft_r2c", "_fft_c2r") and len(args[1]) == 1:
        length = args[0].size(args[1][0]) if name == "_fft_r2c" else args[3]
        return ("rfft" if name == "_fft_r2c" else "irfft"), (args[0], length, args[1][0]), {}, result
    name = _SAME.get(name, name)
    if name.startswith("linalg_"): name = name.removeprefix("linalg_")
    if name in ("view", "expand", "permute", "reshape", "repeat"): args = (args[0], *args[1])
    if name not in MODELLED: raise NotComposed(name)
    return name, args, kwargs, result


def may_be_composed(name: str, last: str, args: Any, kwargs: Any, given: list[torch.Tensor]) -> bool:
    """Whether a function is to be recorded by what is inside of it."""
    if name == "torch.linalg.norm":  # the table's norm() is of vectors; of a matrix an order means another norm
        return args[0].dim() == 2 and (args[1] if len(args) > 1 else kwargs.get("ord")) not in (None, "fro")
    if last == "einsum": return len(tensors_in(args)) > 2  # of two the table has it
    return last not in MODELLED and bool(given)
