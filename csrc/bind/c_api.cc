// The C interface (fastconv.h) over the engine, with the library's own thread pool.
#include <string>

#include "base/isa.h"
#include "base/pool.h"
#include "bind/counters.h"
#include "engine.h"
#include "fastconv.h"
#include "kernels/registry.h"

#if defined(__x86_64__)
#include <cpuid.h>

#include <cstring>
#endif

namespace {

thread_local const char* last_error = "";

int fail(const char* message) {
    last_error = message;
    return 1;
}

std::string cpu_name() {
#if defined(__x86_64__)
    unsigned words[12];
    if (static_cast<unsigned>(__get_cpuid_max(0x80000000u, nullptr)) >= 0x80000004u) {
        for (unsigned i = 0; i < 3; ++i)
            __get_cpuid(0x80000002u + i, &words[4 * i], &words[4 * i + 1], &words[4 * i + 2], &words[4 * i + 3]);
        char text[sizeof(words) + 1] = {};
        std::memcpy(text, words, sizeof(words));
        std::string name(text);
        const size_t first = name.find_first_not_of(' '), last = name.find_last_not_of(' ');
        if (first != std::string::npos) return name.substr(first, last - first + 1);
    }
#endif
    return "unknown CPU";
}

std::string isa_list() {
    std::string text;
    for (int level = 0; level < fastconv::kIsas; ++level) {
        const auto isa = static_cast<fastconv::Isa>(level);
        if (!fastconv::isa_available(isa)) continue;
        if (!text.empty()) text += ',';
        text += fastconv::isa_name(isa);
    }
    return text;
}

}  // namespace

extern "C" {

int64_t fastconv_abi(void) { return FASTCONV_ABI; }

int fastconv_conv(const int64_t* words, int64_t count, const void* lhs, const void* rhs, const void* bias, void* out,
                  const int64_t* ranges) {
    fastconv::Problem problem;
    if (const char* why = fastconv::parse_problem(words, count, &problem)) return fail(why);
    const fastconv::Buffers buffers{
        {const_cast<void*>(lhs), ranges[0], ranges[1]},
        {const_cast<void*>(rhs), ranges[2], ranges[3]},
        {const_cast<void*>(bias), ranges[4], ranges[5]},
        {out, ranges[6], ranges[7]},
    };
    if (const char* why = fastconv::check_buffers(problem, buffers)) return fail(why);
    fastconv::PoolExecutor executor;
    if (const char* why = fastconv::run_problem(problem, buffers, executor)) return fail(why);
    return 0;
}

const char* fastconv_error(void) { return last_error; }

void fastconv_set_threads(int64_t n) { fastconv::set_threads(n); }
int64_t fastconv_get_threads(void) { return fastconv::current_threads(); }

const char* fastconv_isa(void) { return fastconv::isa_name(fastconv::current_isa()); }
const char* fastconv_isas(void) {
    static const std::string text = isa_list();
    return text.c_str();
}
int fastconv_set_isa(const char* name) { return fastconv::set_isa(name) ? 0 : fail("set_isa: unknown or unavailable ISA level"); }

const char* fastconv_dot_unit(void) { return fastconv::dot_unit_name(fastconv::current_dot_unit()); }
int fastconv_set_dot_unit(const char* name) { return fastconv::set_dot_unit(name) ? 0 : fail("set_dot_unit: unknown or unavailable unit"); }

const char* fastconv_kernels(void) {
    static const std::string text = fastconv::kernel_table();
    return text.c_str();
}

int fastconv_run_kernel(int64_t index, int64_t runs, const int64_t* sizes, const void* a, const void* b, void* c) {
    const char* why = fastconv::run_kernel(index, runs, sizes, a, b, c);
    return why == nullptr ? 0 : fail(why);
}

int64_t fastconv_has_xla(void) {
#if defined(FASTCONV_HAVE_XLA)
    return 1;
#else
    return 0;
#endif
}

void fastconv_counted(int64_t key, int64_t* calls, int64_t* nanoseconds) {
    const fastconv::Count count = fastconv::counted(key);
    *calls = count.calls;
    *nanoseconds = count.nanoseconds;
}

void fastconv_clear_counts(void) { fastconv::clear_counts(); }

const char* fastconv_cpu(void) {
    static const std::string text = cpu_name();
    return text.c_str();
}

}  // extern "C"
