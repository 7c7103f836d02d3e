"""Where the steps of a job go, once its times are taken (jobs_run.py, JOBS_PARTS=1): EXTRA more steps, of which two have each of NAMES timed as it
is, two with the device awaited before and behind it, and the last is profiled (kernels alone; CUPTI slows a process for good, so it comes last)."""
import time

EXTRA = 5
NAMES = {"trainer": ("get_batch_samples", "_prepare_inputs", "training_step", "compute_loss", "_generate_and_score_completions", "_generate",
                     "_get_per_token_logps_and_entropies", "_calculate_rewards", "compute_ref_log_probs", "_compute_loss_liger", "_compute_loss",
                     "_maybe_log_save_evaluate", "_clip_grad_norm", "_get_grad_norm", "create_model_card", "_generate_single_turn", "_compute_logps", "_forward",
                     "concatenated_forward", "get_batch_loss_metrics", "forward", "_compute_kl_logps", "_get_kl_logps", "data_collator"),
         "accelerator": ("backward", "clip_grad_norm_", "gather_for_metrics", "gather", "reduce"),
         "optimizer": ("step", "zero_grad"), "lr_scheduler": ("step",), "model": ("forward", "generate", "zero_grad", "train", "eval")}


class Parts:
    """Pre: made before train(); begin_step() and end_step() around each step behind the timed ones."""
    def __init__(self, trainer, on_card):
        self.trainer, self.on_card, self.seen, self.result, self.mode = trainer, on_card, 0, dict(plain={}, awaited={}, steps_s={}), None
        self.profiler = None

    def wait(self):
        import torch
        if self.on_card: torch.cuda.synchronize()

    def timed(self, name, call):
        def run(*arguments, **keywords):
            if self.mode is None: return call(*arguments, **keywords)
            if self.mode == "awaited": self.wait()
            begun = time.perf_counter()
            try: return call(*arguments, **keywords)
            finally:
                if self.mode == "awaited": self.wait()
                of = self.result[self.mode].setdefault(name, [0, 0.0])
                of[0] += 1
                of[1] += time.perf_counter() - begun

        return run

    def wrap(self):
        for where, names in NAMES.items():
            owner = self.trainer if where == "trainer" else getattr(self.trainer, where, None)
            if where == "model" and owner is not None: owner = self.trainer.accelerator.unwrap_model(self.trainer.model)
            for name in names:
                call = getattr(owner, name, None)
                if callable(call): setattr(owner, name, self.timed(f"{where}.{name}", call))

    def begin_step(self):
        import torch
        self.seen += 1
        if self.seen > EXTRA: return
        if self.seen == 1: self.wrap()
        self.wait()
        self.mode = "plain" if self.seen < 3 else "awaited" if self.seen < 5 else None
        if self.mode is None and self.on_card:
            self.profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])
            self.profiler.__enter__()
        self.begun = time.perf_counter()

    def end_step(self):
        self.wait()
        self.result["steps_s"].setdefault(self.mode or "profiled", []).append(time.perf_counter() - self.begun)
        self.mode = None
        if self.profiler is not None:
            self.profiler.__exit__(None, None, None)
            kernels = [(e.key[:110], e.count, round(e.self_device_time_total)) for e in self.profiler.key_averages() if e.self_device_time_total]
            kernels.sort(key=lambda each: -each[2])
            self.result.update(kernels=sum(k[1] for k in kernels), kernels_us=sum(k[2] for k in kernels), by_kernel=kernels[:60])
            self.profiler = None
