"""Writes specs/measured/h200-sxm/product_times.txt of tests/measured/product_times_h200.jsonl.gz: a row for each shape, sorted by type, batches and
tokens, with the times of its three products, of shapes that were timed more than once the medians.

usage: product_table.py"""
import gzip
import itertools
import json
import statistics
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
TABLE = ROOT / "specs/measured/h200-sxm/product_times.txt"
TYPES = {"bf16": 0, "tf32": 1, "fp32": 2}


def rounded(us): return round(1000 * float(f"{us:.3g}"))  # nanoseconds


def main():
    rows = [json.loads(line) for line in gzip.open(ROOT / "tests/measured/product_times_h200.jsonl.gz", "rt")]
    table = {}
    for forward, of_input, of_weight in zip(*[iter(rows)] * 3):
        kind, batch, tokens, out, inner, layout, bias, us = forward[:8]
        assert layout == 2 and of_input[5] == 0 and of_weight[5] == 1 and of_weight[2:5] == [out, inner, tokens], forward
        table.setdefault((TYPES[kind], int(batch > 1), tokens, bias, batch, out, inner), []).append([each[7] for each in (forward, of_input, of_weight)])
    head = list(itertools.takewhile(lambda line: line.startswith("#"), TABLE.read_text().splitlines()))
    lines = [f"{{{kind}, {bias}, {batch}, {tokens}, {out}, {inner}, {{{', '.join(str(rounded(statistics.median(of))) for of in zip(*times))}}}}},"
             for (kind, _, tokens, bias, batch, out, inner), times in sorted(table.items())]
    TABLE.write_text("\n".join([*head, "[times]", *lines]) + "\n")


if __name__ == "__main__": main()
