// Sixteen floats as one value: the only place that knows how this CPU computes on many at once.
//
// Every operation is one IEEE operation a lane, in the same order on every path, so that a result
// depends neither on the number of lanes in use nor on where a compiler would contract (it may not:
// the build passes -ffp-contract=off). fma() rounds once where the CPU has it and twice elsewhere.

#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

namespace hostelry {

constexpr int kLanes = 16;

// The upper half of a float.
struct bf16 {
  uint16_t bits;
};

inline uint32_t bits_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline float float_of(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline float to_float(bf16 value) { return float_of(uint32_t{value.bits} << 16); }
inline float to_float(float value) { return value; }

// Rounded to nearest, ties to even; a nan stays a nan.
inline bf16 to_bf16(float value) {
  uint32_t bits = bits_of(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((bits >> 16) | 0x40)};
  bits += 0x7fffu + ((bits >> 16) & 1);
  return {static_cast<uint16_t>(bits >> 16)};
}

inline void set(float* p, float value) { *p = value; }
inline void set(bf16* p, float value) { *p = to_bf16(value); }

inline float fma(float a, float b, float c) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}

#if defined(__AVX512F__)

struct Vec {
  __m512 v;
};

inline Vec splat(float x) { return {_mm512_set1_ps(x)}; }
inline Vec load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline void store(float* p, Vec a) { _mm512_storeu_ps(p, a.v); }
inline Vec operator+(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
inline Vec operator-(Vec a, Vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline Vec operator*(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline Vec operator/(Vec a, Vec b) { return {_mm512_div_ps(a.v, b.v)}; }
inline Vec fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
// The second operand where either is nan, as x86 has it.
inline Vec max(Vec a, Vec b) { return {_mm512_max_ps(a.v, b.v)}; }
inline Vec min(Vec a, Vec b) { return {_mm512_min_ps(a.v, b.v)}; }
inline Vec round(Vec a) { return {_mm512_roundscale_ps(a.v, 8)}; }

inline __m512 widen(__m256i halves) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

inline __m256i narrow(__m512 a) {
  const __m512i bits = _mm512_castps_si512(a);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i up = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
  const __mmask16 nan = _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
  const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_mask_blend_epi32(nan, up, quiet), 16));
}

inline Vec load(const bf16* p) {
  return {widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
inline void store(bf16* p, Vec a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow(a.v));
}

// 2^n for whole n in [-126, 127].
inline Vec power_of_two(Vec n) {
  const __m512i exponent = _mm512_add_epi32(_mm512_cvtps_epi32(n.v), _mm512_set1_epi32(127));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(exponent, 23))};
}

// a where x < limit, b elsewhere (and where x is nan).
inline Vec where_less(Vec x, Vec limit, Vec a, Vec b) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(x.v, limit.v, _CMP_LT_OQ), b.v, a.v)};
}

inline Vec load_first(const float* p, int count) {
  return {_mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1), p)};
}
inline void store_first(float* p, Vec a, int count) {
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << count) - 1), a.v);
}

#else

#if defined(__AVX2__)

struct Vec {
  __m256 lo, hi;
};

inline Vec splat(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline Vec load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void store(float* p, Vec a) {
  _mm256_storeu_ps(p, a.lo);
  _mm256_storeu_ps(p + 8, a.hi);
}
inline Vec operator+(Vec a, Vec b) {
  return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
inline Vec operator-(Vec a, Vec b) {
  return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
inline Vec operator*(Vec a, Vec b) {
  return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
inline Vec operator/(Vec a, Vec b) {
  return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}
inline Vec fma(Vec a, Vec b, Vec c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
inline Vec max(Vec a, Vec b) {
  return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}
inline Vec min(Vec a, Vec b) {
  return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)};
}
inline Vec round(Vec a) { return {_mm256_round_ps(a.lo, 8), _mm256_round_ps(a.hi, 8)}; }

inline __m256 widen(__m128i halves) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

inline __m128i narrow(__m256 a) {
  const __m256i bits = _mm256_castps_si256(a);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i up = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256i half = _mm256_srli_epi32(_mm256_blendv_epi8(up, quiet, nan), 16);
  return _mm_packus_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}

inline Vec load(const bf16* p) {
  const __m128i* halves = reinterpret_cast<const __m128i*>(p);
  return {widen(_mm_loadu_si128(halves)), widen(_mm_loadu_si128(halves + 1))};
}
inline void store(bf16* p, Vec a) {
  __m128i* halves = reinterpret_cast<__m128i*>(p);
  _mm_storeu_si128(halves, narrow(a.lo));
  _mm_storeu_si128(halves + 1, narrow(a.hi));
}

inline __m256 power_of_two(__m256 n) {
  const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
  return _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23));
}
inline Vec power_of_two(Vec n) { return {power_of_two(n.lo), power_of_two(n.hi)}; }

inline Vec where_less(Vec x, Vec limit, Vec a, Vec b) {
  return {_mm256_blendv_ps(b.lo, a.lo, _mm256_cmp_ps(x.lo, limit.lo, _CMP_LT_OQ)),
          _mm256_blendv_ps(b.hi, a.hi, _mm256_cmp_ps(x.hi, limit.hi, _CMP_LT_OQ))};
}

#else  // any CPU: the vector types that gcc and clang lower to whatever there is

typedef float Floats __attribute__((vector_size(64)));
typedef int32_t Ints __attribute__((vector_size(64)));
typedef uint32_t Words __attribute__((vector_size(64)));
typedef uint16_t Halves __attribute__((vector_size(32)));

struct Vec {
  Floats v;
};

inline Vec splat(float x) { return {Floats{} + x}; }
inline Vec load(const float* p) {
  Vec a;
  std::memcpy(&a.v, p, sizeof a.v);
  return a;
}
inline void store(float* p, Vec a) { std::memcpy(p, &a.v, sizeof a.v); }
inline Vec operator+(Vec a, Vec b) { return {a.v + b.v}; }
inline Vec operator-(Vec a, Vec b) { return {a.v - b.v}; }
inline Vec operator*(Vec a, Vec b) { return {a.v * b.v}; }
inline Vec operator/(Vec a, Vec b) { return {a.v / b.v}; }
inline Vec fma(Vec a, Vec b, Vec c) {
#if defined(__ARM_FEATURE_FMA)
  for (int i = 0; i < kLanes; ++i) c.v[i] = __builtin_fmaf(a.v[i], b.v[i], c.v[i]);
  return c;
#else
  return {a.v * b.v + c.v};
#endif
}
inline Vec max(Vec a, Vec b) { return {a.v > b.v ? a.v : b.v}; }
inline Vec min(Vec a, Vec b) { return {a.v < b.v ? a.v : b.v}; }
// Right below 2^22, beyond which exp() has no use for it.
inline Vec round(Vec a) {
  const Floats magic = Floats{} + 12582912.0f;
  return {(a.v + magic) - magic};
}

inline Vec load(const bf16* p) {
  Halves halves;
  std::memcpy(&halves, p, sizeof halves);
  return {(Floats)(__builtin_convertvector(halves, Words) << 16)};
}
inline void store(bf16* p, Vec a) {
  const Words bits = (Words)a.v;
  const Words up = bits + 0x7fffu + ((bits >> 16) & 1u);
  const Words chosen = a.v == a.v ? up : (bits | 0x400000u);
  const Halves halves = __builtin_convertvector(chosen >> 16, Halves);
  std::memcpy(p, &halves, sizeof halves);
}

inline Vec power_of_two(Vec n) {
  return {(Floats)((__builtin_convertvector(n.v, Ints) + 127) << 23)};
}

inline Vec where_less(Vec x, Vec limit, Vec a, Vec b) { return {x.v < limit.v ? a.v : b.v}; }

#endif

inline Vec load_first(const float* p, int count) {
  float lanes[kLanes] = {};
  std::memcpy(lanes, p, count * sizeof(float));
  return load(lanes);
}
inline void store_first(float* p, Vec a, int count) {
  float lanes[kLanes];
  store(lanes, a);
  std::memcpy(p, lanes, count * sizeof(float));
}

#endif

inline Vec zero() { return splat(0.0f); }

// The first `count` (0 to 16) of what is at p; the other lanes are zero and are not read.
inline Vec load_first(const bf16* p, int count) {
  bf16 lanes[kLanes] = {};
  std::memcpy(lanes, p, count * sizeof(bf16));
  return load(lanes);
}
inline void store_first(bf16* p, Vec a, int count) {
  bf16 lanes[kLanes];
  store(lanes, a);
  std::memcpy(p, lanes, count * sizeof(bf16));
}

// All lanes added: i and i + 8, then i and i + 4, i + 2, i + 1.
// largest: a nan lane may or may not win.
#if defined(__AVX2__)

inline __m256 lower_half(Vec a) {
#if defined(__AVX512F__)
  return _mm512_castps512_ps256(a.v);
#else
  return a.lo;
#endif
}

inline __m256 upper_half(Vec a) {
#if defined(__AVX512F__)
  return _mm512_extractf32x8_ps(a.v, 1);
#else
  return a.hi;
#endif
}

inline float sum(Vec a) {
  const __m256 eight = _mm256_add_ps(lower_half(a), upper_half(a));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

inline float largest(Vec a) {
  const __m256 eight = _mm256_max_ps(lower_half(a), upper_half(a));
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

#else

inline float sum(Vec a) {
  float lanes[kLanes];
  store(lanes, a);
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) lanes[i] = lanes[i] + lanes[i + width];
  return lanes[0];
}

inline float largest(Vec a) {
  float lanes[kLanes];
  store(lanes, a);
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int i = 0; i < width; ++i)
      lanes[i] = lanes[i] > lanes[i + width] ? lanes[i] : lanes[i + width];
  return lanes[0];
}

#endif

// What exp() has in common: n is the whole number nearest to x / ln(2), the result e^(x - n ln(2)).
// |r| <= ln(2) / 2 in two steps (Cody and Waite), then a polynomial of degree 7 (the Taylor series:
// its remainder there is 5e-9 relative).
inline Vec exp_reduced(Vec x, Vec n) {
  Vec r = fma(n, splat(-0.693145752f), x);
  r = fma(n, splat(-1.42860677e-6f), r);
  Vec p = splat(1.98412698e-4f);
  p = fma(p, r, splat(1.38888889e-3f));
  p = fma(p, r, splat(8.33333333e-3f));
  p = fma(p, r, splat(4.16666667e-2f));
  p = fma(p, r, splat(1.66666667e-1f));
  p = fma(p, r, splat(0.5f));
  p = fma(p, r, splat(1.0f));
  return fma(p, r, splat(1.0f));
}

// e^x to 2 units in the last place; 0 below -87.3, inf above 88.7, nan for nan.
inline Vec exp(Vec x) {
  const Vec lowest = splat(-87.33654f), highest = splat(88.72283f);
  const Vec inside = max(min(highest, x), lowest);  // a nan is in x, the second operand, of neither
  const Vec n = round(inside * splat(1.44269504f));
  const Vec p = exp_reduced(inside, n);
  // In two factors, since 2^128 is no float though e^88.7 is one.
  const Vec half = round(n * splat(0.5f) - splat(0.25f));
  Vec y = p * power_of_two(half) * power_of_two(n - half);
  y = where_less(x, lowest, zero(), y);
  y = where_less(highest, x, splat(INFINITY), y);
  return where_less(x, splat(INFINITY), y, x + x);  // inf and nan give themselves; -inf was less
}

// The same for what is no greater than zero, or nan: a softmax's differences to the largest.
inline Vec exp_below(Vec x) {
  const Vec lowest = splat(-87.33654f);
  const Vec inside = max(lowest, x);  // the second operand, so that nan stays
  const Vec n = round(inside * splat(1.44269504f));
  const Vec y = exp_reduced(inside, n) * power_of_two(n);
  return where_less(x, lowest, zero(), y);
}

}  // namespace hostelry
