"""docs/cli.md says what --help says; its examples and those of README.md run."""
import os
import re
import shlex
import tempfile
import unittest

import checkpoint
import memcalc_cli
from memcalc_cli import COMMANDS, ROOT, run

MANUAL = (ROOT / "docs/cli.md").read_text()

# What the examples read.
FILES = {
    "requirements.txt": "torch==2.10.0\ntransformers==5.5.4\n",
    "trace.json": '{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "nvjet_sm90", "ts": 1, "dur": 2}]}',
    "train.log": "{'train_runtime': 10.0, 'train_samples_per_second': 8.0}",
    "axolotl.yml": "base_model: gpt2\nmicro_batch_size: 2\nsequence_len: 512\n",
    "rows.jsonl": '{"id": "a", "gpu": "NVIDIA H100 80GB HBM3", "step_ms_median": 185.2, '
                  '"run": {"model": "gpt2", "batch_size": 8, "sequence_length": 1024, "loop": "bare"}}',
}


def options_of(command):
    """{option as printed: description}"""
    text = run(command, "--help").stdout
    # A long name leaves one blank, or none: then the description stands on the next line.
    text = re.sub(r",\n {24}(?=\S)", ", ", text)  # a list that goes on in the next line
    return dict(re.findall(r"^  (--\S+(?: \[?[A-Z]+\]?)?)\s+(\S.*)$", text, re.MULTILINE))


class Manual(unittest.TestCase):
    def test_every_option_stands_in_the_manual_word_for_word(self):
        for command in COMMANDS:
            options = options_of(command)
            self.assertGreaterEqual(len(options), 1)
            for option, description in options.items():
                with self.subTest(f"{command} {option}"):
                    self.assertIn(f"| `{option}` | {description} |", MANUAL)

    def test_the_manual_knows_no_other_options(self):
        known = {option.split()[0] for command in COMMANDS for option in options_of(command)}
        for option in re.findall(r"^\| `(--\S+?)(?: \S+)?` \|", MANUAL, re.MULTILINE):
            self.assertIn(option, known | {"--help", "--version"})

    def test_help_is_80_columns_wide(self):
        for arguments in (("--help",), *((command, "--help") for command in COMMANDS)):
            process = run(*arguments)
            self.assertEqual((process.returncode, process.stderr), (0, ""))
            for line in process.stdout.splitlines(): self.assertLessEqual(len(line), 80, line)

    def test_help_has_an_example_of_each_command(self):
        for command in COMMANDS: self.assertIn("Examples:\n  memcalc", run(command, "--help").stdout)

    def test_version(self):
        process = run("--version")
        self.assertRegex(process.stdout, r"^memcalc \d+\.\d+\.\d+\n$")
        self.assertEqual(process.returncode, 0)

    def test_examples_run(self):
        examples = re.findall(r"^\$ memcalc (.*)$", MANUAL, re.MULTILINE)
        blocks = re.findall(r"^```sh\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
        examples += re.findall(r"^memcalc (.*)$", "".join(blocks), re.MULTILINE)
        for command in COMMANDS:
            examples += re.findall(r"^  memcalc (.*)$", run(command, "--help").stdout, re.MULTILINE)
        self.assertGreaterEqual(len(examples), 8)
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(f"{folder}/snapshot")
            for path in ("config.json", "snapshot/config.json"):
                with open(f"{folder}/{path}", "w") as file: file.write('{"model_type": "bert"}')
            for path in ("model.safetensors", "snapshot/model.safetensors"):
                checkpoint.write(f"{folder}/{path}", {"a": ("BF16", (2, 3))})
            for linked in ("tests", "specs"): os.symlink(ROOT / linked, f"{folder}/{linked}")
            for name, text in FILES.items():
                with open(f"{folder}/{name}", "w") as file: file.write(text)
            for example in examples:
                words = shlex.split(re.split(r" \| | && | +#| > |;", example)[0])
                with self.subTest(example):
                    process = run(*words, cwd=folder)
                    self.assertIn(process.returncode, (0, 1) if "--require-fit" in words else (0,), process.stderr)


if __name__ == "__main__":
    memcalc_cli.main()
