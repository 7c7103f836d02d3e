"""memcalc plan --emit: what it prints is read by Python, a JSON reader and a shell. Where transformers is installed (not
in CI), TrainingArguments takes its call."""
import ast
import json
import shlex
import unittest

import memcalc_cli
from memcalc_cli import run

LLAMA = ("--model", "llama-3.2-1b", "--seq", "512", "--global-batch", "8")

# (arguments, names that the script binds)
SCRIPTS = [
    (("--gpus", "1", "--bf16"), {"prepared", "optimizer", "step"}),
    (("--gpus", "1", "--fp16", "--optimizer", "sgd"), {"optimizer", "scaler"}),
    (("--gpus", "4", "--bf16"), {"device", "optimizer", "step"}),
]


def settings(*arguments):
    process = run("plan", *LLAMA, *arguments, "--format", "json")
    assert (process.returncode, process.stderr) == (0, ""), process.stderr
    answer = json.loads(process.stdout)
    return answer["settings"], answer


def bound_names(text):
    tree = ast.parse(text)
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return names | {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


class Settings(unittest.TestCase):
    def test_a_training_script_is_python(self):
        for arguments, bound in SCRIPTS:
            with self.subTest(arguments):
                text, _ = settings(*arguments, "--emit", "torchrun")
                self.assertLessEqual(bound, bound_names(text))

    def test_deepspeed_reads_json_of_its_own_plan(self):
        text, answer = settings("--gpus", "4", "--bf16", "--emit", "deepspeed")
        configuration, first = json.loads(text), answer["rows"][0]
        self.assertEqual(f"ds-zero{configuration['zero_optimization']['stage']}", first["mode"].split(",")[0])
        self.assertEqual(configuration["train_micro_batch_size_per_gpu"], first["micro_batch"])
        self.assertEqual(configuration["gradient_accumulation_steps"], first["micro_batches"])
        self.assertTrue(configuration["bf16"]["enabled"])

    def test_megatron_gets_arguments(self):
        text, answer = settings("--gpus", "4", "--bf16", "--emit", "megatron")
        words = shlex.split(text.replace("\\\n", " "))
        value = {word: after for word, after in zip(words, words[1:] + [""])}
        self.assertEqual(value["--global-batch-size"], "8")
        self.assertEqual(value["--num-layers"], "16")
        self.assertEqual(value["--micro-batch-size"], str(answer["rows"][0]["micro_batch"]))
        self.assertIn("--bf16", words)

    def test_the_trainer_gets_a_call(self):
        text, answer = settings("--gpus", "2", "--bf16", "--emit", "trainer")
        call = ast.parse(text).body[0].value
        self.assertEqual(call.func.id, "TrainingArguments")
        given = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
        self.assertEqual(given["per_device_train_batch_size"], answer["rows"][0]["micro_batch"])
        self.assertNotIn("--loop bare", answer["answer"])
        try:
            from transformers import TrainingArguments
        except ImportError:
            self.skipTest("no transformers here")
        TrainingArguments(**{**given, "bf16": False, "use_cpu": True})


if __name__ == "__main__":
    memcalc_cli.main()
