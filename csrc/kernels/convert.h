// Copies between element types: narrow types, integers and parts of complex numbers into the reals that sums are formed in, and back.
#pragma once

#include <cstdint>

#include "base/isa.h"
#include "problem.h"

namespace fastconv {

// What a copy takes of an element: all of a real one; of a complex one a part, or the sum of both.
enum class Part { whole, real, imaginary, minus_imaginary, sum };

// to[j] = the part of from[j * step] as T, for j < count. `from` and `to` do not overlap. T: float or double.
template <class T>
using WidenKernel = void (*)(int64_t count, T* to, const void* from, int64_t step);

// to[j * step] = from[j]: rounded to the nearest (ties to even), or cut to the integer's bits; `from` then holds whole numbers.
template <class T>
using NarrowKernel = void (*)(int64_t count, void* to, int64_t step, const T* from);

// to[j * step] = the complex number (a[j], b[j]), or with a third product c that of Gauss: (a[j] - b[j], c[j] - a[j] - b[j]).
// Returns whether all of them are finite.
template <class T>
using JoinKernel = bool (*)(int64_t count, void* to, int64_t step, const T* a, const T* b, const T* c);

// nullptr where T cannot hold the type, or the part is none of its.
template <class T>
WidenKernel<T> widen_kernel(Isa isa, Dtype dtype, Part part);
template <class T>
NarrowKernel<T> narrow_kernel(Isa isa, Dtype dtype);
template <class T>
JoinKernel<T> join_kernel(Isa isa, Dtype dtype);

}  // namespace fastconv
