"""A stand-in for vLLM 0.31.0 that takes no memory: completions are random tokens, all as long as they may be, with a log
probability each, on the host. Weights are copied nowhere. torch's cache is emptied where vLLM does it (v1/worker/
gpu_worker.py, init_device; utils/mem_utils.py, memory_profiling; device_allocator/cumem.py, sleep and wake_up)."""
import gc
import random
from types import SimpleNamespace

import torch

__version__ = "0.31.0"


class SamplingParams:
    def __init__(self, **keywords): self.__dict__.update(keywords)


class RequestOutput(SimpleNamespace): pass


def empty_cache():
    gc.collect()
    torch.cuda.empty_cache()


class LLM:
    def __init__(self, **keywords):
        model = SimpleNamespace(load_weights=list)
        worker = SimpleNamespace(model_runner=SimpleNamespace(model=model))
        self.llm_engine = SimpleNamespace(
            model_executor=SimpleNamespace(driver_worker=worker),
            model_config=SimpleNamespace(max_model_len=keywords.get("max_model_len") or 1 << 17))
        self.random = random.Random(0)
        empty_cache()

    def wake_up(self, tags=None): empty_cache()

    def sleep(self, level=1): empty_cache()

    def reset_prefix_cache(self): pass

    def tokens(self, count): return [self.random.randrange(3, 2000) for _ in range(count)]

    def generate(self, prompts, sampling_params=None, use_tqdm=False):
        outputs = []
        for prompt in prompts:
            tokens = self.tokens(sampling_params.max_tokens)
            scores = None
            if sampling_params.logprobs is not None:
                scores = [{token: SimpleNamespace(logprob=-7.6, rank=1)} for token in tokens]
            outputs.append(RequestOutput(prompt_token_ids=list(prompt["prompt_token_ids"]),
                                         outputs=[SimpleNamespace(token_ids=tokens, logprobs=scores)]))
        return outputs
