"""memcalc.record: programs recorded without a card. Needs PyTorch, and for models of libraries transformers."""
import copy
import functools
import json
import sys
import types
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
torch = pytest.importorskip("torch", reason="no PyTorch here: recording is not tested", exc_type=ImportError)
try:
    import memcalc.record as recording
except ImportError:  # a checkout whose C++ part is not built: the recorder needs none of it
    package = types.ModuleType("memcalc")
    package.__path__ = [str(ROOT / "python/memcalc")]
    sys.modules["memcalc"] = package
    import memcalc.record as recording

from memcalc.record import Variant, _functions, _solve, record

F = torch.nn.functional
transformers = pytest.mark.skipif("__import__('importlib.util').util.find_spec('transformers') is None",
                                  reason="no transformers here: recording its models is not tested")


def calls_of(content, function):
    """How many calls one run of the function makes, layers and all."""
    total = 0
    for made in content["functions"][function]["body"]:
        total += made[0] == "call"
        if made[0] == "layer": total += calls_of(content, made[1])
        if made[0] == "layers": total += made[4] * calls_of(content, made[1])
    return total


def of_eager_mode(content):
    """The forward passes that are more than what torch.compile traces."""
    return [forward for forward in content["forwards"] if "eager" in forward.get("runs", ["eager"])]


def check_lifetimes(content):
    """Each value is made once, used only while it lives, and dies once or is a result."""
    for function in content["functions"]:
        given = function["inputs"] + len(function["keywords"])
        alive = set(range(given))
        ever = set(alive)

        def make(numbers):
            for number in numbers:
                if number in alive: continue
                assert number not in ever, "a number that was used before"
                alive.add(number)
                ever.add(number)

        def use(item):
            if isinstance(item, dict) and set(item) == {"v"}: assert item["v"] in alive
            elif isinstance(item, dict): [use(value) for value in item.values()]
            elif isinstance(item, list): [use(value) for value in item]

        def drop(numbers):
            for number in numbers:
                assert number in alive, "a death of what does not live"
                alive.remove(number)

        def run(body):
            for made in body: step(made)

        def step(made):
            if made[0] == "call":
                use(made[2:4])
                make(made[4])
            elif made[0] == "drop": drop(made[1])
            elif made[0] == "loop":
                run(made[3])
                for before, after in made[2]:  # a second run
                    assert before in alive and after not in alive
                    alive.remove(before)
                    alive.add(after)
                ever.difference_update(n for inner in made[3] if inner[0] == "call" for n in inner[4] if n not in alive)
                run(made[3])
            elif made[0] == "layer":
                use(made[3:5])
                make(made[5])
                inside = content["functions"][made[1]]
                passed = [item["v"] for item in [*made[3], *made[4].values()]]
                drop([passed[n] for m in inside["body"] if m[0] == "drop" for n in m[1] if n < len(passed)])
            elif made[0] == "checkpoint":
                use(made[3:5])
                make(made[5])
            elif made[0] == "layers":
                use(made[5:7])
                passed = {item["v"] for item in [*made[5], *made[6].values()]}
                new = [number for number in made[7] if number not in passed]
                for i in range(made[4]):
                    make([number + i * len(new) for number in new])
                    if made[8] and i + 1 < made[4]: drop([made[5][0]["v"] if i == 0 else new[0] + (i - 1) * len(new)])
            elif made[0] == "custom":
                use(made[3])
                make(made[4])

        run(function["body"])
        assert set(range(given)) | set(function["results"]) >= alive, "a value that neither dies nor is a result"
        assert ever == set(range(len(ever)))


def check_schema(content):
    jsonschema = pytest.importorskip("jsonschema", reason="no jsonschema here: the schema is not tested")
    schema = json.loads((ROOT / "docs/program.schema.json").read_text())
    seen = set()

    def least(item):  # the schema asks of integers that they are 0, 1, or 2 at least
        if isinstance(item, dict): return {key: least(value) for key, value in item.items()}
        if isinstance(item, list): return [least(value) for value in item]
        return min(item, 3) if type(item) is int else item

    def is_new(made):
        before = len(seen)
        seen.add(json.dumps(least(made)))
        return len(seen) > before

    # Instructions that are the same to the schema are looked at once: that takes the most of a test's time.
    functions = [{**function, "body": [made for made in function["body"] if is_new(made)]} for function in content["functions"]]
    jsonschema.Draft202012Validator(schema).validate({**content, "functions": functions})


class Rows(torch.nn.Module):
    def forward(self, x):
        x = list(x.exp())
        return torch.cat(x, dim=0).sum() + torch.stack([row.sum() for row in torch.ones(3, 2)]).sum()


def test_a_list_of_as_many_tensors_as_the_batch_is_made_by_its_join():
    content = record(Rows(), {"x": torch.zeros(4, 8, 2)}, variants=[Variant()]).to_dict()
    check_lifetimes(content)
    check_schema(content)
    assert "fixed" not in content["symbols"]["batch"]
    body = content["functions"][content["forwards"][0]["function"]]["body"]
    (joined,) = [i for i, made in enumerate(body) if made[0] == "call" and made[1] == "torch.cat"]
    assert body[joined][2] == [{"unbind": [{"v": 1}, 0]}]
    assert [i > joined for i, made in enumerate(body) if made[0] == "drop" and 1 in made[1]] == [True]  # as its parts did
    assert any(made[1] == "torch.Tensor.unbind" for made in body if made[0] == "call")  # of what else uses its parts


class Types(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x):
        a = self.linear(x)
        b = x.to(a.dtype)
        y = a.view(4, -1, 2, 4).transpose(1, 2)
        z = b.to(F.scaled_dot_product_attention(y, y, y).dtype)
        return z.to(F.layer_norm(a, (8,)).dtype).sum()


def test_types_under_autocast_are_those_of_its_lists():
    """linear and attention work in autocast's type, layer_norm in float32."""
    content = record(Types(), {"x": torch.zeros(4, 6, 8)}, symbols={}, variants=[Variant()]).to_dict()
    assert [made[2][1] for made in content["functions"][0]["body"] if made[:2] == ["call", "torch.Tensor.to"]] == [
        {"d": "compute"}, {"d": "compute"}, {"d": "weights"}]


class Padded(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = torch.nn.Conv2d(3, 8, 4, 4, padding="valid")

    def forward(self, x, place):
        patches = self.patches(x)
        return (patches + place.to(patches.dtype)).sum()


def test_a_padding_by_name_is_no_way_around_autocast():
    """conv2d.padding is not on autocast's lists, but calls conv2d."""
    example = {"x": torch.zeros(2, 3, 8, 8), "place": torch.zeros(8, 2, 2)}
    content = record(Padded(), example, symbols={}, variants=[Variant()]).to_dict()
    assert [made[2][1] for made in content["functions"][0]["body"] if made[:2] == ["call", "torch.Tensor.to"]] == [{"d": "compute"}]


class Joined(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x, wide):
        a = self.linear(x)
        joined = torch.cat([x if wide else a, a])
        return a.to(joined.dtype).sum()


def test_a_variant_that_makes_the_calls_of_another_has_types_of_its_own():
    """As GPT-OSS's attention with and without a cache: in float32 both are alike, under autocast they are not."""
    content = record(Joined(), {"x": torch.zeros(4, 6, 8)}, symbols={},
                     variants=[Variant(arguments={"wide": wide}) for wide in (True, False)]).to_dict()
    types = [[made[2][1]["d"] for made in content["functions"][forward["function"]]["body"]
              if made[:2] == ["call", "torch.Tensor.to"]] for forward in content["forwards"]]
    assert types == [["weights"], ["compute"]]


class Views(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x):
        y = self.linear(x)
        y[:, 0] = 1
        z = y.view(-1)
        z += 2
        z.mul_(3)
        return z.sum()


def test_writes_in_place_and_views():
    content = record(Views(), {"x": torch.zeros(4, 8)}, variants=[Variant()]).to_dict()
    check_lifetimes(content)
    check_schema(content)
    (function,) = content["functions"]
    body = [made for made in function["body"] if made[0] in ("call", "drop")]
    assert [made[1].rsplit(".", 1)[-1] for made in body if made[0] == "call"] == [
        "linear", "__setitem__", "view", "add_", "mul_", "sum"]
    assert body[1][4] == [] and body[3][4] == body[4][4] == body[2][4] == [2]  # in-place: the value itself
    # mul_'s result is dropped with its statement; y and z die when forward returns, in the order of their names.
    assert body[-1] == ["drop", [1, 2]]


class Lstm(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(100, 16)
        self.lstm = torch.nn.LSTM(16, 32, 2, batch_first=True, dropout=0.1, bidirectional=True)

    def forward(self, x):
        output, (hidden, cell) = self.lstm(self.embedding(x))
        return output[:, -1].mean()


def test_an_lstm_is_one_call():
    content = record(Lstm(), {"x": torch.zeros(6, 20, dtype=torch.long)}, variants=[Variant()]).to_dict()
    check_lifetimes(content)
    calls = [made for made in content["functions"][0]["body"] if made[0] == "call"]
    assert [made[1] for made in calls] == ["torch.nn.functional.embedding", "torch.zeros", "torch.zeros", "torch.lstm",
                                           "torch.Tensor.__getitem__", "torch.Tensor.mean"]
    assert len(calls[3][2][2]) == 16 and len(calls[3][4]) == 3


class Reads(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x):
        y = self.linear(x)
        return y * y.max().item()  # THE LINE


def test_a_value_that_nobody_knows_is_an_error_that_names_the_line():
    line = next(i for i, text in enumerate(Path(__file__).read_text().splitlines(), 1) if text.endswith("# THE LINE"))
    place = f"record_test.py:{line}"
    with pytest.raises(recording.ValueNeeded) as error:
        record(Reads(), {"x": torch.zeros(4, 8)})
    assert place in str(error.value) and "torch.Tensor.item" in str(error.value) and "forward" in str(error.value)
    content = record(Reads(), {"x": torch.zeros(4, 8)}, policies={place: 0.5}, variants=[Variant()]).to_dict()
    assert content["assumptions"] == [{"policy": place, "where": place, "count": 1}]


class Selects(torch.nn.Module):
    def forward(self, x):
        return x[x.sum(1) > 0].sum()  # THE MASK


def test_a_policy_says_how_much_a_mask_selects():
    line = next(i for i, text in enumerate(Path(__file__).read_text().splitlines(), 1) if text.endswith("# THE MASK"))
    for answer, rows in ((True, 4), (3, 3)):
        policies = {f"record_test.py:{line}": answer}
        content = record(Selects(), {"x": torch.zeros(4, 8)}, policies=policies, variants=[Variant()], symbols={}).to_dict()
        body = content["functions"][of_eager_mode(content)[0]["function"]]["body"]
        (selected,) = [made for made in body if made[1:2] == ["torch.Tensor.__getitem__"]]
        assert selected[5][0][0] == [rows, 8]
        assert content["assumptions"][0]["policy"] in policies
    with pytest.raises(recording.ValueNeeded, match="record_test.py"):
        record(Selects(), {"x": torch.zeros(4, 8)})


class Experts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = torch.nn.Linear(8, 4)
        self.experts = torch.nn.ModuleList([torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()) for _ in range(4)])

    def forward(self, x):
        chosen = self.gate(x).topk(2, dim=-1).indices
        result = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows, _ = torch.where(chosen == number)
            result.index_add_(0, rows, expert(x[rows]))
        return result.sum()


def test_tokens_go_to_experts_evenly():
    content = record(Experts(), {"x": torch.zeros(32, 8)}, variants=[Variant()], sizes={"batch": [64, 96, 128]}).to_dict()
    check_lifetimes(content)
    found = [made for f in content["functions"] for made in f["body"] if made[0] == "call" and made[1] == "torch.where"]
    assert len(found) == 4 and all(made[5][0][0] == [{"n": "(batch)//2"}] for made in found)  # 2 of 4 for each token
    assert {a["policy"] for a in content["assumptions"]} == {"balanced_routing"}
    with pytest.raises(recording.ValueNeeded, match="balanced_routing"):
        record(Experts(), {"x": torch.zeros(32, 8)}, policies={"balanced_routing": False})


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (x * x).exp()

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return 2 * x * gradient


class Custom(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x):
        return Square.apply(self.linear(x)).sum()


def test_a_custom_autograd_function_has_both_passes():
    content = record(Custom(), {"x": torch.zeros(4, 8)}, variants=[Variant()]).to_dict()
    check_lifetimes(content)
    check_schema(content)
    (custom,) = [made for f in content["functions"] for made in f["body"] if made[0] == "custom"]
    forward, backward = content["functions"][custom[2]], content["functions"][custom[5]["backward"]]
    assert [m[1] for m in forward["body"] if m[0] == "call"] == ["torch.Tensor.mul", "torch.Tensor.exp"]
    assert [m[1] for m in backward["body"] if m[0] == "call"] == ["torch.Tensor.mul", "torch.Tensor.mul"]
    assert forward["results"][custom[5]["saved"][0]] == 0 and backward["keywords"] == ["saved.0"]
    assert custom[5]["inputs"] == custom[3] and custom[5]["differentiable"] == [True] and "needs" not in custom[5]


class Gated(torch.autograd.Function):
    """Returns its first argument as it is, and asks which gradients are needed."""

    @staticmethod
    def forward(ctx, x, weight, times):
        ctx.held = [weight]
        ctx.save_for_backward(x)
        return x, (x * weight * times).detach()

    @staticmethod
    def backward(ctx, of_x, of_product):
        (x,) = ctx.saved_tensors
        return of_x * ctx.held[0], (x * of_product).sum(0) if ctx.needs_input_grad[1] else None, None


class WithGated(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(8))

    def forward(self, x):
        same, product = Gated.apply(x * self.weight, self.weight, 3)
        return (same + product).sum()


def test_a_custom_autograd_function_says_whose_gradients_it_returns():
    content = record(WithGated(), {"x": torch.zeros(4, 8)}, variants=[Variant()]).to_dict()
    check_schema(content)
    (custom,) = [made for f in content["functions"] for made in f["body"] if made[0] == "custom"]
    forward, backward = content["functions"][custom[2]], content["functions"][custom[5]["backward"]]
    assert [m[1] for m in forward["body"] if m[0] == "call"][-1] == "torch.Tensor.view_as"
    assert custom[5]["inputs"] == [custom[3][0], {"p": "weight"}] and custom[5]["needs"] == [True, True]
    assert custom[5]["attributes"] == [{"p": "weight"}] and len(backward["results"]) == 2


class Regions(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)

    def forward(self, x):
        hidden = self.first(x)

        def run(given, *, other):
            return given.exp() * hidden * other, self.second(given)

        a, b = torch.utils.checkpoint.checkpoint(run, hidden + 1, other=x, use_reentrant=False)
        return (a * torch.utils.checkpoint.checkpoint(self.second, b, use_reentrant=True)).sum()


def test_a_region_of_checkpointing_is_a_function():
    content = record(Regions(), {"x": torch.zeros(4, 8)}, variants=[Variant()]).to_dict()
    check_lifetimes(content)
    check_schema(content)
    body = content["functions"][content["forwards"][0]["function"]]["body"]
    first, second = [made for made in body if made[0] == "checkpoint"]
    assert [first[1], second[1]] == [False, True]
    assert list(first[4]) == ["other", "captured.0"] and len(first[5]) == 2
    called = content["functions"][first[2]]
    assert [m[1].rsplit(".", 1)[-1] for m in called["body"] if m[0] == "call"] == ["exp", "mul", "mul", "linear"]
    assert len(called["results"]) == 2


def test_the_module_is_left_alone():
    module = Views()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    call = torch.nn.Module.__call__
    record(module, {"x": torch.zeros(4, 8)})
    assert torch.nn.Module.__call__ is call and not torch.is_autocast_enabled("cpu")
    after = module.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before) and module.training


def test_integers_become_expressions():
    sizes = [dict(b=b, s=s) for b, s in ((8, 512), (3, 512), (8, 331), (3, 211), (5, 331), (7, 149))]
    cases = {"2*b*s+1": lambda b, s: 2 * b * s + 1, "(b*s)//2": None, "(64-s%64)%64": lambda b, s: -s % 64,
             "(s//64)+2": lambda b, s: s // 64 + 2, "min(s,256)": lambda b, s: min(s, 256), "s*s": lambda b, s: s * s,
             "((s+63)//64)*b": lambda b, s: b * ((s + 63) // 64), "7": lambda b, s: 7}
    for text, value in cases.items():
        if value is None: continue
        assert str(_solve.solve_integer([value(**size) for size in sizes], sizes)) == text
    assert _solve.solve_integer([1, 5, 2, 9, 3, 4], sizes) is None


def test_integers_of_patches_and_of_odd_edges():
    edges = [{"batch": 4, "image": image} for image in (224, 160, 352, 288)]
    sizes = [*edges, {"batch": 3, "image": 224}, {"batch": 5, "image": 160}]
    for text in ("(image//32)*(image//32)", "(image//16)*(image//16)+1", "batch*(image//32)*(image//32)"):
        assert _solve.solve_integer([eval(text, {}, size) for size in sizes], sizes) == text
    uneven = [{"image": image} for image in (300, 173, 277, 350, 211, 403, 318, 246, 385, 231)]
    halves = [(size["image"] + 3) // 4 % 2 for size in uneven]
    assert _solve.solve_integer(halves, uneven) == "((image+3)//4)%2"
    assert _solve.solve_integer(halves[:4], uneven[:4]) is None  # too few to tell


class Encoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(8, 16)
        self.layers = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 3)
        self.last = torch.nn.Linear(16, 8)

    def forward(self, x):
        return self.last(self.layers(self.first(x))).sum()


def test_construction_has_the_layer_that_was_copied():
    content = record(Encoder, {"x": torch.zeros(3, 5, 8)}, variants=[Variant()]).to_dict()
    made = content["construction"]
    others = [i for i, item in enumerate(made) if "shape" in item]
    freed = next(i for i, item in enumerate(made) if "freed" in item)
    assert len(others) == 12 and sorted(made[freed]["freed"]) == list(range(12))
    assert made[0] == {"name": "first.weight"} and others == list(range(2, 14))
    assert made[14]["repeat"] == "layers.layers.{}" and made[14]["count"] == 3 and freed == 15
    assert made[others[0]] == {"shape": [48, 16], "dtype": "weights"}
    assert [item["name"] for item in made[freed + 1:]] == ["last.weight", "last.bias"]
    plain = record(lambda: torch.nn.Linear(8, 8), {"input": torch.zeros(3, 8)}, loss=lambda out: out.sum(),
                   variants=[Variant()]).to_dict()
    assert "construction" not in plain and plain["converted"]


def test_a_size_that_changes_the_calls_is_fixed_and_says_so():
    class Loop(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(8, 8)

        def forward(self, x):
            for i in range(x.shape[1] // 5): x = self.linear(x)
            return x.sum()

    content = record(Loop(), {"x": torch.zeros(4, 20, 8)}, symbols={"batch": ["x.0"], "length": ["x.1"]}).to_dict()
    assert "fixed" not in content["symbols"]["batch"]
    assert content["symbols"]["length"]["fixed"] and "calls" in content["symbols"]["length"]["reason"]


class CachedIndex(torch.nn.Module):
    """As BEiT has its index of relative positions: made once for all layers and kept by functools."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    @staticmethod
    @functools.lru_cache(maxsize=4)
    def index(size):
        return torch.arange(size, device="cuda").flip(0)

    def forward(self, x): return self.linear(x)[:, self.index(4)].sum()


def test_each_recording_makes_what_the_one_before_left_in_a_cache():
    content = record(lambda dtype: CachedIndex().to(dtype), {"x": torch.zeros(4, 8, 8)}, symbols={"batch": ["x.0"]}).to_dict()
    assert len(content["forwards"]) > 1
    assert not any(keyword.startswith("captured") for function in content["functions"] for keyword in function["keywords"])
    for forward in content["forwards"]: assert len(forward["held"]) == 1


def test_runs_of_layers_are_folded_and_nothing_else():
    layer = lambda i, given, made: ["layer", 0, f"h.{i}", [{"v": given}], {}, [made]]  # noqa: E731
    body = [layer(0, 0, 1), layer(1, 1, 2), ["drop", [1]], layer(2, 2, 3), ["drop", [2]], layer(3, 3, 4), ["drop", [3]]]
    folded = _functions.fold(copy.deepcopy(body))
    assert folded == [body[0], ["layers", 0, "h.{}", 1, 3, [{"v": 1}], {}, [2], True], ["drop", [3]]]
    assert _functions.fold([layer(0, 0, 1), layer(2, 1, 2)]) == [layer(0, 0, 1), layer(2, 1, 2)]


class Attends(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.project = torch.nn.Linear(64, 64)

    def forward(self, x):
        from torch.nn.attention import SDPBackend, sdpa_kernel
        x = self.project(x).unflatten(-1, (4, 16)).transpose(1, 2)
        with sdpa_kernel(SDPBackend.MATH): return F.scaled_dot_product_attention(x, x, x).sum()


def test_backends_of_attention_that_are_off_are_an_error_or_a_policy():
    inputs = {"x": torch.zeros(2, 8, 64)}
    with pytest.raises(recording.ValueNeeded, match=r"record_test.py.*flash.* switched off"): record(Attends(), inputs)
    assert record(Attends(), inputs, policies={"all_sdpa_backends": True}).to_dict()["functions"]
    was = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        with pytest.raises(recording.ValueNeeded, match="cuDNN"): record(Attends(), inputs)
    finally: torch.backends.cuda.enable_cudnn_sdp(was)


class Squares(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        context.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(context, gradient):
        with torch.enable_grad():
            x = context.saved_tensors[0].detach().requires_grad_(True)
            return torch.autograd.grad((x * x).sum(), x)[0] * gradient


class Calls(torch.nn.Module):
    """What the function makes of x and a parameter."""

    def __init__(self, function, *parts):
        super().__init__()
        self.parts = torch.nn.ModuleList(parts)
        self.weight = torch.nn.Parameter(torch.ones(16))
        self.function = function

    def forward(self, x):
        return self.function(x * self.weight, *self.parts).sum()


def test_a_backward_pass_inside_is_an_error_that_names_the_line():
    with pytest.raises(recording.ValueNeeded, match=r"record_test.py:\d+: backward calls torch.autograd.grad"):
        record(Calls(lambda x: Squares.apply(x)), {"x": torch.zeros(4, 16)})


def test_packed_sequences_are_an_error():
    def packed(x, lstm):
        sequences = torch.nn.utils.rnn.pack_padded_sequence(x, [5, 5, 5, 5], batch_first=True, enforce_sorted=False)
        return lstm(sequences)[0].data

    with pytest.raises(recording.ValueNeeded, match="pack_padded_sequence"):
        record(Calls(packed, torch.nn.LSTM(16, 8, batch_first=True)), {"x": torch.zeros(4, 5, 16)})


def test_a_cell_is_one_call():
    content = record(Calls(lambda x, cell: cell(x), torch.nn.GRUCell(16, 32)), {"x": torch.zeros(4, 16)}).to_dict()
    calls = [made for function in content["functions"] for made in function["body"] if made[0] == "call"]
    cell = next(made for made in calls if made[1] == "torch.gru_cell")
    assert len(cell[4]) == 1 and len(cell) == 5, "memcalc computes the size of its result"


def test_numbers_of_numpy_are_numbers_and_arrays_are_tensors_of_their_values():
    numpy = pytest.importorskip("numpy")

    def masked(x):
        mask = torch.tensor(numpy.array([True, False, True, False]), device=x.device)
        return x[mask] * numpy.float32(2)

    content = record(Calls(masked), {"x": torch.zeros(4, 16)}, symbols={}).to_dict()
    calls = [made for function in content["functions"] for made in function["body"] if made[0] == "call"]
    picked = next(made for made in calls if made[1] == "torch.Tensor.__getitem__")
    assert picked[5][0][0] == [2, 16]  # two are True


@pytest.mark.skipif("__import__('importlib.util').util.find_spec('torchvision') is None", reason="no torchvision here")
@pytest.mark.parametrize("name", ["no_such_network", "keypointrcnn_resnet50_fpn"])
def test_what_cannot_be_recorded_is_one_line(name, tmp_path, capsys):
    from memcalc.record.__main__ import main

    assert main(["--torchvision", name, "-o", str(tmp_path / "program.json")]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and told.startswith("memcalc.record: error: ") and name in told


@pytest.mark.parametrize(("given", "named"), [
    (["--hf", "/no/file.json"], "/no/file.json"), (["--hf", "BROKEN.json"], "BROKEN.json"), (["--hf", "EMPTY.json"], "model_type"),
    (["--torchvision", "resnet18", "--batch", "0"], "--batch 0"), (["--torchvision", "resnet18", "--image", "-5"], "--image -5"),
    (["--hf", "EMPTY.json", "--task", "nonsense"], "--task nonsense: accepted: causal"), (["--torchvision", "resnet18", "-o", "/no/dir/x.json"], "/no/dir"),
])
def test_a_command_line_is_looked_at_before_anything_is_recorded(given, named, tmp_path, capsys, monkeypatch):
    from memcalc.record.__main__ import main

    (tmp_path / "BROKEN.json").write_text("{")
    (tmp_path / "EMPTY.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    assert main([*(["-o", "program.json"] if "-o" not in given else []), *given]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and told.startswith("memcalc.record: error: ") and named in told


def test_a_configuration_that_the_class_refuses_is_one_line(tmp_path, capsys):
    pytest.importorskip("transformers")
    from memcalc.record.__main__ import main

    config = tmp_path / "config.json"
    config.write_text('{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "num_attention_heads": 4, "hidden_act": "no_such_act"}')
    assert main(["--hf", str(config), "-o", str(tmp_path / "program.json")]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and "no_such_act" in told
