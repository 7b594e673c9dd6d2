#include "base/scratch.h"

#include <cstdlib>

namespace fastconv {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kKeep = size_t{4} << 20;  // a block larger than this is given back once a request needs a quarter of it

struct Block {
    void* data = nullptr;
    size_t size = 0;
    ~Block() { std::free(data); }
    void* at_least(size_t bytes) {
        const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment + kAlignment;
        if (rounded <= size && (size <= kKeep || rounded > size / 4)) return data;
        std::free(data);
        data = std::aligned_alloc(kAlignment, rounded);
        size = data == nullptr ? 0 : rounded;
        return data;
    }
};

}  // namespace

void* scratch(ScratchSlot slot, size_t bytes) {
    thread_local Block blocks[kScratchSlots];
    return blocks[static_cast<int>(slot)].at_least(bytes);
}

}  // namespace fastconv
