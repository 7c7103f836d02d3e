"""How many graphs torch.compile makes of a training forward, by family and without a card: tiny models on the CPU, a backend that counts its calls.

usage: compile_breaks.py OUT.jsonl [NAME …]
A line for each family (of families_streams.jsonl, and of inference_host.py's tiny models): at each number of layers what the third forward with labels calls:
"calls" graphs that hold an operator, "with_gradient" of them those whose result has a gradient (each has a backward graph), "alone" the same without labels, and why Dynamo
broke the graph. Backends do not decide where it breaks, nor does the device, but for kernels that only a card has (experts' grouped products, scans).
"""
import gc, json, sys, warnings
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
warnings.filterwarnings("ignore")
import torch
import torch._dynamo as dynamo
import transformers as tf
from inference_host import FAMILIES, tiny

DEPTHS = ("num_hidden_layers", "n_layer", "n_layers", "encoder_layers", "decoder_layers", "num_layers", "num_decoder_layers", "depth")
CALLS = []


def backend(graph, inputs):
    operators = sum(node.op in ("call_function", "call_method", "call_module") for node in graph.graph.nodes)
    def run(*given):
        got = graph.forward(*given)
        if operators: CALLS.append(any(isinstance(x, torch.Tensor) and x.requires_grad for x in torch.utils._pytree.tree_leaves(got)))
        return got
    return run


def counted(model, batch, steps=4):
    dynamo.reset()
    compiled = torch.compile(model, backend=backend)
    for _ in range(steps):
        CALLS.clear()
        out = compiled(**batch)
        del out
    return len(CALLS), sum(CALLS)


def batches(model, task):
    config = model.config
    ids = torch.randint(5, 90, (2, 24))
    if task == "image": given, labels = dict(pixel_values=torch.randn(2, 3, 32, 32)), torch.zeros(2, dtype=torch.long)
    elif task == "speech": given, labels = dict(input_features=torch.randn(2, config.num_mel_bins, 3000)), ids
    elif task == "seqcls": given, labels = dict(input_ids=ids), torch.zeros(2, dtype=torch.long)
    else: given, labels = dict(input_ids=ids), ids
    alone = dict(given)
    if task in ("seq2seq", "speech"): alone["decoder_input_ids"] = ids
    return dict(given, labels=labels), alone


def models():
    task_of = {"t5": "seq2seq", "bart": "seq2seq", "whisper": "speech", "bert": "mlm", "vit": "image"}
    for family in FAMILIES: yield family, task_of.get(family, "causal"), lambda layers, family=family: tiny(family, layers)
    classes = dict(causal=tf.AutoModelForCausalLM, mlm=tf.AutoModelForMaskedLM, seq2seq=tf.AutoModelForSeq2SeqLM, seqcls=tf.AutoModelForSequenceClassification)
    for line in (HERE / "families_streams.jsonl").read_text().splitlines():
        case = json.loads(line)
        def made(layers, case=case):
            config = dict(case["config"])
            for key in DEPTHS:
                if key in config: config[key] = layers
            for key in ("layer_types", "layers_block_type", "hybrid_override_pattern", "mlp_layer_types"):
                if isinstance(config.get(key), (list, str)): config[key] = (config[key] * 4)[:layers]
            cfg = tf.AutoConfig.for_model(config.pop("model_type"), **config)
            return classes[case["run"]["task"]].from_config(cfg)
        yield case["config"]["model_type"], case["run"]["task"], made


def main():
    torch.set_num_threads(1)
    for name, task, make in models():
        if sys.argv[2:] and name not in sys.argv[2:]: continue
        row = dict(family=name, task=task, torch=torch.__version__, transformers=tf.__version__, layers={})
        try:
            for layers in (2, 4):
                torch.manual_seed(0)
                model = make(layers).float().train()
                labelled, alone = batches(model, task)
                dynamo.utils.counters.clear()
                calls, gradients = counted(model, labelled)
                breaks = dict(dynamo.utils.counters["graph_break"])
                row["layers"][layers] = dict(calls=calls, with_gradient=gradients, alone=counted(model, alone)[0])
                row["why"] = {reason.split("\n")[0][:140]: count for reason, count in breaks.items()}
                del model; gc.collect()
        except Exception as error: row["error"] = repr(error)[:300]
        with open(sys.argv[1], "a") as out: out.write(json.dumps(row) + "\n")
        print(name, row.get("layers"), row.get("why"), row.get("error", "")[:120], flush=True)


if __name__ == "__main__": main()
