"""mypy over the package, strictly, and stubtest: the stub of the compiled module says what the module has."""
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments):
    return subprocess.run([sys.executable, "-m", *arguments], cwd=ROOT).returncode


def main():
    configuration = str(ROOT / "pyproject.toml")
    cache = os.path.join(os.environ.get("PYTHONPATH", "").split(os.pathsep)[0] or "build", ".mypy_cache")
    os.environ["MYPY_CACHE_DIR"] = cache
    checked = run("mypy", "--config-file", configuration, "-p", "memcalc")
    return checked or run("mypy.stubtest", "--mypy-config-file", configuration, "--allowlist", "tests/python/stubtest_allowlist.txt",
                          "--ignore-unused-allowlist", "memcalc._core")


if __name__ == "__main__":
    sys.exit(main())
