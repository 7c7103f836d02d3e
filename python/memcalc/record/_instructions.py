"""How much Python a forward pass runs: bytecode instructions of the module's own code and of torch's in Python around its operators,
without those of the recording. No clock is in it: it is the same in each run."""
from __future__ import annotations

import contextlib
import os
import sys
from types import CodeType, FrameType
from typing import Any, Iterator

import torch

_TORCH, _PYTHON, _OWN = os.path.dirname(torch.__file__) + os.sep, os.path.dirname(os.__file__) + os.sep, os.path.dirname(__file__) + os.sep
# Of torch what runs around operators with data, too; not what stands in for their kernels here, nor what looks for overridden functions.
_OF_TORCH = tuple(_TORCH + path.replace("/", os.sep) for path in (
    "nn/", "amp/", "autograd/", "distributions/", "fft/", "linalg/", "special/", "functional.py", "_tensor.py", "_jit_internal.py",
    "utils/checkpoint.py", "utils/_contextlib.py"))
_NOT = (_TORCH + os.path.join("nn", "parameter.py"), _TORCH + os.path.join("nn", "attention"))
# Counted where what calls them is: the recording, too, looks up attributes and switches gradients off.
_CALLED_BY_BOTH = (_TORCH + os.path.join("autograd", "grad_mode.py"), _TORCH + "_tensor.py", _TORCH + "amp")
_LOOKED_UP = torch.nn.Module.__getattr__.__code__
# Python 3.11 runs so many times as many for the same code as 3.12 (twelve families of transformers, 1.040 to 1.048).
_OF_3_11 = 1.0435


def _is_of_recording(code: CodeType) -> bool:
    name = code.co_filename
    if name.startswith(_TORCH): return not name.startswith(_OF_TORCH) or name.startswith(_NOT)
    return name.startswith(_OWN) or name.startswith("<")


def _is_called_by_both(code: CodeType) -> bool:
    name = code.co_filename
    if code is _LOOKED_UP or name.startswith(_CALLED_BY_BOTH): return True
    return name.startswith(_PYTHON) and "site-packages" not in name and "dist-packages" not in name


class Instructions:
    """`count`: as Python 3.12 has them."""

    def __init__(self) -> None: self._found = 0

    @property
    def count(self) -> int: return round(self._found if sys.version_info >= (3, 12) else self._found / _OF_3_11)

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """Of what runs within it; not where a debugger is at work."""
        before = sys.gettrace()
        if before is None: sys.settrace(self._entered)
        try: yield
        finally: sys.settrace(before)

    def _entered(self, frame: FrameType, event: str, _: Any) -> Any:
        code, caller = frame.f_code, frame.f_back
        if _is_of_recording(code): return None
        if _is_called_by_both(code) and (caller is None or caller.f_trace is None): return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._traced

    def _traced(self, _: FrameType, event: str, __: Any) -> Any:
        if event == "opcode": self._found += 1
        return self._traced
