"""Values of tensors while a forward pass is recorded without data.

Integers and booleans that come from the inputs, from constants or from a policy are computed on the CPU beside the
recording, so that `.item()`, `bool(mask.all())`, `nonzero` have answers. Each value knows the policies that it rests on.
"""
from __future__ import annotations

import os
import sys
from typing import Any

LARGEST = 1 << 24  # elements: values of larger tensors are not computed

# What each policy says, for the page and for the error.
POLICIES = {
    "all_tokens_valid": "attention masks are all ones: no token is padding",
    "example_values": "integers in the inputs are those of the example",
    "zeros_without_data": "integers of inputs without data, on the meta device, are zero",
    "balanced_routing": "tokens go to experts evenly: topk, argmax and sort of computed scores pick in turn",
    "all_sdpa_backends": "attention takes the kernel that it takes with all backends enabled, though some are off (off by itself)",
    "finite_values": "isnan, isinf and isfinite find finite numbers",
    "random_draws": "a random number is just under one: a layer is not skipped by layer drop",
}


class ValueNeeded(RuntimeError):
    """The module's Python code asks for a number that depends on data, and no policy answers."""


def module_frame() -> tuple[str, int, str]:
    """(file, line, function) of the innermost code that is neither torch's nor ours."""
    here = os.path.dirname(os.path.abspath(__file__))
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not (name.startswith(here) or f"{os.sep}torch{os.sep}" in name or name.startswith("<")):
            return name, frame.f_lineno, frame.f_code.co_name
        frame = frame.f_back  # type: ignore[assignment]
    return "?", 0, "?"


def refused(what: str) -> ValueNeeded:
    """What no policy answers, with its place in the module's code."""
    file, line, function = module_frame()
    return ValueNeeded(f"{file}:{line}: {function} {what}")


def needed(name: str, hint: str) -> ValueNeeded:
    file, line, function = module_frame()
    place = f"{os.path.basename(file)}:{line}"
    return ValueNeeded(f"{file}:{line}: {function} calls {name}, whose result depends on data that a recording does not "
                       f"have. {hint or ''}policies={{\"{place}\": VALUE}} answers this call.")


class Known:
    """A value on the CPU and the policies that it rests on."""

    __slots__ = ("tensor", "origins")

    def __init__(self, tensor: Any, origins: frozenset[str] = frozenset()) -> None:
        self.tensor, self.origins = tensor, origins
