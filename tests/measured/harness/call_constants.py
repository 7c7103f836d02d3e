"""What the host takes in calls without autograd, from tiny models that took turns (inference_host.py): the constants of
cost/host_time.cc and of specs/measured/h100-sxm/rates.json. No card is needed.

usage: call_constants.py MEMCALC TURNS.jsonl HOST.json [HOST.json …]
HOST: files of memcalc.measure --host of the same machine, before and after: how long forward in training took there, over the
reference host. memcalc is asked for each tiny model with one rate after the other changed, which gives how often each counts:
  a layer   s A + n (a + b i): A what its operators take by the reference host's rates and the shares of calls without autograd, n their
            number, i the instructions of Python for each. s, a and b are fitted by least squares on the quotients.
  the rest  medians over the families of what is left of a call (model_call), of a token (generated_token), of the first token (generate)
            and of an encoder-decoder's first token (generate_encoder)
All are printed as they were there and as the reference host's, over `forward` of the host files. Families left out one by one show what
an unknown family is off by.
"""
import json, statistics, subprocess, sys, tempfile
from pathlib import Path

import numpy
import torch  # noqa: F401  (transformers' configurations)

sys.path.insert(0, str(Path(__file__).resolve().parent))
ROOT = Path(__file__).resolve().parents[3]
REFERENCE = json.loads((ROOT / "specs/measured/h100-sxm/rates.json").read_text())["host"]
OF_PYTHON = ("python_us",)
AROUND = ("model_call_us", "generate_us", "generated_token_us", "generate_encoder_us")
TINY = 1e-6  # a rate cannot be 0
COUNTS = {row["family"]: row for row in map(json.loads, (ROOT / "tests/measured/python_counts.jsonl").read_text().splitlines())}
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
    memcalc, turns, hosts = sys.argv[1], [json.loads(line) for line in open(sys.argv[2])], [json.loads(Path(p).read_text()) for p in sys.argv[3:]]
    level = statistics.mean(h["measured"]["forward"] for h in hosts) if hosts else 1.0
    measured = {(t["name"], t["layers"], t["call"]): statistics.median(t["ms"]) * 1e3 for t in turns if t["kind"] == "turn" and t["ms"]}
    shares = source_shares()
    families = sorted({name for name, _, _ in measured if name in INSTRUCTIONS})
    equations, forward, generated = [], {}, {}
    for family in families:
        instructions = INSTRUCTIONS[family]
        share = shares[0] + shares[1] * (instructions or shares[2])
        if (family, 8, "forward") in measured: forward[family] = [Predicted(memcalc, family, n, 0) for n in (2, 8)]
        if (family, 8, "decode") in measured: generated[family] = [Predicted(memcalc, family, n, 5) for n in (2, 8)]
        for call, said, column in (("decode", generated, 1), ("forward", forward, 0)):
            if family not in said or (family, 8, call) not in measured: continue
            two, eight = said[family]
            took = (measured[family, 8, call] - measured[family, 2, call]) / 6
            operators, number = (eight.operators - two.operators)[column] / 6, (eight.python - two.python)[column] / 6 / share
            equations.append((family, call, took, operators, number, number * (instructions or shares[2])))
    use = [e for e in equations if e[0] not in ("granitemoe", "bert", "vit")]

    def fit(rows):
        matrix = numpy.array([[e[3] / e[2], e[4] / e[2], e[5] / e[2]] for e in rows])
        from scipy.optimize import nnls
        return nnls(matrix, numpy.ones(len(rows)))[0]
    s, a, b = fit(use)
    print(f"level of the machine (forward in training): {level:.3f}")
    print(f"layer: s {s:.3f}, a {a:.3f} us, b {b:.4f} us there; of the reference host: s {s / level:.3f}, a {a / level:.3f}, b {b / level:.4f} us")
    errors = []
    for e in equations:
        said = s * e[3] + a * e[4] + b * e[5]
        without = [o for o in use if o[0] != e[0]]
        other = fit(without) if without else (s, a, b)
        out = other[0] * e[3] + other[1] * e[4] + other[2] * e[5]
        errors.append(said / e[2] - 1)
        print(f"  {e[0]:12} {e[1]:8} took {e[2]:7.1f} us  operators {e[3]:6.1f}  n {e[4]:5.1f}  i {e[5] / max(e[4], 1e-9):5.1f}  said {said:7.1f} {100 * errors[-1]:+6.1f} %  left out {100 * (out / e[2] - 1):+6.1f} %")
    print(f"  root mean square {100 * numpy.sqrt(numpy.mean(numpy.square(errors))):.1f} %")

    def of(predicted, family, column):
        i = INSTRUCTIONS[family] or shares[2]
        share = shares[0] + shares[1] * i
        return s * predicted.operators[column] + predicted.python[column] / share * (a + b * i)
    rest = {k: {} for k in AROUND}
    for family, (two, _) in forward.items():
        rest["model_call_us"][family] = (measured[family, 2, "forward"] - of(two, family, 0)) / two.around["model_call_us"][0]
    model_call = statistics.median(rest["model_call_us"].values())
    for family, (two, _) in generated.items():
        if (family, 2, "generate5") not in measured: continue
        token = (measured[family, 2, "generate5"] - measured[family, 2, "generate1"]) / 4
        rest["generated_token_us"][family] = (token - of(two, family, 1) - model_call * two.around["model_call_us"][1]) / two.around["generated_token_us"][1]
    token_us = statistics.median(rest["generated_token_us"].values())
    for family, (two, _) in generated.items():
        if (family, 2, "generate1") not in measured or two.around["generate_encoder_us"][0]: continue
        first = measured[family, 2, "generate1"] - of(two, family, 0) - model_call * two.around["model_call_us"][0] - token_us * two.around["generated_token_us"][0]
        rest["generate_us"][family] = first / two.around["generate_us"][0]
    generate = statistics.median(rest["generate_us"].values())
    for family, (two, _) in generated.items():
        if (family, 2, "generate1") not in measured or not two.around["generate_encoder_us"][0]: continue
        first = measured[family, 2, "generate1"] - of(two, family, 0) - sum(c * two.around[k][0] for k, c in (("model_call_us", model_call), ("generated_token_us", token_us), ("generate_us", generate)))
        rest["generate_encoder_us"][family] = first / two.around["generate_encoder_us"][0]
    for key, each in rest.items():
        if each: print(f"{key}: {statistics.median(each.values()):.0f} us there, {statistics.median(each.values()) / level:.0f} of the reference host; " + ", ".join(f"{f} {v:.0f}" for f, v in each.items()))
    plain = (measured["llama", 8, "decode"] - measured["llama", 2, "decode"]) / 6
    for name in ("llama-nf4", "llama-int8", "llama-int8-bf16"):
        if (name, 8, "decode") in measured:
            extra = ((measured[name, 8, "decode"] - measured[name, 2, "decode"]) / 6 - plain) / 7
            print(f"{name}: a linear layer takes {extra:.1f} us more than torch's there, {extra / level:.1f} of the reference host")


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
