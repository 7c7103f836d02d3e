"""Runs memcalc for the tests beside this file; their first argument is the executable."""
import json
import os
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXECUTABLE = None
COMMANDS = ("estimate", "max-batch", "max-seq", "max-model", "sweep", "compare", "ladder", "plan", "trace", "weights",
            "utilization", "upgrade", "profiles", "check", "calibrate", "models", "gpus", "completion")


def run(*arguments, env=None, cwd=None, executable=None):
    """CompletedProcess with text; nothing of the caller's locale, colours or specs reaches it."""
    clean = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C.UTF-8", **(env or {})}
    return subprocess.run([executable or EXECUTABLE, *map(str, arguments)], capture_output=True, text=True,
                          timeout=60, env=clean, cwd=cwd, stdin=subprocess.DEVNULL)


def report(*arguments, **options):
    process = run(*arguments, "--format", "json", **options)
    assert process.returncode == 0, process.stderr
    assert process.stderr == "", process.stderr
    return json.loads(process.stdout)


def main():
    global EXECUTABLE
    EXECUTABLE = sys.modules["memcalc_cli"].EXECUTABLE = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
