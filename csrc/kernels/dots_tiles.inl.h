// Dot products by AMX's tiles: 0 to 3 hold the sums, 4 and 5 the segments' rows, 6 and 7 the blocks' columns. A single block meets
// four segments, so that each of its columns, which come from the second cache, serves as many products as with two blocks.

#define FASTCONV_TILES __attribute__((target("amx-tile,amx-bf16,amx-int8")))

struct TileShapes {
    uint8_t palette, start, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
};

FASTCONV_TILES static void tiles_begin(int rows) {
    TileShapes shapes = {};
    shapes.palette = 1;
    for (int i = 0; i < 8; ++i) {
        shapes.bytes[i] = kDotBytes;
        shapes.rows[i] = static_cast<uint8_t>(i < 6 ? rows : 16);
    }
    // g++ takes the instruction to read its first 8 bytes only, and would drop the rest.
    __asm__ volatile("" : : "r"(&shapes) : "memory");
    _tile_loadconfig(&shapes);
}
FASTCONV_TILES static void tiles_end() { _tile_release(); }

#define FASTCONV_TILE_RUN(name, product) \
    template <int Segments, int Blocks> \
    FASTCONV_TILES static void name(const DotTile& t) { \
        constexpr int64_t kStep = 2 * kDotBytes; \
        char* c = static_cast<char*>(t.c); \
        if (t.accumulate) { \
            _tile_loadd(0, c, kStep); \
            if constexpr (Blocks > 1) _tile_loadd(1, c + kDotBytes, kStep); \
            if constexpr (Segments > 1) _tile_loadd(2, c + kDotRows * kStep, kStep); \
            if constexpr (Segments > 1 && Blocks > 1) _tile_loadd(3, c + kDotRows * kStep + kDotBytes, kStep); \
        } else { \
            _tile_zero(0); \
            if constexpr (Blocks > 1) _tile_zero(1); \
            if constexpr (Segments > 1) _tile_zero(2); \
            if constexpr (Segments > 1 && Blocks > 1) _tile_zero(3); \
        } \
        const char* b0 = t.b[0]; \
        const char* b1 = t.b[1]; \
        for (int64_t tap = 0; tap < t.taps; ++tap) { \
            const char* a0 = t.a[0] + t.offset[tap]; \
            const char* a1 = Segments > 1 ? t.a[1] + t.offset[tap] : a0; \
            for (int64_t u = 0; u < t.steps; ++u) { \
                _tile_loadd(4, a0, t.a_step); \
                _tile_loadd(6, b0, kDotBytes); \
                product(0, 4, 6); \
                if constexpr (Segments > 1) { \
                    _tile_loadd(5, a1, t.a_step); \
                    product(2, 5, 6); \
                } \
                if constexpr (Blocks > 1) { \
                    _tile_loadd(7, b1, kDotBytes); \
                    product(1, 4, 7); \
                    if constexpr (Segments > 1) product(3, 5, 7); \
                    b1 += kDotPanel; \
                } \
                a0 += kDotBytes; \
                a1 += kDotBytes; \
                b0 += kDotPanel; \
            } \
        } \
        _tile_stored(0, c, kStep); \
        if constexpr (Blocks > 1) _tile_stored(1, c + kDotBytes, kStep); \
        if constexpr (Segments > 1) _tile_stored(2, c + kDotRows * kStep, kStep); \
        if constexpr (Segments > 1 && Blocks > 1) _tile_stored(3, c + kDotRows * kStep + kDotBytes, kStep); \
    } \
    FASTCONV_TILES static void name##_four(const DotTile& t) { \
        constexpr int64_t kStep = 2 * kDotBytes, kNext = kDotRows * kStep; \
        char* c = static_cast<char*>(t.c); \
        if (t.accumulate) { \
            _tile_loadd(0, c, kStep); \
            _tile_loadd(1, c + kNext, kStep); \
            _tile_loadd(2, c + 2 * kNext, kStep); \
            _tile_loadd(3, c + 3 * kNext, kStep); \
        } else { \
            _tile_zero(0); \
            _tile_zero(1); \
            _tile_zero(2); \
            _tile_zero(3); \
        } \
        const char* b = t.b[0]; \
        for (int64_t tap = 0; tap < t.taps; ++tap) { \
            const int64_t at = t.offset[tap]; \
            for (int64_t u = 0; u < t.steps; ++u, b += kDotPanel) { \
                _tile_loadd(6, b, kDotBytes); \
                _tile_loadd(4, t.a[0] + at + u * kDotBytes, t.a_step); \
                product(0, 4, 6); \
                _tile_loadd(5, t.a[1] + at + u * kDotBytes, t.a_step); \
                product(1, 5, 6); \
                _tile_loadd(4, t.a[2] + at + u * kDotBytes, t.a_step); \
                product(2, 4, 6); \
                _tile_loadd(5, t.a[3] + at + u * kDotBytes, t.a_step); \
                product(3, 5, 6); \
            } \
        } \
        _tile_stored(0, c, kStep); \
        _tile_stored(1, c + kNext, kStep); \
        _tile_stored(2, c + 2 * kNext, kStep); \
        _tile_stored(3, c + 3 * kNext, kStep); \
    } \
    static void name##_any(const DotTile& t, int segments, int blocks, int) { \
        if (segments == 4) { \
            name##_four(t); \
            return; \
        } \
        if (segments == 3) { \
            DotTile last = t; \
            last.a[0] = t.a[2]; \
            last.c = static_cast<char*>(t.c) + 2 * kDotRows * 2 * kDotBytes; \
            name<1, 1>(last); \
            segments = 2; \
        } \
        if (segments > 1) \
            blocks > 1 ? name<2, 2>(t) : name<2, 1>(t); \
        else \
            blocks > 1 ? name<1, 2>(t) : name<1, 1>(t); \
    }

FASTCONV_TILE_RUN(tiles_bf16, _tile_dpbf16ps)
FASTCONV_TILE_RUN(tiles_s8, _tile_dpbssd)
FASTCONV_TILE_RUN(tiles_u8, _tile_dpbuud)
#undef FASTCONV_TILE_RUN
#undef FASTCONV_TILES

static const DotKernels kTileKernels[] = {
    {16, 4, 0, tiles_begin, tiles_end, tiles_bf16_any},
    {16, 4, 0, tiles_begin, tiles_end, tiles_s8_any},
    {16, 4, 0, tiles_begin, tiles_end, tiles_u8_any},
};
