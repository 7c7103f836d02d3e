"""Records as python -m memcalc.record does, but as torch.compile traces a module: is_compiling() says yes, and so does
transformers' is_tracing(), which asks it. The program names the policy `compiling`.

    PYTHONPATH=../../../python python compiling.py --hf bert.json --task mlm --batch 2 --sequence 32 -o bert.compiling.json.gz
"""
import gzip
import json
import sys

import torch.compiler

from memcalc.record import _patches
from memcalc.record.__main__ import main

of_eager_mode = _patches._transformers


def of_compiler():
    answers_no = ("is_fake_tensor", "is_tracing")  # what the recorder answers in eager mode
    changes = [change for change in of_eager_mode() if change[1] not in answers_no]
    return [*changes, (torch.compiler, "is_compiling", lambda: True), (torch.compiler, "is_dynamo_compiling", lambda: True)]


_patches._transformers = of_compiler
status = main(sys.argv[1:])
if status == 0:
    path = sys.argv[sys.argv.index("-o") + 1]
    with gzip.open(path, "rt") as file: program = json.load(file)
    program["assumptions"].append({"policy": "compiling", "where": "torch/compiler/__init__.py", "count": 1})
    with open(path, "wb") as file: file.write(gzip.compress(json.dumps(program, separators=(",", ":")).encode(), 9, mtime=0))
sys.exit(status)
