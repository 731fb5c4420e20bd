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
  alignas(64) float sums[kMaxQueries][kMaxHeadDim];
  float most[kMaxQueries];
  float total[kMaxQueries];
  alignas(64) Element keys[kBlockGroups][kMaxHeadDim * kGroupTokens];
  alignas(64) Element values[kBlockGroups][kMaxHeadDim * kGroupTokens];
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

// Groups of positions, and those that are wanted next (or null), which come to the cache meanwhile.
template <class Element>
struct Block {
  const TokenGroup<Element>* groups;
  const TokenGroup<Element>* next;
  int num_groups;
  int head_dim;
};

// Products of kQueries queries with the keys of kGroups groups.
template <int kQueries, int kGroups, class Element>
inline void score_tile(const float* const* queries, const Block<Element>& block, float scale,
                       float (*scores)[kBlockTokens]) {
  const TokenGroup<Element>* groups = block.groups;
  Vec sums[kQueries][kGroups];
  for (int q = 0; q < kQueries; ++q)
    for (int g = 0; g < kGroups; ++g) sums[q][g] = zero();
  for (int d = 0; d < block.head_dim; ++d) {
    if (block.next)
      for (int g = 0; g < kGroups; ++g)
        __builtin_prefetch(block.next[g].keys + int64_t(d) * block.next[g].key_stride);
    Vec keys[kGroups];
    for (int g = 0; g < kGroups; ++g)
      keys[g] = load(groups[g].keys + int64_t(d) * groups[g].key_stride);
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

template <int kQueries, class Element>
inline void score_groups(const float* const* queries, const Block<Element>& block, float scale,
                         float (*scores)[kBlockTokens]) {
  switch (block.num_groups) {
    case 4: return score_tile<kQueries, 4>(queries, block, scale, scores);
    case 3: return score_tile<kQueries, 3>(queries, block, scale, scores);
    case 2: return score_tile<kQueries, 2>(queries, block, scale, scores);
    default: return score_tile<kQueries, 1>(queries, block, scale, scores);
  }
}

// `a` in the lanes from `begin` up to `end`, `b` elsewhere.
inline Vec between(Vec lane, int begin, int end, Vec a, Vec b) {
  return where_less(lane, splat(float(begin)), b, where_less(lane, splat(float(end)), a, b));
}

inline Vec lane_numbers() {
  alignas(64) static const float kNumbers[kLanes] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                     8, 9, 10, 11, 12, 13, 14, 15};
  return load(kNumbers);
}

// Turns the scores of positions [begin, end) of a block into weights, all others into zero; returns
// the factor by which what was summed before shrinks.
inline float weigh(float* scores, int begin, int end, float& most, float& total) {
  const Vec lane = lane_numbers(), lowest = splat(-std::numeric_limits<float>::infinity());
  Vec highest = lowest;
  for (int at = 0; at < kBlockTokens; at += kLanes)
    highest = max(highest, between(lane, begin - at, end - at, load(scores + at), lowest));
  const float before = most;
  most = std::max(before, largest(highest));
  Vec added = zero();
  for (int at = 0; at < kBlockTokens; at += kLanes) {
    const Vec weights = exp(load(scores + at) - splat(most));
    const Vec kept = between(lane, begin - at, end - at, weights, zero());
    store(scores + at, kept);
    added = added + kept;
  }
  alignas(64) float lanes[kLanes];
  store(lanes, exp(splat(before - most)));
  const bool is_first = before == -std::numeric_limits<float>::infinity();
  const float factor = is_first ? 0.0f : lanes[0];
  total = fma(total, factor, sum(added));
  return factor;
}

// sums = sums * factor + weights * values of lanes [begin, end), 16 * kVectors dimensions at once;
// a single vector may be cut short.
template <int kQueries, int kVectors, class Element>
inline void add_values(const float (*weights)[kBlockTokens], const Block<Element>& block,
                       int begin, int end, const float* factors, int at,
                       float (*sums)[kMaxHeadDim]) {
  const int head_dim = block.head_dim;
  Vec out[kQueries][kVectors];
  for (int q = 0; q < kQueries; ++q)
    for (int v = 0; v < kVectors; ++v)
      out[q][v] = load(sums[q] + at + 16 * v) * splat(factors[q]);
  for (int t = begin; t < end; ++t) {
    const int64_t offset = int64_t(t % kGroupTokens) * head_dim + at;
    const Element* row = block.groups[t / kGroupTokens].values + offset;
    if (block.next)
      for (int v = 0; v < kVectors; ++v)
        __builtin_prefetch(block.next[t / kGroupTokens].values + offset + 16 * v);
    Vec values[kVectors];
    for (int v = 0; v < kVectors; ++v)
      values[v] = kVectors > 1 ? load(row + 16 * v) : load_upto(row, head_dim - at);
    for (int q = 0; q < kQueries; ++q) {
      const Vec weight = splat(weights[q][t]);
      for (int v = 0; v < kVectors; ++v) out[q][v] = fma(weight, values[v], out[q][v]);
    }
  }
  for (int q = 0; q < kQueries; ++q)
    for (int v = 0; v < kVectors; ++v) store(sums[q] + at + 16 * v, out[q][v]);
}

template <int kQueries, class Element>
inline void add_value_rows(const float (*weights)[kBlockTokens], const Block<Element>& block,
                           int begin, int end, const float* factors,
                           float (*sums)[kMaxHeadDim]) {
  int at = 0;
  for (; at + 64 <= block.head_dim; at += 64)
    add_values<kQueries, 4>(weights, block, begin, end, factors, at, sums);
  for (; at < block.head_dim; at += 16)
    add_values<kQueries, 1>(weights, block, begin, end, factors, at, sums);
}

// One block for kQueries queries from number `query` on.
template <int kQueries, class Element>
inline void attend_block(const Queries& queries, int query, int start, const Block<Element>& block,
                         float scale, AttentionScratch<Element>& scratch) {
  float (*scores)[kBlockTokens] = scratch.scores + query;
  score_groups<kQueries>(queries.vectors + query, block, scale, scores);
  int begin[kQueries], end[kQueries];
  float factors[kQueries];
  bool alike = true;
  for (int q = 0; q < kQueries; ++q) {
    begin[q] = std::max(queries.first[query + q] - start, 0);
    end[q] = std::min(queries.last[query + q] + 1 - start, kBlockTokens);
    alike = alike && begin[q] == begin[0] && end[q] == end[0];
    if (begin[q] >= end[q]) continue;  // nothing of the block is seen
    factors[q] = weigh(scores[q], begin[q], end[q], scratch.most[query + q],
                       scratch.total[query + q]);
  }
  if (alike) {
    if (begin[0] < end[0])
      add_value_rows<kQueries>(scores, block, begin[0], end[0], factors, scratch.sums + query);
    return;
  }
  for (int q = 0; q < kQueries; ++q)
    if (begin[q] < end[q])
      add_value_rows<1>(scores + q, block, begin[q], end[q], factors + q,
                        scratch.sums + query + q);
}

template <class Element>
inline void attend_queries(const Queries& queries, int query, int start,
                           const Block<Element>& block, float scale,
                           AttentionScratch<Element>& scratch) {
  switch (queries.count - query) {
    case 3: return attend_block<3>(queries, query, start, block, scale, scratch);
    case 2: return attend_block<2>(queries, query, start, block, scale, scratch);
    case 1: return attend_block<1>(queries, query, start, block, scale, scratch);
    default: return attend_block<4>(queries, query, start, block, scale, scratch);
  }
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
  for (int q = 0; q < queries.count; ++q) {
    scratch.most[q] = -std::numeric_limits<float>::infinity();
    scratch.total[q] = 0.0f;
    std::fill(scratch.sums[q], scratch.sums[q] + round_up(span.head.head_dim, kLanes), 0.0f);
  }
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
    Block<Element> block{groups, in_place ? next : nullptr, count, span.head.head_dim};
    for (int query = 0; query < queries.count; query += 4) {
      attend_queries(queries, query, start, block, scale, scratch);
      block.next = nullptr;  // once is enough
    }
  }
}

}  // namespace hostelry
