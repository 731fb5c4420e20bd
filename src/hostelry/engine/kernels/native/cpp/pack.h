// From rows of weights as checkpoints have them to the packed form of gemm.h.

#pragma once

#include <vector>

#include "gemm.h"
#include "threads.h"

namespace hostelry {

// Output o's weights: `in` elements at rows + o * ld (in elements).
template <class T>
struct Rows {
  const T* first;
  ptrdiff_t ld;
  int out, in;

  const T* row(int o) const { return o < out ? first + o * ld : nullptr; }
};

// The offset within a block of weight k of output `lane`. Whole numbers lie, where products are of
// bf16 pairs, in the order in which widen_int8 reads them: 64 bytes for four k, in which 8 bytes of
// the first pair and 8 of the second take turns.
inline size_t packed_offset(Kind kind, int k, int lane) {
  if (kind == kF32 || (kind == kI8 && !kHasPairs)) return size_t(k) * kBlock + lane;
  const int within = 2 * lane + k % 2;
  if (kind == kBF16) return size_t(k / 2) * 2 * kBlock + within;
  return size_t(k / 4) * 4 * kBlock + within / 8 * 16 + k / 2 % 2 * 8 + within % 8;
}

// Sixteen rows of 32-bit words, words [0, num_words) of each, as [word][16].
inline void transpose_words(const uint32_t* const rows[kBlock], int num_words, uint32_t* out) {
  for (int word = 0; word < num_words; ++word)
    for (int lane = 0; lane < kBlock; ++lane) {
      uint32_t bits;
      std::memcpy(&bits, reinterpret_cast<const char*>(rows[lane]) + 4 * size_t(word), 4);
      out[size_t(word) * kBlock + lane] = bits;
    }
}

// Where rows need no change of type: whole words are moved. Returns how many k were.
template <class T>
int move_block(const Rows<T>& in, Kind kind, int block, void* out) {
  const bool same = (kind == kF32 && sizeof(T) == 4) || (kind == kBF16 && sizeof(T) == 2);
  if (!same || (block + 1) * kBlock > in.out) return 0;
  const uint32_t* rows[kBlock];
  for (int lane = 0; lane < kBlock; ++lane)
    rows[lane] = reinterpret_cast<const uint32_t*>(in.row(block * kBlock + lane));
  const int per_word = 4 / sizeof(T);
  transpose_words(rows, in.in / per_word, static_cast<uint32_t*>(out));
  return in.in / per_word * per_word;
}

// Of the row's magnitudes the largest; nan if one is not finite.
template <class T>
float largest_magnitude(const T* row, int in) {
  Vec most = zero(), strange = zero();
  for (int k = 0; k < in; k += kLanes) {
    const Vec w = in - k >= kLanes ? load(row + k) : load_first(row + k, in - k);
    most = max(max(w, zero() - w), most);
    strange = fma(w, zero(), strange);
  }
  return largest(most) + sum(strange);
}

// The nearest whole number of w / scale, ties to even; where products are of bf16 pairs as sign and
// magnitude. 0 where that is no number.
inline int8_t int8_code(float w, float scale) {
  float ratio = w / scale;
  ratio = ratio < 127.0f ? ratio : 127.0f;
  ratio = ratio > -127.0f ? ratio : -127.0f;
  const int code = static_cast<int>(ratio + 12582912.0f - 12582912.0f);  // 1.5 x 2^23: rounds
  return static_cast<int8_t>(kHasPairs && code < 0 ? 128 - code : code);
}

template <class T>
void pack_int8_block(const Rows<T>& in, int block, int8_t* out, float* scales) {
  const int depth = padded_in(kI8, in.in);
  std::vector<int8_t> codes(depth);
  for (int lane = 0; lane < kBlock; ++lane) {
    const T* row = in.row(block * kBlock + lane);
    const float scale = row ? largest_magnitude(row, in.in) / 127.0f : 0.0f;
    scales[block * kBlock + lane] = scale;
    const bool is_usable = scale > 0.0f;
    for (int k = 0; k < in.in && is_usable; ++k) codes[k] = int8_code(to_float(row[k]), scale);
    for (int k = 0; k < depth; ++k)
      out[packed_offset(kI8, k, lane)] = is_usable ? codes[k] : int8_t{0};
  }
}

template <class T, class Element>
void pack_float_block(const Rows<T>& in, Kind kind, int block, Element* out) {
  const int moved = move_block(in, kind, block, out);
  for (int lane = 0; lane < kBlock; ++lane) {
    const T* row = in.row(block * kBlock + lane);
    for (int k = moved; k < padded_in(kind, in.in); ++k)
      set(&out[packed_offset(kind, k, lane)], row && k < in.in ? to_float(row[k]) : 0.0f);
  }
}

template <class T>
void pack_block(const Rows<T>& in, Kind kind, int block, void* packed, float* scales) {
  void* out = static_cast<char*>(packed) + block_bytes(kind, in.in) * block;
  if (kind == kF32) pack_float_block(in, kind, block, static_cast<float*>(out));
  if (kind == kBF16) pack_float_block(in, kind, block, static_cast<bf16*>(out));
  if (kind == kI8) pack_int8_block(in, block, static_cast<int8_t*>(out), scales);
}

// Writes packed_bytes(kind, out, in) at `packed`, and for kI8 padded_out(out) scales.
template <class T>
void pack(ThreadPool& pool, const Rows<T>& in, Kind kind, void* packed, float* scales) {
  pool.run(padded_out(in.out) / kBlock,
           [&](int block, int) { pack_block(in, kind, block, packed, scales); });
}

}  // namespace hostelry
