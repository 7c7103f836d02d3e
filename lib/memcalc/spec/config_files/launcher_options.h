// Internal to spec/config_files: which options of a launcher take no word behind them, so that the script is found.
// Named as key_of() names them. Covered by tests/unit/example_scripts_test.cc.
// MIRRORS(torch, "distributed/run.py", "2.11.0")
// MIRRORS(torch, "distributed/launch.py", "2.11.0")
// MIRRORS(deepspeed, "launcher/runner.py", "0.19.6")
// MIRRORS(accelerate, "commands/launch.py", "1.15.0")
#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <string_view>

namespace memcalc::config {

using OptionNames = std::span<const std::string_view>;

[[nodiscard]] inline bool holds(OptionNames names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

inline constexpr auto kTorchrunFlags =
    std::to_array<std::string_view>({"standalone", "no_python", "run_path", "virtual_local_rank", "use_env", "module"});

inline constexpr auto kDeepSpeedFlags =
    std::to_array<std::string_view>({"module", "no_python", "no_local_rank", "force_multi", "save_pid", "no_ssh",
                                     "no_ssh_check", "elastic_training", "bind_cores_to_rank", "quiet", "q"});

inline constexpr auto kAccelerateFlags = std::to_array<std::string_view>({"multi_gpu",
                                                                          "use_fsdp",
                                                                          "use_deepspeed",
                                                                          "cpu",
                                                                          "tpu",
                                                                          "quiet",
                                                                          "q",
                                                                          "module",
                                                                          "no_python",
                                                                          "use_megatron_lm",
                                                                          "use_parallelism_config",
                                                                          "debug",
                                                                          "same_network",
                                                                          "enable_cpu_affinity",
                                                                          "downcast_bf16",
                                                                          "dynamo_use_dynamic",
                                                                          "dynamo_use_fullgraph",
                                                                          "dynamo_use_regional_compilation",
                                                                          "fp8_use_autocast_during_eval",
                                                                          "tpu_cluster",
                                                                          "no_tpu_cluster",
                                                                          "tpu_use_sudo"});

/// srun's, of one letter, whose value may be the next word: required_argument in slurm_opt.c of Slurm 26.11
/// (github.com/SchedMD/slurm, 284c3b95, src/common/slurm_opt.c: options with set_func or set_func_srun).
inline constexpr std::string_view kSrunLettersWithValue = "ABCDFGJLMNSTWbcdeimnopqrtwx";

/// srun's whole names that take no word behind them: no_argument, and optional_argument, whose value stands behind "="
/// alone (the same file).
inline constexpr auto kSrunFlags = std::to_array<std::string_view>({"async",
                                                                    "bcast",
                                                                    "compress",
                                                                    "consolidate_segments",
                                                                    "contiguous",
                                                                    "debugger_test",
                                                                    "disable_status",
                                                                    "exact",
                                                                    "exclusive",
                                                                    "external_launcher",
                                                                    "help",
                                                                    "hold",
                                                                    "immediate",
                                                                    "interactive",
                                                                    "kill_on_bad_exit",
                                                                    "label",
                                                                    "multi_prog",
                                                                    "nice",
                                                                    "no_allocate",
                                                                    "no_kill",
                                                                    "oom_kill_step",
                                                                    "overcommit",
                                                                    "overlap",
                                                                    "oversubscribe",
                                                                    "parsable",
                                                                    "preserve_env",
                                                                    "propagate",
                                                                    "pty",
                                                                    "quiet",
                                                                    "quit_on_interrupt",
                                                                    "reboot",
                                                                    "resv_ports",
                                                                    "send_libs",
                                                                    "spread_job",
                                                                    "spread_segments",
                                                                    "stepmgr",
                                                                    "test_only",
                                                                    "unbuffered",
                                                                    "usage",
                                                                    "use_min_nodes",
                                                                    "verbose",
                                                                    "version",
                                                                    "wait_for_children",
                                                                    "whole",
                                                                    "x11"});

}  // namespace memcalc::config
