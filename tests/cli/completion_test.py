"""Completions are asked of the shells that are installed here; the manual page is read by man."""
import os
import pty
import re
import select
import shutil
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

import memcalc_cli
from memcalc_cli import COMMANDS, run

# What is typed, one of the completions, and one that is none.
CASES = [
    ("memcalc max-b", "max-batch", "max-seq"),
    ("memcalc --mod", "--model", "--fp16"),
    ("memcalc --precision amp-b", "amp-bf16", "fp32"),
    ("memcalc --model gpt2-l", "gpt2-large", "bert-base"),
    ("memcalc max-batch --gpu h100-s", "h100-sxm", "rtx-4090"),
    ("memcalc plan --em", "--emit", "--plot"),
    ("memcalc plan --emit dee", "deepspeed", "megatron"),
    ("memcalc trace --format re", "replay", "text"),
    ("memcalc sweep --pl", "--plot", "--emit"),
    ("memcalc completion f", "fish", "bash"),
]


def environment():
    folder = os.path.dirname(memcalc_cli.EXECUTABLE)
    return {"PATH": f"{folder}:{os.environ['PATH']}", "LC_ALL": "C.UTF-8", "HOME": tempfile.gettempdir(), "TERM": "dumb"}


def script_for(shell):
    process = run("completion", shell)
    assert (process.returncode, process.stderr) == (0, ""), process.stderr
    return process.stdout


def options_of(command): return set(re.findall(r"^  (--[a-z][a-z0-9-]*)", run(command, "--help").stdout, re.MULTILINE))


class Scripts(unittest.TestCase):
    def test_every_option_of_every_command_stands_in_each(self):
        for shell in ("bash", "zsh", "fish", "man"):
            text = script_for(shell).replace("\\-", "-")
            for command in COMMANDS:
                for option in options_of(command):
                    with self.subTest(f"{shell} {command} {option}"):
                        self.assertIn(f"-l {option[2:]} " if shell == "fish" else option, text)

    def test_another_shell_is_refused(self):
        for arguments in (("completion", "tcsh"), ("completion",)):
            process = run(*arguments)
            self.assertEqual((process.returncode, process.stdout, process.stderr.count("\n")), (2, "", 1))
            self.assertIn("bash, zsh, fish", process.stderr)


@unittest.skipUnless(shutil.which("bash"), "no bash here")
class Bash(unittest.TestCase):
    def test_completes(self):
        ask = 'COMPREPLY=(); _memcalc; printf "%s\\n" "${COMPREPLY[@]}"'
        for typed, one, none in CASES + [("memcalc max-batch --gpu h100-sxm,h200-s", "h100-sxm,h200-sxm", "h100-sxm")]:
            with self.subTest(typed):
                words = typed.split(" ")
                program = f"{script_for('bash')}\nCOMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}\n{ask}"
                process = subprocess.run(["bash", "--norc", "-c", program], env=environment(), capture_output=True, text=True,
                                         timeout=60)
                self.assertEqual(process.stderr, "")
                self.assertIn(one, process.stdout.splitlines())
                self.assertNotIn(none, process.stdout.splitlines())


@unittest.skipUnless(shutil.which("fish"), "no fish here")
class Fish(unittest.TestCase):
    def test_completes(self):
        for typed, one, none in CASES:
            with self.subTest(typed):
                process = subprocess.run(["fish", "--no-config", "-c", f"{script_for('fish')}\ncomplete -C '{typed}'"],
                                         env=environment(), capture_output=True, text=True, timeout=60)
                self.assertEqual(process.stderr, "")
                found = [line.split("\t")[0] for line in process.stdout.splitlines()]
                self.assertIn(one, found)
                self.assertNotIn(none, found)


@unittest.skipUnless(shutil.which("zsh"), "no zsh here")
class Zsh(unittest.TestCase):
    """Completion lives in zsh's line editor, so a terminal types."""

    def answer(self, parent, until, seconds=30):
        out, end = "", time.monotonic() + seconds
        while until not in out and time.monotonic() < end:
            if select.select([parent], [], [], 0.2)[0]: out += os.read(parent, 65536).decode(errors="replace")
        return out

    def test_completes(self):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "_memcalc").write_text(script_for("zsh"))
            parent, child = pty.openpty()
            process = subprocess.Popen(["zsh", "-f", "-i"], stdin=child, stdout=child, stderr=child, cwd=folder,
                                       env=environment(), start_new_session=True)
            os.close(child)
            try:
                os.write(parent, f"fpath=({folder} $fpath); autoload -Uz compinit; compinit -u -D; PS1=; echo re''ady\n".encode())
                self.assertIn("ready", self.answer(parent, "ready"))
                for typed, one, _ in CASES:
                    with self.subTest(typed):
                        os.write(parent, f"{typed}\t".encode())
                        self.assertIn(one, self.answer(parent, one))
                        os.write(parent, b"\x15\n")  # the line away, and what was listed
            finally:
                process.kill()
                process.wait()
                os.close(parent)


@unittest.skipUnless(shutil.which("man"), "no man here")
class ManualPage(unittest.TestCase):
    def test_man_reads_it_without_a_warning(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "memcalc.1")
            path.write_text(run("completion", "man").stdout)
            process = subprocess.run(["man", "--warnings", "-E", "UTF-8", "-l", path], capture_output=True, text=True, timeout=60,
                                     env={**environment(), "MANWIDTH": "80", "MANPAGER": "cat", "MAN_KEEP_FORMATTING": ""})
            self.assertEqual((process.returncode, process.stderr), (0, ""))
            for words in ("MEMCALC(1)", "EXIT STATUS", "--require-fit", "memcalc plan", "torchrun, deepspeed"):
                self.assertIn(words, re.sub(".\x08", "", process.stdout))


if __name__ == "__main__":
    memcalc_cli.main()
