"""What bitsandbytes' Linear4bit takes of Python, with few rows (its one kernel) and with many (the weight unpacked, then F.linear), without a card: a tiny LLaMA whose
Linears are packed takes turns with the same model as it is, on a processor, where the library's functions do nothing.

usage: packed_turns.py ROUNDS       (bitsandbytes 0.50 on the path; gcc)
Processor time of the process: medians of a forward, and microseconds more for each Linear.
"""
import ctypes, inspect, statistics, subprocess, sys, tempfile, time, warnings
from pathlib import Path

warnings.filterwarnings("ignore")
import bitsandbytes as bnb, torch, transformers as tf
import bitsandbytes.backends.cuda.ops as ops
from bitsandbytes.functional import QuantState


class Nothing:
    def __enter__(self): pass
    def __exit__(self, *_): pass


class Functions:
    """Of the library: each is a function of C that returns at once."""

    def __init__(self):
        folder = Path(tempfile.mkdtemp())
        (folder / "nothing.c").write_text("void nothing(void *first, ...) {}\n")
        subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", folder / "nothing.so", folder / "nothing.c"], check=True)
        self.nothing = ctypes.CDLL(str(folder / "nothing.so")).nothing

    def __getattr__(self, name): return self.nothing


def on_processor(unpacks):
    """The operator's function for a card, as the processor's; unpacks() says which way it takes."""
    ops.lib, ops._cuda_device_of, ops._get_raw_stream = Functions(), lambda _: Nothing(), lambda _: ctypes.c_void_p(0)
    ops._gemm_4bit_use_custom_fn = lambda *_: not unpacks()
    source = inspect.getsource(ops)
    begin = source.index('@register_kernel("bitsandbytes::gemm_4bit", "cuda")')
    body = source[begin:source.index('"""C FUNCTIONS FOR OPTIMIZERS"""')].split("\n", 1)[1].replace("def _(", "def gemm_4bit(", 1)
    exec(body, ops.__dict__)
    library = torch.library.Library("bitsandbytes", "FRAGMENT")
    library.impl("gemm_4bit", ops.gemm_4bit, "CPU", allow_override=True)
    return library


def packed(model):
    for module in list(model.modules()):
        for name, linear in list(module.named_children()):
            if type(linear) is not torch.nn.Linear or name == "lm_head": continue
            outs, ins = linear.weight.shape
            made = bnb.nn.Linear4bit(ins, outs, bias=False, compute_dtype=torch.float32, compress_statistics=False, quant_type="nf4")
            made.weight = bnb.nn.Params4bit(torch.zeros((outs * ins // 2, 1), dtype=torch.uint8), requires_grad=False, quant_type="nf4")
            made.weight.quant_state = made.quant_state = QuantState(absmax=torch.zeros(outs * ins // 64), shape=torch.Size((outs, ins)), code=torch.zeros(16), blocksize=64, quant_type="nf4", dtype=torch.float32)
            made.weight.bnb_quantized, made.support_avx512bf16_for_cpu = True, False
            setattr(module, name, made)
    return model


def main():
    torch.set_num_threads(1)
    unpacks = [False]
    library = on_processor(lambda: unpacks[0])
    config = tf.LlamaConfig(vocab_size=99, hidden_size=64, num_hidden_layers=8, num_attention_heads=4, intermediate_size=128, num_key_value_heads=2)
    plain, four_bits = (tf.LlamaForCausalLM(config).eval() for _ in range(2))
    packed(four_bits)
    ids = torch.randint(0, 90, (1, 8))

    def taken(model, unpacked=False):
        unpacks[0] = unpacked
        begin = time.process_time(); model(input_ids=ids)
        return 1e3 * (time.process_time() - begin)
    ways = dict(plain=lambda: taken(plain), few=lambda: taken(four_bits), many=lambda: taken(four_bits, True))
    times = {name: [] for name in ways}
    with torch.no_grad():
        for number in range(5 + int(sys.argv[1])):
            for name, way in ways.items(): (times[name] if number >= 5 else []).append(way())
    middle = {name: statistics.median(each) for name, each in times.items()}
    print({name: round(ms, 3) for name, ms in middle.items()}, {name: round(1e3 * (middle[name] - middle["plain"]) / 56, 1) for name in ("few", "many")})


if __name__ == "__main__": main()
