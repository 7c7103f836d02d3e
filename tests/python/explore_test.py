"""The controls of explore() and the curve that a report draws in a notebook."""
import re

import memcalc
import pytest

SMALL = {"layers": 2, "batch_size": 2, "sequence_length": 128, "gpu": "h100-sxm"}


def test_a_report_carries_the_curve_of_the_page():
    report = memcalc.estimate("gpt2", **SMALL)
    drawn = report._repr_html_()
    assert "function draw_curve" in drawn and not re.search(r"^(import|export) ", drawn, re.MULTILINE)
    name = re.search(r'<div class="(memcalc-\w+)"></div>', drawn)[1]
    assert f'querySelectorAll(".{name}")' in drawn and f".{name} .curve" in drawn
    assert drawn.count("</script>") == 1


def test_no_step_no_curve():
    assert "<script" not in memcalc.estimate("gpt2", infer=True, seq=128)._repr_html_()


def test_explore_follows_its_controls():
    widgets = pytest.importorskip("ipywidgets")
    shown = []
    box = memcalc.explore("gpt2", **SMALL)
    controls = {each.description: each for column in box.children[0].children for each in column.children}
    assert controls["batch"].value == 2 and controls["length"].value == 128 and controls["card"].value == "h100-sxm"
    assert isinstance(box.children[1], widgets.Output)
    box.children[1].clear_output = lambda **_: shown.append("cleared")
    controls["batch"].value = 4
    controls["LoRA rank"].value = 8
    assert shown == ["cleared", "cleared"]


def test_explore_begins_where_it_is_told():
    pytest.importorskip("ipywidgets")
    box = memcalc.explore("gpt2", bf16=True, checkpointing="full", lora=5, **SMALL)
    controls = {each.description: each.value for column in box.children[0].children for each in column.children}
    assert (controls["precision"], controls["checkpointing"], controls["LoRA rank"]) == ("amp-bf16", "full", 5)
