"""What a report looks like in a notebook, as a frame and as a figure."""
import html.parser

import memcalc
import pytest


@pytest.fixture(scope="module")
def report():
    return memcalc.estimate("gpt2", layers=2, batch_size=2, sequence_length=128, gpu="h100-sxm")


def test_html_is_well_formed_and_has_a_bar_per_category(report):
    open_tags, bars = [], []

    class Parser(html.parser.HTMLParser):
        def handle_starttag(self, tag, attributes):
            open_tags.append(tag)
            if tag == "div" and "style" in dict(attributes): bars.append(dict(attributes)["style"])

        def handle_endtag(self, tag): assert open_tags.pop() == tag

    Parser().feed(report._repr_html_())
    assert open_tags == []
    assert len(bars) == sum(1 for size in report.categories.values() if size)
    assert sum("width:100.0%" in bar for bar in bars) == 1


def test_html_escapes_names():
    model = memcalc.Model.from_config({"model_type": "gpt2", "n_layer": 1}, name="<b>&")
    assert "<b>&<" not in memcalc.estimate(model, seq=16)._repr_html_()


def test_timeline_is_consistent(report):
    events = report.timeline()
    assert {"forward", "backward", "optimizer"} <= set(events["phase"].tolist())
    assert max(events["allocated_bytes"]) == report.peak_allocated_bytes
    assert max(report.timeline(all_steps=True)["reserved_bytes"]) == report.peak_reserved_bytes
    steps = events["allocated_bytes"][1:] - events["allocated_bytes"][:-1]
    assert (steps == events["delta_bytes"][1:]).all()


def test_frames(report):
    pytest.importorskip("pandas")
    frame = report.to_frame()
    assert frame["bytes"].to_dict() == report.categories and frame["share"].sum() == pytest.approx(1)
    assert report.to_frame("phases")["peak_bytes"].to_dict() == report.phases
    assert set(report.to_frame("accounting")["view"]) >= {"classic", "profile"}
    assert report.to_frame("contributors")["total_bytes"].is_monotonic_decreasing
    assert len(report.to_frame("timeline")) == len(report.timeline())
    with pytest.raises(memcalc.UsageError): report.to_frame("nothing")


def test_figures(report):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    axes = report.plot()
    assert len(axes.patches) == sum(1 for size in report.categories.values() if size)
    assert max(bar.get_width() for bar in axes.patches) == max(report.categories.values()) / 2**30
    allocated, reserved = report.plot_timeline(all_steps=True).get_lines()
    assert max(allocated.get_ydata()) == report.peak_allocated_bytes / 2**30
    assert max(reserved.get_ydata()) == report.peak_reserved_bytes / 2**30


def test_a_version_that_is_named_leaves_the_others_as_they_are_installed(monkeypatch):
    monkeypatch.setattr("memcalc._estimate.installed_versions", lambda: "torch==2.10.0,transformers==5.5.4")
    versions = memcalc.estimate("gpt2", layers=1, seq=16, gpu="h100-sxm", torch="2.11.0").to_dict()["versions"]
    assert (versions["torch"], versions["transformers"]) == ("2.11.0", "5.5.4")
    versions = memcalc.estimate("gpt2", layers=1, seq=16, gpu="h100-sxm", profile="p1").to_dict()["versions"]
    assert versions["transformers"] == "5.17.0"
