#include "drivers/panels.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <utility>

#include "drivers/geometry.h"

namespace fastconv {
namespace {

// Runs of lanes shorter than this are not worth a copy of their own.
constexpr int64_t kShortRun = 8;

// A depth block holds whole channels where taps lie inside them: so there must not be too many.
constexpr int64_t kMaxTapsInChannel = 64;

// Moves loop `at` to the innermost place.
void make_inner(Loops* loops, int at) {
    for (int i = at; i + 1 < loops->count; ++i) std::swap(loops->loop[i], loops->loop[i + 1]);
}

template <class T>
void zero_lanes(T* panel, int64_t width, int64_t depth, int64_t first, int64_t count) {
    if (count <= 0) return;
    for (int64_t k = 0; k < depth; ++k) std::memset(panel + k * width + first, 0, static_cast<size_t>(count) * sizeof(T));
}

// Row-major panels: each lane's piece of depth is one copy. Rows lie `depth` apart.
template <class T>
void copy_rows(T* panel, int64_t depth, const T* const* from, const int64_t* begin, const int64_t* end, int64_t length, int count) {
    for (int j = 0; j < count; ++j, panel += depth) {
        std::memset(panel, 0, static_cast<size_t>(begin[j]) * sizeof(T));
        std::memcpy(panel + begin[j], from[j] + begin[j], static_cast<size_t>(end[j] - begin[j]) * sizeof(T));
        std::memset(panel + end[j], 0, static_cast<size_t>(length - end[j]) * sizeof(T));
    }
}

// Pieces of the depth range along the innermost loop: body(digits, length, first step of the piece in the panel).
template <class Body>
void for_pieces(const Loops& loops, int64_t first, int64_t depth, Body&& body) {
    if (depth == 0) return;
    int64_t digits[kMaxDims + 1];
    loops.split(first, digits);
    const int inner = loops.count - 1;
    for (int64_t done = 0; done < depth;) {
        const int64_t length = std::min(depth - done, loops.loop[inner].extent - digits[inner]);
        body(digits, length, done);
        done += length;
        digits[inner] += length - 1;
        if (done < depth) loops.advance(digits);
    }
}

void find_neighbours(Lanes* lanes) {
    for (int j = lanes->count - 1; j >= 0; --j)
        lanes->out_end[j] = j + 1 < lanes->count && lanes->out[j + 1] == lanes->out[j] + 1 ? lanes->out_end[j + 1] : j + 1;
}

// Closes a run before every lane for which joins(lane) is false.
template <class Joins>
void find_runs(Lanes* lanes, Joins&& joins) {
    lanes->runs = 0;
    for (int j = 1; j <= lanes->count; ++j)
        if (j == lanes->count || lanes->start[j] != lanes->start[j - 1] + lanes->spacing || !joins(j)) lanes->run_end[lanes->runs++] = j;
}

// Steps of `step` until `distance` is reached; a division only where it is needed.
int64_t steps_to(int64_t distance, int64_t step) { return step == 1 ? distance : ceil_div(distance, step); }

// The place of `axis` among the checked ones, or -1.
int check_of(const Traversal& traversal, int axis) {
    for (int i = 0; i < traversal.checked; ++i)
        if (traversal.checked_axes[i] == axis) return i;
    return -1;
}

// Whether the channels should be the innermost loop of the depth for spaced lanes: lhs then copies a tap for all channels at
// once, but rhs may be fetched element by element. Costs are cycles an element.
bool channels_inside(const Lattice& lattice, const Loops& depth) {
    constexpr double spaced_run = 0.15, spaced_steps = 0.45, transposed = 0.35, gathered = 2.0;
    const double rows = static_cast<double>(lattice.rows()), columns = static_cast<double>(lattice.columns.size());
    auto rhs_cost = [&](int64_t step) { return columns * (step == 1 ? transposed : gathered); };
    if (lattice.columns.size() > 1 && lattice.columns[1].rhs == lattice.columns[0].rhs + 1)
        return true;  // rhs is copied in runs either way
    return spaced_run * rows + rhs_cost(lattice.rhs_c) <= spaced_steps * rows + rhs_cost(depth.inner().rhs);
}

}  // namespace

void Loops::split(int64_t index, int64_t* digits) const {
    for (int i = count - 1; i >= 0; --i) {
        digits[i] = index % loop[i].extent;
        index /= loop[i].extent;
    }
}

void Loops::advance(int64_t* digits) const {
    for (int i = count - 1; i >= 0; --i) {
        if (++digits[i] < loop[i].extent) return;
        digits[i] = 0;
    }
}

Loops Loops::merged_rhs() const {
    Loops merged;
    for (int i = 0; i < count; ++i) {
        if (merged.count > 0 && merged.inner().rhs == loop[i].rhs * loop[i].extent) {
            Loop& last = merged.loop[merged.count - 1];
            last.extent *= loop[i].extent;
            last.rhs = loop[i].rhs;
        } else {
            merged.loop[merged.count++] = loop[i];
        }
    }
    return merged;
}

Traversal::Traversal(const Lattice& lattice) {
    rows.loop[rows.count++] = {-1, lattice.batch, lattice.lhs_n, 0, lattice.out_n, -1};
    depth.loop[depth.count++] = {-1, lattice.channels, lattice.lhs_c, lattice.rhs_c, 0, -1};
    checked = 0;
    channel_runs = false;
    taps = 1;
    for (int i = 0; i < lattice.dims; ++i) {
        taps *= lattice.axes[i].taps;
        const LatticeAxis& a = lattice.axes[i];
        rows.loop[rows.count++] = {i, a.positions, a.q_lhs, 0, a.q_out, -1};
        depth.loop[depth.count++] = {i, a.taps, a.t_lhs, a.t_rhs, 0, -1};
        const int64_t last = a.input + (a.positions - 1) * a.q_input + (a.taps - 1) * a.t_input;
        if (a.taps > 0 && (a.input < 0 || last >= a.size)) checked_axes[checked++] = i;
    }
    for (Loops* loops : {&rows, &depth})
        for (int i = 0; i < loops->count; ++i) loops->loop[i].check = check_of(*this, loops->loop[i].axis);
    // Rows: the loop whose steps are neighbours in memory goes inside; when none is, the spatial order stands.
    for (int i = 0; i < rows.count; ++i)
        if (rows.loop[i].lhs == 1 && rows.loop[i].extent > 1) {
            make_inner(&rows, i);
            break;
        }
    // Depth: prefer the loop that runs along lhs, unless the rows are evenly spaced over a longer stretch.
    int along = -1;
    for (int i = 0; i < depth.count; ++i)
        if (depth.loop[i].lhs == 1 && depth.loop[i].extent > 1) along = i;
    for (int i = 0; i < depth.count && along < 0; ++i)
        if (depth.loop[i].lhs == 2 && depth.loop[i].extent >= 2 * kShortRun) along = i;
    const int64_t row_run = rows.inner().lhs > 0 ? rows.inner().extent : 1;
    spaced = row_run >= 2 * kShortRun || (row_run > 1 && (along < 0 || row_run >= depth.loop[along].extent));
    if (spaced && along >= 0 && rows.inner().lhs > 2 && depth.loop[along].extent >= 2 * kShortRun) spaced = false;
    if (spaced) {
        bool runs_on = true;  // through rhs, from tap to tap and channel to channel
        int64_t next = 1;
        for (int i = depth.count - 1; i >= 0; --i) {
            runs_on = runs_on && (depth.loop[i].extent == 1 || depth.loop[i].rhs == next);
            next *= depth.loop[i].extent;
        }
        channel_runs = runs_on && lattice.channels > 1 && taps > 0 && taps <= kMaxTapsInChannel;
        if (lattice.channels > 1 && !channel_runs && channels_inside(lattice, depth)) make_inner(&depth, 0);
    } else if (along >= 0) {
        make_inner(&depth, along);
    } else {
        int longest = 0;
        for (int i = 1; i < depth.count; ++i)
            if (depth.loop[i].extent >= depth.loop[longest].extent) longest = i;
        make_inner(&depth, longest);
    }
    rhs_depth = depth.merged_rhs();
}

void row_lanes(const Lattice& lattice, const Traversal& traversal, int64_t first, int count, Lanes* lanes) {
    const Loop& inner = traversal.rows.inner();
    const int last = traversal.rows.count - 1;
    int64_t digits[kMaxDims + 1];
    traversal.rows.split(first, digits);
    lanes->count = count;
    for (int j = 0; j < count;) {  // stretches of the innermost loop
        int64_t start = lattice.lhs, out = 0;
        int64_t position[kMaxDims] = {};
        for (int i = 0; i < traversal.rows.count; ++i) {
            const Loop& loop = traversal.rows.loop[i];
            start += digits[i] * loop.lhs;
            out += digits[i] * loop.out;
            if (loop.axis >= 0) position[loop.axis] = digits[i] * lattice.axes[loop.axis].q_input + lattice.axes[loop.axis].input;
        }
        const int stop = static_cast<int>(std::min<int64_t>(count, j + inner.extent - digits[last]));
        for (int lane = j; lane < stop; ++lane) {
            lanes->start[lane] = start + (lane - j) * inner.lhs;
            lanes->out[lane] = out + (lane - j) * inner.out;
        }
        for (int i = 0; i < traversal.checked; ++i) {
            const int axis = traversal.checked_axes[i];
            const int64_t step = axis == inner.axis ? lattice.axes[axis].q_input : 0;
            for (int lane = j; lane < stop; ++lane) lanes->position[i][lane] = position[axis] + (lane - j) * step;
        }
        digits[last] += stop - j - 1;
        traversal.rows.advance(digits);
        j = stop;
    }
    find_neighbours(lanes);
    lanes->spacing = inner.lhs;
    const int along = inner.check;
    const int64_t step = along < 0 ? 0 : lattice.axes[inner.axis].q_input;
    find_runs(lanes, [&](int j) {
        for (int i = 0; i < traversal.checked; ++i)
            if (lanes->position[i][j] != lanes->position[i][j - 1] + (i == along ? step : 0)) return false;
        return true;
    });
}

void column_lanes(const Lattice& lattice, int64_t first, int count, Lanes* lanes) {
    lanes->count = count;
    for (int j = 0; j < count; ++j) {
        const Column& column = lattice.columns[static_cast<size_t>(first + j)];
        lanes->start[j] = column.rhs;
        lanes->out[j] = column.out;
        lanes->feature[j] = column.feature;
    }
    find_neighbours(lanes);
    lanes->spacing = count > 1 && lanes->start[1] == lanes->start[0] - 1 ? -1 : 1;  // phases go down through taps that are not reversed
    find_runs(lanes, [](int) { return true; });
}

namespace {

// One piece of pack_lhs: `length` steps of one depth loop, `pitch` elements apart in the panel.
struct Piece {
    const Loop* loop;       // the loop that the piece walks
    const int64_t* digits;  // of its first step
    int64_t length, pitch;
};

template <class T>
class LhsPacker {
public:
    LhsPacker(const Lattice& lattice, const Traversal& traversal, const PackKernels<T>& pack, const T* data, const Lanes& lanes)
        : lattice_(lattice), traversal_(traversal), pack_(pack), data_(data), lanes_(lanes), lane_check_(traversal.rows.inner().check) {}

    // Where the piece starts: its offset in lhs and what its first tap adds to a lane's position on each checked axis.
    void start(const Piece& piece) {
        offset_ = 0;
        for (int i = 0; i < traversal_.checked; ++i) shift_[i] = 0;
        for (int d = 0; d < traversal_.depth.count; ++d) {
            const Loop& loop = traversal_.depth.loop[d];
            offset_ += piece.digits[d] * loop.lhs;
            const int check = loop.check;
            if (check >= 0) shift_[check] = piece.digits[d] * lattice_.axes[loop.axis].t_input;
        }
        walked_ = piece.loop->check;
    }

    // One copy per run of lanes; step by step where the piece walks a checked axis.
    void spaced(const Piece& piece, T* place) {
        const int64_t steps = walked_ >= 0 ? piece.length : 1, each = walked_ >= 0 ? 1 : piece.length;
        for (int64_t step = 0; step < steps; ++step, place += piece.pitch) {
            const T* source = data_ + offset_ + step * piece.loop->lhs;
            for (int r = 0, lane = 0; r < lanes_.runs; lane = lanes_.run_end[r++]) {
                const int stop = lanes_.run_end[r];
                int begin = lane, end = stop;
                for (int i = 0; i < traversal_.checked && begin < end; ++i) {
                    const LatticeAxis& axis = lattice_.axes[traversal_.checked_axes[i]];
                    const int64_t index = lanes_.position[i][lane] + shift_[i] + (i == walked_ ? step * axis.t_input : 0);
                    if (i == lane_check_) {
                        begin = static_cast<int>(std::min<int64_t>(stop, std::max<int64_t>(begin, lane + ceil_div(-index, axis.q_input))));
                        end = static_cast<int>(
                            std::max<int64_t>(begin, std::min<int64_t>(end, lane + ceil_div(axis.size - index, axis.q_input))));
                    } else if (index < 0 || index >= axis.size) {
                        end = begin;
                    }
                }
                padded_ |= end - begin < stop - lane;
                zero_lanes(place, piece.pitch, each, lane, begin - lane);
                if (begin < end)
                    pack_.spaced(place + begin, piece.pitch, each, source + lanes_.start[begin], piece.loop->lhs, lanes_.spacing,
                                 end - begin);
                zero_lanes(place, piece.pitch, each, end, stop - end);
            }
        }
    }

    // Lane by lane along the piece; by_rows: each lane's depth lies in one row of the panel, `depth` long.
    void walked(const Piece& piece, T* panel, int64_t at, int64_t depth, bool by_rows) {
        const T* from[kMaxLanes];
        int64_t begin[kMaxLanes], end[kMaxLanes];
        for (int j = 0; j < lanes_.count; ++j) {
            from[j] = data_ + lanes_.start[j] + offset_;
            begin[j] = 0;
            end[j] = piece.length;
            for (int i = 0; i < traversal_.checked; ++i) {
                const LatticeAxis& axis = lattice_.axes[traversal_.checked_axes[i]];
                const int64_t index = lanes_.position[i][j] + shift_[i];
                if (i == walked_) {
                    begin[j] = std::min(piece.length, std::max(begin[j], steps_to(-index, axis.t_input)));
                    end[j] = std::max(begin[j], std::min(end[j], steps_to(axis.size - index, axis.t_input)));
                } else if (index < 0 || index >= axis.size) {
                    end[j] = begin[j] = 0;
                    break;
                }
            }
        }
        for (int j = 0; j < lanes_.count; ++j) padded_ |= end[j] - begin[j] < piece.length;
        if (by_rows)
            copy_rows(panel + at, depth, from, begin, end, piece.length, lanes_.count);
        else
            pack_.walked(panel + at * piece.pitch, piece.pitch, piece.length, from, begin, end, lanes_.count, piece.loop->lhs);
    }

    // Whether a tap fell on padding so far.
    bool padded() const { return padded_; }

private:
    const Lattice& lattice_;
    const Traversal& traversal_;
    const PackKernels<T>& pack_;
    const T* data_;
    const Lanes& lanes_;
    const int lane_check_;  // the checked axis along which lanes are spaced
    int walked_ = -1;       // the checked axis that the piece walks
    bool padded_ = false;
    int64_t offset_ = 0, shift_[kMaxDims];
};

}  // namespace

template <class T>
bool pack_lhs(const Lattice& lattice, const Traversal& traversal, const PackKernels<T>& pack, const T* data, const Lanes& lanes,
              int64_t first, int64_t depth, int width, bool by_rows, T* panel) {
    if (!by_rows) zero_lanes(panel, width, depth, lanes.count, width - lanes.count);
    LhsPacker<T> packer(lattice, traversal, pack, data, lanes);
    if (traversal.channel_runs) {
        int64_t digits[kMaxDims + 1];
        traversal.depth.split(first, digits);
        for (int64_t tap = 0; tap < traversal.taps && depth > 0; ++tap, traversal.depth.advance(digits)) {
            const Piece piece{&traversal.depth.loop[0], digits, depth / traversal.taps, width * traversal.taps};
            packer.start(piece);
            packer.spaced(piece, panel + tap * width);
        }
        return packer.padded();
    }
    for_pieces(traversal.depth, first, depth, [&](const int64_t* digits, int64_t length, int64_t at) {
        const Piece piece{&traversal.depth.inner(), digits, length, width};
        packer.start(piece);
        if (traversal.spaced)
            packer.spaced(piece, panel + at * width);
        else
            packer.walked(piece, panel, at, depth, by_rows);
    });
    return packer.padded();
}

template <class T>
void pack_rhs(const Loops& rhs_depth, const PackKernels<T>& pack, const T* data, const Lanes& lanes, int64_t first, int64_t depth,
              int width, T* panel) {
    const Loop& inner = rhs_depth.inner();
    zero_lanes(panel, width, depth, lanes.count, width - lanes.count);
    const int run = lanes.run_end[0];  // the columns of a transposed convolution: its phases lie side by side
    bool even = run > 1 && run <= kShortRun && lanes.count > run;
    for (int r = 0; r < lanes.runs; ++r) even = even && lanes.run_end[r] == (r + 1) * run;
    for_pieces(rhs_depth, first, depth, [&](const int64_t* digits, int64_t length, int64_t at) {
        int64_t offset = 0;
        for (int d = 0; d < rhs_depth.count; ++d) offset += digits[d] * rhs_depth.loop[d].rhs;
        T* place = panel + at * width;
        if (even) {
            pack.runs(place, width, length, data + offset, inner.rhs, lanes.start, run * lanes.spacing, lanes.count);
            return;
        }
        int lane = 0;
        const int shortest = inner.rhs == 1 || inner.rhs == 2 ? kShortRun : 2;  // lanes that are walked in far steps are fetched one by one
        for (int r = 0; r < lanes.runs && lanes.run_end[r] - lane >= shortest; lane = lanes.run_end[r++])
            pack.spaced(place + lane, width, length, data + offset + lanes.start[lane], inner.rhs, lanes.spacing, lanes.run_end[r] - lane);
        if (lane == lanes.count) return;
        const T* from[kMaxLanes];
        int64_t begin[kMaxLanes], end[kMaxLanes];
        for (int j = lane; j < lanes.count; ++j) {
            from[j] = data + offset + lanes.start[j];
            begin[j] = 0;
            end[j] = length;
        }
        pack.walked(place + lane, width, length, from + lane, begin + lane, end + lane, lanes.count - lane, inner.rhs);
    });
}

#define FASTCONV_PANELS(T) \
    template bool pack_lhs<T>(const Lattice&, const Traversal&, const PackKernels<T>&, const T*, const Lanes&, int64_t, int64_t, int, \
                              bool, T*); \
    template void pack_rhs<T>(const Loops&, const PackKernels<T>&, const T*, const Lanes&, int64_t, int64_t, int, T*);
FASTCONV_PANELS(float)
FASTCONV_PANELS(double)
#undef FASTCONV_PANELS

}  // namespace fastconv
