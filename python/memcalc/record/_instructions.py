"""How much Python a forward pass runs: bytecode instructions of the module's own code and of torch's in Python around its operators,
without those of the recording. No clock is in it: it is the same in each run."""
from __future__ import annotations

import contextlib
import os
import sys
from types import CodeType, FrameType
from typing import Any, Iterator

import torch

# What runs when an operator is called that has no data, and the recorder; beside it Python's own modules, which both call.
_OF_A_RECORDING = tuple(os.path.join(os.path.dirname(torch.__file__), *path.split("/")) for path in (
    "_subclasses", "_prims", "_prims_common", "_refs", "_decomp", "_library", "_higher_order_ops", "_meta_registrations.py", "_ops.py", "_guards.py",
    "_logging", "_inductor", "_dynamo", "fx", "overrides.py", "utils/_python_dispatch.py", "utils/_stats.py", "utils/weakref.py", "utils/_traceback.py",
    "utils/_mode_utils.py", "utils/_thunk.py", "_dispatch", "storage.py", "nn/parameter.py", "_vendor")) + (os.path.dirname(__file__),)
_GETATTR = torch.nn.Module.__getattr__.__code__
_PYTHON = os.path.dirname(os.__file__)
# Python 3.11 runs so many times as many for the same code as 3.12 (twelve families of transformers, 1.040 to 1.048).
_OF_3_11 = 1.0435


def _is_counted(code: CodeType) -> bool:
    name = code.co_filename
    if name.startswith("<") or name.startswith(_OF_A_RECORDING): return False
    return not name.startswith(_PYTHON) or "site-packages" in name or "dist-packages" in name


class Instructions:
    """`count`: as Python 3.12 has them."""

    def __init__(self) -> None: self._found = 0

    @property
    def count(self) -> int: return round(self._found if sys.version_info >= (3, 12) else self._found / _OF_3_11)

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """Of what runs within it; not where a debugger or a profiler of instructions is at work."""
        monitoring = getattr(sys, "monitoring", None)
        if monitoring is None:
            before = sys.gettrace()
            if before is None: sys.settrace(self._entered)
            try: yield
            finally: sys.settrace(before)
            return
        tool, event = monitoring.OPTIMIZER_ID, monitoring.events.INSTRUCTION
        if monitoring.get_tool(tool) is not None:
            yield
            return
        monitoring.use_tool_id(tool, "memcalc.record")
        monitoring.register_callback(tool, event, self._instruction)
        monitoring.set_events(tool, event)
        try: yield
        finally:
            monitoring.set_events(tool, 0)
            monitoring.free_tool_id(tool)

    def _instruction(self, code: CodeType, _: int) -> Any:
        if not _is_counted(code): return sys.monitoring.DISABLE  # type: ignore[attr-defined,unused-ignore]
        self._found += 1
        return None

    def _entered(self, frame: FrameType, event: str, _: Any) -> Any:
        if not _is_counted(frame.f_code): return None
        if frame.f_code is _GETATTR and frame.f_back is not None and not _is_counted(frame.f_back.f_code): return None  # the recorder looks
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._traced

    def _traced(self, _: FrameType, event: str, __: Any) -> Any:
        if event == "opcode": self._found += 1
        return self._traced
