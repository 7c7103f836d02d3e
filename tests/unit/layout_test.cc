// symbolic/layout: when a reshape is a view, and how results are laid out. The expected strides are PyTorch 2.11's
// own: Tensor.view, empty_like, operators on CPU tensors of these sizes, torch.broadcast_shapes.
#include "memcalc/symbolic/layout.h"

#include <gtest/gtest.h>

#include <deque>
#include <sstream>
#include <string>
#include <vector>

#include "support/tape_bench.h"

namespace memcalc {
namespace {

Shape parse(const std::string& text) {  // "2,3,4"; "-": no dimensions
  Shape shape;
  std::istringstream stream(text == "-" ? "" : text);
  for (std::string size; std::getline(stream, size, ',');) {
    shape.dims[static_cast<std::size_t>(shape.rank++)] = std::stoll(size);
  }
  return shape;
}

std::string print(const Shape& shape) {
  std::string text;
  for (int i = 0; i < shape.rank; ++i) text += (i > 0 ? "," : "") + std::to_string(shape[i]);
  return text.empty() ? "-" : text;
}

struct Layout {
  Shape shape;
  Shape strides;
};

Layout layout(const std::string& text) {  // "2,3 / 3,1"
  const std::size_t slash = text.find(" / ");
  return {parse(text.substr(0, slash)), parse(text.substr(slash + 3))};
}

TEST(Layout, ViewStrides) {
  const struct {
    const char* from;
    const char* target;
    const char* strides;  // "copy": it is no view
  } cases[] = {
      {"2,5,12 / 60,12,1", "2,5,3,4", "60,12,4,1"},
      {"2,3,5,4 / 60,4,12,1", "2,15,4", "copy"},
      {"2,3,5,4 / 60,4,12,1", "6,5,4", "copy"},
      {"2,5,3,4 / 60,12,4,1", "2,5,12", "60,12,1"},
      {"2,5,12 / 180,36,1", "2,5,3,4", "180,36,4,1"},
      {"2,5,12 / 180,36,1", "10,12", "36,1"},
      {"2,5,12 / 180,36,1", "120", "copy"},
      {"2,5,3,4 / 12,0,4,1", "10,3,4", "copy"},
      {"2,5,3 / 0,3,1", "10,3", "copy"},
      {"4,6 / 1,4", "24", "copy"},
      {"1,6 / 1,1", "6", "1"},
      {"- / -", "1,1", "1,1"},
      {"3,1,1,6 / 0,6,6,1", "18", "copy"},
      {"3,1,1,1,4 / 12,4,4,4,1", "1,1,4,3", "copy"},
      {"2,4,1 / 1,2,2", "1,4,2", "copy"},
      {"2,6,3,1,1 / 3,6,1,1,1", "2,18,1", "copy"},
      {"3,1,4,1 / 0,1,1,4", "12", "copy"},
      {"3,6,3,1 / 0,3,1,1", "9,6,1,1", "copy"},
      {"1,2,1,2,4 / 1,1,4,2,4", "1,2,8,1", "copy"},
      {"2,1,1,6,3 / 1,72,6,12,2", "18,2,1,1", "copy"},
      {"6,1,3,1 / 1,1,6,1", "9,2", "copy"},
      {"4,6,3 / 1,4,0", "4,6,3,1", "1,4,0,0"},
      {"4,1,1,1,1 / 1,1,1,1,1", "4,1,1,1,1,1", "1,1,1,1,1,1"},
      {"1,1,4,1 / 4,4,1,1", "1,1,2,2,1", "4,4,2,1,1"},
      {"1,4,1,4 / 4,4,4,1", "1,4,1,1,4", "16,4,4,4,1"},
      {"1,1,6,3 / 18,18,3,1", "1,1,1,18", "18,18,18,1"},
      {"6,1,2 / 2,2,1", "2,1,6,1", "6,6,1,1"},
      {"1,1,3,4,3 / 36,36,1,9,3", "1,1,3,4,1,3", "3,3,1,9,9,3"},
      {"2,6,1,1,1 / 6,1,1,1,1", "2,6,1,1,1,1", "6,1,1,1,1,1"},
      {"3,1,1,1,1 / 1,1,1,1,1", "3,1,1,1,1,1", "1,1,1,1,1,1"},
      {"1,3,2,2 / 12,4,2,1", "3,2,2", "4,2,1"},
      {"3,2,6,1 / 12,6,1,1", "9,2,2,1", "4,2,1,1"},
      {"0 / 1", "1,0", "1,1"},
      {"0 / 1", "0,4", "4,1"},
      {"2,0 / 1,7", "2,0", "1,7"},
  };
  for (const auto& each : cases) {
    const Layout from = layout(each.from);
    const auto strides = view_strides(from.shape, from.strides, parse(each.target));
    EXPECT_EQ(strides ? print(*strides) : "copy", each.strides) << each.from << " as " << each.target;
  }
}

TEST(Layout, LikeStrides) {
  const struct {
    const char* from;
    const char* strides;
  } cases[] = {
      {"2,3,5,4 / 60,4,12,1", "60,4,12,1"},
      {"2,5,12 / 180,36,1", "60,12,1"},
      {"2,5 / 0,1", "5,1"},
      {"2,5,6 / 60,12,1", "30,6,1"},
      {"6,4 / 1,6", "1,6"},
      {"- / -", "-"},
      {"3,1,3 / 6,3,1", "3,3,1"},
      {"1,1,4 / 24,24,6", "4,4,1"},
      {"1,1,3 / 12,12,3", "3,3,1"},
      {"4,1,1 / 2,2,1", "1,1,1"},
      {"3,4,3 / 24,3,1", "12,3,1"},
      {"1,6,4 / 72,12,3", "24,4,1"},
      {"2,1,4 / 3,6,6", "1,2,2"},
      {"6,3,2 / 36,12,6", "6,2,1"},
      {"1,3,1,1 / 6,2,1,1", "3,1,1,1"},
      {"6,2,1 / 3,1,1", "2,1,1"},
      {"1,6,1,1,1 / 36,6,6,1,1", "6,1,1,1,1"},
      {"1,2,2 / 1,2,0", "2,2,1"},
      {"4,1,3 / 12,6,1", "3,3,1"},
      {"4,2,1,2 / 2,1,1,0", "4,2,2,1"},
  };
  for (const auto& each : cases) {
    const Layout from = layout(each.from);
    EXPECT_EQ(print(like_strides(from.shape, from.strides)), each.strides) << each.from;
  }
}

TEST(Layout, Dense) {
  const struct {
    const char* from;
    bool dense;
  } cases[] = {
      {"1,2,6 / 1,1,2", true},          {"1,2,6,6 / 72,36,6,1", true}, {"4,6,1,1,3 / 18,1,72,72,6", true},
      {"3,4,3,1,2 / 6,18,2,2,1", true}, {"1,1,2 / 2,2,1", true},       {"1,1,1 / 0,1,1", true},
      {"5,2,2 / 2,1,0", false},         {"4,3,1 / 1,0,6", false},      {"6,4,1 / 24,6,6", false},
      {"6,2,1,1 / 3,1,18,18", false},   {"2,3,1,3 / 3,0,3,1", false},  {"2,3,1,4 / 0,4,4,1", false},
  };
  for (const auto& each : cases) {
    const Layout from = layout(each.from);
    EXPECT_EQ(is_dense(from.shape, from.strides), each.dense) << each.from;
  }
}

TEST(Layout, ElementwiseStrides) {
  const struct {
    std::vector<const char*> inputs;
    const char* strides;
  } cases[] = {
      {{"2,3,5,4 / 60,4,12,1"}, "60,4,12,1"},
      {{"2,3,5,4 / 60,4,12,1", "2,3,5,4 / 60,20,4,1"}, "60,4,12,1"},
      {{"2,3,5,4 / 60,20,4,1", "2,3,5,4 / 60,4,12,1"}, "60,20,4,1"},
      {{"2,3,5,4 / 60,4,12,1", "2,1,5,4 / 20,20,4,1"}, "60,4,12,1"},
      {{"2,1,5,4 / 20,20,4,1", "2,3,5,4 / 60,4,12,1"}, "60,4,12,1"},
      {{"2,3,5,4 / 60,4,12,1", "- / -"}, "60,4,12,1"},
      {{"5,4 / 4,1", "2,3,5,4 / 60,4,12,1"}, "60,4,12,1"},
      {{"2,5,12 / 180,36,1", "2,5,1 / 5,1,1"}, "60,12,1"},
      {{"5,4 / 1,5", "5,1 / 1,1"}, "1,5"},
      {{"2,5,4 / 1,0,0", "5,4 / 4,1"}, "20,4,1"},
      {{"6,4 / 1,6"}, "1,6"},
      {{"2,6,1 / 0,1,1", "1,6,1 / 6,1,1"}, "6,1,1"},
      {{"2,2,2,4 / 16,8,4,1", "1,2,2,1 / 4,2,1,1"}, "16,8,4,1"},
      {{"1,4,1 / 4,1,1", "4,1 / 1,1"}, "4,1,1"},
      {{"6,1,2 / 3,1,1", "1,2 / 2,1", "6,1,2 / 2,2,1"}, "2,1,1"},
      {{"1,3 / 3,1", "1,1 / 1,1", "1,3 / 1,1"}, "3,1"},
      {{"1,6,3,6 / 36,6,0,1", "1,6,3,6 / 1,0,1,3"}, "108,18,1,3"},
      {{"1,1,2,1 / 2,2,1,1", "1,1,2,1 / 1,2,1,1", "1,1,2,1 / 1,2,1,1"}, "2,2,1,1"},
      {{"6,1,2,4 / 8,8,4,1", "1,1,2,4 / 8,8,4,1", "1,1,2,4 / 8,8,4,1"}, "8,8,4,1"},
      {{"4,1 / 1,1", "1,1 / 1,1", "4,1 / 1,1"}, "1,1"},
      {{"3,4 / 4,1", "3,4 / 4,1", "3,4 / 1,3"}, "4,1"},
      {{"1,3,2,6 / 36,12,6,1", "1,3,1,1 / 1,1,1,1", "1,3,2,6 / 36,12,6,1"}, "36,12,6,1"},
      {{"4,4 / 4,1", "4,4 / 1,0", "4,4 / 1,4"}, "4,1"},
      {{"1,6,2 / 12,2,1", "1,6,2 / 1,0,1", "1,6,2 / 2,0,1"}, "12,2,1"},
      {{"1,2,6 / 1,1,2", "1,2,1 / 2,1,1", "1 / 1"}, "1,1,2"},
      {{"2,6,6,4 / 6,1,12,72", "2,1,6,1 / 6,6,1,1"}, "6,1,12,72"},
      {{"3,2,3,1 / 6,3,1,1", "3,2,3,1 / 0,0,0,1"}, "6,3,1,1"},
  };
  for (const auto& each : cases) {
    test::TapeBench bench;
    std::vector<Tensor> tensors;
    std::vector<const Tensor*> inputs;
    Shape result;
    std::string text;
    for (const char* input : each.inputs) {
      const Layout from = layout(input);
      result = broadcast_shapes(result, from.shape);
      tensors.push_back(bench.strided_input(from.shape, from.strides, DType::kFloat32, false));
      text += std::string(input) + "; ";
    }
    for (const Tensor& tensor : tensors) inputs.push_back(&tensor);
    EXPECT_EQ(print(elementwise_strides(result, inputs.data(), static_cast<int>(inputs.size()))), each.strides) << text;
  }
}

TEST(Layout, BroadcastShapes) {
  const struct {
    const char* a;
    const char* b;
    const char* result;  // "error": they do not match
  } cases[] = {
      {"1,1,2,2", "3,1", "error"},         {"4,6,1", "4,1,4,3", "error"},     {"2,6,4", "6,2,1", "error"},
      {"1", "1,4,4,1,2", "1,4,4,1,2"},     {"6,4", "1,1,1,6,1", "1,1,1,6,4"}, {"1,3,2,2", "1", "1,3,2,2"},
      {"6,1,6", "1,1", "6,1,6"},           {"6,3,4,3", "3", "6,3,4,3"},       {"2,4,1,3,1", "1", "2,4,1,3,1"},
      {"1,1,1,1,1", "1,1,3", "1,1,1,1,3"},
  };
  for (const auto& each : cases) {
    std::string result = "error";
    try {
      result = print(broadcast_shapes(parse(each.a), parse(each.b)));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInternal);
    }
    EXPECT_EQ(result, each.result) << each.a << " and " << each.b;
  }
}

TEST(Layout, AMatrixIsTurnedOverWhereNeighboursAreNone) {
  EXPECT_TRUE(is_turned({4, 8}, {8, 1}, {1, 4}));
  EXPECT_TRUE(is_turned({2, 4, 8}, {32, 8, 1}, {32, 1, 4})) << "of each batch";
  EXPECT_FALSE(is_turned({4, 8}, {8, 1}, {8, 1}));
  EXPECT_FALSE(is_turned({2, 3, 4, 8}, {96, 32, 8, 1}, {96, 8, 24, 1})) << "heads change places, their rows do not";
  EXPECT_FALSE(is_turned({4, 8}, {8, 1}, {16, 2})) << "every second one: nothing lies side by side";
  EXPECT_FALSE(is_turned({4, 8}, {8, 1}, {1, 0})) << "one element for a row";
  EXPECT_FALSE(is_turned({4, 1}, {1, 1}, {1, 4})) << "a vector";
}

TEST(Layout, ContiguousStridesAndItsTest) {
  EXPECT_EQ(print(contiguous_strides({})), "-");
  EXPECT_EQ(print(contiguous_strides({2, 3, 4})), "12,4,1");
  EXPECT_EQ(print(contiguous_strides({2, 0, 4})), "4,4,1") << "an empty dimension counts as one";
  EXPECT_TRUE(is_contiguous({2, 3}, {3, 1}));
  EXPECT_TRUE(is_contiguous({2, 1, 3}, {3, 99, 1})) << "the stride of a size-1 dimension does not matter";
  EXPECT_FALSE(is_contiguous({2, 3}, {1, 2}));
  EXPECT_FALSE(is_contiguous({2, 3}, {0, 1})) << "expanded";
}

}  // namespace
}  // namespace memcalc
