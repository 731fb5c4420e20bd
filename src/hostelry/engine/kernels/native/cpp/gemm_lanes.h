// Products with one lane an output: how gemm.h computes without tiles. Part of gemm.cpp.
//
// A step of a kind takes the next weights of a block (one k, or a pair) and multiplies them with
// one row's x, which is the same in all lanes. Which rows and blocks advance together is a choice
// of registers only.

#pragma once

#include "gemm.h"

namespace hostelry {

constexpr int kAheadBytes = 4096;  // of a block's memory is asked for before it is needed

inline void prefetch(const void* p) { __builtin_prefetch(p, 0, 3); }

// For each kind: X, the type of a prepared row; kStep, the k of a step; kBytes, of its weights.

struct StepF32 {
  using X = float;
  static constexpr int kStep = 1;
  static constexpr int kBytes = 64;
  using W = Vec;
  static W weights(const char* p) { return load(reinterpret_cast<const float*>(p)); }
  static Vec add(W w, const X* x, Vec sum) { return fma(w, splat(*x), sum); }
};

#if defined(__AVX512BF16__)

inline __m512bh pairs_of(__m512i bits) {
  __m512bh pairs;
  std::memcpy(&pairs, &bits, sizeof pairs);
  return pairs;
}

// Upper and lower bytes of the whole numbers 0 to 127 as bf16.
struct Int8Tables {
  alignas(64) uint8_t upper[128], lower[128];

  constexpr Int8Tables() : upper(), lower() {
    for (int n = 1; n < 128; ++n) {
      int exponent = 0;
      while (n >> (exponent + 1)) ++exponent;
      const int bits = (127 + exponent) << 7 | ((n << (7 - exponent)) & 127);
      upper[n] = static_cast<uint8_t>(bits >> 8);
      lower[n] = static_cast<uint8_t>(bits);
    }
  }
};
inline constexpr Int8Tables kInt8Tables;

struct TwoPairs {
  __m512bh first, second;
};

// 64 codes (sign and magnitude, packed_offset's order) as bf16: two pairs of k, 16 outputs each. A
// byte is looked up by its lower seven bits.
inline TwoPairs widen_int8(const char* p) {
  const __m512i codes = _mm512_loadu_si512(p);
  const __m512i lower =
      _mm512_permutex2var_epi8(_mm512_load_si512(kInt8Tables.lower), codes,
                               _mm512_load_si512(kInt8Tables.lower + 64));
  const __m512i magnitude =
      _mm512_permutex2var_epi8(_mm512_load_si512(kInt8Tables.upper), codes,
                               _mm512_load_si512(kInt8Tables.upper + 64));
  const __m512i sign = _mm512_set1_epi8(static_cast<char>(0x80));
  const __m512i upper = _mm512_ternarylogic_epi64(magnitude, codes, sign, 0xf8);  // a | (b & c)
  return {pairs_of(_mm512_unpacklo_epi8(lower, upper)),
          pairs_of(_mm512_unpackhi_epi8(lower, upper))};
}

inline Vec add_pairs(__m512bh w, const bf16* x, Vec sum) {
  int pair;
  std::memcpy(&pair, x, sizeof pair);
  return {_mm512_dpbf16_ps(sum.v, w, pairs_of(_mm512_set1_epi32(pair)))};
}

struct StepBF16 {
  using X = bf16;
  static constexpr int kStep = 2;
  static constexpr int kBytes = 64;
  using W = __m512bh;
  static W weights(const char* p) { return pairs_of(_mm512_loadu_si512(p)); }
  static Vec add(W w, const X* x, Vec sum) { return add_pairs(w, x, sum); }
};

struct StepI8 {
  using X = bf16;
  static constexpr int kStep = 4;
  static constexpr int kBytes = 64;
  using W = TwoPairs;
  static W weights(const char* p) { return widen_int8(p); }
  static Vec add(const W& w, const X* x, Vec sum) {
    return add_pairs(w.second, x + 2, add_pairs(w.first, x, sum));
  }
};

#else

struct Pair {
  Vec even, odd;
};

inline Vec add_pair(const Pair& w, const float* x, Vec sum) {
  return fma(w.odd, splat(x[1]), fma(w.even, splat(x[0]), sum));
}

// The two bf16 of each 32-bit word as floats.
inline Pair split_pairs(const char* p) {
#if defined(__AVX2__)
  const __m256i* words = reinterpret_cast<const __m256i*>(p);
  const __m256i lo = _mm256_loadu_si256(words), hi = _mm256_loadu_si256(words + 1);
  const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
  return {{_mm256_castsi256_ps(_mm256_slli_epi32(lo, 16)),
           _mm256_castsi256_ps(_mm256_slli_epi32(hi, 16))},
          {_mm256_castsi256_ps(_mm256_and_si256(lo, upper)),
           _mm256_castsi256_ps(_mm256_and_si256(hi, upper))}};
#else
  Words words;
  std::memcpy(&words, p, sizeof words);
  return {{(Floats)(words << 16)}, {(Floats)(words & 0xffff0000u)}};
#endif
}

inline Vec widen_int8(const char* p) {
#if defined(__AVX2__)
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
          _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)))};
#else
  typedef int8_t Bytes __attribute__((vector_size(16)));
  Bytes bytes;
  std::memcpy(&bytes, p, sizeof bytes);
  return {__builtin_convertvector(bytes, Floats)};
#endif
}

struct StepBF16 {
  using X = float;
  static constexpr int kStep = 2;
  static constexpr int kBytes = 64;
  using W = Pair;
  static W weights(const char* p) { return split_pairs(p); }
  static Vec add(const W& w, const X* x, Vec sum) { return add_pair(w, x, sum); }
};

struct StepI8 {
  using X = float;
  static constexpr int kStep = 1;
  static constexpr int kBytes = 16;
  using W = Vec;
  static W weights(const char* p) { return widen_int8(p); }
  static Vec add(W w, const X* x, Vec sum) { return fma(w, splat(*x), sum); }
};

#endif

// Rows and blocks that advance together, as many as there are registers for sums: up to kWideRows
// of kWideBlocks when there are as few rows, or more than kManyRows; else up to kTallRows of one.
#if defined(__AVX512F__)
constexpr int kWideRows = 6, kWideBlocks = 4, kTallRows = 16, kManyRows = 16;
#elif defined(__AVX2__)
constexpr int kWideRows = 2, kWideBlocks = 2, kTallRows = 6, kManyRows = INT32_MAX;
#else
constexpr int kWideRows = 1, kWideBlocks = 1, kTallRows = 2, kManyRows = INT32_MAX;
#endif

// `rows` rows from `row` on with `kBlocks` blocks from `block` on.
template <class Step, int kRows, int kBlocks>
void lanes(const PackedWeight& weight, const typename Step::X* x, int row, int block,
           const Target& target) {
  const Kind kind = static_cast<Kind>(weight.kind);
  const int depth = padded_in(kind, weight.in);
  const size_t stride = block_bytes(kind, weight.in);
  const char* w = block_of(weight, block);
  x += size_t(row) * depth;
  Vec sums[kBlocks][kRows];
  for (int b = 0; b < kBlocks; ++b)
    for (int r = 0; r < kRows; ++r) sums[b][r] = zero();
  for (int k = 0; k < depth; k += Step::kStep, w += Step::kBytes) {
    for (int b = 0; b < kBlocks; ++b) {
      prefetch(w + b * stride + kAheadBytes);
      const typename Step::W weights = Step::weights(w + b * stride);
      for (int r = 0; r < kRows; ++r)
        sums[b][r] = Step::add(weights, x + size_t(r) * depth + k, sums[b][r]);
    }
  }
  for (int b = 0; b < kBlocks; ++b)
    for (int r = 0; r < kRows; ++r) finish(weight, sums[b][r], block + b, row + r, target);
}

// The same with as many rows as there are, at most kRows.
template <class Step, int kRows, int kBlocks>
void some_lanes(const PackedWeight& weight, const typename Step::X* x, int row, int rows,
                int block, const Target& target) {
  if constexpr (kRows > 0) {
    if (rows >= kRows) {
      lanes<Step, kRows, kBlocks>(weight, x, row, block, target);
    } else {
      some_lanes<Step, kRows - 1, kBlocks>(weight, x, row, rows, block, target);
    }
  }
}

template <class Step>
void lane_rows(const PackedWeight& weight, const void* prepared, int first_row, int end_row,
               int first_block, int end_block, const Target& target) {
  const auto* x = static_cast<const typename Step::X*>(prepared);
  const int rows = end_row - first_row;
  int block = first_block;
  if (rows <= kWideRows || rows > kManyRows)
    for (; block + kWideBlocks <= end_block; block += kWideBlocks)
      for (int row = first_row; row < end_row; row += kWideRows)
        some_lanes<Step, kWideRows, kWideBlocks>(weight, x, row, end_row - row, block, target);
  for (; block < end_block; ++block)
    for (int row = first_row; row < end_row; row += kTallRows)
      some_lanes<Step, kTallRows, 1>(weight, x, row, end_row - row, block, target);
}

void lane_task(const PackedWeight& weight, const void* prepared, int first_row, int end_row,
               int first_block, int end_block, const Target& target) {
  auto* compute = weight.kind == kF32    ? lane_rows<StepF32>
                  : weight.kind == kBF16 ? lane_rows<StepBF16>
                                         : lane_rows<StepI8>;
  compute(weight, prepared, first_row, end_row, first_block, end_block, target);
}

}  // namespace hostelry
