// The problem a caller hands over: packed int64 words in, checked `Problem` out (layout: src/fastconv/problem.py).
//
//   out[g,n,o,p] = act(bias[g,o] + sum over c,k of lhs[g,n,c,i(p,k)] * rhs[g,o,c,k])
//   i(p,k) = (p*stride + k*rhs_dilation - lo) / lhs_dilation per axis; terms with i fractional or outside [0,size) are left out
#pragma once

#include <cstdint>

namespace fastconv {

constexpr int64_t kWordsVersion = 1;
constexpr int kMaxDims = 16;  // spatial axes; NumPy's own limit is 64 dimensions, nobody convolves over more than a few

enum class Dtype : int64_t { f32, f64, f16, bf16, c64, c128, i8, i16, i32, i64, u8, u16, u32, u64 };
constexpr int kDtypes = 14;

enum class Activation : int64_t { none, relu, gelu, gelu_tanh, silu, tanh, sigmoid, leaky_relu };
constexpr int kActivations = 8;

// Bytes of one element.
int64_t dtype_size(Dtype dtype);

struct Axis {
    int64_t size, kernel, out, stride, lo, lhs_dilation, rhs_dilation;
};

// Strides in elements. outer: lhs (g,n,c), rhs (g,o,c), out (g,n,o). offset: where coordinate zero lies.
struct Operand {
    int64_t offset;
    int64_t outer[3];
    int64_t spatial[kMaxDims];
};

struct Problem {
    int64_t algorithm;
    Dtype dtype, out_dtype;
    Activation activation;
    bool has_bias;
    int64_t bias_stride;
    int dims;
    int64_t groups, batch, channels, features;
    Operand lhs, rhs, out;
    Axis axes[kMaxDims];
};

// A caller's buffer: `data` points at element 0; elements lo <= i < hi may be touched.
struct Buffer {
    void* data;
    int64_t lo, hi;
};

struct Buffers {
    Buffer lhs, rhs, bias, out;
};

// Reads packed words. Returns nullptr, or a message that says which word is wrong; never reads past `count` words.
const char* parse_problem(const int64_t* words, int64_t count, Problem* out);

// Checks that no operand is larger than its buffer, as one that steps by zero can be: where nobody broadcasts, such words are
// damaged, and might run for hours inside their buffers. Returns nullptr or a message.
const char* check_no_broadcast(const Problem& problem, const Buffers& buffers);

// Checks that every element the problem can touch lies inside the buffers. Returns nullptr or a message.
const char* check_buffers(const Problem& problem, const Buffers& buffers);

}  // namespace fastconv
