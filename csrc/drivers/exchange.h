// A long sum over a dilated input, as the same sum without: the operands exchanged.
//
// A weight gradient of a transposed convolution may be posed with its input dilated. Each output is a sum over pairs of an input i
// and a tap k = p * stride ... + i * lhs_dilation; taken for a sum over inputs, they are the taps, and nothing is dilated but them.
#pragma once

#include "problem.h"

namespace fastconv {

// Whether the input is dilated, all taps adjoin, and they are more than the outputs; no epilogue, which is that of one operand's features.
bool exchanges(const Problem& problem);

// The same outputs, lhs and rhs having changed places. Only where exchanges(problem).
Problem exchange(const Problem& problem);
Buffers exchange(const Buffers& buffers);

}  // namespace fastconv
