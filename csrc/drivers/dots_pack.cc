#include "drivers/dots_pack.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/scratch.h"
#include "drivers/geometry.h"

namespace fastconv {
namespace {

constexpr uint32_t kInfinity = 0x7f80, kOne = 0x3f80;  // bfloat16 as bits
constexpr int64_t kImagesTogether = 16;
constexpr int64_t kChunkElements = 8192;  // of lhs that one chunk copies, about
constexpr int64_t kMostPeriod = 4096;     // of positions that are read

int64_t whole(int64_t bytes) { return ceil_div(bytes, 64) * 64; }

}  // namespace

DotOperands::DotOperands(const Problem& problem, const Buffers& buffers, const DotKernels& kernels)
    : p_(problem), b_(buffers), kernels_(kernels), size_(static_cast<int>(dtype_size(problem.dtype))),
      floats_(problem.dtype == Dtype::bf16) {
    lay_out_rhs();
}

Problem DotOperands::packed() const {
    Problem p = p_;
    p.rhs = rhs_;
    return p;
}

int64_t DotOperands::bytes(const DotPlan& plan) const {
    const int64_t sums = floats_ ? 0 : static_cast<int64_t>(plan.parts.size()) * p_.groups * plan.blocks * kDotColumns;
    return whole((plan.copy.elements + plan.copy.slack) * size_ + kDotBytes) + plan.panels * kDotPanel + whole(4 * sums);
}

bool DotOperands::pack(const DotPlan& plan, char* memory, Executor& executor) {
    plan_ = &plan;
    find_read();
    const DotCopy& c = plan.copy;
    const int64_t lhs_bytes = whole((c.elements + c.slack) * size_ + kDotBytes);
    lhs_ = memory;
    panels_ = lhs_ + lhs_bytes;
    column_sums_ = reinterpret_cast<int32_t*>(panels_ + plan.panels * kDotPanel);
    std::memset(lhs_ + c.elements * size_, 0, static_cast<size_t>(lhs_bytes - c.elements * size_));

    const bool together = p_.batch > 1 && p_.lhs.outer[1] == 1;  // images side by side: the channels of a weight gradient
    const int64_t each = together ? kImagesTogether : 1, lots = ceil_div(p_.batch, each), lines = c.image / c.line;
    const int64_t lines_each = std::min(lines, std::max<int64_t>(1, kChunkElements / (c.line * each)));
    const int64_t line_chunks = ceil_div(lines, lines_each), lhs_chunks = p_.groups * lots * line_chunks;
    std::atomic<bool> exhausted{false};
    for_chunks(executor, lhs_chunks + p_.groups * plan.blocks, [&](int64_t chunk) {
        if (chunk >= lhs_chunks) {
            chunk -= lhs_chunks;
            if (!pack_rhs(chunk / plan.blocks, chunk % plan.blocks)) exhausted.store(true);
            return;
        }
        const int64_t first = chunk % line_chunks * lines_each, lot = chunk / line_chunks % lots, group = chunk / line_chunks / lots;
        for (int64_t line = first; line < std::min(lines, first + lines_each); ++line)
            copy_line(group, lot * each, std::min(each, p_.batch - lot * each), line);
    });
    return !exhausted.load();
}

// Infinities and NaN would spread through the zeros that fill runs up; and the units take subnormal numbers for zero, which
// matters where the other operand is large.
bool DotOperands::unsafe() const {
    const uint32_t x = lhs_survey_.largest.load(), w = rhs_survey_.largest.load();
    return x >= kInfinity || w >= kInfinity || (lhs_survey_.subnormal.load() && w >= kOne) || (rhs_survey_.subnormal.load() && x >= kOne);
}

void DotOperands::Survey::look(const void* from, int64_t count) {
    bool tiny = false;
    const uint32_t most = dot_copies().survey(static_cast<const uint16_t*>(from), count, &tiny);
    if (tiny) subnormal.store(true, std::memory_order_relaxed);
    uint32_t before = largest.load(std::memory_order_relaxed);
    while (before < most && !largest.compare_exchange_weak(before, most, std::memory_order_relaxed)) {
    }
}

template <class T>
void DotOperands::copy_alone(const Step (&s)[3], const T* from, T* to) {
    for (int64_t i = 0; i < s[0].extent; ++i)
        for (int64_t j = 0; j < s[1].extent; ++j) {
            const T* source = from + i * s[0].from + j * s[1].from;
            T* place = to + i * s[0].to + j * s[1].to;
            for (int64_t k = 0; k < s[2].extent; ++k) place[k * s[2].to] = source[k * s[2].from];
        }
}

// Copies a box of elements of `size` bytes in the fastest way its steps allow.
void DotOperands::copy_box(Step a, Step b, Step c, const char* from, char* to, int size) {
    Step s[3] = {a, b, c};
    int inner = -1, source = -1;  // loops along the memory of `to` and of `from`
    for (int i = 0; i < 3; ++i) {
        if (s[i].extent > 1 && s[i].to == 1) inner = i;
        if (s[i].extent > 1 && s[i].from == 1) source = i;
    }
    int64_t spacing = 1;
    if (inner >= 0 && source < 0 && size == 2)  // every second element: the taps of a lane dilated by two
        for (int i = 0; i < 3; ++i)
            if (i != inner && s[i].extent > 1 && s[i].from == 2) source = i, spacing = 2;
    if (inner >= 0 && s[inner].from == 1) source = inner;
    if (inner >= 0 && source >= 0 && inner != source) {
        const Step rest = s[3 - inner - source];
        for (int64_t k = 0; k < rest.extent; ++k)
            dot_copies().transpose(to + k * rest.to * size, s[source].to, from + k * rest.from * size, s[inner].from, spacing,
                                   s[inner].extent, s[source].extent, size);
        return;
    }
    if (inner >= 0) std::swap(s[2], s[inner]);
    if (inner >= 0 && inner == source) {
        for (int i = 1; i >= 0; --i)  // runs that adjoin are one
            if (s[i].from == s[2].extent && s[i].to == s[2].extent) {
                s[2].extent *= s[i].extent;
                s[i] = {1, 0, 0};
            }
        for (int64_t i = 0; i < s[0].extent; ++i)
            for (int64_t j = 0; j < s[1].extent; ++j)
                std::memcpy(to + (i * s[0].to + j * s[1].to) * size, from + (i * s[0].from + j * s[1].from) * size,
                            static_cast<size_t>(s[2].extent * size));
    } else if (size == 1) {
        copy_alone(s, reinterpret_cast<const uint8_t*>(from), reinterpret_cast<uint8_t*>(to));
    } else {
        copy_alone(s, reinterpret_cast<const uint16_t*>(from), reinterpret_cast<uint16_t*>(to));
    }
}

// A kernel of one tap with a stride leaves positions out, and so do taps further apart than there are outputs: the weight gradients
// of layers whose stride exceeds their kernel.
void DotOperands::find_read() {
    bool dilated = false;
    for (int i = 0; i < p_.dims; ++i) dilated = dilated || p_.axes[i].lhs_dilation > 1;
    for (int i = 0; i < p_.dims; ++i) {
        const Axis& a = p_.axes[i];
        const int64_t period = a.kernel == 1 ? a.stride : a.rhs_dilation, outputs = a.kernel == 1 ? 1 : a.out;
        read_[i].assign(1, 1);
        if (dilated || period <= outputs || period > kMostPeriod) continue;
        read_[i].assign(static_cast<size_t>(period), 0);
        for (int64_t o = 0; o < outputs; ++o) read_[i][static_cast<size_t>(o * a.stride % period)] = 1;
    }
}

// One position of all axes but the lane, for some images: every sub-row and channel.
void DotOperands::copy_line(int64_t group, int64_t image, int64_t images, int64_t line) {
    const DotCopy& c = plan_->copy;
    char* to = lhs_ + (group * c.group + image * c.image + line * c.line) * size_;
    int64_t source = p_.lhs.offset + group * p_.lhs.outer[0] + image * p_.lhs.outer[1];
    bool inside = true;
    int64_t rest = line;
    for (int i = p_.dims - 1; i >= 0; --i) {
        if (i == c.lane) continue;
        const int64_t at = c.first[i] + rest % c.length[i];
        inside = inside && at >= 0 && at < p_.axes[i].size && read(i, rest % c.length[i]);
        rest /= c.length[i];
        source += at * p_.lhs.spatial[i];
    }
    for (int64_t r = 0; r < c.dilation; ++r) {
        const int64_t base = c.first[c.lane] + r;
        const bool met = inside && read(c.lane, r);
        const int64_t begin = met ? std::min(c.places, std::max<int64_t>(0, ceil_div(-base, c.dilation))) : c.places;
        const int64_t end = std::max(begin, std::min(c.places, ceil_div(p_.axes[c.lane].size - base, c.dilation)));
        char* row = to + r * c.sub_row * size_;
        const int64_t channels = c.channels_inside ? 1 : p_.channels;
        for (int64_t n = 0; n < images; ++n)
            for (int64_t k = 0; k < channels; ++k) {
                char* from = row + (n * c.image + k * c.channel) * size_;
                std::memset(from, 0, static_cast<size_t>(begin * c.place * size_));
                std::memset(from + end * c.place * size_, 0, static_cast<size_t>((c.places - end) * c.place * size_));
            }
        if (begin == end) continue;
        const int64_t step = p_.lhs.spatial[c.lane];
        copy_box({images, p_.lhs.outer[1], c.image}, {p_.channels, p_.lhs.outer[2], c.channel}, {end - begin, c.dilation * step, c.place},
                 static_cast<const char*>(b_.lhs.data) + (source + (base + begin * c.dilation) * step) * size_,
                 row + begin * c.place * size_, size_);
    }
    for (int64_t n = 0; n < images; ++n) {
        char* from = to + n * c.image * size_;
        if (floats_ && inside) lhs_survey_.look(from, c.line);
        if (kernels_.a_flip != 0)
            for (int64_t i = 0; i < c.line; ++i) from[i] = static_cast<char>(from[i] ^ kernels_.a_flip);
    }
}

// --- rhs -----------------------------------------------------------------------------------------------------------------

// The taps and channels of a feature are first laid out as rows of 16 features, in the order in which they lie in memory.
void DotOperands::lay_out_rhs() {
    rhs_ = p_.rhs;
    int64_t* steps[1 + kMaxDims] = {&rhs_.outer[2]};
    int64_t extents[1 + kMaxDims] = {p_.channels}, sources[1 + kMaxDims] = {p_.rhs.outer[2]};
    for (int i = 0; i < p_.dims; ++i) {
        steps[1 + i] = &rhs_.spatial[i];
        extents[1 + i] = p_.axes[i].kernel;
        sources[1 + i] = p_.rhs.spatial[i];
    }
    int order[1 + kMaxDims];
    for (int i = 0; i <= p_.dims; ++i) order[i] = i;
    std::sort(order, order + 1 + p_.dims, [&](int a, int b) {
        const int64_t left = std::abs(sources[a]), right = std::abs(sources[b]);
        return left != right ? left < right : a > b;
    });
    rhs_.offset = 0;
    rhs_.outer[0] = rhs_.outer[1] = 0;
    int64_t rows = 1;
    source_ = p_.rhs.offset;
    for (int j = 0; j <= p_.dims; ++j) {
        const int i = order[j];
        int64_t from = sources[i];
        *steps[i] = from < 0 ? -rows : rows;
        if (from < 0) {  // walked from its other end
            rhs_.offset += (extents[i] - 1) * rows;
            source_ += (extents[i] - 1) * from;
            from = -from;
        }
        if (!walk_.empty() && walk_.back().from * walk_.back().extent == from)
            walk_.back().extent *= extents[i];
        else
            walk_.push_back({extents[i], from, rows});
        rows *= extents[i];
    }
    rows_ = rows;
}

// Panels of one block of 16 features of a group, for every part. False when memory is exhausted.
bool DotOperands::pack_rhs(int64_t group, int64_t block) {
    const int64_t feature = block * kDotColumns, features = std::min<int64_t>(kDotColumns, p_.features - feature);
    const int64_t row_bytes = kDotColumns * size_;
    char* rows = static_cast<char*>(scratch(ScratchSlot::local, static_cast<size_t>((rows_ + 1) * row_bytes)));
    if (rows == nullptr) return false;
    if (features < kDotColumns) std::memset(rows, 0, static_cast<size_t>(rows_ * row_bytes));
    const char* zeros = rows + rows_ * row_bytes;
    std::memset(rows + rows_ * row_bytes, 0, static_cast<size_t>(row_bytes));
    gather_rows(static_cast<const char*>(b_.rhs.data) + (source_ + group * p_.rhs.outer[0] + feature * p_.rhs.outer[1]) * size_, features,
                rows);
    if (floats_) rhs_survey_.look(rows, rows_ * kDotColumns);
    for (size_t i = 0; i < plan_->parts.size(); ++i) {
        const DotPart& part = plan_->parts[i];
        int32_t sums[kDotColumns] = {};
        fill_panels(part, rows, zeros, const_cast<char*>(panels(part, group, block)), sums);
        if (!floats_) std::memcpy(column_sums_ + sums_at(i, group, block), sums, sizeof(sums));
    }
    return true;
}

// rows[k][16]: the features' elements at every place of walk_.
void DotOperands::gather_rows(const char* from, int64_t features, char* rows) const {
    const int64_t step = p_.rhs.outer[1];
    const Step inner = walk_[0];
    const int64_t turns = rows_ / inner.extent;
    for (int64_t turn = 0; turn < turns; ++turn) {
        int64_t rest = turn, source = 0;
        for (size_t i = 1; i < walk_.size(); ++i) {
            source += rest % walk_[i].extent * walk_[i].from;
            rest /= walk_[i].extent;
        }
        copy_box({1, 0, 0}, {inner.extent, inner.from, kDotColumns}, {features, step, 1}, from + source * size_,
                 rows + turn * inner.extent * kDotColumns * size_, size_);
    }
}

// The panels of a block in the order of its offsets and steps. sums: of every column's elements (of int8).
void DotOperands::fill_panels(const DotPart& part, const char* rows, const char* zeros, char* to, int32_t* sums) const {
    const Problem& p = part.problem;
    const DotCopy& c = plan_->copy;
    const int64_t inside = c.channels_inside ? p.channels : 1, run = (c.taps_adjoin ? p.axes[c.lane].kernel : 1) * inside;
    const int together = 4 / size_;
    const int64_t row_bytes = kDotColumns * size_;
    const int64_t taps = part.runs / (c.channels_inside ? 1 : p.channels);
    for (int64_t t = 0; t < part.runs; ++t) {
        int64_t rest = t % taps, first = p.rhs.offset + t / taps * p.rhs.outer[2];
        for (int i = p.dims - 1; i >= 0; --i) {
            if (i == c.lane && c.taps_adjoin) continue;
            first += rest % p.axes[i].kernel * p.rhs.spatial[i];
            rest /= p.axes[i].kernel;
        }
        int64_t channel = 0, tap = 0;
        for (int64_t k = 0; k < 16 * part.run_steps * together; k += together, to += kDotBytes) {
            const void* four[4];
            for (int j = 0; j < together; ++j) {
                four[j] = k + j < run ? rows + (first + tap * p.rhs.spatial[c.lane] + channel * p.rhs.outer[2]) * row_bytes : zeros;
                if (++channel == inside) channel = 0, ++tap;
                if (kernels_.a_flip != 0)
                    for (int64_t o = 0; o < kDotColumns; ++o) sums[o] += static_cast<const int8_t*>(four[j])[o];
            }
            dot_copies().interleave(to, four, size_);
        }
    }
}

}  // namespace fastconv
