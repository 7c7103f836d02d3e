"""Steps drawn at random, predicted, then profiled on a card, with a file of the host before and after.

usage: blind_steps.py draw OUT.jsonl MEMCALC [SEED]             draws 20 runs (seed 2822 made blind28-) and predicts them
       blind_steps.py run BUDGET_S FOLDER MODULES CASES.jsonl …  on the card; MODULES: any_module.py, which builds cases of kind "any"
"""
import json
import os
import random
import subprocess
import sys
import time
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path[:0] = [str(HERE), str(ROOT / "scripts")]
EXPERTS = ("mixtral", "moe", "gpt-oss", "deepseek")
GPU = "NVIDIA H100 80GB HBM3"
ROWS = ("single_gpu.jsonl", "rows_h100.jsonl", "rows_h200.jsonl", "rows_families_h100.jsonl", "rows_experts_h200.jsonl", "rows_blind_h200.jsonl",
        "rows_finetuning_h200.jsonl")
IMAGES = ["resnet34", "resnet101", "densenet121", "mobilenet_v2", "efficientnet_b2", "convnext_small", "regnet_y_1_6gf", "vgg13", "swin_t", "vit_b_16",
          "wide_resnet50_2", "mnasnet1_0"]
PROGRAMS = ["stablelm", "granite", "gptj", "swinv2", "beit", "deberta-v2", "segformer", "olmoe", "wav2vec2", "albert"]
PRECISION = {"bf16": ["--precision", "bf16"], "amp-bf16": ["--precision", "amp-bf16", "--weights-dtype", "fp32"]}
NOT_BUILT = ("compile", "quantize", "freeze", "liger", "offload_optimizer", "activation_offload", "layers")  # by profile_steps.py, or elsewhere


def groups(models, read):
    """The rows that runs are drawn from, by group."""
    rows = [row for file in ROWS for row in read(file)]
    rows = [row for row in rows if row["run"].get("gpus", 1) == 1 and row["run"].get("loop") == "bare" and not row.get("rank")
            and not row.get("not_modelled") and "images" not in row["run"] and not row["run"].get("infer")
            and row["run"]["model"] in models and not row["run"]["model"].startswith("custom")
            and not any(row["run"].get(key) for key in NOT_BUILT) and "8bit" not in row["run"].get("optimizer", "")]
    of_experts = lambda row: any(each in row["run"]["model"] for each in EXPERTS)
    full = [row for row in rows if not row["run"].get("lora")]
    return {"text": [row for row in full if not of_experts(row) and row["run"]["task"] in ("causal", "seqcls", "mlm", "seq2seq", "tokcls")],
            "experts": [row for row in full if of_experts(row)],
            "lora": [row for row in rows if row["run"].get("lora")],
            "speech": [row for row in read("steps_blind_h100.jsonl") if "whisper" in row["run"]["model"]]}


def draw(out, executable, seed=2822):
    import memcalc_rows
    import models
    from memcalc_pages import Memcalc, Refused
    memcalc, pick, cases = Memcalc(executable), random.Random(seed), []

    def predicted(case, words):
        try: answer = memcalc.json(*words, "--no-remedies")
        except Refused: return False
        if answer["memory"]["peak_reserved_bytes"] > 72e9: return False
        step = answer["time"]
        case.update(gpu=GPU, predicted_ms=round(1e3 * step["step_seconds"], 3),
                    predicted=dict(kernel_ms=round(1e3 * step["kernel_seconds"], 3), host_ms=round(1e3 * step["host_seconds"], 3), bound=step["bound_by"]))
        cases.append(case)
        return True

    drawn = groups(models.MODELS, memcalc_rows.read)
    for group, left in (("text", 7), ("experts", 3), ("lora", 2), ("speech", 1)):
        seen = set()
        while left:
            row = pick.choice(drawn[group])
            run = dict(row["run"])
            if run["model"] in seen or run.get("sequence_length", 0) > 4096: continue
            run["batch_size"] = pick.choice((2, 3, 4, 6, 8))
            if "sequence_length" in run: run["sequence_length"] = pick.choice((192, 320, 448, 640, 1024))
            case = dict(id=f"blind-{group}-{run['model']}-b{run['batch_size']}-s{run.get('sequence_length', 0)}-{run['precision']}", run=run,
                        harness={"of": "blind", **{key: value for key, value in row.get("harness", {}).items() if key in ("config", "task", "padding")}})
            if not predicted(case, memcalc_rows.question_of(dict(case, gpu=GPU), memcalc.file)): continue
            seen.add(run["model"])
            left -= 1
    left, names = 3, list(IMAGES)
    while left:
        name = pick.choice(names)
        names.remove(name)
        run = dict(model=name, task="image", batch_size=pick.choice((8, 24, 40, 64)), image_size=224, weights_dtype="fp32", loop="bare",
                   precision=pick.choice(("fp32", "tf32", "amp-bf16", "amp-fp16")), optimizer="adamw")
        case = dict(id=f"blind-image-{name}-b{run['batch_size']}-{run['precision']}", run=run, harness=dict(kind="tv", name=name, of="blind"))
        left -= predicted(case, ["--model", name, *memcalc_rows.words_of(run), "--gpu", "h100-sxm"])
    for name in pick.sample(PROGRAMS, 3):
        precision, batch = pick.choice(tuple(PRECISION)), pick.choice((3, 6, 12))
        case = dict(id=f"blind-program-{name}-b{batch}-{precision}", run=dict(model=name, precision=precision, batch_size=batch, optimizer="adamw"),
                    harness=dict(kind="any", name=name, batch=batch, of="blind"))
        predicted(case, ["--model", ROOT / f"tests/measured/any_module/{name}.json.gz", "--gpu", "h100-sxm", "--loop", "bare", "--bs", batch,
                         *PRECISION[precision]])
    Path(out).write_text("".join(json.dumps(case) + "\n" for case in cases))


def host(folder, when):
    code = ("import json, sys; from importlib.util import module_from_spec, spec_from_file_location as of; spec = of('host', sys.argv[1]); "
            "host = module_from_spec(spec); spec.loader.exec_module(host); print(json.dumps(host.measure_host(json.load(open(sys.argv[2]))['host'])))")
    done = subprocess.run([sys.executable, "-c", code, ROOT / "python/memcalc/measure/_host.py", ROOT / "specs/measured/h100-sxm/rates.json"],
                          capture_output=True, text=True, timeout=100)
    (folder / f"host_{when}.json").write_text(done.stdout or done.stderr[-2000:])


def run(budget, folder, modules, *files):
    import profile_steps
    import torch  # never asked for its cards here: forked children could not take one
    spec = spec_from_file_location("any_module", modules)
    any_module = module_from_spec(spec)
    spec.loader.exec_module(any_module)
    folder, end = Path(folder), time.time() + float(budget)
    vision, measured = profile_steps.vision, profile_steps.one

    def program(case):
        how, known = case["harness"], dict(any_module.CASES[case["harness"]["name"]])
        if how.get("batch"): known["inputs"] = {key: (kind, most, (how["batch"], *shape[1:])) for key, (kind, most, shape) in known["inputs"].items()}
        model, batch, loss = any_module.build(known, case["run"]["precision"], profile_steps.DEVICE)

        def loss_of(**batch):
            result = model(**batch)
            if loss is not None: return loss(result)
            return result if torch.is_tensor(result) else result.loss
        return model, batch, loss_of

    def one(case):
        if case["harness"].get("kind") != "any": return measured(case)
        profile_steps.vision = lambda _: program(case)
        row = measured(dict(case, harness=dict(case["harness"], kind="tv")))
        profile_steps.vision = vision
        return dict(row, harness=case["harness"])

    profile_steps.one = one
    host(folder, "before")
    for file in files:
        sys.argv = ["profile_steps", file, str(folder / f"{Path(file).stem}_measured.jsonl"), "--budget", str(end - time.time() - 35)]
        profile_steps.main()
    host(folder, "after")


if __name__ == "__main__":
    os.environ.setdefault("MEMCALC_SPEC_PATH", str(ROOT / "specs"))
    {"draw": draw, "run": run}[sys.argv[1]](*sys.argv[2:])
