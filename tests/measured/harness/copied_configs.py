"""What a forward pass of an encoder-decoder that makes its own cache takes for its configuration, which each DynamicCache(config=...) copies.

usage: copied_configs.py        a line for each model, no card: microseconds of processor time, over a loop of Python in turns, and that share of the loop's
                                1,337 us on the reference host; bytecode instructions
"""
import random, sys, time, warnings

warnings.filterwarnings("ignore")
import torch
import transformers as tf
from transformers.cache_utils import DynamicCache, EncoderDecoderCache

CLOCK, TURNS, LOOP_OF_REFERENCE = time.thread_time, 60, 1337


def loop():
    begin, x = CLOCK(), 0
    for i in range(20000): x += i & 3
    return CLOCK() - begin


def of_both(config): return EncoderDecoderCache(DynamicCache(config=config), DynamicCache(config=config))


def of_whisper(config):
    decoder = config.get_text_config(decoder=True)
    return EncoderDecoderCache(DynamicCache(config=decoder), DynamicCache(config=decoder))


def instructions(call):
    count = 0
    def traced(frame, event, _):
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return traced
    sys.settrace(traced)
    try: call()
    finally: sys.settrace(None)
    return count


def main():
    torch.set_num_threads(1)
    cases = {"t5": (of_both, tf.T5Config()), "mt5": (of_both, tf.MT5Config()), "m2m_100": (of_both, tf.M2M100Config()), "bart": (of_both, tf.BartConfig()), "whisper": (of_whisper, tf.WhisperConfig()),
             "llama": (lambda config: DynamicCache(config=config), tf.LlamaConfig(num_hidden_layers=8))}
    took, loops = {name: [] for name in cases}, []
    for _ in range(TURNS):
        loops.append(loop())
        for name, (make, config) in random.sample(list(cases.items()), len(cases)):
            make(config)
            begin = CLOCK(); make(config); took[name].append(CLOCK() - begin)
    quick = lambda values: sorted(values)[len(values) // 5]
    for name, (make, config) in cases.items():
        share = quick(took[name]) / quick(loops)
        print(f"{name:8} {1e6 * quick(took[name]):6.0f} us {share:.3f} of a loop {LOOP_OF_REFERENCE * share:5.0f} us {instructions(lambda: make(config)):7} instructions")


if __name__ == "__main__": main()
