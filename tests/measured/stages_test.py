"""Jobs of several stages (measured/jobs/stages.jsonl) against memcalc: stages_test.py MEMCALC. The peak of each stage is
equal in allocated and reserved memory, but in the jobs that are listed here, whose errors may not grow."""
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROWS = Path(__file__).resolve().parent / "jobs/stages.jsonl"
MEMCALC = ""
# Largest shares by which (allocated, reserved) of a stage are off today, in percent.
OFF = {
    "s61-00-trainer-mistral-device-map-nf4-double-merge": (0.362, 0),
    "s61-05-trainer-llama-untied-device-map-nf4-double-merge": (0.048, 0),
    "s61-09-bare-gpt2-device-map-int8-merge": (0.327, 2.047),
    "s61-11-bare-llama-device-map-nf4-merge": (0, 0.112),
    "s62-01-bare-gpt2-config-lora-merge": (0.001, 0),
    "s62-02-bare-opt-device-map-nf4-merge": (0, 0.307),
    "s62-10-bare-gpt_neox-device-map-nf4-checkpoint": (0, 0.223),
    "s62-11-trainer-opt-device-map-nf4-double-checkpoint": (0, 0.277),
}


def predicted(row, folder):
    path = Path(folder) / "config.json"
    path.write_text(json.dumps(row["config"]))
    done = subprocess.run([MEMCALC, *row["arguments"], "--model", str(path), "--gpu", "h200-sxm", "--format", "json"], capture_output=True, text=True)
    if done.returncode > 1: raise AssertionError(f"{row['name']}: {done.stderr}")
    return {stage["name"]: (stage["peak_allocated_bytes"], stage["peak_reserved_bytes"]) for stage in json.loads(done.stdout)["stages"]}


class Stages(unittest.TestCase):
    def test_each_is_as_it_was_measured(self):
        rows = [json.loads(line) for line in ROWS.read_text().splitlines()][1:]
        self.assertEqual(set(OFF) - {row["name"] for row in rows}, set(), "listed, but not measured")
        with tempfile.TemporaryDirectory() as folder:
            for row in rows:
                said = predicted(row, folder)
                self.assertEqual(list(said), [name for name in ("load", "prepare", "train", "evaluate", "merge", "save") if name in row["stages"]])
                for stage, measured in row["stages"].items():
                    for kind, most in enumerate(OFF.get(row["name"], (0, 0))):
                        with self.subTest(row["name"], stage=stage, kind=("allocated", "reserved")[kind]):
                            self.assertLessEqual(abs(said[stage][kind] - measured[kind]), most / 100 * measured[kind])


if __name__ == "__main__":
    MEMCALC = sys.argv.pop(1)
    unittest.main()
