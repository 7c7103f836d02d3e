"""What the host of a machine takes for models whose kernels take no time, on a core of its own: where Python's time goes in a token.

usage: inference_host.py OUT.jsonl [--seconds N] [--parts cores,turns,tokens,kinds,families,quantized,compiled]
Each part appends lines:
  core      a loop of Python on each core, microseconds; which one the main thread is then bound to
  steady    a tiny LLaMA's forward, bound to that core and not: quartiles, so that what the machine itself varies by is seen
  layer     one of bitsandbytes' layers or torch's Linear in a loop: microseconds of the host, and of the card in the profiler
  packed    a tiny LLaMA of such layers at two depths
  turns     of families at two depths and of packed LLaMAs, without autograd: a token with a cache (decode), forward, generate() of one and
            of five tokens take turns, so that each round sees one state of the machine; the milliseconds of each round. A process that
            does nothing else: a profiler slows it for good
  tokens    of families at two depths generate() of one and of 13 tokens, in turns as well; such a process, too
  kinds     the same of 1 and of 9 tokens, of LLaMAs with beams or packed, of experts, speech, and of models of images and text (a tower and a
            text of so many layers), each with one LLaMA in the round
  families  the same of families of families_streams.jsonl, with the tokens' LLaMA, GPT-2, OPT, T5 and BART in the round
  compiled  tiny models under torch.compile at two depths: forward and backward, launches of each, tensors in and out
"""
import argparse, json, os, statistics, sys, time, traceback, warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
SMALL = dict(vocab_size=99, hidden_size=64, num_attention_heads=4, intermediate_size=128)
FAMILIES = ("llama", "gpt2", "gpt_neox", "opt", "qwen2", "qwen3", "t5", "bart", "whisper", "gemma3_text", "granitemoe", "bert", "phi", "olmo2", "gemma2", "mixtral", "stablelm", "vit")
FAMILIES_OF_CALLS = ("llama", "gpt2", "opt", "t5", "bart", "mixtral", "granitemoe", "qwen2_moe", "glm", "glm4", "falcon", "bloom", "cohere", "ernie4_5", "exaone4", "granite", "hunyuan_v1_dense", "lfm2", "m2m_100",
                     "marian", "pegasus", "mpt", "nemotron", "olmo", "smollm3", "starcoder2", "gemma2")
TURNS = ("llama", "gpt2", "gpt_neox", "opt", "qwen3", "phi", "olmo2", "gemma3_text", "granitemoe", "t5", "bart", "whisper", "bert", "vit")


def tiny(family, layers, attention="sdpa"):
    import transformers as tf
    n, kv = dict(num_hidden_layers=layers), dict(num_key_value_heads=2)
    sides = dict(encoder_layers=layers, decoder_layers=layers, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=128, decoder_ffn_dim=128)
    ends = dict(bos_token_id=1, eos_token_id=2, pad_token_id=0)
    config = {
        "llama": lambda: tf.LlamaConfig(**kv, **SMALL, **n), "qwen2": lambda: tf.Qwen2Config(**kv, **SMALL, **n),
        "qwen3": lambda: tf.Qwen3Config(**kv, head_dim=16, **SMALL, **n), "gemma2": lambda: tf.Gemma2Config(**kv, head_dim=16, **SMALL, **n),
        "gemma3_text": lambda: tf.Gemma3TextConfig(**kv, head_dim=16, **SMALL, **n), "gpt2": lambda: tf.GPT2Config(vocab_size=99, n_embd=64, n_layer=layers, n_head=4, **ends),
        "gpt_neox": lambda: tf.GPTNeoXConfig(**SMALL, **n), "opt": lambda: tf.OPTConfig(vocab_size=99, hidden_size=64, ffn_dim=128, num_attention_heads=4, word_embed_proj_dim=64, **n),
        "phi": lambda: tf.PhiConfig(**SMALL, **n, **ends), "olmo2": lambda: tf.Olmo2Config(**SMALL, **n, **ends), "stablelm": lambda: tf.StableLmConfig(num_key_value_heads=4, **SMALL, **n, **ends),
        "granitemoe": lambda: tf.GraniteMoeConfig(num_local_experts=4, **kv, **SMALL, **n), "mixtral": lambda: tf.MixtralConfig(num_local_experts=4, **kv, **SMALL, **n),
        "qwen2_moe": lambda: tf.Qwen2MoeConfig(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32, shared_expert_intermediate_size=64, **kv, **SMALL, **n),
        "t5": lambda: tf.T5Config(vocab_size=99, d_model=64, d_kv=16, d_ff=128, num_layers=layers, num_heads=4, decoder_start_token_id=0, pad_token_id=0),
        "bart": lambda: tf.BartConfig(vocab_size=99, d_model=64, **sides), "bert": lambda: tf.BertConfig(**SMALL, **n),
        "whisper": lambda: tf.WhisperConfig(vocab_size=99, d_model=64, decoder_start_token_id=3, suppress_tokens=None, begin_suppress_tokens=None, **sides, **ends),
        "vit": lambda: tf.ViTConfig(hidden_size=64, num_attention_heads=4, intermediate_size=128, image_size=32, patch_size=8, **n)}[family]()
    cls = {"t5": tf.AutoModelForSeq2SeqLM, "bart": tf.AutoModelForSeq2SeqLM, "whisper": tf.AutoModelForSpeechSeq2Seq, "bert": tf.AutoModelForMaskedLM, "vit": tf.AutoModelForImageClassification}.get(family, tf.AutoModelForCausalLM)
    return cls.from_config(config, attn_implementation=attention).eval()


def calls_of(family, model, device):
    """{name: a call}: decode (one token with a cache), train (forward with labels), forward (without), generate (of so many tokens)."""
    import torch
    ids = torch.randint(5, 90, (1, 16), device=device)
    given = dict(input_features=torch.randn(1, 80, 3000, device=device, dtype=next(model.parameters()).dtype)) if family == "whisper" else dict(input_ids=ids)
    if family == "vit":
        image = dict(pixel_values=torch.randn(1, 3, 32, 32, device=device, dtype=next(model.parameters()).dtype), labels=torch.zeros(1, dtype=torch.long, device=device))
        return {"train": lambda: model(**image), "forward": lambda: model(pixel_values=image["pixel_values"])}
    calls = {"train": lambda: model(**given, labels=ids)}
    if family not in ("t5", "bart", "whisper"): calls["forward"] = lambda: model(**given)
    if family == "bert": return calls
    with torch.no_grad():
        if family in ("t5", "bart", "whisper"):
            encoded = model.get_encoder()(**given)
            past = model(encoder_outputs=encoded, decoder_input_ids=ids, use_cache=True).past_key_values
            calls["decode"] = lambda: model(encoder_outputs=encoded, decoder_input_ids=ids[:, :1], past_key_values=past, use_cache=True)
        else:
            past = model(input_ids=ids, use_cache=True).past_key_values
            place = torch.tensor([[16]], device=device)
            calls["decode"] = lambda: model(input_ids=ids[:, :1], past_key_values=past, position_ids=place, use_cache=True, logits_to_keep=1,
                                            attention_mask=torch.ones(1, past.get_seq_length() + 1, dtype=torch.long, device=device))
    # The same length each time: cuDNN makes a plan for each, which takes some 50 ms.
    calls["shorten"] = lambda: past.crop(16)
    calls["generate"] = lambda new: model.generate(**given, max_new_tokens=new, min_new_tokens=new, do_sample=False, num_beams=1, pad_token_id=0)
    return calls


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out"); parser.add_argument("--seconds", type=float, default=240); parser.add_argument("--parts", default="turns")
    parser.add_argument("--device", default="cuda")
    a = parser.parse_args()
    warnings.filterwarnings("ignore")
    import torch
    end, cuda = time.time() + a.seconds, a.device == "cuda"
    wait = torch.cuda.synchronize if cuda else (lambda: None)
    everywhere = os.sched_getaffinity(0)

    def emit(kind, **values):
        with open(a.out, "a") as out: out.write(json.dumps(dict(kind=kind, **values)) + "\n")
        print(kind, str(values)[:200], flush=True)

    def times(call, n, skip=3, after=lambda: None):
        got = []
        for _ in range(n + skip):
            after(); wait(); t = time.perf_counter(); out = call(); got.append(1e3 * (time.perf_counter() - t)); wait(); del out
        return got[skip:]

    def middle(values): return round(statistics.median(values), 4)

    def quartiles(values):
        s = sorted(values)
        return [round(s[int(q * (len(s) - 1))], 3) for q in (0, 0.1, 0.25, 0.5, 0.75, 0.9)]

    def launches(call):
        """(kernels, their milliseconds) of a call."""
        if not cuda: return 0, 0
        from torch.profiler import ProfilerActivity, profile
        with profile(activities=[ProfilerActivity.CUDA]) as p: call(); wait()
        events = [e for e in p.events() if str(e.device_type).endswith("CUDA")]
        return len(events), round(sum(e.device_time_total for e in events) / 1e3, 4)

    def cores(_):
        emit("machine", gpu=torch.cuda.get_device_name(0) if cuda else "none", torch=torch.__version__, python=sys.version.split()[0],
             cpu=next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), ""), cores=len(everywhere))
        llama = tiny("llama", 8).to(a.device, torch.bfloat16)
        calls = calls_of("llama", llama, a.device)
        call = calls["decode"]
        def loop():
            t = time.perf_counter(); x = 0
            for i in range(300000): x += i & 7
            return 1e6 * (time.perf_counter() - t)
        with torch.no_grad():
            emit("steady", bound=False, decode_ms=quartiles(times(call, 120, after=calls["shorten"])))
            each = {}
            for core in sorted(everywhere):
                os.sched_setaffinity(0, {core})
                each[core] = round(min(loop() for _ in range(2)))
            best = min(each, key=each.get)
            os.sched_setaffinity(0, {best})
            emit("core", microseconds=each, bound_to=best)
            emit("steady", bound=True, decode_ms=quartiles(times(call, 120, after=calls["shorten"])))
        return best

    def turns(_):
        """No profiler and no backward pass touches this process: both slow later calls (docs/time.md)."""
        from inference_times import pack
        todo = []  # (name, layers, call, the call, what comes before it)

        def add(name, family, layers, packed=None, dtype=torch.bfloat16):
            model = tiny(family, layers).to(a.device, dtype)
            if packed: pack(model, packed, dtype)
            calls = calls_of(family, model, a.device)
            if "decode" in calls: todo.append((name, layers, "decode", calls["decode"], calls["shorten"]))
            if packed: return
            if "forward" in calls: todo.append((name, layers, "forward", calls["forward"], lambda: None))
            if "generate" not in calls: return
            for new in (1, 5) if layers == 2 else (1,): todo.append((name, layers, f"generate{new}", lambda new=new: calls["generate"](new), lambda: None))

        def added(*what, **how):
            try: add(*what, **how)
            except Exception as error: emit("error", family=what[0], error=repr(error)[:200], where=traceback.format_exc()[-300:])

        for layers in (2, 8):
            for family in TURNS: added(family, family, layers)
            if cuda: added("llama-nf4", "llama", layers, packed="nf4")
            if cuda: added("llama-int8", "llama", layers, packed="int8", dtype=torch.float16)
            if cuda: added("llama-int8-bf16", "llama", layers, packed="int8")
        emit("machine", gpu=torch.cuda.get_device_name(0) if cuda else "none", torch=torch.__version__, python=sys.version.split()[0], cores=len(everywhere))
        taken, rounds, end = [[] for _ in todo], 0, time.time() + a.seconds
        with torch.no_grad():
            while time.time() < end and rounds < 400:
                for place, (_, _, _, call, before) in enumerate(todo): taken[place].append(times(call, 1, 0, before)[0])
                rounds += 1
        for place, (name, layers, kind, _, _) in enumerate(todo):
            emit("turn", name=name, layers=layers, call=kind, ms=[round(x, 3) for x in taken[place][3:]])

    def tokens(_):
        """As the turns, but each call goes on for twelve tokens: what a layer takes in the loop, whose code is in the caches."""
        todo = []
        for layers in (2, 8):
            for family in ("llama", "gpt2", "gpt_neox", "opt", "qwen3", "phi", "olmo2", "gemma3_text", "t5", "bart", "whisper", "granitemoe"):
                with torch.no_grad(): todo.append((family, layers, calls_of(family, tiny(family, layers).to(a.device, torch.bfloat16), a.device)["generate"]))
        taken, end = {}, time.time() + a.seconds
        with torch.no_grad():
            while time.time() < end:
                for family, layers, generate in todo:
                    for new in (1, 13):
                        wait(); t = time.perf_counter(); generate(new); wait()
                        taken.setdefault((family, layers, new), []).append(round((time.perf_counter() - t) * 1e3, 3))
        for (family, layers, new), ms in taken.items(): emit("tokens", name=family, layers=layers, new=new, ms=ms[1:])

    def kinds(_):
        """As the tokens."""
        from generate_streams import MODELS
        from inference_times import pack, with_images
        import transformers as tf
        todo = []  # (name, layers, layers of the tower, generate)

        def text(name, family, layers, packed=None, dtype=torch.bfloat16, **more):
            model = tiny(family, layers).to(a.device, dtype)
            if packed: pack(model, packed, dtype)
            ids = torch.randint(5, 90, (1, 16), device=a.device)
            given = dict(input_features=torch.randn(1, 80, 3000, device=a.device, dtype=dtype)) if family == "whisper" else dict(input_ids=ids)
            todo.append((name, layers, 0, lambda new: model.generate(**given, max_new_tokens=new, min_new_tokens=new, do_sample=False, pad_token_id=0, **dict(dict(num_beams=1), **more))))

        def images(name, layers, tower):
            config = json.loads(json.dumps(MODELS[name]))
            config["text_config"].update(num_hidden_layers=layers)
            config["vision_config"].update({"depth" if "depth" in config["vision_config"] else "num_hidden_layers": tower})
            config = tf.AutoConfig.for_model(config.pop("model_type"), **config)
            model = tf.AutoModelForImageTextToText.from_config(config, attn_implementation="sdpa").to(a.device, torch.bfloat16).eval()
            given = with_images(model, config, dict(images=1, batch_size=1, sequence_length=300), a.device)
            todo.append((name, layers, tower, lambda new: model.generate(**given, max_new_tokens=new, min_new_tokens=new, do_sample=False, num_beams=1, pad_token_id=0)))

        def added(function, *what, **how):
            try: function(*what, **how)
            except Exception as error: emit("error", family=what[0], error=repr(error)[:200], where=traceback.format_exc()[-300:])

        with torch.no_grad():
            for layers in (2, 8):
                for family in ("llama", "granitemoe", "mixtral", "qwen2_moe", "t5", "whisper"): added(text, family, family, layers)
                for family in ("llama", "t5"): added(text, f"{family}-beam4", family, layers, num_beams=4)
                if not cuda: continue
                added(text, "llama-nf4", "llama", layers, packed="nf4")
                added(text, "llama-int8", "llama", layers, packed="int8", dtype=torch.float16)
                added(text, "llama-int8-bf16", "llama", layers, packed="int8")
            for name in ("llava", "internvl", "paligemma", "qwen2_vl", "qwen2_5_vl", "qwen3_vl", "gemma3"):
                for layers, tower in ((2, 3), (2, 9)) + (((8, 3),) if name in ("llava", "qwen2_5_vl") else ()): added(images, name, layers, tower)
            taken, end = {}, time.time() + a.seconds
            while time.time() < end:
                for name, layers, tower, generate in list(todo):
                    for new in (1, 9):
                        try:
                            wait(); t = time.perf_counter(); generate(new); wait()
                            taken.setdefault((name, layers, tower, new), []).append(round((time.perf_counter() - t) * 1e3, 3))
                        except Exception as error:
                            emit("error", family=name, error=repr(error)[:200], where=traceback.format_exc()[-300:])
                            todo = [each for each in todo if each[3] is not generate]
                            break
        for (name, layers, tower, new), ms in taken.items(): emit("kinds", name=name, layers=layers, tower=tower, new=new, ms=ms[1:])

    def families(_):
        """As the kinds, generate() of 1 and of 9 tokens; in float32, in which cuDNN plans nothing."""
        from compile_breaks import models
        todo = []
        for name, task, make in models():
            if name not in FAMILIES_OF_CALLS: continue
            for layers in (2, 8):
                try:
                    model = make(layers).to(a.device).eval()
                    if model.generation_config.pad_token_id is None: model.generation_config.pad_token_id = 0
                    if getattr(model.config, "decoder_start_token_id", 0) is None: model.config.decoder_start_token_id = model.generation_config.decoder_start_token_id = 0
                    ids = torch.randint(5, 90, (1, 16), device=a.device)
                    with torch.no_grad(): model.generate(input_ids=ids, max_new_tokens=9, min_new_tokens=9, do_sample=False)
                    todo.append((name, layers, model, ids))
                except Exception as error: emit("error", family=name, error=repr(error)[:200], where=traceback.format_exc()[-300:])
        taken, end = {}, time.time() + a.seconds
        with torch.no_grad():
            while time.time() < end:
                for name, layers, model, ids in todo:
                    for new in (1, 9):
                        wait(); t = time.perf_counter(); model.generate(input_ids=ids, max_new_tokens=new, min_new_tokens=new, do_sample=False); wait()
                        taken.setdefault((name, layers, new), []).append(round((time.perf_counter() - t) * 1e3, 3))
        for (name, layers, new), ms in taken.items(): emit("families", name=name, layers=layers, new=new, ms=ms)

    def quantized(best):
        import bitsandbytes as bnb
        from inference_times import pack
        def layer(kind, ins, outs, dtype):
            if kind == "linear": return torch.nn.Linear(ins, outs, bias=False).to(a.device, dtype)
            if kind == "nf4":
                new = bnb.nn.Linear4bit(ins, outs, bias=False, compute_dtype=dtype, compress_statistics=False, quant_type="nf4")
            else: new = bnb.nn.Linear8bitLt(ins, outs, bias=False, has_fp16_weights=False, threshold=6.0 if kind == "int8" else 0.0)
            return new.to(dtype).cuda() if kind == "nf4" else new.half().cuda()
        for kind, dtype in (("linear", torch.bfloat16), ("nf4", torch.bfloat16), ("int8", torch.float16), ("int8-0", torch.float16), ("int8", torch.bfloat16)):
            for rows, ins, outs in ((1, 512, 512), (8, 512, 512), (128, 512, 512), (1, 2048, 2048), (8, 2048, 8192), (256, 2048, 2048)):
                for grad in (False, True):
                    if time.time() > end: return
                    if grad and rows != 128: continue
                    try:
                        made = layer(kind, ins, outs, dtype)
                        x = torch.randn(1, rows, ins, device=a.device, dtype=dtype, requires_grad=grad)
                        with torch.set_grad_enabled(grad):
                            made(x); made(x); wait()
                            loops = []
                            for _ in range(5):
                                wait(); t = time.perf_counter()
                                for _ in range(60): made(x)
                                loops.append(1e6 * (time.perf_counter() - t) / 60)
                            alone = times(lambda: made(x), 15)
                            kernels = launches(lambda: made(x))
                        row = dict(layer=kind, dtype=str(dtype), rows=rows, ins=ins, outs=outs, grad=grad, loop_us=round(statistics.median(loops), 2), alone_us=round(1e3 * middle(alone), 2), kernels=kernels[0], card_us=round(1e3 * kernels[1], 2))
                    except Exception as error: row = dict(layer=kind, rows=rows, error=repr(error)[:200])
                    emit("layer", **row)
        for kind, dtype in (("linear", torch.bfloat16), ("nf4", torch.bfloat16), ("int8", torch.float16)):
            if time.time() > end: return
            try:
                both = []
                for layers in (2, 8):
                    model = tiny("llama", layers).to(a.device, dtype)
                    if kind != "linear": pack(model, kind, dtype)
                    both.append(calls_of("llama", model, a.device)["decode"])
                with torch.no_grad():
                    got = [[], []]
                    for turn in range(3):
                        for which in (0, 1): got[which] += times(both[which], 7, 2)
                    emit("packed", layer=kind, layers=[2, 8], linears=7, decode_ms=[middle(g) for g in got], kernels=[launches(each)[0] for each in both])
            except Exception as error: emit("packed", layer=kind, error=repr(error)[:200], where=traceback.format_exc()[-300:])

    def compiled(best):
        for family, layers, mode in (("gpt2", 2, None), ("gpt2", 6, None), ("llama", 2, None), ("gpt2", 2, "reduce-overhead"), ("llama", 6, None), ("bert", 6, None)):
            if time.time() > end - 20: return
            os.sched_setaffinity(0, everywhere)
            try:
                torch._dynamo.reset()
                begin = time.time()
                model = tiny(family, layers).to(a.device, torch.bfloat16).train()
                run = torch.compile(model, mode=mode) if mode else torch.compile(model)
                ids = torch.randint(5, 90, (1, 16), device=a.device)
                def step():
                    wait(); t = time.perf_counter(); loss = run(input_ids=ids, labels=ids).loss; forward = time.perf_counter() - t
                    wait(); t = time.perf_counter(); loss.backward(); backward = time.perf_counter() - t; wait()
                    for p in model.parameters(): p.grad = None
                    return 1e3 * forward, 1e3 * backward
                for _ in range(4): step()
                took = time.time() - begin
                if best is not None: os.sched_setaffinity(0, {best})
                got = [step() for _ in range(25)][3:]
                with torch.no_grad(): pass
                row = dict(family=family, layers=layers, mode=mode or "default", compile_s=round(took, 1), parameters=sum(1 for _ in model.parameters()), forward_ms=middle([g[0] for g in got]), backward_ms=middle([g[1] for g in got]),
                           least_ms=[round(min(g[i] for g in got), 4) for i in (0, 1)])
                row["forward_kernels"] = launches(lambda: run(input_ids=ids, labels=ids))
                loss = run(input_ids=ids, labels=ids).loss
                row["backward_kernels"] = launches(lambda: loss.backward())
                eager = []
                for _ in range(12):
                    wait(); t = time.perf_counter(); loss = model(input_ids=ids, labels=ids).loss; f = time.perf_counter() - t
                    wait(); t = time.perf_counter(); loss.backward(); b = time.perf_counter() - t; wait()
                    eager.append((1e3 * f, 1e3 * b))
                row.update(eager_forward_ms=middle([e[0] for e in eager[3:]]), eager_backward_ms=middle([e[1] for e in eager[3:]]))
            except Exception as error: row = dict(family=family, layers=layers, mode=mode, error=repr(error)[:300])
            emit("compiled", **row)

    best = None
    for part in a.parts.split(","):
        try: best = dict(cores=cores, turns=turns, tokens=tokens, kinds=kinds, families=families, quantized=quantized, compiled=compiled)[part](best) or best
        except Exception as error: emit("error", part=part, error=repr(error)[:300], where=traceback.format_exc()[-500:])


if __name__ == "__main__": main()
