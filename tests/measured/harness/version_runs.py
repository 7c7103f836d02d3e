"""Runs under other releases of transformers, drawn at random, predicted by memcalc, measured on a card, compared. A case is
a line as blind_cases.py draws it, with "transformers" in its run record.

usage: version_runs.py draw SEED N VERSION,VERSION,… OUT      as many of each release
       version_runs.py draw_experts SEED N VERSION,VERSION,… OUT     the same of models with experts
       version_runs.py predict MEMCALC CASES OUT
       version_runs.py measure CASES OUT SITES [--budget S]   SITES/VERSION: the packages of that release, put in front
       version_runs.py compare CASES PREDICTED MEASURED [--rows OUT]
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
FAMILIES = ("bert", "roberta", "distilbert", "electra", "gpt2", "gpt_neox", "opt", "llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2",
            "gemma3_text", "phi", "phi3", "olmo2", "mixtral", "qwen3_moe", "t5", "mt5", "bart", "whisper", "vit", "deit", "clip")


def number(version):
    return tuple(int(part) for part in version.split("."))


def draw(a):
    lines = subprocess.run([sys.executable, HERE / "blind_cases.py", str(a.seed)], capture_output=True, text=True, check=True).stdout.splitlines()
    models = {}
    for path in (ROOT / "specs/models").glob("*.json"):
        entry = json.loads(path.read_text())
        models[entry["name"]] = entry["config"]["model_type"] if "config" in entry else ""
    cases = [json.loads(line) for line in lines]
    cases = [c for c in cases if models.get(c["run"]["model"]) in FAMILIES]
    r = random.Random(a.seed)
    r.shuffle(cases)
    seen, drawn = {}, []
    for case in cases:  # no family more than three times
        family = models[case["run"]["model"]]
        if seen.get(family, 0) == 4 or len(drawn) == a.n: continue
        version = a.versions.split(",")[len(drawn) % len(a.versions.split(","))]
        run = case["run"]
        eager = {"electra": number(version) < (5,), "t5": number(version) < (5, 15), "mt5": number(version) < (5, 15), "gemma2": number(version) >= (5, 21)}
        if eager.get(family): run["attention"] = "eager"
        if family in ("t5", "mt5") and number(version) < (5,): run.pop("checkpointing", None)
        seen[family] = seen.get(family, 0) + 1
        run["transformers"] = version
        case["id"] = case["id"].replace("blind-", "tf%s-" % version)
        drawn.append(case)
    Path(a.out).write_text("".join(json.dumps(c) + "\n" for c in drawn))
    print(len(drawn), "cases")


def draw_experts(a):
    r, drawn = random.Random(a.seed), []
    while len(drawn) < a.n:
        precision, loop = r.choice(["bf16", "amp-bf16", "amp-fp16", "fp32"]), r.choice(["bare", "bare", "trainer"])
        run = dict(model=r.choice(["mixtral-8x0.3b", "qwen3-moe-1b"]), batch_size=r.choice([1, 2, 4, 6]), sequence_length=r.choice([128, 333, 512, 1024, 2048]),
                   task="causal", precision=precision, loop=loop, layers=r.choice([4, 12]), weights_dtype="bf16" if precision == "bf16" else "fp32",
                   optimizer=r.choice(["adamw", "adamw-for", "sgd"]) if loop == "bare" else "adamw")
        if r.random() < 0.4: run["checkpointing"] = "full"
        if r.random() < 0.2: run["accumulation_steps"] = 2
        if r.random() < 0.3: run["attention"] = "eager"
        if loop == "trainer": run["max_grad_norm"] = 1.0
        else: run["use_cache"] = True  # which a plain loop leaves on
        run["transformers"] = a.versions.split(",")[len(drawn) % len(a.versions.split(","))]
        drawn.append(dict(id="experts-%s-%d-%s" % (run["transformers"], len(drawn), run["model"]), run=run))
    Path(a.out).write_text("".join(json.dumps(c) + "\n" for c in drawn))


def predict(a):
    sys.path.insert(0, str(ROOT / "scripts"))
    import memcalc_rows as rows
    with tempfile.TemporaryDirectory() as folder, open(a.out, "w") as out:
        for line in open(a.cases):
            case = json.loads(line)

            def write(config):
                path = Path(folder, case["id"].replace("/", "_") + ".json")
                path.write_text(json.dumps(config))
                return str(path)
            words = rows.question_of(dict(case, gpu="NVIDIA H200"), write)
            said = subprocess.run([a.memcalc, *words, "--format", "json"], capture_output=True, text=True)
            row = dict(id=case["id"], words=[w for w in words if not w.startswith(folder)])
            if said.returncode > 1: row["refused"] = said.stderr.strip()
            else:
                report = json.loads(said.stdout)
                row.update(allocated=report["memory"]["peak_allocated_bytes"], reserved=report["memory"]["peak_reserved_bytes"],
                           ms=1e3 * (report.get("time") or {}).get("step_seconds", 0))
            out.write(json.dumps(row) + "\n")


def measure(a):
    groups = {}
    for line in open(a.cases):
        case = json.loads(line)
        groups.setdefault((case["run"]["transformers"], case["run"]["loop"]), []).append(line)
    for (version, loop), lines in groups.items():
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl", delete=False) as cases: cases.write("".join(lines))
        env = dict(os.environ, PYTHONPATH=os.pathsep.join([str(Path(a.sites, version).resolve()), os.environ.get("PYTHONPATH", "")]))
        script = "measure_trainer.py" if loop == "trainer" else "measure.py"
        print("==", version, loop, len(lines), flush=True)
        subprocess.run([sys.executable, HERE / script, cases.name, a.out, "--budget", str(a.budget)], env=env, cwd=HERE)


def compare(a):
    predicted = {row["id"]: row for row in map(json.loads, open(a.predicted))}
    errors, rows = [], []
    for row in map(json.loads, open(a.measured)):
        said = predicted[row["id"]]
        if "error" in row or "refused" in said:
            print("%-78s %s" % (row["id"], row.get("error") or said["refused"]))
            continue
        times = row.get("step_ms_median")
        found = [100 * (said["allocated"] / row["peak_allocated"] - 1), 100 * (said["reserved"] / row["peak_reserved"] - 1),
                 100 * (said["ms"] / times - 1) if times and said["ms"] else None]
        errors.append(found)
        rows.append(dict(row, predicted=dict(allocated=said["allocated"], reserved=said["reserved"], ms=round(said["ms"], 2))))
        print("%-78s %+13d %+8.3f %%  %+8.3f %%  %s" % (row["id"], said["allocated"] - row["peak_allocated"], found[0], found[1],
                                                    "%+.0f %%" % found[2] if found[2] is not None else "-"))
    for i, name in enumerate(("allocated", "reserved", "time")):
        sizes = sorted(abs(e[i]) for e in errors if e[i] is not None)
        if sizes: print(name, "exact %d of %d, median %.3f %%, p90 %.3f %%, worst %.2f %%" % (sum(s == 0 for s in sizes), len(sizes), sizes[len(sizes) // 2], sizes[len(sizes) * 9 // 10], sizes[-1]))
    if a.rows: Path(a.rows).write_text("".join(json.dumps(row) + "\n" for row in rows))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for function, names in ((draw, ("seed", "n", "versions", "out")), (draw_experts, ("seed", "n", "versions", "out")), (predict, ("memcalc", "cases", "out")), (measure, ("cases", "out", "sites")),
                            (compare, ("cases", "predicted", "measured"))):
        command = commands.add_parser(function.__name__)
        for name in names: command.add_argument(name, type=int if name in ("seed", "n") else str)
        if function is measure: command.add_argument("--budget", type=float, default=120)
        if function is compare: command.add_argument("--rows")
        command.set_defaults(call=function)
    a = parser.parse_args()
    a.call(a)


if __name__ == "__main__": main()
