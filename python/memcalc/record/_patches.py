"""What is changed in torch and transformers while a module is recorded, so that the path of a real eager run is taken."""
from __future__ import annotations

import contextlib
import copy
import ctypes
import logging
import sys
import types
import warnings
import weakref
from pathlib import Path
from typing import Any, Iterator

import torch
import torch.utils.checkpoint

from . import _vmap
from ._custom import custom
from ._names import KNOWN
from ._nests import tensors_in
from ._recorder import Recorder, without_check
from ._values import refused


_HAS_FAKE_GUARD = hasattr(torch._C, "_ensureCUDADeviceGuardSet")  # FakeTensorMode itself does without a driver


class _Properties:
    """A card to ask for its properties: an H100's, as far as libraries look."""

    name, major, minor, total_memory, multi_processor_count = "NVIDIA H100 80GB HBM3", 9, 0, 85_028_372_480, 132
    warp_size, L2_cache_size, gcnArchName = 32, 52_428_800, ""


def _card() -> list[tuple[Any, str, Any]]:
    cuda, fake = torch.cuda, torch._subclasses.fake_tensor
    starts = "init_gpu_context" if hasattr(fake, "init_gpu_context") else "init_cuda_context"  # its name in torch 2.4
    changes: list[tuple[Any, str, Any]] = [
        (cuda, "is_available", lambda: True), (cuda, "device_count", lambda: 1), (cuda, "current_device", lambda: 0),
        (cuda, "get_device_capability", lambda *_: (9, 0)), (cuda, "get_device_properties", lambda *_: _Properties),
        (cuda, "get_device_name", lambda *_: _Properties.name), (cuda, "is_bf16_supported", lambda *_, **__: True),
        (cuda, "is_current_stream_capturing", lambda: False), (cuda, "synchronize", lambda *_: None),
        (cuda, "empty_cache", lambda: None), (cuda, "_lazy_init", lambda: None),
        (fake, starts, lambda *_: None),
        (torch.cuda.amp.common, "amp_definitely_not_available", lambda: False),
        (torch.amp.autocast_mode, "is_autocast_available", lambda _: True),
    ]
    if not _HAS_FAKE_GUARD:  # which backend convolves is asked of the driver, too
        backends = torch._C._ConvBackend
        changes.append((torch._C, "_select_conv_backend", lambda *_, **given: (
            backends.CudnnTranspose if given["transposed"] else backends.Cudnn)))
    return changes


@contextlib.contextmanager
def _without_driver() -> Iterator[None]:
    """Torch without `_ensureCUDADeviceGuardSet` (2.4 and 2.6 were tried) makes the device of each fake tensor the current one, for
    which it asks the driver. The guard of meta tensors, which does nothing, stands for CUDA's meanwhile (c10/core/DeviceType.h,
    c10/core/impl/DeviceGuardImplInterface.h; the names are those of Linux and macOS)."""
    library = Path(torch.__file__).parent / "lib" / ("libc10.dylib" if sys.platform == "darwin" else "libc10.so")
    if _HAS_FAKE_GUARD or not library.exists():
        yield
        return
    of_cuda, of_meta = 1, 14
    guards = (ctypes.c_void_p * (of_meta + 1)).in_dll(ctypes.CDLL(str(library)), "_ZN3c104impl26device_guard_impl_registryE")
    before, guards[of_cuda] = guards[of_cuda], guards[of_meta]
    try: yield
    finally: guards[of_cuda] = before


def _compiling(recorder: Recorder) -> list[tuple[Any, str, Any]]:
    """What is otherwise where torch.compile traces: who asks gets yes, and a message breaks the graph (LoggingLoggerVariable;
    Dynamo looks through functools.cache, which lets a `warning_once` pass)."""
    def is_compiling() -> bool:
        return not sys._getframe(1).f_globals.get("__name__", "").startswith(("torch._", "torch.utils", "torch.fx"))

    asked = (torch.compiler.is_compiling, getattr(torch.compiler, "is_dynamo_compiling", None))
    changes: list[tuple[Any, str, Any]] = [
        (module, name, is_compiling) for module in list(sys.modules.values())
        if getattr(module, "__name__", "") == "torch.compiler" or not getattr(module, "__name__", "torch").startswith("torch.")
        for name in ("is_compiling", "is_dynamo_compiling") if vars(module).get(name) in asked and name in vars(module)]

    def untraced(what: str, is_context: bool = False) -> None:
        of_torch = sys._getframe(2).f_globals.get("__name__", "").split(".")[0] == "torch"  # an operator's own
        if of_torch or not recorder.recording: return
        recorder.breaks_graph(what, is_context)
        recorder.events.append(("untraced",))

    def message(what: str) -> Any:
        def said(*_: Any, **__: Any) -> None: untraced(what)
        return said

    def deepcopy(*args: Any, **kwargs: Any) -> Any:  # transformers' caches of encoder-decoders copy a configuration
        untraced("copy.deepcopy")
        return copied(*args, **kwargs)

    def flags(*args: Any, **kwargs: Any) -> Any:  # with torch.backends.cudnn.flags(enabled=False): ctc_loss(...)
        untraced("torch.backends.cudnn.flags", is_context=True)
        return flagged(*args, **kwargs)

    copied, flagged = copy.deepcopy, torch.backends.cudnn.flags
    names = "debug info warning warn error exception critical log warning_once warning_advice info_once".split()
    changes += [(logging.Logger, name, message(f"logging.Logger.{name}")) for name in names if hasattr(logging.Logger, name)]
    return [*changes, (warnings, "warn", message("warnings.warn")), (copy, "deepcopy", deepcopy),
            (torch.backends.cudnn, "flags", flags)]


def _transformers(compiling: bool) -> list[tuple[Any, str, Any]]:
    changes: list[tuple[Any, str, Any]] = []
    utilities = sys.modules.get("transformers.utils.import_utils")
    if utilities is not None:
        if hasattr(utilities, "is_fake_tensor"): changes.append((utilities, "is_fake_tensor", lambda _: False))
        elif hasattr(utilities, "is_tracing") and not compiling:
            for module in list(sys.modules.values()):
                if getattr(module, "__name__", "").startswith("transformers.") and "is_tracing" in vars(module):
                    changes.append((module, "is_tracing", lambda *_: False))
    masks = sys.modules.get("transformers.masking_utils")
    if masks is not None and hasattr(masks, "_non_vmap_expansion_sdpa"):
        def broadcast(function: Any) -> Any:
            return lambda *indices: function(*masks._non_vmap_expansion_sdpa(*indices))
        changes.append((masks, "_vmap_expansion_sdpa", broadcast))
    elif masks is not None and hasattr(masks, "_vmap_for_bhqkv"):  # before 5.0
        changes += [(masks, "_vmap_for_bhqkv", _vmap.over_all),
                    (masks, "padding_mask_function", _vmap.padding_mask_function),
                    (masks, "packed_sequence_mask_function", _vmap.packed_sequence_mask_function)]
    return changes


def _functions() -> list[tuple[Any, str, Any]]:
    """Python functions of torch.nn.functional that are no operator: their bodies run as any Python code does."""
    functional = torch.nn.functional
    return [(functional, name, without_check(f)) for name, f in vars(functional).items()
            if isinstance(f, types.FunctionType) and f.__module__ == functional.__name__
            and f"torch.nn.functional.{name}" not in KNOWN and "has_torch_function" in " ".join(f.__code__.co_names)]


def _matching(recorder: Recorder) -> list[tuple[Any, str, Any]]:
    """The Hungarian matching of detection's losses, wherever it was imported from scipy."""
    name = "linear_sum_assignment"
    original = getattr(sys.modules.get("scipy.optimize"), name, None)
    if original is None: return []
    original = getattr(original, "original", original)

    def assignment(cost_matrix: Any, *args: Any, **kwargs: Any) -> Any:
        if not recorder.recording or not isinstance(cost_matrix, torch.Tensor): return original(cost_matrix, *args, **kwargs)
        return recorder.matching(cost_matrix)

    assignment.original = original  # type: ignore[attr-defined]
    # A module that was imported while another recording had it changed has that one's.
    return [(module, name, assignment) for module in list(sys.modules.values())
            if original in (vars(module).get(name), getattr(vars(module).get(name), "original", None))]


class _ChangedAlike:
    """What every recording of a module changes, found once for as many modules as Python has loaded."""

    def __init__(self, recorder: Recorder) -> None:
        checkpoint = torch.utils.checkpoint.checkpoint
        self.checkpointing = [module for module in list(sys.modules.values()) if vars(module).get("checkpoint") is checkpoint]
        self.changes = [*_card(), *_transformers(recorder.compiling), *_functions(), *_matching(recorder),
                        *(_compiling(recorder) if recorder.compiling else [])]


def _changed_alike(recorder: Recorder) -> _ChangedAlike:
    known, key = recorder.changed_alike, (recorder.compiling, len(sys.modules))
    if key not in known: known[key] = _ChangedAlike(recorder)
    return known[key]


@contextlib.contextmanager
def patched(recorder: Recorder) -> Iterator[None]:
    autocast = torch.amp.autocast_mode.autocast
    call, enter, leave = torch.nn.Module.__call__, autocast.__enter__, autocast.__exit__
    is_enabled, script_call = torch.is_autocast_enabled, torch._C.ScriptFunction.__call__

    def module_call(module: Any, *args: Any, **kwargs: Any) -> Any:
        if not recorder.recording or id(module) not in recorder.paths: return call(module, *args, **kwargs)
        recorder.enter(module, args, kwargs)
        result = call(module, *args, **kwargs)
        recorder.leave(result)
        return result

    def autocast_enter(self: Any) -> Any:
        if recorder.recording and self.device in ("cuda", "cpu"):
            dtype = str(self.fast_dtype)[len("torch."):] if self._enabled else None
            recorder.events.append(("autocast", self.device, bool(self._enabled), dtype))
        return enter(self)

    def autocast_exit(self: Any, *args: Any) -> Any:
        if recorder.recording and self.device in ("cuda", "cpu"): recorder.events.append(("autocast_end",))
        return leave(self, *args)

    def autocast_is_enabled(*args: Any) -> bool:
        # transformers' maybe_autocast enters a region only under autocast; a program has the region in every precision.
        if recorder.recording and sys._getframe(1).f_code.co_name == "maybe_autocast": return True
        return is_enabled(*args)

    def grad_region(original: Any, enabled: bool) -> Any:
        def entered(self: Any) -> None:
            if recorder.recording: recorder.events.append(("grad", enabled))
            with recorder.quiet(): original(self)
        return entered

    def grad_region_left(original: Any) -> Any:
        def left(self: Any, *args: Any) -> None:
            with recorder.quiet(): original(self, *args)
            if recorder.recording: recorder.events.append(("grad_end",))
        return left

    replaced: dict[int, tuple[Any, Any]] = {}

    def module_apply(module: Any, change: Any, recurse: bool = True) -> Any:
        # A conversion gives new parameters: fake tensors cannot be swapped while somebody watches them.
        if recurse:
            for child in module.children(): child._apply(change)
        for key, parameter in module._parameters.items():
            if parameter is None: continue
            if id(parameter) not in replaced:
                made = change(parameter)
                made = parameter if made is parameter else torch.nn.Parameter(made, parameter.requires_grad)
                replaced[id(parameter)] = (parameter, made)
            module._parameters[key] = replaced[id(parameter)][1]
        for key, buffer in module._buffers.items():
            if buffer is not None: module._buffers[key] = change(buffer)
        return module

    def registered(original: Any) -> Any:
        def register(module: Any, name: str, tensor: Any = None, *args: Any, **kwargs: Any) -> None:
            if not recorder.recording and tensor is not None: recorder.created.append((weakref.ref(module), name))
            original(module, name, tensor, *args, **kwargs)
        return register

    def script_function(self: Any, *args: Any, **kwargs: Any) -> Any:
        original = getattr(self, "_torchdynamo_inline", None)
        return original(*args, **kwargs) if original is not None else script_call(self, *args, **kwargs)

    def function_apply(kind: Any, *args: Any, **kwargs: Any) -> Any:
        if not recorder.recording: return apply.__func__(kind, *args, **kwargs)
        return custom(recorder, kind, args)

    def no_backward(original: Any, name: str) -> Any:
        def called(*args: Any, **kwargs: Any) -> Any:
            if not recorder.recording: return original(*args, **kwargs)
            raise refused(f"calls {name} within its forward pass, or in a custom function's backward: a backward pass inside of "
                          "the recorded one is not recorded")
        return called

    def vmap(*args: Any, **kwargs: Any) -> Any:
        if not recorder.recording: return mapped(*args, **kwargs)
        raise refused("calls torch.vmap: what its function does to a number is done to whole tensors, which is not recorded")

    def checkpoint(function: Any, *args: Any, use_reentrant: bool | None = None, context_fn: Any = None,
                   determinism_check: str = "", debug: bool = False, **kwargs: Any) -> Any:
        if not recorder.recording: return function(*args, **kwargs)
        kwargs.pop("preserve_rng_state", None)
        reentrant = use_reentrant is None or bool(use_reentrant)  # None: torch warns and takes it (checkpoint.py, 2.11)
        recorder.events.append(("checkpoint", reentrant, *recorder.given(args, kwargs)))
        result = function(*args, **kwargs)
        recorder.events.append(("checkpoint_end", [recorder.encode(t) for t in tensors_in(result)]))
        return result

    apply = torch.autograd.Function.__dict__["apply"]
    mapped = torch._functorch.apis.vmap_impl
    changed_alike = _changed_alike(recorder)
    changes = [(torch.autograd.Function, "apply", classmethod(function_apply)),
               *((module, "checkpoint", checkpoint) for module in changed_alike.checkpointing),
               *((torch.nn.Module, name, registered(getattr(torch.nn.Module, name)))
                 for name in ("register_parameter", "register_buffer")),
               (torch._functorch.apis, "vmap_impl", vmap),
               (torch.autograd, "grad", no_backward(torch.autograd.grad, "torch.autograd.grad")),
               (torch.autograd, "backward", no_backward(torch.autograd.backward, "backward()")),
               (torch.nn.Module, "__call__", module_call), (torch.nn.Module, "_apply", module_apply),
               (autocast, "__enter__", autocast_enter),
               (autocast, "__exit__", autocast_exit), (torch, "is_autocast_enabled", autocast_is_enabled),
               (torch.no_grad, "__enter__", grad_region(torch.no_grad.__enter__, False)),
               (torch.no_grad, "__exit__", grad_region_left(torch.no_grad.__exit__)),
               (torch.enable_grad, "__enter__", grad_region(torch.enable_grad.__enter__, True)),
               (torch.enable_grad, "__exit__", grad_region_left(torch.enable_grad.__exit__)),
               (torch._subclasses.FakeTensor, "tolist", torch.Tensor.tolist),  # its own asks for one number after the other
               (torch._C.ScriptFunction, "__call__", script_function), *changed_alike.changes]
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    before = [(owner, name, vars(owner)[name] if name in vars(owner) else getattr(owner, name)) for owner, name, _ in changes]
    try:
        for owner, name, value in changes: setattr(owner, name, value)
        with _without_driver(): yield
    finally:
        for owner, name, value in reversed(before): setattr(owner, name, value)
        logger.setLevel(level)
