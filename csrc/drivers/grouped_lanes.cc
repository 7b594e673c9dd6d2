// Lanes are channels: each vector of outputs holds neighbouring channels of several groups, and every term of its sums is a vector
// of weights times a vector of inputs in which each lane has its own group's channel. Rows of the input are laid out that way
// ("spread") just before they are used, padded, in a ring of as many rows as the kernel has, which the first cache holds; each
// spread vector then serves all taps.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/scratch.h"
#include "base/tasks.h"
#include "drivers/epilogue.h"
#include "drivers/grouped_lanes_plan.h"
#include "kernels/grouped.h"
#include "kernels/tile.h"

namespace fastconv {
namespace {

constexpr int kMaxLaneRows = 32, kMaxSumRows = 8, kMaxSumTaps = 7;
constexpr int64_t kPackAlone = 1 << 15;    // elements of weights that the calling thread packs alone
constexpr int64_t kMaxElements = 1 << 24;  // of packed weights or of sums

template <class T>
class GroupedLanes {
public:
    GroupedLanes(const Sweep& sweep, const T* lhs, const T* rhs, T* out, const Finish<T>& finish)
        : s(sweep), f(finish), kernels_(grouped_kernels<T>(current_isa())), lanes_(kernels_.lanes), lhs_(lhs), rhs_(rhs), out_(out),
          plan_(sweep, lanes_, sizeof(T)) {
        for (int i = 0; i < kernels_.lane_count; ++i) {
            const LanesKernel<T>& kernel = kernels_.lane_rows[i];
            rows_[kernel.rows] = plan_.same ? kernel.run_same : kernel.run;
            most_rows_ = std::max(most_rows_, kernel.rows);
        }
        for (int i = 0; i < kernels_.lane_sum_count; ++i) {
            const LaneSumKernel<T>& kernel = kernels_.lane_sums[i];
            sums_[kernel.rows][kernel.taps] = kernel.run;
            most_taps_ = std::max(most_taps_, kernel.taps);
        }
        // The ring and the sums end with what a tile reads or writes beyond them.
        row_sums_ = (plan_.x_block + most_rows_) * lanes_;
        ring_elements_ = s.y.taps * plan_.slot + most_rows_ * plan_.x.step * plan_.place;
        const int64_t elements = ring_elements_ + plan_.x_block * lanes_ + (plan_.kept ? plan_.y_block : 1) * row_sums_;
        local_ = elements * static_cast<int64_t>(sizeof(T)) + indices() * static_cast<int64_t>(sizeof(int32_t)) + 4 * 64;
        weights_ = plan_.far_taps * s.channels * s.y.taps * s.x.taps * lanes_;
    }

    const char* run(Executor& executor) {
        const int64_t weights = plan_.vectors * weights_;
        if (weights * plan_.splits > kMaxElements) return "grouped: too many weights to keep apart";
        shared_ = static_cast<T*>(scratch(ScratchSlot::shared, static_cast<size_t>(weights * plan_.splits) * sizeof(T)));
        if (shared_ == nullptr) return "out of memory";
        if (!s.gradient) {
            InlineExecutor alone;  // waking others costs more than packing little
            for_chunks(weights < kPackAlone ? alone : executor, plan_.vectors, [&](int64_t vector) { pack_weights(vector); });
            if (suspicious_.load()) return kSuspicious;
        }
        const int64_t tasks = plan_.vectors * (s.gradient ? plan_.splits : plan_.units);
        const char* why = for_tasks(executor, tasks, static_cast<size_t>(local_), [&](int64_t task, void* local) {
            if (s.gradient)
                add_units(task, local);
            else
                run_unit(task, local);
        });
        if (why != nullptr) return why;
        if (s.gradient) for_chunks(executor, plan_.vectors, [&](int64_t vector) { finish_sums(vector); });
        return suspicious_.load() ? kSuspicious : nullptr;
    }

private:
    struct Local {
        int32_t* index;  // of each channel of a chunk
        T *ring, *row, *sums;
        LanesSide side;
    };

    int64_t indices() const { return plan_.same ? 0 : plan_.chunk * lanes_; }

    Local local_of(void* memory, int64_t vector) const {
        Local local;
        auto align = [](void* from) { return reinterpret_cast<T*>((reinterpret_cast<uintptr_t>(from) + 63) / 64 * 64); };
        local.index = static_cast<int32_t*>(memory);
        local.ring = align(local.index + indices());
        local.row = align(local.ring + ring_elements_);
        local.sums = align(local.row + plan_.x_block * lanes_);
        local.side = lanes_side(s, vector, lanes_);
        return local;
    }

    // Weights by vector, far tap, channel, row tap, tap: the order in which kernels read.
    void pack_weights(int64_t vector) {
        const LanesSide side = lanes_side(s, vector, lanes_);
        T* const packed = shared_ + vector * weights_;
        if (side.count < lanes_) std::memset(packed, 0, static_cast<size_t>(weights_) * sizeof(T));
        T* to = packed;
        for (int64_t far = 0; far < plan_.far_taps; ++far)
            for (int64_t c = 0; c < s.channels; ++c)
                for (int64_t h = 0; h < s.y.taps; ++h) {
                    const T* from = rhs_ + s.weight + s.far_weight(far) + c * s.weight_channel + h * s.y.weight;
                    if (side.weight_adjoins) {
                        kernels_.copy(to, lanes_, from + side.weight[0], s.x.weight, s.x.taps, side.count);
                    } else {
                        for (int64_t q = 0; q < s.x.taps; ++q)
                            for (int64_t j = 0; j < side.count; ++j) to[q * lanes_ + j] = from[side.weight[j] + q * s.x.weight];
                    }
                    to += s.x.taps * lanes_;
                }
        if (!tile_kernels<T>(current_isa()).finite(packed, weights_)) suspicious_.store(true, std::memory_order_relaxed);
    }

    // Input row `row` (of one image and far tap, at `from`) into a slot of the ring, for `channels` channels from `first`.
    void spread_row(const Local& local, const LanesUnit& u, const T* from, int64_t row, int64_t first, int64_t channels, T* slot) const {
        const LanesSide& side = local.side;
        const int64_t entries = (u.count - 1) * plan_.x.step + s.x.taps, base = plan_.x.input(u.own_x, u.x), width = plan_.channel;
        int64_t begin = std::min(entries, std::max<int64_t>(0, ceil_div(-base, plan_.x.dilation)));
        int64_t end = std::max(begin, std::min(entries, ceil_div(s.x.size - base, plan_.x.dilation)));
        if (row < 0 || row >= s.y.size) begin = end = entries;
        for (int64_t c = 0; c < (plan_.same ? 1 : channels); ++c) {
            std::memset(slot + c * width, 0, static_cast<size_t>(begin * plan_.place) * sizeof(T));
            std::memset(slot + c * width + end * plan_.place, 0, static_cast<size_t>((entries - end) * plan_.place) * sizeof(T));
        }
        if (begin == end) return;
        const int64_t step = plan_.x.dilation * s.x.in;
        const T* source = from + row * s.y.in + (base + begin * plan_.x.dilation) * s.x.in;
        T* to = slot + begin * plan_.place;
        if (plan_.same) {
            copy_places(to, source + side.in[0] + first, step, end - begin, channels);
            return;
        }
        if (side.sources > 0) {
            kernels_.spread(to, width, channels, source + side.base, step, end - begin, local.index, side.sources, side.last);
            return;
        }
        for (int64_t i = 0; i < end - begin; ++i)
            for (int64_t c = 0; c < channels; ++c)
                for (int64_t j = 0; j < lanes_; ++j)
                    to[c * width + i * lanes_ + j] = source[i * step + side.in[j] + (first + c) * s.in_channel];
    }

    // Places of `channels` each.
    void copy_places(T* to, const T* from, int64_t step, int64_t count, int64_t channels) const {
        if (step == channels && plan_.place == channels) {
            std::memcpy(to, from, static_cast<size_t>(count * channels) * sizeof(T));
        } else {
            for (int64_t c = 0; c < channels; c += lanes_)
                kernels_.copy(to + c, plan_.place, from + c, step, count, std::min<int64_t>(lanes_, channels - c));
        }
    }

    // Every row of a unit with every far tap and chunk of channels that meets data: body(row, far tap, first channel, channels,
    // turn of the ring, number of the pass, the next row of the input). Returns the number of passes.
    template <class Body>
    int64_t sweep(const Local& local, const LanesUnit& u, Body&& body) const {
        int64_t passes = 0;
        for (int64_t far = 0; far < plan_.far_taps; ++far) {
            int64_t offset;
            if (!s.far_input(u.far, far, &offset)) continue;
            const T* from = lhs_ + s.in + u.image * s.in_image + offset;
            for (int64_t first = 0; first < s.channels; first += plan_.chunk, ++passes) {
                const int64_t channels = std::min(plan_.chunk, s.channels - first);
                for (int64_t c = 0; c < channels && !plan_.same; ++c)
                    for (int64_t j = 0; j < lanes_; ++j)
                        local.index[c * lanes_ + j] = local.side.index[j] + (j < local.side.count ? static_cast<int32_t>(first + c) : 0);
                int64_t next = 0;  // rows of the ring are numbered from the first that the unit meets
                for (int64_t t = 0; t < u.rows; ++t) {
                    const int64_t top = t * plan_.y.step;
                    for (int64_t row = std::max(next, top); row < top + s.y.taps; ++row)
                        spread_row(local, u, from, plan_.y.input(u.own_y, u.y) + row * plan_.y.dilation, first, channels,
                                   local.ring + row % s.y.taps * plan_.slot);
                    next = top + s.y.taps;
                    const int64_t row = plan_.y.input(u.own_y, u.y) + next * plan_.y.dilation;
                    const Ahead<T> ahead{from + local.side.base + row * s.y.in + plan_.x.input(u.own_x, u.x) * s.x.in,
                                         plan_.x.dilation * s.x.in,
                                         t + 1 < u.rows && !plan_.same ? (u.count - 1) * plan_.x.step + s.x.taps : 0};
                    body(t, far, first, channels, top % s.y.taps, passes, ahead);
                }
            }
        }
        return passes;
    }

    void run_unit(int64_t task, void* memory) const {
        const int64_t vector = task % plan_.vectors;
        const LanesUnit u = plan_.unit(task / plan_.vectors);
        if (u.count == 0 || u.rows == 0) return;
        const Local local = local_of(memory, vector);
        const int64_t taps = s.y.taps * s.x.taps, depth = plan_.depth;
        const T* weights = shared_ + vector * weights_;
        // Whole vectors of finished sums are made where they go.
        const bool in_place = !plan_.kept && local.side.out_adjoins && local.side.count == lanes_ && f.bias == nullptr &&
                              f.activation == Activation::none && tile_of(u.count) <= u.count;
        const int64_t step = plan_.x.step * plan_.place, out_step = in_place ? plan_.x.count * s.x.out : lanes_;
        const int64_t passes = sweep(
            local, u, [&](int64_t t, int64_t far, int64_t first, int64_t channels, int64_t turn, int64_t pass, const Ahead<T>& ahead) {
                T* sums = local.sums + (plan_.kept ? t * row_sums_ : 0);
                T* const out = in_place ? out_row(out_, u, t) + local.side.out[0] : sums;
                const int64_t* offset = plan_.offsets.data() + turn * depth;
                const T* weight = weights + (far * s.channels + first) * taps * lanes_;
                for (int64_t x = 0, tile; x < u.count; x += tile) {
                    tile = tile_of(u.count - x);
                    if (in_place) x = std::min(x, u.count - tile);  // the last tile moves back over what is done
                    rows_[tile](
                        {channels * taps, offset, weight, local.ring + x * step, step, out + x * out_step, out_step, pass > 0, ahead});
                }
                if (!plan_.kept && !in_place) store_row(local.side, u, t, sums);
            });
        if (!plan_.kept && passes > 0) return;
        for (int64_t t = 0; t < u.rows; ++t) {
            T* sums = local.sums + (plan_.kept ? t * row_sums_ : 0);
            if (passes == 0) std::memset(sums, 0, static_cast<size_t>(row_sums_) * sizeof(T));  // padding alone
            store_row(local.side, u, t, sums);
        }
    }

    T* out_row(T* base, const LanesUnit& u, int64_t t) const {
        return base + s.out + u.image * s.out_image + s.far_out(u.far) + plan_.y.position(u.own_y, u.y + t) * s.y.out +
               plan_.x.position(u.own_x, u.x) * s.x.out;
    }

    void store_row(const LanesSide& side, const LanesUnit& u, int64_t t, T* sums) const {
        T* to = out_row(out_, u, t);
        const int64_t step = plan_.x.count * s.x.out;
        if (f.bias != nullptr) {
            T bias[kVectorLanes] = {};
            for (int64_t j = 0; j < side.count; ++j) bias[j] = f.bias[(side.first + j) * f.bias_stride];
            for (int64_t x = 0; x < u.count; ++x)
                for (int64_t j = 0; j < side.count; ++j) sums[x * lanes_ + j] += bias[j];
        }
        if (f.activation != Activation::none) finish_row<T>(sums, u.count * lanes_, 1, nullptr, 0, f.activation);
        if (side.out_adjoins) {
            kernels_.copy(to + side.out[0], step, sums, lanes_, u.count, side.count);
            return;
        }
        for (int64_t x = 0; x < u.count; ++x)
            for (int64_t j = 0; j < side.count; ++j) to[x * step + side.out[j]] = sums[x * lanes_ + j];
    }

    // A weight gradient's sums lie by vector, split, far tap, stretch of taps, channel, row tap, tap.
    T* sums_of(int64_t vector, int64_t split) const { return shared_ + (vector * plan_.splits + split) * weights_; }

    void add_units(int64_t task, void* memory) const {
        const int64_t vector = task / plan_.splits, split = task % plan_.splits;
        const Local local = local_of(memory, vector);
        const int64_t row_taps = s.channels * s.y.taps;
        T* sums = sums_of(vector, split);
        std::memset(sums, 0, static_cast<size_t>(weights_) * sizeof(T));
        for (int64_t index = plan_.units * split / plan_.splits; index < plan_.units * (split + 1) / plan_.splits; ++index) {
            const LanesUnit u = plan_.unit(index);
            if (u.count == 0 || u.rows == 0) continue;
            sweep(local, u, [&](int64_t t, int64_t far, int64_t first, int64_t channels, int64_t turn, int64_t, const Ahead<T>& ahead) {
                int64_t dy_step;
                const T* dy = take_row(local, u, t, &dy_step);
                const Ahead<T> next_dy{dy + plan_.y.count * s.y.out, plan_.x.count * s.x.out, t + 1 < u.rows ? u.count : 0};
                bool other = false;
                const int64_t* offset = plan_.row_offsets.data() + turn * plan_.chunk * s.y.taps;
                for (int64_t q = 0, taps; q < s.x.taps; q += taps) {
                    taps = taps_from(q);
                    T* sum = sums + (far * row_taps * s.x.taps + q * row_taps + first * s.y.taps * taps) * lanes_;
                    const int64_t rows = channels * s.y.taps, pieces = ceil_div(rows, most_sum_rows(taps));
                    for (int64_t i = 0; i < pieces; ++i) {
                        const int64_t begin = rows * i / pieces, end = rows * (i + 1) / pieces;
                        sums_[end - begin][taps](u.count, dy, dy_step, offset + begin, local.ring + q * lanes_, plan_.x.step * lanes_,
                                                 sum + begin * taps * lanes_, (other = !other) ? ahead : next_dy);
                    }
                }
            });
        }
    }

    // Taps of the stretch that begins at tap q: even stretches of at most as many as a kernel takes.
    int64_t taps_from(int64_t q) const {
        const int64_t pieces = ceil_div(s.x.taps, most_taps_), each = ceil_div(s.x.taps, pieces);
        return std::min(each, s.x.taps - q);
    }
    int64_t most_sum_rows(int64_t taps) const {
        int64_t rows = kMaxSumRows;
        while (sums_[rows][taps] == nullptr) --rows;
        return rows;
    }

    // Row t of a unit in dy, a whole vector a position.
    const T* take_row(const Local& local, const LanesUnit& u, int64_t t, int64_t* step) const {
        const LanesSide& side = local.side;
        const T* from = out_row(const_cast<T*>(rhs_), u, t);
        *step = plan_.x.count * s.x.out;
        if (side.out_adjoins && side.count == lanes_) return from + side.out[0];
        for (int64_t x = 0; x < u.count; ++x)
            for (int64_t j = 0; j < lanes_; ++j) local.row[x * lanes_ + j] = j < side.count ? from[x * *step + side.out[j]] : T(0);
        *step = lanes_;
        return local.row;
    }

    void finish_sums(int64_t vector) const {
        const LanesSide side = lanes_side(s, vector, lanes_);
        T* from = sums_of(vector, 0);
        for (int64_t split = 1; split < plan_.splits; ++split)
            for (int64_t j = 0; j < weights_; ++j) from[j] += from[split * weights_ + j];
        if (!tile_kernels<T>(current_isa()).finite(from, weights_)) suspicious_.store(true, std::memory_order_relaxed);
        for (int64_t far = 0; far < plan_.far_taps; ++far)
            for (int64_t q = 0, taps; q < s.x.taps; q += taps) {
                taps = taps_from(q);
                for (int64_t c = 0; c < s.channels; ++c)
                    for (int64_t h = 0; h < s.y.taps; ++h)
                        for (int64_t k = q; k < q + taps; ++k, from += lanes_) {
                            finish_row<T>(from, side.count, 1, f.bias == nullptr ? nullptr : f.bias + side.first * f.bias_stride,
                                          f.bias_stride, f.activation);
                            T* to = out_ + s.weight + s.far_weight(far) + c * s.weight_channel + h * s.y.weight + k * s.x.weight;
                            for (int64_t j = 0; j < side.count; ++j) to[side.weight[j]] = from[j];
                        }
            }
    }

    // Positions of the next tile: an even share of those left, rounded up to a tile that exists.
    int64_t tile_of(int64_t left) const {
        int64_t tile = ceil_div(left, ceil_div(left, int64_t{most_rows_}));
        while (rows_[tile] == nullptr) ++tile;
        return tile;
    }

    const Sweep& s;
    const Finish<T> f;
    const GroupedKernels<T>& kernels_;
    const int lanes_;
    const T* lhs_;
    const T* rhs_;
    T* out_;
    const LanesPlan plan_;
    LanesFunction<T> rows_[kMaxLaneRows + 1] = {};
    LaneSumFunction<T> sums_[kMaxSumRows + 1][kMaxSumTaps + 1] = {};
    int most_rows_ = 0, most_taps_ = 0;
    int64_t row_sums_ = 0, ring_elements_ = 0, local_ = 0;  // elements, but local_: bytes
    int64_t weights_ = 0;                                   // of one vector of outputs
    T* shared_ = nullptr;                                   // packed weights, or a gradient's sums
    mutable std::atomic<bool> suspicious_{false};
};

}  // namespace

template <class T>
const char* run_grouped_lanes(const Sweep& sweep, const T* lhs, const T* rhs, T* out, const Finish<T>& finish, Executor& executor) {
    // Offsets are listed for every turn of the ring.
    const double listed = static_cast<double>(sweep.y.taps) * static_cast<double>(sweep.y.taps) * static_cast<double>(sweep.x.taps) *
                          static_cast<double>(sweep.channels);
    const double ring =
        static_cast<double>(sweep.y.taps) * (static_cast<double>(sweep.x.taps) + 512 * static_cast<double>(sweep.x.stride)) * kVectorLanes;
    if (listed > kMaxElements || ring > kMaxElements) return "grouped: the kernel is too large";
    return GroupedLanes<T>(sweep, lhs, rhs, out, finish).run(executor);
}
template const char* run_grouped_lanes<float>(const Sweep&, const float*, const float*, float*, const Finish<float>&, Executor&);
template const char* run_grouped_lanes<double>(const Sweep&, const double*, const double*, double*, const Finish<double>&, Executor&);

}  // namespace fastconv
