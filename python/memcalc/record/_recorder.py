"""One forward pass, watched: calls of torch functions on numbered values, the deaths of Python variables, modules.

Tensors are fake (no data, `cuda:0` without a card). Autograd is left out below the Python functions: a graph would keep
variables alive. What `requires_grad` answers is kept here.
"""
from __future__ import annotations

import contextlib
import inspect
import math
import types
import weakref
from typing import Any, Iterator

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedFakeTensorException,
    unset_fake_temporarily,
)
from torch.overrides import TorchFunctionMode

from . import _results as results
from ._decomposed import Inside, NotComposed, may_be_composed
from ._graphs import Events
from ._known_values import NOTHING, Info, KnownValues
from ._memo import AS_THEY_ARE, WITH_THEIR_TYPE, Kind, Memo
from ._names import TENSOR_PROPERTIES, Called, Names, Way, is_in_place
from ._nests import tensors_in, with_tensors
from ._values import module_frame, needed, passing, refused

Json = Any
_DYNAMIC = (DataDependentOutputException, DynamicOutputShapeException, UnsupportedFakeTensorException,
            NotImplementedError)
_WITHOUT_GRADIENT = frozenset("""detach detach_ data zeros_like ones_like empty_like full_like rand_like randn_like
    randint_like new_zeros new_ones new_empty new_full new_tensor bernoulli floor ceil round sign one_hot""".split())
_OF_NUMBERS = frozenset("torch.div torch.true_divide torch.floor_divide torch.remainder torch.add torch.sub torch.mul".split())
_CELLS = frozenset("torch.gru_cell torch.lstm_cell torch.rnn_tanh_cell torch.rnn_relu_cell".split())
_RECURRENT = {"torch.lstm": 2, "torch.gru": 1, "torch.rnn_tanh": 1, "torch.rnn_relu": 1}
# Their results' sizes were computed here, but are those of the arguments.
_SIZED_BY_ARGUMENTS = frozenset("index_put tensor as_tensor asarray scalar_tensor".split())
# First values, of which nothing has a size or a type: they are not drawn.
_FILLS = frozenset("""normal_ uniform_ fill_ zero_ ones_ zeros_ constant_ trunc_normal_ kaiming_uniform_ kaiming_normal_
    xavier_uniform_ xavier_normal_""".split())
_PADDED = frozenset("conv1d conv2d conv3d".split())  # padding="valid" and "same"
_COUNTED = frozenset("where nonzero masked_select".split())  # their results are as many as a mask has, which a policy may say
_INDEXED = frozenset("__getitem__ __setitem__ index_put index_put_ index".split())
# The last parts of the names for which `_by_rule` has rules, and of those that may take whole numbers as tensors.
_RULED = frozenset("""lstm gru rnn_tanh rnn_relu gru_cell lstm_cell rnn_tanh_cell rnn_relu_cell grouped_mm _grouped_mm ctc_loss
    _pack_padded_sequence tensor as_tensor asarray scalar_tensor new_tensor repeat_interleave new_full unique nms""".split()) | _INDEXED | _COUNTED | _PADDED
_TAKE_NUMBERS = frozenset("__getitem__ __setitem__ view reshape split expand".split())
_NO_CHECK = {name: (lambda *_: False) for name in
             ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")}


def without_check(function: types.FunctionType) -> types.FunctionType:
    """The function, not asking whether a mode wants it: its body runs, and the mode sees what the body calls."""
    made = types.FunctionType(function.__code__, {**function.__globals__, **_NO_CHECK}, function.__name__,
                              function.__defaults__, function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def _without_autograd() -> Any:
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView)
    for name in dir(torch._C.DispatchKey):
        if name.startswith("Autograd") and name != "AutogradPrivateUse3_":
            keys = keys.add(getattr(torch._C.DispatchKey, name))
    return torch._C._ExcludeDispatchKeyGuard(keys)


class Recorder(KnownValues, TorchFunctionMode):
    """Sees calls while it is on the stack of modes. `events` is the recording."""

    def __init__(self, fake: FakeTensorMode, policies: dict[str, Any]) -> None:
        super().__init__(policies)
        self.fake = fake
        self.names = Names()
        self.events: list[tuple[Any, ...]] = []
        self.compiling = False           # as torch.compile traces the module
        self.module_tensors: dict[int, str] = {}
        self.attributes: set[int] = set()  # of module_tensors those that are neither parameters nor buffers
        self.held: list[torch.Tensor] = []  # tensors that are no parameter, buffer or result: constants of the module
        self.constants: list[dict[str, Json]] = []
        self.paths: dict[int, str] = {}
        self.layers: set[int] = set()
        # Parameters and buffers as they were registered; of a module that dies while others are made nothing is kept.
        self.created: list[tuple[weakref.ref[torch.nn.Module], str]] = []
        self.made = 0                                          # storages of the card while the module is built
        self.storages: list[tuple[str, int, Json, str]] = []  # ("made" or "freed", number, shape, dtype) of these
        self.living: dict[int, int] = {}                       # the address of one that lives to its number
        self.next = 0
        self.recordings = 0
        self._quiet = 0
        self._copies: dict[Any, Any] = {}
        self._casts: dict[int, torch.Tensor] = {}  # within a composed function: what autocast has cast, and of what
        self.changed_alike: dict[tuple[bool, int], Any] = {}  # of _patches.py
        self._memo = Memo(fake)
        self.kinds: dict[int, Kind] = {}  # of module_tensors
        self._is_told = self._is_fake = True  # of the arguments that `_told` was asked about: can be remembered, have no data

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """Changes of the gradient mode are not events inside: the region is one."""
        self._quiet += 1
        try: yield
        finally: self._quiet -= 1

    # ---- values ----------------------------------------------------------------------------------------------------
    def number(self, tensor: torch.Tensor, requires_grad: bool = False) -> int:
        """Gives the object a number; its death will be an event."""
        info = Info(self.next if self.recording else -1, requires_grad)  # -1: made while the module was built
        self.next += self.recording
        key, number, recording = id(tensor), info.number, self.recordings

        def died(_: Any, self: Recorder = self, key: int = key, number: int = number) -> None:
            # What an earlier recording left in the module (a cache of an object that is none) has no number in this one.
            seen = self.values.pop(key, None) is not None and self.recording and number >= 0
            if seen and recording == self.recordings: self.events.append(("drop", number))

        info.death = weakref.ref(tensor, died)
        self.values[key] = info
        return number

    def watch(self, tensor: torch.Tensor) -> None:
        """While the module is built: a storage of the card that is seen for the first time, and its death."""
        storage = tensor.untyped_storage()
        key, number = storage._cdata, self.made
        if tensor.device.type != "cuda" or key in self.living: return

        def died() -> None:
            del self.living[key]
            if not self.recording: self.storages.append(("freed", number, [], ""))

        self.living[key] = number
        self.made += 1
        self.storages.append(("made", number, list(tensor.shape), _dtype(tensor.dtype)))
        weakref.finalize(storage, died).atexit = False

    def breaks_graph(self, what: str, is_context: bool = False) -> None:
        """The next event is a call that Dynamo does not trace: capture_scalar_outputs, capture_dynamic_output_shape_ops and
        allow_rnn of its config are off."""
        if not self.compiling or not isinstance(self.events, Events): return
        file, line, _ = module_frame()
        self.events.break_at_next(f"{what}, {file.rsplit('/', 1)[-1]}:{line}", is_context)

    def _arguments(self, last: str, args: Any) -> Json:
        if last not in ("__getitem__", "__setitem__"): return self.encode(args)

        def part(item: Any) -> Json:
            return {"list": self.encode(item)} if isinstance(item, list) else self.encode(item)

        index = args[1]
        encoded = [part(item) for item in index] if isinstance(index, tuple) else part(index)
        return [self.encode(args[0]), encoded, *(self.encode(item) for item in args[2:])]

    def encode(self, thing: Any) -> Json:
        if isinstance(thing, torch.Tensor):
            thing = self._casts.get(id(thing), thing)
            name = self.module_tensors.get(id(thing))
            info = self.values.get(id(thing))
            if name is None and info is not None and info.number >= 0: return {"v": info.number}
            if name is None or id(thing) in self.attributes:
                if name is None: name = f"constant.{len(self.constants)}"
                self.attributes.discard(id(thing))
                self.held.append(thing)
                self.module_tensors[id(thing)] = name
                self.constants.append({"name": name, "shape": list(thing.shape), "dtype": {"d": _dtype(thing.dtype)},
                                       "device": thing.device.type})
            return {"p": name}
        if thing is None or isinstance(thing, (bool, int, str)): return thing
        if isinstance(thing, float): return thing if math.isfinite(thing) else {"float": str(thing)}
        if isinstance(thing, (list, tuple)): return [self.encode(item) for item in thing]
        if isinstance(thing, dict): return {"dict": [[str(key), self.encode(item)] for key, item in thing.items()]}
        if isinstance(thing, torch.dtype): return {"d": _dtype(thing)}
        if isinstance(thing, torch.device): return {"device": thing.type}
        if isinstance(thing, slice): return {"slice": [self.encode(x) for x in (thing.start, thing.stop, thing.step)]}
        if thing is Ellipsis: return {"ellipsis": True}
        if isinstance(thing, complex): return {"complex": [thing.real, thing.imag]}
        if isinstance(thing, torch.memory_format): return {"memory_format": str(thing)[len("torch."):]}
        if isinstance(thing, torch.layout): return {"layout": str(thing)[len("torch."):]}
        if isinstance(thing, type):
            numbers = {int: "int64", float: "float64", bool: "bool"}
            return {"d": numbers[thing]} if thing in numbers else {"type": thing.__name__}
        if hasattr(thing, "__array__"):  # numpy's: a number as Python's, an array as what stands in the call
            return self.encode(thing.item()) if getattr(thing, "ndim", 1) == 0 else {"object": type(thing).__name__}
        if hasattr(thing, "__index__"): return int(thing)
        if isinstance(thing, torch.Generator): return None
        return {"object": type(thing).__name__}

    # ---- calls -----------------------------------------------------------------------------------------------------
    def __torch_function__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        called = self.names.of(function)
        way, name = called.way, called.name
        if way is Way.CALL: return self._call(function, called, args, kwargs)
        if way is Way.PLAIN_PROPERTY: return function(*args)
        if way is Way.ENTERED:
            copy = self._copies.get(function)
            if copy is None: copy = self._copies[function] = without_check(function)
            with self: return copy(*args, **kwargs)
        if way is Way.REQUIRES_GRAD:
            self._set_requires_grad(args[0], (args[1:] or [*kwargs.values(), True])[0])
            return None if name.endswith("__set__") else args[0]  # torch never lets go of what a setter returns
        if way is Way.PROPERTY: return self._property(function, name, args)
        if way is Way.SILENT:
            silent = function(*args, **kwargs)
            if name.endswith("__deepcopy__") and not self.recording: self.watch(silent)
            return silent
        if way is Way.GRAD_MODE:
            if self.recording and not self._quiet: self.events.append(("set_grad", bool(args[0])))
            return function(*args, **kwargs)
        if way is Way.READ: return self._read(function, name, args, kwargs)
        if tensors_in((args, kwargs)):  # Way.SIZED
            def number(item: Any) -> Any:
                if not isinstance(item, torch.Tensor): return item
                return self._read(torch.Tensor.item, "torch.Tensor.item", (item,), {})
            args, kwargs = with_tensors(args, number), with_tensors(kwargs, number)
        return self._call(function, called, args, kwargs)

    def _property(self, function: Any, name: str, args: Any) -> Any:
        last = name.split(".")[-2]
        if last in TENSOR_PROPERTIES and self.recording:
            return self._call(function, self.names.named("torch.Tensor." + last), args, {})
        if last in ("requires_grad", "is_leaf", "grad_fn"):
            info = self.info(args[0])
            if info is not None:
                if last == "requires_grad": return info.requires_grad
                if last == "is_leaf": return not info.requires_grad
                return None
        return function(*args)

    def _set_requires_grad(self, tensor: torch.Tensor, value: bool) -> None:
        info = self.info(tensor)
        if info is None or info.number < 0:
            tensor.requires_grad = value
            self.kinds.pop(id(tensor), None)
            if info is not None: info.kind = None
        elif info.requires_grad != value:
            info.requires_grad = value
            if self.recording:
                self.breaks_graph("torch.Tensor.requires_grad_")  # of what the graph has made
                self.events.append(("call", "torch.Tensor.requires_grad_", [{"v": info.number}, value], [], [info.number]))

    def _told(self, thing: Any, given: list[torch.Tensor]) -> Any:
        """What of an argument a function's result depends on; its tensors are added to `given`."""
        kind = type(thing)
        if kind is FakeTensor:
            given.append(thing)
            info = self.values.get(id(thing))
            found = info.kind if info is not None else self.kinds.get(id(thing))
            if found is None:
                found = self._memo.kind(thing)
                if found is None: self._is_told = False
                elif info is not None: info.kind = found
                elif id(thing) in self.module_tensors: self.kinds[id(thing)] = found
            return found
        if kind in AS_THEY_ARE: return thing
        if kind in WITH_THEIR_TYPE: return (kind, thing)
        if kind is tuple or kind is list or kind is torch.Size: return (kind, *[self._told(item, given) for item in thing])
        if kind is slice: return (kind, *[self._told(item, given) for item in (thing.start, thing.stop, thing.step)])
        if kind is dict: return (kind, *[(key, self._told(item, given)) for key, item in thing.items()])
        self._is_told = False
        others = tensors_in(thing)
        if any(type(tensor) is not FakeTensor for tensor in others): self._is_fake = False
        given += others
        return None

    def _look(self, args: Any, kwargs: Any) -> tuple[list[torch.Tensor], Any]:
        """The tensors in the arguments, and what of these a result depends on. None: it cannot be told."""
        self._is_told = self._is_fake = True
        given: list[torch.Tensor] = []
        told = [self._told(item, given) for item in args]
        for key, item in kwargs.items(): told += [key, self._told(item, given)]
        return given, (len(args), *told) if self._is_told else None

    def _run(self, function: Any, called: Called, args: Any, kwargs: Any, given: list[torch.Tensor],
             told: Any) -> tuple[Any, bool]:
        """(result, whether its shape depends on values)"""
        name, last = called.name, called.last
        if not self.recording and last in _FILLS and args and type(args[0]) is FakeTensor: return args[0], False
        if last in _RULED:
            made = self._by_rule(function, name, last, args, kwargs, given)
            if made is not None: return made
            if last == "__getitem__" or last == "__setitem__":
                index = results.listless(args[1], args[0].device)
                if index is not args[1]: args, told = (args[0], index, *args[2:]), None
        if last == "scaled_dot_product_attention": self._check_backends()
        is_remembered = told is not None and self.recording and given and not called.is_in_place and "out" not in kwargs
        key = self._memo.key(function, told) if is_remembered else None
        result = self._memo.find(key, given) if key is not None else None
        if result is not None: return result, False
        try:
            if last == "scaled_dot_product_attention": result = results.attention(function, args, kwargs)
            else: result = function(*args, **kwargs)
            if key is not None: self._memo.keep(key, result, given)
            return result, False
        except _DYNAMIC:
            real = self.compute(function, name, args, kwargs, must=True)
            device = next((t.device for t in tensors_in((args, kwargs))), torch.device("cpu"))
            result = with_tensors(real, lambda t: torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=device)
                                  if isinstance(t, torch.Tensor) else t)
            return result, True

    def _by_rule(self, function: Any, name: str, last: str, args: Any, kwargs: Any,
                 given: list[torch.Tensor]) -> tuple[Any, bool] | None:
        """The same of functions that have rules of their own; None where none applies."""
        if name in _RECURRENT: return results.recurrent(name, args), False
        if name in _CELLS: return results.cell(args), False
        if last in ("grouped_mm", "_grouped_mm"): return results.grouped(args, kwargs), False
        if last in _PADDED and any(type(a) is str for a in (*args, *kwargs.values())) and torch.is_autocast_enabled("cuda"):
            # conv2d.padding is none of autocast's operators, conv2d is, which it calls; below autograd autocast does not see that call.
            args, kwargs = with_tensors((args, kwargs), lambda t: t.to(results.cast_type(t)) if isinstance(t, torch.Tensor) else t)
            return function(*args, **kwargs), False
        if last == "ctc_loss":
            bound = inspect.signature(torch.nn.functional.ctc_loss).bind(*args, **kwargs)
            shape = args[2].shape if bound.arguments.get("reduction", "mean") == "none" else ()
            return args[0].new_empty(shape, dtype=torch.float32 if torch.is_autocast_enabled("cuda") else None), False
        if name == "torch._pack_padded_sequence":
            raise refused("packs sequences (pack_padded_sequence): recurrent layers over packed sequences are not recorded; "
                          "pass padded ones")
        if name in ("torch.tensor", "torch.as_tensor", "torch.asarray", "torch.scalar_tensor"):
            if isinstance(args[0], torch.Tensor) and self.info(args[0]) is None: return function(*args, **kwargs), False
            device = kwargs.get("device")
            if device is None and isinstance(args[0], torch.Tensor): device = args[0].device
            if results.are_scalars(args[0]) and any((info := self.info(t)) is None or info.known is None for t in tensors_in(args[0])):
                with unset_fake_temporarily(): real = torch.empty(len(args[0]), dtype=kwargs.get("dtype") or args[0][0].dtype)
            else: real = self.compute(function, name, args, kwargs, must=True)
            return self._empty(real, device), hasattr(args[0], "__array__")
        if last == "new_tensor" and not isinstance(args[1], torch.Tensor):
            with unset_fake_temporarily(): shape = torch.tensor(args[1]).shape
            return args[0].new_empty(shape, **{key: value for key, value in kwargs.items() if key != "requires_grad"}), False
        if last in _INDEXED:
            if last in ("__getitem__", "__setitem__"): args = (args[0], results.listless(args[1], args[0].device), *args[2:])
            fills = name == "torch.Tensor.__setitem__" and not isinstance(args[2], torch.Tensor)  # x[mask] = 0: masked_fill_
            if not fills and any(t.dtype in (torch.bool, torch.uint8) for t in given):
                return function(*self._mask_indices(name, args), **kwargs), True
        if name in ("torch.repeat_interleave", "torch.Tensor.repeat_interleave") and "output_size" not in kwargs:
            repeats = kwargs.get("repeats", args[1] if len(args) > 1 else args[0])
            if isinstance(repeats, torch.Tensor):
                return function(*args, **kwargs, output_size=self._total(repeats, name)), True
        if name == "torchvision.nms" and (kept := self.answered()) is not NOTHING:
            return args[0].new_empty(int(kept), dtype=torch.long), True
        if last in _COUNTED and (last != "where" or len(args) == 1 and not kwargs):
            answer = self.answered()
            if answer is not NOTHING: return results.places(last, args[0], args[0].numel() if answer is True else int(answer), args, kwargs), True
        if last == "new_full" and len(args) > 2 and isinstance(args[2], torch.Tensor):  # whose value the host reads: it makes no size
            return function(*args[:2], 0, *args[3:], **kwargs), False
        if last == "unique" and kwargs.get("dim") is None and len(args) < 5 and (answer := self.answered()) is not NOTHING:
            return results.distinct(args[0], int(answer), **dict(zip(("sorted", "return_inverse", "return_counts"), args[1:])), **kwargs), True
        return None

    def _empty(self, like: torch.Tensor, device: Any) -> torch.Tensor:
        """torch.empty of the size and type of a real tensor."""
        key = self._memo.key(torch.empty, (like.shape, like.dtype, str(device))) if self.recording and device is not None else None
        made = self._memo.find(key, []) if key is not None else None
        if made is None:
            made = torch.empty(like.shape, dtype=like.dtype, device=device)
            if key is not None: self._memo.keep(key, made, [])
        return made

    def _total(self, tensor: torch.Tensor, name: str) -> int:
        given = self.answered()
        if given is not NOTHING: return tensor.numel() if given is True else int(given)  # True: the mask has no False
        info = self.info(tensor)
        if info is None or info.known is None: raise needed(name, self.why())
        self.assume(info.known.origins)
        with unset_fake_temporarily(): return int(info.known.tensor.sum())

    def _mask_indices(self, name: str, args: Any) -> Any:
        """The arguments with boolean masks replaced by their indices, so that shapes are known."""
        def indices(item: Any) -> list[Any]:
            if isinstance(item, torch.Tensor) and item.dtype in (torch.bool, torch.uint8):
                if item.dim() == 0: return [item]
                count = self._total(item, name)
                return [torch.zeros(count, dtype=torch.long, device=item.device) for _ in range(item.dim())]
            return [item]
        index = args[1]
        parts = list(index) if isinstance(index, (tuple, list)) else [index]
        changed = tuple(made for part in parts for made in indices(part))
        return (args[0], changed, *args[2:])

    def _check_backends(self) -> None:
        """memcalc takes the kernel of attention that torch takes with all of them enabled."""
        if not self.recording or self.policies.get("all_sdpa_backends", False): return
        cuda = torch.backends.cuda
        ways = {"flash": cuda.flash_sdp_enabled, "memory-efficient": cuda.mem_efficient_sdp_enabled, "math": cuda.math_sdp_enabled}
        if torch.__version__ >= (2, 5): ways["cuDNN"] = cuda.cudnn_sdp_enabled  # before, it is off by itself
        off = [way for way, enabled in ways.items() if not enabled()]
        if off:
            raise refused(f"calls scaled_dot_product_attention with {', '.join(off)} switched off (sdpa_kernel, enable_…_sdp), and "
                          "memcalc takes the kernel that torch takes with all of them; policies={\"all_sdpa_backends\": True} "
                          "records it as that")

    def _call(self, function: Any, called: Called, args: Any, kwargs: Any) -> Any:
        name, last, in_place = called.name, called.last, called.is_in_place
        given, told = self._look(args, kwargs)
        if not self._is_fake or not given and name in _OF_NUMBERS:
            if name in _OF_NUMBERS and not given or given and all(hasattr(t, "computed_size") for t in given):
                with unset_fake_temporarily(): made = function(*args, **kwargs)  # a size that torch computes on the host
                for tensor in tensors_in(made): tensor.computed_size = True
                return made
            if any(hasattr(t, "computed_size") for t in given):
                with unset_fake_temporarily():
                    args, kwargs = with_tensors((args, kwargs), lambda t: t.item() if hasattr(t, "computed_size") else t)
                given, told = self._look(args, kwargs)
        if name in ("torch.as_tensor", "torch.asarray") and self._stays(args, kwargs): return args[0]
        if last in _TAKE_NUMBERS and len(given) > 1:
            args = self._with_numbers(last, args)
            given, told = self._look(args, kwargs)
        if self.recording and not in_place and may_be_composed(name, last, args, kwargs, given) and kwargs.get("out") is None and (made := self._composed(function, args, kwargs, given)) is not None:
            return made
        result, by_value = self._run(function, called, args, kwargs, given, told)
        outputs = [result] if type(result) is FakeTensor else tensors_in(result)
        if not outputs and not (in_place and given): return result
        if in_place or "out" in kwargs:
            for tensor in given: self._forget_kind(tensor)
        known = self.known(function, called, args, kwargs, outputs, given)
        if not self.recording:
            if last == "norm_except_dim" and args[2] == args[0].dim() - 1:
                # A column's norm is taken by several blocks, each of 16 rows for a thread, whose sums lie on the card (Reduce.cuh).
                self.watch(torch.empty_like(args[0], dtype=torch.float64))
            for tensor in outputs: self.watch(tensor)
            for tensor, value in zip(outputs, known or ()):
                if self.info(tensor) is None: self.number(tensor)
                self.values[id(tensor)].known = value
            return result
        gradient = torch.is_grad_enabled() and last not in _WITHOUT_GRADIENT and any(self.requires(t) for t in given)
        encoded = [self._arguments(last, args), [[key, self.encode(item)] for key, item in kwargs.items()]]
        numbers: list[int] = []

        def handed(tensor: Any) -> Any:
            if not isinstance(tensor, torch.Tensor): return tensor
            info = self.info(tensor)
            if info is not None and info.number >= 0 and (in_place or "out" in kwargs):
                if gradient and tensor.is_floating_point(): info.requires_grad = True
                numbers.append(info.number)
                return tensor
            if info is not None or id(tensor) in self.module_tensors:
                if in_place: return tensor
                tensor = self._memo.alike(tensor)  # a variable of its own, whose death is seen apart
            floating = tensor.is_floating_point() or tensor.is_complex()
            numbers.append(self.number(tensor, gradient and floating))
            return tensor

        result = handed(result) if type(result) is FakeTensor else with_tensors(result, handed)
        if known:
            for tensor, value in zip(tensors_in(result), known):
                info = self.info(tensor)
                if info is not None: info.known = value
        if name in _RECURRENT or by_value and self._is_sized_by_values(last, args): self.breaks_graph(name)
        event = ["call", name, *encoded, numbers]
        if by_value or numbers and called.shows_results: event.append([[list(t.shape), {"d": _dtype(t.dtype)}] for t in outputs])
        self.events.append(tuple(event))
        return result

    def _composed(self, function: Any, args: Any, kwargs: Any, given: list[torch.Tensor]) -> Any:
        """The result of a function that is recorded by the operators that it is composed of; None where it cannot be."""
        if all((info := self.info(tensor)) is not None and info.known is not None for tensor in given): return None  # whose values may be asked for
        count = len(self.events)
        torch.clear_autocast_cache()  # a parameter that an earlier call has cast is cast again, and heard
        try:
            with Inside(lambda *_: None, lambda *_: None): made = function(*args, **kwargs)
        except (NotComposed, *_DYNAMIC): return None
        finally: del self.events[count:]  # gradients that are switched off within it
        if any(tensor is each for tensor in tensors_in(made) for each in given): return None
        del made

        def heard(name: str, args: Any, kwargs: Any, result: Any) -> None:
            outputs = tensors_in(result)
            gradient = torch.is_grad_enabled() and name not in _WITHOUT_GRADIENT and any(self.requires(tensor) for tensor in tensors_in((args, kwargs)))
            encoded = [self._arguments(name, args), [[key, self.encode(item)] for key, item in kwargs.items()]]
            numbers: list[int] = []
            for tensor in outputs:
                info = self.info(tensor)
                if info is None: numbers.append(self.number(tensor, gradient and (tensor.is_floating_point() or tensor.is_complex())))
                else:
                    info.requires_grad |= gradient
                    numbers.append(info.number)
            event = ["call", "torch." + name, *encoded, numbers]
            if numbers and Called("torch." + name, False).shows_results: event.append([[list(t.shape), {"d": _dtype(t.dtype)}] for t in outputs])
            self.events.append(tuple(event))

        def same(of: torch.Tensor, cast: torch.Tensor) -> None:
            self._casts[id(cast)] = of

        torch.clear_autocast_cache()
        try:
            with Inside(heard, same): return function(*args, **kwargs)
        finally:
            self._casts.clear()
            torch.clear_autocast_cache()  # what it holds would not die

    def _forget_kind(self, tensor: torch.Tensor) -> None:
        self.kinds.pop(id(tensor), None)
        info = self.values.get(id(tensor))
        if info is not None: info.kind = None

    @staticmethod
    def _stays(args: Any, kwargs: Any) -> bool:
        """torch.as_tensor of a tensor of that type on that device is the tensor itself."""
        given = args[0]
        if not isinstance(given, torch.Tensor) or len(args) > 1 or kwargs.get("copy"): return False
        device = torch.device(kwargs.get("device") or given.device)
        return kwargs.get("dtype") in (None, given.dtype) and device.type == given.device.type

    def _with_numbers(self, last: str, args: Any) -> Any:
        """Tensors that stand where torch takes whole numbers (bounds of a slice, sizes): it reads each one."""
        def number(thing: Any) -> Any:
            if not isinstance(thing, torch.Tensor) or thing.dim() > 0 or thing.is_floating_point(): return thing
            return self._read(torch.Tensor.__index__, "torch.Tensor.__index__", (thing,), {})

        def bounds(thing: Any) -> Any:
            if isinstance(thing, slice): return slice(number(thing.start), number(thing.stop), number(thing.step))
            return tuple(bounds(each) for each in thing) if isinstance(thing, tuple) else thing

        if last in ("__getitem__", "__setitem__"): return (args[0], bounds(args[1]), *args[2:])
        if last in ("view", "reshape", "expand"): return (args[0], *(number(each) for each in args[1:]))
        if last == "split" and len(args) > 1 and isinstance(args[1], (list, tuple)):
            return (args[0], [number(each) for each in args[1]], *args[2:])
        return args

    @staticmethod
    def _is_sized_by_values(last: str, args: Any) -> bool:
        """Of a call whose sizes were computed here: whether they follow from values alone."""
        if last in ("__getitem__", "index"): return any(t.dtype in (torch.bool, torch.uint8) for t in tensors_in(args[1:]))
        return not is_in_place("torch." + last) and last not in _SIZED_BY_ARGUMENTS

    def requires(self, tensor: torch.Tensor) -> bool:
        info = self.info(tensor)
        return info.requires_grad if info is not None else tensor.requires_grad

    def _read(self, function: Any, name: str, args: Any, kwargs: Any) -> Any:
        tensors = tensors_in((args, kwargs))
        given = self.answered()
        infos = [self.info(t) for t in tensors]
        if given is not NOTHING:
            answer = given
        elif all(info is not None and info.known is not None for info in infos):
            answer = self.compute(function, name, args, kwargs, must=True)
        else:
            answer = passing(name) if self.policies.get("no_errors", True) else None
            if answer is None: raise needed(name.replace("torch.Tensor.__bool__", "bool(tensor)"), self.why())
            self.assume(frozenset(["no_errors"]))
        if self.recording:
            self.breaks_graph(name)
            self.events.append(("call", name, self.encode(args), [[k, self.encode(v)] for k, v in kwargs.items()], []))
        return answer

    def matching(self, costs: torch.Tensor) -> Any:
        """scipy.optimize.linear_sum_assignment of costs without data, which a copy has brought to the host."""
        if not self.policies.get("any_matching", True): raise needed("linear_sum_assignment", self.why())
        import numpy

        self.assume(frozenset(["any_matching"]))
        if self.compiling:
            self.breaks_graph("torch.Tensor.__array__")
            self.events.append(("untraced",))
        pairs = min(costs.shape)
        return numpy.arange(pairs), numpy.arange(pairs)

    # ---- modules ---------------------------------------------------------------------------------------------------
    def given(self, args: Any, kwargs: Any) -> tuple[list[Json], dict[str, Json]]:
        """The tensors that are passed by position, and those by keyword."""
        keywords: dict[str, Json] = {}
        for key, item in kwargs.items():
            found = tensors_in(item)
            for i, tensor in enumerate(found): keywords[key if item is tensor else f"{key}.{i}"] = self.encode(tensor)
        return [self.encode(t) for t in tensors_in(args)], keywords

    def enter(self, module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        self.events.append(("enter", self.paths[id(module)], type(module).__name__, *self.given(args, kwargs),
                            id(module) in self.layers))

    def leave(self, result: Any) -> None:
        self.events.append(("leave", [self.encode(t) for t in tensors_in(result)]))


def _dtype(dtype: torch.dtype) -> str:
    return str(dtype)[len("torch."):]
