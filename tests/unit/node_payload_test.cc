// symbolic/node_payload: what an operator stores for its backward comes back as it was, by its own type alone.
#include "memcalc/symbolic/node_payload.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <utility>

#include "memcalc/base/error.h"
#include "memcalc/symbolic/tape.h"
#include "support/tape_bench.h"

namespace memcalc {
namespace {

struct Small {
  std::int64_t width = 0;
  DType dtype = DType::kFloat32;
};
struct SameMembers {
  std::int64_t width = 0;
  DType dtype = DType::kFloat32;
};
struct Large {
  std::array<Shape, 3> shapes;
};
struct Owner {
  std::shared_ptr<int> owned;
};
struct LargeOwner {
  std::shared_ptr<int> owned;
  Large rest;
};
static_assert(NodePayload::kFits<Small> && NodePayload::kFits<Owner> && !NodePayload::kFits<Large>);
static_assert(sizeof(Shape) + 5 * sizeof(std::int64_t) == NodePayload::kSize);

ErrorCode code_of_get(const NodePayload& payload) {
  try {
    (void)payload.get<Small>();
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "nothing was thrown";
  return ErrorCode::kUsage;
}

TEST(NodePayload, HoldsWhatWasStored) {
  NodePayload payload;
  payload.set(Small{.width = 7, .dtype = DType::kBFloat16});
  EXPECT_EQ(payload.get<Small>().width, 7);
  EXPECT_EQ(payload.get<Small>().dtype, DType::kBFloat16);
  payload.get<Small>().width = 8;
  EXPECT_EQ(std::as_const(payload).get<Small>().width, 8);
}

TEST(NodePayload, HoldsWhatIsLargerThanItself) {
  NodePayload payload;
  payload.set(Large{{Shape{1}, Shape{2, 3}, Shape{4, 5, 6}}});
  EXPECT_EQ(payload.get<Large>().shapes[2], (Shape{4, 5, 6}));
}

TEST(NodePayload, AnotherTypeIsRefusedThoughItsMembersAreTheSame) {
  NodePayload payload;
  payload.set(SameMembers{.width = 7});
  EXPECT_EQ(code_of_get(payload), ErrorCode::kInternal);
  EXPECT_EQ(payload.get_if<Small>(), nullptr);
  EXPECT_EQ(payload.get_if<SameMembers>()->width, 7);
}

TEST(NodePayload, NothingIsRefused) {
  NodePayload payload;
  EXPECT_EQ(code_of_get(payload), ErrorCode::kInternal);
  payload.set(Small{});
  payload.reset();
  EXPECT_EQ(code_of_get(payload), ErrorCode::kInternal);
  EXPECT_EQ(payload.get_if<Small>(), nullptr);
}

template <typename T>
void expect_let_go(const char* what) {
  const auto owned = std::make_shared<int>(1);
  {
    NodePayload payload;
    payload.set(T{owned});
    EXPECT_EQ(owned.use_count(), 2) << what;
    payload.reset();
    EXPECT_EQ(owned.use_count(), 1) << what << ": reset()";
    payload.set(T{owned});
    payload.set(Small{});
    EXPECT_EQ(owned.use_count(), 1) << what << ": another takes its place";
    payload.set(T{owned});
  }
  EXPECT_EQ(owned.use_count(), 1) << what << ": the end of the payload";
}

TEST(NodePayload, LetsGoWhatItOwns) {
  expect_let_go<Owner>("in place");
  expect_let_go<LargeOwner>("allocated");
}

// --- in a node

constexpr Operator kOwns{"OwnsBackward"};

void pass_on(BackwardCall& call) { call.set(0, call.gradient()); }
void ask_for_small(BackwardCall& call) {
  call.set(0, call.tape.empty({call.payload<Small>().width}, DType::kUInt8, kOwns));
}

Tensor with_owner(const Tensor& x, BackwardFunction backward, const std::shared_ptr<int>& owned) {
  const Tensor* inputs[] = {&x};
  Node* node = x.tape().autograd.record(kOwns, backward, inputs, 1);
  node->payload.set(Owner{owned});
  Tensor result = x.tape().detach(x);
  x.tape().autograd.set_history(node, result);
  return result;
}

TEST(NodePayload, LivesAsLongAsItsNode) {
  test::TapeBench bench;
  const auto owned = std::make_shared<int>(1);
  Tensor y = with_owner(bench.input({4}), pass_on, owned);
  EXPECT_EQ(owned.use_count(), 2);
  bench.backward(y);
  EXPECT_EQ(owned.use_count(), 2) << "the graph is there";
  y.reset();
  EXPECT_EQ(owned.use_count(), 1);
}

TEST(NodePayload, TheNextNodeInItsPlaceHasNone) {
  test::TapeBench bench;
  const Tensor x = bench.input({4});
  with_owner(x, pass_on, std::make_shared<int>(1)).reset();
  const Tensor* inputs[] = {&x};
  const Node* node = bench.tape.autograd.record(kOwns, pass_on, inputs, 1);
  EXPECT_EQ(node->payload.get_if<Owner>(), nullptr);
  bench.tape.autograd.abandon_pending_node();
}

TEST(NodePayload, DiesWithTheTapeThatKeptItsNode) {
  const auto owned = std::make_shared<int>(1);
  Tensor y;
  {
    test::TapeBench bench;
    y = with_owner(bench.input({4}), pass_on, owned);
    bench.tape.autograd.clear();
    EXPECT_EQ(owned.use_count(), 1);
    y.reset();
  }
}

TEST(NodePayload, ABackwardThatAsksForAnotherTypeIsABug) {
  test::TapeBench bench;
  const Tensor y = with_owner(bench.input({4}), ask_for_small, std::make_shared<int>(1));
  EXPECT_THROW(bench.backward(y), Error);
}

}  // namespace
}  // namespace memcalc
