// XLA's way in: one FFI handler for every convolution, its twin that counts, and an executor that borrows XLA's own threads.
//
// The handler trusts nothing: the words can come from a serialised program, so they are checked against the buffers of the call.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <thread>

#include "base/executor.h"
#include "base/fpenv.h"
#include "base/pool.h"
#include "base/stretches.h"
#include "bind/counters.h"
#include "engine.h"
#include "fastconv.h"
#include "problem.h"
#include "xla/ffi/api/ffi.h"

extern "C" FASTCONV_EXPORT XLA_FFI_Error* fastconv_conv_v1(XLA_FFI_CallFrame* call_frame);
extern "C" FASTCONV_EXPORT XLA_FFI_Error* fastconv_counted_v1(XLA_FFI_CallFrame* call_frame);

namespace fastconv {
namespace {

namespace ffi = xla::ffi;

// The work of one `parallel` call, kept alive by whoever still may look at it: XLA runs a scheduled task when it likes, perhaps
// long after the call has returned.
struct Job {
    Job(ChunkBody body, void* context, int64_t chunks, int64_t threads)
        : body(body), context(context), mode(FpMode::current()), stretches(chunks, threads) {}

    // Claims chunks until none is left. `body` and `context` are touched only with a chunk in hand, which the caller waits for.
    void work() {
        stretches.drain(joined.fetch_add(1, std::memory_order_relaxed), [this](int64_t chunk) {
            body(context, chunk);
            finished.fetch_add(1, std::memory_order_release);
        });
    }

    ChunkBody body;
    void* context;
    const FpMode mode;
    Stretches stretches;
    std::atomic<int> joined{0};
    std::atomic<int64_t> finished{0};
};

// Chunks are claimed off shared counters by the caller and by tasks on XLA's pool. The caller never waits for a task to start, only
// for chunks that somebody has claimed: waiting for scheduled tasks from inside the pool deadlocks when every thread does it.
class XlaExecutor final : public Executor {
public:
    explicit XlaExecutor(ffi::ThreadPool pool) : pool_(pool) {
        const int64_t lent = pool_.num_threads();
        const int64_t allowed = current_threads();
        threads_ = static_cast<int>(lent < 1 ? 1 : lent < allowed ? lent : allowed);
    }

    void parallel(int64_t chunks, ChunkBody body, void* context) override {
        if (chunks <= 1 || threads_ <= 1) {
            InlineExecutor().parallel(chunks, body, context);
            return;
        }
        std::shared_ptr<Job> job;
        try {
            const int64_t threads = chunks < threads_ ? chunks : threads_;
            const int64_t helpers = threads - 1;
            job = std::make_shared<Job>(body, context, chunks, threads);
            for (int64_t i = 0; i < helpers; ++i)
                pool_.Schedule([job] {
                    const FpScope scope(job->mode);
                    job->work();
                });
        } catch (const std::bad_alloc&) {
            // Fewer helpers, or none; those already scheduled take part as usual.
            if (job == nullptr) return InlineExecutor().parallel(chunks, body, context);
        }
        job->work();
        for (int polls = 0; job->finished.load(std::memory_order_acquire) < chunks;) pause(++polls);
    }

    int threads() const override { return threads_; }

private:
    // A chunk is short, so its end is polled for; the core is offered to others now and then in case they have the chunk.
    static void pause(int polls) {
        constexpr int kPollsPerYield = 2000;
        if (polls % kPollsPerYield == 0) std::this_thread::yield();
#if defined(__x86_64__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        asm volatile("yield");
#endif
    }

    ffi::ThreadPool pool_;
    int threads_;
};

// The code of an XLA element type, or -1 where the library has none.
int64_t dtype_code(ffi::DataType type) {
    switch (type) {
        case ffi::F32: return static_cast<int64_t>(Dtype::f32);
        case ffi::F64: return static_cast<int64_t>(Dtype::f64);
        case ffi::F16: return static_cast<int64_t>(Dtype::f16);
        case ffi::BF16: return static_cast<int64_t>(Dtype::bf16);
        case ffi::C64: return static_cast<int64_t>(Dtype::c64);
        case ffi::C128: return static_cast<int64_t>(Dtype::c128);
        case ffi::S8: return static_cast<int64_t>(Dtype::i8);
        case ffi::S16: return static_cast<int64_t>(Dtype::i16);
        case ffi::S32: return static_cast<int64_t>(Dtype::i32);
        case ffi::S64: return static_cast<int64_t>(Dtype::i64);
        case ffi::U8: return static_cast<int64_t>(Dtype::u8);
        case ffi::U16: return static_cast<int64_t>(Dtype::u16);
        case ffi::U32: return static_cast<int64_t>(Dtype::u32);
        case ffi::U64: return static_cast<int64_t>(Dtype::u64);
        default: return -1;
    }
}

bool has_dtype(const ffi::AnyBuffer& buffer, Dtype dtype) { return dtype_code(buffer.element_type()) == static_cast<int64_t>(dtype); }

Buffer whole(const ffi::AnyBuffer& buffer) { return {buffer.untyped_data(), 0, static_cast<int64_t>(buffer.element_count())}; }

ffi::Error invalid(const char* message) { return ffi::Error::InvalidArgument(std::string("fastconv: ") + message); }

// Operands are lhs, rhs and, when the words say so, bias.
ffi::Error convolve(ffi::ThreadPool pool, ffi::AnyBuffer lhs, ffi::AnyBuffer rhs, ffi::RemainingArgs rest, ffi::Result<ffi::AnyBuffer> out,
                    ffi::Span<const int64_t> words) {
    Problem problem;
    if (const char* message = parse_problem(words.begin(), static_cast<int64_t>(words.size()), &problem)) return invalid(message);
    if (rest.size() != (problem.has_bias ? 1u : 0u)) return invalid("the number of operands does not fit the plan's bias flag");
    Buffers buffers{whole(lhs), whole(rhs), {nullptr, 0, 0}, whole(*out)};
    if (!has_dtype(lhs, problem.dtype) || !has_dtype(rhs, problem.dtype)) return invalid("an operand's dtype is not the plan's");
    if (!has_dtype(*out, problem.out_dtype)) return invalid("the result's dtype is not the plan's");
    if (problem.has_bias) {
        const auto bias = rest.get<ffi::AnyBuffer>(0);
        if (!bias) return invalid("the bias is no buffer");
        if (!has_dtype(*bias, problem.dtype)) return invalid("the bias's dtype is not the plan's");
        buffers.bias = whole(*bias);
    }
    if (const char* message = check_buffers(problem, buffers)) return invalid(message);
    if (const char* message = check_no_broadcast(problem, buffers)) return invalid(message);  // XLA's operands are dense
    XlaExecutor executor(pool);
    if (const char* message = run_problem(problem, buffers, executor)) return invalid(message);
    return ffi::Error::Success();
}

// The same, and the call is counted under `key` with the time it took: for programs compiled while a report wants to know.
ffi::Error convolve_counted(ffi::ThreadPool pool, ffi::AnyBuffer lhs, ffi::AnyBuffer rhs, ffi::RemainingArgs rest,
                            ffi::Result<ffi::AnyBuffer> out, ffi::Span<const int64_t> words, int64_t key) {
    const auto start = std::chrono::steady_clock::now();
    ffi::Error error = convolve(pool, lhs, rhs, rest, out, words);
    const auto took = std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start);
    if (error.success()) count_call(key, took.count());
    return error;
}

// What both handlers are called with.
auto binding() {
    return ffi::Ffi::Bind()
        .Ctx<ffi::ThreadPool>()
        .Arg<ffi::AnyBuffer>()
        .Arg<ffi::AnyBuffer>()
        .RemainingArgs()
        .Ret<ffi::AnyBuffer>()
        .Attr<ffi::Span<const int64_t>>("words");
}

}  // namespace
}  // namespace fastconv

XLA_FFI_DEFINE_HANDLER_SYMBOL(fastconv_conv_v1, fastconv::convolve, fastconv::binding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(fastconv_counted_v1, fastconv::convolve_counted, fastconv::binding().Attr<int64_t>("key"));
