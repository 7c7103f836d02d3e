// A model of a framework that makes adapters inside of its own modules, where peft would put them around those of
// transformers.
#pragma once

#include <string_view>

namespace memcalc {

class OwnAdapters {
 public:
  virtual ~OwnAdapters() = default;
  /// Whether the parameter of this name is an adapter's: all others are frozen.
  [[nodiscard]] virtual bool is_adapter(std::string_view parameter) const = 0;
};

}  // namespace memcalc
