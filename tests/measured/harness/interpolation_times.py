"""Times upsample_bicubic2d alone, forward and backward, as position embeddings are resized: needs a card, half a minute.

usage: interpolation_times.py OUT.jsonl
A row for each operand: type, planes (batch times channels), from and to pixels a side, layout of the operand (contiguous, or channels
last as a permuted [1, h, w, c] is), microseconds of forward and backward, the median of five rounds.
"""
import json, sys

import torch

SIZES = [(7, 64), (7, 256), (14, 56), (14, 64), (16, 37), (37, 16), (37, 32), (37, 64), (14, 16), (32, 32)]
CHANNELS = [96, 384, 768, 1024]


def microseconds(run, repeat=5):
    times = []
    for _ in range(repeat + 2):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(1_000_000)  # the host gets ahead
        begin.record(); run(); end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1e3)
    return sorted(times[2:])[repeat // 2]


def main():
    with open(sys.argv[1], "w") as out:
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            for channels in CHANNELS:
                for small, large in SIZES:
                    for layout in ("contiguous", "channels_last"):
                        x = torch.randn(1, channels, small, small, device="cuda", dtype=dtype)
                        if layout == "channels_last":
                            x = x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
                        forward = lambda: torch.ops.aten.upsample_bicubic2d(x, [large, large], False, None, None)
                        y = forward()
                        g = torch.randn_like(y)
                        backward = lambda: torch.ops.aten.upsample_bicubic2d_backward(
                            g, [large, large], [1, channels, small, small], False, None, None)
                        row = dict(op="upsample_bicubic2d", dtype=str(dtype)[6:], planes=channels, size=small, to=large,
                                   layout=layout, forward_us=round(microseconds(forward), 2),
                                   backward_us=round(microseconds(backward), 2), gpu=torch.cuda.get_device_name(),
                                   torch=torch.__version__)
                        out.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
