#!/usr/bin/env python3
"""Predicts what others published, before its results are read.

    published_blind.py MEMCALC COMMIT > tests/measured/published/blind_predicted.jsonl
    published_blind.py MEMCALC COMMIT "second round" > tests/measured/published/later_predicted.jsonl     of one group

Each line: the row's id, the seconds of a step and whether it fits by the build of COMMIT, or its refusal. The rows:
scripts/blind_cases.py. (Files until 2026-11-30 have "fits": null or nothing: the key asked for does not exist.)
"""
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts"))
from blind_cases import cases  # noqa: E402
from memcalc_pages import Memcalc, Refused  # noqa: E402


def main():
    executable, commit, *groups = sys.argv[1:]
    memcalc = Memcalc(executable)
    asked = [each for each in cases(memcalc, with_mpt=not groups) if not groups or each[0] in groups]
    answers = memcalc.all([words for _, _, words in asked])
    print(json.dumps({"commit": commit}))
    for (group, row, _), answer in zip(asked, answers):
        if isinstance(answer, Refused): said = {"refused": str(answer)}
        elif "step_seconds" not in answer.get("time", {}): said = {"refused": "no time"}
        else:
            time = answer["time"]
            said = {"step_seconds": time["step_seconds"], "verdict": answer["verdict"],
                    "by_class": {key: round(value, 6) for key, value in time["by_class"].items() if value}}
        print(json.dumps({"id": row["id"], "group": group, **said}))


if __name__ == "__main__":
    main()
