"""memcalc.record: what depends on sizes. Loops over them, a size at which the module makes other calls, functions that differ in
what they do not use. Needs PyTorch."""
import pytest

torch = pytest.importorskip("torch", reason="no PyTorch here: recording is not tested", exc_type=ImportError)
from record_test import Variant, _functions, check_lifetimes, check_schema, record  # noqa: E402, also where the extension is not built

F = torch.nn.functional


class Recurrence(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x):
        y = torch.zeros_like(x)
        state = torch.zeros(x.shape[0], 8, device=x.device)
        for i in range(0, x.shape[1] // 16):
            now = self.linear(x[:, i * 16])
            state = state * now + now
            y[:, i * 16] = state
        return y.sum()


def test_a_loop_over_the_length_is_one_body_and_a_count():
    content = record(Recurrence(), {"x": torch.zeros(4, 512, 8)}, symbols={"batch": ["x.0"], "length": ["x.1"]},
                     variants=[Variant()]).to_dict()
    check_lifetimes(content)
    check_schema(content)
    assert not any("fixed" in symbol for symbol in content["symbols"].values())
    (loop,) = [made for made in content["functions"][0]["body"] if made[0] == "loop"]
    assert loop[1] == {"n": "(length//16)-2"}  # a first and a last one stand beside it
    indices = [made[2][1][1] for made in loop[3] if made[0] == "call" and made[1].endswith("item__")]
    assert indices == [{"i": [0, 16]}, {"i": [16, 16]}]


def test_a_pass_with_loops_that_is_like_another_is_not_recorded_at_every_size(monkeypatch):
    from memcalc.record._recordings import Recordings

    lengths = []
    original = Recordings.record

    def recorded(self, variant, precision, example):
        lengths.append((variant.mode, variant.compiling, example["x"].shape[1]))
        return original(self, variant, precision, example)

    monkeypatch.setattr(Recordings, "record", recorded)
    content = record(Recurrence(), {"x": torch.zeros(4, 512, 8)}, symbols={"batch": ["x.0"], "length": ["x.1"]},
                     variants=[Variant(), Variant("eval", gradients=False)]).to_dict()
    assert content["symbols"]["length"] == {"default": 512}
    assert {(mode, compiling) for mode, compiling, length in lengths if length != 512} == {("train", False)}
    assert {(mode, compiling) for mode, compiling, _ in lengths} == {("train", False), ("eval", False), ("train", True)}
    assert len(content["functions"]) == 1  # all are that function


class Optional(torch.nn.Module):
    """Makes calls of its own for each input that it is given."""

    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)

    def forward(self, x, mask=None, weights=None):
        y = self.first(x)
        if mask is not None: y = y.view(x.shape[0], x.shape[1] * 16).masked_fill(mask, 0).view(x.shape[0], x.shape[1], 16)
        y = self.second(y.to(x.dtype))
        return y.sum() if weights is None else (y.view(-1, 8) * weights.reshape(x.shape[0] * x.shape[1], 1)).sum()


def test_a_variant_of_calls_that_others_make_is_recorded_at_one_size(monkeypatch):
    from memcalc.record._recordings import Recordings

    recorded = []
    original = Recordings._record
    monkeypatch.setattr(Recordings, "_record", lambda self, variant, precision, example: recorded.append(
        (variant.inputs, precision, tuple(example["x"].shape))) or original(self, variant, precision, example))
    inputs = {"x": torch.zeros(8, 64, 8), "mask": torch.ones(8, 1024, dtype=torch.bool), "weights": torch.zeros(8, 64)}
    symbols = {"batch": ["x.0", "mask.0", "weights.0"]}
    variants = [Variant(inputs=["x", *more]) for more in ([], ["mask"], ["weights"], ["mask", "weights"])]
    content = record(Optional(), inputs, symbols=symbols, variants=variants, not_compiled="not asked").to_dict()
    assert [shape for given, _, shape in recorded if given == variants[-1].inputs] == [(8, 64, 8)]
    assert len([shape for given, *_, shape in recorded if given == variants[-2].inputs]) > 3
    alone = record(Optional(), inputs, symbols=symbols, variants=variants[-1:], not_compiled="not asked").to_dict()
    assert content["functions"][content["forwards"][-1]["function"]] == alone["functions"][alone["forwards"][-1]["function"]]


class Reshaped(torch.nn.Module):
    """The same calls of the same tensors again, which a write in between has given another shape; some hand back what they get."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x):
        y = self.linear(x)
        shapes = []
        for _ in range(2):
            z = y.to(x.dtype).exp()
            shapes.append(z.view(z.shape).sum())
            y.unsqueeze_(0)
        return shapes[0] + shapes[1]


def test_what_is_remembered_of_a_call_is_not_of_a_tensor_that_was_written_to():
    content = record(Reshaped(), {"x": torch.zeros(4, 6, 8)}, symbols={}, variants=[Variant()]).to_dict()
    check_lifetimes(content)
    body = content["functions"][0]["body"]
    views = [made[2][1:] for made in body if made[:2] == ["call", "torch.Tensor.view"]]
    assert views == [[[4, 6, 8]], [[1, 4, 6, 8]]]
    results = [made[4] for made in body if made[:2] == ["call", "torch.Tensor.to"]]
    assert len({number for (number,) in results}) == 2  # a variable of its own each


class Positions(torch.nn.Module):
    """Has positions of images of one size, and makes those of others (diffusers' PatchEmbed)."""

    def __init__(self):
        super().__init__()
        self.convolution = torch.nn.Conv2d(3, 8, 4, stride=4)
        self.register_buffer("positions", torch.zeros(1, 8, 16, 16))

    def forward(self, x):
        x = self.convolution(x)
        if x.shape[-1] == 16: return x + self.positions
        edge = torch.arange(x.shape[-1], device=x.device, dtype=x.dtype)
        return x + torch.sin(edge)[None, :] * torch.cos(edge)[:, None]


def test_a_module_that_makes_other_calls_at_its_own_size_alone_has_both():
    def example(batch, image): return {"x": torch.zeros(batch, 3, image, image), "y": torch.zeros(batch, dtype=torch.long)}

    content = record(Positions, example, symbols={"batch": 4, "image": 64}, sizes={"image": [96, 160, 128]},
                     multiples={"image": 32}, loss=lambda output, given: F.cross_entropy(output.mean((2, 3)), given["y"])).to_dict()
    check_schema(content)
    check_lifetimes(content)
    assert content["version"] == 3 and content["symbols"]["image"] == {"default": 64, "multiple": 32}
    assert content["inputs"][0]["shape"] == ["batch", 3, "image", "image"]
    own, others = ([f for f in content["forwards"] if key in f] for key in ("at", "not_at"))
    assert len(own) == len(others) and own + others == content["forwards"]
    assert all(f.get("at", f.get("not_at")) == {"image": 64} for f in content["forwards"])
    names = [{made[1] for made in content["functions"][f["function"]]["body"] if made[0] == "call"} for f in (own[0], others[0])]
    assert "torch.sin" not in names[0] and "torch.sin" in names[1]


def test_functions_that_differ_in_a_count_that_they_do_not_use_are_one():
    def layer(keywords):
        made = 1 + len(keywords)
        return {"inputs": 1, "keywords": keywords, "body": [["call", "torch.neg", [{"v": 0}], {}, [made]], ["drop", [0]]],
                "results": [made]}

    def main(layer, keywords):
        given = {"num_items_in_batch": {"v": 1}} if keywords else {}
        made = 1 + len(keywords)
        return {"inputs": 0, "keywords": ["x", *keywords], "results": [made], "body": [
            ["layers", layer, "h.{}", 0, 2, [{"v": 0}], given, [made], True],
            *([["call", "torch.div", [{"v": made + 1}, {"v": 1}], {}, [made + 2]]] if keywords else [])]}

    counts = ["num_items_in_batch"]
    forwards = [{"function": 1}, {"function": 3}]
    functions = _functions.shared([layer([]), main(0, []), layer(counts), main(2, counts)], forwards)
    assert functions[0] == layer([]) and len(functions) == 3 and [each["function"] for each in forwards] == [1, 2]
    assert functions[2]["keywords"] == ["x", *counts]  # what is used, and what a forward pass is given, stays
    assert functions[2]["body"][0] == ["layers", 0, "h.{}", 0, 2, [{"v": 0}], {}, [2], True]


class Parts(torch.nn.Module):
    def forward(self, x, sizes):
        sizes = torch.as_tensor(sizes, device=x.device)  # the tensor itself
        first, second = x.split([sizes[0], sizes[1]])
        return (first[:, : sizes[0] // 2] * 2).sum() + second.view(sizes[1], 2, -1).sum()


def test_tensors_stand_where_torch_takes_whole_numbers():
    content = record(Parts(), {"x": torch.zeros(6, 8), "sizes": torch.tensor([4, 2])}, symbols={}, variants=[Variant()]).to_dict()
    check_lifetimes(content)
    check_schema(content)
    names = [made[1] for made in content["functions"][0]["body"] if made[0] == "call"]
    assert names.count("torch.Tensor.__index__") == 4 and "torch.as_tensor" not in names  # two sizes, a bound, a size


def test_chosen_sizes_are_others_than_the_examples():
    from memcalc.record._sizes import other_sizes

    assert other_sizes("image", 512, 64, {"image": [512, 768, 1280, 1024]}) == [768, 1280, 1024]
    with pytest.raises(ValueError, match="three that are not the example's 512"): other_sizes("image", 512, 64, {"image": [512, 768, 1280]})


class Composed(torch.nn.Module):
    """Functions that memcalc's table does not have, of operators that it has."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(20, 64))

    def forward(self, x):
        middle = x.quantile(0.5, -1)
        rows = torch.tensordot(x, self.weight, dims=([1], [1]))
        return torch.einsum("ld,md,nd->lmn", x, self.weight, self.weight).sum() + rows.sum() + middle.sum()


def test_a_composed_function_is_recorded_by_what_is_inside_of_it():
    content = record(Composed(), {"x": torch.zeros(50, 64)}, symbols={"batch": ["x.0"]}, variants=[Variant()]).to_dict()
    check_lifetimes(content)
    check_schema(content)
    called = [made[1].rsplit(".", 1)[-1] for function in content["functions"] for made in function["body"] if made[0] == "call"]
    assert not {"quantile", "tensordot", "einsum"} & set(called)
    assert {"sort", "gather", "mm", "bmm"} <= set(called)
    assert not any("fixed" in symbol for symbol in content["symbols"].values())


class Inverse(torch.nn.Module):
    def forward(self, x): return torch.linalg.pinv(x).sum()  # of a decomposition that the table does not have


def test_a_composed_function_of_an_unknown_operator_is_one_call():
    content = record(Inverse(), {"x": torch.zeros(4, 8, 6)}, symbols={"batch": ["x.0"]}, variants=[Variant()]).to_dict()
    assert [made[1] for function in content["functions"] for made in function["body"] if made[0] == "call"][0] == "torch.linalg.pinv"
