"""How many times as long as the reference host each machine that was lent took: `times` of specs/measured/hosts.json.

usage: host_levels.py MEMCALC [--runs]     prints a line for each machine: times, runs, quartiles

A machine is one lease: a virtual machine from when it was lent until it was given back. Of its training steps on one card that no profiler had
slowed and that the host clearly decides (it needs 1.2 times as long as the kernels, with the reference host's rates), the median of what was measured over
what those rates say: of the host's own milliseconds in forward, backward and optimizer, each from an idle card, where they were taken (of one batch, where a step accumulates
several; zero_grad() is not in them, so it is left out of what the rates say, too), else of the step.
Where several leases of a day cannot be told apart, they count as one.
"""
import json
import re
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts"))
from importlib.machinery import SourceFileLoader  # noqa: E402

from memcalc_pages import Memcalc, Refused, in_parallel  # noqa: E402
import memcalc_rows  # noqa: E402

time_errors = SourceFileLoader("time_errors", str(ROOT / "scripts/time_errors")).load_module()
CLEARLY = 1.2
HARNESS, REFERENCE = ROOT / "tests/measured/harness", json.loads((ROOT / "specs/measured/h100-sxm/rates.json").read_text())["host"]


def ids_of(name): return {row["id"] for row in memcalc_rows.read(name) if not row.get("after_profiler")}


def drawn(seed): return {json.loads(line)["id"] for line in (HARNESS / f"families_drawn_{seed}.jsonl").read_text().splitlines()}


def machines():
    """{name: whether a row is of it}, of rows (id, seed that it is of, folder)."""
    families, images = ids_of("rows_families_h100.jsonl"), ids_of("rows_images_h100.jsonl")
    of = {seed: drawn(seed) for seed in ("2127", "2811", "2911", "fam21")}
    day = {seed: {each for each in images if each.startswith(f"drawn-{seed}")} for seed in ("26-", "27")}
    named = {"H100's host of 2026-10": ids_of("single_gpu.jsonl"), "H100's host of 2026-11-21": ids_of("rows_h100.jsonl"),
             "H200's host of 2026-11-24": ids_of("versions/rows.jsonl"),
             "H100s' hosts of 2026-11-25 and 26": families - set().union(*of.values()) | day["26-"], "H100's host of 2026-11-27": of["fam21"] | day["27"],
             "H100's host of 2026-11-28, morning": of["2127"] | of["2811"], "H100's host of 2026-11-28, noon": of["2911"]}
    seeds = {"H200's host of 2026-11-29, morning": ("blind2929",), "H200's host of 2026-11-29, noon": ("blind3001",), "H200's host of 2026-11-29, afternoon": ("blind4001",),
             "H200's host of 2026-11-29, evening": ("blind5001",), "H200's host of 2026-11-30, night": ("blind7001", "blind5002", "extra7001"), "H200's host of 2026-11-30, morning": ("blind8001",), "H200's host of 2026-11-30, forenoon": ("blind9001",),
             "H200's host of 2026-11-30, noon": ("blind10001",), "H200's host of 2026-11-30, afternoon": ("blind11001",),
             "H200's host of 2026-11-30, evening": ("blind12001",), "H200's host of 2026-11-30, late evening": ("blind13001",)}
    folders = {"H200's host of 2026-11-23, noon": "any_module", "H200's host of 2026-11-23, afternoon": "drawn"}
    return ({name: lambda one, ids=ids: one["folder"] is None and one["seed"] is None and one["id"] in ids for name, ids in named.items()}
            | {name: lambda one, folder=folder: one["folder"] == folder for name, folder in folders.items()}
            | {name: lambda one, seeds=seeds: one["seed"] in seeds for name, seeds in seeds.items()})


def main():
    memcalc = Memcalc(sys.argv[1])
    host = memcalc.file(dict(schema_version=1, name="reference", rates=REFERENCE))
    without_zero_grad = memcalc.file(dict(schema_version=1, name="reference", rates=dict(REFERENCE, zeroed_tensor_us=1e-6)))
    asked = [row for row in time_errors.rows() if not row[1].get("infer") and row[1].get("gpus", 1) == 1 and not row[4].get("after_profiler") and not row[1].get("compile")]

    def ratio(row):
        name, _, measured, how, record = row
        try: time = memcalc.json(*time_errors.question(memcalc, how, record), "--no-remedies", "--host", host).get("time")
        except Refused: return None
        if not time or time["host_seconds"] < CLEARLY * time["kernel_seconds"]: return None
        phases = (record.get("again") or record).get("host_ms") or record.get("measured", {}).get("host_ms")
        seed = re.match(r"(blind|extra)\d{4}", name)
        seed = record.get("harness", {}).get("of", seed and seed[0]) if how is None or seed else None
        if phases:  # of one batch, where a step accumulates several
            of_one = dict(record, run=dict(record["run"], accumulation_steps=1)) if how is None else record
            time = memcalc.json(*time_errors.question(memcalc, how, of_one), "--no-remedies", "--host", without_zero_grad)["time"]
        took = sum(phases) / (1e3 * time["host_seconds"]) if phases else measured / (1e3 * time["step_seconds"])
        return dict(id=name, folder=None if seed else how and how.name, seed=seed, times=took, phases=bool(phases))

    found = [each for each in in_parallel(ratio, asked) if each]
    for name, is_of in machines().items():
        rows = sorted((each for each in found if is_of(each)), key=lambda each: each["times"])
        if not rows: continue
        values = [each["times"] for each in rows]
        quartiles = statistics.quantiles(values, n=4) if len(values) > 2 else values
        print(f"{name:40} {statistics.median(values):.3f} {len(rows):4} runs, quartiles {' '.join(f'{each:.2f}' for each in quartiles)}; {sum(each['phases'] for each in rows)} by phases")
        if "--runs" in sys.argv: print("\n".join(f"    {each['times']:.2f} {each['id']}" for each in rows))


if __name__ == "__main__": main()
