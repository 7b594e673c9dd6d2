// Scratch memory that stays with its thread: no allocation and no page faults in the steady state.
#pragma once

#include <cstddef>

namespace fastconv {

// A call's own thread holds `shared` for all its chunks; every chunk may use `local` of the thread it runs on.
enum class ScratchSlot { shared, local };

// At least `bytes` bytes, 64-byte aligned, contents undefined; valid until the next request for the slot on this thread.
// nullptr when memory is exhausted. Freed when the thread ends, or by a later request when it is much too large.
void* scratch(ScratchSlot slot, size_t bytes);

}  // namespace fastconv
