// DeviceRates: what was fitted to timings of single kernels on one card, in a form that carries over to others: shares
// of the datasheet's rates, and microseconds where a cost does not scale. cost/ reads it; cost/calibrate.h fits it;
// files of specs/measured (CARD/rates.json) hold it. A card without a file of its own is predicted from its datasheet
// with the H100's.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "memcalc/spec/device_spec.h"

namespace memcalc {

/// Kernels bound by memory: launch + max(bytes / (bandwidth * datasheet), elements / (elements * datasheet float32)).
struct MemoryRates {
  double launch_us = 1;  // from start to end of an empty kernel, with the gap to the next
  double bandwidth = 1;  // of the datasheet's bytes per second
  double elements = 1;   // a second, for each float32 FLOP/s of the datasheet: what index calculations cost
};

/// Products of matrices: tiles on the SMs in waves (cost/product.cc).
struct ProductRates {
  double launch_us = 1;
  double tile_us = 1;          // prologue and epilogue of a tile
  double plain = 1;            // share of the datasheet's FLOP/s with a tile of 256 x 128: no operand transposed,
  double first = 1;            // the first,
  double second = 1;           // the second
  double narrow = 0.1;         // loss of narrower tiles
  double ragged = 0.5;         // how much of an incomplete last wave is lost
  double misaligned = 1;       // share of the rate left where a row of a matrix starts at odd elements,
  double half_misaligned = 1;  // at odd multiples of 4 bytes
  double bandwidth = 1;
};

/// Fused attention (cost/attention.cc, efficient_attention.cc). Memory-efficient kernels have no head, keys and causal.
struct AttentionRates {
  double launch_us = 1;
  double forward = 1;  // share of the datasheet's FLOP/s for long sequences and wide heads, or in tiles for heads of 64
  double backward = 1;
  double head = 64;          // width of heads at which half of it is reached
  double keys = 64;          // number of keys at which half of it is reached
  double causal = 1;         // blocks on the diagonal that are computed whole, of 128 keys
  double dropout = 1;        // forward time with random numbers over without
  double bias = 1;           // forward time with a bias over without,
  double bias_backward = 1;  // and backward time
  double passes = 0;         // of backward over the float32 gradient of the queries, bound by memory
};

/// Convolutions (cost/convolution.cc).
struct ConvolutionRates {
  double launch_us = 1;
  double forward = 1;
  double backward = 1;
  double channels = 32;  // output channels at which half of the rate is reached
  double few = 0.3;      // share of the rate left with fewer input channels than a vector load has: images
  double depth = 64;     // products summed (channels x window) at which half of the rate is reached
  double bandwidth = 1;  // of the ideal bytes: layout conversions are in it
};

/// Batch norm: a block goes over a channel, so that few channels leave multiprocessors idle.
struct ChannelRates {
  double launch_us = 4;
  double chain_ns = 0.6;  // each element of a channel, of a block alone
  double byte_ns = 0.15;  // each byte, of all that share a multiprocessor
};

/// Kernels whose blocks go over channels, rows and windows, and which are slower than memory for it.
struct BlockRates {
  ChannelRates cudnn_batch_norm, cudnn_batch_norm_backward, batch_norm, batch_norm_backward;
  double row_ns = 1.5;                  // a row of a layer norm
  double chain_ns = 3.4;                // of its weight's gradient: each row that a block of columns goes over
  double pooled_per_second = 7e10;      // results of pooling
  double max_pooled_per_second = 9e10;  // in backward: gradients of the input
  double mean_pooled_per_second = 5.7e10;
  double adaptive_per_second = 1.8e10;  // results, and gradients
  std::string source;                   // empty: not measured
};

/// Convolutions whose channels are groups of their own: multiply-adds, as a share of the card's float32 rate.
struct DepthwiseRates {
  double launch_us = 3;
  double last_forward = 0.0775;  // cuDNN's kernels for windows of 3, 5 and 7, in float32 (cost/convolution.cc)
  double last_input = 0.0746;
  double last_weight = 0.2;        // 16 bits, channels last
  double direct_forward = 0.0078;  // other windows
  double direct_input = 0.0239;
  double direct_weight = 0.0221;
  double direct_float32_weight = 0.00944;  // of any window and many channels
  std::string source;                      // empty: an H200's, tests/measured/depthwise_kernels_h200.jsonl
};

struct EmbeddingRates {
  double scatter_us = 1;  // each index, where few are scattered by one kernel
  double sort_us = 1;     // the sort of many
  double elements = 1;    // gradients summed, as MemoryRates::elements
};

/// Microseconds of the host for each operator that it issues (Python, dispatcher, autograd's bookkeeping).
struct HostRates {
  double pointwise_us = 1;
  double normalization_us = 1;
  double image_us = 1;  // batch norm
  double product_us = 1;
  double attention_us = 1;
  double convolution_us = 1;
  double view_us = 1;
  double python_us = 1;          // the model's own Python around an operator of forward
  double forward_us = 1;         // a call of forward(), beside its operators
  double node_us = 1;            // of backward, beside its operators
  double backward_us = 1;        // a call of backward()
  double tensor_us = 1;          // optimizers and foreach: each pass over each tensor of a list
  double queue_kernels = 1;      // launches that the driver queues before the host has to wait
  double gap_us = 1;             // of the card between two kernels of a stream, beyond the sweep's graphs
  double launch_latency_us = 1;  // from the host's call to the kernel's start on an idle card
  double collective_us = 1;      // a call of c10d
  double rank_spread = 1;        // of its times between ranks that run the same: standard deviation over mean
  double copy_us = 1;            // of a tensor to or from host memory
  // Loops and wrappers: HostWork
  double checkpoint_forward_us = 1;   // a checkpointed region in forward: random states, contexts
  double checkpoint_backward_us = 1;  // the same where it is computed again
  double packed_tensor_us = 1;        // each tensor that autograd saves there: its hook in forward,
  double unpacked_tensor_us = 1;      // both hooks in backward
  double optimizer_tensor_us = 1;     // the optimizer's own loop over its parameters
  double zeroed_tensor_us = 1;        // zero_grad's, with the gradients that die
  double vmapped_index_us = 1;        // tensor[index] in a function that torch.vmap calls for a mask
  double model_call_us = 1;           // inference: a call of a model, beside its operators
  double generate_us = 1;             // a call of generate(), beside its tokens
  double generated_token_us = 1;      // its loop around a token, beside the operators
  double generate_encoder_us = 1;     // what generate() of an encoder-decoder takes longer before its first token
  double cache_layer_us = 1;          // a layer of a cache where it is made
  double packed_linear_us = 1;        // bitsandbytes' Linear4bit in forward, beside its operators
  double int8_linear_us = 1;          // its Linear8bitLt
  double int8_warning_us = 1;         // and where its input is not float16
  double call_ratio = 1;              // a call without autograd, in a process without backward: of all times above
  double backward_ratio = 1;          // backward, which another thread issues: of what forward's rates say of it
  double compiled_us = 1;             // each kernel that the code of a compiled graph launches
  double compiled_call_us = 1;        // a call of such a graph: guards, AOTAutograd's wrappers
  double compiled_tensor_us = 1;      // each tensor that it is given or returns
  double trainer_step_us = 1;
  double trainer_batch_us = 1;
  double trainer_tensor_us = 1;
  double collated_token_us = 1;  // a token of a batch that a collator makes of lists of numbers
  double text_token_us = 1;      // a token of a text, through the tokenizer and into tensors
  double toggled_module_us = 1;  // of peft's disable_adapter(), for each adapted module
  double fsdp2_forward_us = 1;
  double fsdp2_backward_us = 1;
  double fsdp1_forward_us = 1;
  double fsdp1_backward_us = 1;
  double distributed_linear_us = 1;
  double distributed_linear_backward_us = 1;
  double reduced_tensor_us = 1;
  // Optimizers whose parameters are DTensors
  double sharded_tensor_us = 1;    // foreach: each pass over each tensor, in the place of tensor_us
  double sharded_operator_us = 1;  // loops: each operator, in the place of pointwise_us
  // Optimizers in host memory, with the threads that a process has: what a pass reads and writes, and what a loop of
  // operators does, whose results are new memory each time. One thread alone: cost/host_time.cc
  double memory_bytes_per_second = 1e11;
  double looped_bytes_per_second = 5.5e10;
};

/// Copies between host and card.
struct TransferRates {
  double latency_us = 1;
  double pinned_bytes_per_second = 1;
  double pageable_bytes_per_second = 1;
};

/// Collectives of NCCL: start + steps * hop + what crosses the slowest link / (share * its rate). cost/collective.cc
struct LinkRates {
  double start_us = 1;            // of a collective that moves much
  double hop_us = 1;              // each step of a ring
  double gather_hop_us = 1;       // the same of an all-gather or a reduce-scatter
  double bandwidth = 1;           // of the link's rate in one direction
  double gather_bandwidth = 1;    // of an all-gather or a reduce-scatter
  double exchange_bandwidth = 1;  // of an all-to-all
  // What a rank does with its own part of an all-reduce, and of an all-gather or reduce-scatter, as a rate like these.
  double own_bandwidth = 1e9, gather_own_bandwidth = 1e9;
  // Of NCCL's low-latency protocol, which sends a flag with each word: what it starts with, and its rate.
  double quick_start_us = 1e6, quick_bandwidth = 1;
  double network_us = 1;         // each step that leaves the host
  double network_bandwidth = 1;  // of the network adapters' rate in one direction
  // What a kernel takes longer while a collective runs beside it, as a share of its time: collectives hold some
  // multiprocessors and move data through the same memory.
  double product_contention = 1e-12;
  double memory_contention = 1e-12;
  // And what the collective takes longer: one that gathers, which only copies, and one that sums; an all-reduce beyond
  // that by this share of the kernels beside it that memory bounds.
  double gather_contention = 1e-12;
  double collective_contention = 1e-12;
  double all_reduce_contention = 1e-12;
  // Of the hosts, not fitted: specs/networks.json
  double network_bytes_per_second = 12.5e9;  // of one card's adapter, one direction
  std::int64_t gpus_per_host = 8;
  std::string network_source;  // empty: a guess
};

/// How memory-bound kernels change on a card whose memory is faster than that of the one that was measured.
struct MemoryScaling {
  double bytes_per_second = 0;  // the measured card's datasheet; 0: nothing is scaled
  double multiprocessors = 0;
  double share = 1;  // seconds a byte that the memory takes, for one over its datasheet's bytes a second
  std::string source;
};

/// What a kernel reads a second time from the card's second-level cache, if it still lies there.
struct CacheRates {
  double bytes = 0;       // of the cache; 0: all is read from memory again
  double read_share = 1;  // a read's time there, over one from memory
  std::string source;
};

/// What the host takes where a library is called with a size that it has not seen (symbolic/first_calls.h). Nothing
/// where it was not measured.
struct FirstCallRates {
  double attention_us = 0;  // cuDNN's plan of an attention
  double attention_backward_us = 0;
  double product_us = 0;  // cuBLAS's choice of a kernel for a product in 16 bits
  std::string source;
};

/// What a card draws, as shares of the limit at which it lowers its clock.
struct PowerRates {
  double watts = 0;     // the limit; 0: whatever the card's is
  double products = 0;  // where tensor cores reach their best rate at the full clock; 0: the rates are of the limit
  double best = 1;      // that rate, of the datasheet's
  double others = 1;    // in other kernels
  double idle = 0;
  double full_clock = 1;  // how many times their rates products reach there: those of loops are of the limit
  std::string source;
};

/// A host that was measured: the quickest or the slowest of specs/measured/hosts.json, or a file of --host.
struct MeasuredHost {
  std::string name;
  HostRates rates;
};

struct DeviceRates {
  std::string measured_on;  // name of the card
  std::string command;      // that made them
  std::string date;
  std::string host_source;          // where the host's numbers are from; empty: not said
  std::string attention_source;     // and those of attention with a bias
  std::string link_source;          // where the network's are from
  std::string published_source;     // of those that others measured on this card; empty: none
  bool predicted = false;           // this card was not measured
  std::vector<std::string> unsaid;  // groups of which a measured card's file lacks numbers: predicted ones stand in

  MemoryRates vectorized, converting, strided, random, rowwise, softmax, row_sum, column_sum, image, pooling, indexed,
      multi_tensor;
  ProductRates half, tf32, float32;
  AttentionRates cudnn, flash, efficient, efficient_float32;
  ConvolutionRates convolution_half, convolution_tf32, convolution_float32;
  EmbeddingRates embedding;
  HostRates host;                   // the one that was named, else the median of those that were measured
  std::string host_name;            // of a host that was named
  std::vector<MeasuredHost> hosts;  // ends of the range of those that were measured; empty where one was named
  TransferRates transfer;
  LinkRates link;
  MemoryScaling scaling;
  CacheRates cache;
  FirstCallRates first_calls;
  PowerRates power;
  DepthwiseRates depthwise;
  // Where single ones were measured (cost/convolution_times.h), of what; empty: the rates above stand for them.
  std::string convolution_times;
  std::string product_times;  // the same of products (cost/product_times.h)
  BlockRates blocks;
};

/// The card where its memory alone is asked: no step is timed.
[[nodiscard]] DeviceSpec without_rates(DeviceSpec device);

/// The card where one time is asked, not the range over the measured hosts.
[[nodiscard]] DeviceSpec on_one_host(DeviceSpec device);

/// Rates of a card that was not measured, with memory of `bytes_per_second`. Of the time that a byte takes in a
/// memory-bound kernel only a part is the memory's; the rest is the multiprocessors', which another memory leaves as it
/// is. Where the memory is slower and the multiprocessors are fewer (on older cards also slower, which no datasheet
/// says of such kernels), the shares of the datasheet hold.
void carry_over(DeviceRates& rates, double bytes_per_second, double multiprocessors);

/// Of a host that takes so many times as long: what is its own, not the driver's and the card's.
[[nodiscard]] HostRates times(double factor, HostRates host);

/// The same with the machines that were measured (specs/measured/hosts.json), each so many times as slow as `host`,
/// which becomes their median; `hosts` has the quickest and the slowest.
void add_measured_hosts(DeviceRates& rates, const std::string& path);
/// The same with the host of a file (python -m memcalc.measure --host FILE). Throws Error(kInput) for one that is
/// wrong.
[[nodiscard]] DeviceRates with_host(const DeviceRates& rates, const std::string& path);

/// Calls visit(name, value) for each number of them.
template <typename Rates, typename Visit>
void visit_depthwise_rates(Rates& rates, Visit visit) {
  visit("launch_us", rates.launch_us);
  visit("last_forward", rates.last_forward);
  visit("last_input", rates.last_input);
  visit("last_weight", rates.last_weight);
  visit("direct_forward", rates.direct_forward);
  visit("direct_input", rates.direct_input);
  visit("direct_weight", rates.direct_weight);
  visit("direct_float32_weight", rates.direct_float32_weight);
}

/// Calls visit(group, name, value) for each number of them; the group of what is not batch norm's is "".
template <typename Rates, typename Visit>
void visit_block_rates(Rates& rates, Visit visit) {
  const auto channels = [&](const char* group, auto& r) {
    visit(group, "launch_us", r.launch_us);
    visit(group, "chain_ns", r.chain_ns);
    visit(group, "byte_ns", r.byte_ns);
  };
  channels("cudnn_batch_norm", rates.cudnn_batch_norm);
  channels("cudnn_batch_norm_backward", rates.cudnn_batch_norm_backward);
  channels("batch_norm", rates.batch_norm);
  channels("batch_norm_backward", rates.batch_norm_backward);
  visit("", "row_ns", rates.row_ns);
  visit("", "chain_ns", rates.chain_ns);
  visit("", "pooled_per_second", rates.pooled_per_second);
  visit("", "max_pooled_per_second", rates.max_pooled_per_second);
  visit("", "mean_pooled_per_second", rates.mean_pooled_per_second);
  visit("", "adaptive_per_second", rates.adaptive_per_second);
}

/// Calls visit(name, value) for each number of a host.
template <typename Rates, typename Visit>
void visit_host_rates(Rates& rates, Visit visit) {
  visit("pointwise_us", rates.pointwise_us);
  visit("normalization_us", rates.normalization_us);
  visit("image_us", rates.image_us);
  visit("product_us", rates.product_us);
  visit("attention_us", rates.attention_us);
  visit("convolution_us", rates.convolution_us);
  visit("view_us", rates.view_us);
  visit("python_us", rates.python_us);
  visit("forward_us", rates.forward_us);
  visit("node_us", rates.node_us);
  visit("backward_us", rates.backward_us);
  visit("tensor_us", rates.tensor_us);
  visit("queue_kernels", rates.queue_kernels);
  visit("gap_us", rates.gap_us);
  visit("launch_latency_us", rates.launch_latency_us);
  visit("collective_us", rates.collective_us);
  visit("rank_spread", rates.rank_spread);
  visit("copy_us", rates.copy_us);
  visit("checkpoint_forward_us", rates.checkpoint_forward_us);
  visit("checkpoint_backward_us", rates.checkpoint_backward_us);
  visit("packed_tensor_us", rates.packed_tensor_us);
  visit("unpacked_tensor_us", rates.unpacked_tensor_us);
  visit("optimizer_tensor_us", rates.optimizer_tensor_us);
  visit("zeroed_tensor_us", rates.zeroed_tensor_us);
  visit("vmapped_index_us", rates.vmapped_index_us);
  visit("model_call_us", rates.model_call_us);
  visit("generate_us", rates.generate_us);
  visit("generated_token_us", rates.generated_token_us);
  visit("generate_encoder_us", rates.generate_encoder_us);
  visit("cache_layer_us", rates.cache_layer_us);
  visit("packed_linear_us", rates.packed_linear_us);
  visit("int8_linear_us", rates.int8_linear_us);
  visit("int8_warning_us", rates.int8_warning_us);
  visit("call_ratio", rates.call_ratio);
  visit("backward_ratio", rates.backward_ratio);
  visit("compiled_us", rates.compiled_us);
  visit("compiled_call_us", rates.compiled_call_us);
  visit("compiled_tensor_us", rates.compiled_tensor_us);
  visit("trainer_step_us", rates.trainer_step_us);
  visit("trainer_batch_us", rates.trainer_batch_us);
  visit("trainer_tensor_us", rates.trainer_tensor_us);
  visit("collated_token_us", rates.collated_token_us);
  visit("text_token_us", rates.text_token_us);
  visit("toggled_module_us", rates.toggled_module_us);
  visit("fsdp2_forward_us", rates.fsdp2_forward_us);
  visit("fsdp2_backward_us", rates.fsdp2_backward_us);
  visit("fsdp1_forward_us", rates.fsdp1_forward_us);
  visit("fsdp1_backward_us", rates.fsdp1_backward_us);
  visit("distributed_linear_us", rates.distributed_linear_us);
  visit("distributed_linear_backward_us", rates.distributed_linear_backward_us);
  visit("reduced_tensor_us", rates.reduced_tensor_us);
  visit("sharded_tensor_us", rates.sharded_tensor_us);
  visit("sharded_operator_us", rates.sharded_operator_us);
  visit("memory_bytes_per_second", rates.memory_bytes_per_second);
  visit("looped_bytes_per_second", rates.looped_bytes_per_second);
}

/// Calls visit(group, name, value) for each number, in the order of the file.
template <typename Rates, typename Visit>
void visit_rates(Rates& rates, Visit visit) {
  const auto memory = [&](const char* group, auto& r) {
    visit(group, "launch_us", r.launch_us);
    visit(group, "bandwidth", r.bandwidth);
    visit(group, "elements", r.elements);
  };
  const auto product = [&](const char* group, auto& r) {
    visit(group, "launch_us", r.launch_us);
    visit(group, "tile_us", r.tile_us);
    visit(group, "plain", r.plain);
    visit(group, "first", r.first);
    visit(group, "second", r.second);
    visit(group, "narrow", r.narrow);
    visit(group, "ragged", r.ragged);
    visit(group, "misaligned", r.misaligned);
    visit(group, "half_misaligned", r.half_misaligned);
    visit(group, "bandwidth", r.bandwidth);
  };
  const auto attention = [&](const char* group, auto& r) {
    visit(group, "launch_us", r.launch_us);
    visit(group, "forward", r.forward);
    visit(group, "backward", r.backward);
    visit(group, "dropout", r.dropout);
    visit(group, "passes", r.passes);
  };
  const auto ramps = [&](const char* group, auto& r) {
    visit(group, "head", r.head);
    visit(group, "keys", r.keys);
    visit(group, "causal", r.causal);
  };
  const auto biases = [&](const char* group, auto& r) {
    visit(group, "bias", r.bias);
    visit(group, "bias_backward", r.bias_backward);
  };
  const auto convolution = [&](const char* group, auto& r) {
    visit(group, "launch_us", r.launch_us);
    visit(group, "forward", r.forward);
    visit(group, "backward", r.backward);
    visit(group, "channels", r.channels);
    visit(group, "few", r.few);
    visit(group, "depth", r.depth);
    visit(group, "bandwidth", r.bandwidth);
  };
  memory("vectorized", rates.vectorized);
  memory("converting", rates.converting);
  memory("strided", rates.strided);
  memory("random", rates.random);
  memory("rowwise", rates.rowwise);
  memory("softmax", rates.softmax);
  memory("row_sum", rates.row_sum);
  memory("column_sum", rates.column_sum);
  memory("image", rates.image);
  memory("pooling", rates.pooling);
  memory("indexed", rates.indexed);
  memory("multi_tensor", rates.multi_tensor);
  product("half", rates.half);
  product("tf32", rates.tf32);
  product("float32", rates.float32);
  attention("cudnn", rates.cudnn);
  ramps("cudnn", rates.cudnn);
  biases("cudnn", rates.cudnn);
  attention("flash", rates.flash);
  ramps("flash", rates.flash);  // it takes no bias (sdp_utils.cpp)
  // "efficient" of files of 0.2.0 are shares of another formula, which had ramps.
  attention("memory_efficient", rates.efficient);
  biases("memory_efficient", rates.efficient);
  attention("memory_efficient_float32", rates.efficient_float32);
  biases("memory_efficient_float32", rates.efficient_float32);
  convolution("convolution_half", rates.convolution_half);
  convolution("convolution_tf32", rates.convolution_tf32);
  convolution("convolution_float32", rates.convolution_float32);
  visit("embedding", "scatter_us", rates.embedding.scatter_us);
  visit("embedding", "sort_us", rates.embedding.sort_us);
  visit("embedding", "elements", rates.embedding.elements);
  visit_host_rates(rates.host, [&](const char* name, auto& value) { visit("host", name, value); });
  visit("link", "start_us", rates.link.start_us);
  visit("link", "hop_us", rates.link.hop_us);
  visit("link", "gather_hop_us", rates.link.gather_hop_us);
  visit("link", "bandwidth", rates.link.bandwidth);
  visit("link", "gather_bandwidth", rates.link.gather_bandwidth);
  visit("link", "exchange_bandwidth", rates.link.exchange_bandwidth);
  visit("link", "own_bandwidth", rates.link.own_bandwidth);
  visit("link", "gather_own_bandwidth", rates.link.gather_own_bandwidth);
  visit("link", "quick_start_us", rates.link.quick_start_us);
  visit("link", "quick_bandwidth", rates.link.quick_bandwidth);
  visit("link", "network_us", rates.link.network_us);
  visit("link", "network_bandwidth", rates.link.network_bandwidth);
  visit("link", "product_contention", rates.link.product_contention);
  visit("link", "memory_contention", rates.link.memory_contention);
  visit("link", "gather_contention", rates.link.gather_contention);
  visit("link", "collective_contention", rates.link.collective_contention);
  visit("link", "all_reduce_contention", rates.link.all_reduce_contention);
  visit("transfer", "latency_us", rates.transfer.latency_us);
  visit("transfer", "pinned_bytes_per_second", rates.transfer.pinned_bytes_per_second);
  visit("transfer", "pageable_bytes_per_second", rates.transfer.pageable_bytes_per_second);
}

}  // namespace memcalc
