#include "drivers/grouped_lanes_plan.h"

#include "kernels/grouped.h"

namespace fastconv {
namespace {

constexpr int64_t kRingBytes = 28 << 10;    // of spread rows: the first cache holds them beside weights and sums
constexpr int64_t kLeastRow = 14;           // positions in a row, so that its halo stays small
constexpr int64_t kMostRow = 256;           // positions in a row, so that a task's sums stay small
constexpr int64_t kMostKept = 4096;         // positions whose sums wait
constexpr int64_t kMostRows = 64;           // of a unit
constexpr int64_t kTasks = 16;              // at least, where there is work
constexpr int64_t kTaskProducts = 1 << 17;  // less work is not worth a task of its own

}  // namespace

LanesSide lanes_side(const Sweep& s, int64_t vector, int lanes) {
    LanesSide side;
    side.first = vector * lanes;
    side.count = std::min<int64_t>(lanes, s.groups * s.features - side.first);
    side.out_adjoins = side.weight_adjoins = true;
    int64_t group = side.first / s.features, feature = side.first % s.features;
    const int64_t first_group = group;
    for (int64_t j = 0; j < lanes; ++j) {
        if (j < side.count) {
            side.in[j] = group * s.in_group;
            side.out[j] = group * s.out_group + feature * s.out_feature;
            side.weight[j] = group * s.weight_group + feature * s.weight_feature;
            side.index[j] = static_cast<int32_t>((group - first_group) * s.channels);
            side.out_adjoins = side.out_adjoins && side.out[j] == side.out[0] + j;
            side.weight_adjoins = side.weight_adjoins && side.weight[j] == side.weight[0] + j;
        } else {
            side.in[j] = side.in[0];
            side.index[j] = 0;
        }
        if (++feature == s.features) feature = 0, ++group;
    }
    const int64_t groups = (side.first + side.count - 1) / s.features - first_group + 1;
    const int64_t needed = groups * s.channels, total = s.groups * s.channels;
    side.sources = 0;
    side.base = side.in[0];
    if (s.in_channel == 1 && (s.in_group == s.channels || groups == 1) && needed <= kMaxSpreadSources * lanes) {
        side.sources = static_cast<int>(ceil_div(needed, lanes));
        side.base = first_group * s.in_group;
        side.last = lanes;
        // Never beyond the last channel: there another pixel begins, or nothing.
        const bool adjoin = s.in_group == s.channels;
        const int64_t excess = side.sources * int64_t{lanes} - (adjoin ? total - first_group * s.channels : needed);
        if (excess > 0 && adjoin && first_group * s.channels >= excess) {
            side.base -= excess;
            for (int64_t j = 0; j < lanes; ++j) side.index[j] += static_cast<int32_t>(excess);
        } else if (excess > 0) {
            side.last = needed - (side.sources - 1) * lanes;
        }
    }
    return side;
}

LanesPlan::LanesPlan(const Sweep& s, int lanes, int64_t element) : x(s.x), y(s.y) {
    images = s.images;
    far_positions = s.far_positions();
    far_taps = s.far_taps();
    const int64_t outputs = s.groups * s.features;
    vectors = ceil_div(outputs, lanes);
    same = !s.gradient && (s.groups == 1 || s.features % lanes == 0);
    const int64_t each = same ? 1 : lanes;
    auto row_bytes = [&](int64_t positions) { return ((positions - 1) * x.step + s.x.taps) * s.y.taps * each * element; };
    x_block = std::min(x.longest, kMostRow);
    while (x_block > kLeastRow && row_bytes(x_block) * s.channels > kRingBytes) x_block = std::max(kLeastRow, (x_block + 1) / 2);
    x_blocks = ceil_div(x.longest, x_block);
    x_block = ceil_div(x.longest, x_blocks);
    chunk = std::max<int64_t>(1, std::min(s.channels, kRingBytes / row_bytes(x_block)));
    chunk = ceil_div(s.channels, ceil_div(s.channels, chunk));
    pitch = (x_block - 1) * x.step + s.x.taps;
    place = same ? chunk : lanes;
    channel = same ? 1 : pitch * lanes;
    slot = chunk * pitch * each;
    depth = chunk * s.y.taps * s.x.taps;
    kept = far_taps > 1 || chunk < s.channels;

    // Cut rows until there are enough tasks.
    const int64_t wanted = std::max<int64_t>(1, std::min(kTasks, s.products() / kTaskProducts));
    const int64_t others = images * far_positions * x.count * x_blocks * y.count;
    y_block = std::min(y.longest, kept && !s.gradient ? std::max<int64_t>(1, kMostKept / x_block) : kMostRows);
    if (vectors * others * ceil_div(y.longest, y_block) < wanted)
        y_block = std::max(ceil_div(y.longest, ceil_div(wanted, vectors * others)), std::min(y_block, 2 * s.y.taps));
    y_blocks = ceil_div(y.longest, y_block);
    y_block = ceil_div(y.longest, y_blocks);
    units = others * y_blocks;
    splits = s.gradient ? std::max<int64_t>(1, std::min(units, wanted / vectors)) : 1;

    for (int64_t turn = 0; turn < s.y.taps; ++turn)
        for (int64_t c = 0; c < chunk; ++c)
            for (int64_t h = 0; h < s.y.taps; ++h) {
                const int64_t row = (turn + h) % s.y.taps * slot + c * channel;
                row_offsets.push_back(row);
                for (int64_t q = 0; q < s.x.taps; ++q) offsets.push_back(row + q * place);
            }
}

LanesUnit LanesPlan::unit(int64_t index) const {
    LanesUnit u;
    u.x = index % x_blocks * x_block;
    index /= x_blocks;
    u.own_x = index % x.count;
    index /= x.count;
    u.y = index % y_blocks * y_block;
    index /= y_blocks;
    u.own_y = index % y.count;
    index /= y.count;
    u.far = index % far_positions;
    u.image = index / far_positions;
    u.count = std::max<int64_t>(0, std::min(x_block, x.positions(u.own_x) - u.x));
    u.rows = std::max<int64_t>(0, std::min(y_block, y.positions(u.own_y) - u.y));
    return u;
}

}  // namespace fastconv
