#include "drivers/converted.h"

#include <algorithm>
#include <atomic>

#include "base/scratch.h"
#include "drivers/bare.h"
#include "drivers/copies.h"
#include "drivers/drivers.h"
#include "drivers/geometry.h"

namespace fastconv {
namespace {

constexpr int64_t kSlabBytes = 512 << 10;       // of a slab's copies: they stay in the second cache between their three uses
constexpr int64_t kLargeSlabBytes = 256 << 10;  // where the kernel is an image, and its slabs start little
constexpr int64_t kSlabRhsBytes = 256 << 10;    // of a rhs that every slab's driver may lay out anew
constexpr double kProductsPerElement = 32;      // above it slabs would cost more than they save
constexpr double kSlabColumns = 256;            // features times phases that a slab's driver lists for less than a slab saves
constexpr int64_t kSlabLanes = 64;              // slabs of long axes are multiples of it
constexpr int64_t kSlabGroups = 16;             // slabs of groups are multiples of it: a driver's vectors may run over them
constexpr int64_t kSumSlabs = 8;                // slabs of a sum at least, of twice the bytes: neighbours convert their seams twice
constexpr double kMostSums = 1 << 20;           // elements of the sums of all slabs
constexpr double kGaussTerms = 8;               // shorter sums would feel the roundings of Gauss's additions

bool is_complex(Dtype dtype) { return dtype == Dtype::c64 || dtype == Dtype::c128; }
bool is_integer(Dtype dtype) { return dtype >= Dtype::i8; }

// Numbers of one output that are summed, at most.
double terms(const Problem& p) {
    double count = static_cast<double>(p.channels);
    for (int i = 0; i < p.dims; ++i) count *= static_cast<double>(p.axes[i].kernel);
    return count;
}

// The type in which a problem's sums are formed. false: no real type holds them.
bool choose_real(const Problem& p, Dtype* real) {
    if (is_integer(p.dtype) && is_integer(p.out_dtype)) {
        const int64_t bits = 8 * dtype_size(p.dtype) - (p.dtype >= Dtype::u8 ? 0 : 1);
        if (bits > 16) return false;
        double largest = terms(p) + 1;  // every sum is exact below the type's 2^24 or 2^53
        for (int64_t i = 0; i < 2 * bits; ++i) largest *= 2;
        *real = largest <= 0x1p24 ? Dtype::f32 : Dtype::f64;
        return largest <= 0x1p53;
    }
    if (is_complex(p.dtype) != is_complex(p.out_dtype) || is_integer(p.out_dtype)) return false;
    const bool wide = p.dtype == Dtype::f64 || p.dtype == Dtype::c128 || p.out_dtype == Dtype::f64 || p.out_dtype == Dtype::c128;
    *real = wide ? Dtype::f64 : Dtype::f32;
    return true;
}

// How the numbers of a problem become reals: as they are, or complex ones as planes.
//   blocks: channels (re, im) times features (re, im), a real problem of four times the products
//   gauss:  groups re * re, im * im, (re + im) * (re + im), of three times the products
enum class Form { whole, blocks, gauss };

// The part of a problem that one call of the driver runs: all of it; or some groups, images and outputs of one axis; or some
// channels and taps of one axis, whose sums are added in order.
struct Slabs {
    int axis = -1;      // spatial axis that is cut, or -1
    bool sums = false;  // blocks are of channels and taps
    int64_t groups, images, channels, length = 0, group_blocks = 1, image_blocks = 1, channel_blocks = 1, blocks = 1;
    int64_t count() const { return group_blocks * image_blocks * channel_blocks * blocks; }
    bool own_rhs() const { return group_blocks > 1 || sums; }  // no two slabs share theirs
};

template <class T>
class Conversion {
public:
    Conversion(const Problem& problem, const Buffers& buffers, Driver driver, Dtype real)
        : p_(problem), b_(buffers), driver_(driver), real_(real) {
        slabs_ = cut();
    }

    const char* run(Executor& executor) {
        if (!is_complex(p_.dtype)) return run_as(Form::whole, executor);
        if (terms(p_) >= kGaussTerms) {
            const char* why = run_as(Form::gauss, executor);
            if (why != nullptr || finite_.load()) return why;
        }
        return run_as(Form::blocks, executor);  // infinities and NaN stay where the definition has them
    }

private:
    const char* run_as(Form form, Executor& executor) {
        const Copy rhs = copy_of(form, p_.rhs, rhs_extents(p_), 1);
        const int64_t bias = p_.has_bias ? p_.groups * p_.features * (form == Form::gauss ? 3 : form == Form::blocks ? 2 : 1) : 0;
        const bool whole = slabs_.count() == 1;
        const Copy lhs = copy_of(form, p_.lhs, lhs_extents(p_), 0), out = copy_of(form, p_.out, out_extents(p_), 2);
        if (rhs.elements < 0 || lhs.elements < 0 || out.elements < 0)
            return "converted: windows of an operand overlap too much to be copied";
        const int64_t first = (slabs_.own_rhs() ? 0 : padded(rhs.elements)) + padded(bias);
        const Problem part = slab_of(0, 0);
        const int64_t sums = slabs_.sums ? padded(copy_of(form, part.out, out_extents(part), 2).elements) : 0;  // of a slab
        T* memory = take(ScratchSlot::converted, first + (whole ? padded(lhs.elements) + padded(out.elements) : slabs_.count() * sums));
        if (memory == nullptr) return "out of memory";
        T* bias_copy = memory + first - padded(bias);
        if (!rhs_in_place(form) && !slabs_.own_rhs()) copy_in(rhs, p_.dtype, b_.rhs.data, memory, executor);
        if (bias > 0) copy_bias(form, bias_copy);
        const Shared shared{form, rhs, memory, bias_copy, bias, nullptr};
        if (whole) return run_slab(p_, 0, lhs, out, shared, memory + first, executor);
        std::atomic<const char*> failure{nullptr};
        for_chunks(executor, slabs_.count(), [&](int64_t index) {
            const int64_t group = index / (slabs_.count() / slabs_.group_blocks) * slabs_.groups;
            const Problem slab = slab_of(index, group);
            InlineExecutor alone;
            const char* why = nullptr;
            if (is_bare(slab) && slabs_.sums) {
                std::fill(memory + first + index * sums, memory + first + (index + 1) * sums, T(0));
            } else if (is_bare(slab)) {
                why = run_general(slab, b_, alone);
            } else {
                const Copy from = copy_of(form, slab.lhs, lhs_extents(slab), 0), to = copy_of(form, slab.out, out_extents(slab), 2);
                Shared own = shared;
                if (slabs_.sums) own.sums = memory + first + index * sums;
                if (slabs_.own_rhs()) own.rhs = copy_of(form, slab.rhs, rhs_extents(slab), 1);
                const int64_t rhs_size = slabs_.own_rhs() ? padded(own.rhs.elements) : 0;
                T* local = take(ScratchSlot::slab, padded(from.elements) + padded(to.elements) + rhs_size);
                if (local == nullptr) {
                    why = "out of memory";
                } else {
                    if (slabs_.own_rhs()) {
                        own.rhs_data = local;
                        if (!rhs_in_place(form)) copy_in(own.rhs, p_.dtype, b_.rhs.data, local, alone);
                    }
                    why = run_slab(slab, group, from, to, own, local + rhs_size, alone);
                }
            }
            if (why != nullptr) failure.store(why);
        });
        if (const char* why = failure.load(); why != nullptr || !slabs_.sums) return why;
        const int64_t parts = slabs_.channel_blocks * slabs_.blocks;
        for_chunks(executor, slabs_.group_blocks, [&](int64_t block) {
            const Problem slab = slab_of(block * parts, block * slabs_.groups);
            const Copy to = copy_of(form, slab.out, out_extents(slab), 2);
            T* total = memory + first + block * parts * sums;
            for (int64_t part = 1; part < parts; ++part)
                for (int64_t i = 0; i < to.elements; ++i) total[i] += total[part * sums + i];
            InlineExecutor alone;
            copy_out(to, p_.out_dtype, total, b_.out.data, alone);
        });
        return nullptr;
    }

    // What the slabs share; the copy of rhs is a slab's own where slabs differ in their groups.
    struct Shared {
        Form form;
        Copy rhs;
        T* rhs_data;
        T* bias_data;
        int64_t bias;
        T* sums;  // where a slab of sums puts its own, else nullptr
    };

    static int64_t padded(int64_t elements) { return (elements + 31) / 16 * 16; }  // the next piece starts on a vector's boundary
    static T* take(ScratchSlot slot, int64_t elements) {
        return static_cast<T*>(scratch(slot, static_cast<size_t>(elements + 1) * sizeof(T)));
    }
    bool rhs_in_place(Form form) const { return form == Form::whole && p_.dtype == real_; }
    bool out_in_place(Form form) const { return form == Form::whole && p_.out_dtype == real_; }

    // The copy of operand 0 (lhs), 1 (rhs) or 2 (out); one without elements where the driver may use the operand as it lies.
    Copy copy_of(Form form, const Operand& operand, const Extents& extents, int which) const {
        int64_t times[kCoordinates];
        std::fill(times, times + kCoordinates, 1);
        if (form == Form::gauss) times[0] = 3;
        if (form == Form::blocks) times[2] = 2;
        if (form == Form::blocks && which == 1) times[1] = 2;
        Copy copy = make_copy(operand, extents, times);
        if (which == 2 ? out_in_place(form) : rhs_in_place(form)) {
            copy.packed = operand;
            copy.elements = 0;
        }
        if (form == Form::gauss) {
            const int64_t next = extents.of[0] * copy.packed.outer[0];
            copy.planes = 3;
            copy.plane[0] = {Part::real, 0};
            copy.plane[1] = {Part::imaginary, next};
            copy.plane[2] = {Part::sum, 2 * next};
        } else if (form == Form::blocks) {
            const int64_t next = extents.of[2] * copy.packed.outer[2];
            copy.planes = 2;
            copy.plane[0] = {Part::real, 0};
            copy.plane[1] = {Part::imaginary, next};
            if (which == 1) {  // the rows of features (re, im) are (re, -im) and (im, re)
                const int64_t row = extents.of[1] * copy.packed.outer[1];
                copy.planes = 4;
                copy.plane[1] = {Part::minus_imaginary, next};
                copy.plane[2] = {Part::imaginary, row};
                copy.plane[3] = {Part::real, row + next};
            }
        }
        return copy;
    }

    // A complex bias goes to the sums that the result is joined from; Gauss's first and third are enough.
    void copy_bias(Form form, T* to) const {
        const char* from = static_cast<const char*>(b_.bias.data);
        const int64_t size = dtype_size(p_.dtype), count = p_.groups * p_.features;
        auto take = [&](Part part, int64_t first, int64_t length, T* into) {
            widen_kernel<T>(current_isa(), p_.dtype, part)(length, into, from + first * p_.bias_stride * size, p_.bias_stride);
        };
        if (form == Form::whole) {
            take(Part::whole, 0, count, to);
        } else if (form == Form::gauss) {
            take(Part::real, 0, count, to);
            std::fill(to + count, to + 2 * count, T(0));
            take(Part::sum, 0, count, to + 2 * count);
        } else {
            for (int64_t g = 0; g < p_.groups; ++g) {
                take(Part::real, g * p_.features, p_.features, to + 2 * g * p_.features);
                take(Part::imaginary, g * p_.features, p_.features, to + (2 * g + 1) * p_.features);
            }
        }
    }

    // group: the first of the slab's.
    const char* run_slab(const Problem& slab, int64_t group, const Copy& lhs, const Copy& out, const Shared& shared, T* local,
                         Executor& executor) {
        const Form form = shared.form;
        Problem real = slab;
        Buffers buffers = b_;
        real.dtype = real.out_dtype = real_;
        if (form == Form::gauss) real.groups *= 3;
        if (form == Form::blocks) real.channels *= 2, real.features *= 2;
        if (!rhs_in_place(form)) {
            copy_in(lhs, p_.dtype, b_.lhs.data, local, executor);
            real.lhs = lhs.packed;
            buffers.lhs = {local, 0, lhs.elements};
            real.rhs = shared.rhs.packed;
            buffers.rhs = {shared.rhs_data, 0, shared.rhs.elements};
            real.bias_stride = 1;
            buffers.bias = {shared.bias_data + group * p_.features, 0, shared.bias - group * p_.features};
        } else if (p_.has_bias) {
            const int64_t before = group * p_.features * p_.bias_stride;
            buffers.bias = {static_cast<T*>(b_.bias.data) + before, b_.bias.lo - before, b_.bias.hi - before};
        }
        T* result = shared.sums != nullptr ? shared.sums : local + padded(lhs.elements);
        if (!out_in_place(form)) {
            real.out = out.packed;
            buffers.out = {result, 0, out.elements};
        }
        if (const char* why = driver_(real, buffers, executor)) return why;
        if (shared.sums == nullptr && !out_in_place(form) && !copy_out(out, p_.out_dtype, result, b_.out.data, executor))
            finite_.store(false);
        return nullptr;
    }

    // Where copying is a good part of the work, the copies of a slab should meet the driver in cache.
    Slabs cut() const {
        Slabs s;
        s.groups = p_.groups;
        s.images = p_.batch;
        s.channels = p_.channels;
        double inputs = static_cast<double>(p_.groups * p_.batch * p_.channels),
               outputs = static_cast<double>(p_.groups * p_.batch * p_.features);
        double kernel = static_cast<double>(p_.groups * p_.features * p_.channels), taps = 1, columns = static_cast<double>(p_.features);
        for (int i = 0; i < p_.dims; ++i) {
            const Axis& a = p_.axes[i];
            inputs *= static_cast<double>(a.size), outputs *= static_cast<double>(a.out);
            kernel *= static_cast<double>(a.kernel);
            columns *= static_cast<double>(std::min(a.lhs_dilation, std::max<int64_t>(1, a.out)));
            taps *= static_cast<double>(a.kernel) / static_cast<double>(std::min(a.lhs_dilation, std::max<int64_t>(1, a.kernel)));
        }
        // A large kernel (the image of a weight gradient) is cut where slabs have groups of their own, or along its sums.
        const bool large = kernel * sizeof(T) > kSlabRhsBytes;
        const double bytes = (inputs + outputs + (large ? kernel : 0)) * sizeof(T);
        if (bytes < 2 * kSlabBytes || columns > std::max(kSlabColumns, static_cast<double>(p_.features))) return s;
        if (outputs * static_cast<double>(p_.channels) * taps > kProductsPerElement * (inputs + outputs + kernel)) return s;
        const int64_t wanted = static_cast<int64_t>(bytes / (large ? kLargeSlabBytes : kSlabBytes)) + 1;
        auto length_of = [](int64_t extent, int64_t blocks) {
            const int64_t even = ceil_div(extent, blocks);
            return even < kSlabLanes ? even : ceil_div(even, kSlabLanes) * kSlabLanes;
        };
        // Groups that lie outside the axes: their planes stay whole.
        bool outside = !is_complex(p_.dtype);
        for (const Operand* operand : {&p_.lhs, &p_.out})
            for (int i = 0; i < p_.dims; ++i) outside = outside && std::abs(operand->outer[0]) > std::abs(operand->spatial[i]);
        if (large && !outside) {
            cut_sums(std::max(wanted / 2, kSumSlabs), outputs, &s);
            return s;
        }
        if (!large) s.images = length_of(p_.batch, std::min(p_.batch, wanted));
        s.image_blocks = ceil_div(p_.batch, s.images);
        int64_t more = ceil_div(wanted, s.image_blocks);
        if (outside && more > 1) {
            s.groups = ceil_div(p_.groups, std::min(p_.groups, more));
            s.groups = std::min(p_.groups, ceil_div(s.groups, kSlabGroups) * kSlabGroups);
            s.group_blocks = ceil_div(p_.groups, s.groups);
            more = ceil_div(more, s.group_blocks);
        }
        if (large && more > 2) cut_sums(more / 2, outputs, &s);
        if (more == 1 || large) return s;
        s.axis = choose_axis(p_.out, more, [](const Axis& a) { return a.out; });
        if (s.axis < 0) return s;
        s.length = length_of(p_.axes[s.axis].out, std::min(p_.axes[s.axis].out, more));
        if (const int64_t n = p_.axes[s.axis].lhs_dilation; s.length > n) s.length = ceil_div(s.length, n) * n;  // each starts at phase 0
        s.blocks = ceil_div(p_.axes[s.axis].out, s.length);
        return s;
    }

    // The outermost axis of an operand that has `enough` of `extent`, else the longest; -1: none has any.
    template <class Extent>
    int choose_axis(const Operand& operand, int64_t enough, Extent&& extent) const {
        int best = -1;
        for (int i = 0; i < p_.dims; ++i) {
            const int64_t here = extent(p_.axes[i]), most = best < 0 ? 0 : extent(p_.axes[best]);
            const bool outer = best >= 0 && std::abs(operand.spatial[i]) > std::abs(operand.spatial[best]);
            if (most >= enough ? here >= enough && outer : here > most) best = i;
        }
        return best;
    }

    // Into blocks of channels and of the taps of an axis.
    void cut_sums(int64_t wanted, double outputs, Slabs* s) const {
        const bool plain = !p_.has_bias && p_.activation == Activation::none && !is_complex(p_.dtype);
        if (!plain || p_.dtype == real_ || p_.out_dtype == real_) return;
        wanted = std::min(wanted, static_cast<int64_t>(kMostSums / std::max(1.0, outputs)));
        if (wanted < 2) return;
        s->sums = true;
        s->channels = ceil_div(p_.channels, std::min(p_.channels, wanted));
        s->channel_blocks = ceil_div(p_.channels, s->channels);
        const int64_t more = ceil_div(wanted, s->channel_blocks);
        if (more > 1) s->axis = choose_axis(p_.rhs, more, [](const Axis& a) { return a.lhs_dilation > 1 ? 0 : a.kernel; });
        if (s->axis >= 0) {
            const int64_t taps = p_.axes[s->axis].kernel;
            s->length = ceil_div(taps, std::min(taps, more));
            s->blocks = ceil_div(taps, s->length);
        }
        s->sums = s->channel_blocks * s->blocks > 1;
    }

    Problem slab_of(int64_t index, int64_t group) const {
        Problem slab = p_;
        slab.groups = std::min(slabs_.groups, p_.groups - group);
        slab.lhs.offset += group * p_.lhs.outer[0];
        slab.rhs.offset += group * p_.rhs.outer[0];
        slab.out.offset += group * p_.out.outer[0];
        if (slabs_.sums) {
            const int64_t channel = index / slabs_.blocks % slabs_.channel_blocks * slabs_.channels;
            slab.channels = std::min(slabs_.channels, p_.channels - channel);
            slab.lhs.offset += channel * p_.lhs.outer[2];
            slab.rhs.offset += channel * p_.rhs.outer[2];
            if (slabs_.axis < 0) return slab;
            Axis& a = slab.axes[slabs_.axis];
            const int64_t start = index % slabs_.blocks * slabs_.length;
            a.kernel = std::min(slabs_.length, a.kernel - start);
            a.lo -= start * a.rhs_dilation;
            slab.rhs.offset += start * p_.rhs.spatial[slabs_.axis];
            trim(&slab);
            return slab;
        }
        const int64_t image = index / slabs_.blocks % slabs_.image_blocks * slabs_.images;
        slab.batch = std::min(slabs_.images, p_.batch - image);
        slab.lhs.offset += image * p_.lhs.outer[1];
        slab.out.offset += image * p_.out.outer[1];
        if (slabs_.axis < 0) return slab;
        Axis& a = slab.axes[slabs_.axis];
        const int64_t start = index % slabs_.blocks * slabs_.length;
        a.out = std::min(slabs_.length, a.out - start);
        a.lo -= start * a.stride;
        slab.out.offset += start * p_.out.spatial[slabs_.axis];
        trim(&slab);
        return slab;
    }

    // The inputs of the axis that is cut to those that the slab reads.
    void trim(Problem* slab) const {
        Axis& a = slab->axes[slabs_.axis];
        const int64_t reach = (a.out - 1) * a.stride + (a.kernel - 1) * a.rhs_dilation;
        const int64_t first = std::min(std::max<int64_t>(0, ceil_div(-a.lo, a.lhs_dilation)), a.size);
        a.size = std::max(first, std::min(a.size, floor_div(reach - a.lo, a.lhs_dilation) + 1)) - first;
        a.lo += first * a.lhs_dilation;
        slab->lhs.offset += first * p_.lhs.spatial[slabs_.axis];
    }

    const Problem p_;
    const Buffers b_;
    const Driver driver_;
    const Dtype real_;
    Slabs slabs_;
    std::atomic<bool> finite_{true};
};

}  // namespace

bool needs_conversion(const Problem& p) { return p.dtype != p.out_dtype || (p.dtype != Dtype::f32 && p.dtype != Dtype::f64); }

const char* run_converted(const Problem& p, const Buffers& buffers, Executor& executor, Driver driver) {
    Dtype real;
    if (!choose_real(p, &real)) return "converted: no real type holds these sums";
    if (p.activation != Activation::none && (is_integer(p.out_dtype) || is_complex(p.dtype)))
        return "converted: activations are for real floating types";
    if (p.has_bias && is_integer(p.dtype) && !is_integer(p.out_dtype)) return "converted: a bias must have the output's kind";
    if (is_bare(p)) return run_general(p, buffers, executor);
    return real == Dtype::f32 ? Conversion<float>(p, buffers, driver, real).run(executor)
                              : Conversion<double>(p, buffers, driver, real).run(executor);
}

}  // namespace fastconv
