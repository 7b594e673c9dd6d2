#include "drivers/copies.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <limits>

#include "drivers/geometry.h"

namespace fastconv {
namespace {

constexpr int64_t kPiece = 1 << 14;  // elements that one chunk copies, about
constexpr double kOverlap = 16;      // times its span that a copy may be long: its planes, and windows that share elements

int64_t& stride_of(Operand& operand, int i) { return i < 3 ? operand.outer[i] : operand.spatial[i - 3]; }
int64_t stride_of(const Operand& operand, int i) { return i < 3 ? operand.outer[i] : operand.spatial[i - 3]; }

// Loops over the elements of a copy from outer to inner, along memory.
struct Walk {
    explicit Walk(const Copy& copy) : source(copy.source.offset), packed(copy.packed.offset) {
        int order[kCoordinates];
        int kept = 0;
        for (int i = 0; i < copy.extents.count; ++i)
            if (copy.extents.of[i] > 1 && stride_of(copy.packed, i) != 0) order[kept++] = i;
        std::sort(order, order + kept,
                  [&](int a, int b) { return std::abs(stride_of(copy.packed, a)) > std::abs(stride_of(copy.packed, b)); });
        for (int j = 0; j < kept; ++j) {
            int64_t extent = copy.extents.of[order[j]], from = stride_of(copy.source, order[j]), to = stride_of(copy.packed, order[j]);
            if (to < 0) {  // walked from its other end
                source += (extent - 1) * from;
                packed += (extent - 1) * to;
                from = -from, to = -to;
            }
            if (count > 0 && sources[count - 1] == extent * from && packeds[count - 1] == extent * to) {
                extents[count - 1] *= extent;
                sources[count - 1] = from;
                packeds[count - 1] = to;
            } else {
                extents[count] = extent, sources[count] = from, packeds[count] = to;
                ++count;
            }
        }
        if (count == 0 || packeds[count - 1] != 1) {  // no two elements lie side by side
            extents[count] = sources[count] = packeds[count] = 1;
            ++count;
        }
        run = extents[count - 1];
        for (int j = 0; j + 1 < count; ++j) runs *= extents[j];
    }

    // Runs of elements that lie side by side in the copy: body(source index, index in the copy, elements).
    template <class Body>
    void each(Executor& executor, Body&& body) const {
        const int64_t pieces = ceil_div(run, 2 * kPiece), piece = ceil_div(run, pieces);
        const int64_t together = std::max<int64_t>(1, kPiece / run);  // runs of one chunk
        for_chunks(executor, pieces > 1 ? runs * pieces : ceil_div(runs, together), [&](int64_t chunk) {
            int64_t at = pieces > 1 ? chunk / pieces : chunk * together, first = pieces > 1 ? chunk % pieces * piece : 0;
            const int64_t end = pieces > 1 ? at + 1 : std::min(runs, at + together),
                          length = pieces > 1 ? std::min(piece, run - first) : run;
            int64_t digits[kCoordinates], from = source + first * sources[count - 1], to = packed + first;
            int64_t rest = at;
            for (int j = count - 2; j >= 0; --j) {
                digits[j] = rest % extents[j];
                rest /= extents[j];
                from += digits[j] * sources[j];
                to += digits[j] * packeds[j];
            }
            for (;;) {
                body(from, to, length);
                if (++at == end) return;
                for (int j = count - 2; j >= 0; --j) {
                    from += sources[j];
                    to += packeds[j];
                    if (++digits[j] < extents[j]) break;
                    from -= extents[j] * sources[j];
                    to -= extents[j] * packeds[j];
                    digits[j] = 0;
                }
            }
        });
    }

    int64_t step() const { return sources[count - 1]; }

    int count = 0;
    int64_t source, packed, run = 1, runs = 1;
    int64_t extents[kCoordinates + 1], sources[kCoordinates + 1], packeds[kCoordinates + 1];
};

Extents extents_of(int64_t a, int64_t b, int64_t c, const Problem& p, int64_t Axis::* extent) {
    Extents e{3 + p.dims, {a, b, c}};
    for (int i = 0; i < p.dims; ++i) e.of[3 + i] = p.axes[i].*extent;
    return e;
}

}  // namespace

Extents lhs_extents(const Problem& p) { return extents_of(p.groups, p.batch, p.channels, p, &Axis::size); }
Extents rhs_extents(const Problem& p) { return extents_of(p.groups, p.features, p.channels, p, &Axis::kernel); }
Extents out_extents(const Problem& p) { return extents_of(p.groups, p.batch, p.features, p, &Axis::out); }

Copy make_copy(const Operand& source, const Extents& extents, const int64_t* times) {
    Copy copy{};
    copy.source = source;
    copy.packed = source;
    copy.packed.offset = 0;
    copy.extents = extents;
    copy.plane[0] = {Part::whole, 0};
    copy.planes = 1;
    int order[kCoordinates];
    for (int i = 0; i < extents.count; ++i) order[i] = i;
    // By rising stride; planes of a single element lie outermost, and where strides say nothing, later coordinates are inner.
    auto key = [&](int i) { return extents.of[i] == 1 ? std::numeric_limits<int64_t>::max() : std::abs(stride_of(source, i)); };
    std::sort(order, order + extents.count, [&](int a, int b) { return key(a) != key(b) ? key(a) < key(b) : a > b; });
    double span = 1;
    int64_t step = 1;
    for (int j = 0; j < extents.count; ++j) {
        const int i = order[j];
        const int64_t extent = extents.of[i], stride = stride_of(source, i);
        int64_t& packed = stride_of(copy.packed, i);
        if (extent == 0) {
            copy.elements = 0;
            return copy;
        }
        span += static_cast<double>(extent - 1) * static_cast<double>(std::abs(stride));
        packed = 0;
        if (stride == 0 && extent > 1 && times[i] == 1) continue;
        const int64_t length = extent * times[i];
        packed = stride < 0 ? -step : step;
        if (stride < 0) copy.packed.offset += (length - 1) * step;
        if (__builtin_mul_overflow(step, length, &step)) step = -1;
        if (step < 0 || static_cast<double>(step) > kOverlap * (span + 4096)) {
            copy.elements = -1;
            return copy;
        }
    }
    copy.elements = step;
    return copy;
}

template <class T>
void copy_in(const Copy& copy, Dtype dtype, const void* from, T* to, Executor& executor) {
    const Walk walk(copy);
    const int64_t size = dtype_size(dtype);
    WidenKernel<T> kernels[kMaxPlanes];
    for (int i = 0; i < copy.planes; ++i) kernels[i] = widen_kernel<T>(current_isa(), dtype, copy.plane[i].part);
    walk.each(executor, [&](int64_t source, int64_t packed, int64_t count) {
        for (int i = 0; i < copy.planes; ++i)
            kernels[i](count, to + copy.plane[i].base + packed, static_cast<const char*>(from) + source * size, walk.step());
    });
}

template <class T>
bool copy_out(const Copy& copy, Dtype dtype, const T* from, void* to, Executor& executor) {
    const Walk walk(copy);
    const int64_t size = dtype_size(dtype);
    if (copy.planes == 1) {
        const NarrowKernel<T> narrow = narrow_kernel<T>(current_isa(), dtype);
        walk.each(executor, [&](int64_t place, int64_t packed, int64_t count) {
            narrow(count, static_cast<char*>(to) + place * size, walk.step(), from + packed);
        });
        return true;
    }
    const JoinKernel<T> join = join_kernel<T>(current_isa(), dtype);
    std::atomic<bool> finite{true};
    walk.each(executor, [&](int64_t place, int64_t packed, int64_t count) {
        const T* third = copy.planes == 3 ? from + copy.plane[2].base + packed : nullptr;
        if (!join(count, static_cast<char*>(to) + place * size, walk.step(), from + packed, from + copy.plane[1].base + packed, third))
            finite.store(false, std::memory_order_relaxed);
    });
    return finite.load();
}

#define FASTCONV_COPIES(T) \
    template void copy_in<T>(const Copy&, Dtype, const void*, T*, Executor&); \
    template bool copy_out<T>(const Copy&, Dtype, const T*, void*, Executor&);
FASTCONV_COPIES(float)
FASTCONV_COPIES(double)
#undef FASTCONV_COPIES

}  // namespace fastconv
