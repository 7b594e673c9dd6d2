#include "drivers/block_lines.h"

#include <algorithm>

#include "drivers/geometry.h"

namespace fastconv {
namespace {

constexpr int64_t kCopyBytes = 512 << 10;
constexpr double kCopyCycles = 0.25;   // an element
constexpr double kWeightCycles = 0.2;  // to read a weight for another stretch of pixels

// Positions on axis i that fall on padding before and after the data, the fewest of all phases.
struct Padding {
    int64_t before, after;
};

Padding padding_of(const Axis& a, const std::vector<int64_t>& phases, int64_t first, int64_t length) {
    Padding least{length, length};
    for (const int64_t phase : phases) {
        const int64_t base = first * a.stride + phase - a.lo;
        const int64_t before = std::min(length, std::max<int64_t>(0, ceil_div(-base, a.stride)));
        const int64_t end = std::min(length, std::max<int64_t>(0, ceil_div(a.size - base, a.stride)));
        least.before = std::min(least.before, before);
        least.after = std::min(least.after, length - std::max(before, end));
    }
    return least;
}

int64_t even_block(int64_t count, int64_t most) { return ceil_div(count, ceil_div(count, std::max<int64_t>(1, most))); }

}  // namespace

Problem join_axes(const Problem& problem) {
    Problem p = problem;
    auto plain = [&](int i) {
        const Axis& a = p.axes[i];
        return a.kernel == 1 && a.stride == 1 && a.lo == 0 && a.out == a.size;
    };
    for (int i = p.dims - 2; i >= 0; --i) {
        Axis& inner = p.axes[i + 1];
        if (!plain(i) || !plain(i + 1) || p.lhs.spatial[i] != p.lhs.spatial[i + 1] * inner.size ||
            p.out.spatial[i] != p.out.spatial[i + 1] * inner.size)
            continue;
        inner.size = inner.out = inner.size * p.axes[i].size;
        for (int j = i; j + 1 < p.dims; ++j) {
            p.axes[j] = p.axes[j + 1];
            for (Operand* operand : {&p.lhs, &p.rhs, &p.out}) operand->spatial[j] = operand->spatial[j + 1];
        }
        --p.dims;
    }
    return p;
}

BlockLines::BlockLines(const Problem& p, int64_t element_bytes, int lanes, int64_t wanted_tasks) : p_(p) {
    images = 1;
    for (int i = 0; i < p.dims; ++i) {
        const Axis& a = p.axes[i];
        reach[i] = (a.kernel - 1) * a.rhs_dilation / a.stride;
        for (int64_t k = 0; k < a.kernel && static_cast<int64_t>(phases[i].size()) < a.stride; ++k) {
            const int64_t phase = k * a.rhs_dilation % a.stride;
            if (std::find(phases[i].begin(), phases[i].end(), phase) == phases[i].end()) phases[i].push_back(phase);
        }
        images *= static_cast<int64_t>(phases[i].size());
        block[i] = 1;
    }
    // From the innermost axis out, as many outputs as the copy may hold.
    int64_t room = std::max<int64_t>(1, kCopyBytes / element_bytes / std::max<int64_t>(1, p.channels * images));
    for (int i = 0; i < p.dims; ++i) room = std::max<int64_t>(1, room / (i + 1 < p.dims ? reach[i] + 1 : 1));
    for (int i = p.dims - 1; i >= 0; --i) {
        const int64_t least = i + 1 == p.dims ? 4 * lanes : 1;
        const int64_t most = std::max(least, i + 1 == p.dims ? room - reach[i] : room * (reach[i] + 1) - reach[i]);
        block[i] = even_block(p.axes[i].out, most);
        room = i + 1 == p.dims ? room / (block[i] + reach[i]) : room * (reach[i] + 1) / (block[i] + reach[i]);
        if (block[i] == p.axes[i].out) continue;
        // Volumes: planes that two blocks copy cost more than what rounding has left free.
        while (i + 2 < p.dims && block[i] < p.axes[i].out &&
               (copy_size() + copy_size() / (block[i] + reach[i])) * element_bytes <= kCopyBytes)
            ++block[i];
        break;
    }
    // Smaller ones from the outermost axis in, until there are enough tasks.
    count_blocks();
    for (int i = 0; i + 1 < p.dims; ++i) {
        const int64_t missing = ceil_div(wanted_tasks, p.batch * p.groups * blocks());
        if (missing <= 1) break;
        block[i] = i + 2 == p.dims ? best_rows(lanes, missing) : even_block(p.axes[i].out, block[i] / missing);
        count_blocks();
    }
    const int64_t missing = ceil_div(wanted_tasks, p.batch * p.groups * blocks());
    if (p.dims == 1 && missing > 1)
        block[0] = std::max(std::min(block[0], 8 * int64_t{lanes}), even_block(p.axes[0].out, block[0] / missing));
    count_blocks();
}

void BlockLines::count_blocks() {
    for (int j = 0; j < p_.dims; ++j) counts[j] = ceil_div(p_.axes[j].out, block[j]);
}

// Rows of a block when there should be `missing` times as many: few enough, or fewer blocks whose features are split between tasks,
// by cycles a channel. Vectors past a line's end, and rows that two blocks copy, are the price of small ones.
int64_t BlockLines::best_rows(int lanes, int64_t missing) const {
    const int row = p_.dims - 2, lane = p_.dims - 1;
    const int64_t most = block[row], out = p_.axes[row].out;
    double taps = 1, least = 0;
    for (int i = 0; i < p_.dims; ++i) taps *= static_cast<double>(p_.axes[i].kernel);
    int64_t best = most;
    for (int64_t rows = std::max<int64_t>(1, most / (2 * missing)); rows <= most; ++rows) {
        const int64_t pieces = ceil_div(out, rows), tasks = pieces * counts[lane], whole = ceil_div(out, most) * counts[lane];
        const int64_t features = std::max<int64_t>(1, ceil_div(whole * missing, tasks));  // blocks of features
        const int64_t length = block[lane] + reach[lane], line = (rows - 1) * (length - reach[lane] / 2) + block[lane];
        const double copied = kCopyCycles * static_cast<double>(features * (rows + reach[row]) * length * images);
        const int64_t vectors = ceil_div(line, lanes);
        const double product = static_cast<double>(p_.features) * taps *
                               (0.5 * static_cast<double>(vectors) + kWeightCycles * static_cast<double>(ceil_div(vectors, 4)));
        const double cycles = static_cast<double>(pieces) * (copied + product);
        if (least > 0 && cycles >= least) continue;
        least = cycles;
        best = rows;
    }
    return best;
}

int64_t BlockLines::blocks() const {
    int64_t count = 1;
    for (int i = 0; i < p_.dims; ++i) count *= counts[i];
    return count;
}

int64_t BlockLines::copy_size() const {
    int64_t size = p_.channels * images;
    for (int i = 0; i < p_.dims; ++i) size *= block[i] + reach[i];
    return size;
}

BlockCopy::BlockCopy(const Problem& p, const BlockLines& lines, int lanes, int64_t index) {
    padded = false;
    int64_t closer = 0;  // what rows share
    for (int i = p.dims - 1; i >= 0; --i) {
        first[i] = index % lines.counts[i] * lines.block[i];
        index /= lines.counts[i];
        extent[i] = std::min(lines.block[i], p.axes[i].out - first[i]);
        length[i] = extent[i] + lines.reach[i];
        const Axis& a = p.axes[i];
        const int64_t last = (first[i] + extent[i] - 1) * a.stride + (a.kernel - 1) * a.rhs_dilation - a.lo;
        padded = padded || first[i] * a.stride < a.lo || last >= a.size;
        if (i + 1 == p.dims && p.dims > 1) {
            const Padding padding = padding_of(a, lines.phases[i], first[i], length[i]);
            closer = std::min({padding.before, padding.after, lines.reach[i]});
        }
    }
    int64_t step = 1;
    for (int i = p.dims - 1; i >= 0; --i) {
        pitch[i] = step;
        step *= length[i] - (i + 1 == p.dims ? closer : 0);
        if (i + 2 == p.dims) step += closer;  // the last row of an image has nobody to share with
    }
    if (p.dims == 0) step = 1;
    image_pitch = step;
    channel_pitch = ceil_div(step * lines.images, lanes) * lanes;
}

int64_t BlockCopy::tap(const Problem& p, const BlockLines& lines, const int64_t* reach) const {
    int64_t image = 0, at = 0;
    for (int i = 0; i < p.dims; ++i) {
        const std::vector<int64_t>& phases = lines.phases[i];
        const auto place = std::find(phases.begin(), phases.end(), reach[i] % p.axes[i].stride);
        image = image * static_cast<int64_t>(phases.size()) + (place - phases.begin());
        at += reach[i] / p.axes[i].stride * pitch[i];
    }
    return image * image_pitch + at;
}

int64_t BlockCopy::line(int dims) const {
    int64_t last = 0;
    for (int i = std::max(0, dims - 2); i < dims; ++i) last += (extent[i] - 1) * pitch[i];
    return last + 1;
}

int64_t BlockCopy::lines(int dims) const {
    int64_t count = 1;
    for (int i = 0; i + 2 < dims; ++i) count *= extent[i];
    return count;
}

namespace {

constexpr int64_t kLanesAtOnce = 64;

// Positions of a row: zero before `begin` and from `end` up to `length`.
struct Stretch {
    int64_t begin, end, length;
};

// Rows of one image, all channels: to[c][r][j] = from[c][r][(j - begin) * step] for begin <= j < end, else zero.
template <class T>
void fill_rows(const Problem& p, const PackKernels<T>& pack, const BlockCopy& copy, const T* from, const Stretch& at, int64_t rows,
               int64_t pitch, int64_t row_step, int64_t step, T* to) {
    const int64_t count = at.end - at.begin, channel = p.lhs.outer[2];
    if (rows == 0) return;
    for (int64_t c = 0; c < p.channels && count < at.length; ++c) {
        T* first = to + c * copy.channel_pitch;
        if (count == 0) {
            std::fill(first, first + (rows - 1) * pitch + at.length, T(0));
            continue;
        }
        // Down the rows: these are a few columns, and a call for each row would cost more than its zeros.
        for (int64_t j = 0; j < at.begin; ++j)
            for (int64_t r = 0; r < rows; ++r) first[r * pitch + j] = T(0);
        for (int64_t j = at.end; j < at.length; ++j)
            for (int64_t r = 0; r < rows; ++r) first[r * pitch + j] = T(0);
    }
    if (count == 0) return;
    to += at.begin;
    if (channel == 1 && p.channels > 1 && step != 1) {
        const T* starts[kLanesAtOnce];
        int64_t zero[kLanesAtOnce] = {}, all[kLanesAtOnce];
        for (int64_t j = 0; j < kLanesAtOnce; ++j) all[j] = p.channels;
        for (int64_t r = 0; r < rows; ++r, to += pitch, from += row_step)
            for (int64_t first = 0; first < count; first += kLanesAtOnce) {
                const int64_t now = std::min(kLanesAtOnce, count - first);
                for (int64_t j = 0; j < now; ++j) starts[j] = from + (first + j) * step;
                pack.walked(to + first, copy.channel_pitch, p.channels, starts, zero, all, now, 1);
            }
    } else if (rows > 1) {  // a channel at a time: its rows are neighbours in memory
        for (int64_t c = 0; c < p.channels; ++c)
            pack.spaced(to + c * copy.channel_pitch, pitch, rows, from + c * channel, row_step, step, count);
    } else {
        pack.spaced(to, copy.channel_pitch, p.channels, from, channel, step, count);
    }
}

}  // namespace

template <class T>
void fill_block_copy(const Problem& p, const BlockLines& lines, const BlockCopy& copy, const T* image, int64_t room, T* to) {
    const PackKernels<T>& pack = tile_kernels<T>(current_isa()).pack;
    const int lane = p.dims - 1;
    int64_t rows = 1, phase_at[kMaxDims] = {};
    for (int i = 0; i < lane; ++i) rows *= copy.length[i];
    auto phase = [&](int i) { return lines.phases[i][static_cast<size_t>(phase_at[i])]; };
    if (p.dims == 0) fill_rows(p, pack, copy, image, {0, 1, 1}, 1, 0, 0, 0, to);
    for (int64_t q = 0; p.dims > 0 && q < lines.images; ++q) {
        const Axis& a = p.axes[lane];
        const int64_t base = copy.input(a, lane, phase(lane), 0), length = copy.length[lane];
        Stretch stretch{std::min(length, std::max<int64_t>(0, ceil_div(-base, a.stride))), 0, length};
        stretch.end = std::max(stretch.begin, std::min(length, ceil_div(a.size - base, a.stride)));
        const int64_t step = a.stride * p.lhs.spatial[lane];
        const int64_t run = p.dims > 1 ? copy.length[lane - 1] : 1;  // rows that follow each other
        for (int64_t first = 0; first < rows; first += run) {
            int64_t rest = first / run, from = (base + stretch.begin * a.stride) * p.lhs.spatial[lane];
            T* place = to + q * copy.image_pitch;
            bool inside = true;
            for (int i = lane - 2; i >= 0; --i) {
                const int64_t at = rest % copy.length[i];
                rest /= copy.length[i];
                const int64_t input = copy.input(p.axes[i], i, phase(i), at);
                inside = inside && input >= 0 && input < p.axes[i].size;
                from += input * p.lhs.spatial[i];
                place += at * copy.pitch[i];
            }
            int64_t begin = 0, end = 1, pitch = 0, row_step = 0;  // rows with data
            if (p.dims > 1) {
                const Axis& row = p.axes[lane - 1];
                const int64_t input = copy.input(row, lane - 1, phase(lane - 1), 0);
                begin = std::min(run, std::max<int64_t>(0, ceil_div(-input, row.stride)));
                end = std::max(begin, std::min(run, ceil_div(row.size - input, row.stride)));
                pitch = copy.pitch[lane - 1];
                row_step = row.stride * p.lhs.spatial[lane - 1];
                from += (input + begin * row.stride) * p.lhs.spatial[lane - 1];
            }
            if (!inside) begin = end = run;
            const Stretch none{length, length, length};
            fill_rows(p, pack, copy, image, none, begin, pitch, 0, 0, place);
            fill_rows(p, pack, copy, image + (begin < end && stretch.begin < stretch.end ? from : 0), stretch, end - begin, pitch, row_step,
                      step, place + begin * pitch);
            fill_rows(p, pack, copy, image, none, run - end, pitch, 0, 0, place + end * pitch);
        }
        for (int i = lane; i >= 0 && ++phase_at[i] == static_cast<int64_t>(lines.phases[i].size()); --i) phase_at[i] = 0;
    }
    std::fill(to + p.channels * copy.channel_pitch, to + p.channels * copy.channel_pitch + room, T(0));
}
template void fill_block_copy<float>(const Problem&, const BlockLines&, const BlockCopy&, const float*, int64_t, float*);
template void fill_block_copy<double>(const Problem&, const BlockLines&, const BlockCopy&, const double*, int64_t, double*);

}  // namespace fastconv
