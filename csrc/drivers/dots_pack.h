// Lays the operands of the dots algorithm out (drivers/dots_layout.h).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/executor.h"
#include "drivers/dots_layout.h"
#include "kernels/dots.h"
#include "problem.h"

namespace fastconv {

class DotOperands {
public:
    DotOperands(const Problem& problem, const Buffers& buffers, const DotKernels& kernels);

    // The problem with rhs as rows of 16 features; a plan is made of its phases.
    Problem packed() const;

    // Bytes that `pack` needs, a multiple of 64.
    int64_t bytes(const DotPlan& plan) const;

    // Copies lhs and packs rhs into `memory`. False when memory for it is exhausted.
    bool pack(const DotPlan& plan, char* memory, Executor& executor);

    // True when values were met that the units treat otherwise than float32 arithmetic does.
    bool unsafe() const;

    const char* lhs() const { return lhs_; }
    const char* panels(const DotPart& part, int64_t group, int64_t block) const {
        return panels_ + (part.panels + (group * plan_->blocks + block) * part.panels_of_block()) * kDotPanel;
    }
    // Sums of int8 columns over the depth, 16 of a block.
    const int32_t* column_sums(size_t part, int64_t group, int64_t block) const { return column_sums_ + sums_at(part, group, block); }

private:
    // A loop of a copy: extent, and steps in elements.
    struct Step {
        int64_t extent, from, to;
    };
    // What an operand holds.
    struct Survey {
        std::atomic<uint32_t> largest{0};
        std::atomic<bool> subnormal{false};
        void look(const void* from, int64_t count);
    };

    template <class T>
    static void copy_alone(const Step (&steps)[3], const T* from, T* to);
    static void copy_box(Step a, Step b, Step c, const char* from, char* to, int size);
    void find_read();
    bool read(int axis, int64_t position) const { return read_[axis][static_cast<size_t>(position) % read_[axis].size()] != 0; }
    void copy_line(int64_t group, int64_t image, int64_t images, int64_t line);
    void lay_out_rhs();
    bool pack_rhs(int64_t group, int64_t block);
    void gather_rows(const char* from, int64_t features, char* rows) const;
    void fill_panels(const DotPart& part, const char* rows, const char* zeros, char* to, int32_t* sums) const;
    int64_t sums_at(size_t part, int64_t group, int64_t block) const {
        return ((static_cast<int64_t>(part) * p_.groups + group) * plan_->blocks + block) * kDotColumns;
    }

    const Problem& p_;
    const Buffers& b_;
    const DotKernels& kernels_;
    const int size_;
    const bool floats_;
    const DotPlan* plan_ = nullptr;
    std::vector<char> read_[kMaxDims];  // whether a tap of an output meets a position of the copy; repeated along the axis
    Operand rhs_;                       // steps in rows of 16 features
    std::vector<Step> walk_;            // of the rows, from the inner loop outwards
    int64_t rows_ = 0, source_ = 0;
    char* lhs_ = nullptr;
    char* panels_ = nullptr;
    int32_t* column_sums_ = nullptr;
    Survey lhs_survey_, rhs_survey_;
};

}  // namespace fastconv
