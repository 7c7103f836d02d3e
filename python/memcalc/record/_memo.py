"""What calls make, once they have been made: the same function of tensors of the same sizes and types makes results of the
same sizes and types, and FakeTensorMode takes some 0.3 ms to find them out anew."""
from __future__ import annotations

from typing import Any, Callable

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily

# Arguments by which results differ. True == 1 == 1.0: numbers that are none of int stand with their type.
AS_THEY_ARE = frozenset([int, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format, type(...)])
WITH_THEIR_TYPE = frozenset([bool, float, complex])
_no_data_pointer = getattr(torch._C, "_set_throw_on_mutable_data_ptr", lambda tensor: None)
_in_autocast = torch.is_autocast_enabled  # before anybody changes it


class Kind:
    """What of a tensor without data a function's result depends on: of equal tensors there is one object."""

    __slots__ = ("shape", "strides", "offset", "dtype", "device", "requires_grad", "numel", "data", "attributes")

    def __init__(self, told: tuple[Any, ...], device: torch.device) -> None:
        self.shape, self.strides, self.offset, self.dtype, _, self.requires_grad = told
        self.device = device
        self.numel = self.shape.numel()
        self.data: torch.Tensor | None = None                # a tensor of the meta device of that kind
        self.attributes: dict[str, Any] | None = None

    def make(self, fake: FakeTensorMode) -> torch.Tensor:
        """A new tensor of the kind, without a gradient."""
        if self.data is None:
            with unset_fake_temporarily(), torch._C.DisableTorchFunction():
                extent = self.offset + sum((n - 1) * step for n, step in zip(self.shape, self.strides)) + 1 if self.numel else 0
                flat = torch.empty(extent, dtype=self.dtype, device="meta")
                self.data = flat.as_strided(self.shape, self.strides, self.offset)
        if self.attributes is None:
            made = FakeTensor(fake, self.data, self.device)
            self.attributes = dict(vars(made))
            return made
        # FakeTensor.__new__ without its checks: what it sets beside is the same for all of a kind.
        made = torch.Tensor._make_subclass(FakeTensor, self.data, False, dispatch_device=True, device_for_backend_keys=self.device)
        made.__dict__.update(self.attributes)
        _no_data_pointer(made)
        return made


class Memo:
    """Results of functions that change none of their arguments."""

    def __init__(self, fake: FakeTensorMode) -> None:
        self._fake = fake
        self._kinds: dict[tuple[Any, ...], Kind] = {}
        self._made: dict[Any, Any] = {}

    def kind(self, tensor: torch.Tensor) -> Kind | None:
        """None: of calls with such a tensor nothing is remembered."""
        if type(tensor) is not FakeTensor or tensor.layout is not torch.strided or tensor.is_conj() or tensor.is_neg(): return None
        return self._kind(tensor, tensor.requires_grad)

    def _kind(self, tensor: FakeTensor, requires_grad: bool) -> Kind:
        device = tensor.fake_device
        told = (tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.dtype, str(device), requires_grad)
        found = self._kinds.get(told)
        if found is None: found = self._kinds[told] = Kind(told, device)
        return found

    def alike(self, tensor: torch.Tensor) -> torch.Tensor:
        """As tensor.detach(): a variable of its own of the same size and type."""
        if type(tensor) is not FakeTensor or not self._is_plain(tensor): return tensor.detach()
        return self._kind(tensor, False).make(self._fake)

    def _is_plain(self, tensor: FakeTensor) -> bool:
        return (tensor.constant is None and tensor.layout is torch.strided and tensor.fake_mode is self._fake
                and not tensor.is_conj() and not tensor.is_neg())

    @staticmethod
    def key(function: Callable[..., Any], told: Any) -> Any:
        """What a result follows from. `told`: of the arguments."""
        return (function, told, _in_autocast("cuda"), _in_autocast("cpu"), torch.get_autocast_dtype("cuda"),
                torch.get_default_dtype(), torch.is_inference_mode_enabled())

    def find(self, key: Any, given: list[torch.Tensor]) -> Any:
        """The result with new tensors, or None. `given`: the tensors in the arguments, which may be in the result."""
        made = self._made.get(key)
        if type(made) is Kind: return made.make(self._fake)
        return None if made is None else self._copy(made, given)

    def _copy(self, made: Any, given: list[torch.Tensor]) -> Any:
        if type(made) is Kind: return made.make(self._fake)
        if type(made) is _Argument: return given[made.place]
        return type(made)(self._copy(item, given) for item in made) if type(made) in (tuple, list) else made

    def keep(self, key: Any, result: Any, given: list[torch.Tensor]) -> None:
        """Remembers a result."""
        places = {id(tensor): place for place, tensor in reversed(list(enumerate(given)))}

        def like(item: Any) -> Any:
            if id(item) in places: return _Argument(places[id(item)])
            if isinstance(item, torch.Tensor):
                if type(item) is not FakeTensor or item.requires_grad or not self._is_plain(item): raise _Untold
                return self._kind(item, False)
            if type(item) in (tuple, list): return type(item)(like(each) for each in item)
            raise _Untold

        with unset_fake_temporarily(), torch._C.DisableTorchFunction():
            try: self._made[key] = like(result)
            except _Untold: pass


class _Untold(Exception):
    """Not to be remembered."""


class _Argument:
    """A tensor of the arguments itself."""

    __slots__ = ("place",)

    def __init__(self, place: int) -> None: self.place = place
