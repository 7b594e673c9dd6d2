// Taps on padding contribute nothing, even where the weight is infinite or NaN. Drivers that multiply padding zeros hold to that
// by handing problems with such weights to the general algorithm, which never touches padding.
#pragma once

#include "problem.h"

namespace fastconv {

// True when no element of rhs is infinite or NaN. T: float or double.
template <class T>
bool rhs_is_finite(const Problem& problem, const T* rhs);

}  // namespace fastconv
