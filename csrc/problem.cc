#include "problem.h"

#include <initializer_list>
#include <limits>

namespace fastconv {
namespace {

constexpr int kHeadWords = 2 + 14;

// Bounds that keep every index computation far from 64-bit overflow.
constexpr int64_t kMaxExtent = int64_t{1} << 40;
constexpr int64_t kMaxStep = int64_t{1} << 31;

struct Reader {
    const int64_t* words;
    int64_t at;
    int64_t next() { return words[at++]; }
};

void read_operand(Reader& reader, int dims, Operand* operand) {
    for (int64_t& stride : operand->outer) stride = reader.next();
    for (int i = 0; i < dims; ++i) operand->spatial[i] = reader.next();
}

bool extent_ok(int64_t value) { return value >= 0 && value <= kMaxExtent; }
bool step_ok(int64_t value) { return value >= 1 && value <= kMaxStep; }

// Adds the range that one coordinate spans to [lo, hi]; false on overflow.
bool span(int64_t extent, int64_t stride, int64_t* lo, int64_t* hi) {
    int64_t reach;
    if (__builtin_mul_overflow(extent - 1, stride, &reach)) return false;
    return !__builtin_add_overflow(reach < 0 ? *lo : *hi, reach, reach < 0 ? lo : hi);
}

// True when every element of the operand lies in the buffer, or the operand has none.
bool fits(const Operand& operand, const int64_t* extents, int count, int64_t lo_bound, int64_t hi_bound) {
    int64_t lo = operand.offset, hi = operand.offset;
    for (int i = 0; i < count; ++i)
        if (extents[i] == 0) return true;
    for (int i = 0; i < count; ++i)
        if (!span(extents[i], i < 3 ? operand.outer[i] : operand.spatial[i - 3], &lo, &hi)) return false;
    return lo >= lo_bound && hi < hi_bound;
}

// Extents of the operands, in the order of their strides.
struct Extents {
    explicit Extents(const Problem& p)
        : lhs{p.groups, p.batch, p.channels}, rhs{p.groups, p.features, p.channels}, out{p.groups, p.batch, p.features}, count(3 + p.dims) {
        for (int i = 0; i < p.dims; ++i) {
            lhs[3 + i] = p.axes[i].size;
            rhs[3 + i] = p.axes[i].kernel;
            out[3 + i] = p.axes[i].out;
        }
    }
    int64_t lhs[3 + kMaxDims], rhs[3 + kMaxDims], out[3 + kMaxDims];
    int count;
};

// True when there are no more elements than the buffer has, or none because some extent is zero and the others are small too.
bool within(const int64_t* extents, int count, const Buffer& buffer) {
    int64_t total = 1;
    for (int i = 0; i < count; ++i)
        if (__builtin_mul_overflow(total, extents[i] == 0 ? 1 : extents[i], &total)) return false;
    for (int i = 0; i < count; ++i)
        if (extents[i] == 0) return total <= kMaxExtent;
    return total <= buffer.hi - buffer.lo;
}

}  // namespace

int64_t dtype_size(Dtype dtype) {
    constexpr int64_t sizes[kDtypes] = {4, 8, 2, 2, 8, 16, 1, 2, 4, 8, 1, 2, 4, 8};
    return sizes[static_cast<int>(dtype)];
}

const char* parse_problem(const int64_t* words, int64_t count, Problem* out) {
    if (count < 2 || words == nullptr) return "plan words: fewer than 2 words";
    if (words[0] != kWordsVersion) return "plan words: another version than this library's";
    if (words[1] != count) return "plan words: the count in word 1 is not the number of words";
    if (count < kHeadWords) return "plan words: the head is cut off";
    Reader reader{words, 2};
    Problem p{};
    p.algorithm = reader.next();
    const int64_t dtype = reader.next(), out_dtype = reader.next(), activation = reader.next();
    if (dtype < 0 || dtype >= kDtypes || out_dtype < 0 || out_dtype >= kDtypes) return "plan words: unknown dtype code";
    if (activation < 0 || activation >= kActivations) return "plan words: unknown activation code";
    p.dtype = static_cast<Dtype>(dtype);
    p.out_dtype = static_cast<Dtype>(out_dtype);
    p.activation = static_cast<Activation>(activation);
    const int64_t has_bias = reader.next();
    if (has_bias != 0 && has_bias != 1) return "plan words: the bias flag is neither 0 nor 1";
    p.has_bias = has_bias == 1;
    p.bias_stride = reader.next();
    const int64_t dims = reader.next();
    if (dims < 0 || dims > kMaxDims) return "plan words: number of spatial axes out of range";
    p.dims = static_cast<int>(dims);
    if (count != kHeadWords + 3 * (3 + dims) + 7 * dims) return "plan words: the count does not fit the number of spatial axes";
    p.groups = reader.next();
    p.batch = reader.next();
    p.channels = reader.next();
    p.features = reader.next();
    for (int64_t extent : {p.groups, p.batch, p.channels, p.features})
        if (!extent_ok(extent)) return "plan words: an extent is negative or too large";
    p.lhs.offset = reader.next();
    p.rhs.offset = reader.next();
    p.out.offset = reader.next();
    read_operand(reader, p.dims, &p.lhs);
    read_operand(reader, p.dims, &p.rhs);
    read_operand(reader, p.dims, &p.out);
    for (int i = 0; i < p.dims; ++i) {
        Axis& a = p.axes[i];
        a.size = reader.next();
        a.kernel = reader.next();
        a.out = reader.next();
        a.stride = reader.next();
        a.lo = reader.next();
        a.lhs_dilation = reader.next();
        a.rhs_dilation = reader.next();
        if (!extent_ok(a.size) || !extent_ok(a.kernel) || !extent_ok(a.out)) return "plan words: a spatial extent is negative or too large";
        if (!step_ok(a.stride) || !step_ok(a.lhs_dilation) || !step_ok(a.rhs_dilation))
            return "plan words: a stride or dilation is out of range";
        if (a.lo < -kMaxExtent || a.lo > kMaxExtent) return "plan words: a padding is out of range";
        int64_t reach;
        if (__builtin_mul_overflow(a.out, a.stride, &reach) || reach > std::numeric_limits<int64_t>::max() / 8 ||
            __builtin_mul_overflow(a.kernel, a.rhs_dilation, &reach) || reach > std::numeric_limits<int64_t>::max() / 8 ||
            __builtin_mul_overflow(a.size, a.lhs_dilation, &reach) || reach > std::numeric_limits<int64_t>::max() / 8)
            return "plan words: a spatial extent times its step overflows";
    }
    *out = p;
    return nullptr;
}

const char* check_buffers(const Problem& p, const Buffers& buffers) {
    const Extents e(p);
    if (!fits(p.lhs, e.lhs, e.count, buffers.lhs.lo, buffers.lhs.hi)) return "the plan reaches outside lhs";
    if (!fits(p.rhs, e.rhs, e.count, buffers.rhs.lo, buffers.rhs.hi)) return "the plan reaches outside rhs";
    if (!fits(p.out, e.out, e.count, buffers.out.lo, buffers.out.hi)) return "the plan reaches outside out";
    // Outputs never share an element: so their number is bounded by the buffer.
    if (!within(e.out, e.count, buffers.out)) return "the plan has more outputs than out has elements";
    if (p.has_bias) {
        int64_t count;
        if (__builtin_mul_overflow(p.groups, p.features, &count) || count > kMaxExtent) return "the plan reaches outside bias";
        // A bias without features may lie nowhere.
        if (count > 0 && buffers.bias.data == nullptr) return "the plan names a bias, but there is none";
        const int64_t extents[3] = {count, 1, 1};
        const Operand bias{0, {p.bias_stride, 0, 0}, {}};
        if (!fits(bias, extents, 3, buffers.bias.lo, buffers.bias.hi)) return "the plan reaches outside bias";
    }
    return nullptr;
}

const char* check_no_broadcast(const Problem& p, const Buffers& buffers) {
    const Extents e(p);
    if (!within(e.lhs, e.count, buffers.lhs)) return "the plan has a larger lhs than its buffer";
    if (!within(e.rhs, e.count, buffers.rhs)) return "the plan has a larger rhs than its buffer";
    return nullptr;
}

}  // namespace fastconv
