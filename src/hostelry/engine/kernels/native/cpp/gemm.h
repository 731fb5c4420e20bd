// Products of rows with packed weights: y[r][o] = sum over k of x[r][k] W[o][k] (+ bias[o]).
//
// What y[r][o] is depends on row r alone: each is one chain of additions in the order of k,
// whatever the number of rows, the blocking, the task and the thread. Blocks only decide how many
// chains advance together. With AMX every row goes through tile products, a single one too.
//
// Kinds: kF32 multiplies floats. kBF16 rounds x to bf16 and adds up in fp32. kI8 has one scale an
// output: its whole numbers are exact in bf16, so they are products as kBF16's, scaled at the end.
//
// Packed weights are blocks of 16 outputs, each block on its own contiguous; outputs and k beyond
// the end are zero. A block of kF32 is [K][16]; of kBF16 [K / 2][16][2], which is what both AMX
// and dpbf16 want; of kI8 see packed_offset in pack.h. Rows are prepared once (prepare_row) for all
// products that read them.
//
//   for each row:   prepare_row(kind, x + r * ldx, in, rows, r, prepared)       // in any thread
//   for each task:  gemm_task(weight, prepared, rows, y, ldy, add, task)        // after all rows

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "vectors.h"

namespace hostelry {

enum Kind : int32_t { kF32 = 0, kBF16 = 1, kI8 = 2 };

#if defined(__AMX_BF16__)
constexpr bool kHasTiles = true;
#else
constexpr bool kHasTiles = false;
#endif
#if defined(__AVX512BF16__)
constexpr bool kHasPairs = true;  // products of bf16 pairs
#else
constexpr bool kHasPairs = false;
#endif

constexpr int kBlock = 16;   // outputs of a block
constexpr int kDepth = 32;   // k of one tile; what bf16 rows are padded to
constexpr int kPanel = 16;   // rows of one tile

// One weight as Python hands it over (native/gemm.py has the same fields). `packed` is 64-byte
// aligned; `scales` (kI8 only) and `bias` (or null) have padded_out(out) floats.
struct PackedWeight {
  const void* packed;
  const float* scales;
  const float* bias;
  int32_t kind, out, in, reserved;
};

inline int round_up(int n, int multiple) { return (n + multiple - 1) / multiple * multiple; }
inline int padded_out(int out) { return round_up(out, kBlock); }
inline int padded_in(Kind kind, int in) { return kind == kF32 ? in : round_up(in, kDepth); }

inline size_t element_bytes(Kind kind) { return kind == kF32 ? 4 : kind == kBF16 ? 2 : 1; }
inline size_t block_bytes(Kind kind, int in) {
  return element_bytes(kind) * kBlock * padded_in(kind, in);
}
inline size_t packed_bytes(Kind kind, int out, int in) {
  return block_bytes(kind, in) * (padded_out(out) / kBlock);
}

// Bytes of `rows` prepared rows; they are to be 64-byte aligned.
inline size_t prepared_bytes(Kind kind, int rows, int in) {
  const size_t element = kind != kF32 && kHasPairs ? 2 : 4;
  return element * size_t(rows) * round_up(in, kDepth);
}

inline const char* block_of(const PackedWeight& weight, int block) {
  return static_cast<const char*>(weight.packed) +
         block_bytes(static_cast<Kind>(weight.kind), weight.in) * block;
}

#if defined(__AVX512BF16__)
// As to_bf16, but for denormals, which become zero as they do in the products.
inline void store_rounded(bf16* p, Vec a) {
  const __m256bh halves = _mm512_cvtneps_pbh(a.v);
  std::memcpy(p, &halves, sizeof halves);
}
#endif

// Lays row `row` of `rows` into `prepared`: with tiles as [rows / 16][K / 32][16 or fewer][32],
// otherwise one after another; rounded to bf16 but for kF32, and kept as floats where there is no
// bf16 arithmetic.
inline void prepare_row(Kind kind, const float* x, int in, int rows, int row, void* prepared) {
  if (kind == kF32) {
    std::memcpy(static_cast<float*>(prepared) + size_t(row) * in, x, in * sizeof(float));
    return;
  }
  const int depth = padded_in(kind, in);
#if defined(__AVX512BF16__)
  const int first = kHasTiles ? row / kPanel * kPanel : row;
  const int height = kHasTiles ? std::min(kPanel, rows - first) : 1;
  bf16* out = static_cast<bf16*>(prepared) + size_t(first) * depth + (row - first) * kDepth;
  for (int k = 0; k < depth; k += kDepth, out += height * kDepth)
    for (int i = 0; i < kDepth; i += kLanes) {
      const int count = std::min(std::max(in - k - i, 0), kLanes);
      store_rounded(out + i, count == kLanes ? load(x + k + i) : load_first(x + k + i, count));
    }
#else
  (void)rows;
  float* out = static_cast<float*>(prepared) + size_t(row) * depth;
  for (int k = 0; k < in; ++k) out[k] = to_float(to_bf16(x[k]));
  for (int k = in; k < depth; ++k) out[k] = 0.0f;
#endif
}

// Where a finished block of one row goes.
struct Target {
  float* y;
  ptrdiff_t ldy;
  bool add;
};

// y = sums * scale + bias, or y + that with `add`.
inline void finish(const PackedWeight& weight, Vec sums, int block, int row, const Target& target) {
  const int first = block * kBlock, count = std::min(kBlock, weight.out - first);
  float* y = target.y + row * target.ldy + first;
  if (weight.scales) sums = sums * load(weight.scales + first);
  if (weight.bias) sums = sums + load(weight.bias + first);
  if (count == kBlock) {
    store(y, target.add ? load(y) + sums : sums);
  } else {
    store_first(y, target.add ? load_first(y, count) + sums : sums, count);
  }
}

// Tasks: a run of neighbouring blocks each, about as much memory as is worth a claim; with many
// rows also divided by rows, so that a task's prepared rows stay in the second-level cache.
constexpr size_t kTaskBytes = 64 * 1024;
constexpr size_t kRowsBytes = (kHasTiles ? 1024 : 512) * 1024;  // half of such a cache

struct TaskShape {
  int blocks, rows;           // of a task
  int num_blocks, num_rows;   // how many such
};

inline TaskShape task_shape(const PackedWeight& weight, int rows) {
  const Kind kind = static_cast<Kind>(weight.kind);
  const int all = padded_out(weight.out) / kBlock;
  TaskShape shape;
  const size_t row_bytes = prepared_bytes(kind, 1, weight.in);
  const int most = std::max<int>(kRowsBytes / row_bytes / 96 * 96, 96);
  const int parts = (rows + most - 1) / most;
  shape.rows = round_up((rows + parts - 1) / std::max(parts, 1), 96);
  shape.num_rows = (rows + shape.rows - 1) / std::max(shape.rows, 1);
  const int fit = static_cast<int>(kTaskBytes / block_bytes(kind, weight.in)) / 4 * 4;
  shape.blocks = std::min(std::max(fit, rows > kPanel ? 2 : 4), all);
  shape.num_blocks = (all + shape.blocks - 1) / shape.blocks;
  return shape;
}

inline int num_gemm_tasks(const PackedWeight& weight, int rows) {
  if (rows == 0) return 0;
  const TaskShape shape = task_shape(weight, rows);
  return shape.num_blocks * shape.num_rows;
}

// Rows [first_row, end_row) of blocks [first_block, end_block); `first_row` is a multiple of
// kPanel. `tile_task` is there where kHasTiles, and for kBF16 and kI8 only.
void lane_task(const PackedWeight& weight, const void* prepared, int first_row, int end_row,
               int first_block, int end_block, const Target& target);
void tile_task(const PackedWeight& weight, const bf16* prepared, int rows, int first_row,
               int end_row, int first_block, int end_block, const Target& target);

// Whichever of the two the weight wants.
inline void gemm_blocks(const PackedWeight& weight, const void* prepared, int rows, int first_row,
                        int end_row, int first_block, int end_block, const Target& target) {
#if defined(__AMX_BF16__)
  if (weight.kind != kF32) {
    tile_task(weight, static_cast<const bf16*>(prepared), rows, first_row, end_row, first_block,
              end_block, target);
    return;
  }
#endif
  (void)rows;
  lane_task(weight, prepared, first_row, end_row, first_block, end_block, target);
}

// Computes its share of y. With `add` to what is in y. `ldy`: floats from one row of y to the next.
inline void gemm_task(const PackedWeight& weight, const void* prepared, int rows, float* y,
                      ptrdiff_t ldy, bool add, int task) {
  const TaskShape shape = task_shape(weight, rows);
  const int first_row = task / shape.num_blocks * shape.rows;
  const int first_block = task % shape.num_blocks * shape.blocks;
  const int end_row = std::min(first_row + shape.rows, rows);
  const int end_block = std::min(first_block + shape.blocks, padded_out(weight.out) / kBlock);
  gemm_blocks(weight, prepared, rows, first_row, end_row, first_block, end_block,
              Target{y, ldy, add});
}

}  // namespace hostelry
