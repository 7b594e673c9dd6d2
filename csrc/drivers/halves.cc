#include "drivers/halves.h"

#include <algorithm>

#include "base/scratch.h"
#include "drivers/copies.h"

namespace fastconv {

bool of_halves(const Problem& problem) {
    return (problem.dtype == Dtype::f16 || problem.dtype == Dtype::bf16) && problem.dtype == problem.out_dtype;
}

double count_weights(const Problem& problem) {
    double weights = static_cast<double>(problem.groups * problem.features) * static_cast<double>(problem.channels);
    for (int i = 0; i < problem.dims; ++i) weights *= static_cast<double>(problem.axes[i].kernel);
    return weights;
}

const char* widen_weights(const Problem& problem, const Buffers& buffers, Executor& executor, Problem* real, Buffers* reals) {
    int64_t times[kCoordinates];
    std::fill(times, times + kCoordinates, 1);
    const Copy copy = make_copy(problem.rhs, rhs_extents(problem), times);
    if (copy.elements < 0) return "windows of the weights overlap too much to be copied";
    const int64_t biases = problem.has_bias ? problem.groups * problem.features : 0;
    float* memory = static_cast<float*>(scratch(ScratchSlot::converted, static_cast<size_t>(copy.elements + biases + 1) * sizeof(float)));
    if (memory == nullptr) return "out of memory";
    copy_in(copy, problem.dtype, buffers.rhs.data, memory, executor);
    *real = problem;
    *reals = buffers;
    real->rhs = copy.packed;
    reals->rhs = {memory, 0, copy.elements};
    if (biases == 0) return nullptr;
    float* bias = memory + copy.elements;
    widen_kernel<float>(current_isa(), problem.dtype, Part::whole)(biases, bias, buffers.bias.data, problem.bias_stride);
    real->bias_stride = 1;
    reals->bias = {bias, 0, biases};
    return nullptr;
}

}  // namespace fastconv
