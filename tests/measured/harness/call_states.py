"""Why a call without autograd takes less of a host than a training step's forward: a tiny LLaMA's forward in turns, each way behind another moment of its thread.

usage: call_states.py OUT.json [--seconds N] [--device cuda]
Two processes: in "before" no backward pass has run, in "between" each round has one. Milliseconds of the host, from an idle card:
  plain      without autograd, behind a wait for the card, in which the thread spins
  again      the same directly behind it
  slept      without autograd, behind a sleep of the thread of so long as a backward pass takes
  spun       without autograd, behind a loop of Python of as long
  grad       with autograd, behind a wait for the card
  grad_slept with autograd, behind the sleep
  step       with autograd, directly behind a backward pass (between)
  step_plain without autograd, directly behind a backward pass (between)
  step_spun  with autograd, behind a backward pass and a loop of Python of two milliseconds (between)
"""
import argparse, json, os, statistics, time


def child(device, seconds, backward):
    import torch, transformers as tf
    tf.logging.set_verbosity_error()
    torch.manual_seed(0)
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    config = tf.AutoConfig.for_model("llama", vocab_size=99, hidden_size=64, num_hidden_layers=8, num_attention_heads=4, num_key_value_heads=2, intermediate_size=128)
    model = tf.AutoModelForCausalLM.from_config(config).to(device)
    ids = torch.randint(0, 90, (1, 16), device=device)
    pause = 0.014

    def forward(grad, labels=False):
        wait()
        with torch.set_grad_enabled(grad):
            begin = time.perf_counter()
            out = model(input_ids=ids, labels=ids if labels else None)
            took = time.perf_counter() - begin
        wait()
        del out
        return 1e3 * took

    def spin(seconds):
        end = time.perf_counter() + seconds
        while time.perf_counter() < end: pass

    def step():
        model.zero_grad(set_to_none=True)
        loss = model(input_ids=ids, labels=ids).loss
        wait(); loss.backward(); wait()

    ways = dict(plain=lambda: forward(False), again=lambda: forward(False), slept=lambda: (time.sleep(pause), forward(False))[1], spun=lambda: (spin(pause), forward(False))[1],
                grad=lambda: forward(True), grad_labels=lambda: forward(True, True), grad_slept=lambda: (time.sleep(pause), forward(True))[1])
    if backward:
        ways.update(step=lambda: (step(), forward(True, True))[1], step_plain=lambda: (step(), forward(False))[1], step_spun=lambda: (step(), spin(0.002), forward(True, True))[2],
                    step_grad=lambda: (step(), forward(True))[1])
    for _ in range(8):
        for way in ways.values(): way()
    taken, end = {name: [] for name in ways}, time.time() + seconds
    while time.time() < end:
        for name, way in ways.items(): taken[name].append(round(way(), 3))
    return taken


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out"); parser.add_argument("--seconds", type=float, default=5); parser.add_argument("--device", default="cuda")
    a = parser.parse_args()
    import torch, transformers  # once, without a card
    said = {}
    for name, backward in (("before", False), ("between", True)):
        out, into = os.pipe()
        pid = os.fork()
        if pid == 0:
            try: os.write(into, json.dumps(child(a.device, a.seconds, backward)).encode() + b"\n")
            finally: os._exit(0)
        os.close(into)
        with os.fdopen(out) as file: text = file.read()
        os.waitpid(pid, 0)
        said[name] = json.loads(text) if text else dict(error="no times")
    with open(a.out, "w") as file: json.dump(said, file)
    for name, ways in said.items(): print(name, {way: round(statistics.median(ms), 3) if isinstance(ms, list) and ms else ms for way, ms in ways.items()}, flush=True)


if __name__ == "__main__": main()
