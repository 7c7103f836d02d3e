"""What the host takes in calls without autograd, from tiny models' tokens (inference_host.py --parts tokens): the constants of
cost/host_time.cc and of specs/measured/h100-sxm/rates.json. No card is needed.

usage: call_constants.py MEMCALC TURNS.jsonl LEVEL MODEL_CALL_US
LEVEL: how many times as long as on the reference host a call took in that process (a tiny LLaMA's call, over REFERENCE_CALLS of
memcalc.measure). memcalc is asked for each tiny model with one rate after the other changed, which gives how often each counts:
  a layer   LEVEL A + n (a + b i): A what its operators take by the reference host's rates and the shares of calls without autograd, n their
            number, i the instructions of Python for each. a and b are fitted by least squares on the quotients
  the rest  medians over the families of what is left of a later token (generated_token and MODEL_CALL_US, which share it), of the first one
            (generate) and of an encoder-decoder's first one (generate_encoder)
All are printed as the reference host's.
"""
import json, statistics, subprocess, sys, tempfile
from pathlib import Path

import numpy
from scipy.optimize import nnls
import torch  # noqa: F401  (transformers' configurations)

sys.path.insert(0, str(Path(__file__).resolve().parent))
ROOT = Path(__file__).resolve().parents[3]
REFERENCE = json.loads((ROOT / "specs/measured/h100-sxm/rates.json").read_text())["host"]
OF_PYTHON = ("python_us",)
AROUND = ("model_call_us", "generate_us", "generated_token_us", "generate_encoder_us")
TINY = 1e-6  # a rate cannot be 0
EXPERTS = ("granitemoe",)
DECODING = {"t5": "seq2seq", "bart": "seq2seq", "whisper": "speech", "bert": "mlm", "vit": "image"}


def asked(memcalc, config, task, rates, new):
    """(seconds of a call or of the first token, of each later token)"""
    with tempfile.TemporaryDirectory() as folder:
        host, model = Path(folder, "host.json"), Path(folder, "config.json")
        host.write_text(json.dumps(dict(schema_version=1, name="asked", rates=rates)))
        model.write_text(json.dumps(config))
        words = ["--model", str(model), "--bs", "1", "--precision", "bf16", "--weights-dtype", "bf16", "--infer", "--gpu", "h200", "--host", str(host), "--task", task, "--format", "json", "--no-remedies"]
        if task != "image": words += ["--seq", "16"]
        if new: words += ["--new-tokens", str(new)]
        answer = subprocess.run([memcalc, *words], capture_output=True, text=True)
        if answer.returncode > 1: raise SystemExit(f"{config['model_type']}: {answer.stderr}")
        said = json.loads(answer.stdout)["time"]
        return (said["prefill_seconds"], said["seconds_per_token"]) if new else (said["step_seconds"], 0.0)


class Predicted:
    """Of one tiny model: microseconds of operators, and how often each other rate counts, in a call and in a token."""

    def __init__(self, memcalc, family, layers, new):
        from inference_host import tiny
        config = json.loads(tiny(family, layers).config.to_json_string(use_diff=False))
        task = DECODING.get(family, "causal")
        none = dict(REFERENCE, call_ratio=1.0, **{k: TINY for k in (*OF_PYTHON, *AROUND)})
        ask = lambda rates: numpy.array(asked(memcalc, config, task, rates, new)) * 1e6
        self.operators = ask(none)
        self.python = (ask(dict(none, python_us=10.0)) - self.operators) / 10  # operators times share
        self.around = {k: numpy.round((ask(dict(none, **{k: 100.0})) - self.operators) / 100, 3) for k in AROUND}


def main():
    memcalc, level, model_call = sys.argv[1], float(sys.argv[3]), float(sys.argv[4])
    lines = [row for row in map(json.loads, open(sys.argv[2])) if row["kind"] == "tokens"]
    times = {(row["name"], row["layers"], row["new"]): numpy.array(row["ms"]) * 1e3 for row in lines}
    rounds = min(map(len, times.values()))
    times = {key: each[:rounds] for key, each in times.items()}
    # Each round sees one state of the machine.
    state = numpy.median([each / numpy.median(each) for each in times.values()], axis=0)
    took = {key: float(numpy.median(each / state)) for key, each in times.items()}
    shares = source_shares()
    said, layers = {}, {}
    for family in sorted({name for name, _, _ in took}):
        i = INSTRUCTIONS[family] or shares[2]
        share = shares[0] + shares[1] * i
        two, eight = said[family] = [Predicted(memcalc, family, n, 5) for n in (2, 8)]
        token = {n: (took[family, n, 13] - took[family, n, 1]) / 12 for n in (2, 8)}
        layers[family] = ((token[8] - token[2]) / 6, (eight.operators - two.operators)[1] / 6, (eight.python - two.python)[1] / 6 / share, i, token[2])

    def fit(families):
        rows = [layers[family] for family in families if family not in EXPERTS]
        return nnls(numpy.array([[n / t, n * i / t] for t, _, n, i, _ in rows]), numpy.array([1 - level * o / t for t, o, _, _, _ in rows]))[0]
    a, b = fit(layers)
    errors = []
    for family, (t, o, n, i, _) in layers.items():
        other = fit([each for each in layers if each != family])
        of = lambda fitted: 100 * ((level * o + n * (fitted[0] + fitted[1] * i)) / t - 1)
        if family not in EXPERTS: errors.append(of((a, b)))
        print(f"{family:12} a layer {t:7.1f} us, {n:5.1f} operators of {i:5.1f} instructions: {of((a, b)):+6.1f} %, by the others {of(other):+6.1f} %")
    python_us = REFERENCE["python_us"]
    print(f"an operator {a / level:.2f} us, an instruction {b / level:.4f} us: kOperatorShare {a / level / python_us:.3f}, kInstructionShare {b / level / python_us:.5f}; {numpy.sqrt(numpy.mean(numpy.square(errors))):.1f} % off")

    def of(predicted, family, column):
        i = layers[family][3]
        return level * predicted.operators[column] + predicted.python[column] / (shares[0] + shares[1] * i) * (a + b * i)

    def median(values): return statistics.median(v for family, v in values.items() if family not in EXPERTS)
    rest, first, encoder = {}, {}, {}
    for family, (two, eight) in said.items():
        beside = of(two, family, 1) - 2 * (of(eight, family, 1) - of(two, family, 1)) / 6
        rest[family] = (layers[family][4] - 2 * layers[family][0] - beside) / level
    token = median(rest) - model_call
    for family, (two, eight) in said.items():
        beside = of(two, family, 0) - 2 * (of(eight, family, 0) - of(two, family, 0)) / 6
        left = (took[family, 2, 1] - 2 * (took[family, 8, 1] - took[family, 2, 1]) / 6 - beside) / level
        left -= model_call * two.around["model_call_us"][0] + token * two.around["generated_token_us"][0]
        (encoder if two.around["generate_encoder_us"][0] else first)[family] = left
    generate = median(first)
    encoder = {family: (left - generate) / said[family][0].around["generate_encoder_us"][0] for family, left in encoder.items()}
    for name, each, value in (("model_call_us + generated_token_us", rest, median(rest)), ("generate_us", first, generate), ("generate_encoder_us", encoder, median(encoder))):
        print(f"{name} {value:.0f}: " + ", ".join(f"{family} {us:.0f}" for family, us in each.items()))
    print(f"generated_token_us {token:.0f}")


INSTRUCTIONS = {}


def source_shares():
    """(kOperatorShare, kInstructionShare, kUsualInstructions) of this tree, and each family's instructions."""
    import re
    text = (ROOT / "lib/memcalc/cost/host_time.cc").read_text()
    number = lambda name: float(re.search(rf"{name} = ([\d.]+)", text)[1])
    places = dict(llama="llama", gpt2="gpt2", gpt_neox="gpt_neox", opt="opt", qwen3="qwen", phi="phi", olmo2="olmo2", gemma3_text="gemma", granitemoe="granitemoe", t5="t5", bart="bart", whisper="whisper")
    for family, folder in places.items():
        source = (ROOT / f"lib/memcalc/families/{folder}/config.cc").read_text()
        mark = {"gemma3_text": '"gemma3_text"', "qwen3": '"qwen3"', "llama": '"llama"'}.get(family)
        blocks = [b for b in source.split(".model_type = ")[1:] if mark is None or b.startswith(mark)]
        found = [re.search(r"instructions_per_operator = (\d+)", b) for b in blocks]
        INSTRUCTIONS[family] = next((float(m[1]) for m in found if m), 0.0)
    INSTRUCTIONS.update(bert=0.0, vit=0.0)
    return number("kOperatorShare"), number("kInstructionShare"), number("kUsualInstructions")


if __name__ == "__main__": main()
