"""The planner's commands as a user meets them: JSON by the schema, exit statuses, clean streams, terminals, Ctrl-C."""
import csv
import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree as xml
from pathlib import Path

import checkpoint
import memcalc_cli
from memcalc_cli import ROOT, run
from schema import schema_of, violations

sys.path.append(str(ROOT / "scripts"))
import memcalc_rows  # noqa: E402  where the scripts find it

SCHEMA = schema_of("answer")
GPT2 = ("--model", "gpt2", "--fp16")

# (command, exit status)
CASES = [
    (("max-batch", *GPT2, "--gpu", "rtx-4090"), 0),
    (("max-batch", "--model", "gpt2,gpt2-medium", "--gpu", "t4,rtx-4090", "--seq", "128"), 0),
    (("max-batch", "--model", "llama-3-70b", "--gpu", "t4"), 1),
    (("max-seq", "--model", "qwen2.5-0.5b", "--bs", "1", "--bf16", "--gpu", "rtx-4090", "--multiple-of", "512"), 0),
    (("max-model", "--family", "gpt2", "--bs", "1", "--gpu", "t4"), 0),
    (("max-model", "--family", "mixtral", "--bs", "1", "--gpu", "t4"), 1),
    (("sweep", *GPT2, "--bs", "1..8*2", "--seq", "128,512,4096"), 0),
    (("compare", *GPT2, "--bs", "4", "--price", "2"), 0),
    (("ladder", "--model", "gpt2-xl", "--bs", "8", "--gpu", "h100-sxm"), 0),
    (("ladder", "--model", "llama-3-70b", "--gpu", "t4"), 1),
    (("plan", "--model", "gpt2", "--gpus", "2", "--global-batch", "8", "--bf16", "--emit", "torchrun"), 0),
    (("plan", "--model", "llama-3-70b", "--gpus", "1", "--global-batch", "1", "--bf16", "--framework", "torch"), 1),
]


class Answers(unittest.TestCase):
    def test_a_sweep_says_on_which_card(self):
        self.assertEqual(run("sweep", *GPT2, "--bs", "1,2").stdout.splitlines()[0], "2 of 2 points fit on h100-sxm.")

    def test_cards_of_one_model_have_room_for_their_memory(self):
        text = run("compare", *GPT2, "--gpu", "all").stdout
        self.assertTrue(text.startswith("gpt2: "), text[:80])
        self.assertLessEqual(max(map(len, text.splitlines())), 80)
        self.assertRegex(text.splitlines()[2], "^card +memory +needed")

    def test_a_time_that_stays_has_no_sign(self):
        text = run("upgrade", *GPT2, "--from", "p1", "--to", "p4").stdout
        self.assertNotRegex(text, r"[-+]0\.0 %")

    def test_a_version_is_written_as_pip_writes_it_too(self):
        one, two = (run("upgrade", *GPT2, "--from", f"torch{sign}2.9").stdout for sign in ("=", "=="))
        self.assertTrue(one)
        self.assertEqual(one, two)

    def test_json_follows_the_schema(self):
        for arguments, status in CASES:
            with self.subTest(arguments):
                process = run(*arguments, "--format", "json")
                self.assertEqual((process.returncode, process.stderr), (status, ""))
                answer = json.loads(process.stdout)
                self.assertEqual(list(violations(answer, SCHEMA)), [])
                self.assertEqual(answer["command"], arguments[0])
                if status == 0: self.assertGreaterEqual(len(answer["rows"]), 1)

    def test_every_format_on_any_number_of_threads_alike(self):
        for arguments, status in CASES:
            for name in ("text", "json", "csv", "md"):
                with self.subTest(f"{arguments} {name}"):
                    one = run(*arguments, "--format", name, "--threads", "1")
                    two = run(*arguments, "--format", name, "--threads", "2")
                    self.assertEqual((one.returncode, one.stderr), (status, ""))
                    self.assertEqual(one.stdout, two.stdout)

    def test_text_is_80_columns_wide_and_plain_in_a_pipe(self):
        for arguments, _ in CASES:
            text = run(*arguments, "--explain").stdout
            with self.subTest(arguments):
                self.assertNotIn("\x1b", text)
                for line in text.splitlines(): self.assertLessEqual(len(line), 80, line)
        self.assertIn("\x1b[", run(*CASES[0][0], "--color", "always").stdout)

    def test_what_would_fit_can_be_copied_into_a_shell(self):
        too_large = ("--model", "gpt2-xl", "--bs", "8", "--gpu", "rtx-4090")
        record = json.loads(run(*too_large, "--format", "json").stdout)
        self.assertEqual(record["verdict"], "does-not-fit")
        text = run(*too_large).stdout
        head = text[:text.index("\n\n", text.index("What would fit"))]
        commands = [part[part.index("memcalc --model"):] for part in re.split(r"\n  \d\. ", head)[1:]]
        self.assertEqual(len(commands), len(record["remedies"]))
        self.assertEqual(commands[0].replace("\\\n", "").split(), record["remedies"][0]["command"].split())
        environment = {"PATH": f"{Path(memcalc_cli.EXECUTABLE).parent}:/usr/bin:/bin"}
        for command in commands:
            self.assertLessEqual(max(map(len, command.splitlines())), 75)
            process = subprocess.run(["sh", "-c", command.rstrip() + " --require-fit"], env=environment, capture_output=True,
                                     text=True, timeout=60)
            self.assertEqual((process.returncode, process.stderr), (0, ""), command)
            self.assertTrue(process.stdout.startswith("Fits on rtx-4090"), process.stdout)
        self.assertNotIn("remedies", json.loads(run(*too_large, "--no-remedies", "--format", "json").stdout))
        self.assertNotIn("remedies", json.loads(run(*too_large[:4], "--format", "json").stdout))  # no card was named

    def test_csv_is_a_table(self):
        rows = list(csv.DictReader(io.StringIO(run("sweep", *GPT2, "--bs", "1..8*2", "--seq", "128,4096",
                                                   "--format", "csv").stdout)))
        self.assertEqual([(row["bs"], row["seq"]) for row in rows],
                         [(bs, seq) for bs in ("1", "2", "4", "8") for seq in ("128", "4096")])
        for row in rows: self.assertEqual(bool(row["allocated_bytes"]), row["seq"] == "128")
        self.assertIn("1024 positions", rows[1]["refusal"])

    def test_the_largest_batch_is_what_estimate_says(self):
        answer = json.loads(run("max-batch", *GPT2, "--gpu", "rtx-4090", "--format", "json").stdout)
        largest = answer["facts"]["largest"]
        for batch, fits in ((largest, True), (largest + 1, False)):  # or too close to call
            report = json.loads(run(*GPT2, "--bs", batch, "--gpu", "rtx-4090", "--format", "json").stdout)
            self.assertEqual(report["verdict"] == "fits", fits)

    def test_a_cache_is_kept_where_nothing_is_checkpointed(self):
        process = run("plan", *GPT2, "--gpus", "2", "--global-batch", "4", "--use-cache", "--simulate", "8")
        self.assertEqual((process.returncode, process.stderr), (0, ""))

    def test_what_is_no_cuda_device_is_said(self):
        plan = (*GPT2, "--gpus", "2", "--global-batch", "4", "--simulate", "8", "--format", "json")
        for card, said in (("tpu-v4", True), ("h100-sxm", False)):
            notes = json.loads(run("plan", *plan, "--gpu", card).stdout)["notes"]
            self.assertEqual(any("no CUDA device" in note for note in notes), said, notes)

    def test_a_card_for_which_the_wheels_have_no_kernels_is_said(self):
        for card, torch, said in (("p100-pcie-16gb", "2.11.0", True), ("v100-sxm2-16gb", "2.11.0", True),
                                  ("p100-pcie-16gb", "2.11.0+cu126", False), ("t4", "2.11.0", False),
                                  ("p100-pcie-16gb", "2.8.0", True), ("v100-sxm2-16gb", "2.8.0", False),
                                  ("p100-pcie-16gb", "2.11.0+cu128", True), ("v100-sxm2-16gb", "2.11.0+cu128", True)):
            report = json.loads(run(*GPT2, "--gpu", card, "--torch", torch, "--format", "json").stdout)
            self.assertEqual(any("have no kernels for" in each for each in report["assumptions"]), said, (card, torch))

    def test_the_trainer_gets_no_plan_of_another_program(self):
        answer = json.loads(run("plan", *GPT2, "--gpus", "2", "--global-batch", "8", "--loop", "trainer",
                                "--format", "json").stdout)
        self.assertTrue(answer["rows"])
        for row in answer["rows"]: self.assertIn(row["mode"].split(",")[0], ("ddp", "fsdp2"))

    def test_one_broken_file_is_a_row_with_its_reason(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "config.json").write_text("{")
            models = ("--model", f"gpt2,{folder}", "--seq", "128", "--gpu", "h100-sxm")
            for command in ("sweep", "compare", "max-batch"):
                with self.subTest(command):
                    process = run(command, *models, "--format", "json")
                    self.assertEqual((process.returncode, process.stderr), (0, ""))
                    rows = json.loads(process.stdout)["rows"]
                    self.assertEqual(len(rows), 2)
                    self.assertNotIn("needed_bytes", rows[1])
                    self.assertIn("the file ends within a value", process.stdout)

    def test_a_list_is_one_value(self):
        called = ("--infer", "--new-tokens", "2", "--sampling", "top-k,temperature", "--seq", "32")
        rows = json.loads(run("sweep", *GPT2, *called, "--format", "json").stdout)["rows"]
        self.assertEqual(len(rows), 1)
        drawn = ("--loop", "trl-sft", "--lengths", "lognormal:30,0.5,64", "--steps", "2", "--seq", "64")
        self.assertEqual(len(json.loads(run("sweep", *GPT2, *drawn, "--format", "json").stdout)["rows"]), 1)

    def test_labels_below_bars_are_whole(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "sweep.svg"
            run("sweep", "--model", "gpt2,distilgpt2,bert-base", "--seq", "32,64,128", "--plot", path)
            self.assertGreater(float(xml.parse(path).getroot().get("height")), 470)  # 460 (kHeight) without room for turned labels

    def test_plots_are_well_formed(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, arguments in (("sweep", ("sweep", *GPT2, "--bs", "1,2")), ("trace", ("trace", *GPT2, "--bs", "2"))):
                path = Path(folder) / f"{name}.svg"
                self.assertEqual(run(*arguments, "--plot", path).returncode, 0)
                self.assertEqual(xml.parse(path).getroot().tag, "{http://www.w3.org/2000/svg}svg")
                if name == "sweep": self.assertIn("by category of gpt2", path.read_text())


class OtherCommands(unittest.TestCase):
    """Those that ask for no search have a schema as well."""

    def test_json_follows_the_schema(self):
        with tempfile.TemporaryDirectory() as folder:
            checkpoint.write(f"{folder}/model.safetensors", {"a": ("BF16", (2, 3))})
            rows = Path(folder, "rows.jsonl")
            rows.write_text('{"id": "a", "gpu": "NVIDIA H100 80GB HBM3", "step_ms_median": 185.2, '
                            '"run": {"model": "gpt2", "batch_size": 8, "sequence_length": 1024, "loop": "bare"}}')
            for name, arguments in (("models", ("models",)), ("gpus", ("gpus",)), ("weights", ("weights", folder)),
                                    ("answer", ("utilization", "--achieved", "3e14", "--peak", "1e15")),
                                    ("answer", ("check", rows, "--min-share", "0"))):
                with self.subTest(arguments):
                    process = run(*arguments, "--format", "json")
                    self.assertEqual((process.returncode, process.stderr), (0, ""))
                    schema = schema_of(name)
                    self.assertEqual(list(violations(json.loads(process.stdout), schema)), [])

    def test_a_closed_pipe_is_no_crash(self):
        process = subprocess.Popen([memcalc_cli.EXECUTABLE, "models"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdout.close()
        self.assertNotIn(process.wait(timeout=60), (-signal.SIGSEGV, -signal.SIGABRT, 3))
        process.stderr.close()


class Measured(unittest.TestCase):
    """tests/measured/rows_max_batch_h200.jsonl: batches that ran, and that ran out of memory, on an H200."""

    def test_the_largest_batch_runs_and_the_next_does_not(self):
        rows = memcalc_rows.read("rows_max_batch_h200.jsonl")
        ran = {row["id"]: row for row in rows if row["outcome"] == "runs"}
        ended = {row["id"]: row["run"]["batch_size"] for row in rows if row["outcome"] == "out of memory"}
        self.assertEqual(len(ran), 9)
        others = []
        with tempfile.TemporaryDirectory() as folder:
            def written(config):
                path = Path(folder) / "config.json"
                path.write_text(json.dumps(config))
                return path

            for name, row in ran.items():
                options = memcalc_rows.words_of(row["run"], leave_out=("batch_size",))
                model = memcalc_rows.model_of(row, written)
                answer = run("max-batch", "--model", model, "--gpu", row["gpu"], *options,
                             "--format", "json")
                facts = json.loads(answer.stdout)["facts"]
                with self.subTest(name):
                    batches = row["run"]["batch_size"], ended[name]
                    runs = [self.runs(model, row["gpu"], options, batch) for batch in batches]
                    self.assertEqual(runs, [True, False], batches)
                    most = facts["largest_with_retries"]
                    self.assertEqual(row["alloc_retries"] > 0, most > facts["largest"])
                    # Near the edge a batch runs or not by how segments lie; of which one the search tells, its start decides.
                    if (most, most + 1) != batches:
                        self.assertGreater(most, ended[name])
                        self.assertRegex(answer.stdout, rf"not monotone: [^\"]*\b{ended[name]}\b[^\"]* would not run")
                        others.append(name)
        self.assertLessEqual(len(others), 1, others)

    def runs(self, model, gpu, options, batch):
        """What the report says of one batch, with the allocator's retries where it has to ask again."""
        said = json.loads(run("--model", model, "--gpu", gpu, *options, "--bs", batch, "--format", "json").stdout)
        return said["full_card"]["runs"] if said.get("full_card") else said["verdict"] == "fits"


class Errors(unittest.TestCase):
    CASES = [
        (("max-batch", *GPT2, "--bs", "3"), "leave it out"),
        (("max-model", "--family", "gpt2", "--gpu", "nonsense"), "unknown GPU 'nonsense'"),
        (("plan", *GPT2, "--gpus", "2", "--global-batch", "4", "--loop", "trainer", "--framework", "megatron"),
         "the Trainer does not run --framework megatron"),
        (("plan", *GPT2, "--gpus", "2", "--global-batch", "4", "--loop", "trainer", "--emit", "torchrun"),
         "--loop trainer: --emit torchrun writes another program's settings"),
        (("plan", *GPT2, "--gpus", "2", "--global-batch", "4", "--loop", "bare", "--emit", "trainer"),
         "--emit trainer: its arguments are the Trainer's"),
        (("plan", *GPT2, "--gpus", "100000", "--global-batch", "4"), "from 1 to 65536"),
        (("max-seq", *GPT2, "--seq", "3"), "leave it out"),
        (("max-seq", "--model", "resnet50"), "takes no sequence"),
        (("max-batch", *GPT2, "--margin", "100"), "margin: expected less"),
        (("max-batch", *GPT2, "--margin", "x"), "--margin: expected a number"),
        (("max-batch", *GPT2, "--threads", "0"), "--threads: expected a whole number of 1"),
        (("max-model", "--family", "lama"), "did you mean 'llama'"),
        (("max-model", *GPT2), "give --family"),
        (("sweep", *GPT2, "--bs", "8..1"), "--bs: expected a whole number of 8 or more"),
        (("sweep", *GPT2, "--bs", "1..8*1"), "--bs: expected a whole number of 2 or more"),
        (("sweep", *GPT2, "--bs", "1,,2"), "--bs: expected values between commas"),
        (("sweep", *GPT2, "--bs", "1..9999999"), "more than 10000 values"),
        (("sweep", *GPT2, "--bs", "1,x"), "--bs: expected a whole number"),
        (("compare", *GPT2, "--gpu", "h100,h101x"), "unknown GPU"),
        (("compare", *GPT2, "--accum", "true"), "--accum: expected a whole number from 1 to 65536"),
        (("sweep", *GPT2, "--heads", "{}"), "--heads: expected a whole number of 1"),
        (("max-batch", *GPT2, "--gpu", "{}"), "unknown GPU"),
        (("plan", *GPT2, "--gpus", "2"), "--global-batch: expected"),
        (("plan", *GPT2, "--gpus", "2", "--global-batch", "8", "--margin", "1e300"), "--margin: expected a number from 0"),
        (("check", "/dev/null", "--models", "\n"), "\\n: cannot be read"),
        (("plan", *GPT2, "--gpus", "2", "--global-batch", "8", "--bs", "1"), "plan looks for it"),
        (("plan", *GPT2, "--gpus", "4", "--nodes", "3", "--global-batch", "8"), "does not divide gpus"),
        (("plan", *GPT2, "--gpus", "2", "--global-batch", "8", "--emit", "x"), "--emit: expected one of"),
        (("sweep", *GPT2, "--plot", "/no/such/folder/a.svg"), "--plot: cannot write"),
        (("trace", *GPT2, "--plot", "/no/such/folder/a.svg"), "--plot: cannot write"),
        (("plan", *GPT2, "--gpus", "2", "--global-batch", "8", "--infer"), "--infer: plan spreads a training"),
        (("upgrade", *GPT2, "--torch", "2.10"), "--torch: upgrade compares versions"),
        (("upgrade", *GPT2, "--from", "p9"), "--from: expected one of"),
        (("upgrade", *GPT2, "--from", "2.3"), "--from: expected a profile (memcalc profiles) or versions by name, as torch=2.3, found"),
        (("upgrade", *GPT2, "--lengths", "nothere.txt"), "memcalc: error: nothere.txt: cannot be read"),
        (("upgrade", *GPT2, "--from", "torch=1.0"), "--from: --torch 1.0: what releases before"),
        (("upgrade", *GPT2, "--to", "torch="), "--to: expected a version behind torch=, found nothing"),
        (("estimate", *GPT2, "--gpu", "h100,a100"), "--gpu: expected one card, found 'h100,a100'"),
    ]

    def test_one_line_and_status_2(self):
        for arguments, words in self.CASES:
            with self.subTest(arguments):
                process = run(*arguments)
                self.assertEqual((process.returncode, process.stdout), (2, ""), process.stderr)
                self.assertEqual(process.stderr.count("\n"), 1)
                self.assertIn(words, process.stderr)


class Terminal(unittest.TestCase):
    def on_terminal(self, arguments, columns, errors=subprocess.DEVNULL, **environment):
        """Standard output of the command as a terminal of that width gets it; `errors`: subprocess.STDOUT, too."""
        parent, child = pty.openpty()
        import fcntl, struct, termios
        fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        process = subprocess.Popen([memcalc_cli.EXECUTABLE, *arguments], stdout=child, stderr=errors,
                                   stdin=subprocess.DEVNULL,
                                   env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "TERM": "xterm", **environment})
        os.close(child)
        out = b""
        while True:
            try: part = os.read(parent, 65536)
            except OSError: break
            if not part: break
            out += part
        os.close(parent)
        process.wait(timeout=60)
        return out.decode().replace("\r\n", "\n")

    def test_tables_fit_the_terminal(self):
        command = ("sweep", *GPT2, "--bs", "1,2")
        narrow, wide = (self.on_terminal(command, columns, NO_COLOR="1") for columns in (60, 150))
        self.assertLessEqual(max(map(len, narrow.splitlines())), 60)
        self.assertIn("activations", wide)
        self.assertNotIn("activations", narrow)

    def test_every_command_fits_a_narrow_terminal(self):
        for arguments, _ in CASES:
            with self.subTest(arguments):
                text = self.on_terminal(arguments, 60, NO_COLOR="1")
                settings = text.find("# torchrun")  # to copy: as it is
                for line in text[:settings if settings >= 0 else None].splitlines(): self.assertLessEqual(len(line), 60, line)

    def test_the_progress_bar_is_gone_before_the_answer(self):
        out = self.on_terminal(("max-model", "--family", "llama", "--gpu", "h100-sxm", "--threads", "1"), 80,
                               errors=subprocess.STDOUT, NO_COLOR="1")
        before, found, answer = out.rpartition("\x1b[K")
        if found: self.assertTrue(before.endswith("\r"), before[-80:])
        self.assertTrue((answer if found else out).startswith("Largest model"), answer[:80])

    def test_colour_only_where_it_is_wanted(self):
        self.assertIn("\x1b[", self.on_terminal(CASES[0][0], 80))
        self.assertNotIn("\x1b", self.on_terminal(CASES[0][0], 80, NO_COLOR="1"))

    def test_ctrl_c_prints_what_was_found(self):
        process = subprocess.Popen([memcalc_cli.EXECUTABLE, "sweep", "--model", "llama-3-70b", "--bs", "1..4000",
                                    "--format", "json", "--threads", "1"], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        time.sleep(2.5)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        self.assertEqual((process.returncode, err), (130, ""))
        answer = json.loads(out)
        self.assertFalse(answer["complete"])
        self.assertLess(len(answer["rows"]), 4000)


    def test_ctrl_c_ends_a_plan_with_the_best_so_far(self):
        process = subprocess.Popen([memcalc_cli.EXECUTABLE, "plan", "--model", "llama-3-70b", "--gpus", "64", "--global-batch",
                                    "512", "--bf16", "--simulate", "100000", "--format", "json", "--threads", "1"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        time.sleep(4)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        self.assertEqual((process.returncode, err), (130, ""))
        self.assertFalse(json.loads(out)["complete"])


if __name__ == "__main__":
    memcalc_cli.main()
