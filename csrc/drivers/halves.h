// Half types that a driver itself widens as it reads, and rounds as it stores: no pass over the operands for that alone.
#pragma once

#include <cstdint>

#include "base/executor.h"
#include "kernels/convert.h"
#include "problem.h"

namespace fastconv {

// Whether operands and result are of one half type.
bool of_halves(const Problem& problem);

// Elements of rhs.
double count_weights(const Problem& problem);

// Runs of one operand's elements on their way from memory or into it. dtype: of the memory, T or a half type.
template <class T>
class Halves {
public:
    explicit Halves(Dtype dtype) {
        if (dtype != Dtype::f16 && dtype != Dtype::bf16) return;
        widen_ = widen_kernel<T>(current_isa(), dtype, Part::whole);
        narrow_ = narrow_kernel<T>(current_isa(), dtype);
    }
    // Whether memory is of another type than T.
    bool convert() const { return widen_ != nullptr; }

    // to[j] = memory[index + j * step]; memory[index + j * step] = from[j].
    void widen(int64_t count, T* to, const void* memory, int64_t index, int64_t step = 1) const {
        widen_(count, to, static_cast<const uint16_t*>(memory) + index, step);
    }
    void narrow(int64_t count, void* memory, int64_t index, const T* from, int64_t step = 1) const {
        narrow_(count, static_cast<uint16_t*>(memory) + index, step, from);
    }

private:
    WidenKernel<T> widen_ = nullptr;
    NarrowKernel<T> narrow_ = nullptr;
};

// Copies the weights and the bias of a problem of halves as float32, into scratch: `real` and `reals` are the same problem with
// those, lhs and out as they were. Returns nullptr or a message.
const char* widen_weights(const Problem& problem, const Buffers& buffers, Executor& executor, Problem* real, Buffers* reals);

}  // namespace fastconv
