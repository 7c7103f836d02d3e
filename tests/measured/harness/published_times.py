"""Writes specs/measured/b200-sxm-180gb/operator_times.txt: operators that SimuMax's authors timed by shape on a B200.

usage: published_times.py b200_bf16_ceperm.json      of MooreThreads/SimuMax, configs/system
"""
import json
import re
import sys
from pathlib import Path

OUT = Path(__file__).resolve().parents[3] / "specs/measured/b200-sxm-180gb/operator_times.txt"
LAYOUTS = {"NN": 0, "NT": 1, "TN": 2}  # of cuBLAS, whose first operand is our second: none, the first, the second transposed
SHORTEST_PRODUCT, SHORTEST_ATTENTION = 60e-6, 150e-6  # seconds; forward of few heads took 92 to 106 us whatever their number: the host's
HEAD = """# How long operators take on a B200, by shape. Source: MooreThreads/SimuMax configs/system/b200_bf16_ceperm.json
# (v1.2, commit 4dcaae51 of 2026-05-11, read 2026-11-29): accurate_efficient_factor of matmul, sdp_fwd and sdp_bwd, of 2,250 TFLOP/s.
# They timed TransformerEngine's general_gemm and causal attention (tools/b200, simu_tools/efficency_test); attention of the whole
# square's FLOPs. Made by tests/measured/harness/published_times.py, which leaves out products of less than 60 us and
# attention of less than 150. cmake/ConvolutionTable.cmake makes C++ of it; lib/memcalc/cost/published_times.cc reads that.
# [products]: operand that is transposed (0: none; 1: the first; 2: the second), whether the result is added to float32, m, n,
# k, microseconds.
# [attentions]: backward (0, 1), sequence, heads, width of queries and keys, microseconds.
"""


def sizes(text): return {key: value for key, value in re.findall(r"(\w+)=(\w+)", text)}


def main():
    given = json.loads(Path(sys.argv[1]).read_text())["accelerator"]["op"]
    products, attentions = [], []
    for text, share in given["matmul"]["accurate_efficient_factor"].items():
        of = sizes(text)
        m, n, k = (int(of[key]) for key in "mnk")
        seconds = 2 * m * n * k * int(of["b"]) / (share * given["matmul"]["tflops"] * 1e12)
        if int(of["b"]) == 1 and seconds >= SHORTEST_PRODUCT: products.append((LAYOUTS[of["layout"]], int(of["out_dtype"] == "fp32"), m, n, k, round(1e6 * seconds, 1)))
    for backward, group in enumerate(("sdp_fwd", "sdp_bwd")):
        for text, share in given[group]["accurate_efficient_factor"].items():
            of = sizes(text)
            length, heads, width, of_values = (int(of[key]) for key in ("seq_len", "head_num", "qk_head_dim", "v_head_dim"))
            products_of = 5 if backward else 2
            seconds = products_of * length**2 * heads * (width + of_values) / (share * given[group]["tflops"] * 1e12)
            if seconds >= SHORTEST_ATTENTION: attentions.append((backward, length, heads, width, round(1e6 * seconds, 1)))
    lines = [HEAD, "[products]\n", *(f"{{{', '.join(map(str, row))}}},\n" for row in sorted(products)),
             "[attentions]\n", *(f"{{{', '.join(map(str, row))}}},\n" for row in sorted(attentions))]
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text("".join(lines))


if __name__ == "__main__": main()
