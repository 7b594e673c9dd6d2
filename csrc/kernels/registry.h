// The list of kernels that this build holds for this CPU, as text: "isa element family name rows cols" a line.
#pragma once

#include <string>

namespace fastconv {

std::string kernel_table();

}  // namespace fastconv
