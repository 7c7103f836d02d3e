"""Model.from_module: known families and recorded modules. Needs PyTorch, transformers and torchvision, which CI has not:
run it where they are (docs/python.md says what it gave)."""
import memcalc
import pytest

torch = pytest.importorskip("torch", reason="no PyTorch here: from_module is not tested", exc_type=ImportError)


class Mlp(torch.nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.first = torch.nn.Linear(width, 4 * width)
        self.second = torch.nn.Linear(4 * width, 10)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


def cross_entropy(output):
    return torch.nn.functional.cross_entropy(output, torch.zeros(output.shape[0], dtype=torch.long, device=output.device))


def test_an_mlp_by_hand():
    """Batch 64, float32: weights, their gradients and two moments each; the batch is the example's."""
    model = memcalc.Model.from_module(Mlp(), torch.zeros(64, 256), loss=cross_entropy)
    assert model.is_program and [p.shape for p in model.parameters()] == [(1024, 256), (1024,), (10, 1024), (10,)]
    report = memcalc.estimate(model, gpu="h100-sxm")
    weights = 4 * (1024 * 256 + 1024 + 10 * 1024 + 10)
    record = report.to_dict()
    assert report.parameters * 4 == weights
    assert record["memory"]["categories"]["weights"] == weights
    assert record["memory"]["categories"]["inputs"] == 64 * 256 * 4
    forward = 2 * 64 * 1024 * 256 + 2 * 64 * 10 * 1024  # multiply-adds of the products
    assert record["flops"]["by_phase"]["forward"]["contraction"] == forward
    # The first layer's input needs no gradient: one product fewer.
    assert record["flops"]["by_phase"]["backward"]["contraction"] == forward + 2 * 64 * 10 * 1024


def test_what_the_truth_harness_asks():
    """predicted() of any_module.py: a module of 16 bits on the meta device, its precision given with it."""
    batch = {"x": torch.zeros(8, 256, device="meta", dtype=torch.bfloat16)}
    with torch.device("meta"): module = Mlp().to(torch.bfloat16)
    model = memcalc.Model.from_module(module, batch, precision="bf16", loss=cross_entropy)
    assert not model.is_traced
    asked = {} if model.is_traced else {"loop": "bare", "batch_size": 8, "precision": "bf16"}
    report = memcalc.estimate(model, optimizer="adamw", gpu="h200-sxm", **asked)
    assert report.parameters == sum(p.numel() for p in module.parameters())
    assert report.peak_allocated_bytes == max(dict(report.phases).values()) and report.step_seconds


def test_the_precision_is_the_models_own_where_none_is_asked_for():
    model = memcalc.Model.from_module(Mlp(), torch.zeros(64, 256), loss=cross_entropy, precision="bf16")
    weights = 2 * (1024 * 256 + 1024 + 10 * 1024 + 10)
    assert memcalc.estimate(model).categories["weights"] == weights
    assert memcalc.estimate(model, precision="fp32").categories["weights"] == 2 * weights


def test_the_module_is_left_alone():
    module = Mlp()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    module.eval()
    memcalc.Model.from_module(module, torch.zeros(2, 256), loss=cross_entropy)
    assert not module.training and all(p.grad is None for p in module.parameters())
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def test_every_option_stays_free():
    model = memcalc.Model.from_module(Mlp(), torch.zeros(64, 256), loss=cross_entropy)
    adam = memcalc.estimate(model, optimizer="adamw")
    sgd = memcalc.estimate(model, optimizer="sgd", accumulation_steps=4, max_grad_norm=1.0)
    assert adam.categories["optimizer_states"] > sgd.categories["optimizer_states"] == 0
    small = memcalc.estimate(model, batch_size=3, precision="bf16")
    assert small.categories["weights"] * 2 == adam.categories["weights"]
    adapted = memcalc.estimate(model, lora=4)
    assert adapted.to_dict()["params"]["trainable"] < adam.parameters
    assert memcalc.estimate(model, parallel="ddp", gpus=2).peak_allocated_bytes > adam.peak_allocated_bytes
    with pytest.raises(memcalc.UsageError): memcalc.estimate(model, loop="trainer")


def test_an_operator_that_is_not_known_is_named():
    class Bessel(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(8))

        def forward(self, x):
            return torch.special.bessel_j0(x * self.weight).sum()

    report = memcalc.estimate(memcalc.Model.from_module(Bessel(), torch.zeros(4, 8)))
    assert any("bessel_j0" in line for line in report.not_modelled)


def test_what_looks_at_values_is_refused():
    class Looks(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(1))

        def forward(self, x):
            return (x * self.weight).sum() if x.max() > 0 else x.sum()

    with pytest.raises(memcalc.UnsupportedError, match="module_test.py") as caught:
        memcalc.Model.from_module(Looks(), torch.zeros(2))
    assert caught.value.part == "module"
    with pytest.raises(memcalc.UsageError, match="example_inputs"): memcalc.Model.from_module(Mlp())


TRANSFORMERS = [  # model_type, sizes, class
    ("bert", {"hidden_size": 512, "num_attention_heads": 8, "intermediate_size": 2048}, "SequenceClassification"),
    ("roberta", {"hidden_size": 512, "num_attention_heads": 8, "intermediate_size": 2048}, "MaskedLM"),
    ("distilbert", {"dim": 512, "n_heads": 8, "hidden_dim": 2048}, "SequenceClassification"),
    ("electra", {}, "TokenClassification"),
    ("gpt2", {"n_embd": 512, "n_head": 8}, "CausalLM"),
    ("qwen3", {"hidden_size": 512, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64,
               "intermediate_size": 1408, "vocab_size": 32000}, "CausalLM"),
    ("gpt_neox", {"hidden_size": 512, "num_attention_heads": 8, "intermediate_size": 2048}, "CausalLM"),
    ("llama", {"hidden_size": 512, "num_attention_heads": 8, "num_key_value_heads": 2, "intermediate_size": 1408},
     "CausalLM"),
    ("qwen2", {"hidden_size": 512, "num_attention_heads": 8, "num_key_value_heads": 2, "intermediate_size": 1408,
               "vocab_size": 32000}, "CausalLM"),
    ("vit", {"hidden_size": 512, "num_attention_heads": 8, "intermediate_size": 2048}, "ImageClassification"),
]
LAYERS = ("num_hidden_layers", "n_layer", "n_layers")


def transformer(model_type, sizes, auto):
    transformers = pytest.importorskip("transformers")
    config = transformers.AutoConfig.for_model(model_type, **sizes)
    for key in LAYERS:
        if key in config.to_dict(): setattr(config, key, 4)
    config.use_cache = False
    with torch.device("meta"):
        module = getattr(transformers, "AutoModelFor" + auto).from_config(config, attn_implementation="sdpa")
    ids = torch.zeros(4, 128, dtype=torch.long, device="meta")
    inputs = {"pixel_values": torch.zeros(4, 3, 224, 224, device="meta")} if auto.startswith("Image") else {
        "input_ids": ids}
    inputs["labels"] = ids[:, 0].clone() if auto.endswith(("SequenceClassification", "ImageClassification")) else ids.clone()
    return module, inputs, {"batch_size": 4, "loop": "bare",
                            **({} if auto.startswith("Image") else {"sequence_length": 128})}


@pytest.mark.parametrize("model_type, sizes, auto", TRANSFORMERS, ids=[row[0] for row in TRANSFORMERS])
def test_a_transformer_is_its_family_and_its_program_agrees(model_type, sizes, auto):
    module, inputs, options = transformer(model_type, sizes, auto)
    family = memcalc.Model.from_module(module)
    assert not family.is_program and family.model_type == model_type
    program = memcalc.Model.from_module(module, inputs, recorded=True)
    shapes = [(name, tuple(p.shape)) for name, p in module.named_parameters()]
    assert [(p.name, p.shape) for p in family.parameters()] == [(p.name, p.shape) for p in program.parameters()] == shapes
    for precision in ("fp32", "amp-bf16"):
        ours = memcalc.estimate(family, gpu="h100-sxm", precision=precision, weights_dtype="fp32", **options)
        theirs = memcalc.estimate(program, gpu="h100-sxm", precision=precision, weights_dtype="fp32", loop="bare")
        print(f"\n{model_type} {precision}: family {ours.peak_allocated_bytes}, program {theirs.peak_allocated_bytes}")
        assert theirs.peak_allocated_bytes == ours.peak_allocated_bytes


@pytest.mark.parametrize("name", ("resnet18", "vgg11", "mobilenet_v2", "convnext_tiny", "efficientnet_b0"))
def test_a_classifier_of_torchvision(name):
    torchvision = pytest.importorskip("torchvision")
    with torch.device("meta"): module = getattr(torchvision.models, name)()
    family = memcalc.Model.from_module(module)
    assert (family.model_type, family.name) == ("torchvision", name)
    images = torch.zeros(16, 3, 224, 224, device="meta")
    program = memcalc.Model.from_module(module, images, loss=cross_entropy, recorded=True)
    assert [p.shape for p in family.parameters()] == [p.shape for p in program.parameters()]
    for precision in ("fp32", "amp-bf16"):
        ours = memcalc.estimate(family, gpu="h100-sxm", batch_size=16, loop="bare", precision=precision).peak_allocated_bytes
        theirs = memcalc.estimate(program, gpu="h100-sxm", loop="bare", precision=precision).peak_allocated_bytes
        print(f"\n{name} {precision}: family {ours}, program {theirs}, {100 * (theirs / ours - 1):+.3f} %")
        assert abs(theirs / ours - 1) <= 0.002  # the loss above makes its labels on the card
