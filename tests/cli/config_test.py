"""--config FILE and a command line behind "--": what the answer says of them, and what is wrong in one line."""
import concurrent.futures
import gzip
import json
import os
import shlex
import tempfile
import unittest

import memcalc_cli
from memcalc_cli import ROOT, report, run

FILES = ROOT / "tests/config_files"
LORA = FILES / "axolotl-lora-1b.yml"
GPT2 = "base_model: gpt2\nmicro_batch_size: 2\nsequence_len: 128\n"

PRETRAIN = ("python", "pretrain_gpt.py", "--num-layers", "2", "--hidden-size", "64", "--num-attention-heads", "4",
            "--seq-length", "64", "--max-position-embeddings", "64", "--micro-batch-size", "4", "--global-batch-size", "64",
            "--bf16")

# (arguments, what the line must say)
REFUSED = (
    (("--config", "no.yml"), "no.yml"),
    (("--config", "."), "a configuration file"),
    (("--config", "empty.yml"), "empty.yml: the file is empty"),
    (("--config", "list.yml"), "list.yml: found a list at the top; accepted: keys with values"),
    (("--config", "broken.yml"), "broken.yml: line 3: not YAML"),
    (("--config", "twice.yml"), "twice.yml: line 2: the key 'base_model' stands there a second time"),
    (("--config", "unknown.yml"), "unknown.yml: /micro_batch_sise: unknown key; did you mean 'micro_batch_size'?"),
    (("--config", "huge.yml"), "huge.yml: /micro_batch_size: found '99999999999999999999999'"),
    (("--config", "negative.yml"), "negative.yml: /micro_batch_size: --bs: expected a whole number of 1 or more"),
    (("--config", "nobody.yml"), "nobody.yml: unknown model 'nobody/nothing-7b'"),
    (("--config", "optimizer.yml"), "optimizer.yml: /optimizer: --optimizer: expected one of"),
    (("--config", "reward.yaml"), "/stage: LLaMA-Factory's rm puts a value head beside the language model's"),
    (("--config", LORA, "--config-format", "axolotle"), "did you mean 'axolotl'?"),
    (("--config", LORA, "--config-format", "torchtitan"), "/optimizer: found adamw_8bit; accepted: a mapping of keys"),
    (("--config", LORA, "--config-without", "val_set"), "--config-without:"),
    (("--model", "gpt2", "--config-without", "val_set"), "there is no file (--config FILE)"),
    (("--config", LORA, "--", "python", "train.py", "--bf16"), "one of them"),
    (("--model", "gpt2", "--"), "expected a training's command line behind it"),
    (("--", "python", "train.py", "--bf16"), "command line: it names no model; accepted: --model MODEL beside it"),
    (("models", "--", "python", "train.py"), "memcalc models: takes no command line behind '--'"),
    (("max-batch", "--config", LORA, "--bs", "2"), "--bs: the batch is what max-batch looks for"),
    (("max-batch", "--gpu", "h200", "--", *PRETRAIN), "/global_batch_size: 64 samples a step say nothing of the batch"),
)
WRITTEN = {
    "empty.yml": "",
    "list.yml": "- base_model\n- gpt2\n",
    "broken.yml": "base_model: gpt2\nadapter: [lora\n",
    "twice.yml": "base_model: gpt2\nbase_model: gpt2-xl\n",
    "unknown.yml": "base_model: gpt2\nmicro_batch_sise: 2\n",
    "huge.yml": "base_model: gpt2\nmicro_batch_size: 99999999999999999999999\n",
    "negative.yml": "base_model: gpt2\nmicro_batch_size: -2\n",
    "nobody.yml": "base_model: nobody/nothing-7b\n",
    "optimizer.yml": "base_model: gpt2\noptimizer: fancy\n",
    "reward.yaml": (FILES / "llama-factory-dpo.yaml").read_text().replace("stage: dpo", "stage: rm"),
    "gpt2.yml": GPT2,
}


class Config(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        for name, text in WRITTEN.items():
            with open(os.path.join(self.folder, name), "w") as file: file.write(text)

    def test_a_file_is_the_options_that_it_became(self):
        of_file = report("--config", LORA, "--gpu", "rtx-4090")
        options = [word for option in of_file["config"]["options"]
                   for word in (option["option"], option.get("value")) if word is not None]
        of_options = report(*options, "--gpu", "rtx-4090")
        for key in ("run", "memory", "needed_bytes", "flops"): self.assertEqual(of_file[key], of_options[key])

    def test_the_record_has_every_key_of_the_file(self):
        config = report("--config", LORA)["config"]
        told = {*config["used"], *config["irrelevant"], *config["approximated"]}
        keys = {line.split(":")[0] for line in LORA.read_text().splitlines() if line[:1].isalpha()}
        self.assertEqual(keys, {key.split("/")[0] for key in told})
        self.assertIn({"option": "--bs", "value": "2", "key": "micro_batch_size"}, config["options"])

    def test_the_text_says_what_was_used_and_what_was_not(self):
        text = run("--config", "gpt2.yml", "--details", cwd=self.folder).stdout
        self.assertIn("gpt2.yml, read as axolotl 0.19.0", text)
        self.assertIn("used (3): base_model, micro_batch_size, sequence_len", text)
        self.assertIn("one GPU: nothing says how many (--gpus N)", text)

    def test_markdown_says_it_too(self):
        text = run("--config", "gpt2.yml", "--format", "md", cwd=self.folder).stdout
        self.assertIn("**gpt2.yml, read as axolotl 0.19.0**", text)

    def test_a_typed_option_wins(self):
        answer = report("--config", "gpt2.yml", "--bs", "5", "--precision", "fp32", "--weights-dtype", "fp32", cwd=self.folder)
        self.assertEqual((answer["run"]["batch_size"], answer["run"]["precision"]), (5, "fp32"))
        self.assertTrue(any("take the place of micro_batch_size" in each for each in answer["assumptions"]))

    def test_a_command_line_is_read_behind_two_dashes(self):
        process = run("--seq", "64", "--format", "json", "--", "torchrun", "--nproc_per_node", "2", "run_clm.py", "--bf16",
                      "--model_name_or_path", "gpt2", "--per_device_train_batch_size", "3", "--do_train")
        self.assertEqual((process.returncode, process.stderr), (0, ""))
        answer = json.loads(process.stdout)
        run_of = answer["run"]
        self.assertEqual((run_of["model"], run_of["batch_size"], run_of["gpus"], run_of["precision"]),
                         ("gpt2", 3, 2, "amp-bf16"))
        self.assertEqual(answer["config"]["format"], "command")

    def test_planners_take_a_file_less_what_they_look_for(self):
        for arguments in (("max-batch",), ("max-seq",), ("ladder",), ("sweep", "--gpu", "t4,h100-sxm"),
                          ("plan", "--gpus", "2", "--global-batch", "8", "--simulate", "2")):
            gpu = () if arguments[0] == "sweep" else ("--gpu", "rtx-4090")
            with self.subTest(arguments):
                process = run(*arguments, "--config", "gpt2.yml", *gpu, cwd=self.folder)
                self.assertIn(process.returncode, (0, 1), process.stderr)
        self.assertIn("gpt2.yml, read as axolotl 0.19.0", run("max-batch", "--config", "gpt2.yml", "--gpu", "t4", "--explain",
                                                               cwd=self.folder).stdout)

    def test_what_is_wrong_is_one_line(self):
        for arguments, expected in REFUSED:
            with self.subTest(arguments):
                process = run(*arguments, cwd=self.folder)
                self.assertEqual((process.returncode, process.stdout), (2, ""))
                self.assertEqual(process.stderr.count("\n"), 1, process.stderr)
                self.assertTrue(process.stderr.startswith("memcalc: error: "))
                self.assertIn(expected, process.stderr)

    def test_a_global_batch_is_shared_out_for_each_value(self):
        for values in (("--bs", "1,2,4"), ("--gpus", "2,4")):
            swept = json.loads(run("sweep", "--gpu", "h200", *values, "--format", "json", "--", *PRETRAIN).stdout)
            rates = [row["samples_per_second"] * row["step_seconds"] for row in swept["rows"]]
            for samples in rates: self.assertAlmostEqual(samples, 64, delta=0.5, msg=rates)

    def test_command_lines_of_public_pages_become_what_they_became(self):
        # As READMEs of transformers, TRL, Qwen and others have them: the options, or how the refusal begins.
        with gzip.open(FILES / "command_lines.tsv.gz", "rt") as lines:
            rows = [line.rstrip("\n").split("\t") for line in lines]
        def ask(row):
            return run("--gpu", "h200", "--format", "json", "--", *shlex.split(row[1]), cwd=self.folder)
        with concurrent.futures.ThreadPoolExecutor(2) as threads:
            for (expected, line), process in zip(rows, threads.map(ask, rows)):
                with self.subTest(line):
                    if expected.startswith("refused: "):
                        self.assertEqual(process.returncode, 2)
                        self.assertIn(expected.removeprefix("refused: "), process.stderr)
                        continue
                    self.assertIn(process.returncode, (0, 1), process.stderr)
                    options = json.loads(process.stdout)["config"]["options"]
                    self.assertEqual(" ".join(" ".join(filter(None, (each["option"], each.get("value")))) for each in options),
                                     expected)


if __name__ == "__main__":
    memcalc_cli.main()
