"""Runs that are drawn for the page's tests, as options of the command line, and what the command line says of them."""
import json
import random
import subprocess

MODELS = ("gpt2", "bert-large", "llama-3.2-1b", "llama-3.1-8b", "qwen3-0.6b", "mistral-7b", "t5-base", "roberta-base", "vit-large-patch16-224",
          "resnet50", "gemma-2-2b", "albert-base-v2")
CARDS = ("rtx-4090", "a100-sxm4-80gb", "h100-sxm", "h200-sxm", "t4", "rtx-3090")
CHOICES = {
    "--bs": ("1", "2", "4", "7", "16"), "--precision": ("fp32", "amp-bf16", "amp-fp16", "bf16"), "--lora": ("4", "16"),
    "--quantize": ("nf4", "int8"), "--checkpointing": ("full", "every-2"), "--optimizer": ("adamw", "sgd", "adamw-8bit", "adafactor"),
    "--accum": ("2", "4"), "--loop": ("trainer", "bare"), "--attn": ("eager", "sdpa"), "--gpus": ("2", "4"), "--seq": ("128", "500", "1024"),
    "--padding": ("",), "--liger": ("",), "--expandable": ("",), "--dropout": ("0.1", "0.05"), "--clip-grad": ("0", "0.5"), "--tokens": ("1.5e9",),
    "--margin": ("1.25",),
}


def draw(count, seed):
    """Options by flag; some of these runs are refused, which both sides must do in the same words."""
    dice = random.Random(seed)
    runs = []
    for _ in range(count):
        options = {"--model": dice.choice(MODELS), "--gpu": dice.choice(CARDS)}
        for flag in dice.sample(sorted(CHOICES), dice.randint(1, 5)):
            options[flag] = dice.choice(CHOICES[flag])
        runs.append(options)
    return runs


def words(options):
    return [word for flag, text in options.items() for word in ([flag, text] if text else [flag])]


def command_line(executable, specs, options, command="estimate", more=("--explain", "--no-remedies")):
    """(answer, None) or (None, message)"""
    process = subprocess.run([executable, command, *words(options), "--specs", specs, "--format", "json", *more],
                             capture_output=True, text=True, encoding="utf-8", check=False)
    if process.returncode == 2: return None, process.stderr.strip().removeprefix("memcalc: error: ")
    assert process.returncode in (0, 1), process.stderr
    return json.loads(process.stdout), None


def compare(test, drawn, answers, executable, specs):
    """How many of the drawn runs are answered. Each answer must be that of the command line, each refusal in its words."""
    answered = 0
    for options, answer in zip(drawn, answers):
        report, message = command_line(executable, specs, options)
        with test.subTest(options):
            if message is not None:
                test.assertEqual(answer["error"]["message"], message)
                continue
            answered += 1
            test.assertEqual(differences(report, answer["report"]), [])
    return answered


def differences(a, b, place=""):
    """Where two answers differ: numbers of bytes must be equal, seconds may differ in their last digits (exp and log are
    another C library's)."""
    if isinstance(a, dict) and isinstance(b, dict):
        return [line for key in sorted({*a, *b}) for line in differences(a.get(key), b.get(key), f"{place}/{key}")]
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return [line for i, (x, y) in enumerate(zip(a, b)) for line in differences(x, y, f"{place}/{i}")]
    if isinstance(a, float) and isinstance(b, float) and abs(a - b) <= 1e-9 * max(abs(a), abs(b)): return []
    return [] if a == b else [f"{place}: {a!r} and {b!r}"]
