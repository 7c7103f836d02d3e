"""Builds the API documentation from the doc strings with pdoc; a warning is an error.

    api_docs.py FOLDER      with the package on PYTHONPATH and pdoc
"""
import sys
import types
import warnings
from pathlib import Path

import pdoc


def name_torch():
    """Signatures name torch.nn.Module and torch.Tensor; where PyTorch is not installed the names alone will do."""
    try:
        import torch  # noqa: F401
    except ImportError:
        torch, nn = types.ModuleType("torch"), types.ModuleType("torch.nn")
        torch.Tensor, nn.Module = type("Tensor", (), {"__module__": "torch"}), type("Module", (), {"__module__": "torch.nn"})
        torch.nn = nn
        sys.modules.update({"torch": torch, "torch.nn": nn})


def main():
    warnings.simplefilter("error")
    name_torch()
    folder = Path(sys.argv[1])
    pdoc.render.configure(docformat="markdown")
    pdoc.pdoc("memcalc", "memcalc.measure", "memcalc.runs", output_directory=folder)
    pages = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.html"))
    assert pages == ["index.html", "memcalc.html", "memcalc/measure.html", "memcalc/record.html", "memcalc/runs.html"], pages
    text = (folder / "memcalc.html").read_text()
    for name in ("estimate", "estimate_many", "Report.plot_timeline", "Model.from_module", "plan"):
        assert f'id="{name}"' in text, name


if __name__ == "__main__":
    main()
