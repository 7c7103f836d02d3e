"""Writes safetensors files for the tests: a header, and data of the right size that takes no room (a hole)."""
import json
import os
from pathlib import Path

BITS = {"F4": 4, "F6_E2M3": 6, "BOOL": 8, "I8": 8, "U8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "BF16": 16, "F16": 16,
        "F32": 32, "F64": 64, "I64": 64}


def elements(shape):
    count = 1
    for size in shape: count *= size
    return count


def header_of(tensors, metadata=None):
    """tensors: {name: (dtype, shape)}; returns the header and the bytes of data that it describes."""
    header, end = ({"__metadata__": metadata} if metadata is not None else {}), 0
    for name, (dtype, shape) in tensors.items():
        begin, end = end, end + elements(shape) * BITS[dtype] // 8
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}
    return header, end


def write_raw(path, header, data_bytes):
    """header: a JSON value, or bytes as they are."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        size = file.tell() + data_bytes
    os.truncate(path, size)
    return Path(path)


def write(path, tensors):
    return write_raw(path, *header_of(tensors, {"format": "pt"}))


def write_shards(folder, shards):
    """shards: {file: tensors}; returns the index."""
    for name, tensors in shards.items(): write(Path(folder) / name, tensors)
    index = Path(folder) / "model.safetensors.index.json"
    total = sum(header_of(tensors)[1] for tensors in shards.values())
    index.write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": {
        tensor: name for name, tensors in shards.items() for tensor in tensors}}))
    return index


def bert_base(prefix="bert.", norm=("gamma", "beta"), heads=True, dtype="F32"):
    """The tensors of google-bert/bert-base-uncased, as its authors' conversion named them."""
    weight, bias = norm
    tensors = {f"embeddings.{name}_embeddings.weight": (rows, 768)
               for name, rows in (("word", 30522), ("position", 512), ("token_type", 2))}
    tensors |= {f"embeddings.LayerNorm.{weight}": (768,), f"embeddings.LayerNorm.{bias}": (768,)}
    for i in range(12):
        layer = f"encoder.layer.{i}."
        for name, out, into in (("attention.self.query", 768, 768), ("attention.self.key", 768, 768),
                                ("attention.self.value", 768, 768), ("attention.output.dense", 768, 768),
                                ("intermediate.dense", 3072, 768), ("output.dense", 768, 3072)):
            tensors |= {f"{layer}{name}.weight": (out, into), f"{layer}{name}.bias": (out,)}
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            tensors |= {f"{layer}{name}.{weight}": (768,), f"{layer}{name}.{bias}": (768,)}
    tensors |= {"pooler.dense.weight": (768, 768), "pooler.dense.bias": (768,)}
    tensors = {prefix + name: shape for name, shape in tensors.items()}
    if heads:
        tensors |= {"cls.predictions.bias": (30522,), "cls.predictions.transform.dense.weight": (768, 768),
                    "cls.predictions.transform.dense.bias": (768,),
                    f"cls.predictions.transform.LayerNorm.{weight}": (768,),
                    f"cls.predictions.transform.LayerNorm.{bias}": (768,),
                    "cls.seq_relationship.weight": (2, 768), "cls.seq_relationship.bias": (2,)}
    return {name: (dtype, shape) for name, shape in tensors.items()}


BERT_CONFIG = {"model_type": "bert", "vocab_size": 30522, "hidden_size": 768, "num_hidden_layers": 12,
               "num_attention_heads": 12, "intermediate_size": 3072, "max_position_embeddings": 512,
               "type_vocab_size": 2}
