"""What the host takes for the Trainer's and TRL's walks over a model: five tiny models on the processor, two of them with adapters, in
turns with a loop of Python and a tiny LLaMA's forward on the card (without one on the processor).

usage: walks.py OUT.jsonl [SECONDS]        WALKS_WAIT=FILE: prepared, until there is such a file
First the models' numbers of modules and parameters; then of each part the least, the quartiles and the median in microseconds."""
import json
import os
import sys
import time
import warnings

warnings.filterwarnings("ignore")
for key, value in dict(TRANSFORMERS_VERBOSITY="error", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false").items():
    os.environ.setdefault(key, value)
import importlib.metadata  # noqa: E402

import accelerate  # noqa: E402
import accelerate.utils.modeling  # noqa: E402
import peft  # noqa: E402
import torch  # noqa: E402
import transformers as tf  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def llama(layers, lora=False, device="cpu"):
    config = tf.AutoConfig.for_model("llama", vocab_size=99, hidden_size=64, intermediate_size=128, num_hidden_layers=layers,
                                     num_attention_heads=4, num_key_value_heads=2)
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    with torch.device(device): model = tf.AutoModelForCausalLM.from_config(config, dtype=dtype)
    if lora: model = peft.get_peft_model(model, peft.LoraConfig(r=8, target_modules="all-linear", lora_dropout=0.0))
    return model.train()


def bert(layers):
    config = tf.AutoConfig.for_model("bert", vocab_size=99, hidden_size=64, num_attention_heads=4, intermediate_size=128,
                                     num_hidden_layers=layers)
    return tf.AutoModelForSequenceClassification.from_config(config).train()


def give_gradients(model):
    """clip_grad_norm_() needs what zero_grad() dropped."""
    for parameter in model.parameters():
        if parameter.requires_grad and parameter.grad is None: parameter.grad = torch.zeros_like(parameter)


def python():
    x = 0
    for i in range(30000): x += i & 7


def without_adapters(model):
    with model.disable_adapter(): pass


def parts(name, model, accelerator):
    base = model.get_base_model() if "lora" in name else model
    yield "train", lambda: model.train()
    yield "floating_point_ops", lambda: base.num_parameters(exclude_embeddings=True)
    yield "zero_grad", lambda: model.zero_grad()
    yield "parameters", lambda: list(model.parameters())
    yield "modules", lambda: list(model.modules())
    yield "unwrap", lambda: accelerator.unwrap_model(model)
    yield "clip", lambda: torch.nn.utils.clip_grad_norm_(model.parameters(), 1e9)
    yield "is_gradient_checkpointing", lambda: model.is_gradient_checkpointing
    yield "is_peft_model", lambda: accelerate.utils.modeling.is_peft_model(model)
    yield "checkpointing_off_on", lambda: (model.gradient_checkpointing_enable(), model.gradient_checkpointing_disable())
    if "lora" in name: yield "disable_adapter", lambda: without_adapters(model)


def main():
    torch.set_num_threads(1)
    out, budget = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 12
    models = {"bert-12": bert(12), "llama-4": llama(4), "llama-12": llama(12), "llama-4-lora": llama(4, True),
              "llama-12-lora": llama(12, True)}
    for model in models.values(): give_gradients(model)
    accelerator = accelerate.Accelerator(cpu=True)
    tiny, ids = llama(12, device=DEVICE), torch.randint(0, 90, (1, 16), device=DEVICE)
    calls = [("python", python), ("forward", lambda: tiny(input_ids=ids, labels=ids) and None)]
    for package in ("trl", "peft", "transformers", "torch", "accelerate"):
        calls.append((f"metadata_{package}", lambda package=package: importlib.metadata.version(package)))
    calls.append(("find_lomo", accelerate.utils.is_lomo_available))
    for name, model in models.items(): calls += [(f"{name} {part}", call) for part, call in parts(name, model, accelerator)]
    times = {name: [] for name, _ in calls}
    begun = None
    for turn in range(1_000_000):
        if turn == 2:
            while "WALKS_WAIT" in os.environ and not os.path.exists(os.environ["WALKS_WAIT"]): time.sleep(.05)
            begun = time.time()
        if begun and time.time() - begun > budget: break
        for name, call in calls:
            if DEVICE == "cuda" and name == "forward": torch.cuda.synchronize()
            begin = time.perf_counter()
            call()
            if begun: times[name].append(1e6 * (time.perf_counter() - begin))
            if name.endswith("zero_grad"): give_gradients(models[name.split()[0]])
    count = lambda model: dict(modules=sum(1 for _ in model.modules()), parameters=sum(1 for _ in model.parameters()),  # noqa: E731
                               trainable=sum(p.requires_grad for p in model.parameters()))
    with open(out, "a") as lines:
        head = dict(device=torch.cuda.get_device_name(0) if DEVICE == "cuda" else "cpu", python=sys.version.split()[0],
                    versions={m.__name__: m.__version__ for m in (torch, tf, accelerate, peft)},
                    models={name: count(model) for name, model in models.items()})
        lines.write(json.dumps(head) + "\n")
        for name, each in times.items():
            each.sort()
            at = lambda share: round(each[int(share * (len(each) - 1))], 1)  # noqa: E731
            row = dict(part=name, n=len(each), least=at(0), quarter=at(.25), median=at(.5), three_quarters=at(.75))
            lines.write(json.dumps(row) + "\n")


if __name__ == "__main__": main()
