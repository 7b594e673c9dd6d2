// Calls and time of each convolution of a JAX program, kept only for calls through the counting handler.
#pragma once

#include <cstdint>

namespace fastconv {

struct Count {
    int64_t calls, nanoseconds;
};

// Adds one call to `key`, whose meaning is the caller's. A call is dropped when the table is full of other keys.
void count_call(int64_t key, int64_t nanoseconds);

// What was counted under `key` so far.
Count counted(int64_t key);

// Sets every count to zero.
void clear_counts();

}  // namespace fastconv
