// The instruction-set level in use: found at run time, capped by FASTCONV_ISA.
#pragma once

namespace fastconv {

enum class Isa { scalar, avx2, avx512, neon };
constexpr int kIsas = 4;

const char* isa_name(Isa isa);

// True when this build has kernels of the level and this CPU can run them.
bool isa_available(Isa isa);

// The level in use: the best available one under the cap.
Isa current_isa();

// Caps the level by name; nullptr or "" removes the cap. Returns false for an unknown or unavailable name.
bool set_isa(const char* name);

}  // namespace fastconv
