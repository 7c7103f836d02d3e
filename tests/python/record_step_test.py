"""memcalc.record: a step of a loop around the module, what a diffusion model's class holds, parameters and inputs that are
not as they should be. Needs PyTorch."""
import pytest

torch = pytest.importorskip("torch", reason="no PyTorch here: recording is not tested", exc_type=ImportError)
from record_test import Variant, _solve, record  # noqa: E402, also where the extension is not built

F = torch.nn.functional


class Rotated(torch.nn.Module):
    """Adds a tensor that it holds as a plain attribute."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(16, 16)
        self.angles = torch.ones(16)

    def forward(self, x):
        return self.linear(x) + self.angles


def test_a_plain_attribute_is_a_constant_by_its_name():
    program = record(Rotated, {"x": torch.empty(4, 16)}, loss=lambda out: out.sum()).to_dict()
    assert [(c["name"], c["shape"]) for c in program["constants"]] == [("angles", [16])]


def test_a_step_has_the_calls_of_the_loop_around_the_module():
    def step(module, batch):
        noise = torch.randn_like(batch["x"])
        predicted = module(batch["x"] + noise)
        loss = F.mse_loss(predicted, noise)
        return {"loss": loss, "locals": [noise, predicted]}

    program = record(Rotated, lambda batch: {"x": torch.empty(batch, 16)}, symbols={"batch": 4}, step=step,
                     variants=[Variant("train")]).to_dict()
    forward = program["forwards"][0]
    body = program["functions"][forward["function"]]["body"]
    assert [call[1].rsplit(".", 1)[-1] for call in body if call[0] == "call"] == ["randn_like", "add", "linear", "add", "mse_loss"]
    assert set(forward["outputs"]) == {"loss", "locals"} and len(forward["outputs"]["locals"]) == 2


class WithoutHead(torch.nn.Module):
    """Makes a head of 4 MiB and drops it before its last layer, as a detector does with its backbone's classifier."""

    def __init__(self, width=1024):
        super().__init__()
        self.first = torch.nn.Linear(16, 16)
        self.head = torch.nn.Linear(width, 1024)
        del self.head
        self.last = torch.nn.Linear(16, 16)

    def forward(self, x):
        return self.last(self.first(x))


def test_construction_has_what_is_made_large_and_dropped():
    def construction(width):
        program = record(lambda: WithoutHead(width), {"x": torch.empty(4, 16)}, loss=lambda out: out.sum()).to_dict()
        return program.get("construction")

    made = construction(1024)
    assert made[2:4] == [{"shape": [1024, 1024], "dtype": "weights"}, {"freed": [0]}] and made[-1]["name"] == "last.bias"
    assert construction(4) is None


def test_a_network_of_a_script_is_made_on_the_host():
    def step(module, batch): return {"loss": F.mse_loss(module(batch["x"]), batch["x"])}
    program = record(WithoutHead, {"x": torch.empty(4, 16)}, step=step, variants=[Variant("train")]).to_dict()
    assert "construction" not in program


def test_a_square_of_a_size_has_larger_denominators():
    sizes = [{"image": n, "tokens": t} for n, t in ((1024, 512), (512, 512), (1024, 211), (768, 512), (512, 211), (1280, 641))]
    assert _solve.solve_integer([(s["image"] // 16) ** 2 + s["tokens"] for s in sizes], sizes) == "(image*image+256*tokens)//256"


class Cache:
    """No module: what it holds is not put back after a recording."""

    tensor = None


class Cached(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(16, 16)
        self.cache = Cache()

    def forward(self, x):
        self.cache.tensor = None
        self.cache.tensor = torch.ones(16, device=x.device)
        return self.linear(x) + self.cache.tensor


def test_what_an_earlier_recording_left_behind_dies_unseen():
    program = record(Cached, lambda batch: {"x": torch.empty(batch, 16)}, symbols={"batch": 4}, loss=lambda out: out.sum()).to_dict()
    for forward in program["forwards"]: assert program["functions"][forward["function"]]["keywords"] == ["x"]


def test_parameters_that_heed_no_device_are_moved():
    class Stays(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.FloatTensor(16, 8))

        def forward(self, x):
            return (x @ self.weight).sum()

    assert record(Stays, {"x": torch.zeros(4, 16)}).to_dict()["parameters"][0]["shape"] == [16, 8]


def test_inputs_without_data_are_zeros():
    class Classifies(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scores = torch.nn.Linear(16, 8)

        def forward(self, x, y):
            if y.max() >= 8: raise ValueError("labels beyond the classes")
            return F.cross_entropy(self.scores(x), y)

    inputs = {"x": torch.zeros(4, 16, device="meta"), "y": torch.zeros(4, dtype=torch.long, device="meta")}
    content = record(Classifies(), inputs).to_dict()
    assert {made["policy"] for made in content["assumptions"]} == {"zeros_without_data"}
