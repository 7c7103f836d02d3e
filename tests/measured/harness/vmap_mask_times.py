"""CPU microseconds of the process for one causal mask: of packed rows (two indices under torch.vmap) and of a padded batch (one).

Run with transformers 4.57.6 (PYTHONPATH of pip install --no-deps --target) and with a later one; no card.
"""
import inspect, time, torch, transformers
from transformers import LlamaConfig
from transformers.masking_utils import create_causal_mask

torch.set_num_threads(1)
config = LlamaConfig(hidden_size=64, num_attention_heads=2, num_hidden_layers=1, intermediate_size=64, vocab_size=100)
config._attn_implementation = "sdpa"
S = 16
embeds, positions, padding = torch.zeros(2, S, 64), torch.arange(S), torch.ones(2, S, dtype=torch.long)
padding[0, 0] = 0
packed = torch.cat([torch.arange(S // 2)] * 2)[None]
old = "cache_position" in inspect.signature(create_causal_mask).parameters and transformers.__version__ < "5"
of = dict(config=config, past_key_values=None, **(dict(input_embeds=embeds, cache_position=positions) if old else dict(inputs_embeds=embeds)))
module = torch.nn.Identity()


def median_us(call, n=300):
    for _ in range(30): call()
    times = []
    for _ in range(n):
        start = time.process_time(); call(); times.append(time.process_time() - start)
    return 1e6 * sorted(times)[n // 2]


print(transformers.__version__, torch.__version__,
      "packed %.0f us" % median_us(lambda: create_causal_mask(attention_mask=None, position_ids=packed, **of)),
      "padded %.0f us" % median_us(lambda: create_causal_mask(attention_mask=padding, position_ids=positions[None], **of)),
      "module %.2f us" % median_us(lambda: module(embeds), 3000))
