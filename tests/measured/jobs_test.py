"""Training jobs as trainers run them (measured/jobs/rows.jsonl) against memcalc: jobs_test.py MEMCALC. Each is equal in
allocated and reserved memory, but those that are listed here, whose errors may not grow."""
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROWS = Path(__file__).resolve().parent / "jobs/rows.jsonl"
MEMCALC = ""
# Largest shares by which (allocated, reserved) are off today, in percent.
OFF = {
    "j19-01-dpo-llama": (0, 0.067),
    "j19-05-sft-mistral": (0, 0.147),
    "j19-07-trainer-gpt_neox": (0.001, 0),
    "j19-08-sft-gpt2": (0.14, 0.109),
    "j19-09-sft-gpt_neox": (0.123, 0),
    "j19-12-sft-qwen3": (0, 0.611),
    "j19-13-dpo-gpt_neox": (0.002, 0),
    "j19-23-sft-gpt2": (0.003, 0),
    "j27-03-dpo-llama-untied": (0, 1.298),
    "j27-04-sft-qwen2": (0, 0.156),
    "j27-05-sft-lengths-gpt2": (0.037, 0),
    "j27-06-sft-gpt_neox": (0.016, 0),
    "j27-11-trainer-qwen3": (0, 0.012),
    "j27-15-dpo-qwen2": (0.017, 0.995),
    "j27-21-glue-distilbert": (0.049, 1.617),
    "j27-25-dpo-gpt2": (0.004, 0),
    "j27-31-dpo-gpt2": (0.001, 0),
}


def predicted(row, folder):
    arguments = list(row["arguments"])
    if "config" in row:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(row["config"]))
        arguments += ["--model", str(path)]
    if "lengths" in row:
        path = Path(folder) / "lengths.txt"
        path.write_text(row["lengths"].replace(" ", "\n") + "\n")
        arguments += ["--lengths", str(path)]
    done = subprocess.run([MEMCALC, *arguments, "--gpu", "h200-sxm", "--format", "json"], capture_output=True, text=True)
    if done.returncode > 1: raise AssertionError(f"{row['name']}: {done.stderr}")
    memory = json.loads(done.stdout)["memory"]
    return memory["peak_allocated_bytes"], memory["peak_reserved_bytes"]


class Jobs(unittest.TestCase):
    def test_each_is_as_it_was_measured(self):
        rows = [json.loads(line) for line in ROWS.read_text().splitlines()]
        rows = [row for row in rows if "allocated" in row]
        self.assertEqual(set(OFF) - {row["name"] for row in rows}, set(), "listed, but not measured")
        with tempfile.TemporaryDirectory() as folder:
            for row in rows:
                with self.subTest(row["name"]):
                    for kind, said, most in zip(("allocated", "reserved"), predicted(row, folder), OFF.get(row["name"], (0, 0))):
                        self.assertLessEqual(abs(said / row[kind] - 1), most / 100, f"{kind}: {said}, measured {row[kind]}")

    def test_an_evaluation_of_more_batches_than_are_executed_one_by_one(self):
        """What is kept goes to the host after two batches, however many come; blocks that are not split differ by 0.5 MiB."""
        job = ["--model", "gpt2", "--loop", "trainer", "--bs", "2", "--seq", "64", "--eval-bs", "4", "--eval-logits", "--eval-accum", "2"]
        few, many = (predicted({"name": n, "arguments": [*job, "--eval-samples", n]}, None) for n in ("16", "400"))
        self.assertLessEqual(abs(many[0] - few[0]), 2**20)


if __name__ == "__main__":
    MEMCALC = sys.argv.pop(1)
    unittest.main()
