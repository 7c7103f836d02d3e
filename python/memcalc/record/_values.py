"""Values of tensors while a forward pass is recorded without data.

Integers and booleans that come from the inputs, from constants or from a policy are computed on the CPU beside the
recording, so that `.item()`, `bool(mask.all())`, `nonzero` have answers. Each value knows the policies that it rests on.
"""
from __future__ import annotations

import ast
import functools
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
    "random_draws": "a random number is just under one, or the most that it can be: a layer is not skipped by layer drop",
    "no_errors": "a check of data that would raise finds nothing wrong",
    "any_matching": "scipy's linear_sum_assignment pairs as many rows and columns as there can be, in order",
}


class NotMade(RuntimeError):
    """What makes the module fails: a configuration that its class refuses."""


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


@functools.cache
def _checks(file: str) -> tuple[tuple[int, int, bool], ...]:
    """Tests of a file whose other outcome raises: first and last line, and what each truth value in the test is where nothing
    is raised. A test whose parts would differ is left out: a line does not say which of them is asked."""
    try:
        with open(file, encoding="utf-8") as opened: tree = ast.parse(opened.read())
    except (OSError, SyntaxError, ValueError):
        return ()

    def answers(test: ast.expr, wanted: bool) -> set[bool]:
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not): return answers(test.operand, not wanted)
        if isinstance(test, ast.BoolOp): return set().union(*(answers(each, wanted) for each in test.values))
        return {wanted}

    def fails(statement: ast.stmt) -> bool:  # raise, or torchvision's torch._assert(False, …)
        if isinstance(statement, ast.Raise): return True
        if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call): return False
        call = statement.value
        return (isinstance(call.func, ast.Attribute) and call.func.attr == "_assert" and len(call.args) > 0
                and isinstance(call.args[0], ast.Constant) and call.args[0].value is False)

    found = []
    for node in ast.walk(tree):
        if not isinstance(node, (ast.If, ast.Assert)): continue
        if isinstance(node, ast.If) and not fails(node.body[-1]): continue
        wanted = answers(node.test, isinstance(node, ast.Assert))
        if len(wanted) == 1: found.append((node.test.lineno, node.test.end_lineno or node.test.lineno, wanted.pop()))
    return tuple(found)


_DISTRIBUTION = os.path.join("torch", "distributions", "distribution.py")


def passing(asked: str) -> bool | None:
    """What the module's check answers where it does not raise; None where its line is no such check."""
    frame = sys._getframe(1)
    while frame is not None and not frame.f_code.co_name.startswith("_check_tensor_all"): frame = frame.f_back  # type: ignore[assignment]
    if frame is not None: return True  # torch._check_tensor_all_with, by which transformers' torch_compilable_check asks
    frame = sys._getframe(1)
    while frame is not None and not frame.f_code.co_filename.endswith(_DISTRIBUTION): frame = frame.f_back
    if frame is not None and frame.f_code.co_name in ("__init__", "_validate_sample"): return True  # raises what is no number of its kind
    file, line, _ = module_frame()
    if not asked.endswith("__bool__"): return None
    return next((value for first, last, value in _checks(file) if first <= line <= last), None)


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
