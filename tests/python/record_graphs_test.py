"""memcalc.record finds the graphs that torch.compile makes: those of PyTorch's own Dynamo. Needs PyTorch."""
import logging

import pytest

torch = pytest.importorskip("torch", reason="no PyTorch here: recording is not tested", exc_type=ImportError)
from record_test import record  # noqa: E402, also where the extension is not built

from torch import nn  # noqa: E402

LOG = logging.getLogger(__name__)


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 4))

    def forward(self, x): return torch.sin(x @ self.weight)


class Branch(nn.Module):
    """Broken by a value, in the middle of a function that goes on."""

    def forward(self, x):
        y = torch.cos(x)
        if y.sum() > -100: y = y.exp()
        return y.tan()


class Caller(nn.Module):
    """What its part breaks, breaks it, too."""

    def __init__(self, part):
        super().__init__()
        self.part = part

    def forward(self, x):
        x = x.abs()
        x = self.part(x)
        return x.neg()


class Loop(nn.Module):
    """Broken in a loop: eager as a whole, with parts that are compiled; torch's own are not."""

    def __init__(self):
        super().__init__()
        self.head, self.layers = nn.Linear(4, 4), nn.ModuleList([Inner() for _ in range(3)])

    def forward(self, x):
        x = self.head(x)
        for layer in self.layers:
            if torch.rand([]) < 2: x = layer(x)
        return x.exp()


class Messages(nn.Module):
    def forward(self, x):
        x = x.abs()
        LOG.debug("said")
        x = x.neg()
        return x.cos()


class Sizes(nn.Module):
    def forward(self, x):
        mask = torch.ones_like(x, dtype=torch.bool)
        chosen = x.abs()[mask]
        return chosen.sin()


class Tried(nn.Module):
    """A `try` cannot be resumed: the function is a graph up to it, where that is worth it."""

    def __init__(self, calls):
        super().__init__()
        self.calls = calls

    def forward(self, x):
        for _ in range(self.calls): x = x.abs()
        try:
            y = x.sin()
            if y.sum() > -100: y = y.cos()
        finally: x = x.neg()
        return x.exp() * y


class Writes(nn.Module):
    """Sizes that do not depend on values break nothing."""

    def forward(self, x):
        x = x.abs()
        x[x > 0] = 0
        return torch.where(x > 0, x, -x)


def of_dynamo(module):
    """The operators of each graph that a first call runs."""
    made = []

    def backend(graph, _):
        names = [str(node.target) for node in graph.graph.nodes if node.op in ("call_function", "call_method")]

        def run(*args):
            made.append(len(names))
            return graph.forward(*args)
        return run

    torch._dynamo.reset()
    torch.compile(module, backend=backend)(torch.ones(2, 4))
    return made


def of_program(module):
    policies = {}
    if not isinstance(module, Writes): policies = {f"record_graphs_test.py:{line}": True for line in range(1, 120)}
    content = record(module, {"x": torch.ones(2, 4)}, policies=policies, precisions=("float32",)).to_dict()
    compiled = [f for f in content["forwards"] if "compiled" in f.get("runs", ())]
    assert len(compiled) == 1 and "not_compiled" not in content
    made, inside = [], "graphs" not in compiled[0]
    if inside: made.append(0)
    for step in content["functions"][compiled[0]["function"]]["body"]:
        if step[0] == "graph":
            inside = True
            made.append(0)
        elif step[0] == "break": inside = False
        elif step[0] == "call" and inside: made[-1] += 1
        elif step[0] in ("layer", "layers"): pytest.fail("these modules have no layers")
    assert compiled[0].get("graphs", 1) == len(made)
    return made


@pytest.mark.parametrize("module", [Branch(), Caller(Branch()), Messages(), Caller(Messages()), Sizes(), Tried(1),
                                    Tried(2), Caller(Tried(3)), Writes()], ids=lambda m: type(m).__name__ + type(getattr(m, "part", m)).__name__)
def test_graphs_are_those_of_dynamo(module):
    assert of_program(module) == of_dynamo(module)


def test_layers_that_an_eager_loop_calls_are_graphs():
    content = record(Caller(Loop()), {"x": torch.ones(2, 4)}, precisions=("float32",),
                     policies={f"record_graphs_test.py:{line}": True for line in range(1, 120)}).to_dict()
    eager, compiled = [f for f in content["forwards"] if f["mode"] == "train"]
    assert "runs" not in eager and compiled["runs"] == ["compiled"] and compiled["graphs"] == 5 == len(of_dynamo(Caller(Loop())))
    body = content["functions"][compiled["function"]]["body"]
    assert [step for step in body if step[0] in ("graph", "break")].count(["break", "returns"]) == 4  # and what Caller ends with


def test_a_module_that_is_one_graph_is_recorded_once():
    content = record(Inner(), {"x": torch.ones(2, 4)}, precisions=("float32",)).to_dict()
    assert [f.get("runs") for f in content["forwards"] if f["mode"] == "train"] == [["eager", "compiled"]]


def test_who_asks_is_told_that_it_is_compiled():
    class Asks(nn.Module):
        def forward(self, x): return x.sin() if torch.compiler.is_compiling() else x.cos()

    content = record(Asks(), {"x": torch.ones(2, 4)}, precisions=("float32",)).to_dict()
    calls = [content["functions"][f["function"]]["body"][0][1] for f in content["forwards"] if f["mode"] == "train"]
    assert calls == ["torch.Tensor.cos", "torch.Tensor.sin"]


def test_what_fails_where_it_is_compiled_says_so():
    class Fails(nn.Module):
        def forward(self, x):
            if torch.compiler.is_compiling(): raise NotImplementedError("not here")
            return x.cos()

    content = record(Fails(), {"x": torch.ones(2, 4)}, precisions=("float32",)).to_dict()
    assert content["not_compiled"] == "NotImplementedError: not here"
    assert all("runs" not in f for f in content["forwards"])
