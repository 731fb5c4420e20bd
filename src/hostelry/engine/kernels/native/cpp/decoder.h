// The forward pass of one step: see layers/decoder.py for what it computes.
//
// The residual stream and everything between products is fp32; rows are rounded where a product
// reads them. Each stage of a layer is one division of tasks among the threads:
//
//   norm | qkv (bias, norm, rope, keys and values into their pages) | attention | o (+ residual) |
//   norm | gate and up (activation) | down (+ residual)
//
// with one more before each product, which shrinks the rows of adapters, if there are any.
#pragma once

#include <chrono>
#include <memory>
#include <numeric>
#include <vector>

#include "attention.h"
#include "rows.h"
#include "stage.h"
#include "step.h"
#include "threads.h"

namespace hostelry {

// What the time of a step is spent on.
enum Phase { kRows, kShrink, kQkv, kAttention, kOutput, kGateUp, kDownward, kLogits, kNumPhases };

// Memory that begins at a cache line.
class Buffer {
 public:
  void reserve(size_t bytes) {
    if (bytes <= size_) return;
    memory_.reset(new char[bytes + kLineBytes]());
    const uintptr_t address = reinterpret_cast<uintptr_t>(memory_.get());
    first_ = memory_.get() + (kLineBytes - address % kLineBytes) % kLineBytes;
    size_ = bytes;
  }

  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(first_);
  }

 private:
  std::unique_ptr<char[]> memory_;
  char* first_ = nullptr;
  size_t size_ = 0;
};

// Writes columns [begin, end) of row `row` of `rows` prepared rows of `in` columns: as prepare_row,
// for a part of the row. `begin` is a multiple of kLanes, or of the columns before.
template <class X>
inline void prepare_part(Kind kind, const float* x, int begin, int end, int in, int rows, int row,
                         X* prepared) {
  const bool tiled = kHasTiles && kind != kF32;
  const PreparedRows<X> layout{prepared, rows, padded_in(kind, in), tiled};
  X* out = const_cast<X*>(layout.row(row));
  const int stride = layout.stride(row);
  for (int k = begin; k < end;) {
    const int count = std::min(end, (k / kLanes + 1) * kLanes) - k;
    const Vec part = load_upto(x + k - begin, count);
    X* to = out + int64_t(k / kDepth) * stride + k % kDepth;
    if constexpr (sizeof(X) == 2) {
      store_upto(to, part, count);
    } else {
      store_upto(to, part, count);
      for (int i = 0; kind != kF32 && i < count; ++i) to[i] = to_float(to_bf16(to[i]));
    }
    k += count;
  }
  for (int k = end; end == in && k < layout.depth; ++k)
    set(out + int64_t(k / kDepth) * stride + k % kDepth, 0.0f);
}

// A thread's working memory.
template <class Element>
struct Scratch {
  Buffer tile, row;
  AttentionScratch<Element> attention;
};

struct AttentionTask {
  int sequence, head, row_start, row_end;
  int64_t cost;
};

class Decoder {
 public:
  virtual ~Decoder() = default;
  virtual void forward(const StepArguments& step) = 0;
  const DecoderWeights& weights() const { return weights_; }
  const double* seconds() const { return seconds_; }
  ThreadPool& pool() const { return pool_; }

 protected:
  Decoder(const DecoderWeights& weights, ThreadPool& pool)
      : weights_(weights),
        layers_(weights.layers, weights.layers + weights.num_layers),
        pool_(pool) {
    weights_.layers = layers_.data();
  }

  // Runs tasks and adds the time they took.
  template <class F>
  void run(Phase phase, int num_tasks, const F& f) {
    const auto started = std::chrono::steady_clock::now();
    pool_.run(num_tasks, f);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - started;
    seconds_[phase] += took.count();
  }

  DecoderWeights weights_;
  const std::vector<LayerWeights> layers_;
  ThreadPool& pool_;
  double seconds_[kNumPhases] = {};
};

// Element: of the pool and the embedding. X: of prepared rows.
template <class Element, class X>
class TypedDecoder : public Decoder {
 public:
  TypedDecoder(const DecoderWeights& weights, ThreadPool& pool)
      : Decoder(weights, pool),
        kind_(static_cast<Kind>(weights_.lm_head.kind)),
        query_columns_(weights_.num_heads * weights_.head_dim),
        page_half_(0),
        scratch_(pool.num_threads()) {
    const PackedWeight* modules = layers_[0].modules;
    const int threads = pool.num_threads();
    const int heads = std::lcm(weights_.head_dim, kBlock);
    qkv_ = stage_columns(modules + kQuery, 3, heads, threads);
    o_ = stage_columns(modules + kOut, 1, kBlock, threads);
    gate_ = stage_columns(modules + kGate, 1, 2 * kBlock, threads);
    down_ = stage_columns(modules + kDown, 1, kBlock, threads);
    lm_head_ = stage_columns(&weights_.lm_head, 1, 4 * kBlock, threads);
    reserve_rows();
  }

  void forward(const StepArguments& step) override {
    step_ = &step;
    page_half_ = int64_t(weights_.num_kv_heads) * weights_.head_dim * step.page_tokens;
    place_rows();
    plan_attention();
    embed();
    for (int layer = 0; layer < weights_.num_layers; ++layer) forward_layer(layer);
    compute_logits();
  }

 private:
  using Segments = std::vector<StageSegment<Element>>;

  void reserve_rows();
  void place_rows();
  void plan_attention();
  void embed();
  void embed_row(int row, const WideRows* update);
  void forward_layer(int layer);
  void norm_rows(const float* out_norm, const float* norm, X* prepared);
  void norm_row(const float* x, const float* norm, int rows, int row, int thread, X* prepared);
  void compute_qkv(int layer, const Segments& segments);
  void finish_queries(const LayerWeights& layer, const float* tile, int columns, int head, int row);
  void finish_keys(int layer, const float* tile, int columns, int head, int row);
  void finish_values(int layer, const float* tile, int columns, int head, int row);
  void compute_attention(int layer);
  Span<Element> span_of(int layer, const AttentionTask& task) const;
  void attend_rows(int layer, int number, AttentionScratch<Element>& scratch);
  void add_output(Phase phase, const StageColumns& columns, const PackedWeight& weight,
                  const X* prepared, const Segments& segments, float* y);
  void compute_gated(const LayerWeights& layer, const Segments& segments);
  const Segments& shrink(int layer, int first_module, int num_modules, const X* prepared);
  void find_segments(int layer, int first_module, int num_modules);
  void place_updates(const PackedWeight* modules, int num_modules);
  void compute_logits();
  void choose_greedy();
  void update_logits(int first_row, int end_row, int begin, int end);
  void shrink_logits(const X* prepared);

  // The tile of a task: what is at `ranges`, with biases and updates.
  void compute_tile(const PackedWeight& weight, const X* prepared, const Segments& segments,
                    const ColumnRange& range, int first_row, int end_row, float* tile) {
    const int ldy = round_up(range.end - range.begin, kBlock);
    multiply(weight, prepared, step_->num_rows, first_row, end_row, range.begin, range.end, tile,
             ldy);
    if (!segments.empty()) expand_range(segments, range, first_row, end_row, tile, ldy);
  }

  // Calls f(first column task, first row, end row, thread) for all tasks of a stage.
  template <class F>
  void run_stage(Phase phase, const StageColumns& columns, int rows, const F& f) {
    const int chunks = (rows + kTileRows - 1) / kTileRows;
    run(phase, columns.num_tasks * chunks, [&](int task, int thread) {
      const int first = task % chunks * kTileRows;
      f(task / chunks, first, std::min(first + kTileRows, rows), thread);
    });
  }

  float* tile(int thread) { return scratch_[thread].tile.template as<float>(); }

  Element* layer_keys(int layer) const {
    return static_cast<Element*>(step_->pool) + 2 * int64_t(layer) * page_half_;
  }
  int64_t page_elements() const { return 2 * int64_t(weights_.num_layers) * page_half_; }

  const Kind kind_;
  const int query_columns_;
  int64_t page_half_;  // elements of the keys of one layer in one page
  StageColumns qkv_, o_, gate_, down_, lm_head_;
  std::vector<Scratch<Element>> scratch_;
  const StepArguments* step_ = nullptr;
  Buffer hidden_, added_, queries_, inputs_, wide_inputs_, low_, updates_;
  std::vector<Element*> row_pages_;  // where each row's page begins
  std::vector<int> row_slots_;       // and its place in it
  std::vector<AttentionTask> attention_tasks_;
  Segments segments_;
  std::vector<RowMaximum> maxima_;
  std::vector<const WideRows*> row_updates_;
  std::vector<int> row_starts_;  // where the shrunk logit rows lie in low_
};

}  // namespace hostelry
