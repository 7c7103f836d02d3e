"""LoRA training of diffusion models as diffusers' scripts do it (examples/dreambooth/train_dreambooth_lora_*.py and
examples/text_to_image/train_text_to_image_lora_sdxl.py of diffusers 0.42), from latents and encoded prompts on, with random
weights. Runs are drawn and predicted before they are measured. A case is a line {"id", "run"}: memcalc's record of a run.

usage: diffusion.py draw SEED N OUT
       diffusion.py predict MEMCALC CASES OUT
       diffusion.py measure CASES OUT [--budget SECONDS]        on a card, with diffusers, peft and accelerate
       diffusion.py compare CASES PREDICTED MEASURED [--rows OUT]
"""
import json
import os
import random
import sys
import time
from pathlib import Path

from families import compare, lines_of, main, write_lines

ROOT = Path(__file__).resolve().parents[3]
MODELS = ("flux.1-dev", "sd3-medium", "z-image-turbo", "sdxl", "qwen-image", "sd3.5-medium", "sd3.5-large")
LARGEST = 72 << 30  # bytes of a card of 80 GB that a drawn run may need, as predicted


def known(name):
    """Class and configuration, as specs/programs/sources.json has them."""
    return next(m for m in json.loads((ROOT / "specs/programs/sources.json").read_text())["models"] if m.get("name") == name)


def draw(a):
    r = random.Random(a.seed)
    drawn = []
    for i in range(a.n):
        name = MODELS[i % len(MODELS)]
        run = dict(model=name, lora=r.choice([4, 8, 16, 32, 64]), image_size=r.choice([512, 640, 768, 1024, 1024]), batch_size=r.choice([1, 1, 2, 3]),
                   precision="amp-bf16", loop="bare", optimizer=r.choice(["adamw", "adamw", "adamw-fused"]))
        if name in ("sdxl", "sd3-medium") and r.random() < 0.3: run["precision"] = "amp-fp16"
        elif name == "flux.1-dev" and r.random() < 0.3: run["precision"] = "bf16"
        if name == "z-image-turbo": run["batch_size"] = 1
        run["checkpointing"] = "full" if r.random() < (0.5 if name in ("sdxl", "sd3-medium", "sd3.5-medium") else 0.8) else "none"
        if r.random() < 0.4: run["lora_targets"] = r.choice([["to_q", "to_v"], ["to_k", "to_q", "to_v", "to_out.0"], ["to_q", "ff.net.2"]])
        if r.random() < 0.2: run["max_grad_norm"] = 0
        if r.random() < 0.2 and name != "sdxl": run["sequence_length"] = r.choice([96, 160, 320] if name == "z-image-turbo" else [100, 77, 333])
        drawn.append(dict(id=f"diffusion-{a.seed}-{i}-{name}", run=run))
    write_lines(a.out, drawn)


def predict(a):
    import subprocess
    sys.path.insert(0, str(ROOT / "scripts"))
    import memcalc_rows
    said = []
    for case in lines_of(a.cases):
        words = ["--model", case["run"]["model"], *memcalc_rows.words_of(case["run"]), "--gpu", "NVIDIA H100 80GB HBM3"]
        answer = subprocess.run([a.memcalc, *words, "--format", "json"], capture_output=True, text=True)
        row = dict(id=case["id"])
        if answer.returncode > 1: row["refused"] = answer.stderr.strip()
        else:
            report = json.loads(answer.stdout)
            row.update(allocated=report["memory"]["peak_allocated_bytes"], reserved=report["memory"]["peak_reserved_bytes"],
                       ms=1e3 * (report.get("time") or {}).get("step_seconds", 0), run=report["run"])
            if row["reserved"] > LARGEST: print(f"{case['id']}: {row['reserved'] / (1 << 30):.1f} GiB, not measured", file=sys.stderr)
        said.append(row)
    write_lines(a.out, said)


# ---- on the card ----------------------------------------------------------------------------------------------------
def latents_of(kind, config, batch, edge, dtype):
    """What the scripts have cached: of each image its latents."""
    import torch
    channels = {"FluxTransformer2DModel": config.in_channels // 4, "QwenImageTransformer2DModel": config.in_channels // 4}.get(kind, config.in_channels)
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
    if kind == "SD3Transformer2DModel": return made(batch, tokens or 154, width), made(batch, config.pooled_projection_dim), None
    return made(batch, tokens or 512, width), None, None


def one(case):
    """main() of a script: its variables are this function's, which live from one step to the next."""
    import gc
    import warnings

    import diffusers
    import torch
    from accelerate import Accelerator
    from diffusers import DDPMScheduler, FlowMatchEulerDiscreteScheduler, FluxPipeline, QwenImagePipeline
    from diffusers.training_utils import cast_training_params, compute_density_for_timestep_sampling, compute_loss_weighting_for_sd3
    from peft import LoraConfig
    warnings.simplefilter("ignore")
    run, entry = case["run"], known(case["run"]["model"])
    kind, device = entry["model"], torch.device("cuda")
    half = {"amp-bf16": torch.bfloat16, "bf16": torch.bfloat16, "amp-fp16": torch.float16}.get(run["precision"])
    weight_dtype = half or torch.float32
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.zeros(1, device="cuda")
    gc.collect()
    torch.cuda.empty_cache()
    made = time.time()
    # As from_pretrained and .to(device, dtype) leave it: made elsewhere, one tensor after the other on the card.
    with torch.device("meta"): transformer = getattr(diffusers, kind)(**entry["config"])
    transformer = transformer.to(weight_dtype).to_empty(device="cuda")
    for name, parameter in transformer.named_parameters():
        if parameter.dim() > 1: parameter.data.normal_(0, 0.02)
        else: parameter.data.fill_(1.0 if name.endswith("weight") else 0.0)
    for buffer in transformer.buffers(): buffer.zero_()
    if kind == "QwenImageTransformer2DModel":  # its tables are no buffers, and those of the meta device have no data
        with torch.device("cpu"): transformer.pos_embed = type(transformer.pos_embed)(theta=10000, axes_dim=list(transformer.config.axes_dims_rope), scale_rope=True)
    transformer.requires_grad_(False)
    bsz, edge = run["batch_size"], run["image_size"] // 8
    latents = latents_of(kind, transformer.config, bsz, edge, weight_dtype)
    prompt_embeds, pooled_prompt_embeds, text_ids = prompts_of(kind, transformer.config, bsz, run.get("sequence_length"), weight_dtype)
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    if run["checkpointing"] == "full": transformer.enable_gradient_checkpointing()
    targets = run.get("lora_targets") or entry["lora_targets"]
    transformer.add_adapter(LoraConfig(r=run["lora"], lora_alpha=run["lora"], init_lora_weights="gaussian", target_modules=targets))
    if run["precision"] == "amp-fp16": cast_training_params([transformer], dtype=torch.float32)
    params_to_optimize = [p for p in transformer.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(params_to_optimize, lr=1e-4, betas=(0.9, 0.999), weight_decay=1e-4, eps=1e-8,
                                  **({"fused": True} if run["optimizer"] == "adamw-fused" else {}))
    accelerator = Accelerator(mixed_precision={"amp-bf16": "bf16", "amp-fp16": "fp16"}.get(run["precision"], "no"))
    transformer, optimizer = accelerator.prepare(transformer, optimizer)
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

    times, skipped = [], 0
    for step in range(case.get("steps", 4)):
        torch.cuda.synchronize()
        began = time.time()
        with accelerator.accumulate([transformer]):
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
                noise = torch.randn_like(model_input)
                u = compute_density_for_timestep_sampling(weighting_scheme="none", batch_size=bsz, logit_mean=0.0, logit_std=1.0, mode_scale=1.29)
                timesteps = flow.timesteps[(u * flow.config.num_train_timesteps).long()].to(device=device)
                sigmas = get_sigmas(timesteps, n_dim=model_input.ndim, dtype=model_input.dtype)
                noisy_model_input = (1.0 - sigmas) * model_input + sigmas * noise
                if kind == "FluxTransformer2DModel":
                    latent_image_ids = FluxPipeline._prepare_latent_image_ids(bsz, edge // 2, edge // 2, device, weight_dtype)
                    packed = FluxPipeline._pack_latents(noisy_model_input, batch_size=bsz, num_channels_latents=model_input.shape[1], height=edge, width=edge)
                    guidance = torch.tensor([1.0], device=device).expand(bsz)
                    model_pred = transformer(hidden_states=packed, timestep=timesteps / 1000, guidance=guidance, pooled_projections=pooled_prompt_embeds,
                                             encoder_hidden_states=prompt_embeds, txt_ids=text_ids, img_ids=latent_image_ids, return_dict=False)[0]
                    model_pred = FluxPipeline._unpack_latents(model_pred, height=edge * 8, width=edge * 8, vae_scale_factor=8)
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
            accelerator.backward(loss)
            if run.get("max_grad_norm", 1.0): accelerator.clip_grad_norm_(params_to_optimize, 1.0)
            optimizer.step()
            skipped += bool(accelerator.optimizer_step_was_skipped)
            optimizer.zero_grad()
        torch.cuda.synchronize()
        times.append(time.time() - began)
    return dict(gpu=torch.cuda.get_device_name(0), params=sum(p.numel() for p in transformer.parameters()),
                trainable=sum(p.numel() for p in params_to_optimize), peak_allocated=torch.cuda.max_memory_allocated(),
                peak_reserved=torch.cuda.max_memory_reserved(), step_ms_median=1e3 * sorted(times[1:])[len(times[1:]) // 2],
                loss=float(loss.detach()), skipped=skipped, torch=torch.__version__, diffusers=diffusers.__version__,
                adapter_dtype=str(params_to_optimize[0].dtype), wall_s=round(time.time() - made, 1))


def measure(a):
    end = time.time() + a.budget
    for case in lines_of(a.cases):
        if time.time() > end: break
        child = os.fork()  # nothing is imported before: diffusers starts CUDA
        if child == 0:
            row = dict(id=case["id"], run=case["run"])
            try:
                row.update(one(case))
            except Exception as error:
                import traceback
                row["error"] = repr(error)[:400] + traceback.format_exc()[-900:]
            with open(a.out, "a") as out: out.write(json.dumps(row) + "\n")
            print(case["id"], row.get("peak_allocated"), row.get("step_ms_median"), row.get("wall_s"), row.get("error", "")[:300], flush=True)
            os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main(__doc__, ((draw, ("seed", "n", "out")), (predict, ("memcalc", "cases", "out")), (measure, ("cases", "out")),
                   (compare, ("cases", "predicted", "measured"))), 230)
