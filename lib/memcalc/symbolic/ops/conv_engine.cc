#include "memcalc/symbolic/ops/conv_engine.h"

#include <algorithm>
#include <array>
#include <bit>
#include <iterator>
#include <numeric>

namespace memcalc {

namespace {

struct Tree {
  int mode, layout, pass, first_node;
};

/// A branch on a feature, or a leaf: no feature, and the engine as the third number.
struct Node {
  std::int64_t limit;
  std::int16_t feature;
  std::uint16_t above_or_engine;
};

#include "memcalc/symbolic/ops/convolution_engines.inc"  // of specs/measured/cudnn-9.19

enum Number {
  kInput = 1,
  kOutput = 2,
  kWeight = 4,
  kWinograd = 8,
  kOfEachImage = 9,
  kWider = 15,
  kFft = 16,
  kWholeFft = 24,
  kPartial = 32,
  kStreamed = 8192
};

/// In the order of tests/measured/harness/convolution_engines.py, Convolution.features.
std::array<std::int64_t, 26> features_of(const ConvolutionShape& s) {
  const std::int64_t pixels = checked_multiply(s.batch * s.depth, s.height * s.width);
  const std::int64_t out_pixels = checked_multiply(s.batch * s.out_depth, s.out_height * s.out_width);
  const std::int64_t window = s.kernel_depth * s.kernel_height * s.kernel_width;
  const std::int64_t weights = checked_multiply(checked_multiply(s.in_channels, s.out_channels), window) / s.groups;
  return {s.batch, s.in_channels, s.out_channels, s.height, s.width, window, s.stride, s.dilated(), pixels, out_pixels,
          checked_multiply(out_pixels, weights), checked_multiply(pixels, s.in_channels),
          checked_multiply(out_pixels, s.out_channels), weights, s.groups, s.groups == s.in_channels,
          s.in_channels % 8 != 0, s.out_channels % 8 != 0,
          s.batch * ceil_div(s.height, 30) * ceil_div(s.width, 30),  // tiles of a Fourier transform
          s.in_channels / s.groups, s.out_channels / s.groups, s.depth, s.kernel_depth,
          std::gcd(s.depth * s.height * s.width, std::int64_t{8}),
          std::gcd(s.out_depth * s.out_height * s.out_width, std::int64_t{8}),
          // Tiles of 64 x 64 of the weight's gradient.
          ceil_div(s.out_channels / s.groups, 64) * ceil_div(s.in_channels / s.groups * window, 64)};
}

/// Of what there are trees.
enum Kind { kImages, kVolumes, kImagesInGroups, kPatches, kSequences, kSequencesInGroups };

/// Whether the number of partial sums is known; of others their size alone is, in powers of two.
bool counts_sums(Kind kind) { return kind == kImages || kind == kSequences; }

constexpr Bytes kFloat32 = 4;

constexpr Bytes kCounter = 16;  // beside whatever an engine copies, in every plan that asks for memory

/// A block's part of a weight's gradient, by TILE_SIZE of cuDNN's plans: outputs, and inputs of one tap.
struct Tile {
  std::int64_t outputs = 0, inputs = 0;
};
constexpr std::array<Tile, 10> kTiles{
    {{128, 128}, {128, 64}, {}, {256, 128}, {256, 64}, {64, 64}, {128, 256}, {64, 128}, {}, {64, 256}}};

/// Clusters of so many blocks that a card of 132 multiprocessors runs at once (H200): a cluster stays within a GPC.
std::int64_t clusters_at_once(std::int64_t blocks) {
  constexpr std::array<std::int64_t, 17> kAtOnce{0, 132, 66, 39, 30, 22, 16, 16, 15, 0, 0, 0, 0, 0, 8, 0, 7};
  return kAtOnce[static_cast<std::size_t>(blocks)];
}

/// A weight's gradient on tensor cores: its last wave of tiles is split along the sum until it fills the card, and each
/// block at work leaves a partial sum in float32 (cuDNN 9.19's engines 65 and, in TF32, 68, from the plans of 104,603
/// random convolutions beside their settings; of 897 in groups 84 % have these bytes). `kind`: the tile, 1,024 times,
/// and a cluster's blocks along the outputs, 32 times, and along the inputs.
Bytes streamed_workspace(int kind, const ConvolutionShape& s, Bytes element) {
  const Tile tile = kTiles[static_cast<std::size_t>(kind / 1024)];
  const std::int64_t tall = kind / 32 % 32, broad = kind % 32, multiple = 16 / element;
  const std::int64_t window = s.kernel_depth * s.kernel_height * s.kernel_width;
  std::int64_t group_in = ceil_div(s.in_channels / s.groups, multiple) * multiple;
  std::int64_t group_out = ceil_div(s.out_channels / s.groups, multiple) * multiple;
  constexpr std::int64_t kWidest = 128, kSideBySide = 64;  // channels of a group that is made as wide as a power of two
  std::int64_t together = 1;                               // groups beside each other in a tile
  if (s.groups > 1) {
    const std::int64_t wider = std::max(group_in, group_out);
    if (wider <= kWidest) group_in = group_out = power_of_two_from(wider);
    together = std::max<std::int64_t>(1, kSideBySide / std::max(group_in, group_out));
  }
  const std::int64_t in = checked_multiply(s.groups, group_in), out = checked_multiply(s.groups, group_out);
  const bool padded = in != s.in_channels || out != s.out_channels;
  const std::int64_t pixels = checked_multiply(s.batch * s.depth, s.height * s.width);
  const std::int64_t out_pixels = checked_multiply(s.batch * s.out_depth, s.out_height * s.out_width);
  Bytes copied = 0;  // one tap's filters are as they are in both layouts
  if (!s.channels_last || in != s.in_channels) copied = checked_add(copied, checked_multiply(pixels, in));
  if (!s.channels_last || out != s.out_channels) copied = checked_add(copied, checked_multiply(out_pixels, out));
  if (padded || (!s.channels_last && window > 1))
    copied = checked_add(copied, checked_multiply(checked_multiply(in, group_out), window));
  const std::int64_t at_once = clusters_at_once(tall * broad);
  const std::int64_t tiles =
      checked_multiply(ceil_div(ceil_div(together * group_out, tile.outputs), tall),
                       ceil_div(checked_multiply(window, ceil_div(together * group_in, tile.inputs)), broad));
  const std::int64_t left = checked_multiply(ceil_div(s.groups, together), tiles) % at_once;
  // kFewest to kMostOfFew are fitted to the plans; which splits cuDNN takes of few steps is not known.
  constexpr std::int64_t kStep = 64, kFewest = 64, kFew = 153, kLeastOfPart = 17, kMostOfFew = 8;
  const std::int64_t steps = ceil_div(out_pixels, kStep);
  std::int64_t parts = left > 0 ? at_once / left : 0;
  if (steps < kFewest) {
    parts = 0;
  } else {
    parts = std::min(parts, steps < kFew ? kMostOfFew : steps / kLeastOfPart);
  }
  // Of most plans four bytes for each pair of a block's partial sums that a tree adds, and 159: 291 to 783 bytes. One
  // number stands for all of them.
  constexpr Bytes kCounters = 600;
  const Bytes sums = parts > 1 ? left * parts * tall * broad * tile.outputs * tile.inputs * kFloat32 + kCounters : 0;
  return checked_add(checked_multiply(copied, element), sums) + kCounter;
}

/// Each channel by itself is among the images; patches do not overlap.
Kind kind_of(const ConvolutionShape& s) {
  if (s.spatial_rank > 2) return kVolumes;
  if (s.spatial_rank == 1) return s.groups == 1 ? kSequences : kSequencesInGroups;
  if (s.groups > 1) return s.groups < s.in_channels ? kImagesInGroups : kImages;
  const bool square = s.kernel_height == s.stride && s.kernel_width == s.stride && s.same_everywhere;
  return square && s.stride > 1 && s.padding == 0 ? kPatches : kImages;
}

}  // namespace

ConvolutionMode convolution_mode(DType dtype, bool allow_tf32) {
  if (dtype == DType::kFloat16) return kFp16;
  if (dtype == DType::kBFloat16) return kBf16;
  return allow_tf32 ? kTf32 : kFp32;
}

Bytes winograd_workspace(const ConvolutionShape& s) {
  const std::int64_t tiles = checked_multiply(s.batch, ceil_div(s.out_height, 4) * ceil_div(s.out_width, 4));
  const std::int64_t weights = checked_multiply(s.in_channels, s.out_channels);
  return checked_multiply(6 * 6 * kFloat32, weights + checked_multiply(tiles, s.in_channels + s.out_channels));
}

Bytes ConvolutionEngine::workspace(const ConvolutionShape& s, DType dtype, bool allow_tf32) const {
  if (number_ == 0) return 0;
  if (number_ >= kStreamed) return streamed_workspace(number_ - kStreamed, s, size_of(dtype));
  if (number_ == kWinograd) return winograd_workspace(s);
  const std::int64_t filters = checked_multiply(s.in_channels, s.out_channels);
  const std::int64_t images = s.batch * (s.in_channels + s.out_channels);
  constexpr Bytes kComplex = 2 * kFloat32;
  if (number_ == kFft) {  // tiles of 32 x 32, two of an image at a time; half of the spectrum
    const std::int64_t side = 32, tiles = std::max(s.height, s.width) + s.kernel_height - 1 <= side ? 1 : 2;
    return checked_multiply(side * (side / 2 + 1) * kComplex, filters + images * tiles);
  }
  if (number_ == kWholeFft) {  // the padded image at once, filters and images twice; and the filters turned round
    const std::int64_t padded = std::max(s.height, s.width) + 2 * s.padding;
    const auto side =
        std::max<std::int64_t>(16, static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(padded))));
    return checked_add(checked_multiply(side * (side / 2 + 1) * 2 * kComplex, filters + s.batch * s.in_channels),
                       checked_multiply(filters, s.kernel_height * s.kernel_width * kFloat32));
  }
  if (number_ == kOfEachImage) {  // partial sums of a weight's gradient, an image each, which a second kernel adds
    const std::int64_t window = s.kernel_depth * s.kernel_height * s.kernel_width;
    return checked_multiply(s.batch * kFloat32, checked_multiply(filters / s.groups, window));
  }
  const std::int64_t element = size_of(dtype);
  std::int64_t in = s.in_channels, out = s.out_channels;
  if (number_ == kWider && s.groups > 1) {  // each group as wide as the next power of two
    const auto width = static_cast<std::uint64_t>(std::max(in, out) / s.groups);
    in = out = checked_multiply(s.groups, static_cast<std::int64_t>(std::bit_ceil(width)));
  } else if (s.groups == 1 && (number_ == kWider || convolution_mode(dtype, allow_tf32) != kFp32)) {
    const std::int64_t multiple = 16 / element;
    in = ceil_div(in, multiple) * multiple;
    out = ceil_div(out, multiple) * multiple;
  }
  const Bytes input = checked_multiply(s.batch * in, checked_multiply(s.depth, s.height * s.width));
  const Bytes output = checked_multiply(s.batch * out, checked_multiply(s.out_depth, s.out_height * s.out_width));
  const Bytes weight = checked_multiply(out * (in / s.groups), s.kernel_depth * s.kernel_height * s.kernel_width);
  Bytes copied = 0;
  if ((number_ & kInput) != 0) copied = checked_add(copied, input);
  if ((number_ & kOutput) != 0) copied = checked_add(copied, output);
  if ((number_ & kWeight) != 0) copied = checked_add(copied, weight);
  const std::int64_t parts = number_ / kPartial;
  Bytes partial_sums = checked_multiply(parts * kFloat32, weight);
  if (parts > 0 && !counts_sums(kind_of(s))) partial_sums = Bytes{16384} << parts;
  return checked_add(checked_multiply(copied, element), partial_sums) + kCounter;
}

ConvolutionEngine likely_engine(const ConvolutionShape& shape, ConvolutionPass pass, DType dtype, bool allow_tf32) {
  const int mode = convolution_mode(dtype, allow_tf32), layout = 2 * kind_of(shape) + (shape.channels_last ? 1 : 0),
            which = static_cast<int>(pass);
  const auto* tree = std::find_if(std::begin(kTrees), std::end(kTrees), [&](const Tree& t) {
    return t.mode == mode && t.layout == layout && t.pass == which;
  });
  if (tree == std::end(kTrees)) return ConvolutionEngine(0);
  const std::array features = features_of(shape);
  std::size_t node = static_cast<std::size_t>(tree->first_node);
  while (kNodes[node].feature >= 0) {
    const Node& branch = kNodes[node];
    const bool above = features[static_cast<std::size_t>(branch.feature)] > branch.limit;
    node = above ? static_cast<std::size_t>(branch.above_or_engine) : node + 1;
  }
  return ConvolutionEngine(kNodes[node].above_or_engine);
}

}  // namespace memcalc
