"""Records programs under other releases of transformers, for tests/measured/version_programs_test.cc.

usage: version_programs.py SITES [VERSION...]   SITES/VERSION: a release's packages (pip install --no-deps --target: transformers,
       and of 4.57.6 tokenizers 0.22 and huggingface-hub 0.36), put in front of those of this Python, which has PyTorch
"""
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
MODELS = "bert gpt2 llama qwen3 gemma3 mixtral t5 vit bart whisper clip".split()
# Its loop gives each expert a share of the tokens, which a program has even and a family uneven: two experts that all take.
OF_LOOPS = ROOT / "tests/measured/versions/programs/mixtral-all.json"


def main():
    sites, versions = Path(sys.argv[1]).resolve(), sys.argv[2:] or ["4.57.6", "5.5.4", "5.23.0"]
    for version in versions:
        path = os.pathsep.join([str(sites / version), str(ROOT / "python"), os.environ.get("PYTHONPATH", "")])
        for model in MODELS:
            config = ROOT / f"tests/measured/programs/{model}.json"
            if model == "mixtral" and version == "4.57.6": config = OF_LOOPS
            output = ROOT / f"tests/measured/versions/programs/{config.stem}-{version}.json.gz"
            subprocess.run([sys.executable, "-m", "memcalc.record", "--hf", config, "-o", output],
                           env=dict(os.environ, PYTHONPATH=path), check=True)


if __name__ == "__main__": main()
