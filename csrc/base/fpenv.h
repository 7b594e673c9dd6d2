// The calling thread's floating-point mode, carried to the threads that work for it.
//
// XLA's threads flush subnormals and NumPy's do not; a worker must compute as its caller would.
#pragma once

#include <cstdint>

#if defined(__x86_64__) || defined(_M_X64)
#include <xmmintrin.h>
#endif

namespace fastconv {

class FpMode {
public:
    static FpMode current() {
        FpMode mode;
#if defined(__x86_64__) || defined(_M_X64)
        mode.bits_ = _mm_getcsr() & ~kFlags;
#elif defined(__aarch64__)
        asm volatile("mrs %0, fpcr" : "=r"(mode.bits_));
#endif
        return mode;
    }
    void apply() const {
#if defined(__x86_64__) || defined(_M_X64)
        _mm_setcsr(static_cast<unsigned>(bits_));
#elif defined(__aarch64__)
        asm volatile("msr fpcr, %0" : : "r"(bits_));
#endif
    }

private:
    static constexpr uint64_t kFlags = 0x3f;  // sticky exception flags are no part of the mode
    uint64_t bits_ = 0;
};

// Applies a mode for a scope and restores the thread's own.
class FpScope {
public:
    explicit FpScope(const FpMode& mode) : saved_(FpMode::current()) { mode.apply(); }
    ~FpScope() { saved_.apply(); }
    FpScope(const FpScope&) = delete;
    FpScope& operator=(const FpScope&) = delete;

private:
    FpMode saved_;
};

}  // namespace fastconv
