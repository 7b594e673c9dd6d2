// Body of the lane kernels (kernels/lanes.h) for one ISA; included by kernels/isa/lanes_<isa>.cc.

// The tile for the vector of lanes at `lane`; Whole: all of its lanes exist, else the first `count`. Taps > 1: neighbouring
// columns meet neighbouring taps (column_lhs is inner_lhs), and Taps of them share every vector of lhs that is loaded.
template <class T, class Lhs, class Rhs, class Out, int Rows, int Columns, int Taps, bool Whole>
static inline __attribute__((always_inline)) void lane_vector(const LaneArguments<T>& a, int64_t lane, int64_t count) {
    Vec<T> sum[Rows][Columns] = {};
    const int64_t outer = a.outer, inner = a.inner, inner_lhs = a.inner_lhs, inner_rhs = a.inner_rhs;
    const int64_t row_lhs = a.row_lhs, column_lhs = Taps > 1 ? a.inner_lhs : a.column_lhs;
    const auto get = [=](const auto* from) __attribute__((always_inline)) { return load_as<T>(from, Whole ? kLanes<T> : count); };
    for (int64_t o = 0; o < outer; ++o) {
        const Lhs* x = static_cast<const Lhs*>(a.lhs) + lane + a.lhs_offset[o];
        const Rhs* w = static_cast<const Rhs*>(a.rhs) + lane + a.rhs_offset[o];
        int64_t i = 0;
        for (; Taps > 1 && i + Taps <= inner; i += Taps, x += Taps * inner_lhs, w += Taps * inner_rhs) {
            Vec<T> scale[Taps];
#pragma GCC unroll 8
            for (int t = 0; t < Taps; ++t) scale[t] = get(w + t * inner_rhs);
            const Lhs* row = x;
#pragma GCC unroll 8
            for (int r = 0; r < Rows; ++r, row += row_lhs) {
#pragma GCC unroll 24
                for (int j = 0; j < Columns + Taps - 1; ++j) {
                    Vec<T> value = get(row + j * column_lhs);
                    keep_in_register(value);
#pragma GCC unroll 8
                    for (int t = 0; t < Taps; ++t)
                        if (j - t >= 0 && j - t < Columns) sum[r][j - t] = fma(scale[t], value, sum[r][j - t]);
                }
            }
        }
        for (; i < inner; ++i, x += inner_lhs, w += inner_rhs) {
            const Vec<T> scale = get(w);
            const Lhs* row = x;
#pragma GCC unroll 8
            for (int r = 0; r < Rows; ++r, row += row_lhs) {
#pragma GCC unroll 16
                for (int j = 0; j < Columns; ++j) sum[r][j] = fma(scale, get(row + j * column_lhs), sum[r][j]);
            }
        }
    }
    const int64_t row_out = a.row_out, column_out = a.column_out;
    const bool accumulate = AreSame<T, Out>::value && a.accumulate;
    Out* row = static_cast<Out*>(a.out) + lane;
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r, row += row_out) {
        Out* place = row;
        if (accumulate) {
#pragma GCC unroll 16
            for (int j = 0; j < Columns; ++j) sum[r][j] += get(row + j * column_out);
        }
#pragma GCC unroll 16
        for (int j = 0; j < Columns; ++j, place += column_out) store_as<T>(place, sum[r][j], Whole ? kLanes<T> : count);
    }
}

// Elements before the next cache line at `at`, or half line of half types, where a vector is a line: off its boundary every store
// would touch two.
template <class T, class M>
static inline int64_t before_line(const M* at) {
    return kVectorBytes < 64 ? 0 : static_cast<int64_t>(-(reinterpret_cast<uintptr_t>(at) / sizeof(M)) % kLanes<T>);
}

template <class T, class Lhs, class Rhs, class Out, int Rows, int Columns, int Taps>
static void lane_tile(const LaneArguments<T>& given) {
    constexpr int L = kLanes<T>;
    const LaneArguments<T> arguments = given;  // a copy that no store can change
    const bool alike = arguments.row_out % L == 0 && arguments.column_out % L == 0 && arguments.lanes > 2 * L;
    int64_t lane = alike ? before_line<T>(static_cast<const Out*>(arguments.out)) : 0;
    if (lane > 0) lane_vector<T, Lhs, Rhs, Out, Rows, Columns, Taps, false>(arguments, 0, lane);
    for (; lane + L <= arguments.lanes; lane += L) lane_vector<T, Lhs, Rhs, Out, Rows, Columns, Taps, true>(arguments, lane, L);
    if (lane < arguments.lanes) lane_vector<T, Lhs, Rhs, Out, Rows, Columns, Taps, false>(arguments, lane, arguments.lanes - lane);
}

// How many elements to take at x of `count`: up to the line that `head` elements lie before, then vectors.
template <class T>
static inline int64_t steps_from(int64_t x, int64_t head, int64_t count) {
    const int64_t whole = x == 0 && head > 0 ? head : kLanes<T>;
    return count - x < whole ? count - x : whole;
}

// A row that steps backwards in memory, taken from its other end: how far to move in memory and in the panel.
template <class T>
struct Turned {
    LaneRow<T> row;
    int64_t memory, panel;
    explicit Turned(const LaneRow<T>& given) : row(given), memory(0), panel(0) {
        if (row.step >= 0 || row.count == 0) return;
        memory = (row.count - 1) * row.step;
        panel = (row.count - 1) * row.panel_step;
        row.step = -row.step;
        row.panel_step = -row.panel_step;
    }
};

template <class T, class M>
static void gather_lanes(const LaneRow<T>& given, const void* memory_, T* panel) {
    const M* memory = static_cast<const M*>(memory_);
    constexpr int L = kLanes<T>;
    const Turned<T> turned(given);
    const LaneRow<T>& row = turned.row;
    memory += turned.memory;
    panel += turned.panel;
    if (row.lane_step == 1) {
        for (int64_t x = 0; x < row.count; ++x, memory += row.step, panel += row.panel_step) store(panel, load_as<T>(memory, row.lanes));
    } else if (row.step == 1) {
        const int64_t head = row.lane_step % L == 0 ? before_line<T>(memory) : 0;
        for (int64_t x = 0, count; x < row.count; x += count) {
            count = steps_from<T>(x, head, row.count);
            Vec<T> square[L];
#pragma GCC unroll 16
            for (int i = 0; i < L; ++i) {
                square[i] = i >= row.lanes ? Vec<T>{} : load_as<T>(memory + i * row.lane_step + x, count);
            }
            transpose<T>(square);
#pragma GCC unroll 16
            for (int i = 0; i < L; ++i)
                if (i < count) store(panel + (x + i) * row.panel_step, square[i]);
        }
    } else {
        for (int64_t x = 0; x < row.count; ++x) {
            T* to = panel + x * row.panel_step;
            store(to, Vec<T>{});
            for (int64_t i = 0; i < row.lanes; ++i) to[i] = static_cast<T>(widen(memory[i * row.lane_step + x * row.step]));
        }
    }
}

template <class T, class M>
static void scatter_lanes(const LaneRow<T>& given, const T* panel, void* memory_) {
    M* memory = static_cast<M*>(memory_);
    constexpr int L = kLanes<T>;
    const Turned<T> turned(given);
    const LaneRow<T>& row = turned.row;
    memory += turned.memory;
    panel += turned.panel;
    if (row.lane_step == 1) {
        for (int64_t x = 0; x < row.count; ++x, memory += row.step, panel += row.panel_step) store_as<T>(memory, load(panel), row.lanes);
    } else if (row.step == 1) {
        const int64_t head = row.lane_step % L == 0 ? before_line<T>(memory) : 0;
        for (int64_t x = 0, count; x < row.count; x += count) {
            count = steps_from<T>(x, head, row.count);
            Vec<T> square[L];
#pragma GCC unroll 16
            for (int i = 0; i < L; ++i) square[i] = i < count ? load(panel + (x + i) * row.panel_step) : Vec<T>{};
            transpose<T>(square);
#pragma GCC unroll 16
            for (int i = 0; i < L; ++i) {
                if (i < row.lanes) store_as<T>(memory + i * row.lane_step + x, square[i], count);
            }
        }
    } else {
        for (int64_t x = 0; x < row.count; ++x)
            for (int64_t i = 0; i < row.lanes; ++i) convert(panel[x * row.panel_step + i], memory[i * row.lane_step + x * row.step]);
    }
}
