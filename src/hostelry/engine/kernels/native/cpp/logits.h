// The last stage of a step: logits, the updates that adapters make to them, and the greedy choice.
#pragma once

#include "decoder.h"

namespace hostelry {

template <class Element, class X>
void TypedDecoder<Element, X>::compute_logits() {
  const int rows = step_->num_logit_rows, vocabulary = weights_.vocabulary;
  const float* out_norm = layers_[weights_.num_layers - 1].mlp_out_norm;
  X* inputs = inputs_.as<X>();
  const int hidden = weights_.hidden;
  run(kRows, rows, [&](int i, int thread) {
    float* x = scratch_[thread].row.template as<float>();
    const int64_t from = int64_t(step_->logit_rows[i]) * hidden;
    std::copy(hidden_.as<float>() + from, hidden_.as<float>() + from + hidden, x);
    if (out_norm) {
      float* added = tile(thread);
      rms_norm(added_.as<float>() + from, out_norm, hidden, weights_.norm_eps, added);
      add_row(added, hidden, x);
    }
    norm_row(x, weights_.final_norm, rows, i, thread, inputs);
  });
  shrink_logits(inputs);
  maxima_.resize(size_t(lm_head_.num_tasks) * rows);
  run_stage(kLogits, lm_head_, rows, [&](int task, int first, int end, int) {
    ColumnRange ranges[3];
    task_columns(lm_head_, &weights_.lm_head, task, ranges);
    const int begin = ranges[0].begin, stop = ranges[0].end;
    multiply(weights_.lm_head, inputs, rows, first, end, begin, stop,
             step_->logits + int64_t(first) * vocabulary + begin, vocabulary);
    update_logits(first, end, begin, stop);
    for (int row = first; row < end; ++row) {
      const float* y = step_->logits + int64_t(row) * vocabulary + begin;
      maxima_[size_t(row) * lm_head_.num_tasks + task] = row_maximum(y, stop - begin, begin);
    }
  });
  choose_greedy();
}

// The first largest logit of each row, from the maxima of its parts.
template <class Element, class X>
void TypedDecoder<Element, X>::choose_greedy() {
  for (int row = 0; row < step_->num_logit_rows; ++row) {
    const RowMaximum* parts = maxima_.data() + size_t(row) * lm_head_.num_tasks;
    const RowMaximum* best = parts;
    bool finite = true;
    for (int task = 0; task < lm_head_.num_tasks; ++task) {
      finite = finite && parts[task].finite;
      if (parts[task].value > best->value) best = parts + task;
    }
    const float* y = step_->logits + int64_t(row) * weights_.vocabulary;
    int64_t column = best->column;
    while (column < weights_.vocabulary - 1 && y[column] != best->value) ++column;
    step_->greedy[row] = column;
    step_->finite[row] = finite;
  }
}

// low = scale * hidden rows . x, for the rows whose adapter changes lm_head.
template <class Element, class X>
void TypedDecoder<Element, X>::shrink_logits(const X* prepared) {
  const int rows = step_->num_logit_rows;
  std::vector<int> starts(rows + 1, 0);
  row_updates_.assign(rows, nullptr);
  for (int i = 0; i < rows; ++i) {
    for (int s = 0; s < step_->num_segments; ++s) {
      const Segment& segment = step_->segments[s];
      const int row = step_->logit_rows[i];
      if (row >= segment.row_start && row < segment.row_end && segment.index.lm_head.rank > 0)
        row_updates_[i] = &segment.index.lm_head;
    }
    starts[i + 1] = starts[i] + (row_updates_[i] ? row_updates_[i]->rank : 0);
  }
  row_starts_ = starts;
  if (starts[rows] == 0) return;
  low_.reserve(starts[rows] * sizeof(float));
  const PreparedRows<X> x{prepared, rows, padded_in(kind_, weights_.hidden),
                          kHasTiles && kind_ != kF32};
  const Element* pool = static_cast<const Element*>(step_->pool);
  run(kShrink, rows, [&](int i, int) {
    const WideRows* update = row_updates_[i];
    for (int j = 0; update && j < update->rank; ++j) {
      const Element* down = pool + update->hidden_offsets[j];
      dot_tile<1, 1>(ShrinkRows<X>{x.row(i), 0, x.stride(i)}, &down, weights_.hidden, &down,
                     &update->scale, low_.as<float>() + starts[i] + j, 0);
    }
  });
}

template <class Element, class X>
void TypedDecoder<Element, X>::update_logits(int first_row, int end_row, int begin, int end) {
  const Element* pool = static_cast<const Element*>(step_->pool);
  for (int row = first_row; row < end_row; ++row) {
    const WideRows* update = row_updates_[row];
    if (!update) continue;
    const float* low = low_.as<float>() + row_starts_[row];
    float* y = step_->logits + int64_t(row) * weights_.vocabulary;
    for (int column = begin; column < end; ++column) {
      const Element* up = pool + update->vocab_offsets[column];
      Vec products = zero();
      for (int j = 0; j < update->rank; j += kLanes) {
        const int left = update->rank - j;
        products = fma(load_upto(low + j, left), load_upto(up + j, left), products);
      }
      y[column] += sum(products);
    }
  }
}

}  // namespace hostelry
