"""What generate() of small models of images and text, of encoder-decoders and of a decoder without a cache asks for and lets go of, recorded on the CPU: no card is needed, for
eager attention is made of ATen's operators on both.

usage: generate_streams.py FOLDER [NAME …]     writes FOLDER/NAME.json (the config.json) and FOLDER/NAME.events.gz
Of the second of two calls, in float32. A line of NAME.events: the bytes of a tensor's storage, rounded up to 512, as an operator makes it, or
as negative numbers, in their order, of those that died since the operator before. What an operator asks for within itself is not in it: on a card
some (isin, sums of integers, an index) do. Experts change to batched_mm for later tokens, as on a card.
"""
import contextlib, gzip, importlib.util, json, sys, warnings
from pathlib import Path

warnings.filterwarnings("ignore")
import torch, transformers as tf
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers.generation.utils import GenerationMixin

ROOT = Path(__file__).resolve().parents[3]
BATCH, TOKENS, NEW = 2, 60, 4
SMALL = dict(hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4)
TEXT = dict(SMALL, vocab_size=1000, num_key_value_heads=2, max_position_embeddings=512)
SIGLIP = dict(SMALL, model_type="siglip_vision_model", image_size=56, patch_size=14, vision_use_head=False)
QWEN_IDS = dict(image_token_id=900, video_token_id=901, vision_start_token_id=902, vision_end_token_id=903)
MODELS = {
    "llava": dict(model_type="llava", image_token_index=900, image_seq_length=16, vision_config=dict(SMALL, model_type="clip_vision_model", image_size=56, patch_size=14, projection_dim=64, vocab_size=1000),
                  text_config=dict(TEXT, model_type="llama")),
    "internvl": dict(model_type="internvl", image_token_id=900, downsample_ratio=0.5, image_seq_length=4, vision_config=dict(SMALL, model_type="internvl_vision", image_size=[56, 56], patch_size=[14, 14]),
                     text_config=dict(TEXT, model_type="qwen2")),
    "paligemma": dict(model_type="paligemma", image_token_index=900, projection_dim=128, hidden_size=128, vision_config=SIGLIP, text_config=dict(TEXT, model_type="gemma", head_dim=32)),
    "paligemma2": dict(model_type="paligemma", image_token_index=900, projection_dim=128, hidden_size=128, vision_config=SIGLIP,
                       text_config=dict(TEXT, model_type="gemma2", head_dim=32, sliding_window=16, query_pre_attn_scalar=32)),
    "gemma3": dict(model_type="gemma3", image_token_index=900, mm_tokens_per_image=16, vision_config=dict(SIGLIP, image_size=112),
                   text_config=dict(TEXT, model_type="gemma3_text", head_dim=32, sliding_window=512, query_pre_attn_scalar=32)),
    "qwen2_vl": dict(QWEN_IDS, model_type="qwen2_vl", vision_config=dict(model_type="qwen2_vl", embed_dim=128, hidden_size=128, depth=2, num_heads=4, patch_size=14),
                     text_config=dict(TEXT, model_type="qwen2_vl_text", rope_scaling=dict(type="mrope", mrope_section=[4, 6, 6]))),
    "qwen2_5_vl": dict(QWEN_IDS, model_type="qwen2_5_vl", vision_config=dict(model_type="qwen2_5_vl", hidden_size=128, out_hidden_size=128, depth=2, num_heads=4, patch_size=14, intermediate_size=256,
                                                                            fullatt_block_indexes=[1]),
                       text_config=dict(TEXT, model_type="qwen2_5_vl_text", rope_scaling=dict(type="mrope", mrope_section=[4, 6, 6]))),
    "qwen3_vl": dict(QWEN_IDS, model_type="qwen3_vl", vision_config=dict(model_type="qwen3_vl", hidden_size=128, out_hidden_size=128, depth=3, num_heads=4, patch_size=16, intermediate_size=256,
                                                                        deepstack_visual_indexes=[0, 1]),
                     text_config=dict(TEXT, model_type="qwen3_vl_text", head_dim=32, rope_scaling=dict(rope_type="default", mrope_section=[4, 6, 6]))),
    "mistral3": dict(model_type="mistral3", image_token_index=900, spatial_merge_size=2, vision_config=dict(SMALL, model_type="pixtral", image_size=56, patch_size=14, head_dim=32),
                     text_config=dict(TEXT, model_type="mistral", head_dim=32)),
}


SIDES = dict(vocab_size=1000, d_model=128, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=256, decoder_ffn_dim=256,
             max_position_embeddings=512, decoder_start_token_id=2)
T5 = dict(vocab_size=1000, d_model=128, d_kv=32, d_ff=256, num_layers=2, num_heads=4, decoder_start_token_id=0)
ENCODER_DECODERS = {
    "t5": dict(T5, model_type="t5"), "mt5": dict(T5, model_type="mt5", feed_forward_proj="gated-gelu", tie_word_embeddings=False), "bart": dict(SIDES, model_type="bart"), "mbart": dict(SIDES, model_type="mbart"),
    "pegasus": dict(SIDES, model_type="pegasus"), "marian": dict(SIDES, model_type="marian", pad_token_id=999), "m2m_100": dict(SIDES, model_type="m2m_100"), "blenderbot": dict(SIDES, model_type="blenderbot"),
    "whisper": dict(SIDES, model_type="whisper", pad_token_id=0, bos_token_id=1, eos_token_id=2, num_mel_bins=80, max_source_positions=100, max_target_positions=448),
}
DECODERS = {"mpt": dict(model_type="mpt", vocab_size=1000, d_model=128, n_layers=4, n_heads=4, max_seq_len=512)}  # use_cache is off


class Storages(TorchDispatchMode):
    def __init__(self): super().__init__(); self.alive, self.lines = {}, []

    def note_deaths(self):
        dead = [key for key, (reference, _) in self.alive.items() if reference.expired()]
        self.lines += sorted(-self.alive.pop(key)[1] for key in dead)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.note_deaths()
        given = {x.untyped_storage()._cdata for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)}
        result = function(*args, **(kwargs or {}))
        self.note_deaths()
        for x in tree_leaves(result):
            if not isinstance(x, torch.Tensor): continue
            storage = x.untyped_storage()
            size = -(-storage.nbytes() // 512) * 512
            if storage._cdata in given or storage._cdata in self.alive or size == 0: continue
            self.alive[storage._cdata] = (StorageWeakRef(storage), size)
            self.lines.append(size)
        return result


@contextlib.contextmanager
def as_on_a_card(model):
    """GenerationMixin._optimize_model_for_decode, which asks for another device than the CPU."""
    before = model.get_experts_implementation()
    switch = "grouped_mm" in before.values()
    if switch: model.set_experts_implementation({k: "batched_mm" if v == "grouped_mm" else v for k, v in before.items()})
    try: yield
    finally:
        if switch: model.set_experts_implementation(before)


def pictures():
    spec = importlib.util.spec_from_file_location("pictures", ROOT / "python/memcalc/record/_pictures.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["pictures"] = module
    spec.loader.exec_module(module)
    return module


def text_of(config):
    """A model of text or speech and what it is given."""
    speech = config.model_type == "whisper"
    model = (tf.AutoModelForSpeechSeq2Seq if speech else tf.AutoModelForSeq2SeqLM if config.is_encoder_decoder else tf.AutoModelForCausalLM).from_config(config, attn_implementation="eager").float().eval()
    if speech: return model, dict(input_features=torch.randn(BATCH, config.num_mel_bins, 2 * config.max_source_positions))
    return model, dict(input_ids=torch.randint(5, 100, (BATCH, TOKENS)))


def recorded(config, beams):
    config = dict(config)
    config = tf.AutoConfig.for_model(config.pop("model_type"), **config)
    if config.is_encoder_decoder or config.model_type in DECODERS:
        model, batch = text_of(config)
        return dict(batch=BATCH, sequence=TOKENS, image=0, new_tokens=NEW), events_of(model, batch, beams)
    model = tf.AutoModelForImageTextToText.from_config(config, attn_implementation="eager").float().eval()
    shown = pictures().pictures(config, type(model), 1, 56 if config.model_type == "mistral3" else 112 if config.model_type.startswith("qwen2") else None)
    ids = torch.randint(5, 100, (BATCH, max(TOKENS, shown.all_tokens + 20)))
    ids[:, 1:1 + shown.tokens] = shown.token_id
    batch = dict(input_ids=ids, **{k: torch.randn(v.shape) if v.is_floating_point() else v for k, v in shown.tensors(*ids.shape).items()})
    if shown.types: batch[shown.types] = (ids == shown.token_id).long()
    return dict(batch=BATCH, sequence=ids.shape[1], image=shown.edge, new_tokens=NEW), events_of(model, batch, beams)


def events_of(model, batch, beams):
    call = lambda: model.generate(**batch, max_new_tokens=NEW, min_new_tokens=NEW, do_sample=False, num_beams=beams, pad_token_id=0)
    with torch.no_grad():
        call()
        with Storages() as storages:
            result = call()
            storages.note_deaths()
    return storages.lines


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    GenerationMixin._optimize_model_for_decode = as_on_a_card
    for name in sys.argv[2:] or (*MODELS, *ENCODER_DECODERS, *DECODERS):
        config = (MODELS | ENCODER_DECODERS | DECODERS)[name]
        run, lines = recorded(config, 1)
        (folder / f"{name}.json").write_text(json.dumps(config, indent=1) + "\n")
        text = " ".join(map(str, run.values())) + "\n" + "".join(f"{line}\n" for line in lines)
        with open(folder / f"{name}.events.gz", "wb") as out: out.write(gzip.compress(text.encode(), mtime=0))
        print(name, run, len(lines), flush=True)


if __name__ == "__main__": main()
