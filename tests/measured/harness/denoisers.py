"""What diffusion.py measures on a card: a step of diffusers' LoRA scripts (examples/dreambooth/train_dreambooth_lora_*.py and
examples/text_to_image/train_text_to_image_lora_sdxl.py of diffusers 0.42) with random weights. A frozen network is brought to
the card as those scripts do it, packed by bitsandbytes as from_pretrained does, or in float8 and with blocks that wait on the
host as kohya's trainers do (sd-scripts 48d368f, musubi-tuner 30c658c, whose mechanisms are written anew here).
"""
import contextlib
import gc
import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
LEAST_BLOCKS = 4  # fewer are not swapped: Z-Image's refiners
FP8_BLOCK = 64    # numbers of a row that share a scale (musubi-tuner)


def known(name):
    """Class and configuration, as specs/programs/sources.json has them."""
    models = {each["name"]: each for each in json.loads((ROOT / "specs/programs/sources.json").read_text())["models"] if "name" in each}
    return models[models[name].get("of", name)] | {"resident": "of" in models[name]}


# ---- the batch ------------------------------------------------------------------------------------------------------
def latents_of(kind, config, batch, edge, dtype):
    """What the scripts have cached: of each image its latents."""
    import torch
    channels = config.in_channels // 4 if kind in ("FluxTransformer2DModel", "Flux2Transformer2DModel", "QwenImageTransformer2DModel") else config.in_channels
    shape = (batch, channels, 1, edge, edge) if kind == "QwenImageTransformer2DModel" else (batch, channels, edge, edge)
    return torch.randn(shape, device="cuda", dtype=dtype)


def prompts_of(kind, config, batch, tokens, dtype):
    import torch
    def made(*shape): return torch.randn(*shape, device="cuda", dtype=dtype)
    if kind == "UNet2DConditionModel": return made(batch, 77, config.cross_attention_dim), made(batch, 1280), None
    if kind == "ZImageTransformer2DModel": return made(batch, tokens or 512, config.cap_feat_dim), None, None
    width = config.joint_attention_dim
    if kind == "FluxTransformer2DModel":
        return made(batch, tokens or 512, width), made(batch, config.pooled_projection_dim), made(tokens or 512, 3)
    if kind == "Flux2Transformer2DModel":
        return made(batch, tokens or 512, width), None, torch.zeros(batch, tokens or 512, 4, dtype=torch.long, device="cuda")
    if kind == "SD3Transformer2DModel": return made(batch, tokens or 154, width), made(batch, config.pooled_projection_dim), None
    return made(batch, tokens or 512, width), None, None


# ---- the frozen network ---------------------------------------------------------------------------------------------
def fill(module):
    """Random weights in place: what comes of them is finite."""
    for name, parameter in module.named_parameters():
        if parameter.dtype.itemsize < 2: continue  # float8: placed() made them
        elif parameter.dim() > 1: parameter.data.normal_(0, 0.02)
        else: parameter.data.fill_(1.0 if name.endswith("weight") else 0.0)


def lists_of_blocks(module, least=LEAST_BLOCKS):
    import torch
    return [(name, each) for name, each in module.named_children() if isinstance(each, torch.nn.ModuleList) and len(each) >= least]


def without_tables_of_meta(kind, network):
    """Rotary tables that are no buffers, which the meta device made without data."""
    import torch
    if kind == "QwenImageTransformer2DModel":
        with torch.device("cpu"): network.pos_embed = type(network.pos_embed)(theta=10000, axes_dim=list(network.config.axes_dims_rope), scale_rope=True)


def in_float8(network, scaled):
    """Before the network goes to the card: linear weights in float8_e4m3fn; scaled: those of the blocks but for norms and
    modulations, with a scale of 16 bits for 64 numbers of a row, by which a copy of 16 bits is multiplied in each forward."""
    import torch
    blocks = [name + "." for name, _ in lists_of_blocks(network, least=2)]

    def forward_of(layer):
        def forward(x):
            copy = layer.weight.to(layer.scale_weight.dtype)
            rows, groups, _ = layer.scale_weight.shape
            copy = copy.view(rows, groups, -1)
            copy = copy * layer.scale_weight
            return torch.nn.functional.linear(x, copy.view(layer.weight.shape), layer.bias)
        return forward

    for name, layer in network.named_modules():
        if not isinstance(layer, torch.nn.Linear): continue
        if scaled and ("norm" in name or "odulation" in name or not any(name.startswith(each) for each in blocks)): continue
        of = layer.weight.dtype
        layer.weight = torch.nn.Parameter(layer.weight.data.to(torch.float8_e4m3fn), requires_grad=False)
        if scaled:
            groups = layer.in_features // FP8_BLOCK if layer.in_features % FP8_BLOCK == 0 else 1
            layer.register_buffer("scale_weight", torch.ones(layer.out_features, groups, 1, dtype=of, device=layer.weight.device))
            layer.forward = forward_of(layer)


def packed_by_bitsandbytes(network, dtype, double):
    """create_quantized_param of diffusers' quantizer: one weight after the other goes to the card in 16 bits and is packed there."""
    import bitsandbytes
    import torch
    from peft import prepare_model_for_kbit_training
    largest = max(each.numel() for each in network.state_dict().values())
    drawn = (torch.randn(1 << 22) * 0.02).to(dtype).repeat(-(-largest >> 22))

    def value_of(shape): return drawn[:shape.numel()].view(shape)

    # from_pretrained's _caching_allocator_warmup (rows before 3021-10 and it had none)
    torch.empty(sum(each.numel() for each in network.state_dict().values()) // 4, dtype=dtype, device="cuda")
    for name, layer in list(network.named_modules()):
        if not isinstance(layer, torch.nn.Linear): continue
        with torch.device("meta"):
            made = bitsandbytes.nn.Linear4bit(layer.in_features, layer.out_features, layer.bias is not None, compute_dtype=dtype,
                                              compress_statistics=double, quant_type="nf4")
        made.source_cls = type(layer)
        made.requires_grad_(False)
        parent, _, last = name.rpartition(".")
        setattr(network.get_submodule(parent), last, made)
    for name, parameter in list(network.state_dict(keep_vars=True).items()):
        parent, _, last = name.rpartition(".")
        module = network.get_submodule(parent)
        value = value_of(parameter.shape)
        if isinstance(parameter, bitsandbytes.nn.Params4bit):
            module._parameters[last] = bitsandbytes.nn.Params4bit(value, requires_grad=False, **parameter.__dict__).to("cuda")
        elif last in module._parameters: module._parameters[last] = torch.nn.Parameter(value.to("cuda"), requires_grad=False)
        else: module._buffers[last] = torch.zeros(parameter.shape, dtype=parameter.dtype, device="cuda")
    for module in network.modules():
        for name, buffer in module._buffers.items():
            if buffer is not None and buffer.device.type == "meta": module._buffers[name] = torch.zeros(buffer.shape, dtype=buffer.dtype, device="cuda")
    network.is_loaded_in_4bit = True  # by which peft knows the layers (rows before 2026-11-29 16:00 were without)
    return prepare_model_for_kbit_training(network, use_gradient_checkpointing=False)


class Swaps:
    """Linear weights of a list's last blocks wait on the host, and change places with those of its first, a block at a time over
    the same memory: after block i of the forward pass, back after a block of backward. One thread, one stream."""

    def __init__(self, blocks, count):
        import torch
        self.blocks, self.count, self.threads, self.waiting = blocks, count, ThreadPoolExecutor(1), {}
        self.stream = torch.cuda.Stream()
        last = len(blocks) - 1
        for i, block in enumerate(blocks):
            behind = last - i
            swaps, waits = 0 < behind <= count, 0 < i <= count
            if swaps or waits: block.register_full_backward_hook(self._after_backward(len(blocks) - behind if swaps else None, count - behind, i - 1 if waits else None))
            block.register_forward_pre_hook(lambda *_, i=i: None if self._is_recomputed() else self.wait(i))
            block.register_forward_hook(lambda *_, i=i: None if self._is_recomputed() or i >= count else self.submit(i, len(blocks) - count + i))

    @staticmethod
    def _is_recomputed():
        import torch
        return torch._C._current_graph_task_id() != -1

    @staticmethod
    def linear_weights(block):
        return {name: each for name, each in block.named_modules() if getattr(each, "weight", None) is not None and type(each).__name__.endswith("Linear")}

    def _after_backward(self, out, back, before):
        def hook(module, inputs, outputs):
            if out is not None: self.submit(out, back)
            if before is not None: self.wait(before)
        return hook

    def submit(self, leaves, comes): self.waiting[comes] = self.threads.submit(self._swap, leaves, comes)

    def wait(self, block):
        import torch
        if block not in self.waiting: return
        torch.cuda.current_stream().wait_event(self.waiting.pop(block).result())

    def _swap(self, leaves, comes):
        import torch
        there, here = self.linear_weights(self.blocks[leaves]), self.linear_weights(self.blocks[comes])
        torch.cuda.synchronize()
        with torch.cuda.stream(self.stream):
            for name, layer in here.items():
                other = there.get(name)
                if other is None or other.weight.shape != layer.weight.shape or layer.weight.device.type != "cpu": continue
                on_card, on_host = other.weight.data, layer.weight.data
                kept = on_card.to("cpu")
                on_card.copy_(on_host)
                layer.weight.data = on_card
                other.weight.data = kept
        return self.stream.record_event()


def split_swapped(first, second, asked):
    """Of two lists: FLUX.1 (sd-scripts) and FLUX.2 (musubi-tuner)."""
    if second == 2 * first: return asked // 2, (asked - asked // 2) * 2
    share = second / first
    ahead = round(asked / (1 + share / 2))
    return ahead, round(ahead * share)


def loaded(kind, entry, run, dtype):
    """The frozen network on the card, and its swaps."""
    import diffusers
    import torch
    quantized, swapped = run.get("quantize"), run.get("blocks_to_swap", 0)
    with torch.device("meta"): network = getattr(diffusers, kind)(**entry["config"])
    network = network.to(dtype)
    without_tables_of_meta(kind, network)
    if quantized in ("nf4", "nf4-double"): return packed_by_bitsandbytes(network, dtype, quantized == "nf4-double"), []
    if quantized in ("fp8-cast", "fp8-scaled"): in_float8(network, quantized == "fp8-scaled")
    swaps = []
    if swapped:
        lists = [each for _, each in lists_of_blocks(network)]
        counts = [swapped] if len(lists) == 1 else split_swapped(len(lists[0]), len(lists[1]), swapped)
        swaps = list(zip(lists, counts))
        hosts = {id(layer.weight) for blocks, count in swaps for block in blocks[len(blocks) - count:] for layer in Swaps.linear_weights(block).values()}
    else: hosts = set()

    def placed(tensor):
        made = torch.empty_like(tensor, device="cpu" if id(tensor) in hosts else "cuda")
        if made.dtype.itemsize < 2: made.view(torch.uint8).zero_()
        return made

    def place(module):  # nn.Module._apply: children first
        for child in module.children(): place(child)
        for name, each in module._parameters.items():
            if each is not None: module._parameters[name] = torch.nn.Parameter(placed(each), requires_grad=False)
        for name, each in module._buffers.items():
            if each is not None: module._buffers[name] = torch.zeros_like(each, device="cuda")

    place(network)
    fill(network)
    if swaps:
        gc.collect()
        torch.cuda.empty_cache()
    return network, swaps


def residents_of(entry, dtype):
    """Autoencoder and text encoders on the card; what they make of a batch is made before the network runs."""
    import diffusers
    import torch
    import transformers
    shared = dict(block_out_channels=[128, 256, 512, 512], layers_per_block=2, down_block_types=["DownEncoderBlock2D"] * 4,
                  up_block_types=["UpDecoderBlock2D"] * 4, sample_size=1024)
    parts = {
        "part-vae-4-channels": lambda: diffusers.AutoencoderKL(**shared, latent_channels=4),
        "part-vae-16-channels": lambda: diffusers.AutoencoderKL(**shared, latent_channels=16, use_quant_conv=False, use_post_quant_conv=False),
        "part-clip-l-text": lambda: transformers.CLIPTextModel._from_config(transformers.CLIPTextConfig(
            hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12)),
        "part-clip-l-projected-text": lambda: transformers.CLIPTextModelWithProjection._from_config(transformers.CLIPTextConfig(
            hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12, projection_dim=768)),
        "part-clip-bigg-text": lambda: transformers.CLIPTextModelWithProjection._from_config(transformers.CLIPTextConfig(
            hidden_size=1280, intermediate_size=5120, num_hidden_layers=32, num_attention_heads=20, projection_dim=1280, hidden_act="gelu")),
        "part-t5-xxl-encoder": lambda: transformers.T5EncoderModel._from_config(transformers.T5Config(
            vocab_size=32128, d_model=4096, d_kv=64, d_ff=10240, num_layers=24, num_heads=64, feed_forward_proj="gated-gelu"))}

    def made(words):
        name, _, type_of = words.partition(".json.gz")
        with torch.device("meta"): part = parts[name]().to(torch.float32 if "float32" in type_of else dtype)
        part = part.to_empty(device="cuda")
        if hasattr(part, "tie_weights"): part.tie_weights()  # which to_empty unties (rows before 2026-11-29 22:00: T5's embedding twice)
        fill(part)
        for buffer in part.buffers(): buffer.copy_(torch.arange(buffer.numel()).view(buffer.shape)) if buffer.dtype == torch.long else buffer.zero_()
        return part.requires_grad_(False).eval()

    return made(entry["vae"]), [made(words) for words in entry["text_encoders"]]


# ---- a run ----------------------------------------------------------------------------------------------------------
def one(case, alone=None, write=None, profile=None):
    """main() of a script: its variables are this function's, which live from one step to the next. `alone`: waits for the card
    to be this process's, for the time of further steps; else times are those of the first. Behind that a step more lies in `profile`."""
    import warnings

    import diffusers
    import torch
    from accelerate import Accelerator
    from diffusers import DDPMScheduler, Flux2Pipeline, FlowMatchEulerDiscreteScheduler, FluxKontextPipeline, FluxPipeline, QwenImagePipeline
    from diffusers.training_utils import cast_training_params, compute_density_for_timestep_sampling, compute_loss_weighting_for_sd3
    from peft import LoraConfig
    warnings.simplefilter("ignore")
    run, entry = case["run"], known(case["run"]["model"])
    kind, device = entry["model"], torch.device("cuda")
    half = {"amp-bf16": torch.bfloat16, "bf16": torch.bfloat16, "amp-fp16": torch.float16}.get(run["precision"])
    weight_dtype = half or torch.float32
    torch.backends.cuda.matmul.allow_tf32 = False
    if case.get("harness", {}).get("without_cudnn_attention"): torch.backends.cuda.enable_cudnn_sdp(False)
    recorder = None
    if "history" in case:  # the allocator's requests, to this file
        import history
        recorder = history.Rec(True)

    def mark(name):
        if recorder is not None: recorder.mark(name)

    torch.zeros(1, device="cuda")
    gc.collect()
    torch.cuda.empty_cache()
    mark("start")
    made = time.time()
    transformer, swaps = loaded(kind, entry, run, weight_dtype)
    transformer.requires_grad_(False)
    bsz, edge = run["batch_size"], run["image_size"] // 8
    vae, text_encoders = residents_of(entry, weight_dtype) if entry["resident"] else (None, [])
    if vae is None: latents = latents_of(kind, transformer.config, bsz, edge, weight_dtype)
    else:
        pixel_values = torch.randn(bsz, 3, run["image_size"], run["image_size"])
        ids = [torch.ones(bsz, 512 if each.config.model_type == "t5" else 77, dtype=torch.long) for each in text_encoders]
    prompt_embeds, pooled_prompt_embeds, text_ids = prompts_of(kind, transformer.config, bsz, run.get("sequence_length"), weight_dtype)
    edits = entry.get("edits", False)
    if edits: cond_latents = latents_of(kind, transformer.config, bsz, edge, weight_dtype)
    gc.collect()
    torch.cuda.empty_cache()
    mark("built model and batch")
    torch.cuda.reset_peak_memory_stats()
    if run["checkpointing"] == "full": transformer.enable_gradient_checkpointing()
    targets = run.get("lora_targets") or entry["lora_targets"]
    transformer.add_adapter(LoraConfig(r=run["lora"], lora_alpha=run["lora"], init_lora_weights="gaussian", target_modules=targets))
    if str(run.get("quantize")).startswith("fp8") or swaps:  # a trainer makes its adapters on the card whatever the base is
        for name, parameter in transformer.named_parameters():
            if "lora_" in name: parameter.data = parameter.data.to("cuda", weight_dtype)
    if run["precision"] == "amp-fp16" or run.get("lora_dtype") == "fp32": cast_training_params([transformer], dtype=torch.float32)
    swaps = [Swaps(blocks, count) for blocks, count in swaps if count]
    params_to_optimize = [p for p in transformer.parameters() if p.requires_grad]
    if run["optimizer"] == "adamw-8bit":
        import bitsandbytes
        optimizer = bitsandbytes.optim.AdamW8bit(params_to_optimize, lr=1e-4, betas=(0.9, 0.999), weight_decay=1e-4, eps=1e-8)
    else: optimizer = torch.optim.AdamW(params_to_optimize, lr=1e-4, betas=(0.9, 0.999), weight_decay=1e-4, eps=1e-8,
                                        **({"fused": True} if run["optimizer"] == "adamw-fused" else {}))
    accelerator = Accelerator(mixed_precision={"amp-bf16": "bf16", "amp-fp16": "fp16"}.get(run["precision"], "no"))
    # What waits on the host stays there.
    transformer = accelerator.prepare_model(transformer, device_placement=run.get("quantize") is None and not swaps)
    optimizer = accelerator.prepare(optimizer)
    transformer.train()
    flow = FlowMatchEulerDiscreteScheduler()
    noise_scheduler = DDPMScheduler(beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear")

    def get_sigmas(timesteps, n_dim=4, dtype=torch.float32):
        sigmas = flow.sigmas.to(device=device, dtype=dtype)
        schedule_timesteps = flow.timesteps.to(device)
        timesteps = timesteps.to(device)
        step_indices = [(schedule_timesteps == t).nonzero().item() for t in timesteps]
        sigma = sigmas[step_indices].flatten()
        while len(sigma.shape) < n_dim: sigma = sigma.unsqueeze(-1)
        return sigma

    mark("step 0 zero_grad")  # nothing is dropped before the first step
    times, hosts, skipped, peaks, profiler = [], [], 0, None, contextlib.ExitStack()
    steps = case.get("steps", 4)
    timed = 5 if alone is not None else 0

    def row():
        middle = len(times[1:]) // 2
        return dict(gpu=torch.cuda.get_device_name(0), params=sum(p.numel() for p in transformer.parameters()),
                    trainable=sum(p.numel() for p in params_to_optimize), peak_allocated=peaks[0], peak_reserved=peaks[1], step_ms_median=1e3 * sorted(times[1:])[middle],
                    host_ms=round(1e3 * sorted(hosts[1:])[middle], 2), loss=float(loss.detach()), skipped=skipped, torch=torch.__version__,
                    diffusers=diffusers.__version__, adapter_dtype=str(params_to_optimize[0].dtype), wall_s=round(time.time() - made, 1))

    for step in range(steps + timed + (1 if profile is not None and timed else 0)):
        torch.cuda.synchronize()
        if timed and step == steps + timed:
            write(row())
            profiler.enter_context(profile(row()))
        if step == steps:
            peaks = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
            if recorder is not None:
                recorder.write(case["history"], dict(case))
                torch.cuda.memory._record_memory_history(enabled=None)
                recorder = None
            alone()
            times, hosts = [], []
        began = time.time()
        with accelerator.accumulate([transformer]):
            if vae is not None:
                with torch.no_grad():
                    batch = pixel_values.to(device)  # the loader's, a variable of the loop (rows before 2026-11-29 22:00: let go of here)
                    latents = vae.encode(batch.to(dtype=vae.dtype)).latent_dist.sample().to(weight_dtype)
                    for encoder, each in zip(text_encoders, ids): encoder(each.to(device))
            if kind == "UNet2DConditionModel":
                model_input = latents * 0.13025
                noise = torch.randn_like(model_input)
                timesteps = torch.randint(0, noise_scheduler.config.num_train_timesteps, (bsz,), device=device).long()
                noisy_model_input = noise_scheduler.add_noise(model_input, noise, timesteps)
                add_time_ids = torch.cat([torch.tensor([[1024, 1024, 0, 0, 1024, 1024]]).to(device, dtype=weight_dtype) for _ in range(bsz)])
                model_pred = transformer(noisy_model_input, timesteps, prompt_embeds,
                                         added_cond_kwargs={"time_ids": add_time_ids, "text_embeds": pooled_prompt_embeds}, return_dict=False)[0]
                loss = torch.nn.functional.mse_loss(model_pred.float(), noise.float(), reduction="mean")
            else:
                model_input = (latents - 0.1) * 0.5
                if kind == "Flux2Transformer2DModel": model_input = (Flux2Pipeline._patchify_latents(latents) - 0.1) * 0.5
                noise = torch.randn_like(model_input)
                u = compute_density_for_timestep_sampling(weighting_scheme="none", batch_size=bsz, logit_mean=0.0, logit_std=1.0, mode_scale=1.29)
                timesteps = flow.timesteps[(u * flow.config.num_train_timesteps).long()].to(device=device)
                sigmas = get_sigmas(timesteps, n_dim=model_input.ndim, dtype=model_input.dtype)
                noisy_model_input = (1.0 - sigmas) * model_input + sigmas * noise
                if edits:
                    cond_model_input = (cond_latents - 0.1) * 0.5
                    latent_image_ids = FluxKontextPipeline._prepare_latent_image_ids(bsz, edge // 2, edge // 2, device, weight_dtype)
                    cond_latents_ids = FluxKontextPipeline._prepare_latent_image_ids(bsz, edge // 2, edge // 2, device, weight_dtype)
                    cond_latents_ids[..., 0] = 1
                    latent_image_ids = torch.cat([latent_image_ids, cond_latents_ids], dim=0)
                    sizes = dict(batch_size=bsz, num_channels_latents=model_input.shape[1], height=edge, width=edge)
                    packed = FluxKontextPipeline._pack_latents(noisy_model_input, **sizes)
                    places = packed.shape[1]
                    packed_cond_input = FluxKontextPipeline._pack_latents(cond_model_input, **sizes)
                    packed = torch.cat([packed, packed_cond_input], dim=1)
                    guidance = torch.tensor([1.0], device=device).expand(bsz)
                    model_pred = transformer(hidden_states=packed, timestep=timesteps / 1000, guidance=guidance, pooled_projections=pooled_prompt_embeds,
                                             encoder_hidden_states=prompt_embeds, txt_ids=text_ids, img_ids=latent_image_ids, return_dict=False)[0]
                    model_pred = model_pred[:, :places]
                    model_pred = FluxKontextPipeline._unpack_latents(model_pred, height=edge * 8, width=edge * 8, vae_scale_factor=8)
                elif kind == "FluxTransformer2DModel":
                    latent_image_ids = FluxPipeline._prepare_latent_image_ids(bsz, edge // 2, edge // 2, device, weight_dtype)
                    packed = FluxPipeline._pack_latents(noisy_model_input, batch_size=bsz, num_channels_latents=model_input.shape[1], height=edge, width=edge)
                    guidance = torch.tensor([1.0], device=device).expand(bsz)
                    model_pred = transformer(hidden_states=packed, timestep=timesteps / 1000, guidance=guidance, pooled_projections=pooled_prompt_embeds,
                                             encoder_hidden_states=prompt_embeds, txt_ids=text_ids, img_ids=latent_image_ids, return_dict=False)[0]
                    model_pred = FluxPipeline._unpack_latents(model_pred, height=edge * 8, width=edge * 8, vae_scale_factor=8)
                elif kind == "Flux2Transformer2DModel":
                    model_input_ids = Flux2Pipeline._prepare_latent_ids(model_input).to(device=device)
                    packed = Flux2Pipeline._pack_latents(noisy_model_input)
                    guidance = torch.full([1], 3.5, device=device).expand(bsz)
                    model_pred = transformer(hidden_states=packed, timestep=timesteps / 1000, guidance=guidance, encoder_hidden_states=prompt_embeds,
                                             txt_ids=text_ids, img_ids=model_input_ids, return_dict=False)[0]
                    model_pred = model_pred[:, :packed.size(1):]
                    model_pred = Flux2Pipeline._unpack_latents_with_ids(model_pred, model_input_ids)
                elif kind == "QwenImageTransformer2DModel":
                    noisy_model_input = noisy_model_input.permute(0, 2, 1, 3, 4)
                    packed = QwenImagePipeline._pack_latents(noisy_model_input, batch_size=bsz, num_channels_latents=model_input.shape[1], height=edge, width=edge)
                    model_pred = transformer(hidden_states=packed, encoder_hidden_states=prompt_embeds, encoder_hidden_states_mask=None,
                                             timestep=timesteps / 1000, img_shapes=[(1, edge // 2, edge // 2)] * bsz, return_dict=False)[0]
                    model_pred = QwenImagePipeline._unpack_latents(model_pred, edge * 8, edge * 8, 8)
                elif kind == "ZImageTransformer2DModel":
                    timestep_normalized = (1000 - timesteps) / 1000
                    noisy_model_input_5d = noisy_model_input.unsqueeze(2)
                    noisy_model_input_list = list(noisy_model_input_5d.unbind(dim=0))
                    prompts = list(prompt_embeds.unbind(dim=0))
                    model_pred_list = transformer(noisy_model_input_list, timestep_normalized, prompts, return_dict=False)[0]
                    model_pred = torch.stack(model_pred_list, dim=0)
                    model_pred = model_pred.squeeze(2)
                    model_pred = -model_pred
                else:  # SD3
                    model_pred = transformer(hidden_states=noisy_model_input, timestep=timesteps, encoder_hidden_states=prompt_embeds,
                                             pooled_projections=pooled_prompt_embeds, return_dict=False)[0]
                    model_pred = model_pred * (-sigmas) + noisy_model_input
                weighting = compute_loss_weighting_for_sd3(weighting_scheme="none", sigmas=sigmas)
                target = model_input if kind == "SD3Transformer2DModel" else noise - model_input
                loss = torch.mean((weighting.float() * (model_pred.float() - target.float()) ** 2).reshape(target.shape[0], -1), 1)
                loss = loss.mean()
            mark(f"step {step} forward")
            accelerator.backward(loss)
            mark(f"step {step} backward")
            if run.get("max_grad_norm", 1.0): accelerator.clip_grad_norm_(params_to_optimize, 1.0)
            optimizer.step()
            skipped += bool(accelerator.optimizer_step_was_skipped)
            mark(f"step {step} optimizer")
            optimizer.zero_grad()
            mark(f"step {step + 1} zero_grad")
        hosts.append(time.time() - began)
        torch.cuda.synchronize()
        times.append(time.time() - began)
    profiler.close()
    if recorder is not None: recorder.write(case["history"], dict(case))
    if peaks is None: peaks = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    return row()
