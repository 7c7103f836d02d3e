#include "memcalc/symbolic/node_payload.h"

#include "memcalc/base/error.h"

namespace memcalc {

// Out of line: every backward function would hold the making of the message.
void NodePayload::throw_other_type() {
  throw Error(ErrorCode::kInternal, "a backward asks for a payload of another type than its operator stored");
}

}  // namespace memcalc
