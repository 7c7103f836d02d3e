"""A training step of diffusers' LoRA scripts, from latents and encoded prompts to the loss, around the denoising network that
is recorded: examples/dreambooth/train_dreambooth_lora_{flux,flux_kontext,sd3,qwen_image,z_image,flux2}.py and
examples/text_to_image/train_text_to_image_lora{,_sdxl}.py of diffusers 0.42. Variables of main() live until the next step
gives their names to others, so a step returns them all.

Which timestep a draw gives changes no size: sigmas and timesteps are numbers that the host draws.
"""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable

import torch

from ._solve import AUTOCAST_ON_16_BITS, PRECISIONS

Batch = dict[str, torch.Tensor]
Locals = dict[str, Any]
VAE_SCALE = 8  # pixels of a latent, each way


@dataclass
class Denoising:
    """What a step of a class of networks takes. `inputs`: of batch, latents' edge, text tokens."""

    step: Callable[[Any, Batch], Locals]
    inputs: Callable[[dict[str, Any], int, int, int], Batch]
    tokens: int                 # of the prompt, as the script encodes it
    image: int = 1024
    multiple: int = 16          # pixels that the image's side is a multiple of
    sizes: list[int] = field(default_factory=lambda: [512, 768, 1280, 1024])  # other sides to record at, pixels
    regions: bool = False       # gradient checkpointing of other parts than the items of lists
    precisions: tuple[str, ...] = PRECISIONS
    fixed: dict[str, str] = field(default_factory=dict)
    token_multiple: int = 1     # to which the network itself fills prompts up
    pipeline: str = ""          # diffusers' class whose functions the step calls


def _drawn(count: int, like: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    return torch.rand(count).to(device=like.device, dtype=dtype)


def _sigmas(like: torch.Tensor) -> torch.Tensor:
    """get_sigmas(): of each image one, with as many dimensions as the latents."""
    sigma = _drawn(like.shape[0], like, like.dtype)
    while sigma.dim() < like.dim(): sigma = sigma.unsqueeze(-1)
    return sigma


def _as_prepared(predicted: torch.Tensor) -> torch.Tensor:
    """accelerate's prepare(): outputs of a model that runs under autocast become float32."""
    return predicted.float() if torch.is_autocast_enabled("cuda") else predicted


def _weighted(predicted: torch.Tensor, target: torch.Tensor, weighting: torch.Tensor) -> torch.Tensor:
    loss = torch.mean((weighting.float() * (predicted.float() - target.float()) ** 2).reshape(target.shape[0], -1), 1)
    return loss.mean()


def _flow(batch: Batch, shift: float | None = 0.1, scale: float = 0.5) -> tuple[torch.Tensor, ...]:
    """Latents as the network's input, noise, timesteps, sigmas, the noisy latents."""
    model_input = (batch["latents"] - shift) * scale if shift is not None else batch["latents"] * scale
    noise = torch.randn_like(model_input)
    timesteps = _drawn(model_input.shape[0], model_input)
    sigmas = _sigmas(model_input)
    noisy = (1.0 - sigmas) * model_input + sigmas * noise
    return model_input, noise, timesteps, sigmas, noisy


def _flux(transformer: Any, batch: Batch) -> Locals:
    from diffusers import FluxPipeline
    model_input, noise, timesteps, sigmas, noisy = _flow(batch)
    count, channels, height, width = model_input.shape
    latent_image_ids = FluxPipeline._prepare_latent_image_ids(count, height // 2, width // 2, model_input.device, model_input.dtype)
    packed = FluxPipeline._pack_latents(noisy, batch_size=count, num_channels_latents=channels, height=height, width=width)
    guidance = None
    if transformer.config.guidance_embeds: guidance = torch.tensor([1.0], device=model_input.device).expand(count)
    predicted = _as_prepared(transformer(
        hidden_states=packed, timestep=timesteps / 1000, guidance=guidance, pooled_projections=batch["pooled_prompt_embeds"],
        encoder_hidden_states=batch["prompt_embeds"], txt_ids=batch["text_ids"], img_ids=latent_image_ids, return_dict=False)[0])
    predicted = FluxPipeline._unpack_latents(predicted, height=height * VAE_SCALE, width=width * VAE_SCALE, vae_scale_factor=VAE_SCALE)
    weighting = torch.ones_like(sigmas)
    target = noise - model_input
    loss = _weighted(predicted, target, weighting)
    return {"loss": loss, "locals": [model_input, latent_image_ids, noise, timesteps, sigmas, noisy, packed, guidance, predicted,
                                     weighting, target]}


def _flux_inputs(config: dict[str, Any], batch: int, edge: int, tokens: int) -> Batch:
    return {"latents": torch.empty(batch, config["in_channels"] // 4, edge, edge),
            "prompt_embeds": torch.empty(batch, tokens, config["joint_attention_dim"]),
            "pooled_prompt_embeds": torch.empty(batch, config["pooled_projection_dim"]), "text_ids": torch.empty(tokens, 3)}


def _kontext(transformer: Any, batch: Batch) -> Locals:
    """FLUX.1 Kontext: latents of the image that is edited follow the noisy ones, with places of their own."""
    from diffusers import FluxKontextPipeline as pipeline
    model_input = (batch["latents"] - 0.1) * 0.5
    cond_model_input = (batch["cond_latents"] - 0.1) * 0.5
    count, channels, height, width = model_input.shape
    latent_image_ids = pipeline._prepare_latent_image_ids(count, height // 2, width // 2, model_input.device, model_input.dtype)
    cond_latents_ids = pipeline._prepare_latent_image_ids(count, height // 2, width // 2, model_input.device, model_input.dtype)
    cond_latents_ids[..., 0].fill_(1)  # the script: [..., 0] = 1
    latent_image_ids = torch.cat([latent_image_ids, cond_latents_ids], dim=0)
    noise = torch.randn_like(model_input)
    timesteps = _drawn(count, model_input)
    sigmas = _sigmas(model_input)
    noisy = (1.0 - sigmas) * model_input + sigmas * noise
    packed = pipeline._pack_latents(noisy, batch_size=count, num_channels_latents=channels, height=height, width=width)
    places = packed.shape[1]
    packed_cond = pipeline._pack_latents(cond_model_input, batch_size=count, num_channels_latents=channels, height=height, width=width)
    packed = torch.cat([packed, packed_cond], dim=1)
    guidance = None
    if transformer.config.guidance_embeds: guidance = torch.tensor([1.0], device=model_input.device).expand(count)
    predicted = _as_prepared(transformer(
        hidden_states=packed, timestep=timesteps / 1000, guidance=guidance, pooled_projections=batch["pooled_prompt_embeds"],
        encoder_hidden_states=batch["prompt_embeds"], txt_ids=batch["text_ids"], img_ids=latent_image_ids, return_dict=False)[0])
    predicted = predicted[:, :places]
    predicted = pipeline._unpack_latents(predicted, height=height * VAE_SCALE, width=width * VAE_SCALE, vae_scale_factor=VAE_SCALE)
    weighting = torch.ones_like(sigmas)
    target = noise - model_input
    loss = _weighted(predicted, target, weighting)
    return {"loss": loss, "locals": [model_input, cond_model_input, latent_image_ids, cond_latents_ids, noise, timesteps, sigmas, noisy,
                                     packed, packed_cond, guidance, predicted, weighting, target]}


def _kontext_inputs(config: dict[str, Any], batch: int, edge: int, tokens: int) -> Batch:
    made = _flux_inputs(config, batch, edge, tokens)
    return made | {"cond_latents": torch.empty(made["latents"].shape)}


def _sd3(transformer: Any, batch: Batch) -> Locals:
    model_input, noise, timesteps, sigmas, noisy = _flow(batch)
    predicted = _as_prepared(transformer(
        hidden_states=noisy, timestep=timesteps, encoder_hidden_states=batch["prompt_embeds"],
        pooled_projections=batch["pooled_prompt_embeds"], return_dict=False)[0])
    predicted = predicted * (-sigmas) + noisy  # precondition_outputs, on unless it is switched off
    weighting = torch.ones_like(sigmas)
    target = model_input
    loss = _weighted(predicted, target, weighting)
    return {"loss": loss, "locals": [model_input, noise, timesteps, sigmas, noisy, predicted, weighting, target]}


def _sd3_inputs(config: dict[str, Any], batch: int, edge: int, tokens: int) -> Batch:
    return {"latents": torch.empty(batch, config["in_channels"], edge, edge),
            "prompt_embeds": torch.empty(batch, tokens, config["joint_attention_dim"]),
            "pooled_prompt_embeds": torch.empty(batch, config["pooled_projection_dim"])}


def _unet(unet: Any, batch: Batch) -> Locals:
    """Stable Diffusion 1.5, 2 and XL: noise of 1000 steps (DDPMScheduler.add_noise), the loss of F.mse_loss."""
    model_input = batch["latents"] * 0.13
    noise = torch.randn_like(model_input)
    timesteps = torch.zeros(model_input.shape[0], dtype=torch.long, device=model_input.device)

    def add_noise() -> torch.Tensor:
        unet.alphas_cumprod = torch.rand(1000).to(model_input.device)  # the scheduler's, which it keeps on the card
        alphas = unet.alphas_cumprod.to(dtype=model_input.dtype)

        def as_wide(factor: torch.Tensor) -> torch.Tensor:
            factor = factor.flatten()
            while factor.dim() < model_input.dim(): factor = factor.unsqueeze(-1)
            return factor

        kept = as_wide(alphas[timesteps].sqrt())  # ** 0.5, outside of autocast
        added = as_wide((1 - alphas[timesteps]).sqrt())
        return kept * model_input + added * noise

    noisy = add_noise()
    if unet.config.addition_embed_type == "text_time":
        conditions = {"time_ids": torch.zeros(model_input.shape[0], 6).to(device=model_input.device, dtype=model_input.dtype),
                      "text_embeds": batch["pooled_prompt_embeds"]}
        given = {"added_cond_kwargs": conditions}
    else: conditions, given = {}, {}
    predicted = _as_prepared(unet(noisy, timesteps, batch["prompt_embeds"], return_dict=False, **given)[0])
    loss = torch.nn.functional.mse_loss(predicted.float(), noise.float(), reduction="mean")
    return {"loss": loss, "locals": [model_input, noise, timesteps, noisy, conditions.get("time_ids"), predicted]}


def _unet_inputs(config: dict[str, Any], batch: int, edge: int, tokens: int) -> Batch:
    made = {"latents": torch.empty(batch, config["in_channels"], edge, edge),
            "prompt_embeds": torch.empty(batch, tokens, config["cross_attention_dim"])}
    if config["addition_embed_type"] == "text_time":
        pooled = config["projection_class_embeddings_input_dim"] - 6 * config["addition_time_embed_dim"]
        made["pooled_prompt_embeds"] = torch.empty(batch, pooled)
    return made


def _qwen_image(transformer: Any, batch: Batch) -> Locals:
    from diffusers import QwenImagePipeline
    model_input, noise, timesteps, sigmas, noisy = _flow(batch)
    count, channels, _, height, width = model_input.shape
    noisy = noisy.permute(0, 2, 1, 3, 4)
    packed = QwenImagePipeline._pack_latents(noisy, batch_size=count, num_channels_latents=channels, height=height, width=width)
    predicted = _as_prepared(transformer(
        hidden_states=packed, encoder_hidden_states=batch["prompt_embeds"], encoder_hidden_states_mask=None,
        timestep=timesteps / 1000, img_shapes=[(1, height // 2, width // 2)] * count, return_dict=False)[0])
    predicted = QwenImagePipeline._unpack_latents(predicted, height * VAE_SCALE, width * VAE_SCALE, VAE_SCALE)
    weighting = torch.ones_like(sigmas)
    target = noise - model_input
    loss = _weighted(predicted, target, weighting)
    return {"loss": loss, "locals": [model_input, noise, timesteps, sigmas, noisy, packed, predicted, weighting, target]}


def _qwen_image_inputs(config: dict[str, Any], batch: int, edge: int, tokens: int) -> Batch:
    return {"latents": torch.empty(batch, config["in_channels"] // 4, 1, edge, edge),
            "prompt_embeds": torch.empty(batch, tokens, config["joint_attention_dim"])}


def _flux2(transformer: Any, batch: Batch) -> Locals:
    from diffusers import Flux2Pipeline
    patched = Flux2Pipeline._patchify_latents(batch["latents"])
    model_input, noise, timesteps, sigmas, noisy = _flow({"latents": patched})
    edges = model_input.shape[2] * model_input.shape[3]
    ids = torch.zeros(edges, 4, dtype=torch.long).unsqueeze(0).expand(model_input.shape[0], -1, -1).to(device=model_input.device)
    packed = Flux2Pipeline._pack_latents(noisy)
    guidance = torch.full([1], 3.5, device=model_input.device).expand(model_input.shape[0])
    predicted = _as_prepared(transformer(
        hidden_states=packed, timestep=timesteps / 1000, guidance=guidance, encoder_hidden_states=batch["prompt_embeds"],
        txt_ids=batch["text_ids"], img_ids=ids, return_dict=False)[0])
    predicted = predicted[:, :packed.size(1):]
    # _unpack_latents_with_ids: the tokens in their places, here in the order in which they are
    count, channels, height, width = model_input.shape
    predicted = torch.stack([image.clone().view(height, width, channels).permute(2, 0, 1) for image in predicted], dim=0)
    weighting = torch.ones_like(sigmas)
    target = noise - model_input
    loss = _weighted(predicted, target, weighting)
    return {"loss": loss, "locals": [model_input, ids, noise, timesteps, sigmas, noisy, packed, guidance, predicted, weighting, target]}


def _flux2_inputs(config: dict[str, Any], batch: int, edge: int, tokens: int) -> Batch:
    return {"latents": torch.empty(batch, config["in_channels"] // 4, edge, edge),
            "prompt_embeds": torch.empty(batch, tokens, config["joint_attention_dim"]),
            "text_ids": torch.empty(batch, tokens, 4, dtype=torch.long, device="meta")}


def _z_image(transformer: Any, batch: Batch) -> Locals:
    model_input, noise, timesteps, sigmas, noisy = _flow(batch)
    normalized = (1000 - timesteps) / 1000
    unsqueezed = noisy.unsqueeze(2)
    images = list(unsqueezed.unbind(dim=0))
    prompts = list(batch["prompt_embeds"].unbind(dim=0))
    transformer.rope_embedder.freqs_cis = None  # as in the first step, which makes what the later ones find there
    predicted_list = transformer(images, normalized, prompts, return_dict=False)[0]
    if torch.is_autocast_enabled("cuda"): predicted_list = [each.float() for each in predicted_list]
    predicted = torch.stack(predicted_list, dim=0)
    predicted = predicted.squeeze(2)
    predicted = -predicted
    weighting = torch.ones_like(sigmas)
    target = noise - model_input
    loss = _weighted(predicted, target, weighting)
    return {"loss": loss, "locals": [model_input, noise, timesteps, sigmas, noisy, normalized, images, prompts, predicted_list, predicted,
                                     weighting, target]}


def _z_image_inputs(config: dict[str, Any], batch: int, edge: int, tokens: int) -> Batch:
    return {"latents": torch.empty(batch, config["in_channels"], edge, edge),
            "prompt_embeds": torch.empty(batch, tokens, config["cap_feat_dim"])}


# As the scripts have them: mixed precision over a frozen network of 16 bits.
_SCRIPTS = (AUTOCAST_ON_16_BITS,)
_CLIP_TOKENS = "CLIP encodes 77 tokens"
DENOISING = {
    "FluxTransformer2DModel": Denoising(_flux, _flux_inputs, tokens=512, pipeline="FluxPipeline"),
    "Flux2Transformer2DModel": Denoising(_flux2, _flux2_inputs, tokens=512, precisions=_SCRIPTS, pipeline="Flux2Pipeline"),
    "QwenImageTransformer2DModel": Denoising(_qwen_image, _qwen_image_inputs, tokens=512, precisions=_SCRIPTS, pipeline="QwenImagePipeline"),
    "SD3Transformer2DModel": Denoising(_sd3, _sd3_inputs, tokens=154, precisions=_SCRIPTS),
    "UNet2DConditionModel": Denoising(_unet, _unet_inputs, tokens=77, multiple=64, regions=True, precisions=(*_SCRIPTS, "autocast"),
                                      fixed={"sequence": _CLIP_TOKENS}),
    "ZImageTransformer2DModel": Denoising(_z_image, _z_image_inputs, tokens=512, precisions=_SCRIPTS, token_multiple=32,
                                          fixed={"batch": "the class takes images one by one"}),
}
# Of networks that edit an image.
EDITING = {"FluxTransformer2DModel": Denoising(_kontext, _kontext_inputs, tokens=512, precisions=(*PRECISIONS, AUTOCAST_ON_16_BITS), pipeline="FluxKontextPipeline")}

# Autoencoders of videos, to which an image is one frame.
ONE_FRAME = ("AutoencoderKLQwenImage",)


def encode_pixels(vae: Any, batch: Batch) -> dict[str, Any]:
    return {"latents": vae.encode(batch["pixel_values"].to(dtype=vae.dtype)).latent_dist.sample()}
