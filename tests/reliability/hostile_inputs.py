"""The hostile inputs of hostile.py: each a command line, with the files that it names."""
import json
import os
import socket
import struct
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
SPECS, MEASURED = ROOT / "specs", ROOT / "tests/measured"
REFUSED, ANY = (2,), (0, 1, 2)


class Case(NamedTuple):
    kind: str
    argv: list
    accepted: tuple = REFUSED
    environment: dict = {}
    stdin: str = ""
    stdout: str = ""
    shell: str = ""  # a script of sh that runs "$0" "$@"
    note: str = ""


GPT2 = ["--model", "gpt2", "--bs", "1", "--seq", "64"]
NUMBERS = ["", " ", "0", "-1", "-0", "1.5", "1e3", "1e999", "-1e999", "nan", "inf", "-inf", "9223372036854775807", "9223372036854775808",
           "18446744073709551616", "9" * 400, "0x10", "1_000", "1,000", "+1", " 1", "1 ", "1;2", "٣", "½", "1\n2", "\x1b[31m1", "--", "-", "1k",
           b"\xff\xfe", b"\xed\xa0\x80", "true", "null", "[]", "1e-400", "4.9e-324", "99999999", "2147483648"]
WHOLE = ("--bs --seq --target-seq --image --layers --hidden --heads --kv-heads --head-dim --ffn --vocab --max-positions --accum --skipped-steps "
         "--lora --group-size --loader-workers --prefetch-factor --new-tokens --beams --gpus --nodes --tp --cp --ep --pp --virtual-stages "
         "--micro-batches --hsdp-shard").split()
REAL = "--dropout --lora-dropout --clip-grad --tokens --sample-seconds --sample-bytes --storage-rate --bitsandbytes".split()
CHOICES = ("--task --precision --weights-dtype --loop --optimizer --checkpointing --float8 --compile-parts --compile-mode --attn --lora-dtype --quantize "
           "--kv-cache-dtype --parallel --framework --cp-type --schedule --fsdp-param-dtype --fsdp-reduce-dtype --offload-states "
           "--offload-parameters --format --color").split()
LISTS = "--lora-targets --freeze --stage-layers --megatron --deepspeed".split()
WORDS = ["", " ", "x", "FP32 ", "none,none", ",", "=", "a=b", "\n", "\x1b[2J", b"\xff", b"\xc0\xaf", "é", "‮abc", "a" * 5000, "%s%n%d", "../..", "$(id)", "{}", "{0}"]


def only(name):  # without the option that is drawn anyway
    return GPT2 if name not in GPT2 else [word for i, word in enumerate(GPT2) if word != name and (i == 0 or GPT2[i - 1] != name)]


def numbers():
    for name in WHOLE + REAL:
        for value in NUMBERS: yield Case("number", [*only(name), name, value], ANY)
    for command, name in (("max-batch", "--margin"), ("max-batch", "--multiple-of"), ("max-batch", "--threads"), ("max-seq", "--margin"),
                          ("compare", "--price"), ("utilization", "--achieved"), ("utilization", "--peak"), ("utilization", "--tokens-per-s"),
                          ("utilization", "--samples-per-s"), ("utilization", "--cards"), ("utilization", "--reference")):
        run = [] if command == "utilization" else ["--model", "bert-base", "--seq", "64", *(["--gpu", "t4"] if command != "max-seq" else [])]
        for value in NUMBERS[:30]: yield Case("number", [command, *run, name, value], ANY)


def words():
    for name in CHOICES + LISTS:
        for value in WORDS: yield Case("word", [*GPT2, name, value], ANY)
    for name in ("--model", "--gpu", "--arch"):
        for value in WORDS: yield Case("word", [name, value, "--bs", "1"], ANY)
    for value in WORDS: yield Case("word", [value], ANY)
    for shell in WORDS: yield Case("word", ["completion", shell])


def long_command_lines():
    for name in ("--model", "--gpu", "--specs", "--bs", "--lora-targets", "--megatron", "--stage-layers", "--output"):
        yield Case("long", [*(GPT2[2:] if name == "--model" else only(name)), name, "a" * 100_000], ANY)
    yield Case("long", ["--model", "gpt2"] + ["--padding"] * 5_000, ANY)
    yield Case("long", ["--model", "gpt2"] + ["x"] * 20_000)
    yield Case("long", [*GPT2, "--megatron", ",".join(["swiglu"] * 15_000)], ANY)
    yield Case("long", [*GPT2, "--deepspeed", "," * 100_000], ANY)
    yield Case("long", [*GPT2, "--stage-layers", "1," * 50_000 + "1"], ANY)
    yield Case("long", [*GPT2, "--freeze", ",".join(f"layer{i}" for i in range(10_000))], ANY)
    yield Case("long", ["sweep", "--model", "bert-base", "--seq", "64", "--bs", ",".join(["x"] * 1_000)])
    yield Case("long", ["compare", "--model", ",".join(["nonsense"] * 20), "--bs", "1"])


# --- files ---------------------------------------------------------------------------------------------------------

def odd_paths(folder):
    """(what it is, path): things that are no file with the right contents."""
    def file(name, data, size=None):
        path = folder / name
        path.write_bytes(data)
        if size: os.truncate(path, size)
        return path
    (folder / "directory").mkdir(exist_ok=True)
    fifo, link, dangling, bound = (folder / name for name in ("fifo", "loop", "dangling", "socket"))
    os.mkfifo(fifo)
    link.symlink_to(link)
    dangling.symlink_to(folder / "nowhere")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(bound))
    listener.close()
    unreadable = file("unreadable", b"{}")
    unreadable.chmod(0)
    yield "a directory", folder / "directory"
    yield "nothing", folder / "absent"
    yield "a pipe that nobody writes to", fifo
    yield "a link to itself", link
    yield "a link to nothing", dangling
    yield "a socket", bound
    if os.geteuid() != 0: yield "unreadable", unreadable
    for device in ("/dev/zero", "/dev/null", "/dev/full", "/dev/urandom", "/proc/self/mem", "/proc/self/environ", "/dev/stdin"): yield "a device", Path(device)
    yield "empty", file("empty", b"")
    yield "a byte order mark", file("bom", b"\xef\xbb\xbf{}")
    yield "UTF-16", file("utf16", "{}".encode("utf-16"))
    yield "NUL bytes", file("nul", bytes(4096))
    yield "no UTF-8", file("latin", b'{"model_type": "\xe9"}')
    yield "deep arrays", file("deep", b"[" * 100_000)
    yield "deep objects", file("deeper", b'{"a":' * 100_000)
    yield "a million values", file("wide", b'{"a":[' + b"0," * 1_100_000 + b"0]}")
    yield "a million keys", file("keys", b"{" + b",".join(b'"%d":0' % i for i in range(600_000)) + b"}")
    yield "a long string", file("string", b'{"model_type": "' + b"x" * 5_000_000 + b'"}')
    yield "a long number", file("digits", b'{"model_type": ' + b"9" * 1_000_000 + b"}")
    yield "truncated", file("truncated", b'{"model_type": "gpt2", "n_la')
    yield "a scalar", file("scalar", b"1")
    yield "an array", file("array", b"[1, 2]")
    yield "duplicate keys", file("twice", b'{"model_type": "gpt2", "model_type": "bert"}')
    yield "NaN", file("nan", b'{"model_type": NaN}')
    yield "a comment", file("comment", b'{/* */"model_type": "gpt2"}')
    yield "10 GB, sparse", file("sparse", b"", 10 * 10**9)
    yield "an ELF executable", Path("/bin/true")
    yield "a name with a newline", file("a\nb", b"{")
    yield "a name that is no UTF-8", folder / os.fsdecode(b"\xff\xfe")
    yield "a name with an escape", file("\x1b[31mred", b"{")
    yield "a long name", folder / ("n" * 255)
    yield "a longer path than any", folder / ("/".join(["d" * 200] * 30))


READERS = {  # what is asked of a file, and where its path stands
    "--model": ["--model", None, "--bs", "1"], "--gpu": [*GPT2, "--gpu", None], "--specs": [*GPT2, "--specs", None],
    "weights": ["weights", None], "check": ["check", None], "check --models": ["check", str(MEASURED / "trainer.jsonl"), "--models", None],
    "calibrate": ["calibrate", None, "--gpu", "h100-sxm", "--date", "2026-11"], "--log": ["utilization", "--log", None, "--model", "gpt2", "--bs", "1"],
    "--trace": ["utilization", "--trace", None], "--output": [*GPT2, "--output", None],
}


def files(folder):
    for what, path in odd_paths(folder):
        for reader, argv in READERS.items():
            if reader == "--output" and what not in ("a directory", "a link to itself", "a device", "a longer path than any", "a long name", "a socket"): continue
            if reader == "--output" and str(path) in ("/proc/self/mem", "/dev/stdin"): continue
            accepted = ANY if reader in ("--output", "--log", "check --models", "--specs") or what == "a scalar" else REFUSED
            yield Case("file", [str(path) if word is None else word for word in argv], accepted, note=what)
    for command in (["check", "-"], ["utilization", "--log", "-"], ["utilization", "--trace", "-"], ["--model", "-"], ["weights", "-"]):
        for stdin in ("/dev/zero", "/dev/null", str(folder / "nul"), str(folder / "deep"), str(folder / "directory" / "..") + "/latin"):
            yield Case("file", command, ANY, stdin=stdin, note="standard input")
        yield Case("file", command, ANY, shell='exec "$0" "$@" <&-', note="standard input is closed")


# --- contents ------------------------------------------------------------------------------------------------------

VALUES = [None, True, "", "x", -1, 0, 1.5, 1e300, 2**31, 2**62, 2**63, 10**30, [], {}, [[[[]]]], "\x00", "é" * 1000]


def changed(document, path, value):
    copy = json.loads(json.dumps(document))
    at = copy
    for step in path[:-1]: at = at[step]
    at[path[-1]] = value
    return copy


def paths_of(document, path=()):
    items = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in items:
        yield (*path, key)
        if isinstance(value, (dict, list)) and len(path) < 5: yield from paths_of(value, (*path, key))


def written(folder, kind, data):
    folder = folder / kind
    folder.mkdir(exist_ok=True)
    path = folder / f"{len(list(folder.iterdir()))}.json"
    path.write_bytes(data if isinstance(data, bytes) else json.dumps(data).encode("utf-8"))
    return str(path)


def documents(folder):
    """Each value of each document by a hostile one, in turn: every value of VALUES meets every kind of document."""
    registry = {name: json.loads((SPECS / f"models/{name}.json").read_text()) for name in ("gpt2", "llama-3-8b", "bert-base", "t5-small", "resnet50", "mixtral-8x7b")}
    kinds = [("config", registry[name]["config"], ["--model", None, "--bs", "1"]) for name in registry]
    kinds += [("model", registry["gpt2"], ["--model", None, "--bs", "1"]),
              ("layers", json.loads((SPECS / "examples/cnn.json").read_text()), ["--model", None, "--bs", "1"]),
              ("layers", json.loads((SPECS / "examples/decoder.json").read_text()), ["--model", None, "--bs", "1"]),
              ("card", json.loads((SPECS / "gpus/h100-sxm.json").read_text()), [*GPT2, "--gpu", None])]
    i = 0
    for kind, document, argv in kinds:
        for path in paths_of(document):
            for _ in range(4 if kind in ("config", "card") else 3):
                value = VALUES[i % len(VALUES)]
                i += 1
                file = written(folder, kind, changed(document, path, value))
                yield Case(kind, [file if word is None else word for word in argv], ANY, note=f"{path} = {str(value)[:40]}")
        for cut in range(1, 40, 4):
            text = json.dumps(document).encode()
            file = written(folder, kind, text[:len(text) * cut // 40])
            yield Case(kind, [file if word is None else word for word in argv], note="truncated")


def safetensors(folder):
    def file(header, data=b"", length=None):
        text = header if isinstance(header, bytes) else json.dumps(header).encode()
        return written(folder, "safetensors", struct.pack("<Q", len(text) if length is None else length) + text + data)
    def named(path):
        target = path[:-5] + ".safetensors"
        os.rename(path, target)
        Path(target + ".placeholder").touch()  # keeps the count of files
        return target
    good = {"a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, "b": {"dtype": "BF16", "shape": [4], "data_offsets": [24, 32]}}
    for length in (0, 1, 7, 2**31, 2**63 - 1, 2**63, 2**64 - 1, 100_000_001): yield Case("safetensors", ["weights", named(file(good, bytes(32), length))], note=f"a header of {length}")
    for path in paths_of(good):
        for value in VALUES + [[2**62, 2**62], [-1, 3], [0, 2**63], [24, 0], ["a", "b"], "F32 ", "F128"]:
            yield Case("safetensors", ["weights", named(file(changed(good, path, value), bytes(32)))], ANY, note=f"{path} = {str(value)[:40]}")
    for data in (0, 31, 33, 100_000): yield Case("safetensors", ["weights", named(file(good, bytes(data)))], note=f"{data} bytes of data")
    for header in (b"{}", b"[]", b"{" * 50_000, b'{"a":' * 50_000, b"\xff" * 100, b"null", b'{"__metadata__": 1}', b'{"__metadata__": {"a": 1}}'):
        yield Case("safetensors", ["weights", named(file(header))], ANY, note=str(header[:30]))
    for index in ({}, {"weight_map": {}}, {"weight_map": {"a": "../../etc/passwd"}}, {"weight_map": {"a": "/etc/passwd"}}, {"weight_map": {"a": ""}},
                  {"weight_map": {"a": "b.safetensors"}}, {"weight_map": []}, {"weight_map": {"a": 1}}, {"weight_map": {"a": "..\x00.safetensors"}}):
        path = written(folder, "index", index)
        target = path[:-5] + ".safetensors.index.json"
        os.rename(path, target)
        Path(path).touch()
        yield Case("safetensors", ["weights", target], note=str(index))


def lines(folder):
    """Measured rows, rows of operator timings, profiles."""
    row = {"id": "a", "gpu": "h100-sxm", "run": {"model": "bert-base", "batch_size": 2, "sequence_length": 64, "precision": "fp32", "optimizer": "adamw",
           "checkpointing": "none", "attention": "sdpa", "accumulation_steps": 1, "padding": True, "dropout": 0.1, "loop": "bare"},
           "peak_allocated": 10**9, "peak_reserved": 10**9, "step_ms_median": 10.0, "rank": 0}
    several = {"id": "b", "run": {"model": "gpt2", "batch_size": 1, "sequence_length": 64, "gpus": 2, "parallel": "fsdp2", "loop": "bare",
               "fsdp_param_dtype": "bf16", "megatron": {"swiglu": True}, "deepspeed": {"overlap_comm": True}}, "peak_allocated": 10**9}
    timings = {}
    for line in (MEASURED / "op_times_h100.jsonl").read_text().splitlines():
        timing = json.loads(line)
        timings.setdefault(timing.get("kind"), timing)
    backward = {"kind": "conv", "dtype": "bf16", "backward": True, "gradients": 2, "B": 8, "ci": 64, "co": 64, "hw": 56, "k": 3, "s": 1, "ms": 0.5}
    collective = {"op": "all_reduce", "bytes": 1 << 26, "world": 8, "ms": 1.0}
    event = {"ph": "X", "cat": "kernel", "name": "nvjet", "ts": 100, "dur": 4}
    kinds = [("row", document, ["check", None]) for document in (row, several)]
    kinds += [("timing", document, ["calibrate", None, "--gpu", "h100-sxm", "--date", "2026-11"]) for document in (*timings.values(), backward, collective)]
    kinds += [("profile", {"traceEvents": [event, {**event, "cat": "gpu_memcpy", "ts": 103}]}, ["utilization", "--trace", None])]
    for kind, document, argv in kinds:
        for place, path in enumerate(paths_of(document)):
            for value in VALUES if kind != "timing" else VALUES[place % 2::2]:
                file = written(folder, kind, changed(document, path, value))
                yield Case(kind, [file if word is None else word for word in argv], ANY, note=f"{path} = {str(value)[:40]}")
    for text in (b"\n\n\n", b"{}\n{}", b"{", b"\x00", b"\xff", b'{"run": 1}', b"[]", b"nul"):
        for argv in (["check", None], READERS["calibrate"], ["utilization", "--trace", None]):
            yield Case("line", [written(folder, "line", text) if word is None else word for word in argv], ANY, note=str(text))
    for text in ("tokens/s: inf", "tokens/s: nan", "tokens/s: 1e999", "tokens/s: -1", "tokens/s", "tokens/s:", "tok/s 0x10", "samples/s: 1e-400", "tokens/s: 1e308",
                 "tokens/s: " + "9" * 5000, "tokens_per_second\x00: 3", "\xff" * 100):
        for more in ([], ["--model", "gpt2", "--bs", "1"], ["--reference", "1e-300"]):
            yield Case("log", ["utilization", "--log", written(folder, "log", text.encode("latin-1")), *more], ANY, note=text[:40])


# --- what is around the process ------------------------------------------------------------------------------------

def surroundings(folder):
    for name, values in {"MEMCALC_SPEC_PATH": ["", ":", "/dev/null", "/dev/zero", "relative", "\x1b[31m", "a" * 5000, os.fsdecode(b"\xff"), str(folder / "fifo"), str(folder / "loop"), "/proc/self"],
                         "LC_ALL": ["", "C", "POSIX", "de_DE.UTF-8", "tr_TR.UTF-8", "xx", "C.UTF-8", "\xff", "a" * 5000], "LANG": ["de_DE", "x/../y"], "LC_NUMERIC": ["de_DE.UTF-8"],
                         "COLUMNS": ["", "0", "-1", "1", "99999999999", "x"], "TERM": ["", "dumb", "x" * 1000], "NO_COLOR": ["", "1"], "HOME": ["", "/dev/null"], "TMPDIR": ["/nonexistent"],
                         "PATH": ["", "/dev/null"]}.items():
        for value in values:
            for argv in (GPT2, ["models"], ["--model", "nonsense"]): yield Case("environment", argv, ANY, {name: value})
    answers = ([*GPT2], [*GPT2, "--format", "json"], ["models"], ["gpus", "--format", "csv"], ["--help"], ["--version"], ["completion", "bash"], ["trace", *GPT2],
               ["sweep", "--model", "gpt2", "--seq", "64", "--bs", "1,2"], ["max-batch", "--model", "bert-base", "--gpu", "t4"], ["weights", "--help"])
    for argv in answers:
        yield Case("stream", argv, REFUSED, stdout="/dev/full", note="standard output is full")
        yield Case("stream", argv, REFUSED, shell='exec "$0" "$@" >&-', note="standard output is closed")
        yield Case("stream", argv, ANY, shell='"$0" "$@" | true; exit 0', note="nobody reads")
        yield Case("stream", argv, ANY, shell='exec "$0" "$@" 2>&-', note="standard error is closed")
        yield Case("stream", argv, ANY, shell='exec "$0" "$@" <&- >/dev/null', note="standard input is closed")
    yield Case("stream", ["--model", "nonsense"], REFUSED, shell='exec "$0" "$@" >&-', note="standard output is closed")
    for place in ("/dev/full", "/proc/version", "/sys/x", "/", "", "/dev/null/x"):
        for argv in (GPT2, ["sweep", "--model", "gpt2", "--seq", "64", "--bs", "1,2"], ["models"], ["trace", *GPT2], ["completion", "bash"]):
            yield Case("stream", [*argv, "--output", place], REFUSED, note="an output that cannot be written")
    for limit in ("ulimit -n 10", "ulimit -s 256", "cd /; cd /proc/self/fdinfo"):
        yield Case("stream", GPT2, ANY, shell=f'{limit}; exec "$0" "$@"', note=limit)
    batches = ",".join(map(str, range(1, 201)))
    yield Case("stream", ["sweep", "--model", "gpt2", "--seq", "64", "--bs", batches, "--threads", "4"], ANY,
               shell='ulimit -p 1; exec "$0" "$@"', note="no more threads (the superuser has them all the same)")


def sizes():
    """Runs that would be larger than any machine: an answer or a refusal, soon."""
    for argv in (["--layers", "10000"], ["--layers", "9999", "--hidden", "12"], ["--bs", "1000000000"], ["--seq", "1000000"], ["--vocab", "2147483647"], ["--accum", "1000000000"],
                 ["--infer", "--new-tokens", "100000"], ["--infer", "--new-tokens", "900", "--beams", "1000"], ["--gpus", "1000000"], ["--gpus", "1000000", "--parallel", "fsdp2", "--loop", "bare"],
                 ["--gpus", "512", "--pp", "12", "--loop", "bare"], ["--gpus", "4096", "--framework", "megatron", "--bf16", "--tp", "4", "--per-rank"],
                 ["--gpus", "12", "--pp", "12", "--micro-batches", "100000", "--loop", "bare"], ["--lora", "1000000"], ["--loader-workers", "1000000000"], ["--prefetch-factor", "1000000000", "--loader-workers", "2"],
                 ["--skipped-steps", "1000000"], ["--heads", "1", "--hidden", "1"], ["--tokens", "1e300"]):
        yield Case("size", [*[word for word in ("--model", "gpt2")], *argv], ANY)
    for argv in (["max-batch", "--model", "gpt2", "--gpu", "t4", "--margin", "14.9"], ["max-seq", "--model", "gpt2", "--bs", "1000000000", "--gpu", "t4"], ["plan", "--model", "gpt2", "--gpus", "1000000", "--global-batch", "1000000"],
                 ["plan", "--model", "gpt2", "--gpus", "7", "--global-batch", "13"], ["sweep", "--model", "gpt2", "--bs", "1:1000000000"], ["ladder", "--model", "llama-3.1-405b", "--gpu", "t4"],
                 ["max-batch", "--model", "gpt2", "--gpu", "t4", "--threads", "100000"], ["max-model", "--family", "all", "--gpu", "t4"]):
        yield Case("size", argv, ANY)


def cases(folder):
    """Every case once, always the same; files are written into `folder`."""
    yield from numbers()
    yield from words()
    yield from long_command_lines()
    yield from files(folder)
    yield from documents(folder)
    yield from safetensors(folder)
    yield from lines(folder)
    yield from surroundings(folder)
    yield from sizes()
