"""Jobs of sentence-transformers for jobs_run.py: --loop sentence-transformer and cross-encoder. The encoder has random weights
and is read from a folder, as these libraries load models; all texts are --seq tokens, of a pair both together."""
import random
import tempfile

import jobs_run


def saved(job, task):
    import torch
    import transformers as tf
    keys = dict(job.config)
    config = tf.AutoConfig.for_model(keys.pop("model_type"), **keys)
    folder = tempfile.mkdtemp()
    if task == "seqcls": config.num_labels = 1
    auto = tf.AutoModelForSequenceClassification if task == "seqcls" else tf.AutoModel
    auto.from_config(config, dtype=torch.float32).save_pretrained(folder)
    words = jobs_run.tokenizer(types=config.model_type == "bert")
    words.model_max_length = min(config.max_position_embeddings - 2, job.seq or 10**6)  # of real lengths: no --seq
    words.save_pretrained(folder)
    return folder


def trainer(job):
    import datasets
    if job.loop == "cross-encoder":
        from sentence_transformers.cross_encoder import (CrossEncoder, CrossEncoderTrainer,
                                                         CrossEncoderTrainingArguments as Arguments)
        from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss
        model, Trainer = CrossEncoder(saved(job, "seqcls"), num_labels=1, device=jobs_run.DEVICE), CrossEncoderTrainer
        loss = BinaryCrossEntropyLoss(model)
        texts = [job.seq // 2, job.seq - job.seq // 2]
    else:
        from sentence_transformers import (SentenceTransformer, SentenceTransformerTrainer as Trainer,
                                           SentenceTransformerTrainingArguments as Arguments, losses)
        model = SentenceTransformer(saved(job, "features"), device=jobs_run.DEVICE)
        if job.seq: model.max_seq_length = job.seq
        if job.options.get("--contrastive-loss") == "cached-mnrl":
            loss = losses.CachedMultipleNegativesRankingLoss(model, mini_batch_size=job.number("--mini-batch", 32))
        else:
            loss = getattr(losses, job.extra.get("st_loss", "MultipleNegativesRankingLoss"))(model)
        texts = [job.seq] * (3 if job.extra.get("st_loss") == "TripletLoss" else 2 + job.number("--hard-negatives", 0))
    if (adapters := jobs_run.lora(job)) is not None:
        if "--lora-head" in job.options:  # add_adapter() leaves the head frozen, but for "all-linear" it is one of them
            adapters.modules_to_save = adapters.exclude_modules = ["classifier"]
        model.add_adapter(adapters)
    r = random.Random(1)

    def of_sample(i):
        """Tokens of a sample's texts; of a pair both together."""
        if not job.samples: return texts
        given = job.samples[i % len(job.samples)]
        if job.loop == "cross-encoder": return [sum(given) // 2, sum(given) - sum(given) // 2]
        return [given[min(c, len(given) - 1)] for c in range(len(texts))]

    def data(count):
        rows = [of_sample(i) for i in range(count)]
        columns = {f"text_{c}": [jobs_run.words(r, row[c]) for row in rows] for c in range(len(texts))}
        labelled = job.loop == "cross-encoder" or job.extra.get("st_loss", "Triplet").startswith(("Co", "Ca"))
        if labelled: columns["label"] = [float(i % 2) for i in range(count)]
        return datasets.Dataset.from_dict(columns)

    held = data(job.eval_samples) if job.eval_samples else None
    count = len(job.samples) if job.samples else job.train_samples
    return Trainer(model=model, args=Arguments(**jobs_run.arguments_of(job)), train_dataset=data(count),
                   eval_dataset=held, loss=loss)
