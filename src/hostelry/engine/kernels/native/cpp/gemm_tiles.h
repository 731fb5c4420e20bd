// Products of bf16 tiles (AMX): how gemm.h computes kBF16 and kI8 where the CPU has them. Part of
// gemm.cpp.
//
// A tile product adds 32 k to 16 rows x 16 outputs; a row of the result depends on that row of x
// alone, and rows that are not there are left out by the tile configuration. Sums stay in tiles
// from the first k to the last.

#pragma once

#include <immintrin.h>

#include "gemm.h"
#include "gemm_lanes.h"

namespace hostelry {

constexpr int kTile = kDepth * kBlock;      // weights of a tile
constexpr int kTileBytes = kTile * 2;       // as bf16
constexpr int kTilesAhead = 8;              // are asked for before they are needed

// What the compiler knows of memory holds before and after: tile loads are opaque to it.
inline void memory_barrier() { asm volatile("" ::: "memory"); }

// Rows of the tiles: sums 0-1 and x 4 as `first`; sums 2-3 and x 5 as `second`; weights 6-7 full.
// With `single` there is one panel of rows: sums 0-3 and x 4 as `first`; weights 5-7 full.
class TileConfiguration {
 public:
  TileConfiguration() { memory_barrier(); }
  ~TileConfiguration() { _tile_release(); }

  void set(int first, int second, bool single) {
    if (first == first_ && second == second_ && single == single_) return;
    first_ = first, second_ = second, single_ = single;
    alignas(64) uint8_t bytes[64] = {1};  // palette 1: bytes a row at 16 (16 bits), rows at 48
    const int rows[8] = {first, first, single ? first : second, single ? first : second,
                         first, single ? 16 : second, 16, 16};
    for (int tile = 0; tile < 8; ++tile) {
      bytes[16 + 2 * tile] = 64;
      bytes[48 + tile] = static_cast<uint8_t>(rows[tile]);
    }
    memory_barrier();
    asm volatile("ldtilecfg %0" ::"m"(bytes));
  }

 private:
  int first_ = -1, second_ = -1;
  bool single_ = false;
};

// A panel of up to 16 prepared rows.
struct Panel {
  const bf16* x;
  int row, height;
};

inline Panel panel_of(const bf16* prepared, int depth, int rows, int row) {
  return {prepared + size_t(row) * depth, row, std::min(kPanel, rows - row)};
}

// Where the tiles of a block of weights lie: bf16, one after another.
struct Tiles {
  const char* first;
  size_t stride;  // bytes from one block to the next
};

inline void prefetch_tile(const char* p) {
  for (int line = 0; line < kTileBytes; line += 64) _mm_prefetch(p + line, _MM_HINT_T0);
}

inline void widen_tile(const char* in, bf16* out) {
  for (int i = 0; i < kTile; i += 64) {
    const TwoPairs pairs = widen_int8(in + i);
    std::memcpy(out + i, &pairs.first, sizeof pairs.first);
    std::memcpy(out + i + 32, &pairs.second, sizeof pairs.second);
  }
}

inline void finish_tile(const PackedWeight& weight, const float* sums, const Panel& panel,
                        int block, const Target& target) {
  for (int r = 0; r < panel.height; ++r)
    finish(weight, load(sums + r * kBlock), block, panel.row + r, target);
}

// Whether a tile of sums can be stored where it belongs as it is.
inline bool is_direct(const PackedWeight& weight, int block, const Target& target) {
  return !weight.scales && !weight.bias && !target.add && (block + 1) * kBlock <= weight.out;
}

#define HOSTELRY_STORE(tile, panel, block)                                                  \
  if (is_direct(weight, block, target)) {                                                   \
    _tile_stored(tile, target.y + (panel).row * target.ldy + (block) * kBlock, target.ldy * 4); \
  } else {                                                                                  \
    _tile_stored(tile, sums, kBlock * 4);                                                   \
    finish_tile(weight, sums, panel, block, target);                                        \
  }

// Sums 0 to kBlocks - 1 += one panel times as many blocks, `depth` k of them.
template <int kBlocks>
inline void multiply_single(const Panel& panel, const bf16* x, Tiles tiles, int depth,
                            bool ahead) {
  const int x_stride = kDepth * 2;
  const char* w = tiles.first;
  for (int k = 0; k < depth; k += kDepth, w += kTileBytes, x += panel.height * kDepth) {
    if (ahead)
      for (int b = 0; b < kBlocks; ++b)
        prefetch_tile(w + b * tiles.stride + kTilesAhead * kTileBytes);
    _tile_loadd(4, x, x_stride);
    _tile_loadd(5, w, 64);
    _tile_dpbf16ps(0, 4, 5);
    if constexpr (kBlocks > 1) {
      _tile_loadd(6, w + tiles.stride, 64);
      _tile_dpbf16ps(1, 4, 6);
    }
    if constexpr (kBlocks > 2) {
      _tile_loadd(7, w + 2 * tiles.stride, 64);
      _tile_dpbf16ps(2, 4, 7);
    }
    if constexpr (kBlocks > 3) {
      _tile_loadd(5, w + 3 * tiles.stride, 64);
      _tile_dpbf16ps(3, 4, 5);
    }
  }
}

constexpr int kInt8Ahead = 8;  // tiles of whole numbers

// The same from whole numbers: while a tile of each block is multiplied the next is widened.
template <int kBlocks>
inline void multiply_single_int8(const Panel& panel, const char* packed, size_t stride,
                                 int depth) {
  alignas(64) bf16 wide[2][kBlocks][kTile];
  const auto widen = [&](int k, bf16(&out)[kBlocks][kTile]) {
    for (int b = 0; b < kBlocks; ++b) {
      const char* in = packed + b * stride + size_t(k) * kBlock;
      for (int line = 0; line < kTile; line += 64)
        _mm_prefetch(in + kInt8Ahead * kTile + line, _MM_HINT_T0);
      widen_tile(in, out[b]);
    }
    memory_barrier();
  };
  widen(0, wide[0]);
  for (int k = 0; k < depth; k += kDepth) {
    const int turn = k / kDepth % 2;
    if (k + kDepth < depth) widen(k + kDepth, wide[1 - turn]);
    multiply_single<kBlocks>(panel, panel.x + size_t(k) * panel.height,
                             {reinterpret_cast<const char*>(wide[turn]), kTileBytes}, kDepth,
                             false);
  }
}

// One panel with kBlocks blocks from `block` on.
template <int kBlocks>
void tiles_single(const PackedWeight& weight, const Panel& panel, int block,
                  const Target& target) {
  const Kind kind = static_cast<Kind>(weight.kind);
  const int depth = padded_in(kind, weight.in);
  const size_t stride = block_bytes(kind, weight.in);
  alignas(64) float sums[kPanel * kBlock];
  _tile_zero(0);
  if constexpr (kBlocks > 1) _tile_zero(1);
  if constexpr (kBlocks > 2) _tile_zero(2);
  if constexpr (kBlocks > 3) _tile_zero(3);
  if (kind == kI8) {
    multiply_single_int8<kBlocks>(panel, block_of(weight, block), stride, depth);
  } else {
    multiply_single<kBlocks>(panel, panel.x, {block_of(weight, block), stride}, depth, true);
  }
  HOSTELRY_STORE(0, panel, block)
  if constexpr (kBlocks > 1) { HOSTELRY_STORE(1, panel, block + 1) }
  if constexpr (kBlocks > 2) { HOSTELRY_STORE(2, panel, block + 2) }
  if constexpr (kBlocks > 3) { HOSTELRY_STORE(3, panel, block + 3) }
}

// Two panels with kBlocks (1 or 2) blocks from `block` on, whose tiles are `tiles`.
template <int kBlocks>
void tiles_double(const PackedWeight& weight, const Panel& upper, const Panel& lower, int block,
                  Tiles tiles, bool ahead, const Target& target) {
  const int depth = padded_in(kBF16, weight.in), x_stride = kDepth * 2;
  alignas(64) float sums[kPanel * kBlock];
  const char* w = tiles.first;
  const bf16 *x0 = upper.x, *x1 = lower.x;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int k = 0; k < depth; k += kDepth, w += kTileBytes) {
    if (ahead)
      for (int b = 0; b < kBlocks; ++b)
        prefetch_tile(w + b * tiles.stride + kTilesAhead * kTileBytes);
    _tile_loadd(6, w, 64);
    _tile_loadd(4, x0, x_stride);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(5, x1, x_stride);
    _tile_dpbf16ps(2, 5, 6);
    if constexpr (kBlocks > 1) {
      _tile_loadd(7, w + tiles.stride, 64);
      _tile_dpbf16ps(1, 4, 7);
      _tile_dpbf16ps(3, 5, 7);
    }
    x0 += upper.height * kDepth;
    x1 += lower.height * kDepth;
  }
  HOSTELRY_STORE(0, upper, block)
  HOSTELRY_STORE(2, lower, block)
  if constexpr (kBlocks > 1) {
    HOSTELRY_STORE(1, upper, block + 1)
    HOSTELRY_STORE(3, lower, block + 1)
  }
}

// The tiles of `num_blocks` blocks: where they are, or widened into memory of this thread.
inline Tiles wide_tiles(const PackedWeight& weight, int block, int num_blocks) {
  const size_t stride = block_bytes(kBF16, weight.in);
  if (weight.kind == kBF16) return {block_of(weight, block), stride};
  thread_local std::vector<char> memory;
  memory.resize(std::max(memory.size(), num_blocks * stride + 64));
  char* wide = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
  const char* in = block_of(weight, block);
  const int num_tiles = static_cast<int>(num_blocks * stride / kTileBytes);
  for (int tile = 0; tile < num_tiles; ++tile)
    widen_tile(in + size_t(tile) * kTile, reinterpret_cast<bf16*>(wide) + size_t(tile) * kTile);
  memory_barrier();
  return {wide, stride};
}

void tile_task(const PackedWeight& weight, const bf16* x, int rows, int first_row,
               int end_row, int first_block, int end_block, const Target& target) {
  const int depth = padded_in(kBF16, weight.in);
  TileConfiguration configuration;
  if (end_row - first_row <= kPanel) {
    const Panel panel = panel_of(x, depth, rows, first_row);
    configuration.set(panel.height, 16, true);
    int block = first_block;
    for (; block + 4 <= end_block; block += 4) tiles_single<4>(weight, panel, block, target);
    if (block + 2 <= end_block) tiles_single<2>(weight, panel, block, target), block += 2;
    if (block < end_block) tiles_single<1>(weight, panel, block, target);
    return;
  }
  for (int block = first_block; block < end_block; block += 2) {
    const int num_blocks = std::min(2, end_block - block);
    const Tiles tiles = wide_tiles(weight, block, num_blocks);
    for (int row = first_row; row < end_row; row += 2 * kPanel) {
      const Panel upper = panel_of(x, depth, rows, row);
      const bool ahead = row == first_row && weight.kind == kBF16;
      if (row + kPanel >= end_row) {
        configuration.set(upper.height, 16, true);
        (num_blocks == 2 ? tiles_single<2> : tiles_single<1>)(weight, upper, block, target);
        continue;
      }
      const Panel lower = panel_of(x, depth, rows, row + kPanel);
      configuration.set(upper.height, lower.height, false);
      (num_blocks == 2 ? tiles_double<2> : tiles_double<1>)(weight, upper, lower, block, tiles,
                                                            ahead, target);
    }
  }
}

#undef HOSTELRY_STORE

}  // namespace hostelry
