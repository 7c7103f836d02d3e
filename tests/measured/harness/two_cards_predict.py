"""What memcalc says of cases on two cards: two_cards_predict.py CASES.jsonl OUT.jsonl MEMCALC [GPU]."""
import json, sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "scripts")]
import memcalc_rows
from memcalc_pages import Memcalc, Refused, in_parallel

memcalc, gpu = Memcalc(sys.argv[3]), (sys.argv[4:] + ["NVIDIA H200"])[0]


def told(line):
    case = dict(json.loads(line), gpu=gpu)
    try: answer = memcalc.json(*memcalc_rows.question_of(case, memcalc.file), "--no-remedies")
    except Refused as refused: return dict(case, refused=str(refused)[:300])
    step, memory = answer["time"], answer["memory"]
    case.update(peak_allocated_bytes=memory["peak_allocated_bytes"], peak_reserved_bytes=memory["peak_reserved_bytes"])
    if "step_seconds" not in step: return dict(case, lacks=step.get("lacks", True))
    ms = {f"{key}_ms": round(1e3 * step[f"{key}_seconds"], 3) for key in ("kernel", "host", "communication") if f"{key}_seconds" in step}
    return dict(case, predicted_ms=round(1e3 * step["step_seconds"], 3), predicted=dict(ms, bound=step["bound_by"], lacks=step.get("lacks", []), by_class={key: round(1e3 * value, 2) for key, value in step.get("by_class", {}).items()}))


Path(sys.argv[2]).write_text("".join(json.dumps(case) + "\n" for case in in_parallel(told, Path(sys.argv[1]).read_text().splitlines())))
