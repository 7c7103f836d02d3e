"""The planner's twins: they say what the command line says, as values, frames and figures."""
import json

import memcalc
import pytest

TWINS = [  # call, the same on the command line, what Answer.value is of
    (lambda: memcalc.max_batch("gpt2", gpu="rtx-4090", precision="bf16", sequence_length=512, layers=2),
     ("max-batch", "--model", "gpt2", "--gpu", "rtx-4090", "--precision", "bf16", "--seq", 512, "--layers", 2),
     lambda record: record["facts"]["largest"]),
    (lambda: memcalc.max_seq("llama-3.2-1b", gpu="rtx-4090", batch_size=1, bf16=True, multiple_of=256),
     ("max-seq", "--model", "llama-3.2-1b", "--gpu", "rtx-4090", "--bs", 1, "--bf16", "--multiple-of", 256),
     lambda record: record["facts"]["largest"]),
    (lambda: memcalc.max_model("gpt2", gpu="rtx-4090", bs=1, seq=128),
     ("max-model", "--family", "gpt2", "--gpu", "rtx-4090", "--bs", 1, "--seq", 128),
     lambda record: record["facts"]["model"]),
    (lambda: memcalc.sweep("gpt2", gpu="h100-sxm", batch_size=[1, 4], seq=[64, 128], layers=2),
     ("sweep", "--model", "gpt2", "--gpu", "h100-sxm", "--bs", "1,4", "--seq", "64,128", "--layers", 2),
     lambda record: None),
    (lambda: memcalc.compare(["gpt2", "bert-base"], gpu=["rtx-4090", "h100-sxm"], bs=2, seq=64, fp16=True),
     ("compare", "--model", "gpt2,bert-base", "--gpu", "rtx-4090,h100-sxm", "--bs", 2, "--seq", 64, "--fp16"),
     lambda record: None),
    (lambda: memcalc.ladder("gpt2-xl", gpu="rtx-4090", batch_size=8),
     ("ladder", "--model", "gpt2-xl", "--gpu", "rtx-4090", "--bs", 8),
     lambda record: record["remedies"][0]["command"]),
    (lambda: memcalc.plan("gpt2", gpus=2, global_batch=8, gpu="h100-sxm", bf16=True, simulate=4, emit="torchrun"),
     ("plan", "--model", "gpt2", "--gpus", 2, "--global-batch", 8, "--gpu", "h100-sxm", "--bf16", "--simulate", 4,
      "--emit", "torchrun"),
     lambda record: record["rows"][0]["options"]),
]


@pytest.mark.parametrize("call, words, value", TWINS, ids=[words[0] for _, words, _ in TWINS])
def test_a_twin_answers_as_the_command_line(cli, call, words, value):
    answer = call()
    record = json.loads(cli(*words, "--format", "json"))
    assert answer.to_dict() == record and answer.positive
    assert str(answer) == cli(*words).rstrip("\n")
    assert answer.value == value(record) and answer.value != 0
    assert (answer.command, answer.headline) == (words[0], record["answer"])
    assert (answer.rows, answer.facts, answer.settings) == (record["rows"], record["facts"], record.get("settings"))


@pytest.mark.parametrize("call, words, value", TWINS, ids=[words[0] for _, words, _ in TWINS])
def test_an_answer_is_a_frame_a_figure_and_a_page(call, words, value):
    pandas, pyplot = pytest.importorskip("pandas"), pytest.importorskip("matplotlib.pyplot")
    answer = call()
    frame = answer.to_frame()
    assert len(frame) == len(answer.rows) > 1 and set(frame.columns) == {key for row in answer.rows for key in row}
    needed = [row["needed_bytes"] for row in answer.rows if "needed_bytes" in row]
    assert [int(size) for size in frame["needed_bytes"] if not pandas.isna(size)] == needed
    axes = answer.plot()
    if words[0] == "sweep":  # stacks: they sum to the peak of each point
        tops = [max(bar.get_y() + bar.get_height() for bar in axes.patches if round(bar.get_x() + 0.4) == i) for i in range(4)]
        assert tops == pytest.approx([row["allocated_bytes"] / 2**30 for row in answer.rows])
    elif words[0] in ("max-batch", "max-seq"):
        line = next(line for line in axes.get_lines() if line.get_label() == "needed")
        assert list(line.get_ydata()) == [size / 2**30 for size in needed]
    else:
        assert [bar.get_width() for bar in axes.patches] == [size / 2**30 for size in reversed(needed)]
    pyplot.close("all")
    page = answer._repr_html_()
    assert page.count("<tr>") == 1 + len(answer.rows) and answer["needed_bytes"][:len(needed)] == needed


def test_lists_are_combinations():
    answer = memcalc.max_batch(["gpt2", memcalc.Model("bert-base")], gpu="rtx-4090", fp16=True, seq=range(64, 129, 64))
    assert [(row["model"].split("-0")[0], row["seq"]) for row in answer.rows[:2]] == [("gpt2", "64"), ("gpt2", "128")]
    assert len(answer.rows) == 4 and answer.value is None
    assert all(largest > 1 for largest in answer["largest"])


def test_a_model_of_a_configuration():
    model = memcalc.Model.from_config({"model_type": "gpt2", "n_layer": 1}, name="mine")
    answer = memcalc.max_batch(model, gpu="rtx-4090", seq=64, margin=20)
    assert "mine" in str(answer) and answer["margin_bytes"] == 20 * 2**30


def test_no_is_an_answer():
    answer = memcalc.max_batch("llama-3-8b", gpu="rtx-4090", seq=64)
    assert (answer.positive, answer.value) == (False, 0)
    answer = memcalc.max_model("llama", gpu="rtx-4090", seq=64, bs=10000)
    assert (answer.positive, answer.value) == (False, None)


def test_what_is_wrong_is_named():
    with pytest.raises(memcalc.UsageError) as caught: memcalc.max_batch("gpt2", gpu="rtx-4090", batch_size=4)
    assert caught.value.part == "bs"
    with pytest.raises(memcalc.UsageError, match="unknown option"): memcalc.max_batch("gpt2", nothing=1)
    with pytest.raises(memcalc.UsageError) as caught: memcalc.plan("gpt2", gpus=2, global_batch=8, tp=2)
    assert caught.value.part == "tp"
