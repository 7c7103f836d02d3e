"""What vLLM's packed broadcast asks of the trainer's allocator: a gibibyte at a time, on two streams that are made in each
update, without the broadcast."""
from contextlib import nullcontext

import torch

GIBIBYTE = 1 << 30


def packed_nccl_broadcast_producer(iterator, group, src, post_iter_func):
    on_card = torch.cuda.is_available()
    streams = [torch.cuda.Stream() if on_card else None for _ in range(2)]
    sent = [None, None]
    left = iter(iterator)
    turn, parts = 0, True
    while parts:
        if on_card: streams[turn].synchronize()
        sent[turn] = None
        with torch.cuda.stream(streams[turn]) if on_card else nullcontext():
            parts = []
            while sum(part.numel() for part in parts) <= GIBIBYTE:
                item = next(left, None)
                if item is None: break
                parts.append(post_iter_func(item).contiguous().view(torch.uint8).view(-1))
            if parts: sent[turn] = torch.cat(parts)
        turn = 1 - turn
    for stream in streams:
        if on_card: stream.synchronize()
