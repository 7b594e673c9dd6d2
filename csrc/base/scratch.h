// Scratch memory that stays with its thread: no allocation and no page faults in the steady state.
#pragma once

#include <cstddef>

namespace fastconv {

// A call's own thread holds `shared` for all its chunks; every chunk may use `local` of the thread it runs on. `converted` and
// `slab` are the same once more for copies of the operands in another type: a driver runs on them (drivers/converted.h).
enum class ScratchSlot { shared, local, converted, slab };
constexpr int kScratchSlots = 4;

// At least `bytes` bytes, 64-byte aligned, contents undefined; valid until the next request for the slot on this thread.
// nullptr when memory is exhausted. Freed when the thread ends, or by a later request when it is much too large.
void* scratch(ScratchSlot slot, size_t bytes);

}  // namespace fastconv
