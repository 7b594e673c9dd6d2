#include "drivers/panels.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "drivers/geometry.h"

namespace fastconv {
namespace {

// Runs of lanes shorter than this are not worth a copy of their own.
constexpr int64_t kShortRun = 8;

// Moves loop `at` to the innermost place.
void make_inner(Loops* loops, int at) {
    for (int i = at; i + 1 < loops->count; ++i) std::swap(loops->loop[i], loops->loop[i + 1]);
}

template <class T>
void zero_lanes(T* panel, int width, int64_t depth, int64_t first, int64_t count) {
    if (count <= 0) return;
    for (int64_t k = 0; k < depth; ++k) std::memset(panel + k * width + first, 0, static_cast<size_t>(count) * sizeof(T));
}

// Pieces of the depth range along the innermost loop: body(digits, length, offset of the piece in the panel).
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
        if (j == lanes->count || lanes->start[j] != lanes->start[j - 1] + 1 || !joins(j)) lanes->run_end[lanes->runs++] = j;
}

// The place of `axis` among the checked ones, or -1.
int check_of(const Traversal& traversal, int axis) {
    for (int i = 0; i < traversal.checked; ++i)
        if (traversal.checked_axes[i] == axis) return i;
    return -1;
}

}  // namespace

int64_t Loops::total() const {
    int64_t value = 1;
    for (int i = 0; i < count; ++i) value *= loop[i].extent;
    return value;
}

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

Traversal::Traversal(const Lattice& lattice) {
    rows.loop[rows.count++] = {-1, lattice.batch, lattice.lhs_n, 0, lattice.out_n};
    depth.loop[depth.count++] = {-1, lattice.channels, lattice.lhs_c, lattice.rhs_c, 0};
    checked = 0;
    for (int i = 0; i < lattice.dims; ++i) {
        const LatticeAxis& a = lattice.axes[i];
        rows.loop[rows.count++] = {i, a.positions, a.q_lhs, 0, a.q_out};
        depth.loop[depth.count++] = {i, a.taps, a.t_lhs, a.t_rhs, 0};
        const int64_t last = a.input + (a.positions - 1) * a.q_input + (a.taps - 1) * a.t_input;
        if (a.taps > 0 && (a.input < 0 || last >= a.size)) checked_axes[checked++] = i;
    }
    // Rows: the loop whose steps are neighbours in memory goes inside; when none is, the spatial order stands.
    for (int i = 0; i < rows.count; ++i)
        if (rows.loop[i].lhs == 1 && rows.loop[i].extent > 1) {
            make_inner(&rows, i);
            break;
        }
    const bool rows_touch = rows.inner().lhs == 1 && rows.inner().extent > 1;
    // Depth: prefer the loop that runs along lhs, unless the rows already do so over a longer stretch.
    int along = -1;
    for (int i = 0; i < depth.count; ++i)
        if (depth.loop[i].lhs == 1 && depth.loop[i].extent > 1) along = i;
    side_by_side = rows_touch && (along < 0 || rows.inner().extent >= 2 * kShortRun || rows.inner().extent >= depth.loop[along].extent);
    if (side_by_side) {
        // The checks of a tap serve all channels.
        if (depth.loop[0].extent > 1) make_inner(&depth, 0);
    } else if (along >= 0) {
        make_inner(&depth, along);
    } else {
        int longest = 0;
        for (int i = 1; i < depth.count; ++i)
            if (depth.loop[i].extent >= depth.loop[longest].extent) longest = i;
        make_inner(&depth, longest);
    }
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
    const int along = check_of(traversal, traversal.rows.inner().axis);
    find_runs(lanes, [&](int j) {
        for (int i = 0; i < traversal.checked; ++i)
            if (lanes->position[i][j] != lanes->position[i][j - 1] + (i == along ? 1 : 0)) return false;
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
    find_runs(lanes, [](int) { return true; });
}

template <class T>
void pack_lhs(const Lattice& lattice, const Traversal& traversal, const PackKernels<T>& pack, const T* data, const Lanes& lanes, int64_t first,
              int64_t depth, int width, T* panel) {
    const Loop& inner = traversal.depth.inner();
    const int inner_check = check_of(traversal, inner.axis);                   // the checked axis that the innermost depth loop walks
    const int lane_check = check_of(traversal, traversal.rows.inner().axis);  // the one along which lanes lie side by side
    zero_lanes(panel, width, depth, lanes.count, width - lanes.count);

    for_pieces(traversal.depth, first, depth, [&](const int64_t* digits, int64_t length, int64_t at) {
        int64_t offset = 0;
        int64_t shift[kMaxDims];  // what the piece's first tap adds to a lane's position
        for (int i = 0; i < traversal.checked; ++i) shift[i] = 0;
        for (int d = 0; d < traversal.depth.count; ++d) {
            const Loop& loop = traversal.depth.loop[d];
            offset += digits[d] * loop.lhs;
            const int check = check_of(traversal, loop.axis);
            if (check >= 0) shift[check] = digits[d] * lattice.axes[loop.axis].t_input;
        }
        auto inside = [&](int i, int lane, int64_t extra) {
            const int64_t index = lanes.position[i][lane] + shift[i] + extra;
            return index >= 0 && index < lattice.axes[traversal.checked_axes[i]].size;
        };
        T* place = panel + at * width;
        if (traversal.side_by_side) {
            // One copy per run of lanes; step by step where the innermost loop moves a checked axis.
            const int64_t steps = inner_check >= 0 ? length : 1, each = inner_check >= 0 ? 1 : length;
            for (int64_t step = 0; step < steps; ++step, place += width) {
                const T* source = data + offset + step * inner.lhs;
                for (int r = 0, lane = 0; r < lanes.runs; lane = lanes.run_end[r++]) {
                    const int stop = lanes.run_end[r];
                    int begin = lane, end = stop;
                    for (int i = 0; i < traversal.checked && begin < end; ++i) {
                        const int64_t extra = i == inner_check ? step * lattice.axes[traversal.checked_axes[i]].t_input : 0;
                        if (i == lane_check) {
                            const int64_t index = lanes.position[i][lane] + shift[i] + extra;
                            const int64_t size = lattice.axes[traversal.checked_axes[i]].size;
                            begin = static_cast<int>(std::min<int64_t>(stop, std::max<int64_t>(begin, lane - index)));
                            end = static_cast<int>(std::max<int64_t>(begin, std::min<int64_t>(end, lane + size - index)));
                        } else if (!inside(i, lane, extra)) {
                            end = begin;
                        }
                    }
                    zero_lanes(place, width, each, lane, begin - lane);
                    if (begin < end) pack.side_by_side(place + begin, width, each, source + lanes.start[begin], inner.lhs, end - begin);
                    zero_lanes(place, width, each, end, stop - end);
                }
            }
            return;
        }
        const T* from[kMaxLanes];
        int64_t begin[kMaxLanes], end[kMaxLanes];
        for (int j = 0; j < lanes.count; ++j) {
            from[j] = data + lanes.start[j] + offset;
            begin[j] = 0;
            end[j] = length;
            for (int i = 0; i < traversal.checked; ++i) {
                if (i == inner_check) {
                    const LatticeAxis& axis = lattice.axes[traversal.checked_axes[i]];
                    const int64_t index = lanes.position[i][j] + shift[i];
                    begin[j] = std::min(length, std::max(begin[j], ceil_div(-index, axis.t_input)));
                    end[j] = std::max(begin[j], std::min(end[j], ceil_div(axis.size - index, axis.t_input)));
                } else if (!inside(i, j, 0)) {
                    end[j] = begin[j] = 0;
                    break;
                }
            }
        }
        if (inner.lhs == 1)
            pack.transposed(place, width, length, from, begin, end, lanes.count);
        else
            pack.gathered(place, width, length, from, begin, end, lanes.count, inner.lhs);
    });
}

template <class T>
void pack_rhs(const Traversal& traversal, const PackKernels<T>& pack, const T* data, const Lanes& lanes, int64_t first, int64_t depth, int width,
              T* panel) {
    const Loop& inner = traversal.depth.inner();
    zero_lanes(panel, width, depth, lanes.count, width - lanes.count);
    for_pieces(traversal.depth, first, depth, [&](const int64_t* digits, int64_t length, int64_t at) {
        int64_t offset = 0;
        for (int d = 0; d < traversal.depth.count; ++d) offset += digits[d] * traversal.depth.loop[d].rhs;
        T* place = panel + at * width;
        int lane = 0;
        for (int r = 0; r < lanes.runs && lanes.run_end[r] - lane >= kShortRun; lane = lanes.run_end[r++])
            pack.side_by_side(place + lane, width, length, data + offset + lanes.start[lane], inner.rhs, lanes.run_end[r] - lane);
        if (lane == lanes.count) return;
        const T* from[kMaxLanes];
        int64_t begin[kMaxLanes], end[kMaxLanes];
        for (int j = lane; j < lanes.count; ++j) {
            from[j] = data + offset + lanes.start[j];
            begin[j] = 0;
            end[j] = length;
        }
        if (inner.rhs == 1)
            pack.transposed(place + lane, width, length, from + lane, begin + lane, end + lane, lanes.count - lane);
        else
            pack.gathered(place + lane, width, length, from + lane, begin + lane, end + lane, lanes.count - lane, inner.rhs);
    });
}

#define FASTCONV_PANELS(T)                                                                                                              \
    template void pack_lhs<T>(const Lattice&, const Traversal&, const PackKernels<T>&, const T*, const Lanes&, int64_t, int64_t, int, T*); \
    template void pack_rhs<T>(const Traversal&, const PackKernels<T>&, const T*, const Lanes&, int64_t, int64_t, int, T*);
FASTCONV_PANELS(float)
FASTCONV_PANELS(double)
#undef FASTCONV_PANELS

}  // namespace fastconv
