// Lanes are pixels: one group's rows of the input are copied, padded, into cache-sized scratch where rows follow each other without
// gaps, so that outputs are one line of vectors whatever the width of the image; what falls between the rows is dropped on
// the way out. A register tile holds several features of a few vectors. A weight gradient is dot products along the same line.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "base/scratch.h"
#include "base/tasks.h"
#include "drivers/epilogue.h"
#include "drivers/geometry.h"
#include "drivers/grouped.h"
#include "drivers/residues.h"
#include "kernels/grouped.h"
#include "kernels/stencil.h"
#include "kernels/tile.h"

namespace fastconv {
namespace {

constexpr int kMaxRows = 8, kMaxVectors = 8, kMaxLeft = 8, kMaxRight = 32;
constexpr int64_t kPlaneBytes = 40 << 10;   // of a task's copy of the input
constexpr int64_t kMostRow = 2048;          // positions in a row of a task
constexpr int64_t kTasks = 16;              // a function of the problem, not of the threads
constexpr int64_t kTaskProducts = 1 << 17;  // less work is not worth a task of its own
constexpr int64_t kLineBytes = 32 << 10;
constexpr int64_t kWideRow = 8;            // vectors of a row that tiles of its own fill
constexpr int64_t kPackAlone = 1 << 15;    // elements of weights that the calling thread packs alone
constexpr int64_t kMaxElements = 1 << 24;  // of packed weights, of sums, or of a task's scratch

template <class T>
class GroupedPixels {
public:
    GroupedPixels(const Sweep& sweep, const T* lhs, const T* rhs, T* out, const Finish<T>& finish)
        : s(sweep), f(finish), kernels_(grouped_kernels<T>(current_isa())), tiles_(tile_kernels<T>(current_isa())), lhs_(lhs), rhs_(rhs),
          out_(out), x_(sweep.x), y_(sweep.y) {
        lanes_ = kernels_.lanes;
        for (int i = 0; i < kernels_.pixel_count; ++i) {
            table_[kernels_.pixels[i].rows][kernels_.pixels[i].vectors] = kernels_.pixels[i].run;
            most_rows_ = std::max(most_rows_, kernels_.pixels[i].rows);
        }
        const StencilKernels<T>& stencils = stencil_kernels<T>(current_isa());
        for (int i = 0; i < stencils.dot_count; ++i) {
            dots_[stencils.dots[i].left][stencils.dots[i].right] = stencils.dots[i].run;
            most_left_ = std::max(most_left_, stencils.dots[i].left);
        }
        far_taps_ = s.far_taps();
        depth_ = far_taps_ * s.channels * s.y.taps * s.x.taps;
    }

    const char* plan() {
        // Rows and columns of a task: as many as the scratch takes.
        const int64_t planes = s.channels * far_taps_ * x_.count() * y_.count() + (s.gradient ? s.features : 0);
        const int64_t budget = std::max<int64_t>(64, kPlaneBytes / static_cast<int64_t>(sizeof(T)) / planes);
        x_block_ = std::min(s.x.positions, std::max(std::min(budget / (y_.reach + 1), kMostRow), 2 * x_.reach + 16));
        x_blocks_ = ceil_div(s.x.positions, x_block_);
        x_block_ = ceil_div(s.x.positions, x_blocks_);
        pitch_ = x_block_ + x_.reach;
        y_block_ = std::min(s.y.positions, std::max(budget / pitch_ - y_.reach, std::min<int64_t>(4, 1 + y_.reach)));
        const int64_t products = s.products();
        const int64_t wanted = std::max<int64_t>(1, std::min(kTasks, products / kTaskProducts));
        const int64_t others = s.groups * s.images * s.far_positions() * x_blocks_;
        if (others * ceil_div(s.y.positions, y_block_) < wanted)
            y_block_ = std::max(ceil_div(s.y.positions, ceil_div(wanted, others)), std::min(y_block_, 2 * (y_.reach + 1)));
        y_blocks_ = ceil_div(s.y.positions, y_block_);
        y_block_ = ceil_div(s.y.positions, y_blocks_);
        rows_ = y_block_ + y_.reach;
        // Small images: several at once.
        image_block_ = 1;
        if (x_blocks_ == 1 && y_blocks_ == 1) {
            const int64_t most = std::max<int64_t>(1, s.groups * s.images * s.far_positions() / wanted);
            image_block_ = std::max<int64_t>(1, std::min({s.images, budget / (rows_ * pitch_), most}));
        }
        image_blocks_ = ceil_div(s.images, image_block_);
        image_block_ = ceil_div(s.images, image_blocks_);
        plane_ = image_block_ * rows_ * pitch_;
        line_ = ceil_div(plane_, lanes_) * lanes_;
        units_ = image_blocks_ * s.far_positions() * y_blocks_ * x_blocks_;
        splits_ = s.gradient ? std::max<int64_t>(1, std::min(units_, wanted / s.groups)) : 1;
        const double scratch_elements = static_cast<double>(planes) * static_cast<double>(plane_) + static_cast<double>(s.features * line_);
        const double shared =
            static_cast<double>(s.groups * s.features * splits_) * static_cast<double>(depth_) * (s.gradient ? lanes_ : 1);
        if (scratch_elements > kMaxElements || shared > kMaxElements) return "grouped: the working set is too large";
        channel_ = x_.count() * y_.count() * plane_;
        in_size_ = far_taps_ * s.channels * channel_ + (kMaxVectors + 1) * lanes_;
        local_ = (in_size_ + s.features * line_) * static_cast<int64_t>(sizeof(T)) + depth_ * static_cast<int64_t>(sizeof(T*)) + 3 * 64;
        for (int64_t c = 0; c < far_taps_ * s.channels; ++c)
            for (int64_t h = 0; h < s.y.taps; ++h)
                for (int64_t q = 0; q < s.x.taps; ++q) {
                    const int64_t down = h * s.y.dilation, along = q * s.x.dilation;
                    offsets_.push_back(c * channel_ + (y_.place(down) * x_.count() + x_.place(along)) * plane_ + down / y_.stride * pitch_ +
                                       along / x_.stride);
                }
        return nullptr;
    }

    const char* run(Executor& executor) {
        const int64_t weights = s.features * depth_;  // of a group
        const int64_t shared = s.groups * weights * (s.gradient ? splits_ * lanes_ : 1);
        shared_ = static_cast<T*>(scratch(ScratchSlot::shared, static_cast<size_t>(shared + lanes_) * sizeof(T)));
        if (shared_ == nullptr) return "out of memory";
        if (!s.gradient) {
            InlineExecutor alone;  // waking others costs more than packing little
            for_chunks(shared < kPackAlone ? alone : executor, s.groups,
                       [&](int64_t group) { pack_weights(group, shared_ + group * weights); });
            std::memset(shared_ + shared, 0, static_cast<size_t>(lanes_) * sizeof(T));
            if (!tiles_.finite(shared_, ceil_div(shared, lanes_) * lanes_)) return kSuspicious;
        }
        const int64_t tasks = s.groups * (s.gradient ? splits_ : units_);
        const char* why = for_tasks(executor, tasks, static_cast<size_t>(local_), [&](int64_t task, void* memory) {
            Local local;
            local.right = reinterpret_cast<const T**>(memory);
            local.in = align(local.right + depth_);
            local.line = align(local.in + in_size_);
            // What tiles read beyond the last plane.
            std::memset(local.in + in_size_ - (kMaxVectors + 1) * lanes_, 0, static_cast<size_t>((kMaxVectors + 1) * lanes_) * sizeof(T));
            if (s.gradient)
                add_units(task / splits_, task % splits_, local);
            else
                run_unit(task / units_, unit_of(task % units_), local);
        });
        if (why != nullptr) return why;
        if (s.gradient) for_chunks(executor, s.groups, [&](int64_t group) { finish_sums(group); });
        return suspicious_.load() ? kSuspicious : nullptr;
    }

private:
    struct Local {
        const T** right;  // of a weight gradient: where the line begins for each tap
        T *in, *line;     // line: the sums of every feature, or dy
    };

    // Neighbouring images of a far position, with a block of rows and columns each.
    struct Unit {
        int64_t image, images, far, y, rows, x, count;
    };

    static T* align(const void* from) { return reinterpret_cast<T*>((reinterpret_cast<uintptr_t>(from) + 63) / 64 * 64); }

    Unit unit_of(int64_t index) const {
        Unit u;
        u.x = index % x_blocks_ * x_block_;
        index /= x_blocks_;
        u.y = index % y_blocks_ * y_block_;
        index /= y_blocks_;
        u.image = index % image_blocks_ * image_block_;
        u.far = index / image_blocks_;
        u.count = std::min(x_block_, s.x.positions - u.x);
        u.rows = std::min(y_block_, s.y.positions - u.y);
        u.images = std::min(image_block_, s.images - u.image);
        return u;
    }

    // Elements of the line that a unit fills, gaps included.
    int64_t length(const Unit& u) const { return ((u.images - 1) * rows_ + u.rows - 1) * pitch_ + u.count; }

    // Features in even pieces of at most a tile's rows.
    template <class Body>
    static void for_pieces(int64_t count, int64_t most, Body&& body) {
        const int64_t pieces = ceil_div(count, most);
        for (int64_t i = 0; i < pieces; ++i) body(count * i / pieces, count * (i + 1) / pieces - count * i / pieces);
    }

    // Weights by piece of features, far tap, channel, row tap, tap, feature.
    void pack_weights(int64_t group, T* to) const {
        for_pieces(s.features, most_rows_, [&](int64_t first, int64_t rows) {
            for (int64_t far = 0; far < far_taps_; ++far) {
                const T* base = rhs_ + s.weight + group * s.weight_group + first * s.weight_feature + s.far_weight(far);
                for (int64_t c = 0; c < s.channels; ++c)
                    for (int64_t h = 0; h < s.y.taps; ++h)
                        for (int64_t q = 0; q < s.x.taps; ++q, to += rows) {
                            const T* from = base + c * s.weight_channel + h * s.y.weight + q * s.x.weight;
                            for (int64_t r = 0; r < rows; ++r) to[r] = from[r * s.weight_feature];
                        }
            }
        });
    }

    // The places t < pitch of a row that lie in the input, from[(base + t * stride) * step].
    struct Span {
        int64_t begin, end, first, move;
    };
    Span span_of(int64_t base) const {
        const int64_t stride = s.x.stride, begin = std::min(pitch_, std::max<int64_t>(0, ceil_div(-base, stride)));
        const int64_t end = std::max(begin, std::min(pitch_, ceil_div(s.x.size - base, stride)));
        return {begin, end, (base + begin * stride) * s.x.in, stride * s.x.in};
    }

    void copy_rows(const T* from, int64_t step, int64_t rows, const Span& span, T* to) const {
        if (span.move == 1) {
            kernels_.pad_rows(to, pitch_, from + span.first, step, rows, span.begin, span.end);
            return;
        }
        for (int64_t row = 0; row < rows; ++row, to += pitch_, from += step) {
            std::memset(to, 0, static_cast<size_t>(span.begin) * sizeof(T));
            copy_spaced(from + span.first, span.move, to + span.begin, span.end - span.begin);
            std::memset(to + span.end, 0, static_cast<size_t>(pitch_ - span.end) * sizeof(T));
        }
    }

    void copy_spaced(const T* from, int64_t move, T* to, int64_t count) const {
        if (count > 0) tiles_.pack.spaced(to, 0, 1, from, 0, move, count);
    }

    // One plane of each image: the rows of one residue and the columns of another.
    void copy_plane(const T* from, const Unit& u, int64_t down, const Span& span, T* to) const {
        const int64_t top = u.y * y_.stride + down - s.y.lo;  // rows above and below the input are zero
        const int64_t begin = std::min(rows_, std::max<int64_t>(0, ceil_div(-top, y_.stride)));
        const int64_t end = std::max(begin, std::min(rows_, ceil_div(s.y.size - top, y_.stride)));
        for (int64_t image = 0; image < u.images; ++image, to += rows_ * pitch_) {
            const T* rows = from + image * s.in_image + (top + begin * y_.stride) * s.y.in;
            std::memset(to, 0, static_cast<size_t>(begin * pitch_) * sizeof(T));
            copy_rows(rows, y_.stride * s.y.in, end - begin, span, to + begin * pitch_);
            std::memset(to + end * pitch_, 0, static_cast<size_t>((rows_ - end) * pitch_) * sizeof(T));
        }
        std::memset(to, 0, static_cast<size_t>((image_block_ - u.images) * rows_ * pitch_) * sizeof(T));
    }

    void copy_input(int64_t group, const Unit& u, T* in) const {
        for (int64_t far = 0; far < far_taps_; ++far) {
            int64_t offset;
            T* to = in + far * s.channels * channel_;
            if (!s.far_input(u.far, far, &offset)) {
                std::memset(to, 0, static_cast<size_t>(s.channels * channel_) * sizeof(T));
                continue;
            }
            const T* from = lhs_ + s.in + group * s.in_group + u.image * s.in_image + offset;
            for (int64_t along = 0; along < x_.count(); ++along) {
                const Span span = span_of(u.x * x_.stride + x_.used[static_cast<size_t>(along)] - s.x.lo);
                for (int64_t c = 0; c < s.channels; ++c)
                    for (int64_t down = 0; down < y_.count(); ++down)
                        copy_plane(from + c * s.in_channel, u, y_.used[static_cast<size_t>(down)], span,
                                   to + c * channel_ + (down * x_.count() + along) * plane_);
            }
        }
    }

    T* out_row(T* base, int64_t group, int64_t feature, const Unit& u, int64_t image, int64_t row) const {
        return base + s.out + group * s.out_group + feature * s.out_feature + (u.image + image) * s.out_image + s.far_out(u.far) +
               (u.y + row) * s.y.out + u.x * s.x.out;
    }

    void run_unit(int64_t group, const Unit& u, const Local& local) const {
        copy_input(group, u, local.in);
        const T* weights = shared_ + group * s.features * depth_;
        // Wide rows go straight to their place, each with tiles of its own, where lines of all features would leave the first cache.
        const bool wide = s.x.out == 1 && u.count >= kWideRow * lanes_ && s.features * line_ * static_cast<int64_t>(sizeof(T)) > kLineBytes;
        if (wide) {
            for (int64_t image = 0; image < u.images; ++image)
                for (int64_t row = 0; row < u.rows; ++row)
                    multiply(weights, local.in + (image * rows_ + row) * pitch_, u.count, out_row(out_, group, 0, u, image, row),
                             s.out_feature);
        } else {
            const int64_t count = ceil_div(length(u), lanes_) * lanes_;
            multiply(weights, local.in, count, local.line, line_);
        }
        for (int64_t o = 0; o < s.features; ++o) {
            const T* bias = f.bias == nullptr ? nullptr : f.bias + (group * s.features + o) * f.bias_stride;
            const bool finish = bias != nullptr || f.activation != Activation::none;
            T* from = local.line + o * line_;
            if (finish && !wide) finish_row<T>(from, length(u), 1, bias, 0, f.activation);
            for (int64_t image = 0; image < u.images; ++image, from += rows_ * pitch_) {
                T* to = out_row(out_, group, o, u, image, 0);
                if (wide) {
                    for (int64_t row = 0; finish && row < u.rows; ++row)
                        finish_row<T>(to + row * s.y.out, u.count, 1, bias, 0, f.activation);
                    continue;
                }
                if (s.x.out == 1) {
                    kernels_.copy_rows(to, s.y.out, from, pitch_, u.rows, u.count);
                    continue;
                }
                for (int64_t row = 0; row < u.rows; ++row)
                    for (int64_t x = 0; x < u.count; ++x) to[row * s.y.out + x * s.x.out] = from[row * pitch_ + x];
            }
        }
    }

    // Every feature at `count` neighbouring places, at least one vector of them: out[o * step + i].
    void multiply(const T* weights, const T* in, int64_t count, T* out, int64_t step) const {
        const int64_t vectors = ceil_div(count, lanes_);
        for_pieces(s.features, most_rows_, [&](int64_t first, int64_t rows) {
            int64_t width = std::min<int64_t>(count / lanes_, kMaxVectors);
            while (table_[rows][width] == nullptr) --width;
            for (int64_t v = 0; v < vectors; v += width) {
                const int64_t at = std::min(v * lanes_, count - width * lanes_);  // the last tile moves back over what is done
                table_[rows][width](depth_, offsets_.data(), weights + first * depth_, in + at, out + first * step + at, step);
            }
        });
    }

    // dy as a line whose gaps are zero.
    void copy_dy(int64_t group, const Unit& u, T* line) const {
        const Span span{0, u.count, 0, s.x.out};
        for (int64_t o = 0; o < s.features; ++o, line += line_) {
            T* to = line;
            for (int64_t image = 0; image < u.images; ++image, to += rows_ * pitch_) {
                copy_rows(out_row(const_cast<T*>(rhs_), group, o, u, image, 0), s.y.out, u.rows, span, to);
                std::memset(to + u.rows * pitch_, 0, static_cast<size_t>((rows_ - u.rows) * pitch_) * sizeof(T));
            }
            std::memset(to, 0, static_cast<size_t>(line + line_ - to) * sizeof(T));
        }
    }

    // The tiles of dot products, in the order of their sums: body(feature, features, tap, taps).
    template <class Body>
    void for_dots(Body&& body) const {
        for_pieces(s.features, most_left_, [&](int64_t first, int64_t left) {
            int64_t most = 1;  // every number of taps up to it has a kernel
            while (most < kMaxRight && dots_[left][most + 1] != nullptr) ++most;
            for_pieces(depth_, most, [&](int64_t tap, int64_t right) { body(first, left, tap, right); });
        });
    }

    void add_units(int64_t group, int64_t split, const Local& local) const {
        T* const sums = shared_ + (group * splits_ + split) * s.features * depth_ * lanes_;
        std::memset(sums, 0, static_cast<size_t>(s.features * depth_ * lanes_) * sizeof(T));
        for (int64_t k = 0; k < depth_; ++k) local.right[k] = local.in + offsets_[static_cast<size_t>(k)];
        for (int64_t index = units_ * split / splits_; index < units_ * (split + 1) / splits_; ++index) {
            const Unit u = unit_of(index);
            copy_input(group, u, local.in);
            copy_dy(group, u, local.line);
            const int64_t depth = ceil_div(length(u), lanes_) * lanes_;
            T* sum = sums;
            for_dots([&](int64_t first, int64_t left, int64_t tap, int64_t right) {
                const T* rows[kMaxLeft];
                for (int64_t i = 0; i < left; ++i) rows[i] = local.line + (first + i) * line_;
                dots_[left][right](depth, rows, local.right + tap, sum);
                sum += left * right * lanes_;
            });
        }
    }

    // The offset of a tap's weight within its group and feature.
    int64_t weight_of(int64_t k) const {
        const int64_t q = k % s.x.taps, h = k / s.x.taps % s.y.taps, c = k / s.x.taps / s.y.taps;
        return q * s.x.weight + h * s.y.weight + c % s.channels * s.weight_channel + s.far_weight(c / s.channels);
    }

    // Adds the splits in order, then the lanes by halves.
    void finish_sums(int64_t group) const {
        const int64_t size = s.features * depth_ * lanes_;
        T* from = shared_ + group * splits_ * size;
        for (int64_t split = 1; split < splits_; ++split)
            for (int64_t j = 0; j < size; ++j) from[j] += from[split * size + j];
        if (!tiles_.finite(from, size)) suspicious_.store(true, std::memory_order_relaxed);
        for_dots([&](int64_t first, int64_t left, int64_t tap, int64_t right) {
            for (int64_t o = first; o < first + left; ++o) {
                const T* bias = f.bias == nullptr ? nullptr : f.bias + (group * s.features + o) * f.bias_stride;
                for (int64_t k = tap; k < tap + right; ++k, from += lanes_) {
                    for (int half = lanes_ / 2; half > 0; half /= 2)
                        for (int j = 0; j < half; ++j) from[j] += from[j + half];
                    finish_row<T>(from, 1, 1, bias, 0, f.activation);
                    out_[s.weight + group * s.weight_group + o * s.weight_feature + weight_of(k)] = from[0];
                }
            }
        });
    }

    const Sweep& s;
    const Finish<T> f;
    const GroupedKernels<T>& kernels_;
    const TileKernels<T>& tiles_;
    const T* lhs_;
    const T* rhs_;
    T* out_;
    T* shared_ = nullptr;  // packed weights, or a gradient's sums
    const Residues x_, y_;
    PixelsFunction<T> table_[kMaxRows + 1][kMaxVectors + 1] = {};
    DotFunction<T> dots_[kMaxLeft + 1][kMaxRight + 2] = {};
    int lanes_ = 0, most_rows_ = 0, most_left_ = 0;
    int64_t far_taps_ = 0, depth_ = 0, units_ = 0, splits_ = 1;
    int64_t x_block_ = 0, x_blocks_ = 0, y_block_ = 0, y_blocks_ = 0, image_block_ = 0, image_blocks_ = 0;
    int64_t pitch_ = 0, rows_ = 0, plane_ = 0, line_ = 0, channel_ = 0, in_size_ = 0, local_ = 0;  // of scratch, in elements; local_: bytes
    std::vector<int64_t> offsets_;                                                                 // of far tap, channel, row tap, tap
    mutable std::atomic<bool> suspicious_{false};
};

}  // namespace

template <class T>
const char* run_grouped_pixels(const Sweep& sweep, const T* lhs, const T* rhs, T* out, const Finish<T>& finish, Executor& executor) {
    const double depth = static_cast<double>(sweep.far_taps()) * static_cast<double>(sweep.channels) * static_cast<double>(sweep.y.taps) *
                         static_cast<double>(sweep.x.taps);
    const double reach = static_cast<double>(sweep.x.taps) * static_cast<double>(sweep.x.dilation) +
                         static_cast<double>(sweep.y.taps) * static_cast<double>(sweep.y.dilation);
    if (depth > kMaxElements || reach > kMaxElements || sweep.x.stride > kMaxElements || sweep.y.stride > kMaxElements)
        return "grouped: the kernel is too large";
    GroupedPixels<T> form(sweep, lhs, rhs, out, finish);
    if (const char* why = form.plan()) return why;
    return form.run(executor);
}
template const char* run_grouped_pixels<float>(const Sweep&, const float*, const float*, float*, const Finish<float>&, Executor&);
template const char* run_grouped_pixels<double>(const Sweep&, const double*, const double*, double*, const Finish<double>&, Executor&);

}  // namespace fastconv
