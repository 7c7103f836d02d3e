"""What the page asks (web/src/answers.h), without a browser: answers_test.py MEMCALC_WEB MEMCALC SPECS"""
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import runs

WEB, CLI, SPECS = sys.argv[1:4]
RUN = {"--model": "llama-3.2-1b", "--gpu": "rtx-4090", "--bs": "2", "--seq": "512"}


def ask(*requests):
    """An answer for each request, an object or a text."""
    lines = "".join((each if isinstance(each, str) else json.dumps(each)) + "\n" for each in requests)
    process = subprocess.run([WEB, SPECS], input=lines, capture_output=True, text=True, encoding="utf-8", check=True)
    return [json.loads(line) for line in process.stdout.splitlines()]


class Answers(unittest.TestCase):
    def test_drawn_runs_are_answered_as_on_the_command_line(self):
        drawn = runs.draw(60, seed=23)
        answers = ask(*({"ask": "estimate", "options": each, "explain": True} for each in drawn))
        self.assertGreater(runs.compare(self, drawn, answers, CLI, SPECS), 20)

    def test_the_curve_is_that_of_the_report(self):
        (answer,) = ask({"ask": "estimate", "options": RUN})
        curve, memory = answer["curve"], answer["report"]["memory"]
        total = [sum(column) for column in zip(*curve["categories"].values())]
        self.assertEqual(max(total), memory["peak_allocated_bytes"])
        self.assertEqual(total.index(max(total)), curve["peak"])
        self.assertLessEqual(max(curve["reserved_bytes"]), memory["peak_reserved_bytes"])
        self.assertEqual([each["name"] for each in curve["phases"]][:2], ["forward", "backward"])
        self.assertEqual(curve["operators"][curve["operator"][curve["peak"]]], memory["peak"]["operator"])

    def test_the_command_asks_for_the_same_run(self):
        (answer,) = ask({"ask": "estimate", "options": {**RUN, "--lora": "8", "--checkpointing": "full"}})
        again = subprocess.run([CLI, *answer["command"].split()[1:], "--specs", SPECS, "--format", "json", "--no-remedies"],
                               capture_output=True, text=True, check=False)
        self.assertEqual(json.loads(again.stdout)["needed_bytes"], answer["report"]["needed_bytes"])

    def test_searches_are_the_planner_s(self):
        ladder, largest = ask({"ask": "ladder", "options": RUN},
                              {"ask": "largest", "options": {key: RUN[key] for key in ("--model", "--gpu", "--seq")}})
        there, _ = runs.command_line(CLI, SPECS, RUN, "ladder", ("--all",))
        self.assertEqual(runs.differences(there["rows"], ladder["ladder"]["rows"]), [])
        batch, _ = runs.command_line(CLI, SPECS, {key: RUN[key] for key in ("--model", "--gpu", "--seq")}, "max-batch", ())
        self.assertIn(largest["largest"], batch["facts"].values())

    def test_axolotl_s_settings_ask_for_the_same_run(self):
        options = {**RUN, "--precision": "amp-bf16", "--weights-dtype": "bf16", "--lora": "8", "--loop": "trl-sft", "--expandable": "",
                   "--checkpointing": "full"}
        settings, answer = ask({"ask": "settings", "options": options, "as": "axolotl"}, {"ask": "estimate", "options": options})
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "run.yml")
            path.write_text(settings["settings"])
            report, message = runs.command_line(CLI, SPECS, {"--config": str(path), "--gpu": "rtx-4090", "--loop": "trl-sft"})
        self.assertIsNone(message)
        self.assertEqual(report["run"]["lora"], 8)
        self.assertEqual(report["needed_bytes"], answer["report"]["needed_bytes"])

    def test_settings_of_the_trainer(self):
        settings, wrong, other = ask({"ask": "settings", "options": RUN, "as": "trainer"}, {"ask": "settings", "options": RUN, "as": "nothing-known"},
                                     {"ask": "settings", "options": RUN, "as": "deepspeed"})
        self.assertIn("TrainingArguments(", settings["settings"])
        self.assertIn("--parallel ds-zero1", other["error"]["message"])
        self.assertIn("nothing-known", wrong["error"]["message"])

    def test_a_configuration_becomes_options(self):
        text = json.dumps({"per_device_train_batch_size": 4, "bf16": True, "output_dir": "out"})
        (answer,) = ask({"ask": "config", "name": "arguments.json", "text": text, "model": "gpt2"})
        self.assertEqual(answer["options"]["--bs"], "4")

    def test_what_is_wrong_is_an_answer(self):
        for request, said in [("", "expected a JSON object"), ("[]", "expected a JSON object"), ("{", "expected a JSON object"),
                              ({"ask": "all"}, "ask: found 'all'"), ({"ask": "estimate"}, "options"),
                              ({"ask": "estimate", "options": {"--bs": 4}}, "--bs"),
                              ({"ask": "estimate", "options": {"--nothing": ""}}, "--nothing"),
                              ({"ask": "estimate", "options": {**RUN, "--bs": "-1"}}, "--bs"),
                              ({"ask": "estimate", "options": {**RUN, "--model": "/etc/passwd"}}, "passwd"),
                              ({"ask": "estimate", "options": {**RUN, "--bs": "9" * 30}}, "--bs")]:
            with self.subTest(request):
                (answer,) = ask(request) if request else ask(" ")
                self.assertIn(said, answer["error"]["message"])
                self.assertFalse(answer["error"]["ours"])

    def test_the_start(self):
        (answer,) = ask({"ask": "start"})
        self.assertIn("batch_size", answer["schema"]["properties"])
        self.assertGreater(len(answer["models"]["models"]), 300)
        (llama, flux) = ask({"ask": "estimate", "options": {**RUN, "--gpu": "h100-sxm"}},
                            {"ask": "estimate", "options": {"--model": "flux.1-dev", "--lora": "16", "--gpu": "h100-sxm"}})
        names = {each["name"] for each in answer["gpus"]["gpus"]}
        for each in (llama, flux): self.assertTrue(set(each["common_cards"]) <= names)
        self.assertIn("rtx-4070", flux["common_cards"])
        self.assertNotIn("rtx-4070", llama["common_cards"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
