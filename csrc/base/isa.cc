#include "base/isa.h"

#include <atomic>
#include <cstdlib>
#include <cstring>

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

}  // namespace fastconv
