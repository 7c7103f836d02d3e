"""estimate(), estimate_many(), Model, Report and the errors, against the command line and hand-computed figures."""
import json
import math
import threading

import memcalc
import pytest

SAME = [  # arguments of the command line, the same as keywords
    (["--model", "bert-large", "--bs", 4, "--fp16", "--gpu", "h100-sxm"],
     ("bert-large", {"batch_size": 4, "fp16": True, "gpu": "h100-sxm"})),
    (["--model", "gpt2", "--bs", 2, "--seq", 256, "--loop", "bare", "--use-cache", "--gpu", "h200-sxm"],
     ("gpt2", {"bs": 2, "seq": 256, "loop": "bare", "use_cache": True, "gpu": "h200-sxm"})),
    (["--model", "llama-3-8b", "--layers", 2, "--precision", "bf16", "--checkpointing", "every-2", "--accum", 3,
      "--clip-grad", 0, "--attn", "eager", "--seq", 128, "--gpu", "h100-sxm"],
     ("llama-3-8b", {"layers": 2, "precision": "bf16", "checkpointing": "every-2", "accumulation_steps": 3,
                     "max_grad_norm": 0, "attention": "eager", "sequence_length": 128, "gpu": "h100-sxm"})),
    (["--model", "llama-3.2-1b", "--lora", 8, "--lora-targets", "q_proj,v_proj", "--quantize", "nf4", "--seq", 64,
      "--no-prepare-kbit", "--gpu", "h100-sxm"],
     ("llama-3.2-1b", {"lora": 8, "lora_targets": ["q_proj", "v_proj"], "quantize": "nf4", "seq": 64,
                       "prepare_kbit": False, "gpu": "h100-sxm"})),
    (["--model", "gpt2", "--optimizer", "adafactor", "--freeze", "wte,wpe", "--expandable", "--seq", 64, "--no-tie",
      "--gpu", "h100-sxm"],
     ("gpt2", {"optimizer": "adafactor", "freeze": ["wte", "wpe"], "expandable": True, "seq": 64, "tie": False,
               "gpu": "h100-sxm"})),
    (["--model", "resnet50", "--bs", 8, "--image", 160, "--gpu", "h100-sxm"],
     ("resnet50", {"batch_size": 8, "image_size": 160, "gpu": "h100-sxm"})),
    (["--model", "gpt2", "--bs", 2, "--seq", 128, "--tokens", 1e9, "--sample-seconds", 0.01, "--sample-bytes", 1e6,
      "--storage-rate", 1e9, "--loader-workers", 2, "--gpu", "h100-sxm"],
     ("gpt2", {"batch_size": 2, "seq": 128, "tokens": 1e9, "sample_seconds": 0.01, "sample_bytes": 1e6,
               "storage_rate": 1e9, "loader_workers": 2, "gpu": "h100-sxm"})),
    (["--model", "gpt2", "--infer", "--bs", 2, "--seq", 64, "--new-tokens", 8, "--gpu", "rtx-4090"],
     ("gpt2", {"infer": True, "batch_size": 2, "seq": 64, "new_tokens": 8, "gpu": "rtx-4090"})),
    (["--model", "gpt2", "--gpus", 4, "--parallel", "fsdp2", "--loop", "bare", "--bs", 2, "--seq", 64, "--gpu", "h100-sxm"],
     ("gpt2", {"gpus": 4, "parallel": "fsdp2", "loop": "bare", "bs": 2, "seq": 64, "gpu": "h100-sxm"})),
]


@pytest.mark.parametrize("arguments, call", SAME, ids=[call[0] for _, call in SAME])
def test_the_record_is_that_of_the_command_line(cli, arguments, call):
    assert memcalc.estimate(call[0], **call[1]).to_dict() == cli.record(*arguments)


def test_attributes_are_those_of_the_record():
    report = memcalc.estimate("gpt2", batch_size=2, sequence_length=128, precision="bf16", gpu="h100-sxm")
    record = report.to_dict()
    memory = record["memory"]
    assert report.peak_allocated_bytes == memory["peak_allocated_bytes"] == sum(report.categories.values())
    assert report.peak_reserved_bytes == memory["peak_reserved_bytes"]
    assert report.device_used_bytes == memory["device_used_bytes"]
    assert report.exact_lower_bound_bytes == memory["exact_lower_bound_bytes"] <= report.peak_allocated_bytes
    assert report.phases == {name: phase["peak_bytes"] for name, phase in memory["phases"].items()}
    assert max(report.phases.values()) == report.peak_allocated_bytes
    assert report.fits is True and report.flops == record["flops"]["total"]
    assert (report.parameters, report.trainable_parameters) == (124439808, 124439808)  # as the hub states
    assert report.assumptions == record["assumptions"] and report.not_modelled == record["not_modelled"]
    assert str(report).startswith("Fits on h100-sxm") and "gpt2" in repr(report)
    assert json.loads(report.render("json")) == {**record, "memory": {k: v for k, v in memory.items()
                                                                      if k != "contributors"}}


def test_times_are_those_of_the_record():
    report = memcalc.estimate("gpt2", batch_size=2, sequence_length=128, gpu="h100-sxm", tokens=1e9)
    time = report.to_dict()["time"]
    assert report.step_seconds == time["step_seconds"] == pytest.approx(sum(report.times.values()))
    assert report.step_seconds == pytest.approx(sum(report.phase_times.values()), rel=0.01)
    assert report.samples_per_second == pytest.approx(2 / report.step_seconds)
    assert report.tokens_per_second == pytest.approx(2 * 128 / report.step_seconds)
    assert report.mfu == time["mfu"] and report.training["seconds"] == pytest.approx(1e9 / report.tokens_per_second)
    assert memcalc.estimate("resnet50", batch_size=2, gpu="h100-sxm").tokens_per_second is None
    assert memcalc.estimate("gpt2", seq=16).training is None


def test_tokens_a_second_of_batches_as_wide_as_their_texts(tmp_path):
    lengths = tmp_path / "lengths.txt"
    lengths.write_text("30\n30\n30\n30\n")
    report = memcalc.estimate("bert-base", task="seqcls", loop="trainer", batch_size=2, lengths=str(lengths), gpu="h100-sxm")
    assert report.to_dict()["epoch"]["average_tokens"] == 60
    assert report.tokens_per_second == pytest.approx(60 / report.step_seconds)
    assert report.samples_per_second == pytest.approx(2 / report.step_seconds)


def test_without_a_gpu_the_h100_is_assumed_and_said_so():
    report = memcalc.estimate("gpt2", batch_size=1, sequence_length=16)
    assert report.to_dict()["device"] == {**report.to_dict()["device"], "name": "h100-sxm", "assumed": True}
    assert "the card behaves as h100-sxm: none was named (gpu)" in report.assumptions


def test_does_not_fit_is_an_answer():
    report = memcalc.estimate("llama-3-8b", batch_size=1, sequence_length=64, gpu="rtx-4090")
    assert report.fits is False and report.peak_reserved_bytes > 24 * 2**30
    assert report.verdict == "does-not-fit"
    assert report.device_used_bytes > report.peak_reserved_bytes  # its context was not measured here, and is assumed


REFUSED = [  # keywords of estimate("gpt2", …), exception, part, words of the message
    ({"batchsize": 4}, memcalc.UsageError, "batchsize", "did you mean 'batch_size'?"),
    ({"gradient_checkpointing": True}, memcalc.UsageError, "gradient_checkpointing", "command line calls it --checkpointing full"),
    ({"learning_rate": 1e-4}, memcalc.UsageError, "learning_rate", "leave it out"),
    ({"batch_size": 0}, memcalc.UsageError, "batch_size", "a whole number of 1 or more, found 0"),
    ({"batch_size": 2.5}, memcalc.UsageError, "batch_size", "found 2.5"),
    ({"batch_size": "4"}, memcalc.UsageError, "batch_size", "found '4'"),
    ({"batch_size": True}, memcalc.UsageError, "batch_size", "found True"),
    ({"batch_size": 2**63}, memcalc.UsageError, "batch_size", "below 2^63"),
    ({"bs": 1, "batch_size": 1}, memcalc.UsageError, "batch_size", "give one"),
    ({"precision": "fp17"}, memcalc.UsageError, "precision", "did you mean 'fp16'?"),
    ({"fp16": True, "bf16": True}, memcalc.UsageError, "bf16", "contradict"),
    ({"padding": 1}, memcalc.UsageError, "padding", "True or False"),
    ({"max_grad_norm": -1.0}, memcalc.UsageError, "max_grad_norm", "0 or more"),
    ({"dropout": math.nan}, memcalc.UsageError, "dropout", "0 or more"),
    ({"freeze": "wte"}, memcalc.UsageError, "freeze", "a list of names"),
    ({"checkpointing": "every-x"}, memcalc.UsageError, "checkpointing", "every-N"),
    ({"sequence_length": 5000}, memcalc.UsageError, "sequence_length", "1024 positions"),
    ({"sample_bytes": 1e6}, memcalc.UsageError, "sample_bytes", "expected --storage-rate beside it"),
    ({"infer": True, "tokens": 1e9}, memcalc.UsageError, "tokens", "belongs to training"),
    ({"lora_dropout": 0.1}, memcalc.UsageError, "lora_dropout", "it belongs to adapters"),
    ({"gpu": "h101"}, memcalc.UsageError, "h101", "did you mean"),
    ({"gpu": "./none.json"}, memcalc.InputError, "./none.json", "no such file"),
    ({"batch_size": 2**40}, memcalc.OverflowError, None, "exceeds 2^63"),
]


@pytest.mark.parametrize("keywords, kind, part, words", REFUSED, ids=[str(next(iter(k.items()))) for k, *_ in REFUSED])
def test_what_is_wrong_is_named(keywords, kind, part, words):
    with pytest.raises(kind) as caught: memcalc.estimate("gpt2", **keywords)
    assert isinstance(caught.value, memcalc.Error)
    assert caught.value.part == part and words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_errors_are_pythons_own_kinds_too():
    with pytest.raises(ValueError): memcalc.estimate("gtp2")
    with pytest.raises(NotImplementedError): memcalc.Model.from_config({"model_type": "csm"})
    for nothing in ([], None, "{}"):
        with pytest.raises(memcalc.UsageError, match="config: expected a dict"): memcalc.Model.from_config(nothing)
    with pytest.raises(memcalc.InputError, match="config: /model_type: found 3"): memcalc.Model.from_config({"model_type": 3})
    assert issubclass(memcalc.OverflowError, OverflowError) and issubclass(memcalc.InternalError, RuntimeError)


def test_none_is_as_if_not_given():
    assert memcalc.estimate("gpt2", batch_size=None, seq=64, layers=None).to_dict() == \
        memcalc.estimate("gpt2", seq=64).to_dict()


def test_models_by_name_config_and_family(tmp_path):
    config = {"model_type": "gpt2", "n_layer": 2}
    (tmp_path / "config.json").write_text(json.dumps(config))

    class Config:  # as transformers' PretrainedConfig
        def to_dict(self): return {**config, "dtype": None}

    sizes = [memcalc.estimate(model, seq=64).parameters for model in (
        tmp_path, tmp_path / "config.json", memcalc.Model.from_config(config), memcalc.Model.from_config(Config()),
        memcalc.Model.of_family("gpt2", layers=2), memcalc.Model("gpt2", layers=2))]
    layer = 12 * 768**2 + 13 * 768  # attention 4 h^2 + 4 h, MLP 8 h^2 + 5 h, two norms 4 h
    assert sizes == [(50257 + 1024) * 768 + 2 * layer + 2 * 768] * 6
    assert memcalc.Model.from_config(config).config == config
    with pytest.raises(memcalc.UsageError) as caught: memcalc.estimate(memcalc.Model("gpt2"), layers=2)
    assert caught.value.part == "layers"


def test_parameters_are_named_as_the_framework_names_them():
    table = memcalc.Model("gpt2", layers=1).parameters(precision="bf16", lora=4, lora_targets=["c_attn"])
    assert table[0] == ("transformer.wte.weight", (50257, 768), "bfloat16", False)
    trained = [row for row in table if row.trainable]
    assert [row.shape for row in trained] == [(4, 768), (2304, 4)]
    assert {row.dtype for row in trained} == {"float32"}  # peft's autocast_adapter_dtype


def test_registry_lists():
    assert {"bert-large", "resnet50"} <= {model["name"] for model in memcalc.models()}
    assert next(gpu for gpu in memcalc.gpus() if gpu["name"] == "h100-sxm")["validated"] is True


def test_specs_of_ones_own(tmp_path, monkeypatch):
    monkeypatch.setenv("MEMCALC_SPEC_PATH", str(tmp_path / "none"))
    with pytest.raises(memcalc.UsageError) as caught: memcalc.models()
    assert caught.value.part == "MEMCALC_SPEC_PATH"
    (tmp_path / "models").mkdir()
    (tmp_path / "models/mine.json").write_text(json.dumps(
        {"name": "mine", "config": {"model_type": "gpt2", "n_layer": 1}, "source": "a test", "date": "2026-11"}))
    monkeypatch.setenv("MEMCALC_SPEC_PATH", str(tmp_path))
    assert [model["name"] for model in memcalc.models()] == ["mine"]


def test_the_lock_is_released():
    """Another thread runs Python code while a long estimate is under way."""
    counted, stop = [0], threading.Event()

    def count():
        while not stop.is_set(): counted[0] += 1

    thread = threading.Thread(target=count)
    thread.start()
    before = counted[0]
    memcalc.estimate_many([{"model": "llama-3-8b", "seq": 512, "bs": b} for b in range(1, 30)], threads=1)
    after = counted[0]
    stop.set()
    thread.join()
    assert after > before + 1000


@pytest.mark.parametrize("model", [None, {"model_type": "gpt2"}, 3])
def test_what_is_no_model_is_told_how_to_become_one(model):
    with pytest.raises(memcalc.UsageError, match="Model.from_config.* takes a configuration") as refused:
        memcalc.estimate(model)
    assert refused.value.part == "model"
