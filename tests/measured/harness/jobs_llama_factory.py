"""DPO and KTO as LLaMA-Factory runs them, for jobs_run.py: --whole-logits. Its own classes (train/dpo/trainer.py,
train/kto/trainer.py), of which LLAMA_FACTORY names the folder `llamafactory`; of what they import beside those only the
two functions that they call are taken from its train/trainer_utils.py, so that its other needs (gradio, modelscope …)
need not be there. They stand on TRL 0.24, whose folder TRL_OLD names: a process of its own has it. Batches are as its
collators make them of samples of equal length: ids, mask, labels; KTO's answers of others are the next sample's, and its
samples come in order, every second one desirable."""
import ast
import os
import sys
import types

import jobs_run

PREFERENCES = dict(use_ref_model=True, pref_beta=0.1, pref_loss="sigmoid", pref_ftx=0.0, pref_bco_weight=0.0,
                   dpo_label_smoothing=0.0, simpo_gamma=0.5, ld_alpha=None, use_badam=False, disable_shuffling=True,
                   kto_chosen_weight=1.0, kto_rejected_weight=1.0)


def of_source(path, names):
    """The functions of a module, without what the module imports."""
    import collections.abc
    import typing
    import torch
    tree = ast.parse(open(path).read())
    tree.body = [node for node in tree.body if getattr(node, "name", None) in names]
    scope = dict(torch=torch, IGNORE_INDEX=-100, Mapping=collections.abc.Mapping,
                 **{name: getattr(typing, name) for name in ("Any", "Optional", "Union")})
    exec(compile(tree, path, "exec"), scope)
    return {name: scope[name] for name in names}


def trainer_class(stage):
    import trl.import_utils as found
    for name, value in list(vars(found).items()):  # this transformers answers with the version, too
        if name.endswith("_available") and isinstance(value, tuple): setattr(found, name, value[0])
    root = os.environ["LLAMA_FACTORY"]
    nothing = dict(create_custom_optimizer=lambda *unused: None, create_custom_scheduler=lambda *unused: None)
    utilities = of_source(os.path.join(root, "train/trainer_utils.py"), ("get_batch_logps", "nested_detach"))
    for name, members in {"extras.constants": dict(IGNORE_INDEX=-100), "train.callbacks": dict(SaveProcessorCallback=None),
                          "extras.packages": dict(is_transformers_version_greater_than=lambda version: True),
                          "train.trainer_utils": {**utilities, **nothing}}.items():
        parts = ["llamafactory"] + name.split(".")
        for n in range(1, len(parts) + 1):
            full = ".".join(parts[:n])
            if full not in sys.modules:
                sys.modules[full] = types.ModuleType(full)
                sys.modules[full].__path__ = []
        vars(sys.modules["llamafactory." + name]).update(members)
    package = f"llamafactory.train.{stage}"
    sys.modules[package] = types.ModuleType(package)
    sys.modules[package].__path__ = [os.path.join(root, "train", stage)]
    return getattr(__import__(package + ".trainer", fromlist=["trainer"]), f"Custom{stage.upper()}Trainer")


def labelled(r, job):
    """A sample: prompt and answer, of which the answer has labels."""
    ids = jobs_run.ids(r, job.seq)
    return dict(input_ids=ids, attention_mask=[1] * job.seq,
                labels=[-100] * (job.seq - job.completion) + ids[job.seq - job.completion:])


def batch_of(samples, prefix=""):
    import torch
    return {prefix + key: torch.tensor([each[key] for each in samples]) for key in samples[0]}


def collate_pairs(pairs): return batch_of([chosen for chosen, _ in pairs] + [rejected for _, rejected in pairs])


def collate_kto(samples):
    import torch
    others = batch_of([other for _, other, _ in samples], "kl_")
    return {**batch_of([own for own, _, _ in samples]), **others, "kto_tags": torch.tensor([tag for _, _, tag in samples])}


def trainer(job):
    import random
    import transformers as tf
    from peft import get_peft_model
    stage, r = job.loop.removeprefix("trl-"), random.Random(1)
    Trainer = trainer_class(stage)
    model = jobs_run.make_model(job, "causal")
    reference = None
    if (adapters := jobs_run.lora(job)) is not None:
        model = get_peft_model(model, adapters)
        if job.options.get("--checkpointing") == "full": model.enable_input_require_grads()
    else:
        reference = jobs_run.make_model(job, "causal")
    made = [labelled(r, job) for _ in range(2 * job.train_samples)]
    data = list(zip(made[::2], made[1::2])) if stage == "dpo" else [
        (made[i], made[i + 1], i % 2 == 0) for i in range(job.train_samples)]
    arguments = tf.Seq2SeqTrainingArguments(**{**jobs_run.arguments_of(job), "remove_unused_columns": False})
    return Trainer(model=model, ref_model=reference, finetuning_args=types.SimpleNamespace(**PREFERENCES), processor=None,
                   args=arguments, train_dataset=data, tokenizer=jobs_run.tokenizer(),
                   data_collator=collate_pairs if stage == "dpo" else collate_kto)
