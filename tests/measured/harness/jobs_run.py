"""What a job of jobs.py is: the trainer that memcalc's arguments name, its data, its model of random weights, made on the card.
run(job) trains --steps steps (5), with evaluations every second step where there is --eval-bs, and returns the peaks of
trainer.train(): caches and peaks are reset right before it, peaks of several GPUs once the module is wrapped.

Chosen, where the arguments do not say: samples are words of a tokenizer that is made here, all as long as --seq says;
answers of DPO, KTO, ORPO and of a reward model end with the end's token, so --completion N is N - 1 words. Rewards come
from a function. A reference model is a second one beside the first: made on the card for DPO and KTO, but read by from_pretrained
of a saved checkpoint in jobs that keep the cache ("keep_cache") and for GRPO and RLOO, a copy (TRL's own default) for online DPO. Adapters: lora_alpha 16 (no bytes).
--vllm colocate|server: vllm_stand_in/ in the place of vLLM, which takes no memory: the trainer's own requests.
--gpus N --parallel ddp|fsdp1|fsdp2|ds-zeroN: the model made in host memory; each rank a process (begin_rank), or rank 0
alone in torch's fake process group."""
import contextlib
import os
import sys
import tempfile
import time
import warnings

warnings.filterwarnings("ignore")
for key, value in dict(TRANSFORMERS_VERBOSITY="error", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false",
                       TRL_EXPERIMENTAL_SILENCE="1", HF_DATASETS_DISABLE_PROGRESS_BARS="1").items():
    os.environ.setdefault(key, value)

ON_CPU = os.environ.get("JOBS_DEVICE") == "cpu"
DEVICE = "cpu" if ON_CPU else "cuda"
FLAGS = ("--eval-logits", "--padding", "--lora-head", "--padding-free", "--fp16", "--bf16", "--vllm-sleep", "--no-router-loss",
         "--label-smoothing", "--fsdp-backward-prefetch", "--float32-head", "--cut-cross-entropy", "--optimizer-in-backward",
         "--whole-logits", "--quantize-experts", "--no-prepare-kbit", "--use-cache", "--liger", "--dora", "--group-by-length", "--reentrant")
WORDS = 2000
STEPS = 5
TINY = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            head_dim=16, vocab_size=2100, ffn_dim=96, word_embed_proj_dim=64, n_embd=64, n_layer=2, n_head=4, dim=64,
            hidden_dim=96, n_layers=2, n_heads=4, d_model=64, d_kv=16, d_ff=96, num_layers=2, num_heads=4,
            encoder_layers=2, decoder_layers=2, encoder_ffn_dim=96, decoder_ffn_dim=96, encoder_attention_heads=4,
            decoder_attention_heads=4)
NAMED = {  # models that rows name
    "llama-3.2-1b": dict(model_type="llama", vocab_size=128256, hidden_size=2048, intermediate_size=8192,
                         num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8, head_dim=64,
                         max_position_embeddings=131072, tie_word_embeddings=True),
    "qwen2.5-0.5b": dict(model_type="qwen2", vocab_size=151936, hidden_size=896, intermediate_size=4864,
                         num_hidden_layers=24, num_attention_heads=14, num_key_value_heads=2,
                         max_position_embeddings=32768, tie_word_embeddings=True),
    "bert-base": dict(model_type="bert"),
}
OPTIMIZERS = {"adamw": "adamw_torch", "adamw-fused": "adamw_torch_fused", "adamw-8bit": "adamw_bnb_8bit",
              "lion": "lion_32bit", "lion-8bit": "lion_8bit", "paged-adamw": "paged_adamw_32bit"}


def import_all():
    """Before any fork; nothing of it starts CUDA."""
    if "JOBS_NO_VLLM" not in os.environ: sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "vllm_stand_in"))
    import accelerate, torch, transformers  # noqa: E401,F401
    import transformers.models.auto.modeling_auto  # noqa: F401
    from transformers import Seq2SeqTrainer, Trainer  # noqa: F401
    if "JOBS_LIGHT" in os.environ: return  # of the Trainer alone
    import datasets, peft  # noqa: E401,F401
    # No cache is wanted, and what functions close over is more than dill can pickle.
    datasets.fingerprint.Hasher.hash = classmethod(lambda cls, value: os.urandom(8).hex())
    for module in ("trl", "trl.experimental.orpo", "trl.experimental.online_dpo", "sentence_transformers"):
        try:
            __import__(module)
        except (ImportError, RuntimeError) as error:
            print(f"without {module}: {error}", flush=True)
    try:
        from trl import (DPOTrainer, GRPOTrainer, KTOTrainer, RewardTrainer, RLOOTrainer, SFTTrainer)  # noqa: F401
    except (ImportError, RuntimeError) as error:
        print(f"without TRL's trainers: {error}", flush=True)


def begin_rank(job, rank, port):
    """As torchrun starts a process."""
    world = job["arguments"][job["arguments"].index("--gpus") + 1]  # one, too: DeepSpeed asks who it is
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=world, LOCAL_WORLD_SIZE=world, LOCAL_SIZE=world,
                      MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    if not ON_CPU:
        import torch
        torch.cuda.set_device(rank)


class Job:
    def __init__(self, job):
        self.name, self.options, arguments = job["name"], {}, list(job["arguments"])
        self.keeps = job.get("keep_cache", False)  # what the construction reserved stays, and its requests are recorded, too
        self.extra = dict(job.get("extra", {}))  # of the configuration, without an option of memcalc's
        while arguments:
            key = arguments.pop(0)
            self.options[key] = True if key in FLAGS else arguments.pop(0)
        known = ("--loop --task --model --bs --seq --target-seq --precision --weights-dtype --checkpointing --accum "
                 "--optimizer --lora --lora-dropout --completion --eval-bs --eval-samples --eval-accum --eval-generate "
                 "--eval-beams --steps --ref-model --attn --packing --contrastive-loss --hard-negatives --mini-batch "
                 "--gpus --parallel --max-grad-norm --vllm --sft-loss --kto-loss --steps-per-generation --iterations "
                 "--grpo-loss --importance-level --pad-to-multiple --generations --stages --load --quantize --quant-storage "
                 "--lora-targets --lora-modules-to-save --save --freeze --transformers --trl --peft").split()
        unknown = set(self.options) - set(known) - set(FLAGS)
        if unknown: raise SystemExit(f"not understood: {sorted(unknown)}")
        if "--bf16" in self.options: self.options["--precision"] = "amp-bf16"
        if "--fp16" in self.options: self.options["--precision"] = "amp-fp16"
        self.config = dict(job.get("config") or NAMED[self.options["--model"]])
        # Of a sample "200/57/80": prompt, answer, and where there are two the rejected one.
        self.samples = [[int(n) for n in one.split("/")] for one in job["lengths"].split()] if "lengths" in job else None
        self.lengths = [sum(each[:2]) for each in self.samples] if self.samples else None  # of GRPO and RLOO: of prompts
        self.loop = self.options.get("--loop", "trainer")
        self.seq, self.bs, self.accum = self.number("--seq", 0), self.number("--bs", 1), self.number("--accum", 1)
        # Of a server's: as many as memcalc runs, since each takes streams of its own.
        self.steps = self.number("--steps", 3 if self.options.get("--vllm") == "server" else STEPS)
        self.completion = self.number("--completion", 0)
        self.per_generation = self.number("--steps-per-generation", self.accum)  # micro-batches
        every = self.per_generation * self.number("--iterations", 1)
        self.steps = max(self.steps, -(-every // self.accum) + 2) if every > self.accum else self.steps
        self.precision = self.options.get("--precision", "amp-bf16" if self.loop.startswith("trl-") else "fp32")
        self.zero_init = job.get("zero_init", False)  # else DeepSpeed gets a model that lies in host memory
        self.gpus, self.parallel = self.number("--gpus", 1), self.options.get("--parallel", "ddp")
        self.is_wrapped = self.gpus > 1 or self.parallel.startswith("ds-")
        if ON_CPU:
            import transformers as tf
            keys = tf.AutoConfig.for_model(self.config["model_type"]).__dict__
            self.config.update({k: v for k, v in TINY.items() if k in self.config or isinstance(keys.get(k), int)})
            if self.precision == "amp-fp16": self.precision = "amp-bf16"  # no float16 autocast on a CPU

    def number(self, key, otherwise):
        return int(self.options.get(key, otherwise))

    @property
    def train_samples(self):
        return self.bs * self.accum * self.gpus * self.steps

    @property
    def eval_samples(self):
        return self.number("--eval-samples", 64) if "--eval-bs" in self.options else 0


def tokenizer(types=False):
    """As decoders have one; `types`: as BERT's, which says token_type_ids, too."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast
    vocabulary = {"<pad>": 0, "<eos>": 1, "<unk>": 2, **{f"w{i}": i + 3 for i in range(WORDS)}}
    t = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    t.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    names = ["input_ids"] + types * ["token_type_ids"] + ["attention_mask"]
    return PreTrainedTokenizerFast(tokenizer_object=t, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>",
                                   bos_token="<eos>", model_input_names=names)


def words(r, n): return " ".join(f"w{r.randrange(WORDS)}" for _ in range(n))


def ids(r, n): return [r.randrange(3, WORDS) for _ in range(n)]


AUTO = {"causal": "CausalLM", "qa": "QuestionAnswering", "tokcls": "TokenClassification", "image": "ImageClassification", "images": "ImageTextToText", "seqcls": "SequenceClassification", "seq2seq": "Seq2SeqLM", "features": "",
        "speech": "SpeechSeq2Seq", "mlm": "MaskedLM"}


HEADS = {"seqcls": "SEQ_CLS", "tokcls": "TOKEN_CLS", "qa": "QUESTION_ANS"}  # peft's types of task, which train the head beside adapters


def make_model(job, task, labels=2):
    import torch
    import transformers as tf
    keys = dict(job.config)
    config = tf.AutoConfig.for_model(keys.pop("model_type"), **keys)
    if task == "seqcls": config.pad_token_id, config.num_labels = config.pad_token_id or 0, labels
    if job.config["model_type"] == "deit": config.architectures = ["DeiTForImageClassification"]  # there is one with a teacher, too
    if keys.get("d_kv"): config.decoder_start_token_id = config.pad_token_id = 0
    auto = getattr(tf, "AutoModel" + ("For" + AUTO[task] if AUTO[task] else ""))
    dtype = torch.bfloat16 if job.options.get("--weights-dtype") == "bf16" else torch.float32
    if "--cut-cross-entropy" in job.options:  # as axolotl's plugin calls it before a model is loaded
        from cut_cross_entropy.transformers.patch import cce_patch
        cce_patch(job.config["model_type"])
    if "--quantize" in job.options: return make_quantized(job, auto, config, dtype)
    on_host = job.is_wrapped or job.options.get("--load") == "host"
    with contextlib.nullcontext() if job.zero_init else torch.device("cpu" if on_host else DEVICE):
        return auto.from_config(config, dtype=dtype, attn_implementation=job.options.get("--attn"))


def prepare_whisper(generation):
    """generation_config as a multilingual checkpoint has it, language and task told; which tokens is chosen. (update() leaves out what the
    class has no attribute for: the jobs up to seed 12041 began with one token instead of four.) Of the last 1,502 tokens all but the first
    are times, as in a checkpoint."""
    told = dict(language="english", task="transcribe", is_multilingual=True, lang_to_id={"<|en|>": 4},
                task_to_id=dict(transcribe=5, translate=6), no_timestamps_token_id=50363, forced_decoder_ids=None,
                suppress_tokens=list(range(100, 188)), begin_suppress_tokens=[220, 221],
                decoder_start_token_id=3, pad_token_id=0, eos_token_id=1, bos_token_id=1)
    for key, value in told.items(): setattr(generation, key, value)


def make_quantized(job, auto, config, dtype):
    """Packed as from_pretrained packs it, from a checkpoint that this process writes first."""
    import torch
    import transformers as tf
    folder = tempfile.mkdtemp()
    with torch.device("cpu" if ON_CPU else DEVICE): auto.from_config(config, dtype=dtype).save_pretrained(folder)
    if not ON_CPU: torch.cuda.empty_cache()
    if "--quantize-experts" in job.options: pack_experts(job)
    storage = torch.bfloat16 if job.options.get("--quant-storage") == "bf16" else torch.uint8
    packed = tf.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_quant_storage=storage,
                                   bnb_4bit_use_double_quant=job.options["--quantize"] == "nf4-double",
                                   bnb_4bit_compute_dtype=torch.bfloat16)
    return auto.from_pretrained(folder, quantization_config=packed, dtype=dtype,
                                attn_implementation=job.options.get("--attn"))


def pack_experts(job):
    """axolotl's monkeypatch/moe_quant.py for 4 bits: what is set on the card with three dimensions in a module of experts is
    packed at once, and the cache is emptied; the loader's warm-up is left out."""
    import bitsandbytes as bnb
    import torch
    import transformers.core_model_loading as loading
    import transformers.modeling_utils
    from bitsandbytes.nn.parametrize import replace_parameter_4bit
    transformers.modeling_utils.caching_allocator_warmup = lambda *unused, **more: None
    set_one = loading.set_param_for_module

    def set_and_pack(model, target_name, param_value, *arguments, **more):
        set_one(model, target_name, param_value, *arguments, **more)
        if param_value.ndim < 3 or not param_value.is_cuda or "expert" not in target_name.lower(): return
        path, _, name = target_name.rpartition(".")
        module = model.get_submodule(path) if path else model
        if isinstance(module, (bnb.nn.Linear4bit, bnb.nn.Linear8bitLt)): return
        double = job.options["--quantize"] == "nf4-double"
        replace_parameter_4bit(module, name, compress_statistics=double, quant_type="nf4")
        param_value.data = torch.empty(0, device="cpu")
        torch.cuda.empty_cache()

    loading.set_param_for_module = set_and_pack


def freeze(job, model):
    """--freeze except:PATTERNS is axolotl's freeze_layers_except: a name that no pattern matches from its beginning."""
    import re
    if "--freeze" not in job.options: return
    parts = job.options["--freeze"].removeprefix("except:").split(",")
    others = job.options["--freeze"].startswith("except:")
    for name, parameter in model.named_parameters():
        named = any(re.match(part, name) if others else part in name for part in parts)
        parameter.requires_grad = named if others else not named


def lora(job):
    """None, or peft's configuration."""
    if "--lora" not in job.options: return None
    from peft import LoraConfig
    more = dict(task_type=HEADS[job.options.get("--task", "seqcls")]) if "--lora-head" in job.options else {}
    targets = job.options.get("--lora-targets", "all-linear")
    targets = targets.removeprefix("re:") if targets.startswith("re:") or targets == "all-linear" else targets.split(",")
    more.update(job.extra.get("lora", {}))
    if "--dora" in job.options: more["use_dora"] = True
    if "--lora-modules-to-save" in job.options: more["modules_to_save"] = job.options["--lora-modules-to-save"].split(",")
    return LoraConfig(r=job.number("--lora", 8), lora_alpha=16, target_modules=targets,
                      lora_dropout=float(job.options.get("--lora-dropout", 0)), **more)


def arguments_of(job):
    """Keywords of TrainingArguments, of which those of TRL and of sentence-transformers are made."""
    o = job.options
    kw = dict(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=job.bs, max_steps=job.steps, report_to="none",
              gradient_accumulation_steps=job.accum, save_strategy="no", logging_strategy="no", disable_tqdm=True,
              bf16=job.precision == "amp-bf16", fp16=job.precision == "amp-fp16")
    if ON_CPU: kw["use_cpu"] = True
    if "--liger" in o: kw["use_liger_kernel"] = True
    if "--group-by-length" in o: kw["train_sampling_strategy"] = "group_by_length"
    if "--label-smoothing" in o: kw["label_smoothing_factor"] = 0.1
    if "--checkpointing" in o or not job.loop.startswith("trl-"):
        kw["gradient_checkpointing"] = o.get("--checkpointing", "none") != "none"
        if o.get("--checkpointing", "none").startswith("every-"): kw["gradient_checkpointing_kwargs"] = dict(every_n_layers=int(o["--checkpointing"][6:]))
        if "--reentrant" in o: kw["gradient_checkpointing_kwargs"] = dict(use_reentrant=True)
    if "--optimizer" in o: kw["optim"] = OPTIMIZERS.get(o["--optimizer"], o["--optimizer"])
    if "--max-grad-norm" in o: kw["max_grad_norm"] = float(o["--max-grad-norm"])
    if "--eval-bs" in o:
        kw.update(per_device_eval_batch_size=job.number("--eval-bs", 8), eval_strategy="steps", eval_steps=2)
        if "--eval-accum" in o: kw["eval_accumulation_steps"] = job.number("--eval-accum", 1)
    kw.update({key: value for key, value in job.extra.items() if key not in ("st_loss", "lora")})
    if job.is_wrapped:
        if job.parallel.startswith("fsdp"):
            prefetch = dict(backward_prefetch="BACKWARD_PRE") if "--fsdp-backward-prefetch" in o else {}
            if "--save" in o: prefetch["state_dict_type"] = f"{o['--save'].upper()}_STATE_DICT"
            kw.update(fsdp=True, fsdp_config=dict(version=int(job.parallel[-1]), **prefetch))
        if job.parallel.startswith("ds-"):
            kw["deepspeed"] = dict(
                train_micro_batch_size_per_gpu="auto", train_batch_size="auto", gradient_accumulation_steps="auto",
                gradient_clipping="auto", bf16=dict(enabled="auto"), zero_force_ds_cpu_optimizer=False,
                fp16=dict(enabled="auto", initial_scale_power=4),  # so small that no step is skipped
                zero_optimization=dict(stage=int(job.parallel[-1]), reduce_bucket_size="auto",
                                       stage3_prefetch_bucket_size="auto",
                                       stage3_param_persistence_threshold="auto"))
    return kw


def make_trainer(job):
    if job.loop in ("sentence-transformer", "cross-encoder"):
        import jobs_sentences
        return jobs_sentences.trainer(job)
    if job.loop == "trainer": return plain_trainer(job)
    if "--whole-logits" in job.options:
        import jobs_llama_factory
        return jobs_llama_factory.trainer(job)
    return TRL[job.loop](job)


def plain_trainer(job):
    import random
    import torch
    import transformers as tf
    o, r = job.options, random.Random(1)
    task = o.get("--task", "causal")
    model = make_model(job, task)
    if "--quantize" in o and "--no-prepare-kbit" not in o:  # as peft's guide does it; TRL does not
        from peft import prepare_model_for_kbit_training
        model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=o.get("--checkpointing") == "full")
    if (adapters := lora(job)) is not None:
        from peft import get_peft_model
        model = get_peft_model(model, adapters)
        if o.get("--checkpointing") == "full": model.enable_input_require_grads()
    freeze(job, model)
    target = job.number("--target-seq", job.seq)
    if task == "speech":
        prepare_whisper(model.get_base_model().generation_config if "--lora" in o else model.generation_config)
        c = model.config
        speech = torch.randn(c.num_mel_bins, 2 * c.max_source_positions)
    if task == "image": picture = torch.randn(3, model.config.image_size, model.config.image_size)
    if task == "causal" and "--eval-generate" in o:
        whole = model.get_base_model() if "--lora" in o else model
        whole.generation_config.update(eos_token_id=1, pad_token_id=0, bos_token_id=1)

    def sample(n):
        text = ids(r, n)
        if task == "seqcls": return dict(input_ids=text, labels=r.randrange(2))
        if task == "tokcls": return dict(input_ids=text, labels=[each % 2 for each in text])
        if task == "image": return dict(pixel_values=picture, labels=r.randrange(2))
        if task == "qa": return dict(input_ids=text, start_positions=r.randrange(n), end_positions=r.randrange(n))
        if task == "speech": return dict(input_features=speech, labels=list(text))
        return dict(input_ids=text, labels=ids(r, target) if task == "seq2seq" else list(text))

    lengths = job.lengths or [job.seq] * (job.train_samples + job.eval_samples)
    data = [sample(n) for n in lengths]
    if "--padding" in o:  # every second text fills half of it
        for i, each in enumerate(data): each["attention_mask"] = [int(k < job.seq // (1 + i % 2)) for k in range(job.seq)]
    if job.samples and task == "seq2seq": data = [dict(input_ids=ids(r, a), labels=ids(r, b)) for a, b in job.samples]
    collate = tf.default_data_collator
    if job.lengths:
        pads = tf.DataCollatorWithPadding if task == "seqcls" else tf.DataCollatorForSeq2Seq
        collate = pads(tokenizer())
    else:
        data = [{key: torch.as_tensor(value) for key, value in each.items()} for each in data]
    keywords = arguments_of(job)
    Arguments, Trainer = tf.TrainingArguments, tf.Trainer
    more = {}
    if "--eval-generate" in o:
        Arguments, Trainer = tf.Seq2SeqTrainingArguments, tf.Seq2SeqTrainer
        # max_length counts the start of the decoder's ids; of a decoder the prompt, too; Whisper adds its start by itself.
        begins = {"seq2seq": 1, "causal": job.seq, "speech": 0}[task]
        keywords.update(predict_with_generate=True, generation_max_length=job.number("--eval-generate", 20) + begins,
                        generation_num_beams=job.number("--eval-beams", 1))
    if "--eval-logits" in o or "--eval-generate" in o: more["compute_metrics"] = lambda prediction: {}
    held = data[-job.eval_samples:] if job.eval_samples and not job.lengths else None
    return Trainer(model=model, args=Arguments(**keywords), train_dataset=data[:len(data) - job.eval_samples],
                   eval_dataset=held, data_collator=collate, **more)


def save_as_named(job, model):
    """A checkpoint that the model is named after: TRL reads a reference from it where none is given."""
    import torch
    folder = os.path.join(tempfile.gettempdir(), job.name + "-reference")
    model.save_pretrained(folder)  # of several processes the first alone writes
    if torch.distributed.is_initialized(): torch.distributed.barrier()
    model.config._name_or_path = folder


def trl_trainer(job, Config, Trainer, sample, task="causal", keywords=None, own_reference=False, processing=None, **more):
    """`sample`(random numbers, index) makes one. `keywords`: of the configuration."""
    import random
    import datasets
    r = random.Random(1)
    data = [sample(r, i) for i in range(job.train_samples if job.lengths is None else len(job.lengths))]
    args = None
    if job.zero_init: args = Config(**{**arguments_of(job), **(keywords or {})})  # from then on zero.Init builds models
    model = make_model(job, task, labels=1)
    if getattr(model, "generation_config", None) is not None:
        model.generation_config.eos_token_id = 1  # the tokenizer's
    if (adapters := lora(job)) is not None: more["peft_config"] = adapters
    if own_reference and not job.keeps: more["ref_model"] = make_model(job, task)
    elif own_reference: save_as_named(job, model)
    if job.eval_samples:
        count = job.eval_samples // (keywords or {}).get("num_generations_eval", 1)
        more["eval_dataset"] = datasets.Dataset.from_list([sample(r, i) for i in range(count)])
    if "--no-router-loss" in job.options: keywords = {**(keywords or {}), "router_aux_loss_coef": 0.0}
    if args is None: args = Config(**{**arguments_of(job), **(keywords or {})})
    return Trainer(model=model, args=args, train_dataset=datasets.Dataset.from_list(data),
                   processing_class=processing or tokenizer(), **more)


def images_sft(job):
    """A picture of the tower's size and words behind it in each sample, as SFTTrainer's own collator makes them."""
    import PIL.Image
    import trl
    import transformers as tf
    from tokenizers import AddedToken
    vision = job.config["vision_config"]
    words_of = tokenizer()
    words_of.add_tokens([AddedToken("<image>", special=True)])
    job.config["image_token_id"] = job.config["image_token_index"] = words_of.convert_tokens_to_ids("<image>")
    processor = tf.LlavaProcessor(tf.CLIPImageProcessor(size=dict(shortest_edge=vision["image_size"]), crop_size=vision["image_size"]), words_of,
                                  patch_size=vision["patch_size"], vision_feature_select_strategy="default", num_additional_image_tokens=1)
    taken = (vision["image_size"] // vision["patch_size"]) ** 2
    picture = PIL.Image.new("RGB", (vision["image_size"],) * 2, (90, 120, 30))
    sample = lambda r, i: dict(images=[picture], text="<image> " + words(r, job.seq - taken))  # noqa: E731
    return trl_trainer(job, trl.SFTConfig, trl.SFTTrainer, sample, "images", dict(max_length=None, remove_unused_columns=False), processing=processor)


def sft(job):
    import trl
    if "vision_config" in job.config: return images_sft(job)
    lengths = job.lengths
    keywords = dict(max_length=job.seq or max(lengths))
    if "--packing" in job.options: keywords.update(packing=True, packing_strategy=job.options["--packing"])
    if "--padding-free" in job.options: keywords.update(padding_free=True, max_length=None)
    if "--sft-loss" in job.options: keywords["loss_type"] = job.options["--sft-loss"]
    sample = lambda r, i: dict(input_ids=ids(r, lengths[i % len(lengths)] if lengths else job.seq))  # noqa: E731
    if "--pad-to-multiple" in job.options: keywords["pad_to_multiple_of"] = job.number("--pad-to-multiple", 1)
    if job.samples and len(job.samples[0]) > 1:
        sample = lambda r, i: dict(  # noqa: E731
            prompt=words(r, job.samples[i % len(job.samples)][0]),
            completion=" " + words(r, job.samples[i % len(job.samples)][1] - 1))
    if job.completion:  # answers alone are trained on where the data has prompts and completions
        sample = lambda r, i: dict(prompt=words(r, job.seq - job.completion),  # noqa: E731
                                   completion=" " + words(r, job.completion - 1))
    return trl_trainer(job, trl.SFTConfig, trl.SFTTrainer, sample, keywords=keywords)


def pair(job, added=0):
    """`added`: tokens that the trainer puts before a prompt."""
    if job.samples:
        parts = lambda i: job.samples[i % len(job.samples)]  # noqa: E731
        return lambda r, i: dict(prompt=words(r, parts(i)[0] - added), chosen=" " + words(r, parts(i)[1] - 1),
                                 rejected=" " + words(r, parts(i)[-1] - 1))
    return lambda r, i: dict(prompt=words(r, job.seq - job.completion - added), chosen=" " + words(r, job.completion - 1),
                             rejected=" " + words(r, job.completion - 1))


def referenced(job):
    """Of DPO and KTO, whose default reference TRL would load from a checkpoint: keywords, and whether one is made."""
    reference = job.options.get("--ref-model", "adapters" if "--lora" in job.options else "own")
    more = {"pad_to_multiple_of": job.number("--pad-to-multiple", 1)} if "--pad-to-multiple" in job.options else {}
    return dict(max_length=job.seq or 4096, **more, precompute_ref_log_probs=reference == "precomputed"), reference == "own"


def dpo(job):
    import trl
    keywords, own = referenced(job)
    return trl_trainer(job, trl.DPOConfig, trl.DPOTrainer, pair(job), keywords=keywords, own_reference=own)


def kto(job):
    import trl
    keywords, own = referenced(job)
    if "--kto-loss" in job.options: keywords["loss_type"] = job.options["--kto-loss"]
    parts = job.samples or [[job.seq - job.completion, job.completion]]
    sample = lambda r, i: dict(prompt=words(r, parts[i % len(parts)][0]),  # noqa: E731
                               completion=" " + words(r, parts[i % len(parts)][1] - 1), label=i % 2 == 0)
    return trl_trainer(job, trl.KTOConfig, trl.KTOTrainer, sample, keywords=keywords, own_reference=own)


def orpo(job):
    from trl.experimental.orpo import ORPOConfig, ORPOTrainer
    return trl_trainer(job, ORPOConfig, ORPOTrainer, pair(job, 1), keywords=dict(max_length=job.seq or 4096))


def cpo(job):
    from trl.experimental.cpo import CPOConfig, CPOTrainer
    return trl_trainer(job, CPOConfig, CPOTrainer, pair(job, 1), keywords=dict(max_length=job.seq or 4096))


def reward(job):
    import trl
    pairs = [(p + a, p + b) for p, a, b in job.samples] if job.samples else [(job.seq, job.seq)]
    sample = lambda r, i: dict(chosen_ids=ids(r, pairs[i % len(pairs)][0]),  # noqa: E731
                               rejected_ids=ids(r, pairs[i % len(pairs)][1]))
    return trl_trainer(job, trl.RewardConfig, trl.RewardTrainer, sample, "seqcls", dict(max_length=job.seq or 4096))


def constant_reward(prompts, completions, **unused): return [float(len(each) % 7) for each in completions]


def prompt(job):
    if job.lengths: return lambda r, i: dict(prompt=words(r, job.lengths[i % len(job.lengths)]))
    return lambda r, i: dict(prompt=words(r, job.seq - job.completion))


class NoServer:
    """TRL's VLLMClient without a server: weights are packed as for one."""
    def __init__(self, **unused): self.engine = __import__("vllm").LLM()
    def init_communicator(self, **unused): pass
    def get_server_info(self): return dict(model_config=dict(logprobs_mode="processed_logprobs"))
    def reset_prefix_cache(self): pass

    def update_named_params(self, metadata, named_params):
        from vllm.distributed.weight_transfer.packed_tensor import packed_nccl_broadcast_producer
        packed_nccl_broadcast_producer(named_params, group=None, src=0, post_iter_func=lambda item: item[1])

    def generate(self, prompts, n=1, max_tokens=16, logprobs=None, **unused):
        tokens = [self.engine.tokens(max_tokens) for _ in range(len(prompts) * n)]
        scores = None if logprobs is None else [[[-7.6] for _ in row] for row in tokens]
        return dict(prompt_ids=prompts, completion_ids=tokens, logprobs=scores, logprob_token_ids=None)


def of_vllm(job):
    """Keywords of the configuration. Pre: vllm_stand_in/ was on the path before TRL's trainers were imported."""
    mode = job.options.get("--vllm", "none")
    if mode == "none": return {}
    if mode == "server":
        import trl.generation.vllm_generation as generation
        generation.VLLMClient = NoServer
    return dict(use_vllm=True, vllm_mode=mode, vllm_enable_sleep_mode="--vllm-sleep" in job.options)


def generated(job, Config, Trainer):
    rows = job.bs * job.per_generation * job.gpus
    reference = job.options.get("--ref-model", "none")
    keywords = dict(max_completion_length=job.completion, beta=0.0 if reference == "none" else 0.04,
                    num_generations=job.number("--generations", next(n for n in range(2, rows + 1) if rows % n == 0)),
                    num_generations_eval=job.number("--generations", 2), remove_unused_columns=False,
                    steps_per_generation=job.per_generation, num_iterations=job.number("--iterations", 1),
                    **of_vllm(job))
    if "--grpo-loss" in job.options: keywords["loss_type"] = job.options["--grpo-loss"]
    if "--float32-head" in job.options: keywords["cast_lm_head_to_fp32"] = True
    if "--importance-level" in job.options: keywords["importance_sampling_level"] = job.options["--importance-level"]

    class WithReference(Trainer):  # TRL reads it from a checkpoint of the model
        def __init__(self, model, **more):
            if reference == "own": save_as_named(job, model)
            super().__init__(model=model, reward_funcs=constant_reward, **more)

    WithReference.__name__ = Trainer.__name__
    return trl_trainer(job, Config, WithReference, prompt(job), keywords=keywords)


def grpo(job):
    import trl
    return generated(job, trl.GRPOConfig, trl.GRPOTrainer)


def rloo(job):
    import trl
    return generated(job, trl.RLOOConfig, trl.RLOOTrainer)


def online_dpo(job):
    from trl.experimental.online_dpo import OnlineDPOConfig, OnlineDPOTrainer
    keywords = dict(max_new_tokens=job.completion, max_length=job.seq or 512)
    return trl_trainer(job, OnlineDPOConfig, OnlineDPOTrainer, prompt(job), keywords=keywords,
                       reward_funcs=constant_reward)


TRL = {"trl-sft": sft, "trl-dpo": dpo, "trl-kto": kto, "trl-orpo": orpo, "trl-cpo": cpo, "trl-reward": reward, "trl-grpo": grpo,
       "trl-rloo": rloo, "trl-online-dpo": online_dpo}


WARM_STEPS, SYNCHRONIZED, TOGETHER = 3, 6, 6


def for_times(job):
    """Of batches that are all alike with steps enough to time; nothing is saved."""
    arguments = list(job["arguments"])
    job = dict(job, extra={key: value for key, value in job.get("extra", {}).items() if not key.startswith("save")})
    for key in ("--save", "--stages", "--load"):
        if key in arguments: del arguments[arguments.index(key):arguments.index(key) + 2]
    generates = any(loop in arguments for loop in ("trl-grpo", "trl-rloo", "trl-online-dpo"))
    if "--steps" not in arguments: arguments += ["--steps", str(WARM_STEPS + SYNCHRONIZED + (-2 if generates else TOGETHER))]
    return dict(job, arguments=arguments)


def python_us():
    """A loop of Python: 1,064 us on a core of an H200's machine whose other thread is idle, 2,053 where it is busy (host_core.py)."""
    begin, x = time.perf_counter(), 0
    for i in range(30000): x += i & 7
    return 1e6 * (time.perf_counter() - begin)


def twice(trainer, job):
    """The batches of the steps in the order of the data, and then all of them again: sizes that libraries have not seen, then seen ones."""
    import torch
    rows, data = list(range(job.bs * job.accum * job.steps)) * 2, trainer.train_dataset
    trainer.train_dataset = data.select(rows) if hasattr(data, "select") else [data[i] for i in rows]
    trainer.args.max_steps = 2 * job.steps
    trainer._get_train_sampler = lambda *unused: torch.utils.data.SequentialSampler(trainer.train_dataset)


def level():
    """How many times as long as on the reference host the tiny models of memcalc.measure take now: forward, backward."""
    import importlib.util
    here = os.path.dirname(os.path.abspath(__file__))
    path = os.environ.get("JOBS_HOST", os.path.join(here, "../../../python/memcalc/measure/_host.py"))
    spec = importlib.util.spec_from_file_location("of_host", path)
    of_host = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(of_host)
    models = of_host.tiny_models()
    for each in models.values(): of_host.timed(*each, 2)
    return [round(each, 3) for each in of_host.factors_of({name: of_host.middle(of_host.timed(*each, 5)) for name, each in models.items()})]


def time_trainer(trainer, wait, of_lengths=False, keeps=False):
    """Seconds of steps: from the end of one, or of the evaluation behind it, to the end of the next, the device awaited at each,
    as ../trainer.jsonl has them (`each`); then of as many more that nothing waits for until the last is done (`together`, of one
    step; not beside evaluations). Where batches differ in width, of every step from the first on, in order (`steps_s`), and what
    each asked of the driver (`mallocs`). `python_us`: a loop of Python behind each. `wait` returns when the device is this job's alone."""
    import gc
    import torch
    import transformers as tf
    seconds, together, begun, mallocs, marks, clock = [], [], [], [], [], []
    evaluates = trainer.args.eval_strategy != "no"
    parts, last = None, trainer.args.max_steps  # `last`: the last step that is timed by itself
    if "JOBS_PARTS" in os.environ:
        import jobs_parts
        parts = jobs_parts.Parts(trainer, not ON_CPU)
        trainer.args.max_steps += jobs_parts.EXTRA

    def wait_for_device():
        if not ON_CPU: torch.cuda.synchronize()
        return time.perf_counter()

    class Clock(tf.TrainerCallback):
        def on_train_begin(self, *unused, **more): begun[:] = [time.perf_counter()]

        def on_step_begin(self, args, state, control, **more):
            if evaluates and state.global_step >= last: parts.begin_step()

        def on_evaluate(self, *unused, **more):
            if trainer.state.global_step > last: return
            if not ON_CPU:
                marks.append(torch.cuda.max_memory_allocated())
                torch.cuda.reset_peak_memory_stats()
            begun[:] = [wait_for_device()]

        def on_step_end(self, args, state, control, **more):
            self.end(state.global_step)
            if parts and not evaluates and state.global_step >= last: parts.begin_step()  # with what fetches the next batch

        def end(self, step):
            if step > last: return parts.end_step()
            if not ON_CPU: mallocs.append(torch.cuda.memory_stats()["num_device_alloc"])
            if step > WARM_STEPS + SYNCHRONIZED and not of_lengths and not evaluates:
                if step == last: together.append((wait_for_device() - begun[0]) / (step - WARM_STEPS - SYNCHRONIZED))
                return
            end = wait_for_device()
            seconds.append(end - begun[0])
            clock.append(round(python_us()))
            begun[:] = [time.perf_counter()]
            if evaluates and not ON_CPU:
                marks.append(torch.cuda.max_memory_allocated())
                torch.cuda.reset_peak_memory_stats()

    trainer.add_callback(Clock())
    gc.collect()
    wait()
    if not ON_CPU:
        if not keeps: torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    started = time.perf_counter()
    trainer.train()
    whole = time.perf_counter() - started
    each = sorted(seconds[1:] if of_lengths else seconds[WARM_STEPS:])
    logged = next((each for each in reversed(trainer.state.log_history) if "train_runtime" in each), {})
    more = dict(mallocs=mallocs) if of_lengths else {}
    if not ON_CPU: more.update(reserved=torch.cuda.max_memory_reserved())
    if parts: more.update(parts=parts.result)
    return dict(each=each, step_s=each[len(each) // 2] if each else None, together_s=together[0] if together else None,
                steps=trainer.state.global_step, steps_s=seconds, **more, runtime_s=logged.get("train_runtime"), train_s=whole,
                python_us=clock,
                peak=0 if ON_CPU else max([torch.cuda.max_memory_allocated(), *marks]))


def run_for_times(job, wait):
    import torch
    job = for_times(job)
    parsed = Job(job)
    torch.set_num_threads(2)
    torch.manual_seed(0)
    if not ON_CPU: torch.zeros(1, device="cuda")
    base = 0 if ON_CPU else torch.cuda.memory_allocated()
    if parsed.loop == "bare":
        import jobs_bare
        return jobs_bare.run(parsed, False, False, wait)
    if parsed.gpus > 1:
        import jobs_card
        jobs_card.begin_fake_group(parsed.gpus)
    trainer = make_trainer(parsed)
    if job.get("twice"): twice(trainer, parsed)
    result = time_trainer(trainer, wait, bool(parsed.samples), parsed.keeps)
    if not ON_CPU:
        try: result["level"] = level()
        except Exception as error: result["level"] = repr(error)[:200]
    return dict(result, allocated=result["peak"] - base, gpu=None if ON_CPU else torch.cuda.get_device_name(0), arguments=job["arguments"])


def run(job, rank=None):
    """The job's peaks: a process of its own runs it. `rank`: of those that begin_rank() began, else it is alone."""
    import gc
    import accelerate
    import torch
    import transformers as tf
    import jobs_card
    wants_events, wants_stacks = job.get("events", rank is None), job.get("stacks", True)
    as_told, job = job, Job(job)
    keeps = job.keeps
    if job.loop == "bare":
        import jobs_bare
        return jobs_bare.run(job, wants_events, wants_stacks)
    torch.set_num_threads(2 if rank is None or ON_CPU else 8)
    torch.manual_seed(0)
    cuda = torch.cuda
    if not ON_CPU: torch.zeros(1, device="cuda")  # starts CUDA
    if job.gpus > 1 and rank is None: jobs_card.begin_fake_group(job.gpus)
    if job.gpus == 1 and job.is_wrapped: begin_rank(as_told, 0, 29500 + os.getpid() % 4000)
    base = 0 if ON_CPU else cuda.memory_allocated()
    record = lambda: cuda.memory._record_memory_history(  # noqa: E731
        enabled="all", context="alloc" if wants_stacks else None, stacks="python", max_entries=4000000)
    made = 0 if ON_CPU else cuda.memory_stats()["allocation.all.allocated"]
    if keeps and wants_events and not ON_CPU: record()
    trainer = make_trainer(job)
    stamps, marks, requests = [], [], []

    class Clock(tf.TrainerCallback):
        def mark(self, what):
            """The peaks since the last mark."""
            if ON_CPU: return marks.append([what, 0, 0])
            cuda.synchronize()
            marks.append([what, cuda.max_memory_allocated() - base, cuda.max_memory_reserved()])
            requests.append(cuda.memory_stats()["allocation.all.allocated"])
            cuda.reset_peak_memory_stats()

        def on_train_begin(self, *unused, **more):
            if job.is_wrapped and not ON_CPU: cuda.reset_peak_memory_stats()  # what wraps the module is no step

        def on_step_begin(self, *unused, **more):
            if not ON_CPU: cuda.synchronize()
            stamps.append(time.perf_counter())

        def on_step_end(self, *unused, **more):
            self.mark("step")
            stamps.append(time.perf_counter())

        def on_evaluate(self, *unused, **more): self.mark("evaluation")

    trainer.add_callback(Clock())
    gc.collect()
    events = os.environ.get("EVENTS") if wants_events and not ON_CPU and not rank else None
    result = dict(versions={m.__name__: m.__version__ for m in (torch, tf, accelerate)})
    if not ON_CPU:
        if not keeps: cuda.empty_cache()
        else: result.update(built=cuda.memory_stats()["allocation.all.allocated"] - made, reserved_built=cuda.memory_reserved())
        cuda.reset_peak_memory_stats()
        result.update(gpu=cuda.get_device_name(0), before_training=cuda.memory_allocated() - base)
    if events:
        os.makedirs(events, exist_ok=True)
        if not keeps: record()
    if not ON_CPU: requests.append(cuda.memory_stats()["allocation.all.allocated"])
    trainer.train()
    Clock().mark("end")
    if "--save" in job.options:
        try:  # Trainer._save_checkpoint() does both; in a fake group what gathers objects fails, behind the peak
            trainer.save_model(tempfile.mkdtemp())
            if job.options["--save"] == "sharded": trainer._save_optimizer_and_scheduler(tempfile.mkdtemp())
        except Exception as error: unsaved = repr(error)[:300]
        else: unsaved = None
        Clock().mark("save")
    seconds = sorted(b - a for a, b in zip(stamps[2::2], stamps[3::2]))  # without the first step
    trained = [mark for mark in marks if mark[0] != "save"]
    result.update(allocated=max(peak for _, peak, _ in trained), reserved=max(peak for _, _, peak in trained), marks=marks,
                  step_s=seconds[len(seconds) // 2] if seconds else None,
                  seconds=[b - a for a, b in zip(stamps[::2], stamps[1::2])], steps=trainer.state.global_step,
                  parameters=sum(p.numel() for p in trainer.model.parameters()),
                  trainable=sum(p.numel() for p in trainer.model.parameters() if p.requires_grad),
                  optimizer=str(trainer.args.optim), checkpointing=bool(trainer.args.gradient_checkpointing))
    evaluations = [peak for what, peak, _ in marks if what == "evaluation"]
    if evaluations: result["evaluation"] = max(evaluations)
    if events: result["requests"] = [each - requests[0] for each in requests[1:]]  # until each mark
    if len(trained) < len(marks): result.update(save=marks[-1][1], unsaved=unsaved)
    if not ON_CPU: result["retries"] = cuda.memory_stats()["num_alloc_retries"]
    if events: jobs_card.write_events(os.path.join(events, job.name + ".tsv.gz"))
    return result
