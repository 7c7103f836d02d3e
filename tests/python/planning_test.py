"""The planner's twins: they say what the command line says."""
import json

import memcalc
import pytest


def test_the_answer_is_that_of_the_command_line(cli):
    answer = memcalc.max_batch("gpt2", gpu="rtx-4090", precision="bf16", sequence_length=512, layers=2)
    words = ("max-batch", "--model", "gpt2", "--gpu", "rtx-4090", "--precision", "bf16", "--seq", 512, "--layers", 2)
    assert answer.to_dict() == json.loads(cli(*words, "--format", "json"))
    assert str(answer) == cli(*words).rstrip("\n")
    assert answer.rows and "<pre>" in answer._repr_html_()


def test_lists_are_combinations():
    answer = memcalc.max_seq(["gpt2", memcalc.Model("gpt2").config and "bert-base"], gpu="rtx-4090", batch_size=64, fp16=True)
    assert len(answer.rows) == 2


def test_a_model_of_a_configuration():
    model = memcalc.Model.from_config({"model_type": "gpt2", "n_layer": 1}, name="mine")
    assert "mine" in str(memcalc.max_batch(model, gpu="rtx-4090", seq=64, margin=20))


def test_what_is_wrong_is_named():
    with pytest.raises(memcalc.UsageError) as caught: memcalc.max_batch("gpt2", gpu="rtx-4090", batch_size=4)
    assert caught.value.part == "bs"
    with pytest.raises(memcalc.UsageError, match="unknown option"): memcalc.max_batch("gpt2", nothing=1)
