"""Cases and rows in memcalc's words. A line of a file of cases is {"id", "run", "harness"}: what runs, by the record of a run
(docs/run.schema.json), and what no option of memcalc says (history, ranks, fake, ...). The scripts read both as one flat
dictionary; a row begins with the same three."""
import json, os

HERE = os.path.dirname(os.path.abspath(__file__))
RUN_KEYS = tuple(json.load(open(os.path.join(HERE, "../../../docs/run.schema.json")))["properties"])
OPTIM = {"adamw": "adamw_torch", "adamw-fused": "adamw_torch_fused", "adamw-8bit": "adamw_bnb_8bit", "paged-adamw": "paged_adamw_32bit",  # of the Trainer; others have memcalc's name
         "paged-adamw-8bit": "paged_adamw_8bit", "lion": "lion_32bit", "lion-8bit": "lion_8bit", "paged-lion": "paged_lion_32bit", "paged-lion-8bit": "paged_lion_8bit",
         "rmsprop-bnb": "rmsprop_bnb_32bit", "rmsprop-8bit": "rmsprop_bnb_8bit", "ademamix": "ademamix", "ademamix-8bit": "ademamix_8bit"}


def flat(line):
    return dict(id=line["id"], **line["run"], **line.get("harness", {}))


def head(case):
    """How a row of this case begins, and its line in a file of cases. The port of a process group is nobody's."""
    run = {k: case[k] for k in RUN_KEYS if k in case}
    harness = {k: v for k, v in case.items() if k not in run and k not in ("id", "port")}
    return dict(id=case["id"], run=run, **(dict(harness=harness) if harness else {}))


def read(path):
    return [flat(json.loads(l)) for l in open(path) if l.strip()]


def write(cases):
    for c in cases: print(json.dumps(head(c)))


def parallel_of(case):
    """How ranks that see different data work together (ddp, fsdp2, ...), or the only way in which all of them do."""
    kind, gpus = case.get("parallel", "ddp"), case.get("gpus", 1)
    if kind not in ("ddp", "none") or gpus > case.get("tp", 1) * case.get("cp", 1) * case.get("pp", 1): return "ep" if case.get("ep", 1) > 1 else kind
    return next((k for k in ("pp", "cp", "tp") if case.get(k, 1) > 1), kind)


def several_dimensions(case):
    """Whether ranks form a mesh of more than one dimension."""
    own = [case.get(k, 1) for k in ("tp", "cp", "pp")]
    return sum(n > 1 for n in own) + (case.get("gpus", 1) > own[0] * own[1] * own[2]) > 1 or "hsdp_shard" in case
