"""Calls that do not train, each measured in several passes at different moments: what no estimator can tell of one pass is how far it is from the others.

usage: inference_passes.py draw SEED MEMCALC OUT            card-bound ones are those that MEMCALC says the card decides
       inference_passes.py measure CASES OUT [--budget SECONDS]
       inference_passes.py compare PREDICTED MEASURED
Cases, models and the tiny LLaMA are those of inference_times.py, predict is its, too. A group is built (each case in a process of its own, which measures its bytes first);
then come passes over all of the group, each in another order: of generate() twice the first token and the whole call, where that takes no more than `longest`; of model(**batch) four calls;
the tiny LLaMA before and after each. Cases with "profile" are profiled behind all passes of their group. In the second pass each later token of one more call has a tiny call behind it (paired_ms).
A measured case has `passes`: of each the second that it began, firsts_ms, calls_ms, tokens_ms, tiny_ms, hosts_us.
"""
import argparse, json, os, random, select, statistics, sys, tempfile, time, traceback
from pathlib import Path

for place in (Path(__file__).resolve().parent, Path("tests/measured/harness").resolve()): sys.path.append(str(place))
import inference_times as times

GENERATED = ((64, 512), (32, 1000), (16, 2000), (8, 4000), (96, 256), (4, 8000), (48, 512), (24, 1000), (128, 128))
CALLED = ((16, 1024), (8, 2048), (4, 4000), (32, 512), (2, 8000))
LARGE = tuple(dict.fromkeys(times.LARGE + ("mistral-7b", "llama-3.1-8b", "llama-2-7b", "qwen2.5-7b", "deepseek-llm-7b", "yi-1.5-6b")))
PASSES = 3


def told(memcalc, case):
    with tempfile.TemporaryDirectory() as folder:
        cases, out = Path(folder, "cases"), Path(folder, "out")
        times.write_lines(cases, [case])
        stdout = os.dup(1); os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        try: times.predict(argparse.Namespace(cases=cases, memcalc=memcalc, out=out, hosts=None, host=None, gpu="h200-sxm"))
        finally: os.dup2(stdout, 1)
        return times.lines_of(out)[0]


def drawn_card(r, memcalc, count, tokens, beside=None):
    """So many whose call takes at most 1.6 s, fits into 70 GiB and is the card's; `beside` takes two of 1.2 s whose later tokens are the host's."""
    known = {path.stem for path in (times.ROOT / "specs/models").glob("*.json")}
    found, names = [], [name for name in LARGE if name in known]
    for name in r.sample(names, len(names)):
        if len(found) == count: return found
        batch, length = r.choice(GENERATED if tokens else CALLED)
        more = dict(batch_size=batch, sequence_length=length, precision=r.choice(("bf16", "bf16", "fp16")), **({} if tokens else dict(call=True)))
        case = times.generated(r, name, "causal", more, tokens=(16,))
        say = told(memcalc, case)
        if say.get("bound") == "card" and say["call_ms"] < 1600 and say["peak_reserved"] < 70 * 2**30: found.append(case)
        elif beside is not None and say.get("bound") == "host" and say["call_ms"] < 1200 and len(beside) < 2: beside.append(case)
        print(case["id"], {k: say.get(k) for k in ("call_ms", "first_ms", "token_ms", "bound", "refused")}, "drawn" if found and found[-1] is case else "", flush=True)
    return found


def draw(a):
    """The card's: up to seven of generate(), four of model(**batch); two large ones of whose calls the card decides the first token alone. Others: five packed, two of experts, four encoder-decoders and speech, two in float32, MPT, images and text,
    two that keep a state, beams, four small decoders."""
    r = random.Random(a.seed)
    beside = []
    card = drawn_card(r, a.memcalc, 7, True, beside) + drawn_card(r, a.memcalc, 4, False)
    names = [name for name in r.sample(times.DECODERS, len(times.DECODERS)) if not name.startswith("gemma")]
    small = [name for name in names if not name.endswith(("-7b", "-8b", "phi-2"))]
    packed = [(small[0], "causal", dict(quantize="nf4", precision="bf16", batch_size=r.choice([1, 2]))), (small[1], "causal", dict(quantize="nf4", precision="bf16", batch_size=r.choice([4, 8]))),
              (small[2], "causal", dict(quantize="nf4", precision="fp16")), (small[3], "causal", dict(quantize="int8", precision="fp16")), (small[4], "causal", dict(quantize="int8", precision="bf16"))]
    rest = [(r.choice(some), task, more) for some, task, more in (
        (times.EXPERTS, "causal", {}), (times.UNMEASURED["experts"] + ("olmoe-1b-7b",), "causal", dict(precision="bf16")), (("mt5-small", "mt5-base"), "seq2seq", dict(precision="bf16")), (("t5-base", "t5-large", "flan-t5-small"), "seq2seq", dict(precision="fp32")),
        (("bart-base", "bart-large", "pegasus-xsum", "m2m100-418m"), "seq2seq", {}), (("whisper-base", "whisper-small"), "speech", {}), (("mistral-7b", "llama-3.1-8b"), "causal", dict(precision="fp32")), (("phi-2", "qwen3-4b", "stablelm-3b"), "causal", dict(precision="fp32")),
        (("mpt-7b",), "causal", dict(attention="eager", precision="bf16", batch_size=4, sequence_length=256)), (("mamba-130m", "mamba-370m"), "causal", dict(call=True, precision="bf16", sequence_length=128, batch_size=1)), (("falcon-h1-0.5b", "lfm2-1.2b", "mamba2-130m"), "causal", dict(call=True, precision="bf16", sequence_length=256)),
        (("gemma-2-2b", "gemma-3-1b", "gemma-2b"), "causal", {}))]
    rest += [(r.choice(r.choice(times.GENERATE_IMAGES)), "images", dict(batch_size=r.choice([1, 4]))), (small[5], "causal", dict(beams=4)), *((name, "causal", {}) for name in small[6:9]), (r.choice(times.UNMEASURED["causal"]), "causal", {})]
    others = [times.generated(r, *case, tokens=(16,)) for case in r.sample(rest, len(rest))]
    packed = [times.generated(r, *case, tokens=(16,)) for case in packed]
    # Groups that fill the card alike; packed ones together (bitsandbytes takes long to import).
    groups = [packed, [], [], []]
    for case in card + beside + packed + others: case["reserved"] = told(a.memcalc, case).get("peak_reserved", 30 * 2**30)
    for case in sorted(card + beside + others, key=lambda case: -case["reserved"]): min(groups, key=lambda group: sum(each["reserved"] + 2**30 for each in group)).append(case)
    for group in groups: print(len(group), round(sum(each["reserved"] for each in group) / 2**30, 1), "GiB")
    times.write_lines(a.out, [dict(case, group=number) for number, group in enumerate(groups) for case in group])


def one_pass(timed, number, longest):
    import statistics
    begin, tiny, calls, firsts, tokens = time.time(), [], [], [], []
    timed.tiny.loops.clear()
    tiny.append(timed.tiny())
    for turn in range(2 if timed.new else 4):
        if turn and time.time() - begin > longest * turn / (turn + 1): break
        if timed.new: firsts.append(round(timed.call(1), 3)); tiny.append(timed.tiny())
        calls.append(round(timed.call(timed.new), 3)); tiny.append(timed.tiny())
        tokens.append([round(1e3 * (b - a), 2) for a, b in zip(timed.stamps, timed.stamps[1:])])
    row = dict(at=round(begin, 2), calls_ms=calls, tiny_ms=tiny, hosts_us=list(timed.tiny.loops))
    if timed.new:
        row.update(firsts_ms=firsts, tokens_ms=tokens)
        if number == 1: timed.pairs = []; timed.call(timed.new); timed.row["paired_ms"], timed.pairs = timed.pairs, None
    row["seconds"] = round(time.time() - begin, 2)
    return row


def child(case, out, say, turn, device, longest):
    import torch, warnings
    warnings.filterwarnings("ignore")
    row = dict(case)
    try:
        with torch.no_grad():
            timed = times.Timed(case, device)
            row = timed.row
            row["params"] = sum(p.numel() for p in timed.model.parameters())
            row["passes"] = []
            os.write(say, b"1")
            while (asked := os.read(turn, 1)) in (b"p", b"k"):
                if asked == b"p": row["passes"].append(one_pass(timed, len(row["passes"]), longest))
                else: timed.profile()
                os.write(say, b"1")
    except Exception as error: row.update(error=repr(error)[:300], where=traceback.format_exc()[-500:])
    with open(out, "a") as file: file.write(json.dumps(row) + "\n")
    print(case["id"], [[each["calls_ms"][0], (each.get("firsts_ms") or [None])[0], each["tiny_ms"][0], each["seconds"]] for each in row.get("passes", [])], row.get("error", ""), row.get("built_s"), row.get("warm_s"), flush=True)


def measure(a):
    import torch, transformers as tf  # once, without a card: children find them there (bitsandbytes would take one)
    end, cases = time.time() + a.budget, times.lines_of(a.cases)
    autos = dict(causal=tf.AutoModelForCausalLM, seq2seq=tf.AutoModelForSeq2SeqLM, speech=tf.AutoModelForSpeechSeq2Seq, images=tf.AutoModelForImageTextToText)
    for case in cases + [dict(run=dict(model="llama-3.2-1b", task="causal"))]:
        try: autos["images" if "images" in case["run"] else case["run"]["task"]]._model_mapping[type(times.config_of(case["run"]))]
        except Exception as error: print(case.get("id"), repr(error)[:200], flush=True)
    assert not torch.cuda.is_initialized()
    print("imported", round(a.budget - (end - time.time()), 1), flush=True)
    Path(a.out).touch()
    order = random.Random(11042)
    for number in sorted({case["group"] for case in cases}):
        begin, children = time.time(), {}
        if end - begin < 25: break
        for case in (case for case in cases if case["group"] == number):
            (said, say), (told_, tell) = os.pipe(), os.pipe()
            pid = os.fork()
            if pid == 0:
                os.close(said); os.close(tell)
                for other in children.values(): os.close(other["tell"]); os.close(other["said"])
                try: child(case, a.out, say, told_, a.device, a.longest)
                finally: os._exit(0)
            os.close(say); os.close(told_)
            children[pid] = dict(case=case, said=said, tell=tell)

        def answered(pid, seconds):
            """Whether the child says it is ready; else it is ended."""
            child_ = children[pid]
            able, _, _ = select.select([child_["said"]], [], [], max(0.1, min(seconds, end - time.time())))
            if able and os.read(child_["said"], 1) == b"1": return True
            print(child_["case"]["id"], "is gone", flush=True)
            if not able: os.kill(pid, 9)
            os.waitpid(pid, 0); os.close(child_["tell"]); del children[pid]
            return False
        for pid in list(children): answered(pid, begin + a.setup - time.time())
        print(f"group {number} built {time.time() - begin:.1f} s, {len(children)}", flush=True)
        for turn in range(PASSES):
            for pid in order.sample(list(children), len(children)):
                if time.time() > end - 6: break
                os.write(children[pid]["tell"], b"p"); answered(pid, 15)
        for pid in [pid for pid, each in children.items() if each["case"].get("profile")]:
            if time.time() < end - 6: os.write(children[pid]["tell"], b"k"); answered(pid, 15)
        for pid, each in children.items(): os.write(each["tell"], b"q")
        for pid, each in children.items(): os.waitpid(pid, 0); os.close(each["tell"]); os.close(each["said"])
        print(f"group {number} {time.time() - begin:.1f} s", flush=True)


def numbers_of(each, new):
    """Call, first and later token of a pass; the tiny call beside it."""
    row = dict(call_ms=statistics.median(each["calls_ms"]), tiny=statistics.mean(each["tiny_ms"]))
    if new: row["first_ms"] = statistics.median(each["firsts_ms"]); row["token_ms"] = (row["call_ms"] - row["first_ms"]) / (new - 1)
    return row


def compare(a):
    """Errors against each pass, against the median of passes, and each pass against the median of the others."""
    measured = {row["id"]: row for row in times.lines_of(a.measured)}
    errors = {}
    for p in times.lines_of(a.predicted):
        m = measured.get(p["id"], {})
        if not m.get("passes") or "call_ms" not in p: print(p["id"], p.get("refused", m.get("error", "not measured"))); continue
        passes = [numbers_of(each, m["run"].get("new_tokens")) for each in m["passes"]]
        line = ""
        for key in ("call_ms", "first_ms", "token_ms"):
            if key not in passes[0]: continue
            values = [each[key] for each in passes]
            off = lambda told_, value: 100 * (told_ / value - 1)
            each = dict(one=[off(p[key], value) for value in values], median=[off(p[key], statistics.median(values))],
                        floor=[off(statistics.median(values[:i] + values[i + 1:]), value) for i, value in enumerate(values)] if len(values) > 1 else [])
            for kind, some in each.items():
                for who in ("all", p["bound"]): errors.setdefault((who, key, kind), []).extend(some)
            line += f"   {key[:-3]} {statistics.median(values):8.2f} {p[key]:8.2f} {each['median'][0]:+6.1f} % ({' '.join(f'{value:.1f}' for value in values)})"
        tinies = ' '.join(f"{each['tiny']:.1f}" for each in passes)
        print(f"{p['id']:44}{line}  {p['bound']}  tiny {tinies}  bytes {p['peak_allocated'] - m.get('peak_allocated', 0):+d} {p['peak_reserved'] - m.get('peak_reserved', 0):+d}")
    for (who, key, kind), some in sorted(errors.items()):
        size = sorted(map(abs, some))
        if some: print(f"{who:5} {key:9} {kind:7} {len(some):3}: median {statistics.median(size):5.1f} %, nine in ten {size[int(0.9 * (len(size) - 1))]:5.1f}, worst {max(some, key=abs):+6.1f}, short {sum(x < 0 for x in some)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for function, words in ((draw, "seed memcalc out"), (measure, "cases out"), (compare, "predicted measured")):
        command = commands.add_parser(function.__name__)
        for word in words.split(): command.add_argument(word, type=int if word == "seed" else str)
        command.set_defaults(call=function)
        if function is measure:
            command.add_argument("--budget", type=float, default=170)
            command.add_argument("--setup", type=float, default=30, help="seconds in which a group must be built")
            command.add_argument("--longest", type=float, default=1.2, help="seconds of a pass of one case")
            command.add_argument("--device", default="cuda")
    a = parser.parse_args()
    a.call(a)


if __name__ == "__main__": main()
