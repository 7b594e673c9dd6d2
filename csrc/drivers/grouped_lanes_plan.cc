#include "drivers/grouped_lanes_plan.h"

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

LanesPlan::LanesPlan(const Sweep& s, int lanes, int64_t element, int most_rows) : x(s.x), y(s.y) {
    images = s.images;
    far_positions = s.far_positions();
    far_taps = s.far_taps();
    const int64_t outputs = s.groups * s.features;
    vectors = ceil_div(outputs, lanes);
    auto row_bytes = [&](int64_t positions) { return ((positions - 1) * x.step + s.x.taps) * s.y.taps * lanes * element; };
    x_block = std::min(x.longest, kMostRow);
    while (x_block > kLeastRow && row_bytes(x_block) * s.channels > kRingBytes) x_block = std::max(kLeastRow, (x_block + 1) / 2);
    x_blocks = ceil_div(x.longest, x_block);
    x_block = ceil_div(x.longest, x_blocks);
    chunk = std::max<int64_t>(1, std::min(s.channels, kRingBytes / row_bytes(x_block)));
    chunk = ceil_div(s.channels, ceil_div(s.channels, chunk));
    pitch = (x_block - 1) * x.step + s.x.taps;
    slot = chunk * pitch * lanes;
    depth = chunk * s.y.taps * s.x.taps;
    tile = ceil_div(x_block, ceil_div(x_block, most_rows));
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
                const int64_t row = (turn + h) % s.y.taps * slot + c * pitch * lanes;
                row_offsets.push_back(row);
                for (int64_t q = 0; q < s.x.taps; ++q) offsets.push_back(row + q * lanes);
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
