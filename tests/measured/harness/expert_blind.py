"""Runs with experts and with Adafactor, drawn and predicted by blind_steps.py's rules: expert_blind.py OUT.jsonl MEMCALC GPU SEED COUNT"""
import json, random, sys
from pathlib import Path

import blind_steps as b

sys.path.insert(0, str(b.ROOT / "scripts"))
import memcalc_rows, models
from memcalc_pages import Memcalc, Refused

out, executable, gpu, seed, count = sys.argv[1:]
memcalc, pick, cases = Memcalc(executable), random.Random(int(seed)), []
drawn = b.groups(models.MODELS, memcalc_rows.read)
while len(cases) < int(count):
    group = "experts" if len(cases) % 2 == 0 else "text"
    row = pick.choice(drawn[group])
    run = b.changed(group, row["run"], pick, 0.3)
    if group == "text": run["optimizer"] = pick.choice(("adafactor", "adafactor", "adafactor-torch"))
    else: run["precision"] = pick.choice(("bf16", "amp-bf16", "fp16", "fp32")); run["weights_dtype"] = b.PRECISIONS[run["precision"]]
    kept = "-ckpt" if run.get("checkpointing", "none") != "none" else ""
    case = dict(id=f"blind{seed}-{group}-{run['model']}-b{run['batch_size']}-s{run.get('sequence_length')}-{run['precision']}-{run['optimizer']}{kept}", run=run,
                harness={"of": f"blind{seed}", "no_profile": True, **{key: value for key, value in row.get("harness", {}).items() if key in ("config", "task", "padding")}}, gpu=gpu)
    try: case["predicted_ms"], case["predicted"], reserved = b.answer_of(memcalc, case)
    except Refused: continue
    if reserved > 40e9 or not 25 <= case["predicted_ms"] <= 350 or case["id"] in {each["id"] for each in cases}: continue
    cases.append(case)
    print(case["id"], case["predicted_ms"], case["predicted"])
Path(out).write_text("".join(json.dumps(each) + "\n" for each in cases))
