// What Python hands over: a decoder's weights and one step. native/decoder.py has the same fields.
//
// T rows, B sequences, P pages a sequence, S rows with logits, H hidden, D head dimension.
#pragma once

#include <cstdint>

#include "gemm.h"
#include "lora.h"

namespace hostelry {

// As MODULES in kernels/batch.py.
enum Module { kQuery, kKey, kValue, kOut, kGate, kUp, kDown, kNumModules };

// One layer; norms may be null but for input_norm and mlp_norm.
struct LayerWeights {
  const float* input_norm;
  const float* q_norm;
  const float* k_norm;
  const float* attn_out_norm;
  const float* mlp_norm;
  const float* mlp_out_norm;
  const float* cos;  // (positions, D / 2)
  const float* sin;
  PackedWeight modules[kNumModules];
  int32_t window;  // 0: all positions
  int32_t reserved;
};

struct DecoderWeights {
  const LayerWeights* layers;
  const void* embedding;  // (vocabulary, H)
  const float* final_norm;
  PackedWeight lm_head;
  int32_t num_layers, num_heads, num_kv_heads, head_dim;
  int32_t hidden, intermediate, vocabulary, positions;
  int32_t is_bf16;  // elements of the embedding and of the pool; else fp32
  int32_t is_gelu;
  int32_t max_rows;
  float norm_eps, attention_scale, embedding_scale;
};

// One step, as ForwardBatch and PoolTensor in kernels/.
struct StepArguments {
  const int32_t* token_ids;   // T
  const int32_t* positions;   // T
  const int32_t* row_starts;  // B + 1
  const int32_t* lengths;     // B
  const int32_t* pages;       // B x P
  const int32_t* logit_rows;  // S
  const Segment* segments;
  void* pool;
  float* logits;    // S x vocabulary
  int64_t* greedy;  // S, the first largest column of a row
  uint8_t* finite;  // S, whether all of a row is
  int32_t num_rows, num_sequences, pages_per_sequence, num_logit_rows, num_segments;
  int32_t num_pages, page_tokens, reserved;
};

// Why a step was refused: which rule, and where in which array which value broke it.
enum Fault : int32_t {
  kNone,
  kTooManyRows,
  kRowStarts,
  kLength,
  kPosition,
  kToken,
  kPage,
  kLogitRow,
  kSegment,
};

struct Refusal {
  int32_t fault;
  int32_t index;
  int64_t value;
};

inline Refusal check_sequences(const DecoderWeights& weights, const StepArguments& step) {
  const int32_t* starts = step.row_starts;
  if (starts[0] != 0) return {kRowStarts, 0, starts[0]};
  for (int b = 0; b < step.num_sequences; ++b) {
    const int rows = starts[b + 1] - starts[b], length = step.lengths[b];
    if (starts[b + 1] <= starts[b] || starts[b + 1] > step.num_rows)
      return {kRowStarts, b + 1, starts[b + 1]};
    if (length < rows || length > weights.positions) return {kLength, b, length};
    for (int i = 0; i < rows; ++i)
      if (step.positions[starts[b] + i] != length - rows + i)
        return {kPosition, starts[b] + i, step.positions[starts[b] + i]};
    const int num_pages = (length + step.page_tokens - 1) / step.page_tokens;
    if (num_pages > step.pages_per_sequence) return {kLength, b, length};
    for (int i = 0; i < num_pages; ++i) {
      const int page = step.pages[int64_t(b) * step.pages_per_sequence + i];
      if (page < 0 || page >= step.num_pages) return {kPage, b, page};
    }
  }
  if (starts[step.num_sequences] != step.num_rows)
    return {kRowStarts, step.num_sequences, starts[step.num_sequences]};
  return {kNone, 0, 0};
}

inline Refusal check_step(const DecoderWeights& weights, const StepArguments& step) {
  if (step.num_rows > weights.max_rows) return {kTooManyRows, 0, step.num_rows};
  const Refusal refusal = check_sequences(weights, step);
  if (refusal.fault != kNone) return refusal;
  for (int row = 0; row < step.num_rows; ++row)
    if (step.token_ids[row] < 0 || step.token_ids[row] >= weights.vocabulary)
      return {kToken, row, step.token_ids[row]};
  for (int i = 0; i < step.num_logit_rows; ++i)
    if (step.logit_rows[i] < 0 || step.logit_rows[i] >= step.num_rows)
      return {kLogitRow, i, step.logit_rows[i]};
  int row = 0;
  for (int i = 0; i < step.num_segments; ++i) {
    const Segment& segment = step.segments[i];
    if (segment.row_start < row || segment.row_end <= segment.row_start)
      return {kSegment, i, segment.row_start};
    if (segment.row_end > step.num_rows) return {kSegment, i, segment.row_end};
    row = segment.row_end;
  }
  return {kNone, 0, 0};
}

}  // namespace hostelry
