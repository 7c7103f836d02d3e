"""The package under test is that of the build: ctest sets PYTHONPATH."""
import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def cli():
    """Runs the executable that the package carries; its JSON record."""
    import memcalc

    executable = Path(memcalc.__file__).parent / "bin/memcalc"

    def run(*arguments):
        environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "MEMCALC_SPEC_PATH": str(ROOT / "specs")}
        process = subprocess.run([executable, *map(str, arguments)], capture_output=True, text=True, env=environment)
        assert process.returncode == 0, process.stderr
        return process.stdout

    run.record = lambda *arguments: json.loads(run(*arguments, "--format", "json", "--explain"))
    return run
