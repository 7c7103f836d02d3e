"""Writes specs/measured/h200-sxm/product_times.txt of tests/measured/product_times_h200.jsonl.gz and of the products of op_times_h200.jsonl: a row
for each shape, sorted by type, batches and tokens, with the times of its three products.

usage: product_table.py"""
import gzip
import itertools
import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
TABLE = ROOT / "specs/measured/h200-sxm/product_times.txt"
TYPES = {"bf16": 0, "tf32": 1, "fp32": 2}


def rounded(us): return round(1000 * float(f"{us:.3g}"))  # nanoseconds


def main():
    rows = [json.loads(line) for line in gzip.open(ROOT / "tests/measured/product_times_h200.jsonl.gz", "rt")]
    table, loops = [], {}
    for line in (ROOT / "tests/measured/op_times_h200.jsonl").read_text().splitlines():
        row = json.loads(line)
        if row["kind"] == "gemm": loops.setdefault((row["dtype"], row["M"], row["N"], row["K"]), {})[row["layout"]] = 1e3 * row["ms"]
    for (kind, tokens, out, inner), times in loops.items():
        if len(times) == 3: table.append((TYPES[kind], 0, tokens, 0, 1, out, inner, *(rounded(times[each]) for each in ("fwd", "dgrad", "wgrad"))))
    for forward, of_input, of_weight in zip(*[iter(rows)] * 3):
        kind, batch, tokens, out, inner, layout, bias, us = forward[:8]
        assert layout == 2 and of_input[5] == 0 and of_weight[5] == 1 and of_weight[2:5] == [out, inner, tokens], forward
        times = [rounded(each[7]) for each in (forward, of_input, of_weight)]
        table.append((TYPES[kind], int(batch > 1), tokens, bias, batch, out, inner, *times))
    head = list(itertools.takewhile(lambda line: line.startswith("#"), TABLE.read_text().splitlines()))
    lines = [f"{{{kind}, {bias}, {batch}, {tokens}, {out}, {inner}, {{{', '.join(map(str, times))}}}}},"
             for kind, _, tokens, bias, batch, out, inner, *times in sorted(set(table))]
    TABLE.write_text("\n".join([*head, "[times]", *lines]) + "\n")


if __name__ == "__main__": main()
