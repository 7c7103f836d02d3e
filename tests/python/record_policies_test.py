"""memcalc.record: what detection's losses ask of values, and the tasks whose labels are lists. Needs PyTorch."""
import pytest

torch = pytest.importorskip("torch", reason="no PyTorch here: recording is not tested", exc_type=ImportError)
from record_test import Variant, check_lifetimes, record, recording  # noqa: E402, also where the extension is not built


class Checks(torch.nn.Module):
    """Raises where its boxes are none, or where one of two tests says so, of which a line does not tell which."""

    def __init__(self, ambiguous=False):
        super().__init__()
        self.linear, self.ambiguous = torch.nn.Linear(4, 4), ambiguous

    def forward(self, x):
        y = self.linear(x)
        if not (y[:, 2:] >= y[:, :2]).all():
            raise ValueError("no boxes")
        large = y > 100
        if large.any():
            found = y[large]
            raise ValueError(f"too large: {found}")
        assert y.isfinite().all()
        if self.ambiguous and not y.gt(0).all():
            raise ValueError("negative")
        return y


def test_a_check_that_would_raise_finds_nothing_wrong():
    content = record(Checks(), {"x": torch.zeros(3, 4)}, variants=[Variant()]).to_dict()
    found = [each["policy"] for each in content["assumptions"]]
    assert found.count("no_errors") == 2 and "finite_values" in found
    reads = [call[1] for call in content["functions"][0]["body"] if call[0] == "call" and call[1].endswith("__bool__")]
    assert len(reads) == 3, "the host waits for each"
    with pytest.raises(recording.ValueNeeded, match="no_errors"):
        record(Checks(), {"x": torch.zeros(3, 4)}, policies={"no_errors": False}, variants=[Variant()])


def test_a_distribution_takes_its_parameters():
    """torch.distributions checks them in its own code, which no line of the module's tells (Informer's Student's t)."""
    class Forecast(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 2)

        def forward(self, x):
            mean, width = self.linear(x).unbind(-1)
            return -torch.distributions.Normal(mean, torch.nn.functional.softplus(width)).log_prob(x[:, 0]).mean()

    content = record(Forecast(), {"x": torch.zeros(3, 4)}, variants=[Variant()], precisions=("float32",)).to_dict()
    assert [each["policy"] for each in content["assumptions"]] == ["no_errors"] * len(content["assumptions"])


def test_a_precision_in_which_the_module_fails_is_left_out():
    class Transform(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(4, dtype=torch.complex64))  # there is no such type of 16 bits

        def forward(self, x):
            return (x * self.weight).abs().sum()

    content = record(Transform(), {"x": torch.zeros(3, 4)}, variants=[Variant()]).to_dict()
    assert {tuple(each["precisions"]) for each in content["forwards"]} == {("float32", "autocast")}


def test_a_check_of_several_kinds_is_not_guessed():
    with pytest.raises(recording.ValueNeeded, match=r"bool\(tensor\)"):
        record(Checks(True), {"x": torch.zeros(3, 4)}, variants=[Variant()])


def test_a_matching_has_as_many_pairs_as_there_can_be():
    optimize = pytest.importorskip("scipy.optimize", reason="no scipy here")

    class Matches(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 7)

        def forward(self, x):
            costs = self.linear(x)
            rows, columns = optimize.linear_sum_assignment(costs.detach().cpu())
            return costs[torch.as_tensor(rows), torch.as_tensor(columns)]

    content = record(Matches(), {"x": torch.zeros(5, 4)}, variants=[Variant()], symbols={"batch": ["x.0"]}).to_dict()
    check_lifetimes(content)
    assert [each["policy"] for each in content["assumptions"]] == ["any_matching"]
    body = content["functions"][0]["body"]
    picked = next(call for call in body if call[0] == "call" and call[1].endswith("__getitem__"))
    made = [call for call in body if call[0] == "call" and call[1] == "torch.as_tensor"]
    assert len(made) == 2 and all(call[5][0][1] == {"d": "int64"} for call in made)
    assert len(picked[2][1]) == 2
    with pytest.raises(recording.ValueNeeded, match="linear_sum_assignment"):
        record(Matches(), {"x": torch.zeros(5, 4)}, policies={"any_matching": False}, variants=[Variant()])


class Counts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        y = self.linear(x)
        _, counts = y[:, 0].long().unique(return_counts=True)
        made = torch.zeros(2, counts.max(), device=x.device)
        return y[(y > 0).nonzero(as_tuple=True)].sum() + made.sum()


def test_an_answer_may_be_made_of_the_inputs():
    line = Counts.forward.__code__.co_firstlineno + 2
    policies = {f"record_policies_test.py:{line}": lambda given: given["x"].shape[0],
                f"record_policies_test.py:{line + 1}": 3,
                f"record_policies_test.py:{line + 2}": lambda given: 2 * given["x"].shape[0]}
    content = record(Counts(), {"x": torch.zeros(5, 4)}, policies=policies, variants=[Variant()], symbols={"batch": ["x.0"]}).to_dict()
    check_lifetimes(content)
    assert "fixed" not in content["symbols"]["batch"], "the answers grow with it"
    calls = {call[1]: call for call in content["functions"][0]["body"] if call[0] == "call"}
    assert calls["torch.zeros"][2] == [2, 3], "the size that the host has asked for"
    assert "2*batch" in str(calls["torch.Tensor.nonzero"])


def test_a_model_of_images_is_asked_how_many_places_they_take():
    library = pytest.importorskip("transformers")
    from memcalc.record._pictures import pictures
    text = dict(model_type="llama", hidden_size=64, intermediate_size=64, num_attention_heads=4, num_hidden_layers=2, vocab_size=500)
    vision = dict(hidden_size=32, intermediate_size=32, num_attention_heads=2, num_hidden_layers=2, image_size=48, patch_size=16)
    config = library.DeepseekVLConfig(text_config=text, vision_config=vision, image_token_id=499)
    found = pictures(config, library.DeepseekVLForConditionalGeneration, 2, None)
    assert (found.tokens, found.all_tokens, found.token_id) == (9, 20, 499), "3 x 3 patches"
    hybrid = library.DeepseekVLHybridConfig(text_config=text, vision_config=vision, image_token_id=499)
    with pytest.raises(ValueError, match="how many places"):  # it takes the image twice
        pictures(hybrid, library.DeepseekVLHybridForConditionalGeneration, 1, None)


def test_a_task_that_the_model_has_no_inputs_for_is_an_error():
    library = pytest.importorskip("transformers")
    from memcalc.record import _sources
    with pytest.raises(ValueError, match="gpt2: the task features is of models that take pixel_values"):
        _sources.transformers(library.GPT2Config(n_layer=1, n_embd=8, n_head=2, vocab_size=50), "features")


class Twice(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        y = self.linear(x)
        return y[y[:, 0] > 0].sum() + y[y[:, 1] > 0].sum()


def test_a_line_that_asks_several_times_is_answered_in_turn():
    line = Twice.forward.__code__.co_firstlineno + 2
    content = record(Twice(), {"x": torch.zeros(8, 4)}, policies={f"record_policies_test.py:{line}": [3, 5]}, variants=[Variant()],
                     symbols={}, precisions=("float32",)).to_dict()
    sizes = [call[5][0][0][0] for call in content["functions"][content["forwards"][0]["function"]]["body"] if call[0] == "call" and len(call) > 5]
    assert list(dict.fromkeys(sizes)) == [3, 5], sizes


def test_boxes_that_are_kept_are_answered():
    nms = pytest.importorskip("torchvision").ops.nms

    class Keeps(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)

        def forward(self, x):
            boxes = self.linear(x)
            return boxes[nms(boxes, boxes[:, 0], 0.5)].sum()

    import torchvision.ops.boxes as of
    place = max(line for _, _, line in of.nms.__code__.co_lines() if line)
    content = record(Keeps(), {"x": torch.zeros(8, 4)}, policies={f"boxes.py:{place}": 3}, variants=[Variant()], symbols={},
                     precisions=("float32",)).to_dict()
    calls = [call for call in content["functions"][content["forwards"][0]["function"]]["body"] if call[0] == "call"]
    assert next(call for call in calls if call[1] == "torchvision.nms")[5] == [[[3], {"d": "int64"}]]
