"""What calls make, once they have been made: the same function of tensors of the same sizes and types makes results of the
same sizes and types, and FakeTensorMode takes some 0.3 ms to find them out anew."""
from __future__ import annotations

from typing import Any, Callable

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily

_PLAIN = (bool, int, float, complex, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format, slice, type(...))


class Memo:
    """Results of functions that change none of their arguments and hand none of them back."""

    def __init__(self, fake: FakeTensorMode) -> None:
        self._fake = fake
        self._made: dict[Any, Any] = {}

    def key(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """None: of these arguments nothing is remembered."""
        try:
            made = (function, _told(args), _told(kwargs), torch.is_autocast_enabled("cuda"), torch.is_autocast_enabled("cpu"),
                    torch.get_autocast_dtype("cuda"), torch.get_default_dtype(), torch.is_inference_mode_enabled())
            hash(made)
        except (TypeError, _Untold): return None
        return made

    def find(self, key: Any) -> Any:
        """New tensors, or None."""
        made = self._made.get(key)
        return None if made is None else self._copy(made)

    def _copy(self, made: Any) -> Any:
        if type(made) is _Like: return FakeTensor(self._fake, made.data, made.device)
        return type(made)(self._copy(item) for item in made) if type(made) in (tuple, list) else made

    def keep(self, key: Any, result: Any, given: list[torch.Tensor]) -> None:
        """Remembers a result, unless an argument is in it."""
        ids = {id(t) for t in given}

        def like(item: Any) -> Any:
            if isinstance(item, torch.Tensor):
                if (type(item) is not FakeTensor or id(item) in ids or item.requires_grad or item.constant is not None
                        or item.layout is not torch.strided or item.fake_mode is not self._fake or item.is_conj() or item.is_neg()): raise _Untold
                return _Like(item)
            if type(item) in (tuple, list): return type(item)(like(each) for each in item)
            raise _Untold

        with unset_fake_temporarily(), torch._C.DisableTorchFunction():
            try: self._made[key] = like(result)
            except _Untold: pass


class _Untold(Exception):
    """Not to be remembered."""


class _Like:
    """A tensor without data of the size and type of another."""

    __slots__ = ("data", "device")

    def __init__(self, item: FakeTensor) -> None:
        extent = item.storage_offset() + sum((n - 1) * step for n, step in zip(item.shape, item.stride())) + 1 if item.numel() else 0
        flat = torch.empty(extent, dtype=item.dtype, device="meta")
        self.data = flat.as_strided(item.shape, item.stride(), item.storage_offset())
        self.device = item.fake_device


def _told(thing: Any) -> Any:
    """What of an argument a function's result depends on."""
    kind = type(thing)
    if kind in _PLAIN: return (kind, thing) if kind is not slice else (kind, _told(thing.start), _told(thing.stop), _told(thing.step))
    if isinstance(thing, torch.Tensor):
        if thing.layout is not torch.strided: raise _Untold
        return (thing.shape, thing.stride(), thing.storage_offset(), thing.dtype, thing.device, thing.requires_grad)
    if kind in (tuple, list, torch.Size): return (kind, *(_told(item) for item in thing))
    if kind is dict: return (kind, *((key, _told(item)) for key, item in thing.items()))
    raise _Untold
