"""estimate_many(): the rows equal single estimates, in order, whatever the number of threads."""
import memcalc
import pytest

numpy = pytest.importorskip("numpy")

RUNS = [{"model": model, "batch_size": batch, "precision": precision, "gpu": gpu, "sequence_length": 64}
        for model in ("gpt2", "bert-base") for batch in (1, 3) for precision in ("bf16", "amp-fp16")
        for gpu in ("h100-sxm", "rtx-4090")]


@pytest.mark.parametrize("threads", (1, 2, 5))
def test_rows_are_single_estimates(threads):
    rows = memcalc.estimate_many(RUNS, threads=threads)
    assert len(rows) == len(RUNS) == 16 and rows["ok"].all()
    for row, run in zip(rows, RUNS):
        report = memcalc.estimate(**run)
        used = report.device_used_bytes
        assert row["peak_allocated_bytes"] == report.peak_allocated_bytes
        assert row["peak_reserved_bytes"] == report.peak_reserved_bytes
        assert row["device_used_bytes"] == (-1 if used is None else used)
        assert row["forward_peak_bytes"] == report.phases["forward"]
        assert row["parameters"] == report.parameters and row["flops"] == report.flops
        assert bool(row["fits"]) == report.fits
        assert (row["step_seconds"], row["samples_per_second"]) == (report.step_seconds, report.samples_per_second)
        categories = dict(report.categories)
        assert row["slack_bytes"] == categories.pop("allocator_slack")
        assert {name: row[name + "_bytes"] for name in categories} == categories


def test_a_model_object_is_a_model():
    model = memcalc.Model.of_family("gpt2", layers=1)
    rows = memcalc.estimate_many({"model": model, "seq": 64, "bs": batch} for batch in (1, 64))
    assert rows["parameters"].tolist() == [memcalc.estimate(model, seq=64).parameters] * 2
    assert rows["peak_allocated_bytes"][0] < rows["peak_allocated_bytes"][1]


def test_refused_runs_raise_or_are_marked():
    runs = [{"model": "gpt2", "seq": 64}, {"model": "gpt2", "seq": 9000}, {"model": "gtp2"}]
    with pytest.raises(memcalc.UsageError, match="run 1: sequence length 9000") as caught: memcalc.estimate_many(runs)
    assert caught.value.part == "sequence_length"
    rows = memcalc.estimate_many(runs, errors="skip")
    assert rows["ok"].tolist() == [1, 0, 0] and rows["peak_allocated_bytes"].tolist()[1:] == [0, 0]
    with pytest.raises(memcalc.UsageError): memcalc.estimate_many(runs, errors="ignore")
    assert len(memcalc.estimate_many([])) == 0
