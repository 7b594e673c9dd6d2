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

// What multiplies narrow types: nothing of its own, AVX-512's dot products (BF16 and VNNI), or AMX's tiles. A feature of the
// avx512 level: lower levels have none.
enum class DotUnit { none, vector, tiles };
constexpr int kDotUnits = 3;

const char* dot_unit_name(DotUnit unit);

// The best unit of the level in use under the cap.
DotUnit current_dot_unit();

// Caps the unit by name; nullptr or "" removes the cap. Returns false for an unknown or unavailable name.
bool set_dot_unit(const char* name);

}  // namespace fastconv
