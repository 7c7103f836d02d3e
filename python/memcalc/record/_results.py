"""Results of functions that torch's fake tensors do not have, or have otherwise than a card: their sizes and types."""
from __future__ import annotations

from typing import Any

import torch

from ._nests import tensors_in


def cast_type(tensor: torch.Tensor) -> torch.dtype:
    """The type in which autocast's operators of lower precision take the tensor."""
    lower = tensor.is_cuda and tensor.is_floating_point() and torch.is_autocast_enabled("cuda")
    return torch.get_autocast_dtype("cuda") if lower else tensor.dtype


def are_scalars(numbers: Any) -> bool:
    """A list of tensors with a number each: whatever these are, their count is the size of torch.tensor() of it."""
    return isinstance(numbers, list) and bool(numbers) and all(isinstance(each, torch.Tensor) and each.dim() == 0 for each in numbers)


def attention(function: Any, args: Any, kwargs: Any) -> Any:
    query = args[0] if args else kwargs["query"]
    value = args[2] if len(args) > 2 else kwargs["value"]
    if query.dim() != 4: return function(*args, **kwargs)
    batch, heads, length, _ = query.shape
    # Flash and memory-efficient attention write (batch, length, heads, width).
    return query.new_empty((batch, length, heads, value.shape[-1]), dtype=cast_type(query)).transpose(1, 2)


def listless(index: Any, device: torch.device) -> Any:
    """An index whose lists of integers are tensors without data."""
    def change(item: Any) -> Any:
        if isinstance(item, list) and item and all(type(i) is int for i in item):
            return torch.zeros(len(item), dtype=torch.long, device=device)
        return item
    if isinstance(index, tuple): return tuple(change(item) for item in index) if list in map(type, index) else index
    return change(index)


def grouped(args: Any, kwargs: Any) -> torch.Tensor:
    one, other = args[0], args[1]
    offsets = kwargs.get("offs", args[2] if len(args) > 2 else None)
    if one.dim() == 2 and other.dim() == 2: shape: tuple[int, ...] = (offsets.shape[0], one.shape[0], other.shape[1])
    elif one.dim() == 3 and other.dim() == 3: shape = (one.shape[0], one.shape[1], other.shape[2])
    else: shape = (one.shape[-2], other.shape[-1])
    return one.new_empty(shape, dtype=kwargs.get("out_dtype") or one.dtype)


def places(last: str, mask: torch.Tensor, count: int, args: Any, kwargs: Any) -> Any:
    """Of a call that finds the elements that are not zero: `count` of them."""
    if last == "masked_select": return mask.new_empty((count,))
    if last == "where" or kwargs.get("as_tuple", False):
        return tuple(torch.zeros(count, dtype=torch.long, device=mask.device) for _ in range(mask.dim()))
    return torch.zeros((count, mask.dim()), dtype=torch.long, device=mask.device)


def distinct(given: torch.Tensor, count: int, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False,
             dim: None = None) -> Any:
    """torch.unique of what has `count` values."""
    device = given.device
    made = [given.new_empty((count,))]
    if return_inverse: made.append(torch.zeros(given.shape, dtype=torch.long, device=device))
    if return_counts: made.append(torch.zeros(count, dtype=torch.long, device=device))
    return made[0] if len(made) == 1 else tuple(made)


def recurrent(name: str, args: Any) -> Any:
    packed = isinstance(args[1], torch.Tensor) and name == "torch.lstm" or isinstance(args[3], (list, tuple))
    if packed: data, _, hidden, parameters, _, _, _, _, both = args[:9]
    else: data, hidden, parameters, _, _, _, _, both = args[:8]
    states = list(hidden) if isinstance(hidden, (list, tuple)) else [hidden]
    width = states[0].shape[-1] * (2 if both else 1)
    kept = cast_type(data)
    output = data.new_empty((*data.shape[:-1], width), dtype=kept)
    return (output, *(state.new_empty(state.shape, dtype=kept) for state in states))


def cell(args: Any) -> Any:
    """One step of nn.GRUCell and its like, whose fused kernels torch's fake tensors do not have."""
    made = [state.new_empty(state.shape, dtype=cast_type(args[0])) for state in tensors_in(args[1])]
    return tuple(made) if isinstance(args[1], (list, tuple)) else made[0]
