"""Every JSON answer of every command follows its schema, and the pages that come from tables are current."""
import json
import tempfile
import unittest
from pathlib import Path

import checkpoint
import memcalc_cli
from memcalc_cli import ROOT, run
from schema import schema_of, violations

GPT2 = ("--model", "gpt2", "--layers", "2", "--seq", "64")
MESH = (*GPT2, "--gpus", "4", "--loop", "bare", "--precision", "bf16")
ANSWERS = (
    ("report", GPT2),
    ("report", (*GPT2, "--lora", "8", "--quantize", "nf4", "--bitsandbytes", "0.41.1", "--gpu", "h100-sxm")),
    ("report", (*GPT2, "--infer", "--new-tokens", "4", "--beams", "2")),
    ("report", (*GPT2, "--infer", "--gpu", "t4", "--kv-cache-dtype", "fp32")),
    ("report", ("--model", "llama-3.2-1b", "--layers", "2", "--seq", "64", "--loop", "bare", "--precision", "bf16", "--compile",
                "--compile-parts", "layers", "--float8", "rowwise", "--loss-in-loop")),
    ("report", (*MESH, "--parallel", "fsdp2", "--keep-last-layer", "--fsdp-param-dtype", "bf16")),
    ("report", (*MESH, "--parallel", "ds-zero3", "--deepspeed", "reduce_bucket_size=5e7")),
    ("report", (*MESH[:-2], "--precision", "bf16", "--framework", "megatron", "--tp", "2", "--sp", "--megatron", "swiglu")),
    ("report", ("--model", "llama-3.2-1b", "--layers", "2", "--seq", "64", "--loop", "bare", "--precision", "bf16", "--pp", "2",
                "--stage-layers", "1,1", "--per-rank", "--explain")),
    ("report", (*GPT2, "--tokens", "1B", "--loader-workers", "2", "--sample-seconds", "0.01", "--gpu", "h100-sxm")),
    ("report", ("--model", "gpt2-xl", "--bs", "8", "--gpu", "t4")),  # does not fit: with what would
    ("report", ("--model", "llama-3-70b", "--gpu", "t4")),  # nothing would
    ("report", ("--config", ROOT / "tests/config_files/axolotl-lora-1b.yml", "--config-without", "val_set_size")),
    ("report", (*GPT2, "--loop", "trl-grpo", "--completion", "32", "--vllm", "colocate", "--gpu", "h100-sxm")),
    ("report", (*GPT2, "--loop", "trainer", "--lengths", "lognormal:20,0.5,60,50", "--gpu", "t4")),
    ("answer", ("ladder", "--model", "gpt2-xl", "--bs", "8", "--gpu", "t4")),
    ("answer", ("max-batch", *GPT2, "--gpu", "t4", "--multiple-of", "64")),
    ("answer", ("max-seq", "--model", "gpt2", "--layers", "2", "--gpu", "t4", "--multiple-of", "256")),
    ("answer", ("max-model", "--family", "gpt2", "--gpu", "h100-sxm")),
    ("answer", ("sweep", *GPT2, "--bs", "1,2", "--pp", "1,2", "--loop", "bare")),
    ("answer", ("compare", *GPT2, "--gpu", "t4,h100-sxm")),
    ("answer", ("ladder", *GPT2, "--gpu", "t4", "--all")),
    ("answer", ("plan", *GPT2, "--gpus", "2", "--global-batch", "4", "--simulate", "4")),
    ("answer", ("utilization", "--achieved", "100e12", "--peak", "312e12")),
    ("answer", ("upgrade", *GPT2, "--from", "p3", "--to", "p4")),
    ("answer", ("profiles",)),
    ("models", ("models",)),
    ("gpus", ("gpus",)),
)


class Schema(unittest.TestCase):
    def test_every_answer_of_every_command_follows_its_schema(self):
        schemas = {name: schema_of(name) for name, _ in ANSWERS}
        for name, arguments in ANSWERS:
            with self.subTest(arguments):
                process = run(*arguments, "--format", "json")
                self.assertIn(process.returncode, (0, 1), process.stderr)
                self.assertEqual(list(violations(json.loads(process.stdout), schemas[name])), [])

    def test_weights_follow_theirs(self):
        with tempfile.TemporaryDirectory() as folder:
            checkpoint.write(Path(folder) / "model.safetensors", {"a": ("F32", [2, 3])})
            process = run("weights", Path(folder) / "model.safetensors", "--format", "json")
            self.assertEqual(list(violations(json.loads(process.stdout), schema_of("weights"))), [])

    def test_a_wrong_answer_does_not(self):
        answer = json.loads(run(*GPT2, "--format", "json").stdout)
        answer["run"]["batch"] = 4
        self.assertEqual(len(list(violations(answer, schema_of("report")))), 1)

    def test_pages_of_the_tables_are_current(self):
        for kind, page in (("schema", "docs/run.schema.json"), ("rules", "docs/what-goes-with-what.md")):
            self.assertEqual(run("completion", kind).stdout, (ROOT / page).read_text(), f"memcalc completion {kind} > {page}")


if __name__ == "__main__":
    memcalc_cli.main()
