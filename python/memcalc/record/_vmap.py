"""Masks that torch.vmap makes, as the tensors that are really computed with (transformers before 5.0).

Within torch.vmap a function sees numbers; below it functorch's batch rules work on tensors with all levels of the batch
(torch 2.11: aten/src/ATen/functorch/BatchRulesBinaryOps.cpp, BatchRulesFactory.cpp, BatchRulesScatterOps.cpp). A recorder
sees what is above. `Places` does what is below: each operation is a call on whole tensors, with a dimension for each level
that its operands have, and no other.
"""
from __future__ import annotations

import operator
from typing import Any, Callable

import torch


class Places:
    """A number of a mask function: `tensor` has a dimension for each of `levels`, which ascend: batch, head, query, key."""

    def __init__(self, tensor: torch.Tensor, levels: tuple[int, ...]) -> None:
        self.tensor, self.levels = tensor, levels

    @property
    def device(self) -> torch.device: return self.tensor.device

    def over(self, levels: tuple[int, ...]) -> torch.Tensor:
        """The tensor with a dimension for each of `levels`: a view."""
        if self.levels == levels: return self.tensor
        sizes = dict(zip(self.levels, self.tensor.shape))
        return self.tensor.view([sizes.get(level, 1) for level in levels])

    def new_ones(self, shape: tuple[int, ...], **kwargs: Any) -> Places:
        return Places(self.tensor.new_ones((*self.tensor.shape, *shape), **kwargs), self.levels)

    def new_zeros(self, shape: tuple[int, ...], **kwargs: Any) -> Places:
        return Places(self.tensor.new_zeros((*self.tensor.shape, *shape), **kwargs), self.levels)

    def to(self, *args: Any, **kwargs: Any) -> Places: return Places(self.tensor.to(*args, **kwargs), self.levels)
    def __le__(self, other: Any) -> Places: return _of_two(operator.le, self, other)
    def __lt__(self, other: Any) -> Places: return _of_two(operator.lt, self, other)
    def __ge__(self, other: Any) -> Places: return _of_two(operator.ge, self, other)
    def __gt__(self, other: Any) -> Places: return _of_two(operator.gt, self, other)
    def __eq__(self, other: Any) -> Any: return _of_two(operator.eq, self, other)
    def __add__(self, other: Any) -> Places: return _of_two(operator.add, self, other)
    def __sub__(self, other: Any) -> Places: return _of_two(operator.sub, self, other)
    def __and__(self, other: Any) -> Places: return _of_two(operator.and_, self, other)
    def __or__(self, other: Any) -> Places: return _of_two(operator.or_, self, other)
    def __floordiv__(self, other: Any) -> Places: return _of_two(operator.floordiv, self, other)
    def __abs__(self) -> Places: return Places(self.tensor.abs(), self.levels)
    __hash__ = None  # type: ignore[assignment]


def _of_two(operation: Callable[[Any, Any], torch.Tensor], left: Places, right: Any) -> Places:
    if not isinstance(right, Places): return Places(operation(left.tensor, right), left.levels)
    levels = tuple(sorted({*left.levels, *right.levels}))
    return Places(operation(left.over(levels), right.over(levels)), levels)


def at(tensor: torch.Tensor, *places: Places) -> Places:
    """tensor[i, j]"""
    levels = tuple(sorted({level for each in places for level in each.levels}))
    return Places(tensor[tuple(each.over(levels) for each in places)], levels)


def over_all(mask_function: Callable[..., Places], bh_indices: bool = True) -> Callable[..., torch.Tensor]:
    """Stands for transformers' _vmap_for_bhqkv (masking_utils.py, 4.57.6)."""
    first = 0 if bh_indices else 2

    def called(*ranges: Any) -> torch.Tensor:
        mask = mask_function(*(Places(each, (i,)) if i >= first else each for i, each in enumerate(ranges)))
        levels = range(first, len(ranges))
        return mask.over(tuple(levels)).expand([ranges[i].shape[0] for i in levels])

    return called


def padding_mask_function(padding_mask: torch.Tensor) -> Callable[..., Places]:
    return lambda batch, head, query, key: at(padding_mask, batch, key)


def packed_sequence_mask_function(packed: torch.Tensor) -> Callable[..., Places]:
    return lambda batch, head, query, key: at(packed, batch, query) == at(packed, batch, key)
