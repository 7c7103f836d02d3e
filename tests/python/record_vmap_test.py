"""memcalc.record._vmap: masks by `Places` ask for the storages, in the order, that torch.vmap asks for."""
import pytest

torch = pytest.importorskip("torch", reason="no PyTorch here: recording is not tested", exc_type=ImportError)
from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402

from record_test import record  # noqa: E402, F401: also where the extension is not built
from memcalc.record import _vmap  # noqa: E402


class Requests(TorchDispatchMode):
    """(operator, bytes) of each result that is no view."""

    def __init__(self):
        super().__init__()
        self.made, self.held = [], []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        given = [*tree_leaves((args, kwargs)), *self.held]  # held, so that no address comes twice
        known = {t.untyped_storage()._cdata for t in given if isinstance(t, torch.Tensor)}
        result = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if tensor.untyped_storage()._cdata in known: continue
            self.made.append((function.__name__.split(".")[0], tensor.untyped_storage().nbytes()))
            self.held.append(tensor)
        return result


def and_masks(*functions):  # transformers 4.57.6, masking_utils.py, as the following ones
    def mask(batch, head, query, key):
        result = query.new_ones((), dtype=torch.bool)
        for function in functions: result = result & function(batch, head, query, key).to(result.device)
        return result
    return mask


def causal(batch, head, query, key): return key <= query
def window(batch, head, query, key): return key > query - 3


def by_vmap(function):
    for dims in ((None, None, None, 0), (None, None, 0, None), (None, 0, None, None), (0, None, None, None)):
        function = torch.vmap(function, in_dims=dims, out_dims=0)
    return function


def check(function, of_places=None):
    ranges = [torch.arange(n) for n in (3, 1, 7, 7)]
    answers, requests = [], []
    for made in (by_vmap(function), _vmap.over_all(of_places or function)):
        with Requests() as mode, TransformGetItemToIndex(): answers.append(made(*ranges))
        requests.append(mode.made)
    assert torch.equal(*answers)
    assert requests[0] == requests[1] and requests[0]


def test_patterns():
    check(causal)
    check(and_masks(window, causal))


def test_padding():
    padding = torch.ones(3, 7, dtype=torch.bool)
    padding[1, 4:] = False
    check(and_masks(and_masks(window, causal), lambda b, h, q, k: padding[b, k]),
          and_masks(and_masks(window, causal), _vmap.padding_mask_function(padding)))


def test_packed_rows():
    packed = torch.tensor([[0, 0, 0, 1, 1, 2, 2]] * 3)
    check(and_masks(causal, lambda b, h, q, k: packed[b, q] == packed[b, k]),
          and_masks(causal, _vmap.packed_sequence_mask_function(packed)))


def test_another_vmap_is_refused():
    class Mapped(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)

        def forward(self, x): return torch.vmap(lambda row: row * 2)(self.linear(x)).sum()

    with pytest.raises(Exception, match="calls torch.vmap"): record(Mapped, {"x": torch.empty(2, 4)}, loss=lambda out: out)
