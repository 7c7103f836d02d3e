"""with_torch.py PYTHON TEST…: runs tests with an interpreter that has PyTorch; exit status 5 where there is none."""
import subprocess
import sys
from pathlib import Path

python, tests = sys.argv[1], sys.argv[2:]
HAS_TORCH = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"  # importing it takes seconds
if not Path(python).exists() or subprocess.run([python, "-c", HAS_TORCH]).returncode != 0:
    print(f"skipped: no PyTorch in {python}")
    sys.exit(5)
folder = Path(__file__).parent
sys.exit(subprocess.run([python, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", *(folder / t for t in tests)]).returncode)
