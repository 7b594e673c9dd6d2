#include "kernels/registry.h"

#include <algorithm>
#include <vector>

#include "base/isa.h"
#include "kernels/block.h"
#include "kernels/grouped.h"
#include "kernels/lanes.h"
#include "kernels/outer.h"
#include "kernels/planes.h"
#include "kernels/point.h"
#include "kernels/stencil.h"
#include "kernels/tile.h"
#include "kernels/winograd.h"

namespace fastconv {
namespace {

struct Row {
    Isa isa;
    const char *element, *family;
    int rows, columns, taps;
};

constexpr Row kRows[] = {
#define FASTCONV_TILE(isa, element, rows, vectors) {Isa::isa, #element, "tile", rows, vectors, 0},
#define FASTCONV_STENCIL(isa, element, rows, vectors, taps) {Isa::isa, #element, "stencil", rows, vectors, taps},
#define FASTCONV_DOT(isa, element, left, right) {Isa::isa, #element, "dot", left, right, 0},
#define FASTCONV_POINT(isa, element, rows, vectors) {Isa::isa, #element, "point", rows, vectors, 0},
#define FASTCONV_PRODUCT(isa, element, rows, vectors) {Isa::isa, #element, "product", rows, vectors, 0},
#define FASTCONV_OUTER(isa, element, rows, vectors) {Isa::isa, #element, "outer", rows, vectors, 0},
#define FASTCONV_BLOCK(isa, element, rows, vectors) {Isa::isa, #element, "block", rows, vectors, 0},
#define FASTCONV_LANE(isa, element, rows, columns, taps) {Isa::isa, #element, "lane", rows, columns, taps},
#define FASTCONV_PLANE(isa, element, rows, vectors, taps, step) {Isa::isa, #element, step == 1 ? "plane" : "plane2", rows, vectors, taps},
#define FASTCONV_SPREAD(isa, element, rows) {Isa::isa, #element, "spread", rows, 1, 0}, {Isa::isa, #element, "same", rows, 1, 0},
#define FASTCONV_SPREAD_SUM(isa, element, rows, taps) {Isa::isa, #element, "spread_sum", rows, taps, 0},
#define FASTCONV_PIXELS(isa, element, rows, vectors) {Isa::isa, #element, "pixels", rows, vectors, 0},
#include "kernels/kernels.inc"
};

std::vector<Row> available() {
    std::vector<Row> rows;
    for (const Row& row : kRows)
        if (isa_available(row.isa)) rows.push_back(row);
    return rows;
}

// Sizes: outer taps, inner taps, lanes, accumulate; a[outer][row][columns + inner][lane], b[outer][inner][lane].
template <class T>
bool run_lane(const Row& row, int64_t runs, const int64_t* sizes, const T* a, const T* b, T* c) {
    const int64_t outer = sizes[0], inner = sizes[1], lanes = sizes[2], row_lhs = (row.columns + inner) * lanes;
    std::vector<int64_t> lhs, rhs;
    for (int64_t o = 0; o < outer; ++o) {
        lhs.push_back(o * row.rows * row_lhs);
        rhs.push_back(o * inner * lanes);
    }
    const LaneKernels<T>& kernels = lane_kernels<T>(row.isa);
    for (int i = 0; i < kernels.count; ++i) {
        const LaneKernel<T>& kernel = kernels.own.of[0][i];
        if (kernel.rows != row.rows || kernel.columns != row.columns || kernel.taps != row.taps) continue;
        const LaneArguments<T> arguments{lanes, outer, inner, lhs.data(), rhs.data(),   lanes, lanes, row_lhs, lanes, row.columns * lanes,
                                         lanes, a,     b,     c,          sizes[3] != 0};
        for (int64_t turn = 0; turn < runs; ++turn) kernel.run(arguments);
        return true;
    }
    return false;
}

// Sizes: groups, shifts, accumulate; a[group][shift][tap], b[group][row][x].
template <class T>
bool run_plane(const Row& row, int step, int64_t runs, const int64_t* sizes, const T* a, const T* b, T* c) {
    const PlaneKernels<T>& kernels = plane_kernels<T>(row.isa);
    const int64_t count = row.rows + row.taps - 1, width = int64_t{row.columns} * kernels.lanes, pitch = step * width + sizes[1];
    std::vector<const T*> places;
    for (int64_t i = 0; i < sizes[0] * count; ++i) places.push_back(b + i * pitch);
    std::vector<int64_t> shift;
    for (int64_t q = 0; q < sizes[1]; ++q) shift.push_back(q);
    for (int i = 0; i < kernels.count; ++i) {
        const PlaneKernel<T>& k = kernels.planes[i];
        if (k.rows != row.rows || k.vectors != row.columns || k.taps != row.taps || k.step != step) continue;
        const PlaneArguments<T> arguments{sizes[0], sizes[1], places.data(), shift.data(), a, nullptr, c,
                                          width,    row.rows, width,         sizes[2] != 0};
        for (int64_t turn = 0; turn < runs; ++turn) k.run(arguments);
        return true;
    }
    return false;
}

// Vectors (or elements, for pixels) that follow each other are a kernel's offsets.
template <class T>
const char* run_grouped(const Row& row, int64_t runs, const int64_t* sizes, const T* a, const T* b, T* c) {
    const GroupedKernels<T>& kernels = grouped_kernels<T>(row.isa);
    const std::string family = row.family;
    const int64_t lanes = kernels.lanes, count = std::max<int64_t>(sizes[0], row.rows);
    std::vector<int64_t> offset;
    for (int64_t k = 0; k < count; ++k) offset.push_back(family == "pixels" || family == "same" ? k : k * lanes);
    if (family == "spread" || family == "same") {
        for (int i = 0; i < kernels.lane_count; ++i) {
            const LanesKernel<T>& kernel = kernels.lane_rows[i];
            if (kernel.rows != row.rows) continue;
            const bool same = family == "same";
            const LanesArguments<T> arguments{sizes[0], offset.data(), a,        b, sizes[1] * (same ? 1 : lanes), c,
                                              lanes,    sizes[2] != 0, {b, 0, 0}};
            for (int64_t turn = 0; turn < runs; ++turn) (same ? kernel.run_same : kernel.run)(arguments);
            return nullptr;
        }
    }
    if (family == "spread_sum") {
        for (int i = 0; i < kernels.lane_sum_count; ++i) {
            const LaneSumKernel<T>& kernel = kernels.lane_sums[i];
            if (kernel.rows != row.rows || kernel.taps != row.columns) continue;
            for (int64_t turn = 0; turn < runs; ++turn) kernel.run(sizes[0], a, lanes, offset.data(), b, sizes[1] * lanes, c, {b, 0, 0});
            return nullptr;
        }
    }
    if (family == "pixels") {
        for (int i = 0; i < kernels.pixel_count; ++i) {
            const PixelsKernel<T>& kernel = kernels.pixels[i];
            if (kernel.rows != row.rows || kernel.vectors != row.columns) continue;
            for (int64_t turn = 0; turn < runs; ++turn) kernel.run(sizes[0], offset.data(), a, b, c, kernel.vectors * lanes);
            return nullptr;
        }
    }
    return "kernel: listed, but not built";
}

template <class T>
const char* run_as(const Row& row, int64_t runs, const int64_t* sizes, const T* a, const T* b, T* c) {
    const std::string family = row.family;
    if (family == "tile") {
        const TileKernels<T>& kernels = tile_kernels<T>(row.isa);
        for (int i = 0; i < kernels.count; ++i) {
            const TileKernel<T>& kernel = kernels.rows[i];
            if (kernel.rows != row.rows || kernel.vectors != row.columns) continue;
            const TileFunction<T> run = sizes[2] != 0 ? kernel.run_by_rows : kernel.run;
            if (run == nullptr) return "kernel: has no form that reads by rows";
            for (int64_t turn = 0; turn < runs; ++turn) run(sizes[0], a, b, c, sizes[1] != 0);
            return nullptr;
        }
    }
    if (family == "block") {
        const BlockKernels<T>& kernels = block_kernels<T>(row.isa);
        const int64_t width = int64_t{row.columns} * kernels.lanes;
        std::vector<const T*> left, right;
        std::vector<T*> out;
        for (int64_t s = 0; s < sizes[0]; ++s) {
            for (int m = 0; m < row.rows; ++m) left.push_back(a + (s * row.rows + m) * sizes[1]);
            right.push_back(b + s * sizes[1] * width);
        }
        for (int m = 0; m < row.rows; ++m) out.push_back(c + m * width);
        for (int i = 0; i < kernels.count; ++i) {
            const BlockKernel<T>& kernel = kernels.blocks[i];
            if (kernel.rows != row.rows || kernel.vectors != row.columns) continue;
            const BlockArguments<T> arguments{sizes[0], sizes[1],   left.data(), right.data(), 0, 1, 0,
                                              width,    out.data(), sizes[2],    sizes[3] != 0};
            for (int64_t turn = 0; turn < runs; ++turn) kernel.run(arguments);
            return nullptr;
        }
    }
    if (family == "product") {
        const WinogradKernels<T>& winograd = winograd_kernels<T>(row.isa);
        for (int i = 0; i < winograd.count; ++i) {
            if (winograd.products[i].rows != row.rows || winograd.products[i].vectors != row.columns) continue;
            for (int64_t turn = 0; turn < runs; ++turn) winograd.products[i].run(sizes[0], a, sizes[1], b, c, sizes[2] != 0);
            return nullptr;
        }
    }
    if (family == "point") {
        const PointKernels<T>& kernels = point_kernels<T>(row.isa);
        std::vector<int32_t> offset;
        for (int64_t k = 0; k < sizes[0]; ++k) offset.push_back(static_cast<int32_t>(k));
        std::vector<const T*> rows;
        std::vector<T*> sums;
        for (int m = 0; m < row.rows; ++m) {
            rows.push_back(a + m * sizes[0]);
            sums.push_back(c + m * row.columns * kernels.lanes);
        }
        for (int i = 0; i < kernels.count; ++i) {
            const PointKernel<T>& kernel = kernels.rows[i];
            if (kernel.rows != row.rows || kernel.vectors != row.columns) continue;
            const PointArguments<T> arguments{sizes[0], offset.data(), rows.data(), b, sums.data(), 0, sizes[1] != 0};
            for (int64_t turn = 0; turn < runs; ++turn) kernel.run(arguments);
            return nullptr;
        }
    }
    const StencilKernels<T>& kernels = stencil_kernels<T>(row.isa);
    if (family == "stencil") {
        const std::vector<int64_t> shift = [&] {
            std::vector<int64_t> values;
            for (int64_t q = 0; q < sizes[0]; ++q) values.push_back(q);
            return values;
        }();
        const int64_t offset = 0;
        for (int i = 0; i < kernels.stencil_count; ++i) {
            const StencilKernel<T>& kernel = kernels.stencils[i];
            if (kernel.rows != row.rows || kernel.vectors != row.columns || kernel.taps != row.taps) continue;
            const StencilArguments<T> arguments{1, sizes[0], sizes[1], sizes[2], &offset, &a, shift.data(), b, c, sizes[3] != 0};
            for (int64_t turn = 0; turn < runs; ++turn) kernel.run(arguments);
            return nullptr;
        }
    }
    if (family == "dot") {
        std::vector<const T*> left, right;
        for (int i = 0; i < row.rows; ++i) left.push_back(a + i * sizes[0]);
        for (int j = 0; j < row.columns; ++j) right.push_back(b + j * sizes[0]);
        for (int i = 0; i < kernels.dot_count; ++i)
            if (kernels.dots[i].left == row.rows && kernels.dots[i].right == row.columns) {
                for (int64_t turn = 0; turn < runs; ++turn) kernels.dots[i].run(sizes[0], left.data(), right.data(), c);
                return nullptr;
            }
    }
    if (family == "outer") {  // sizes: rows, pixels, accumulate, taps; a[row / taps][y][x + row % taps], b[y][x][lane]
        const OuterKernels<T>& outer = outer_kernels<T>(row.isa);
        const int64_t taps = sizes[3], pitch = sizes[1] + taps - 1, plane = sizes[0] * pitch;
        std::vector<const T*> places;
        for (int i = 0; i < row.rows; ++i) places.push_back(a + i / taps * plane + i % taps);
        const int64_t width = int64_t{row.columns} * outer.lanes;
        for (int i = 0; i < outer.count; ++i)
            if (outer.tiles[i].rows == row.rows && outer.tiles[i].vectors == row.columns) {
                const OuterArguments<T> arguments{sizes[0], sizes[1], places.data(), pitch, 1, taps > 1 ? 1 : plane, b, sizes[1] * width,
                                                  width,    c,        sizes[2] != 0, false};
                for (int64_t turn = 0; turn < runs; ++turn) outer.tiles[i].run(arguments);
                return nullptr;
            }
    }
    if (family == "lane" && run_lane(row, runs, sizes, a, b, c)) return nullptr;
    if (family == "plane" && run_plane(row, 1, runs, sizes, a, b, c)) return nullptr;
    if (family == "plane2" && run_plane(row, 2, runs, sizes, a, b, c)) return nullptr;
    return run_grouped(row, runs, sizes, a, b, c);
}

}  // namespace

const char* run_kernel(int64_t index, int64_t runs, const int64_t* sizes, const void* a, const void* b, void* c) {
    const std::vector<Row> rows = available();
    if (index < 0 || index >= static_cast<int64_t>(rows.size())) return "kernel: no such row";
    const Row& row = rows[static_cast<size_t>(index)];
    if (std::string(row.element) == "float")
        return run_as(row, runs, sizes, static_cast<const float*>(a), static_cast<const float*>(b), static_cast<float*>(c));
    return run_as(row, runs, sizes, static_cast<const double*>(a), static_cast<const double*>(b), static_cast<double*>(c));
}

std::string kernel_table() {
    std::string text;
    for (const Row& row : available()) {
        const std::string shape =
            std::to_string(row.rows) + "x" + std::to_string(row.columns) + (row.taps > 0 ? "x" + std::to_string(row.taps) : "");
        text += std::string(isa_name(row.isa)) + " " + row.element + " " + row.family + " " + row.family + "_" + shape + " " +
                std::to_string(row.rows) + " " + std::to_string(row.columns) + "\n";
    }
    return text;
}

}  // namespace fastconv
