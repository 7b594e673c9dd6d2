#include "base/isa.h"

#include <atomic>
#include <cstdlib>
#include <cstring>

#if defined(FASTCONV_HAVE_AVX512)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif

namespace fastconv {
namespace {

constexpr const char* kNames[kIsas] = {"scalar", "avx2", "avx512", "neon"};

Isa best_under(int cap) {
    for (int level = cap; level > 0; --level)
        if (isa_available(static_cast<Isa>(level))) return static_cast<Isa>(level);
    return Isa::scalar;
}

int parse(const char* name) {
    for (int level = 0; level < kIsas; ++level)
        if (std::strcmp(name, kNames[level]) == 0) return level;
    return -1;
}

std::atomic<Isa>& level() {
    static std::atomic<Isa> value{[] {
        const char* name = std::getenv("FASTCONV_ISA");
        const int cap = name == nullptr ? -1 : parse(name);
        return best_under(cap < 0 ? kIsas - 1 : cap);
    }()};
    return value;
}

#if defined(FASTCONV_HAVE_AVX512)
// True when the CPU has AMX for bfloat16 and int8, and the system lets this process use its tiles: Linux wants to be asked once.
bool tiles_granted() {
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
    constexpr unsigned kBf16 = 1u << 22, kTile = 1u << 24, kInt8 = 1u << 25;
    if ((d & (kBf16 | kTile | kInt8)) != (kBf16 | kTile | kInt8)) return false;
#if defined(__linux__)
    constexpr long kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    return syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
#else
    return false;
#endif
}
#endif

bool dot_unit_available(DotUnit unit) {
#if defined(FASTCONV_HAVE_AVX512)
    static const bool vector = isa_available(Isa::avx512) && __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni");
    static const bool tiles = vector && tiles_granted();
    return unit == DotUnit::none || (unit == DotUnit::vector ? vector : tiles);
#else
    return unit == DotUnit::none;
#endif
}

std::atomic<DotUnit>& dot_cap() {
    static std::atomic<DotUnit> value{DotUnit::tiles};
    return value;
}

constexpr const char* kDotUnitNames[kDotUnits] = {"none", "vector", "tiles"};

}  // namespace

const char* isa_name(Isa isa) { return kNames[static_cast<int>(isa)]; }

bool isa_available(Isa isa) {
    switch (isa) {
        case Isa::scalar: return true;
#if defined(FASTCONV_HAVE_AVX2)
        case Isa::avx2:
            return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2") &&
                   __builtin_cpu_supports("f16c");
#endif
#if defined(FASTCONV_HAVE_AVX512)
        case Isa::avx512:
            return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                   __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma");
#endif
#if defined(FASTCONV_HAVE_NEON)
        case Isa::neon: return true;
#endif
        default: return false;
    }
}

Isa current_isa() { return level().load(std::memory_order_relaxed); }

bool set_isa(const char* name) {
    if (name == nullptr || *name == '\0') {
        level().store(best_under(kIsas - 1));
        return true;
    }
    const int wanted = parse(name);
    if (wanted < 0 || !isa_available(static_cast<Isa>(wanted))) return false;
    level().store(static_cast<Isa>(wanted));
    return true;
}

const char* dot_unit_name(DotUnit unit) { return kDotUnitNames[static_cast<int>(unit)]; }

DotUnit current_dot_unit() {
    if (current_isa() != Isa::avx512) return DotUnit::none;
    int unit = static_cast<int>(dot_cap().load(std::memory_order_relaxed));
    while (!dot_unit_available(static_cast<DotUnit>(unit))) --unit;
    return static_cast<DotUnit>(unit);
}

bool set_dot_unit(const char* name) {
    if (name == nullptr || *name == '\0') {
        dot_cap().store(DotUnit::tiles);
        return true;
    }
    for (int unit = 0; unit < kDotUnits; ++unit) {
        if (std::strcmp(name, kDotUnitNames[unit]) != 0 || !dot_unit_available(static_cast<DotUnit>(unit))) continue;
        dot_cap().store(static_cast<DotUnit>(unit));
        return true;
    }
    return false;
}

}  // namespace fastconv
