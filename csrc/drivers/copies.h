// Packed copies of operands in another element type.
#pragma once

#include <cstdint>

#include "base/executor.h"
#include "kernels/convert.h"
#include "problem.h"

namespace fastconv {

constexpr int kCoordinates = 3 + kMaxDims;  // g, n or o, c or o, and the spatial axes
constexpr int kMaxPlanes = 4;

// Extents of one operand's coordinates, in the order of its strides.
struct Extents {
    int count;
    int64_t of[kCoordinates];
};
Extents lhs_extents(const Problem& problem);
Extents rhs_extents(const Problem& problem);
Extents out_extents(const Problem& problem);

// One copy of a whole operand: the part of its elements that is taken, and where it starts in the scratch memory.
struct Plane {
    Part part;
    int64_t base;
};

// An operand and its packed copy: without gaps, its coordinates in the same order and direction along memory. Coordinates that
// step by zero still do.
struct Copy {
    Operand source;
    Operand packed;
    Extents extents;   // of the source
    int64_t elements;  // of the copy, all planes together; negative when it would be out of all proportion to the source
    int planes = 1;
    Plane plane[kMaxPlanes] = {{Part::whole, 0}};
};

// Lays out a copy in which coordinate i is times[i] as long as in the source (planes fill the difference).
Copy make_copy(const Operand& source, const Extents& extents, const int64_t* times);

// Copies every plane of lhs or rhs from `from` to `to`.
template <class T>
void copy_in(const Copy& copy, Dtype dtype, const void* from, T* to, Executor& executor);

// Copies a result back: one plane of reals, or two or three that make a complex number. False when a complex one is not finite.
template <class T>
bool copy_out(const Copy& copy, Dtype dtype, const T* from, void* to, Executor& executor);

}  // namespace fastconv
