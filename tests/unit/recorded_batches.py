#!/usr/bin/env python3
"""Writes recorded_batches.h: what torch, numpy, transformers, accelerate and TRL make of seeds and lengths.

usage: recorded_batches.py > recorded_batches.h
Needs no card, and torch 2.11, transformers 5.17, accelerate 1.15, trl 1.16 and datasets 5.2.
"""
import contextlib
import importlib.metadata
import os
import random
import sys
import tempfile
import warnings

warnings.filterwarnings("ignore")
os.environ.update(TRANSFORMERS_VERBOSITY="error", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", CUDA_VISIBLE_DEVICES="")

import datasets
import numpy
import torch
import transformers
from accelerate.data_loader import prepare_data_loader
from transformers.trainer_pt_utils import LengthGroupedSampler
from trl import pack_dataset
from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

datasets.disable_progress_bars()
PAD = 0


def fnv(values):
    """FNV-1a over 64-bit values, as hash_of() of the header does it."""
    h = 0xCBF29CE484222325
    for value in values: h = (h ^ (value & 0xFFFFFFFFFFFFFFFF)) * 0x100000001B3 % 2**64
    return h


def flat(batches):
    """Each batch as its size and its samples."""
    return [value for batch in batches for value in (len(batch), *batch)]


def drawn_lengths(n, seed, mean=5.3, sigma=0.6, top=512, least=16):
    r = random.Random(seed)
    return [max(least, min(top, int(r.lognormvariate(mean, sigma)))) for _ in range(n)]


class Row(dict):
    """A sample that knows its place in the data set: collators see only its keys."""


class Rows(torch.utils.data.Dataset):
    def __init__(self, lengths): self.lengths = lengths
    def __len__(self): return len(self.lengths)

    def __getitem__(self, i):
        row = Row(input_ids=[1] * self.lengths[i], labels=0)
        row.place = i
        return row


class Tokenizer:
    """What DataCollatorWithPadding needs."""

    def __new__(cls):
        from tokenizers import Tokenizer as Base, models, pre_tokenizers
        base = Base(models.WordLevel({"<pad>": PAD, "a": 1}, unk_token="a"))
        base.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        return transformers.PreTrainedTokenizerFast(tokenizer_object=base, pad_token="<pad>", unk_token="a")


class Classifier(torch.nn.Module):
    """Draws no random number when it runs, as a model on a card draws none from the generator of the host."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(2))

    def forward(self, input_ids, attention_mask=None, labels=None):
        logits = self.weight.expand(len(input_ids), 2)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


def trainer_epochs(lengths, evaluated, **options):
    """The batches that Trainer.train() runs, of training and of evaluation in one list, in their order."""
    padding, seen = transformers.DataCollatorWithPadding(Tokenizer()), []

    def collate(rows):
        seen.append([row.place for row in rows])
        return padding([dict(row) for row in rows])

    trainer = transformers.Trainer(
        model=Classifier(), data_collator=collate, train_dataset=Rows(lengths), eval_dataset=Rows(evaluated),
        args=transformers.TrainingArguments(
            output_dir=tempfile.mkdtemp(), report_to="none", save_strategy="no", logging_strategy="no",
            disable_tqdm=True, use_cpu=True, remove_unused_columns=False, **options))
    trainer.train()
    return seen


def loader_epochs(lengths, epochs, **options):
    """What Trainer.get_train_dataloader() gives, whose order train() was seen to keep."""
    trainer = transformers.Trainer(
        model=Classifier(), data_collator=lambda rows: {"place": torch.tensor([row.place for row in rows])},
        train_dataset=Rows(lengths),
        args=transformers.TrainingArguments(output_dir=tempfile.mkdtemp(), report_to="none", use_cpu=True,
                                            remove_unused_columns=False, **options))
    loader = trainer.get_train_dataloader()
    return [[batch["place"].tolist() for batch in loader] for _ in range(epochs)]


def sharded(n, batch, processes, drop_last, epochs, seed):
    """The batches of each process, epoch after epoch, by accelerate's own loader."""
    ranks = []
    for rank in range(processes):
        torch.manual_seed(seed)
        loader = torch.utils.data.DataLoader(range(n), batch_size=batch, sampler=torch.utils.data.RandomSampler(range(n)),
                                             drop_last=drop_last)
        loader = prepare_data_loader(loader, num_processes=processes, process_index=rank, use_seedable_sampler=True)
        ranks.append([[b.tolist() for b in loader] for _ in range(epochs)])
    return ranks


def packed(lengths, size, strategy):
    rows = datasets.Dataset.from_dict({"input_ids": [[1] * n for n in lengths]})
    result = pack_dataset(rows, size, strategy)
    return result["seq_lengths"][:] if "seq_lengths" in result.column_names else [[len(ids)] for ids in result["input_ids"]]


def shapes(batches):
    return ",\n".join("    {" + ", ".join(map(str, batch)) + "}" for batch in batches)


def number(value): return f"0x{value:016x}U"


def main():
    out = []
    versions = [f"{name} {importlib.metadata.version(name)}" for name in
                ("torch", "numpy", "transformers", "accelerate", "trl", "datasets", "pyarrow")]
    out.append(f"""// Written by tests/unit/recorded_batches.py with {", ".join(versions[:4])},
// {", ".join(versions[4:])}.
#pragma once

#include <array>
#include <cstdint>

// clang-format off
namespace memcalc::test {{

/// FNV-1a over values, each as one of 64 bits.
template <typename Values>
std::uint64_t hash_of(const Values& values) {{
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const auto value : values) hash = (hash ^ static_cast<std::uint64_t>(value)) * 0x100000001b3U;
  return hash;
}}

/// torch.randperm(n, generator=torch.Generator().manual_seed(seed)): its first values, and a hash of all of them.
struct RecordedPermutation {{ std::int64_t n; std::uint64_t seed; std::uint64_t hash; std::int64_t first[4]; }};
inline constexpr RecordedPermutation kPermutations[] = {{""")
    for n, seed in ((0, 42), (1, 42), (2, 0), (2, 1), (7, 42), (336, 42), (336, 43), (1000, 0), (1000, 2**32 + 42),
                    (1000, 2**64 - 1), (70000, 1234567890123)):
        order = torch.randperm(n, generator=torch.Generator().manual_seed(seed)).tolist()
        first = ", ".join(map(str, (order + [-1] * 4)[:4]))
        out.append(f"    {{{n}, {seed}U, {number(fnv(order))}, {{{first}}}}},")
    generator = torch.Generator().manual_seed(42)
    words = [torch.empty((), dtype=torch.int64).random_(generator=generator).item() for _ in range(3)]
    again = torch.randperm(5, generator=generator).tolist()
    out.append(f"""}};
/// torch.empty((), dtype=torch.int64).random_() of seed 42, three times, and then torch.randperm(5).
inline constexpr std::uint64_t kWords[] = {{{", ".join(f"{word}U" for word in words)}}};
inline constexpr std::int64_t kPermutationAfterWords[] = {{{", ".join(map(str, again))}}};
""")

    lognormal = numpy.random.RandomState(0).lognormal(numpy.log(200), 0.6, 10000)
    lognormal = numpy.clip(numpy.rint(lognormal), 1, 1024).astype(numpy.int64).tolist()
    out.append(f"""/// numpy.random.RandomState(0).lognormal(log(200), 0.6, 10000), rounded by numpy.rint, from 1 to 1024.
inline constexpr std::int64_t kLognormal[] = {{{", ".join(map(str, lognormal[:9]))}}};
inline constexpr std::uint64_t kLognormalHash = {number(fnv(lognormal))};
""")

    lengths = drawn_lengths(400, 0)
    train, evaluated = lengths[:336], lengths[336:]
    out.append(f"""/// The lengths of the measured run glue-bert-base-b32-varlen-fp16: 336 to train on, 64 to evaluate.
inline constexpr std::array<std::int32_t, 336> kTrainLengths = {{{", ".join(map(str, train))}}};
inline constexpr std::array<std::int32_t, 64> kEvalLengths = {{{", ".join(map(str, evaluated))}}};
""")
    glue = loader_epochs(train, 3, per_device_train_batch_size=32)
    ran = trainer_epochs(train, evaluated, per_device_train_batch_size=32, num_train_epochs=3)
    assert ran == [batch for epoch in glue for batch in epoch], "train() and get_train_dataloader() differ"
    first = [i for batch in glue[0] for i in batch]
    other = loader_epochs(train, 2, per_device_train_batch_size=5, data_seed=7, dataloader_drop_last=True)
    out.append(f"""/// Trainer.get_train_dataloader(), seed 42, 32 a batch: the samples of the first epoch, and the hash of the batches
/// (each its size, then its samples) of three. Trainer.train() ran the same.
inline constexpr std::array<std::int64_t, 336> kGlueOrder = {{{", ".join(map(str, first))}}};
inline constexpr std::uint64_t kGlueEpochs[] = {{{", ".join(number(fnv(flat(epoch))) for epoch in glue)}}};
/// The same with 5 a batch, data_seed 7, dataloader_drop_last: two epochs.
inline constexpr std::uint64_t kDropLastEpochs[] = {{{", ".join(number(fnv(flat(epoch))) for epoch in other)}}};
""")

    out.append("""/// train_sampling_strategy="group_by_length": all batches that Trainer.train() ran in two epochs of `n` of the lengths,
/// those of the evaluation after each epoch (8 a batch, 64 samples) among them.
struct RecordedGroups { std::int64_t n, batch_size, accumulation; bool evaluated; std::uint64_t seed; std::uint64_t batches; std::uint64_t hash; };
inline constexpr RecordedGroups kGroups[] = {""")
    for n, batch, accumulation, evaluates, seed in ((336, 32, 1, False, 42), (336, 4, 2, False, 42), (336, 4, 1, True, 3), (7, 4, 1, False, 42)):
        ran = trainer_epochs(train[:n], evaluated, per_device_train_batch_size=batch, per_device_eval_batch_size=8,
                             gradient_accumulation_steps=accumulation, seed=seed, num_train_epochs=2,
                             train_sampling_strategy="group_by_length", eval_strategy="epoch" if evaluates else "no")
        out.append(f"    {{{n}, {batch}, {accumulation}, {str(evaluates).lower()}, {seed}U, {len(ran)}U, {number(fnv(flat(ran)))}}},")
    out.append("};\n")

    out.append("""/// accelerate's loaders of `processes` ranks over two epochs, seed 42: rank after rank, of each epoch after epoch.
struct RecordedShards { std::int64_t n, batch_size, processes; bool drop_last; std::uint64_t hash; };
inline constexpr RecordedShards kShards[] = {""")
    for n, batch, processes, drop_last in ((64, 8, 2, False), (65, 8, 2, False), (72, 8, 2, False), (70, 8, 4, False),
                                           (336, 32, 4, False), (3, 4, 4, False), (1, 8, 8, False), (31, 5, 3, False),
                                           (70, 8, 4, True), (96, 8, 4, True), (3, 4, 2, True)):
        result = sharded(n, batch, processes, drop_last, 2, 42)
        out.append(f"    {{{n}, {batch}, {processes}, {str(drop_last).lower()}, "
                   f"{number(fnv([v for rank in result for epoch in rank for v in (len(epoch), *flat(epoch))]))}}},")
    out.append("};\n")

    out.append("""/// A batch that a collator made.
struct RecordedBatch { std::int64_t rows, columns, tokens, labels, padded, sequences, longest; };""")

    def padded(collator, rows):
        batch = collator([dict(row) for row in rows])
        mask, labels = batch["attention_mask"], batch["labels"]
        return (*batch["input_ids"].shape, int(mask.sum()), int((labels != -100).sum()), int(not bool(mask.all())),
                len(rows), max(len(row["input_ids"]) for row in rows))

    def one_row(collator, rows):
        batch = collator([dict(row) for row in rows])
        return (*batch["input_ids"].shape, int((batch["input_ids"] != PAD).sum()), int((batch["labels"] != -100).sum()),
                int((batch["input_ids"] == PAD).any()), len(batch["cu_seq_lens_q"]) - 1, batch["max_length_q"])

    data = Rows(train)
    collated = [first[i:i + 6] for i in range(0, 120, 6)]
    for name, comment, collator in (
            ("kPadded", "DataCollatorWithPadding on the first 20 batches of an epoch of 6 a batch", transformers.DataCollatorWithPadding(Tokenizer())),
            ("kPaddedTo64", "the same with pad_to_multiple_of=64", transformers.DataCollatorWithPadding(Tokenizer(), pad_to_multiple_of=64)),
            ("kFixed", 'the same with padding="max_length", max_length=520, pad_to_multiple_of=16',
             transformers.DataCollatorWithPadding(Tokenizer(), padding="max_length", max_length=520, pad_to_multiple_of=16))):
        out.append(f"/// {comment}.\ninline constexpr RecordedBatch {name}[] = {{\n"
                   + shapes(padded(collator, [data[i] for i in batch]) for batch in collated) + "};")
    text = [{"input_ids": [1] * n, "labels": [1] * n} for n in train]
    for name, comment, function, options in (
            ("kText", "TRL's DataCollatorForLanguageModeling on the same batches", padded, {}),
            ("kTextTo64", "the same with pad_to_multiple_of=64", padded, {"pad_to_multiple_of": 64}),
            ("kPaddingFree", "the same with padding_free=True", one_row, {"padding_free": True}),
            ("kPaddingFreeTo64", "the same with padding_free=True, pad_to_multiple_of=64", one_row,
             {"padding_free": True, "pad_to_multiple_of": 64})):
        collator = DataCollatorForLanguageModeling(pad_token_id=PAD, **options)
        out.append(f"/// {comment}.\ninline constexpr RecordedBatch {name}[] = {{\n"
                   + shapes(function(collator, [text[i] for i in batch]) for batch in collated) + "};")
    rows = [{"input_ids": [1] * sum(r), "labels": [1] * sum(r), "seq_lengths": r} for r in packed(train, 512, "bfd")]
    groups = [rows[i:i + 4] for i in range(0, len(rows), 4)]
    collator = DataCollatorForLanguageModeling(pad_token_id=PAD, padding_free=True)
    out.append("/// The same lengths packed by bfd to 512, in their order, 4 rows a batch, padding_free=True.\n"
               "inline constexpr RecordedBatch kPackedBatches[] = {\n" + shapes(one_row(collator, g) for g in groups) + "};\n")

    out.append("""/// TRL's pack_dataset of `n` lengths, 7 i % top + 1 for each i of torch.randperm(n) of the seed; strategies in the order
/// bfd, bfd_split, wrapped. Of each row its number of sequences, then their lengths.
struct RecordedPacking { std::int64_t n, top, size; std::uint64_t seed; int strategy; std::uint64_t rows; std::uint64_t hash; };
inline constexpr RecordedPacking kPackings[] = {""")
    for n, top, size, seed in ((300, 700, 512, 1), (2500, 2000, 1024, 2), (3001, 64, 100, 3)):
        drawn = [7 * i % top + 1 for i in torch.randperm(n, generator=torch.Generator().manual_seed(seed)).tolist()]
        for place, strategy in enumerate(("bfd", "bfd_split", "wrapped")):
            result = packed(drawn, size, strategy)
            out.append(f"    {{{n}, {top}, {size}, {seed}U, {place}, {len(result)}U, {number(fnv(flat(result)))}}},")
    out.append("};\n")
    out.append("}  // namespace memcalc::test")
    return "\n".join(out)


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):  # transformers prints
        text = main()
    print(text)
