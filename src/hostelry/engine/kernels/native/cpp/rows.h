// What a layer does to one row outside of its products.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "vectors.h"

namespace hostelry {

inline Vec load_upto(const float* p, int count) {
  return count >= kLanes ? load(p) : load_first(p, count);
}
inline Vec load_upto(const bf16* p, int count) {
  return count >= kLanes ? load(p) : load_first(p, count);
}

template <class Element>
inline void store_upto(Element* p, Vec a, int count) {
  if (count >= kLanes) return store(p, a);
  store_first(p, a, count);
}

// 1 / sqrt(mean(x^2) + eps)
inline float inverse_rms(const float* x, int count, float eps) {
  Vec squares = zero();
  for (int at = 0; at < count; at += kLanes) {
    const Vec part = load_upto(x + at, count - at);
    squares = fma(part, part, squares);
  }
  return 1.0f / std::sqrt(sum(squares) / float(count) + eps);
}

// y = x / rms(x) * weight; y may be x. Source: RMSNorm, arXiv:1910.07467.
template <class Element>
inline void rms_norm(const float* x, const float* weight, int count, float eps, Element* y) {
  const Vec inverse = splat(inverse_rms(x, count, eps));
  for (int at = 0; at < count; at += kLanes) {
    const int left = count - at;
    store_upto(y + at, load_upto(x + at, left) * inverse * load_upto(weight + at, left), left);
  }
}

inline void add_row(const float* x, int count, float* y) {
  for (int at = 0; at < count; at += kLanes) {
    const int left = count - at;
    store_upto(y + at, load_upto(y + at, left) + load_upto(x + at, left), left);
  }
}

// Element i turns with element i + count / 2. Source: RoFormer, arXiv:2104.09864.
inline void rotate(const float* cos, const float* sin, int count, float* x) {
  const int half = count / 2;
  for (int at = 0; at < half; at += kLanes) {
    const int left = half - at;
    const Vec c = load_upto(cos + at, left), s = load_upto(sin + at, left);
    const Vec low = load_upto(x + at, left), high = load_upto(x + half + at, left);
    store_upto(x + at, low * c - high * s, left);
    store_upto(x + half + at, high * c + low * s, left);
  }
}

inline Vec silu(Vec x) { return x / (splat(1.0f) + exp(zero() - x)); }

// Source: arXiv:1606.08415, the form with tanh; tanh(z) = 1 - 2 / (e^2z + 1).
inline Vec gelu_tanh(Vec x) {
  const Vec z = splat(0.7978845608f) * fma(splat(0.044715f) * x * x, x, x);
  const Vec tanh = splat(1.0f) - splat(2.0f) / (exp(z + z) + splat(1.0f));
  return splat(0.5f) * x * (splat(1.0f) + tanh);
}

// y = act(gate) * up
template <class Element>
inline void gated(const float* gate, const float* up, int count, bool gelu, Element* y) {
  for (int at = 0; at < count; at += kLanes) {
    const int left = count - at;
    const Vec g = load_upto(gate + at, left);
    store_upto(y + at, (gelu ? gelu_tanh(g) : silu(g)) * load_upto(up + at, left), left);
  }
}

// The largest of a part of a row, where the part begins, and whether all of it is finite.
struct RowMaximum {
  float value;
  int64_t column;
  bool finite;
};

inline RowMaximum row_maximum(const float* x, int count, int64_t column) {
  Vec most = splat(-INFINITY), spread = zero();
  for (int at = 0; at < count; at += kLanes) {
    // The last vector is whole and overlaps where it can: no value is made up.
    const Vec part = count >= kLanes ? load(x + std::min(at, count - kLanes)) : splat(x[0]);
    most = max(part, most);
    spread = spread + (part - part);  // not zero where a value is not finite
  }
  float value = largest(most), rest = sum(spread);
  for (int at = 0; count < kLanes && at < count; ++at) {
    value = x[at] > value ? x[at] : value;
    rest += x[at] - x[at];
  }
  return {value, column, rest == 0.0f};
}

}  // namespace hostelry
