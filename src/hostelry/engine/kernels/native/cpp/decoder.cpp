// The forward pass (decoder.h), and the functions that Python calls.
#include "decoder.h"

#include "exports.h"
#include "logits.h"

namespace hostelry {

template <class Element, class X>
void TypedDecoder<Element, X>::reserve_rows() {
  const int rows = weights_.max_rows, widest = std::max(query_columns_, weights_.intermediate);
  hidden_.reserve(sizeof(float) * rows * weights_.hidden);
  added_.reserve(sizeof(float) * rows * weights_.hidden);
  queries_.reserve(sizeof(float) * rows * query_columns_);
  inputs_.reserve(prepared_bytes(kind_, rows, weights_.hidden));
  wide_inputs_.reserve(prepared_bytes(kind_, rows, widest));
  row_pages_.resize(rows);
  row_slots_.resize(rows);
  // A tile has the columns of at most one task of a stage, in up to two modules.
  int columns = 0;
  for (const StageColumns* stage : {&qkv_, &o_, &gate_, &down_})
    columns = std::max(columns, (stage->num_units() / stage->num_tasks + 1) * stage->unit);
  for (Scratch<Element>& scratch : scratch_) {
    scratch.tile.reserve(sizeof(float) * std::max(kTileRows * 2 * columns, weights_.hidden));
    scratch.row.reserve(sizeof(float) * round_up(weights_.hidden, kLanes));
  }
}

// Finds the page and the slot of each row, and the update of the vocabulary that it has.
template <class Element, class X>
void TypedDecoder<Element, X>::place_rows() {
  for (int b = 0; b < step_->num_sequences; ++b)
    for (int row = step_->row_starts[b]; row < step_->row_starts[b + 1]; ++row) {
      const int position = step_->positions[row];
      const int page = step_->pages[int64_t(b) * step_->pages_per_sequence +
                                    position / step_->page_tokens];
      row_pages_[row] = static_cast<Element*>(step_->pool) + page * page_elements();
      row_slots_[row] = position % step_->page_tokens;
    }
}

// Divides the step's attention; the costliest first, dealt to the threads in turn.
template <class Element, class X>
void TypedDecoder<Element, X>::plan_attention() {
  const int group = weights_.num_heads / weights_.num_kv_heads;
  const int height = std::max(kMaxQueries / group, 1);
  std::vector<AttentionTask> tasks;
  for (int b = 0; b < step_->num_sequences; ++b) {
    const int end = step_->row_starts[b + 1];
    for (int row = step_->row_starts[b]; row < end; row += height) {
      const int stop = std::min(row + height, end);
      const int64_t cost = int64_t(stop - row) * (step_->positions[stop - 1] + kBlockTokens);
      for (int head = 0; head < weights_.num_kv_heads; ++head)
        tasks.push_back({b, head, row, stop, cost});
    }
  }
  std::stable_sort(tasks.begin(), tasks.end(), [](const AttentionTask& a, const AttentionTask& b) {
    return a.cost > b.cost;
  });
  attention_tasks_.clear();
  const size_t threads = pool_.num_threads();
  for (size_t thread = 0; thread < threads; ++thread)
    for (size_t i = thread; i < tasks.size(); i += threads) attention_tasks_.push_back(tasks[i]);
}

template <class Element, class X>
void TypedDecoder<Element, X>::embed() {
  row_updates_.assign(step_->num_rows, nullptr);
  for (int i = 0; i < step_->num_segments; ++i)
    for (int row = step_->segments[i].row_start; row < step_->segments[i].row_end; ++row)
      row_updates_[row] = &step_->segments[i].index.embedding;
  run(kRows, step_->num_rows, [&](int row, int) { embed_row(row, row_updates_[row]); });
}

template <class Element, class X>
void TypedDecoder<Element, X>::embed_row(int row, const WideRows* update) {
  const int hidden = weights_.hidden, token = step_->token_ids[row];
  const Element* from = static_cast<const Element*>(weights_.embedding) + int64_t(token) * hidden;
  const Element* pool = static_cast<const Element*>(step_->pool);
  float* out = hidden_.as<float>() + int64_t(row) * hidden;
  for (int at = 0; at < hidden; at += kLanes) {
    const int left = hidden - at;
    Vec sum = load_upto(from + at, left);
    for (int j = 0; update && j < update->rank; ++j) {
      const float low = update->scale * to_float(pool[update->vocab_offsets[token] + j]);
      sum = fma(splat(low), load_upto(pool + update->hidden_offsets[j] + at, left), sum);
    }
    store_upto(out + at, sum * splat(weights_.embedding_scale), left);
  }
}

template <class Element, class X>
void TypedDecoder<Element, X>::forward_layer(int index) {
  const LayerWeights& layer = layers_[index];
  const LayerWeights* before = index > 0 ? &layers_[index - 1] : nullptr;
  X* inputs = inputs_.as<X>();
  X* wide_inputs = wide_inputs_.as<X>();
  float* hidden = hidden_.as<float>();
  norm_rows(before ? before->mlp_out_norm : nullptr, layer.input_norm, inputs);
  compute_qkv(index, shrink(index, kQuery, 3, inputs));
  compute_attention(index);
  add_output(kOutput, o_, layer.modules[kOut], wide_inputs, shrink(index, kOut, 1, wide_inputs),
             layer.attn_out_norm ? nullptr : hidden);
  norm_rows(layer.attn_out_norm, layer.mlp_norm, inputs);
  compute_gated(layer, shrink(index, kGate, 2, inputs));
  add_output(kDownward, down_, layer.modules[kDown], wide_inputs,
             shrink(index, kDown, 1, wide_inputs), layer.mlp_out_norm ? nullptr : hidden);
}

// hidden += out_norm(added), where there is an out_norm; then the rows' norm, prepared.
template <class Element, class X>
void TypedDecoder<Element, X>::norm_rows(const float* out_norm, const float* norm, X* prepared) {
  const int hidden = weights_.hidden;
  run(kRows, step_->num_rows, [&](int row, int thread) {
    float* x = hidden_.as<float>() + int64_t(row) * hidden;
    if (out_norm) {
      float* added = added_.as<float>() + int64_t(row) * hidden;
      rms_norm(added, out_norm, hidden, weights_.norm_eps, added);
      add_row(added, hidden, x);
    }
    norm_row(x, norm, step_->num_rows, row, thread, prepared);
  });
}

template <class Element, class X>
void TypedDecoder<Element, X>::norm_row(const float* x, const float* norm, int rows, int row,
                                        int thread, X* prepared) {
  float* normed = scratch_[thread].row.template as<float>();
  rms_norm(x, norm, weights_.hidden, weights_.norm_eps, normed);
  prepare_part(kind_, normed, 0, weights_.hidden, weights_.hidden, rows, row, prepared);
}

// Where the segments' weights of some modules lie, and their rows shrunk by them.
template <class Element, class X>
const std::vector<StageSegment<Element>>& TypedDecoder<Element, X>::shrink(int layer,
                                                                           int first_module,
                                                                           int num_modules,
                                                                           const X* prepared) {
  const PackedWeight* modules = layers_[layer].modules + first_module;
  find_segments(layer, first_module, num_modules);
  if (segments_.empty()) return segments_;
  place_updates(modules, num_modules);
  const PreparedRows<X> rows{prepared, step_->num_rows, padded_in(kind_, modules[0].in),
                             kHasTiles && kind_ != kF32};
  const Shrink<Element, X> products(segments_, rows, static_cast<const Element*>(step_->pool),
                                    modules, num_modules, pool_.num_threads());
  run(kShrink, products.num_tasks(), [&](int task, int) { products.run(task); });
  return segments_;
}

// The segments with an update of one of these modules.
template <class Element, class X>
void TypedDecoder<Element, X>::find_segments(int layer, int first_module, int num_modules) {
  segments_.clear();
  const Element* pool = static_cast<const Element*>(step_->pool);
  for (int i = 0; i < step_->num_segments; ++i) {
    const AdapterIndex& index = step_->segments[i].index;
    StageSegment<Element> found;
    found.row_start = step_->segments[i].row_start;
    found.row_end = step_->segments[i].row_end;
    found.num_ranks = 0;
    for (int m = 0; m < num_modules; ++m) {
      const int module = layer * kNumModules + first_module + m, first = index.firsts[module];
      found.rank_starts[m] = found.num_ranks;
      found.up[m] = {pool, index.up_offsets + first, index.ranks[module], 0};
      found.down[m] = index.down_offsets + first;
      found.scales[m] = index.scales[module];
      found.num_ranks += index.ranks[module];
    }
    for (int m = num_modules; m < 3; ++m) found.rank_starts[m] = found.num_ranks;
    if (found.num_ranks > 0) segments_.push_back(found);
  }
}

// Gives each segment memory for its shrunk rows, and for its updates if they are computed ahead:
// where many segments have few rows each, their weights are what takes the time, and are read
// from end to end.
template <class Element, class X>
void TypedDecoder<Element, X>::place_updates(const PackedWeight* modules, int num_modules) {
  int starts[3] = {0, 0, 0}, columns = 0, num_short = 0;
  for (int m = 0; m < num_modules; ++m) {
    starts[m] = columns;
    columns += round_up(modules[m].out, kLanes);
  }
  const auto is_short = [](const StageSegment<Element>& segment) {
    return segment.row_end - segment.row_start <= kAheadRows;
  };
  for (const StageSegment<Element>& segment : segments_) num_short += is_short(segment);
  const bool ahead = num_short >= kAheadSegments * pool_.num_threads();
  size_t num_low = 0, num_updates = 0;
  for (const StageSegment<Element>& segment : segments_) {
    const size_t rows = segment.row_end - segment.row_start;
    num_low += rows * segment.num_ranks;
    if (ahead && is_short(segment)) num_updates += rows * columns;
  }
  low_.reserve(num_low * sizeof(float));
  updates_.reserve(num_updates * sizeof(float));
  float *low = low_.as<float>(), *updates = updates_.as<float>();
  for (StageSegment<Element>& segment : segments_) {
    const size_t rows = segment.row_end - segment.row_start;
    segment.low = low;
    low += rows * segment.num_ranks;
    if (!ahead || !is_short(segment)) continue;
    segment.updates = updates;
    segment.update_columns = columns;
    std::copy(starts, starts + 3, segment.update_starts);
    updates += rows * columns;
  }
}

template <class Element, class X>
void TypedDecoder<Element, X>::compute_qkv(int index, const Segments& segments) {
  const LayerWeights& layer = layers_[index];
  const X* inputs = inputs_.as<X>();
  const int head_dim = weights_.head_dim;
  run_stage(kQkv, qkv_, step_->num_rows, [&](int task, int first, int end, int thread) {
    ColumnRange ranges[3];
    const int count = task_columns(qkv_, layer.modules + kQuery, task, ranges);
    for (int i = 0; i < count; ++i) {
      const ColumnRange& range = ranges[i];
      compute_tile(layer.modules[kQuery + range.module], inputs, segments, range, first, end,
                   tile(thread));
      const int ldy = round_up(range.end - range.begin, kBlock);
      for (int row = first; row < end; ++row) {
        float* y = tile(thread) + int64_t(row - first) * ldy;
        const int columns = range.end - range.begin, head = range.begin / head_dim;
        if (range.module == kQuery) finish_queries(layer, y, columns, head, row);
        if (range.module == kKey) finish_keys(index, y, columns, head, row);
        if (range.module == kValue) finish_values(index, y, columns, head, row);
      }
    }
  });
}

template <class Element, class X>
void TypedDecoder<Element, X>::finish_queries(const LayerWeights& layer, const float* tile,
                                              int columns, int head, int row) {
  const int width = weights_.head_dim;
  const int64_t turn = int64_t(step_->positions[row]) * (width / 2);
  float* out = queries_.as<float>() + int64_t(row) * query_columns_ + head * width;
  for (int at = 0; at < columns; at += width) {
    std::copy(tile + at, tile + at + width, out + at);
    if (layer.q_norm) rms_norm(out + at, layer.q_norm, width, weights_.norm_eps, out + at);
    rotate(layer.cos + turn, layer.sin + turn, width, out + at);
  }
}

template <class Element, class X>
void TypedDecoder<Element, X>::finish_keys(int index, const float* tile, int columns, int head,
                                           int row) {
  const LayerWeights& layer = layers_[index];
  const int width = weights_.head_dim, tokens = step_->page_tokens;
  const int64_t turn = int64_t(step_->positions[row]) * (width / 2);
  Element* out = row_pages_[row] + 2 * int64_t(index) * page_half_ +
                 int64_t(head) * width * tokens + row_slots_[row];
  for (int at = 0; at < columns; at += width) {
    float key[kMaxHeadDim];
    std::copy(tile + at, tile + at + width, key);
    if (layer.k_norm) rms_norm(key, layer.k_norm, width, weights_.norm_eps, key);
    rotate(layer.cos + turn, layer.sin + turn, width, key);
    Element rounded[kMaxHeadDim];
    for (int d = 0; d < width; d += kLanes)
      store_upto(rounded + d, load_upto(key + d, width - d), width - d);
    for (int d = 0; d < width; ++d) out[int64_t(at + d) * tokens] = rounded[d];
  }
}

template <class Element, class X>
void TypedDecoder<Element, X>::finish_values(int index, const float* tile, int columns, int head,
                                             int row) {
  const int width = weights_.head_dim, tokens = step_->page_tokens;
  Element* out = row_pages_[row] + (2 * int64_t(index) + 1) * page_half_ +
                 int64_t(head) * width * tokens + int64_t(row_slots_[row]) * width;
  for (int at = 0; at < columns; at += width)
    for (int d = 0; d < width; d += kLanes)
      store_upto(out + int64_t(at) * tokens + d, load_upto(tile + at + d, width - d), width - d);
}

template <class Element, class X>
void TypedDecoder<Element, X>::compute_attention(int layer) {
  run(kAttention, int(attention_tasks_.size()), [&](int task, int thread) {
    attend_rows(layer, task, scratch_[thread].attention);
  });
}

// What the rows of a task see.
template <class Element, class X>
Span<Element> TypedDecoder<Element, X>::span_of(int layer, const AttentionTask& task) const {
  const int window = layers_[layer].window;
  const int64_t head_elements = int64_t(weights_.head_dim) * step_->page_tokens;
  const Element* keys = layer_keys(layer) + task.head * head_elements;
  const HeadPages<Element> head{keys,
                                keys + page_half_,
                                step_->pages + int64_t(task.sequence) * step_->pages_per_sequence,
                                page_elements(),
                                step_->page_tokens,
                                weights_.head_dim};
  const int first = step_->positions[task.row_start] - window + 1;
  return {head, window > 0 ? std::max(first, 0) : 0, step_->positions[task.row_end - 1]};
}

template <class Element, class X>
void TypedDecoder<Element, X>::attend_rows(int layer, int number,
                                           AttentionScratch<Element>& scratch) {
  const int width = weights_.head_dim, group = weights_.num_heads / weights_.num_kv_heads;
  const int window = layers_[layer].window;
  const AttentionTask& task = attention_tasks_[number];
  const size_t following = std::min<size_t>(number + 1, attention_tasks_.size() - 1);
  const Span<Element> span = span_of(layer, task);
  // A row's queries may be more than one turn takes.
  for (int first = 0; first < group; first += kMaxQueries) {
    const int heads = std::min(group - first, kMaxQueries);
    Queries queries;
    for (int row = task.row_start; row < task.row_end; ++row)
      for (int g = 0; g < heads; ++g) {
        const int position = step_->positions[row], i = queries.count++;
        queries.vectors[i] = queries_.as<float>() + int64_t(row) * query_columns_ +
                             (task.head * group + first + g) * width;
        queries.first[i] = window > 0 ? std::max(position - window + 1, 0) : 0;
        queries.last[i] = position;
      }
    attend(queries, span, span_of(layer, attention_tasks_[following]), weights_.attention_scale,
           scratch);
    for (int i = 0; i < queries.count; ++i) {
      const int row = task.row_start + i / heads;
      const int column = (task.head * group + first + i % heads) * width;
      const Vec total = splat(scratch.total[i]);
      float* sums = scratch.sums + i * scratch.stride(width);
      for (int at = 0; at < width; at += kLanes) store(sums + at, load(sums + at) / total);
      prepare_part(kind_, sums, column, column + width, query_columns_, step_->num_rows, row,
                   wide_inputs_.as<X>());
    }
  }
}

// The product of o or down: added to `y` (rows of hidden columns), or left in `added_` without y.
template <class Element, class X>
void TypedDecoder<Element, X>::add_output(Phase phase, const StageColumns& columns,
                                          const PackedWeight& weight, const X* prepared,
                                          const Segments& segments, float* y) {
  const int hidden = weights_.hidden;
  float* out = y ? y : added_.as<float>();
  run_stage(phase, columns, step_->num_rows, [&](int task, int first, int end, int thread) {
    ColumnRange ranges[3];
    if (task_columns(columns, &weight, task, ranges) == 0) return;
    const int begin = ranges[0].begin, width = ranges[0].end - begin;
    compute_tile(weight, prepared, segments, ranges[0], first, end, tile(thread));
    for (int row = first; row < end; ++row) {
      const float* from = tile(thread) + int64_t(row - first) * round_up(width, kBlock);
      float* to = out + int64_t(row) * hidden + begin;
      if (y) {
        add_row(from, width, to);
      } else {
        std::copy(from, from + width, to);
      }
    }
  });
}

template <class Element, class X>
void TypedDecoder<Element, X>::compute_gated(const LayerWeights& layer, const Segments& segments) {
  const X* inputs = inputs_.as<X>();
  X* out = wide_inputs_.as<X>();
  run_stage(kGateUp, gate_, step_->num_rows, [&](int task, int first, int end, int thread) {
    ColumnRange ranges[3];
    if (task_columns(gate_, layer.modules + kGate, task, ranges) == 0) return;
    const int begin = ranges[0].begin, width = ranges[0].end - begin;
    const int ldy = round_up(width, kBlock);
    float* gate = tile(thread);
    float* up = gate + int64_t(kTileRows) * ldy;
    compute_tile(layer.modules[kGate], inputs, segments, ranges[0], first, end, gate);
    compute_tile(layer.modules[kUp], inputs, segments, {1, begin, ranges[0].end}, first, end, up);
    for (int row = first; row < end; ++row, gate += ldy, up += ldy) {
      gated(gate, up, width, weights_.is_gelu != 0, gate);
      prepare_part(kind_, gate, begin, begin + width, weights_.intermediate, step_->num_rows, row,
                   out);
    }
  });
}

template <class Element>
static Decoder* new_decoder(const DecoderWeights& weights, ThreadPool& pool) {
  if (weights.lm_head.kind == kF32 || !kHasPairs)
    return new TypedDecoder<Element, float>(weights, pool);
  return new TypedDecoder<Element, bf16>(weights, pool);
}

}  // namespace hostelry

using namespace hostelry;

Decoder* hostelry_decoder_new(ThreadPool* pool, const DecoderWeights* weights) {
  const auto make = weights->is_bf16 ? new_decoder<bf16> : new_decoder<float>;
  return make(*weights, *pool);
}

void hostelry_decoder_free(Decoder* decoder) { delete decoder; }

void hostelry_decoder_forward(Decoder* decoder, const StepArguments* step, Refusal* refusal) {
  *refusal = check_step(decoder->weights(), *step);
  if (refusal->fault == kNone && step->num_rows > 0)
    decoder->pool().step([&] { decoder->forward(*step); });
}

const double* hostelry_decoder_seconds(const Decoder* decoder) {
  return decoder->seconds();
}
