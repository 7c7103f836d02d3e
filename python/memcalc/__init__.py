"""Will this training run fit on my GPU, and what fills the memory?

    import memcalc

    report = memcalc.estimate("bert-large", batch_size=4, precision="amp-fp16", gpu="h100-sxm")
    report.fits, report.peak_reserved_bytes, report.categories["activations"]

Nothing here needs a GPU or PyTorch: a training step is executed on tensors without data and its allocations are
replayed on a model of PyTorch's allocator. Sizes are bytes (`int`), FLOPs are `float`. Whatever is refused raises a
subclass of `Error` whose `part` is what was wrong. The keywords are the options of the command line (docs/cli.md);
docs/python.md is the guide.
"""
from ._core import (
    Error,
    InputError,
    InternalError,
    OverflowError,
    UnsupportedError,
    UsageError,
    __version__,
)
from ._answer import Answer
from ._config import Config, read_command_line, read_config
from ._estimate import estimate, estimate_many, gpus, models
from ._explore import explore
from ._model import Model, Parameter
from ._options import RunOptions
from ._planning import compare, ladder, max_batch, max_model, max_seq, plan, sweep
from ._report import Report
from . import record

__all__ = [
    "Answer",
    "Config",
    "Error",
    "InputError",
    "InternalError",
    "Model",
    "OverflowError",
    "Parameter",
    "Report",
    "RunOptions",
    "UnsupportedError",
    "UsageError",
    "__version__",
    "compare",
    "estimate",
    "estimate_many",
    "explore",
    "gpus",
    "ladder",
    "max_batch",
    "max_model",
    "max_seq",
    "models",
    "plan",
    "read_command_line",
    "read_config",
    "record",
    "sweep",
]
