"""What memcalc.measure measured on an H200, beside the harness and the prediction: the figures of a section of
docs/validation.md.in.

Rows: tests/measured/measure_h200.jsonl (measure.py and measure_trainer.py of tests/measured/harness) and
measure_h200_memcalc.jsonl (memcalc.measure), the same runs in the same order.
"""
import memcalc_rows
from memcalc_pages import FITS, answered, table

EXPLAINED = {"gpt2-b4-s512-trainer-amp-bf16-accum2"}  # rows that differ, of which the template says what is known


def difference(value, measured):
    return "equal" if value == measured else f"{value - measured:+,}"


def figures(memcalc):
    pairs = list(zip(memcalc_rows.read("measure_h200.jsonl"), memcalc_rows.read("measure_h200_memcalc.jsonl")))
    bare = [(harness, ours) for harness, ours in pairs if harness["run"]["loop"] == "bare"]
    peaks = ("peak_allocated", "peak_reserved")
    differing = {harness["id"] for harness, ours in pairs if any(harness[key] != ours[key] for key in peaks)}
    if differing != EXPLAINED: raise SystemExit(f"docs/validation.md.in says nothing of {sorted(differing ^ EXPLAINED)}")
    rows = []
    for (harness, ours), answer in zip(pairs, memcalc_rows.reports(memcalc, [row for row, _ in pairs], FITS)):
        name = harness["id"]
        assert name == ours["id"]
        cells = [name]
        for key, told in zip(peaks, memcalc_rows.peaks_of(answered(name, answer))):
            cells += [f"{harness[key]:,}", difference(ours[key], harness[key]), difference(told, harness[key])]
        rows.append(cells)
    return {
        "count": len(pairs), "bare": len(bare),
        "same": sum(all(harness[key] == ours[key] for key in peaks) for harness, ours in bare),
        "phases": sum(harness["phases"] == ours["phases"] for harness, ours in bare),
        "table": table(("run", ">harness: allocated", ">memcalc.measure", ">predicted", ">harness: reserved",
                        ">memcalc.measure", ">predicted"), rows),
    }
