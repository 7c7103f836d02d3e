"""What the functions that a recording sees are called in a program, and how each is taken."""
from __future__ import annotations

import enum
import types
from pathlib import Path
from typing import Any, Callable

# Functions of torch that are written in Python and are one operator nevertheless. Any other Python function is entered:
# the program holds what it calls.
KNOWN = frozenset(
    ["torch.nn.functional." + name for name in """
    adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d
    adaptive_max_pool3d adaptive_max_pool1d_with_indices adaptive_max_pool2d_with_indices
    adaptive_max_pool3d_with_indices affine_grid alpha_dropout batch_norm binary_cross_entropy
    binary_cross_entropy_with_logits celu cosine_embedding_loss cross_entropy ctc_loss dropout dropout1d dropout2d
    dropout3d elu embedding embedding_bag feature_alpha_dropout fold gelu glu grid_sample group_norm grouped_mm
    hardsigmoid hardswish hardtanh huber_loss instance_norm interpolate kl_div l1_loss layer_norm leaky_relu
    log_softmax max_pool1d max_pool2d max_pool3d max_pool1d_with_indices max_pool2d_with_indices
    max_pool3d_with_indices max_unpool1d max_unpool2d max_unpool3d mish mse_loss multi_margin_loss nll_loss pad
    poisson_nll_loss relu relu6 rms_norm rrelu scaled_dot_product_attention scaled_grouped_mm scaled_mm selu sigmoid
    silu smooth_l1_loss softmax softplus tanh threshold unfold""".split()] +
    ["torch." + name for name in """
    atleast_1d atleast_2d atleast_3d block_diag broadcast_tensors cartesian_prod cdist einsum istft meshgrid norm split
    stft tensordot unique unique_consecutive""".split()] +
    ["torch.Tensor." + name for name in """
    istft norm split stft unflatten unique unique_consecutive""".split()])

# Functions that memcalc's operator table has, by the last part of their name (`memcalc programs --operators`). Of any
# other the results' shapes are recorded, too: memcalc counts them without knowing what the function does.
MODELLED = frozenset(Path(__file__).with_name("operators.txt").read_text().split())

# Of these the table has some ways of calling them: their results' shapes are recorded, too, so that any other way is
# counted as a function that the table does not have.
PARTLY_MODELLED = frozenset("""
    adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d addcmul_ bilinear bucketize cholesky cholesky_ex conv1d cosine_similarity
    cross_entropy ctc_loss det diff eigh eigvalsh einsum embedding_bag fft fft_fft fft_ifft fft_irfft fft_rfft ifft index inner inv inv_ex
    binary_cross_entropy_with_logits histc interpolate inverse irfft logdet lstm lu_factor gru rnn_tanh rnn_relu lstm_cell max_pool1d max_pool2d
    max_pool3d max_unpool2d bernoulli median meshgrid nanmedian one_hot pad polar prod qr rfft rms_norm rrelu scatter scatter_ scatter_reduce slogdet solve
    scatter_reduce_ searchsorted solve_triangular svd svdvals take_along_dim where _weight_norm""".split())

# Python's operators by the method that does the same.
_OPERATORS = {
    "__add__": "add", "__radd__": "add", "__iadd__": "add_", "__sub__": "sub", "__isub__": "sub_", "__rsub__": "rsub",
    "__mul__": "mul", "__rmul__": "mul", "__imul__": "mul_", "__div__": "div", "__truediv__": "div", "__idiv__": "div_",
    "__itruediv__": "div_", "__floordiv__": "floor_divide", "__ifloordiv__": "floor_divide_", "__mod__": "remainder",
    "__imod__": "remainder_", "__pow__": "pow", "__ipow__": "pow_", "__matmul__": "matmul", "__imatmul__": "matmul_",
    "__and__": "bitwise_and", "__rand__": "bitwise_and", "__iand__": "bitwise_and_", "__or__": "bitwise_or",
    "__ror__": "bitwise_or", "__ior__": "bitwise_or_", "__xor__": "bitwise_xor", "__rxor__": "bitwise_xor",
    "__ixor__": "bitwise_xor_", "__lshift__": "bitwise_left_shift", "__rshift__": "bitwise_right_shift",
    "__invert__": "bitwise_not", "__neg__": "neg", "__pos__": "positive", "__abs__": "abs", "__eq__": "eq",
    "__ne__": "ne", "__lt__": "lt", "__le__": "le", "__gt__": "gt", "__ge__": "ge",
}
_OPERATORS_IN_PYTHON = {"__pow__", "__ipow__", "__rsub__", "__floordiv__", "__div__", "__truediv__", "__idiv__",
                        "__itruediv__", "__ifloordiv__", "__mod__", "__imod__", "__eq__", "__ne__", "__lt__", "__le__",
                        "__gt__", "__ge__", "__and__", "__or__", "__xor__", "__sub__", "__isub__", "__mul__", "__add__",
                        "__abs__", "__neg__", "__pos__"}

# Properties that make a tensor.
TENSOR_PROPERTIES = frozenset(["T", "mT", "H", "mH", "real", "imag", "data"])

# What hands a value from the card to Python.
VALUE_READS = frozenset(["torch.Tensor." + name for name in """
    item tolist __bool__ __nonzero__ __int__ __float__ __complex__ __index__ numpy __array__ equal allclose""".split()] +
    ["torch.is_nonzero", "torch.equal", "torch.allclose", "torch.Tensor.is_nonzero"])

# Never part of a program: what they tell is known without the card.
SIZED = frozenset("torch.arange torch.linspace torch.zeros torch.ones torch.empty".split())
SILENT = frozenset(["torch.Tensor." + name for name in """
    __len__ __repr__ __str__ __format__ __hash__ __dir__ size dim stride numel nelement ndimension is_contiguous
    element_size is_floating_point is_complex is_signed storage_offset data_ptr untyped_storage get_device type_as_
    is_inference is_shared register_hook retain_grad backward __deepcopy__ __reduce_ex__
    """.split()])


def is_in_place(name: str) -> bool:
    last = name.rsplit(".", 1)[-1]
    return (last.endswith("_") and not last.endswith("__")) or last in ("__setitem__", "data.__set__")


class Way(enum.Enum):
    """What a recording does with a function."""

    REQUIRES_GRAD = enum.auto()
    PROPERTY = enum.auto()        # which may make a tensor, or which a recording answers
    PLAIN_PROPERTY = enum.auto()
    SILENT = enum.auto()
    GRAD_MODE = enum.auto()
    READ = enum.auto()
    SIZED = enum.auto()           # of tensors it asks for the number
    ENTERED = enum.auto()         # its Python body runs
    CALL = enum.auto()


class Called:
    """A function by its public name, and what follows from that."""

    __slots__ = ("name", "last", "way", "is_in_place", "shows_results")

    def __init__(self, name: str, entered: bool) -> None:
        self.name, self.last = name, name.rsplit(".", 1)[-1]
        self.is_in_place = is_in_place(name)
        self.shows_results = self.last not in MODELLED or self.last in PARTLY_MODELLED
        if name in ("torch.Tensor.requires_grad_", "torch.Tensor.requires_grad.__set__"): self.way = Way.REQUIRES_GRAD
        elif name.endswith("__get__"):
            own = name.split(".")[-2]
            is_plain = own not in TENSOR_PROPERTIES and own not in ("requires_grad", "is_leaf", "grad_fn")
            self.way = Way.PLAIN_PROPERTY if is_plain else Way.PROPERTY
        elif name in SILENT or name.startswith("torch.sym_"): self.way = Way.SILENT
        elif name.endswith("_set_grad_enabled"): self.way = Way.GRAD_MODE
        elif name in VALUE_READS: self.way = Way.READ
        elif name in SIZED: self.way = Way.SIZED
        else: self.way = Way.ENTERED if entered else Way.CALL


class Names:
    """What each function that torch hands to a mode is called, found once."""

    def __init__(self) -> None:
        self._known: dict[Any, Called] = {}

    def of(self, function: Callable[..., Any]) -> Called:
        try:
            return self._known[function]
        except KeyError:
            found = self._known[function] = Called(*self._find(function))
            return found

    def named(self, name: str) -> Called:
        """By its public name."""
        if name not in self._known: self._known[name] = Called(name, False)
        return self._known[name]

    @staticmethod
    def _find(function: Callable[..., Any]) -> tuple[str, bool]:
        """(name, whether its Python body is to be entered)"""
        from torch.overrides import resolve_name

        own = getattr(function, "__name__", type(function).__name__)
        name = resolve_name(function)
        if name is None:
            module = getattr(function, "__module__", None) or ""
            if module.startswith("torch._C._nn") or module == "torch.nn.functional": name = "torch.nn.functional." + own
            elif "TensorBase" in getattr(function, "__qualname__", ""): name = "torch.Tensor." + own
            elif module == "torch._tensor": name = "torch.Tensor." + own
            elif module.startswith("torch") and module not in ("torch._C", "torch"): name = module + "." + own
            else: name = "torch." + own
        head, _, last = name.rpartition(".")
        is_operator = last in _OPERATORS and head == "torch.Tensor"
        if is_operator: name = head + "." + _OPERATORS[last]
        if name == "torch.Tensor.rsub": name = "torch.rsub"
        if name.startswith("torch.functional."): name = "torch." + last
        if name.startswith("torch._VariableFunctions."): name = "torch." + last
        is_python = isinstance(function, types.FunctionType)
        # Functions that make first values (torch.nn.init, transformers.initialization) are never entered.
        # Those of torch itself (torch._assert, torch.sym_max) look for modes by another way.
        home = getattr(function, "__module__", None) or ""
        is_plain = "init" in home.rsplit(".", 1)[-1] or home == "torch"
        entered = is_python and name not in KNOWN and not is_plain and not (is_operator and last in _OPERATORS_IN_PYTHON)
        return name, entered
