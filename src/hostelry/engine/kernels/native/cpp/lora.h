// Segmented LoRA on weights that lie anywhere in the page pool: each rank is one row of A and one
// column of B, so that ranks mix without padding and a weight is read once for all rows of its
// segment (once for each chunk of them in a long one).
//
// shrink: low[row][j] = scale * (A_j . x_row)        expand: y_row += sum_j low[row][j] * B_j
// A product is one vector sum over the in-features and then a fixed tree; the sum over j keeps its
// order. So a row's result does not depend on the rows and ranks computed beside it.
//
// Source: Punica's segmented products (arXiv:2310.18547), S-LoRA's pages (arXiv:2311.03285).
#pragma once

#include <algorithm>
#include <cstdint>

#include "gemm.h"
#include "rows.h"
#include "vectors.h"

namespace hostelry {

constexpr int kLineBytes = 64;

// An update over the vocabulary; as WideRows in kernels/batch.py.
struct WideRows {
  int32_t rank;
  float scale;
  const int64_t* vocab_offsets;
  const int64_t* hidden_offsets;
};

// An adapter's rows; as AdapterIndex in kernels/batch.py, with a null rank where it has no update.
struct AdapterIndex {
  const int32_t* ranks;
  const float* scales;
  const int32_t* firsts;
  const int64_t* down_offsets;
  const int64_t* up_offsets;
  WideRows embedding;
  WideRows lm_head;
};

struct Segment {
  int32_t row_start;
  int32_t row_end;
  AdapterIndex index;
};

// Rows of x: k of row r at first + r * step + k / 32 * stride + k % 32 (see prepare_row).
template <class X>
struct ShrinkRows {
  const X* first;
  int64_t step;
  int stride;
};

// sums += products of kLanes or fewer k.
template <int kRows, int kRanks, bool kWhole, class X, class Element>
inline void dot_lanes(const X* x, int64_t step, const Element* const* down, int at, int left,
                      Vec (&sums)[kRows][kRanks]) {
  Vec rows[kRows];
  for (int r = 0; r < kRows; ++r)
    rows[r] = kWhole ? load(x + r * step) : load_upto(x + r * step, left);
  for (int j = 0; j < kRanks; ++j) {
    const Vec weights = kWhole ? load(down[j] + at) : load_upto(down[j] + at, left);
    for (int r = 0; r < kRows; ++r) sums[r][j] = fma(rows[r], weights, sums[r][j]);
  }
}

// kRows x kRanks products over `count` in-features, while the rows of `next` come to the cache.
template <int kRows, int kRanks, class X, class Element>
inline void dot_tile(const ShrinkRows<X>& x, const Element* const* down, int count,
                     const Element* const* next, const float* scales, float* low,
                     int64_t low_step) {
  constexpr int kLine = kLineBytes / int(sizeof(Element));
  Vec sums[kRows][kRanks];
  for (int r = 0; r < kRows; ++r)
    for (int j = 0; j < kRanks; ++j) sums[r][j] = zero();
  const X* piece = x.first;
  int at = 0;
  for (; at + kDepth <= count; at += kDepth, piece += x.stride) {
    for (int j = 0; j < kRanks; ++j)
      for (int line = 0; line < kDepth; line += kLine) __builtin_prefetch(next[j] + at + line);
    dot_lanes<kRows, kRanks, true>(piece, x.step, down, at, kLanes, sums);
    dot_lanes<kRows, kRanks, true>(piece + kLanes, x.step, down, at + kLanes, kLanes, sums);
  }
  for (int left = count - at; left > 0; left -= kLanes, at += kLanes, piece += kLanes)
    dot_lanes<kRows, kRanks, false>(piece, x.step, down, at, left, sums);
  for (int r = 0; r < kRows; ++r)
    for (int j = 0; j < kRanks; ++j) low[r * low_step + j] = scales[j] * sum(sums[r][j]);
}

// `num_ranks` <= 4 ranks for `num_rows` rows; results lie low_step elements apart.
template <class X, class Element>
inline void shrink_ranks(ShrinkRows<X> x, int num_rows, int count, const Element* const* down,
                         const Element* const* next, const float* scales, int num_ranks,
                         float* low, int64_t low_step) {
  int row = 0;
  for (; row + 4 <= num_rows && num_ranks == 4; row += 4) {
    dot_tile<4, 4>(x, down, count, next, scales, low, low_step);
    x.first += 4 * x.step, low += 4 * low_step;
  }
  for (; row < num_rows; ++row, x.first += x.step, low += low_step) {
    if (num_ranks == 4) {
      dot_tile<1, 4>(x, down, count, next, scales, low, low_step);
      continue;
    }
    for (int j = 0; j < num_ranks; ++j)
      dot_tile<1, 1>(x, down + j, count, next + j, scales + j, low + j, low_step);
  }
}

// The columns of B of one module of one segment, from `column` on; no columns where rank is 0.
template <class Element>
struct UpColumns {
  const Element* pool = nullptr;
  const int64_t* offsets = nullptr;
  int rank = 0;
  int column = 0;
};

template <class Element>
inline void prefetch(const UpColumns<Element>& up, int at, int count) {
  for (int j = 0; j < up.rank; ++j) {
    const Element* weights = up.pool + up.offsets[j] + up.column + at;
    for (int i = 0; i < count; i += kLineBytes / int(sizeof(Element)))
      __builtin_prefetch(weights + i);
    __builtin_prefetch(weights + count - 1);
  }
}

// kRows rows and kVectors vectors of y; in the last one only `part` columns are read.
template <int kRows, int kVectors, class Element>
inline void expand_tile(const float* low, int64_t low_stride, const UpColumns<Element>& up, int at,
                        int part, float* y, int64_t y_stride) {
  Vec out[kRows][kVectors];
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kVectors; ++v) out[r][v] = zero();
  for (int j = 0; j < up.rank; ++j) {
    const Element* weights = up.pool + up.offsets[j] + up.column + at;
    Vec columns[kVectors];
    for (int v = 0; v < kVectors; ++v)
      columns[v] = kVectors > 1 || part == kLanes ? load(weights + kLanes * v)
                                                  : load_first(weights, part);
    for (int r = 0; r < kRows; ++r) {
      const Vec factor = splat(low[r * low_stride + j]);
      for (int v = 0; v < kVectors; ++v) out[r][v] = fma(factor, columns[v], out[r][v]);
    }
  }
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kVectors; ++v) {
      float* to = y + r * y_stride + at + kLanes * v;
      store(to, load(to) + out[r][v]);
    }
}

template <int kVectors, class Element>
inline void expand_rows(const float* low, int64_t low_stride, int num_rows,
                        const UpColumns<Element>& up, int at, int part, float* y,
                        int64_t y_stride) {
  int row = 0;
  for (; row + 4 <= num_rows; row += 4)
    expand_tile<4, kVectors>(low + row * low_stride, low_stride, up, at, part, y + row * y_stride,
                             y_stride);
  for (; row < num_rows; ++row)
    expand_tile<1, kVectors>(low + row * low_stride, low_stride, up, at, part, y + row * y_stride,
                             y_stride);
}

// y += low * B for `num_rows` rows and `num_columns` columns, while those of `next` come to the
// cache. Rows of y are low_stride and y_stride apart and padded to whole vectors.
template <class Element>
inline void expand(const float* low, int64_t low_stride, int num_rows, const UpColumns<Element>& up,
                   const UpColumns<Element>& next, int num_columns, float* y, int64_t y_stride) {
  constexpr int kStep = 4 * kLanes;
  int at = 0;
  for (; at + kStep <= num_columns; at += kStep) {
    prefetch(next, at, kStep);
    expand_rows<4>(low, low_stride, num_rows, up, at, kLanes, y, y_stride);
  }
  if (at < num_columns) prefetch(next, at, num_columns - at);
  for (; at < num_columns; at += kLanes)
    expand_rows<1>(low, low_stride, num_rows, up, at, std::min(kLanes, num_columns - at), y,
                   y_stride);
}

// update = low * B for one row and all columns of B, its columns read from end to end, four at a
// time while the next four are fetched, and in the end `then`; the sums are those of expand.
template <class Element>
inline void expand_whole(const float* low, const UpColumns<Element>& up, int num_columns,
                         const Element* const* then, float* update) {
  constexpr int kLine = kLineBytes / int(sizeof(Element));
  for (int first = 0; first < up.rank; first += 4) {
    const int count = std::min(up.rank - first, 4);
    const Element *columns[4], *next[4];
    for (int j = 0; j < 4; ++j) {
      columns[j] = up.pool + up.offsets[first + std::min(j, count - 1)];
      next[j] = first + 4 + j < up.rank ? up.pool + up.offsets[first + 4 + j] : then[j];
    }
    for (int at = 0; at < num_columns; at += kLanes) {
      const int left = num_columns - at;
      Vec sum = first == 0 ? zero() : load(update + at);
      for (int j = 0; j < count; ++j) {
        if (at % kLine == 0) __builtin_prefetch(next[j] + at);
        sum = fma(splat(low[first + j]), load_upto(columns[j] + at, left), sum);
      }
      store(update + at, sum);
    }
  }
}

}  // namespace hostelry
