#include "kernels/registry.h"

#include "base/isa.h"

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
#include "kernels/kernels.inc"
};

}  // namespace

std::string kernel_table() {
    std::string text;
    for (const Row& row : kRows) {
        if (!isa_available(row.isa)) continue;
        const std::string shape = std::to_string(row.rows) + "x" + std::to_string(row.columns) + (row.taps > 0 ? "x" + std::to_string(row.taps) : "");
        text += std::string(isa_name(row.isa)) + " " + row.element + " " + row.family + " " + row.family + "_" + shape + " " + std::to_string(row.rows) +
                " " + std::to_string(row.columns) + "\n";
    }
    return text;
}

}  // namespace fastconv
