"""The card's side of jobs_run.py: a process group of one rank alone, and the stream of requests."""
import gzip
import os


def begin_fake_group(gpus):
    """Rank 0 of so many, alone: collectives return at once (as in measure_trainer_ranks.py)."""
    import torch
    from torch.testing._internal.distributed.fake_pg import FakeStore
    world = str(gpus)
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE=world, LOCAL_WORLD_SIZE=world, LOCAL_SIZE=world,
                      MASTER_ADDR="127.0.0.1", MASTER_PORT="29861")
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=gpus)
    gathers = torch.distributed.all_gather_into_tensor

    def gather(output_tensor, input_tensor, *arguments, **keywords):
        """The fake group copies, row by row: accelerate's rows have other shapes, and may have a history."""
        with torch.no_grad(): return gathers(output_tensor, input_tensor.detach().reshape(-1), *arguments, **keywords)

    torch.distributed.all_gather_into_tensor = gather
    ddp = torch.nn.parallel.DistributedDataParallel
    made = ddp.__init__

    def hook(_, bucket):
        future = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    def make(self, *arguments, **keywords):
        """The reducer asks the group's work for a result, which the fake group's has not."""
        made(self, *arguments, **keywords)
        self.register_comm_hook(None, hook)

    ddp.__init__ = make


def write_events(path):
    """Each request: what, a number of the block, its bytes, the innermost functions outside of torch ("N=functions" when they are met for
    the first time, N then), the number of its stream (its place in the order in which streams are met); of a segment its address, too."""
    import torch
    numbers, made, met, streams = {}, 0, {}, {}
    with gzip.open(path, "wt") as out:
        for event in torch.cuda.memory._snapshot()["device_traces"][0]:
            address = (event["action"].startswith("segment"), event.get("addr", 0))
            if event["action"] in ("alloc", "segment_alloc"): numbers[address] = made = made + 1
            frames = [f"{os.path.basename(f['filename'])}:{f['line']}:{f['name']}" for f in event.get("frames", [])
                      if f["filename"].endswith(".py") and "-packages/torch/" not in f["filename"]]
            inner = [f"{os.path.basename(f['filename'])}:{f['line']}:{f['name']}" for f in event.get("frames", [])[:1]
                     if f["filename"].endswith(".py") and "-packages/torch/" in f["filename"]]
            functions = " ".join(inner + frames[:5])
            known = f"{met[functions]}" if functions in met else f"{len(met)}={functions}"
            met.setdefault(functions, len(met))
            stream = streams.setdefault(event.get("stream"), len(streams))
            line = f"{event['action']}\t{numbers.get(address, -1)}\t{event['size']}\t{known}\t{stream}"
            out.write(line + (f"\t{address[1]:x}\n" if address[0] else "\n"))
