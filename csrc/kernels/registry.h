// The list of kernels that this build holds for this CPU, and a way to run each alone.
#pragma once

#include <cstdint>
#include <string>

namespace fastconv {

// "isa element family name rows cols" a line, in the order of kernels.inc.
std::string kernel_table();

// Runs kernel `index` of the table on packed operands (csrc/fastconv.h, fastconv_run_kernel). Returns nullptr or a message.
const char* run_kernel(int64_t index, int64_t runs, const int64_t* sizes, const void* a, const void* b, void* c);

}  // namespace fastconv
