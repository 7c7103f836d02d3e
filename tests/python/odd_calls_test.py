"""What is no value that a function takes: one line that says so, and the values that NumPy makes of ours."""
import copy
import pickle

import memcalc
import pytest


def refused_at(part, call):
    with pytest.raises(memcalc.UsageError) as refused: call()
    assert refused.value.part == part, refused.value
    return str(refused.value)


@pytest.mark.parametrize("gpu", (3, ["h100-sxm"], {"name": "h100-sxm"}, b"h100-sxm"))
def test_a_card_is_a_name_or_a_path(gpu):
    assert "expected a name or a path" in refused_at("gpu", lambda: memcalc.estimate("gpt2", gpu=gpu))


def test_values_of_numpy_are_values():
    numpy = pytest.importorskip("numpy")
    few = {"layers": 1, "seq": 32}
    plain = memcalc.estimate("gpt2", bs=2, bf16=True, clip_grad=0.5, **few)
    of_numpy = memcalc.estimate("gpt2", bs=numpy.int32(2), bf16=numpy.bool_(True), clip_grad=numpy.float32(0.5), **few)
    assert str(plain) == str(of_numpy)
    assert "found array([4])" in refused_at("batch_size", lambda: memcalc.estimate("gpt2", bs=numpy.array([4])))
    assert "True or False" in refused_at("bf16", lambda: memcalc.estimate("gpt2", bf16=numpy.int64(1)))
    answer = memcalc.sweep("gpt2", bs=numpy.array([1, 2]), seq=numpy.int64(32), layers=1, bf16=numpy.bool_(True))
    assert answer.headline == memcalc.sweep("gpt2", bs=[1, 2], seq=32, layers=1, bf16=True).headline


def test_an_iterator_is_a_list_of_values():
    answer = memcalc.sweep((name for name in ("gpt2",)), bs=(size for size in (1, 2)), seq=32, layers=1)
    listed = memcalc.sweep(["gpt2"], bs=[1, 2], seq=32, layers=1)
    assert (answer.headline, str(answer)) == (listed.headline, str(listed))


def test_runs_are_dicts():
    assert "list of dicts" in refused_at("runs", lambda: memcalc.estimate_many({"model": "gpt2"}))
    assert "list of dicts" in refused_at("runs", lambda: memcalc.estimate_many("gpt2"))
    assert "list of dicts" in refused_at("runs", lambda: memcalc.estimate_many(None))
    assert "run 1: " in refused_at("runs", lambda: memcalc.estimate_many([{"model": "gpt2"}, "gpt2"]))
    assert "expected a name" in refused_at("model", lambda: memcalc.estimate_many([{"bs": 4}]))


@pytest.mark.parametrize("threads", (0, -1, 1.5, "2", True, None))
def test_threads_are_a_number(threads):
    refused_at("threads", lambda: memcalc.estimate_many([{"model": "gpt2"}], threads=threads))


def test_threads_of_numpy_are_a_number():
    numpy = pytest.importorskip("numpy")
    assert memcalc.estimate_many([{"model": "gpt2", "layers": 1}], threads=numpy.int64(2))["ok"].all()


def test_files_command_lines_and_families_that_are_none():
    refused_at("path", lambda: memcalc.read_config(None))
    refused_at("command", lambda: memcalc.read_command_line('python "train.py'))
    refused_at("command", lambda: memcalc.read_command_line(None))
    for words in ([3, 4], b"python train.py", ["python", None]):
        assert "list of words" in refused_at("command", lambda: memcalc.read_command_line(words))
    refused_at("family", lambda: memcalc.Model.of_family(None))
    refused_at("format", lambda: memcalc.estimate("gpt2", layers=1).render(None))
    itself = {"model_type": "gpt2"}
    itself["itself"] = itself
    with pytest.raises(memcalc.InputError, match="cannot be written as JSON"): memcalc.Model.from_config(itself)


def test_what_can_be_pickled_is_and_the_rest_says_what_can():
    report = memcalc.estimate("gpt2", layers=1)
    assert copy.deepcopy(report) is report
    with pytest.raises(TypeError, match="to_dict"): pickle.dumps(report)
    with pytest.raises(TypeError, match="configuration"): pickle.dumps(memcalc.Model.of_family("gpt2"))
    answer = memcalc.max_batch("gpt2", layers=1, gpu="rtx-4090")
    again = pickle.loads(pickle.dumps(answer))
    assert (again.value, str(again)) == (answer.value, str(answer))
