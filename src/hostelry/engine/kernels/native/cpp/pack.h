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

// The offset within a block of weight k of output `lane`.
inline size_t packed_offset(Kind kind, int k, int lane) {
  const bool pairs = kind == kBF16 || (kind == kI8 && kHasPairs);
  return pairs ? size_t(k / 2) * 2 * kBlock + 2 * lane + k % 2 : size_t(k) * kBlock + lane;
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

template <class T>
float largest_magnitude(const T* row, int in) {
  float most = 0.0f;
  for (int k = 0; k < in; ++k) {
    const float magnitude = std::fabs(to_float(row[k]));
    most = magnitude > most ? magnitude : most;
  }
  return most;
}

// The nearest whole number of w / scale, ties to even; nothing where that is no number.
inline int8_t quantized(float w, float scale) {
  const float ratio = scale > 0.0f ? w / scale : 0.0f;
  if (!(std::fabs(ratio) <= 127.5f)) return 0;
  return static_cast<int8_t>(std::min(127.0f, std::max(-127.0f, std::nearbyint(ratio))));
}

template <class T>
void pack_int8_block(const Rows<T>& in, int block, int8_t* out, float* scales) {
  for (int lane = 0; lane < kBlock; ++lane) {
    const T* row = in.row(block * kBlock + lane);
    const float scale = row ? largest_magnitude(row, in.in) / 127.0f : 0.0f;
    scales[block * kBlock + lane] = scale;
    for (int k = 0; k < padded_in(kI8, in.in); ++k)
      out[packed_offset(kI8, k, lane)] =
          row && k < in.in ? quantized(to_float(row[k]), scale) : int8_t{0};
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
