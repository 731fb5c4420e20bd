// Paged attention of some query rows of one sequence over one key-value head.
//
// Online softmax over blocks of 64 positions that start at multiples of 64. A query leaves out a
// block of which it sees nothing, adds products in the order of dimensions and values in the order
// of positions, and takes masked scores by selection: its result depends on its own position and
// on what it sees, not on the rows computed with it, and what lies beyond (nan included) is never
// added.
//
// Source: online softmax, Milakov and Gimelshein 2018 (arXiv:1805.02867).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "gemm.h"
#include "rows.h"
#include "vectors.h"

namespace hostelry {

constexpr int kGroupTokens = 16;   // one vector of scores
constexpr int kBlockTokens = 64;   // what one turn of the softmax takes in
constexpr int kBlockGroups = kBlockTokens / kGroupTokens;
constexpr int kMaxQueries = 48;    // queries (rows times heads) of one task
constexpr int kMaxHeadDim = 256;
// Queries whose sums against a whole block, or 64 dimensions, registers hold.
#if defined(__AVX512F__)
constexpr int kTileQueries = 6;
#else
constexpr int kTileQueries = 4;
#endif
static_assert(kMaxQueries % kLanes == 0);

// Queries that share keys. Query i sees positions [first[i], last[i]].
struct Queries {
  int count = 0;
  const float* vectors[kMaxQueries];
  int first[kMaxQueries];
  int last[kMaxQueries];
};

// One key-value head of one sequence: where its pages' keys (D, S) and values (S, D) lie.
template <class Element>
struct HeadPages {
  const Element* keys;     // of page 0 of the pool
  const Element* values;
  const int32_t* pages;    // the sequence's page numbers
  int64_t page_elements;
  int page_tokens;
  int head_dim;
};

// One thread's working memory.
template <class Element>
struct AttentionScratch {
  alignas(64) float scores[kMaxQueries][kBlockTokens];
  alignas(64) float sums[kMaxQueries * kMaxHeadDim];  // rows of stride() floats, without gaps
  alignas(64) float most[kMaxQueries];
  float total[kMaxQueries];
  alignas(64) Element keys[kBlockGroups][kMaxHeadDim * kGroupTokens];
  alignas(64) Element values[kBlockGroups][kMaxHeadDim * kGroupTokens];
  alignas(64) float wide_keys[kMaxHeadDim * kBlockTokens];
  alignas(64) float wide_values[kMaxHeadDim * kBlockTokens];

  static int stride(int head_dim) { return round_up(head_dim, kLanes); }
};

// 16 consecutive positions: dimension d of their keys at keys + d * key_stride, value of position t
// at values + t * head_dim.
template <class Element>
struct TokenGroup {
  const Element* keys;
  const Element* values;
  int key_stride;
};

// Positions [start, start + 16) within [begin, end), copied together unless a page holds them all.
template <class Element>
inline TokenGroup<Element> token_group(const HeadPages<Element>& head, int start, int begin,
                                       int end, Element* key_copy, Element* value_copy) {
  const int tokens = head.page_tokens, width = head.head_dim;
  if (start + kGroupTokens <= begin) start = begin / kGroupTokens * kGroupTokens;  // masked anyway
  if (tokens % kGroupTokens == 0) {
    const int64_t base = head.pages[start / tokens] * head.page_elements;
    const int slot = start % tokens;
    return {head.keys + base + slot, head.values + base + int64_t(slot) * width, tokens};
  }
  for (int lane = 0; lane < kGroupTokens; ++lane) {
    // Vec outside repeat a position inside: they are masked, and stay within the pages.
    const int position = std::clamp(start + lane, begin, end - 1);
    const int64_t base = head.pages[position / tokens] * head.page_elements;
    const int slot = position % tokens;
    const Element* keys = head.keys + base + slot;
    for (int d = 0; d < width; ++d) key_copy[d * kGroupTokens + lane] = keys[int64_t(d) * tokens];
    const Element* values = head.values + base + int64_t(slot) * width;
    std::copy(values, values + width, value_copy + lane * width);
  }
  return {key_copy, value_copy, kGroupTokens};
}

// Groups of positions where they lie, and those that are wanted next (or null), which come to the
// cache meanwhile.
template <class Element>
struct PagedBlock {
  const TokenGroup<Element>* groups;
  const TokenGroup<Element>* next;
  int num_groups;
  int head_dim;

  Vec key(int group, int d) const {
    return load(groups[group].keys + int64_t(d) * groups[group].key_stride);
  }
  // Dimensions [at, at + 16) of the value at t; those beyond the end are zero.
  Vec value(int t, int at) const {
    const Element* row = groups[t / kGroupTokens].values + int64_t(t % kGroupTokens) * head_dim;
    return load_upto(row + at, head_dim - at);
  }
  // The same where all 16 are known to exist.
  Vec whole_value(int t, int at) const {
    return load(groups[t / kGroupTokens].values + int64_t(t % kGroupTokens) * head_dim + at);
  }
  void fetch_key(int group, int d) const {
    if (next) __builtin_prefetch(next[group].keys + int64_t(d) * next[group].key_stride);
  }
  void fetch_value(int t, int at) const {
    if (next)
      __builtin_prefetch(next[t / kGroupTokens].values + int64_t(t % kGroupTokens) * head_dim + at);
  }
};

// A block as floats side by side: worth its making where many queries read it.
struct WideBlock {
  const float* keys;    // (D, kBlockTokens)
  const float* values;  // (kBlockTokens, stride)
  int num_groups;
  int head_dim;
  int stride;

  Vec key(int group, int d) const { return load(keys + d * kBlockTokens + group * kGroupTokens); }
  Vec value(int t, int at) const { return load(values + t * stride + at); }
  Vec whole_value(int t, int at) const { return value(t, at); }
  void fetch_key(int, int) const {}
  void fetch_value(int, int) const {}
};

template <class Element>
inline WideBlock widen_block(const PagedBlock<Element>& block, float* keys, float* values) {
  const int width = block.head_dim, stride = round_up(width, kLanes);
  for (int g = 0; g < block.num_groups; ++g) {
    for (int d = 0; d < width; ++d) {
      block.fetch_key(g, d);
      store(keys + d * kBlockTokens + g * kGroupTokens, block.key(g, d));
    }
    for (int t = g * kGroupTokens; t < (g + 1) * kGroupTokens; ++t)
      for (int at = 0; at < width; at += kLanes) {
        block.fetch_value(t, at);
        store(values + t * stride + at, block.value(t, at));
      }
  }
  return {keys, values, block.num_groups, width, stride};
}

// Products of kQueries queries with the keys of kGroups groups.
template <int kQueries, int kGroups, class Block>
inline void score_tile(const float* const* queries, const Block& block, float scale,
                       float (*scores)[kBlockTokens]) {
  Vec sums[kQueries][kGroups];
  for (int q = 0; q < kQueries; ++q)
    for (int g = 0; g < kGroups; ++g) sums[q][g] = zero();
  for (int d = 0; d < block.head_dim; ++d) {
    Vec keys[kGroups];
    for (int g = 0; g < kGroups; ++g) {
      block.fetch_key(g, d);
      keys[g] = block.key(g, d);
    }
    for (int q = 0; q < kQueries; ++q) {
      const Vec query = splat(queries[q][d]);
      for (int g = 0; g < kGroups; ++g) sums[q][g] = fma(query, keys[g], sums[q][g]);
    }
  }
  const Vec factor = splat(scale);
  for (int q = 0; q < kQueries; ++q)
    for (int g = 0; g < kGroups; ++g)
      store(scores[q] + g * kGroupTokens, sums[q][g] * factor);
}

template <int kQueries, class Block>
inline void score_groups(const float* const* queries, const Block& block, float scale,
                         float (*scores)[kBlockTokens]) {
  switch (block.num_groups) {
    case 4: return score_tile<kQueries, 4>(queries, block, scale, scores);
    case 3: return score_tile<kQueries, 3>(queries, block, scale, scores);
    case 2: return score_tile<kQueries, 2>(queries, block, scale, scores);
    default: return score_tile<kQueries, 1>(queries, block, scale, scores);
  }
}

// What of a block each query sees, [begin, end), and the factor by which its sums shrink.
struct Turn {
  int begin[kMaxQueries], end[kMaxQueries];
  alignas(64) float factors[kMaxQueries];
};

// `a` in the lanes from `begin` up to `end`, `b` elsewhere.
inline Vec between(Vec lane, int begin, int end, Vec a, Vec b) {
  return where_less(lane, splat(float(begin)), b, where_less(lane, splat(float(end)), a, b));
}

inline Vec lane_numbers() {
  alignas(64) static const float kNumbers[kLanes] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                     8, 9, 10, 11, 12, 13, 14, 15};
  return load(kNumbers);
}

// The largest score of positions [begin, end) of a block. Most blocks are seen whole, which needs
// no selection (here and below).
inline float highest_score(const float* scores, int begin, int end) {
  const Vec lane = lane_numbers(), lowest = splat(-std::numeric_limits<float>::infinity());
  const bool whole = begin == 0 && end == kBlockTokens;
  Vec highest = lowest;
  for (int at = 0; at < kBlockTokens; at += kLanes) {
    const Vec part = load(scores + at);
    highest = max(highest, whole ? part : between(lane, begin - at, end - at, part, lowest));
  }
  return largest(highest);
}

// Turns the scores of positions [begin, end) of a block into weights, all others into zero; returns
// the weights' sum.
inline float weigh(float* scores, int begin, int end, float most) {
  const Vec lane = lane_numbers(), largest = splat(most);
  const bool whole = begin == 0 && end == kBlockTokens;
  Vec added = zero();
  for (int at = 0; at < kBlockTokens; at += kLanes) {
    const Vec weights = exp_below(load(scores + at) - largest);
    const Vec kept = whole ? weights : between(lane, begin - at, end - at, weights, zero());
    store(scores + at, kept);
    added = added + kept;
  }
  return sum(added);
}

// One step of the online softmax, for all queries: scores into weights.
template <class Element>
inline void weigh_queries(const Queries& queries, int start, AttentionScratch<Element>& scratch,
                          Turn& turn) {
  const Vec least = splat(std::numeric_limits<float>::lowest());
  alignas(64) float before[kMaxQueries];
  std::copy(scratch.most, scratch.most + round_up(queries.count, kLanes), before);
  for (int q = 0; q < queries.count; ++q) {
    turn.begin[q] = std::max(queries.first[q] - start, 0);
    turn.end[q] = std::min(queries.last[q] + 1 - start, kBlockTokens);
    if (turn.begin[q] >= turn.end[q]) continue;  // nothing of the block is seen
    scratch.most[q] =
        std::max(before[q], highest_score(scratch.scores[q], turn.begin[q], turn.end[q]));
  }
  // The factors of up to 16 queries at once; nothing was summed before the first block.
  for (int q = 0; q < queries.count; q += kLanes) {
    const Vec was = load(before + q);
    const Vec factor = exp_below(was - load(scratch.most + q));
    store(turn.factors + q, where_less(was, least, zero(), factor));
  }
  for (int q = 0; q < queries.count; ++q)
    if (turn.begin[q] < turn.end[q])
      scratch.total[q] =
          fma(scratch.total[q], turn.factors[q],
              weigh(scratch.scores[q], turn.begin[q], turn.end[q], scratch.most[q]));
}

// sums = sums * factors (unless null) + weights * values of lanes [begin, end), 16 * kVectors
// dimensions at once; a single vector may be cut short.
template <int kQueries, int kVectors, class Block>
inline void add_values(const float (*weights)[kBlockTokens], const Block& block, int begin,
                       int end, const float* factors, int at, float* sums, int stride) {
  Vec out[kQueries][kVectors];
  for (int q = 0; q < kQueries; ++q)
    for (int v = 0; v < kVectors; ++v) {
      out[q][v] = load(sums + q * stride + at + 16 * v);
      if (factors) out[q][v] = out[q][v] * splat(factors[q]);
    }
  for (int t = begin; t < end; ++t) {
    Vec values[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      block.fetch_value(t, at + 16 * v);
      values[v] = kVectors > 1 ? block.whole_value(t, at + 16 * v) : block.value(t, at);
    }
    for (int q = 0; q < kQueries; ++q) {
      const Vec weight = splat(weights[q][t]);
      for (int v = 0; v < kVectors; ++v) out[q][v] = fma(weight, values[v], out[q][v]);
    }
  }
  for (int q = 0; q < kQueries; ++q)
    for (int v = 0; v < kVectors; ++v) store(sums + q * stride + at + 16 * v, out[q][v]);
}

template <int kQueries, class Block>
inline void add_value_rows(const float (*weights)[kBlockTokens], const Block& block, int begin,
                           int end, const float* factors, float* sums, int stride) {
  int at = 0;
  for (; at + 64 <= block.head_dim; at += 64)
    add_values<kQueries, 4>(weights, block, begin, end, factors, at, sums, stride);
  for (; at < block.head_dim; at += 16)
    add_values<kQueries, 1>(weights, block, begin, end, factors, at, sums, stride);
}

// The values of a block for kQueries queries: together what all of them see, before and after it
// what only some do. Each adds its own in the order of positions.
template <int kQueries, class Block>
inline void add_seen(const float (*weights)[kBlockTokens], const Block& block, const int* begin,
                     const int* end, const float* factors, float* sums, int stride) {
  const int low = *std::max_element(begin, begin + kQueries);
  const int high = *std::min_element(end, end + kQueries);
  if (low >= high) {
    for (int q = 0; q < kQueries; ++q)
      if (begin[q] < end[q])
        add_value_rows<1>(weights + q, block, begin[q], end[q], factors + q, sums + q * stride,
                          stride);
    return;
  }
  float left[kQueries];
  for (int q = 0; q < kQueries; ++q) {
    left[q] = begin[q] < low ? 1.0f : factors[q];
    if (begin[q] < low)
      add_value_rows<1>(weights + q, block, begin[q], low, factors + q, sums + q * stride, stride);
  }
  add_value_rows<kQueries>(weights, block, low, high, left, sums, stride);
  for (int q = 0; q < kQueries; ++q)
    if (high < end[q])
      add_value_rows<1>(weights + q, block, high, end[q], nullptr, sums + q * stride, stride);
}

template <class Block>
inline void score_queries(const Queries& queries, int query, const Block& block, float scale,
                          float (*scores)[kBlockTokens]) {
  const float* const* vectors = queries.vectors + query;
  switch (std::min(queries.count - query, kTileQueries)) {
    case 6: return score_groups<6>(vectors, block, scale, scores);
    case 5: return score_groups<5>(vectors, block, scale, scores);
    case 4: return score_groups<4>(vectors, block, scale, scores);
    case 3: return score_groups<3>(vectors, block, scale, scores);
    case 2: return score_groups<2>(vectors, block, scale, scores);
    default: return score_groups<1>(vectors, block, scale, scores);
  }
}

template <class Block>
inline void add_queries(const Queries& queries, int query, const Block& block, const Turn& turn,
                        const float (*weights)[kBlockTokens], float* sums, int stride) {
  const int *begin = turn.begin + query, *end = turn.end + query;
  const float* factors = turn.factors + query;
  switch (std::min(queries.count - query, kTileQueries)) {
    case 6: return add_seen<6>(weights, block, begin, end, factors, sums, stride);
    case 5: return add_seen<5>(weights, block, begin, end, factors, sums, stride);
    case 4: return add_seen<4>(weights, block, begin, end, factors, sums, stride);
    case 3: return add_seen<3>(weights, block, begin, end, factors, sums, stride);
    case 2: return add_seen<2>(weights, block, begin, end, factors, sums, stride);
    default: return add_seen<1>(weights, block, begin, end, factors, sums, stride);
  }
}

// One block for all queries.
template <class Element, class Block>
inline void attend_block(const Queries& queries, int start, Block block, float scale,
                         AttentionScratch<Element>& scratch) {
  const int stride = scratch.stride(block.head_dim);
  Turn turn;
  for (int query = 0; query < queries.count; query += kTileQueries)
    score_queries(queries, query, block, scale, scratch.scores + query);
  weigh_queries(queries, start, scratch, turn);
  for (int query = 0; query < queries.count; query += kTileQueries)
    add_queries(queries, query, block, turn, scratch.scores + query, scratch.sums + query * stride,
                stride);
}

// What is seen of one key-value head: positions [first, last].
template <class Element>
struct Span {
  HeadPages<Element> head;
  int first, last;

  int start() const { return first / kBlockTokens * kBlockTokens; }

  // Groups of the block from `start` on; returns how many there are.
  int find(int start, AttentionScratch<Element>& scratch, TokenGroup<Element>* groups) const {
    const int count = std::min((last - start) / kGroupTokens + 1, kBlockGroups);
    for (int g = 0; g < count; ++g)
      groups[g] = token_group(head, start + g * kGroupTokens, first, last + 1, scratch.keys[g],
                              scratch.values[g]);
    return count;
  }
};

// Leaves the attention of each query, before its division by `total`, in scratch.sums. `following`
// is what this thread is likely to read next.
template <class Element>
inline void attend(const Queries& queries, const Span<Element>& span,
                   const Span<Element>& following, float scale,
                   AttentionScratch<Element>& scratch) {
  std::fill(scratch.most, scratch.most + kMaxQueries, -std::numeric_limits<float>::infinity());
  std::fill(scratch.total, scratch.total + queries.count, 0.0f);
  std::fill(scratch.sums, scratch.sums + queries.count * scratch.stride(span.head.head_dim), 0.0f);
  // Pages whose tokens must be copied together have no groups to fetch.
  const bool in_place = span.head.page_tokens % kGroupTokens == 0;
  for (int start = span.start(); start <= span.last; start += kBlockTokens) {
    TokenGroup<Element> groups[kBlockGroups], next[kBlockGroups];
    const int count = span.find(start, scratch, groups);
    if (in_place) {
      const bool is_last = start + kBlockTokens > span.last;
      const Span<Element>& from = is_last ? following : span;
      const int found = from.find(is_last ? from.start() : start + kBlockTokens, scratch, next);
      std::fill(next + found, next + kBlockGroups, next[found - 1]);
    }
    const PagedBlock<Element> block{groups, in_place ? next : nullptr, count, span.head.head_dim};
    if (queries.count > kTileQueries) {
      attend_block(queries, start, widen_block(block, scratch.wide_keys, scratch.wide_values),
                   scale, scratch);
    } else {
      attend_block(queries, start, block, scale, scratch);
    }
  }
}

}  // namespace hostelry
