"""`python -m memcalc` is the command line."""
import os
import subprocess
import sys
from pathlib import Path

import memcalc


def run(*arguments, **environment):
    return subprocess.run([sys.executable, "-m", "memcalc", *arguments], capture_output=True, text=True,
                          env={**os.environ, "LC_ALL": "C.UTF-8", **environment})


def test_it_answers_with_the_packages_specs(cli):
    arguments = ("--model", "gpt2", "--bs", "2", "--seq", "64", "--gpu", "h100-sxm")
    process = run(*arguments)
    assert (process.returncode, process.stderr) == (0, "")
    assert process.stdout == cli(*arguments)


def test_its_exit_status_is_that_of_the_executable():
    assert run("--model", "nothing").returncode == 2
    assert run("--model", "gpt2", "--gpu", "rtx-4090", "--bs", "4096", "--require-fit").returncode == 1
    assert run("--model", "gpt2", MEMCALC_SPEC_PATH="/nowhere").returncode == 2


def test_the_recorder_knows_which_functions_are_modelled():
    """record/operators.txt is written by `memcalc programs --operators`."""
    listed = Path(memcalc.__file__).with_name("record") / "operators.txt"
    assert run("programs", "--operators").stdout == listed.read_text()
