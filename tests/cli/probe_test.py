"""memcalc-probe without a card: its arguments, wrong files, and the one line that says there is none."""
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROBE = sys.argv.pop(1)
REPLAY = "memcalc-replay 1\np peak_allocated_bytes 512\na 0 512\nf 0\nk vectorized bf16 none 0 0 0 0 64 256 1 1.5 aten::add\n"


def run(*arguments, **environment):
    """(exit status, standard output, standard error) where no card is visible."""
    process = subprocess.run([PROBE, *map(str, arguments)], capture_output=True, text=True, timeout=60,
                             env={**os.environ, "CUDA_VISIBLE_DEVICES": "", **environment})
    return process.returncode, process.stdout, process.stderr


class Probe(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def test_help_is_the_answer_wherever_it_stands(self):
        for arguments in (("--help",), ("-h",), ("measure", "--help"), ("host", "--help"), ("run", "--help")):
            status, out, err = run(*arguments)
            self.assertEqual((status, err), (0, ""), arguments)
            self.assertTrue(out.startswith("usage: memcalc-probe measure"), arguments)
            self.assertTrue(all(len(line) <= 100 for line in out.splitlines()))

    def test_wrong_arguments_are_one_line(self):
        cut = self.folder / "cut.replay"
        cut.write_text("memcalc-replay 1\nk vectorized bf16\n")
        for arguments, said in (
                ((), "expected a command, found nothing; accepted: host, measure, run"),
                (("meassure",), "unknown command 'meassure'; accepted: host, measure, run"),
                (("host",), "host: found no file; accepted: the one to write"),
                (("host", self.folder / "a", self.folder / "b"), "host: found another file"),
                (("host", "--output", "a"), "host: unknown option '--output'; accepted: --python"),
                (("host", self.folder / "a", "--python"), "--python: expected a value, found nothing"),
                (("host", self.folder / "no/such/file"), "cannot be written"),
                (("host", self.folder / "a", "--python", "/nowhere/python"), "host: found no program '/nowhere/python'"),
                (("run",), "run: found 0 arguments; accepted: one file"),
                (("run", "a", "b"), "run: found 2 arguments; accepted: one file"),
                (("run", "/nowhere"), "/nowhere: found no 'memcalc-replay 1' line"),
                (("run", cut), "a line is cut off: k vectorized bf16"),
                (("measure", "--output"), "--output: expected a value, found nothing"),
                (("measure", "--buget", "5"), "unknown option '--buget'"),
                (("measure", "--budget", "soon"), "--budget: found 'soon'; accepted: 1 to 3600 seconds"),
                (("measure", "--budget", "nan"), "--budget: found 'nan'"),
                (("measure", "--budget", "0"), "--budget: found '0'"),
                (("measure", "--output", self.folder / "no/such/file"), "cannot be written"),
                (("measure", "--specs", "/nowhere"), "--specs: /nowhere is not a directory")):
            status, out, err = run(*arguments)
            self.assertEqual((status, out, err.count("\n")), (2, "", 1), (arguments, err))
            self.assertIn(said, err, arguments)

    def python(self, text):
        """A program that stands for Python: asked what it lacks (-c) it runs `text`, else it prints its words."""
        path = self.folder / "python"
        path.write_text(f"#!/bin/sh\nif [ \"$1\" = -c ]; then {text}; else echo \"$@\"; fi\n")
        path.chmod(0o755)
        return path

    def test_a_host_is_measured_by_python(self):
        status, out, err = run("host", self.folder / "host.json", "--python", self.python("echo"))
        self.assertEqual((status, out, err), (0, f"-m memcalc.measure --host {self.folder / 'host.json'}\n", ""))

    def test_what_a_host_file_needs_and_is_not_there_is_said(self):
        for python, said in (("echo torch, transformers", "has no torch, transformers; a host file times Python"), ("exit 1", "is no Python 3 that starts")):
            status, out, err = run("host", self.folder / "host.json", "--python", self.python(python))
            self.assertEqual((status, out, err.count("\n")), (2, "", 1), err)
            self.assertIn(said, err)
            self.assertFalse((self.folder / "host.json").exists())

    def test_without_a_card_it_says_so_and_leaves_no_file(self):
        replay, output = self.folder / "step.replay", self.folder / "device.json"
        replay.write_text(REPLAY)
        for arguments in (("run", replay), ("measure", "--output", output)):
            status, out, err = run(*arguments)
            self.assertEqual((status, out), (2, ""), err)
            self.assertIn("no CUDA card: ", err)
        self.assertFalse(output.exists())


if __name__ == "__main__": unittest.main()
