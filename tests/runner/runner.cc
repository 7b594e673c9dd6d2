// Runs problems and kernels that another process sends, for CPUs that this machine only emulates (src/fastconv/soak/remote.py).
//
// Requests on standard input, replies on standard output, int64 words in host order; blocks of bytes are preceded by their length.
//   0: hello                                            -> instruction sets, kernel list
//   1: problem: level, threads, words, ranges, first cell, lhs, rhs, bias, out  -> status, message or out
//   2: kernel: index, sizes, a, b, c                    -> status, message or c
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "fastconv.h"

namespace {

using Bytes = std::vector<char>;

void read_exactly(void* to, size_t size) {
    if (size > 0 && std::fread(to, 1, size, stdin) != size) std::exit(1);
}

int64_t read_word() {
    int64_t word = 0;
    read_exactly(&word, sizeof(word));
    return word;
}

Bytes read_bytes() {
    Bytes bytes(static_cast<size_t>(read_word()));
    read_exactly(bytes.data(), bytes.size());
    return bytes;
}

std::vector<int64_t> read_words() {
    std::vector<int64_t> words(static_cast<size_t>(read_word()));
    read_exactly(words.data(), words.size() * sizeof(int64_t));
    return words;
}

void write_word(int64_t word) { std::fwrite(&word, sizeof(word), 1, stdout); }

void write_bytes(const char* from, size_t size) {
    write_word(static_cast<int64_t>(size));
    std::fwrite(from, 1, size, stdout);
}

void reply(int status, const Bytes& result) {
    write_word(status);
    const std::string message = status == 0 ? "" : fastconv_error();
    status == 0 ? write_bytes(result.data(), result.size()) : write_bytes(message.data(), message.size());
}

void run_problem() {
    const Bytes level = read_bytes();
    fastconv_set_threads(read_word());
    const std::vector<int64_t> words = read_words(), ranges = read_words();
    const int64_t first = read_word();  // byte of `out` at which the result's first element lies; poisoned cells surround it
    Bytes lhs = read_bytes(), rhs = read_bytes(), bias = read_bytes(), out = read_bytes();
    int status = fastconv_set_isa(std::string(level.begin(), level.end()).c_str());
    if (status == 0)
        status = fastconv_conv(words.data(), static_cast<int64_t>(words.size()), lhs.data(), rhs.data(), bias.data(), out.data() + first,
                               ranges.data());
    reply(status, out);
}

void run_kernel() {
    const int64_t index = read_word();
    const std::vector<int64_t> sizes = read_words();
    const Bytes a = read_bytes(), b = read_bytes();
    Bytes c = read_bytes();
    const int status = fastconv_run_kernel(index, 1, sizes.data(), a.data(), b.data(), c.data());
    reply(status, c);
}

}  // namespace

int main() {
    int64_t request = 0;
    while (std::fread(&request, sizeof(request), 1, stdin) == 1) {
        if (request == 0) {
            const std::string isas = fastconv_isas(), kernels = fastconv_kernels();
            write_bytes(isas.data(), isas.size());
            write_bytes(kernels.data(), kernels.size());
        } else if (request == 1) {
            run_problem();
        } else if (request == 2) {
            run_kernel();
        } else {
            return 1;
        }
        std::fflush(stdout);
    }
    return 0;
}
