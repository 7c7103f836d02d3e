// Pool: elements with stable addresses, made in blocks of many. (std::deque's blocks hold 512 bytes, so large
// elements would each be an allocation of their own.) A thread keeps the blocks of its last pools: an estimate is asked
// thousands of times, and fresh pages cost as much as the work done in them. So does setting an element to its initial
// state, which its owner knows better: an element is as its last user left it.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace memcalc {

template <typename T>
class Pool {
 public:
  Pool() = default;
  ~Pool() {
    for (std::unique_ptr<Block>& block : blocks_) {
      if (spare().size() < kMostSpare) spare().push_back(std::move(block));
    }
  }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] T& operator[](std::size_t i) { return (*blocks_[i / kBlockSize])[i % kBlockSize]; }
  [[nodiscard]] const T& operator[](std::size_t i) const { return (*blocks_[i / kBlockSize])[i % kBlockSize]; }

  /// Appends an element: new, or as the last pool of this thread left it.
  T& grow() {
    if (size_ == blocks_.size() * kBlockSize) add_block();
    return (*this)[size_++];
  }

 private:
  static constexpr std::size_t kBlockSize = 256;
  static constexpr std::size_t kMostSpare = 64;
  using Block = std::array<T, kBlockSize>;

  static std::vector<std::unique_ptr<Block>>& spare() {
    thread_local std::vector<std::unique_ptr<Block>> blocks;
    return blocks;
  }
  void add_block() {
    if (spare().empty()) {
      // Elements' own initial values: make_unique writes zeros everywhere before them.
      blocks_.push_back(std::unique_ptr<Block>(new Block));
    } else {
      blocks_.push_back(std::move(spare().back()));
      spare().pop_back();
    }
  }

  std::vector<std::unique_ptr<Block>> blocks_;
  std::size_t size_ = 0;
};

}  // namespace memcalc
