#include "drivers/bare.h"

#include <algorithm>
#include <cstdlib>

#include "drivers/geometry.h"

namespace fastconv {
namespace {

constexpr int64_t kChunk = 1 << 14;  // elements that one chunk writes, about

// A loop over one coordinate of the output: its step there, and through the values.
struct Loop {
    int64_t extent, out, value;
};

struct Sixteen {
    uint64_t low, high;
};

template <class Element>
void fill(const Loop* loops, int count, Element* out, const Element* values, Executor& executor) {
    const Loop inner = loops[count - 1];
    int64_t runs = 1;
    for (int i = 0; i + 1 < count; ++i) runs *= loops[i].extent;
    const int64_t together = std::max<int64_t>(1, kChunk / inner.extent);
    for_chunks(executor, ceil_div(runs, together), [&](int64_t chunk) {
        for (int64_t run = chunk * together, end = std::min(runs, run + together); run < end; ++run) {
            Element* to = out;
            const Element* from = values;
            for (int64_t i = count - 2, rest = run; i >= 0; --i) {
                to += rest % loops[i].extent * loops[i].out;
                from += rest % loops[i].extent * loops[i].value;
                rest /= loops[i].extent;
            }
            if (inner.value == 0 && inner.out == 1)
                std::fill_n(to, inner.extent, *from);
            else if (inner.value == 1 && inner.out == 1)
                std::copy_n(from, inner.extent, to);
            else
                for (int64_t j = 0; j < inner.extent; ++j) to[j * inner.out] = from[j * inner.value];
        }
    });
}

}  // namespace

bool is_bare(const Problem& p) {
    bool bare = p.channels == 0;
    for (int i = 0; i < p.dims; ++i) bare = bare || p.axes[i].kernel == 0 || p.axes[i].size == 0;
    return bare;
}

void fill_bare(const Problem& p, void* out, const char* values, int64_t element, Executor& executor) {
    Loop loops[3 + kMaxDims] = {{p.groups, p.out.outer[0], p.features}, {p.batch, p.out.outer[1], 0}, {p.features, p.out.outer[2], 1}};
    for (int i = 0; i < p.dims; ++i) loops[3 + i] = {p.axes[i].out, p.out.spatial[i], 0};
    const int count = 3 + p.dims;
    for (int i = 0; i < count; ++i)
        if (loops[i].extent == 0) return;
    // Along memory: the shortest steps innermost, loops of one turn outermost.
    auto step = [](const Loop& loop) { return loop.extent == 1 ? INT64_MAX : std::abs(loop.out); };
    std::sort(loops, loops + count, [&](const Loop& a, const Loop& b) { return step(a) > step(b); });
    char* first = static_cast<char*>(out) + p.out.offset * element;
    auto as = [&](auto zero) {
        using Element = decltype(zero);
        fill(loops, count, reinterpret_cast<Element*>(first), reinterpret_cast<const Element*>(values), executor);
    };
    switch (element) {
        case 1: return as(uint8_t());
        case 2: return as(uint16_t());
        case 4: return as(uint32_t());
        case 8: return as(uint64_t());
        default: return as(Sixteen());
    }
}

}  // namespace fastconv
