"""Measured rows for the scripts and tests that read them: what ran, as words for memcalc, and how far predictions are off.

A row says what ran by the record of a run (`run`, docs/run.schema.json) and by what no option says (`harness`); its other
keys were measured. tests/measured/README.md has the form.
"""
import gzip
import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MEASURED, MODELS = ROOT / "tests/measured", ROOT / "specs/models"
SCHEMA = json.loads((ROOT / "docs/run.schema.json").read_text())["properties"]
CONFIGS = {name: entry["config"] for name, entry in json.loads((MEASURED / "models.json").read_text())["models"].items()}
CUSTOM = "custom-"  # models of layers: tests/measured/harness/layers.py, custom.py
NOT_IN_A_CONFIG = ("torch_dtype", "architectures")  # the harness builds from the other keys
MEASURES = ("allocated", "reserved")


def read(name):
    """The rows of tests/measured/NAME or NAME.gz."""
    path = MEASURED / name
    text = path.read_text() if path.is_file() else gzip.decompress(path.with_name(f"{name}.gz").read_bytes()).decode()
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def config_of(row):
    """The config that the row's model was built from; of a model of layers None."""
    name = row["run"]["model"]
    if name.startswith(CUSTOM): return None
    config = row.get("harness", {}).get("config") or CONFIGS.get(name)
    if config is None: config = json.loads((MODELS / f"{name}.json").read_text())["config"]
    return {key: value for key, value in config.items() if key not in NOT_IN_A_CONFIG}


def model_of(row, write):
    """What --model asks for. `write(config)` makes a config.json and returns its path: of it, as of the harness's models,
    transformers ties the head."""
    name, config = row["run"]["model"], config_of(row)
    if config is None:
        folders = (ROOT / "specs/examples", MEASURED / "layers")
        return next(path for path in (folder / f"{name.removeprefix(CUSTOM)}.json" for folder in folders) if path.is_file())
    if "program" in config: return name  # recorded
    return config["architecture"] if config["model_type"] == "torchvision" else write(config)


def text_of(value):
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def words_of(run, leave_out=()):
    """The options of a run record but for its model, as words of the command line."""
    words = []
    for key, value in run.items():
        field = SCHEMA[key]
        if key == "model" or key in leave_out: continue
        if isinstance(value, dict):  # --megatron, --deepspeed
            words += [f"--{key}", ",".join(f"{name}={text_of(each).lower()}" if isinstance(each, bool) else
                                           f"{name}={text_of(each)}" for name, each in value.items())]
        elif value is True:
            words.append(field["x-flag"])
        elif value is False:
            if "x-negative-flag" in field: words.append(field["x-negative-flag"])
        else:
            words += [field["x-flag"], text_of(value)]
    return words


def question_of(row, write):
    """The words that ask for the run of a row on its card."""
    return ["--model", model_of(row, write), *words_of(row["run"]), *(["--gpu", row["gpu"]] if "gpu" in row else [])]


def reports(memcalc, rows, statuses):
    """What memcalc (memcalc_pages.Memcalc) says of each row: its report, or what it refused."""
    return memcalc.all([question_of(row, memcalc.file) for row in rows], statuses)


def peaks_of(report):
    """(allocated, reserved) bytes"""
    return tuple(report["memory"][f"peak_{measure}_bytes"] for measure in MEASURES)


def errors_of(row, report):
    """(allocated, reserved): predicted less measured, relative."""
    return [predicted / row[f"peak_{measure}"] - 1 for measure, predicted in zip(MEASURES, peaks_of(report))]
