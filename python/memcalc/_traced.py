"""A forward and backward pass of a real `nn.Module` on the meta device, as requests to the allocator.

Two modes of PyTorch watch it. The function mode does what a CUDA device would: autocast's casts (torch's
aten/src/ATen/autocast_mode.h), the fused dropout, the fused attention kernel; on the meta device PyTorch takes none of
them. The dispatch mode sees every operator that is left, forward and backward, and the birth of every storage; storages
tell of their own death. Nothing is computed and no memory is taken.
"""
from __future__ import annotations

import contextlib
import copy
import sys
import weakref
from typing import Any, Callable, Iterator, NamedTuple

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map_only
from torch.utils.flop_counter import flop_registry

ALLOCATE, FREE, COMPUTE, GRADIENT, WORKSPACE = range(5)  # TracedEventKind of symbolic/traced_step.h
AUTOCAST = {"amp-fp16": torch.float16, "amp-bf16": torch.bfloat16}
WEIGHTS = {"bf16": torch.bfloat16, "fp16": torch.float16}

# autocast_mode.h, AT_FORALL_LOWER_PRECISION_FP, by the names that Python code calls.
_LOWER = {F.linear, F.conv1d, F.conv2d, F.conv3d, F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d,
          torch.conv1d, torch.conv2d, torch.conv3d, F.bilinear, F.prelu, F.scaled_dot_product_attention, torch.addmm,
          torch.addmv, torch.addbmm, torch.baddbmm, torch.bmm, torch.chain_matmul, torch.matmul, torch.mm, torch.mv,
          torch.einsum, torch.Tensor.matmul, torch.Tensor.__matmul__, torch.Tensor.__rmatmul__, torch.Tensor.bmm,
          torch.Tensor.mm, torch.Tensor.addmm, torch.Tensor.baddbmm}
# AT_FORALL_FP32 and AT_FORALL_FP32_SET_OPT_DTYPE.
_FLOAT32 = {F.layer_norm, F.group_norm, F.softmax, F.log_softmax, F.softplus, F.mse_loss, F.l1_loss, F.smooth_l1_loss,
            F.nll_loss, F.binary_cross_entropy_with_logits, F.kl_div, F.cosine_embedding_loss, F.normalize,
            F.cosine_similarity, torch.layer_norm, torch.group_norm, torch.softmax, torch.log_softmax, torch.exp,
            torch.log, torch.pow, torch.rsqrt, torch.reciprocal, torch.norm, torch.sum, torch.cumsum, torch.cumprod,
            torch.prod, torch.erfinv, torch.expm1, torch.log10, torch.log1p, torch.log2, torch.cosh, torch.sinh,
            torch.tan, torch.acos, torch.asin, torch.Tensor.softmax, torch.Tensor.log_softmax, torch.Tensor.exp,
            torch.Tensor.log, torch.Tensor.pow, torch.Tensor.__pow__, torch.Tensor.rsqrt, torch.Tensor.reciprocal,
            torch.Tensor.norm, torch.Tensor.sum, torch.Tensor.cumsum, torch.Tensor.prod}
# Computed by cuBLAS, which then holds a workspace; by cuBLASLt where a bias is fused.
_CUBLAS = {"aten::mm": 1, "aten::bmm": 1, "aten::baddbmm": 1, "aten::addmm": 2}


class Event(NamedTuple):
    """`block`: the number of a storage; of a GRADIENT also `parameter`, whose gradient the storage now is; of a WORKSPACE
    the place in Trace.convolutions."""

    kind: int
    block: int = -1
    bytes: int = 0
    operator: str = ""
    category: str = "temporaries"
    parameter: int = -1
    flops: float = 0.0
    bytes_moved: int = 0
    dtype: str = "float32"
    cublas: int = 0


class Convolution(NamedTuple):
    """A call that may take a workspace of cuDNN: TracedConvolution of symbolic/traced_step.h."""

    computed: int  # 0: the output, 1: the input's gradient, 2: the weight's
    input: tuple[int, ...]
    weight: tuple[int, ...]
    output: tuple[int, ...]
    stride: int
    padding: int
    groups: int
    dtype: str
    channels_last: bool


class Trace(NamedTuple):
    forward: list[Event]
    backward: list[Event]
    convolutions: list[Convolution]
    loss: int  # the storage of the loss
    loss_dtype: str
    parameters: list[tuple[str, tuple[int, ...], str, bool]]
    buffers: list[int]  # bytes
    inputs: list[int]
    batch_size: int


class _OnTheCard(TorchFunctionMode):
    """What the CUDA device would do with a call, done before it reaches the meta device."""

    def __init__(self, autocast: torch.dtype | None, remember_copy: Callable[[torch.Tensor], None]) -> None:
        super().__init__()
        self.autocast = autocast
        self.casts: dict[int, torch.Tensor] = {}
        self.remember_copy = remember_copy

    def cast(self, value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        if not value.is_floating_point() or value.dtype in (dtype, torch.float64): return value
        if not (value.is_leaf and value.requires_grad and dtype == self.autocast): return value.to(dtype)
        if id(value) not in self.casts:
            self.casts[id(value)] = value.to(dtype)
            self.remember_copy(self.casts[id(value)])
        return self.casts[id(value)]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.autocast is not None:
            wanted = self.autocast if func in _LOWER else torch.float32 if func in _FLOAT32 else None
            if wanted is not None and kwargs.get("dtype") is None:
                args, kwargs = tree_map_only(torch.Tensor, lambda t: self.cast(t, wanted), (args, kwargs))
        if func is F.cross_entropy: return self.cross_entropy(*args, **kwargs)
        if func is F.dropout: return _dropout(*args, **kwargs)
        if func is F.scaled_dot_product_attention: return _attention(*args, **kwargs)
        return func(*args, **kwargs)

    def cross_entropy(self, logits: torch.Tensor, target: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        """cross_entropy_loss names the softmax's dtype, so autocast casts what nll_loss gets, not the logits."""
        if self.autocast is None or logits.dtype == torch.float32: return F.cross_entropy(logits, target, *args, **kwargs)
        keep = {key: value for key, value in kwargs.items() if key in ("ignore_index", "reduction", "weight")}
        return F.nll_loss(F.log_softmax(logits, 1).float(), target, **keep)


def _dropout(input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:
    if not training or p == 0 or inplace: return F.dropout(input, p, training, inplace)
    return torch.native_dropout(input, p, True)[0]  # a mask of one byte an element, as on CUDA


def _attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: torch.Tensor | None = None,
               dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None,
               enable_gqa: bool = False) -> torch.Tensor:
    if enable_gqa and key.size(-3) != query.size(-3):
        groups = query.size(-3) // key.size(-3)
        key, value = key.repeat_interleave(groups, -3), value.repeat_interleave(groups, -3)
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill_(attn_mask, 0)
        attn_mask = attn_mask.expand(query.size(0), query.size(1), query.size(2), key.size(2))
    return torch.ops.aten._scaled_dot_product_efficient_attention(
        query, key, value, attn_mask, True, dropout_p, is_causal, scale=scale)[0]


def _convolutions(operator: str, args: Any, result: Any) -> list[Convolution | None]:
    """What a call computes, one for each tensor of its result that is there; None for what takes no workspace that is
    known: sums over a bias, other dimensions, dilated and transposed convolutions."""
    if operator == "aten::convolution":
        (input, weight), output, rest, computed = args[:2], result, args[3:], [0]
    elif operator == "aten::convolution_backward":
        (output, input, weight), rest = args[:3], args[4:]
        computed = [number for number, wanted in zip((1, 2, 0), args[10]) if wanted]
    else: return []
    stride, padding, dilation, transposed, _, groups = rest[:6]
    if input.dim() != 4 or transposed or any(d != 1 for d in dilation): return []
    by_channels = any(not t.is_contiguous() and t.is_contiguous(memory_format=torch.channels_last) for t in (input, weight))
    call = Convolution(0, tuple(input.shape), tuple(weight.shape), tuple(output.shape), stride[0], padding[0], groups,
                       str(input.dtype).removeprefix("torch."), by_channels)
    if operator == "aten::convolution": return [call]
    return [call._replace(computed=number) if number else None for number in computed]


class _Requests(TorchDispatchMode):
    """Every operator, the storages it makes, and their deaths, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Event] = []
        self.alive: dict[int, tuple[int, Any]] = {}  # by the address of the storage: its index, what tells of its death
        self.convolutions: list[Convolution] = []
        self.count = 0
        self.watching = True

    def know(self, tensor: torch.Tensor) -> None:
        """A storage that was there before: a parameter, a buffer, an input."""
        storage = tensor.untyped_storage()
        self.alive.setdefault(storage._cdata, (-1, storage))

    def index_of(self, tensor: torch.Tensor) -> int:
        return self.alive[tensor.untyped_storage()._cdata][0]

    def born(self, tensor: torch.Tensor, operator: str) -> None:
        storage = tensor.untyped_storage()
        address, size = storage._cdata, storage.nbytes()
        if address in self.alive or size == 0: return
        index, self.count = self.count, self.count + 1

        def died(_: Any) -> None:
            self.alive.pop(address, None)
            if self.watching: self.events.append(Event(FREE, index))

        self.alive[address] = (index, weakref.ref(storage, died))
        self.events.append(Event(ALLOCATE, index, size, operator))

    def takes_workspace(self, call: Convolution | None) -> None:
        if call is None: return
        self.events.append(Event(WORKSPACE, len(self.convolutions)))
        self.convolutions.append(call)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.name().split(".")[0]
        outputs = [each for each in tree_flatten(result)[0] if isinstance(each, torch.Tensor)]
        before = len(self.events)
        calls = _convolutions(name, args, result)
        for tensor in outputs:
            self.born(tensor, name)
            if calls: self.takes_workspace(calls.pop(0))
        counter = flop_registry.get(func._overloadpacket)
        if counter is None and (len(self.events) == before and not name.endswith("_")): return result  # a view
        flops = float(counter(*args, **(kwargs or {}), out_val=result)) if counter else float(
            sum(tensor.numel() for tensor in outputs))
        inputs = [each for each in tree_flatten((args, kwargs))[0] if isinstance(each, torch.Tensor)]
        moved = sum(t.numel() * t.element_size() for t in outputs + inputs)
        dtype = str(outputs[0].dtype).removeprefix("torch.") if outputs else "float32"
        self.events.insert(before, Event(COMPUTE, operator=name, flops=flops, bytes_moved=moved, dtype=dtype,
                                         category="contraction" if counter else "elementwise",
                                         cublas=_CUBLAS.get(name, 0)))
        return result


def _loss_of(output: Any, targets: int) -> torch.Tensor:
    """What the module says is its loss, or cross entropy over the classes that it tells apart."""
    loss = getattr(output, "loss", None)
    if loss is None and isinstance(output, dict): loss = output.get("loss")
    if loss is not None: return loss
    if isinstance(output, torch.Tensor):
        if output.numel() == 1: return output.reshape(())
        if output.dim() == 2:
            return F.cross_entropy(output, torch.zeros(targets, dtype=torch.long, device="meta"))
    raise TypeError("example_inputs: the module's output has no loss; pass labels, or give `loss`, a function of it")


def _categorised(events: list[Event], copies: set[int], saved: set[int], gradients: set[int]) -> list[Event]:
    def category(event: Event) -> str:
        if event.block in gradients: return "gradients"
        if event.block in copies: return "autocast_copies"
        return "activations" if event.block in saved else "temporaries"

    return [event._replace(category=category(event)) if event.kind == ALLOCATE else event for event in events]


@contextlib.contextmanager
def _whole_sequences() -> Iterator[None]:
    """transformers looks at position ids for sequences packed into one (masking_utils.py); values are what the meta
    device has not, and the positions that it makes itself are of whole sequences, for which it finds None."""
    masks = sys.modules.get("transformers.masking_utils")
    if masks is None or not hasattr(masks, "find_packed_sequence_indices"):
        yield
        return
    found = masks.find_packed_sequence_indices
    masks.find_packed_sequence_indices = lambda *_, **__: None  # type: ignore[attr-defined]
    try:
        yield
    finally:
        masks.find_packed_sequence_indices = found  # type: ignore[attr-defined]


def trace(module: torch.nn.Module, example_inputs: Any, *, precision: str = "fp32",
          loss: Callable[[Any], torch.Tensor] | None = None) -> Trace:
    """One forward and backward pass in training mode. The module itself is neither run nor changed: a copy on the meta
    device is. Raises what PyTorch raises for a module that cannot run there (one that looks at values)."""
    shadow = copy.deepcopy(module).to("meta")
    if precision in WEIGHTS: shadow = shadow.to(WEIGHTS[precision])
    shadow.train()
    to_meta = lambda tensor: tensor.to("meta", WEIGHTS.get(precision) if tensor.is_floating_point() else None)  # noqa: E731
    inputs = tree_map_only(torch.Tensor, to_meta, example_inputs)
    tensors = [each for each in tree_flatten(inputs)[0] if isinstance(each, torch.Tensor)]
    named = list(shadow.named_parameters())
    requests = _Requests()
    copies: set[int] = set()
    held: dict[int, int] = {}  # storage of a gradient: its parameter
    for tensor in [*tensors, *shadow.parameters(), *shadow.buffers()]: requests.know(tensor)

    def accumulated(number: int) -> Callable[[torch.Tensor], None]:
        def hook(parameter: torch.Tensor) -> None:
            index = requests.index_of(parameter.grad)
            held[index] = number
            requests.events.append(Event(GRADIENT, index, parameter=number))
        return hook

    for number, (_, parameter) in enumerate(named):
        if parameter.requires_grad: parameter.register_post_accumulate_grad_hook(accumulated(number))
    card = _OnTheCard(AUTOCAST.get(precision), lambda copied: copies.add(requests.index_of(copied)))
    batch = tensors[0].size(0) if tensors and tensors[0].dim() else 1
    with requests:
        with card, _whole_sequences():
            output = shadow(**inputs) if isinstance(inputs, dict) else shadow(
                *(inputs if isinstance(inputs, (tuple, list)) else (inputs,)))
            result = loss(output) if loss is not None else _loss_of(output, batch)
            del output
        card.casts.clear()
        forward, requests.events = requests.events, []
        number_of_loss = requests.index_of(result)
        result.backward(torch.empty_like(result))
        backward, requests.events = requests.events, []
        requests.watching = False
    saved = {event.block for event in backward if event.kind == FREE}
    gradients = set(held)
    table = [(name, tuple(p.shape), str(p.dtype).removeprefix("torch."), p.requires_grad) for name, p in named]
    return Trace(_categorised(forward, copies, saved, gradients), _categorised(backward, set(), set(), gradients),
                 requests.convolutions, number_of_loss, str(result.dtype).removeprefix("torch."), table,
                 [b.numel() * b.element_size() for b in shadow.buffers()],
                 [t.numel() * t.element_size() for t in tensors], batch)
