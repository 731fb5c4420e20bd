// One stage of a layer: products that read the same prepared rows, with the adapters' updates.
//
// A stage is divided into tasks of whole units of columns (a head, or 16 columns) times chunks of
// rows. A task computes its tile of each product, adds the updates of the segments that it meets
// (whose shrunk rows were computed before) and hands the tile on while it is in the cache.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "lora.h"
#include "step.h"
#include "threads.h"

namespace hostelry {

constexpr int kTileRows = 96;       // of a task; a multiple of kPanel
constexpr int kShrinkRows = 64;     // of a task
constexpr int kShrinkRanks = 8;     // of a task, at least
constexpr int kAheadRows = 4;       // of a segment whose updates are computed before the products,
constexpr int kAheadSegments = 2;   // if there are this many such segments a thread
constexpr size_t kTaskWeights = 96 * 1024;  // bytes of weights that are worth a task

// Prepared rows as a matrix to be read: k of row r at row(r) + k / 32 * stride + k % 32.
template <class X>
struct PreparedRows {
  const X* first;
  int num_rows, depth;
  bool tiled;

  const X* row(int r) const {
    if (!tiled) return first + int64_t(r) * depth;
    const int panel = r / kPanel * kPanel;
    return first + int64_t(panel) * depth + (r - panel) * kDepth;
  }
  int stride(int r) const {
    return tiled ? std::min(kPanel, num_rows - r / kPanel * kPanel) * kDepth : kDepth;
  }
};

// One segment's share in a stage of `num_modules` modules.
template <class Element>
struct StageSegment {
  int row_start, row_end;
  int num_ranks;                 // of all modules together
  float* low;                    // (rows, num_ranks)
  int rank_starts[3];            // where a module's ranks begin
  UpColumns<Element> up[3];
  const int64_t* down[3];        // offsets of its rows of A
  float scales[3];
  // Whether its updates are computed before the products: then they lie here, (rows, columns of all
  // modules, each padded to whole vectors).
  float* updates = nullptr;
  int update_starts[3], update_columns = 0;
};

// The modules of a stage and how their columns are divided.
struct StageColumns {
  int num_modules;
  int unit;          // columns
  int units[3];      // of each module; the last unit may be cut short
  int num_tasks;     // without rows

  int num_units() const { return units[0] + units[1] + units[2]; }
};

inline StageColumns stage_columns(const PackedWeight* modules, int num_modules, int unit,
                                  int num_threads) {
  StageColumns columns{num_modules, unit, {0, 0, 0}, 0};
  size_t bytes = 0;
  for (int m = 0; m < num_modules; ++m) {
    columns.units[m] = (modules[m].out + unit - 1) / unit;
    bytes += packed_bytes(static_cast<Kind>(modules[m].kind), modules[m].out, modules[m].in);
  }
  const int wanted = std::max<int>(bytes / kTaskWeights, 1);
  columns.num_tasks = std::min(round_up(wanted, 2 * num_threads), columns.num_units());
  return columns;
}

// Columns [begin, end) of one module.
struct ColumnRange {
  int module, begin, end;
};

// The ranges of task `task`, of at most one for each module; returns how many.
inline int task_columns(const StageColumns& columns, const PackedWeight* modules, int task,
                        ColumnRange ranges[3]) {
  const int64_t units = columns.num_units();
  const int begin = int(units * task / columns.num_tasks);
  const int end = int(units * (task + 1) / columns.num_tasks);
  int first = 0, count = 0;
  for (int m = 0; m < columns.num_modules; first += columns.units[m++]) {
    const int low = std::max(begin - first, 0), high = std::min(end - first, columns.units[m]);
    if (low >= high) continue;
    ranges[count++] = {m, low * columns.unit, std::min(high * columns.unit, modules[m].out)};
  }
  return count;
}

// Columns [begin, end) of rows [first_row, end_row); row r, column c go to y + r * ldy + c, both
// counted from the tile's own beginning. `begin` is a multiple of kBlock.
inline void multiply(const PackedWeight& weight, const void* prepared, int rows, int first_row,
                     int end_row, int begin, int end, float* y, ptrdiff_t ldy) {
  gemm_blocks(weight, prepared, rows, first_row, end_row, begin / kBlock,
              (end + kBlock - 1) / kBlock, Target{y - first_row * ldy - begin, ldy, false});
}

// Adds the updates of all segments to a tile.
template <class Element>
void expand_range(const std::vector<StageSegment<Element>>& segments, const ColumnRange& range,
                  int first_row, int end_row, float* y, ptrdiff_t ldy) {
  const UpColumns<Element> none;
  const auto columns_of = [&](size_t index) {
    if (index >= segments.size() || segments[index].row_start >= end_row) return none;
    UpColumns<Element> up = segments[index].up[range.module];
    up.column = range.begin;
    return up;
  };
  for (size_t i = 0; i < segments.size(); ++i) {
    const StageSegment<Element>& segment = segments[i];
    const int begin = std::max(segment.row_start, first_row);
    const int end = std::min(segment.row_end, end_row);
    const UpColumns<Element> up = columns_of(i);
    if (begin >= end || up.rank == 0) continue;
    if (segment.updates) {
      for (int row = begin; row < end; ++row)
        add_row(segment.updates + int64_t(row - segment.row_start) * segment.update_columns +
                    segment.update_starts[range.module] + range.begin,
                range.end - range.begin, y + (row - first_row) * ldy);
      continue;
    }
    const float* low = segment.low + int64_t(begin - segment.row_start) * segment.num_ranks +
                       segment.rank_starts[range.module];
    expand(low, segment.num_ranks, end - begin, up, columns_of(i + 1), range.end - range.begin,
           y + (begin - first_row) * ldy, ldy);
  }
}

// The products of A. Those of a segment whose updates are computed ahead are followed by its
// products of B, a module a task. The ranks of the others are one list, which tasks divide evenly.
template <class Element, class X>
class Shrink {
 public:
  Shrink(const std::vector<StageSegment<Element>>& segments, const PreparedRows<X>& rows,
         const Element* pool, const PackedWeight* modules, int num_modules, int num_threads)
      : segments_(segments), rows_(rows), pool_(pool), modules_(modules), count_(modules[0].in) {
    for (const StageSegment<Element>& segment : segments) {
      const int height = segment.row_end - segment.row_start;
      if (segment.updates) {
        for (int m = 0; m < num_modules; ++m)
          if (segment.up[m].rank > 0) ahead_.push_back({&segment, m});
      } else {
        num_items_ += segment.num_ranks * ((height + kShrinkRows - 1) / kShrinkRows);
      }
    }
    num_shares_ = std::min((num_items_ + kShrinkRanks - 1) / kShrinkRanks, 8 * num_threads);
  }

  int num_tasks() const { return num_shares_ + int(ahead_.size()); }

  void run(int task) const {
    if (task < num_shares_) {
      share(task);
    } else {
      update(task - num_shares_);
    }
  }

 private:
  struct Update {
    const StageSegment<Element>* segment;
    int module;
  };

  // One module's updates of a segment's rows. The next task's first rows of A are fetched in the
  // end, since it is likely to be this thread's too.
  void update(size_t number) const {
    const StageSegment<Element>& segment = *ahead_[number].segment;
    const int module = ahead_[number].module, start = segment.rank_starts[module];
    const UpColumns<Element>& up = segment.up[module];
    const Update& following = ahead_[std::min(number + 1, ahead_.size() - 1)];
    const Element *columns[4], *then[4];
    for (int j = 0; j < 4; ++j) {
      columns[j] = pool_ + up.offsets[std::min(j, up.rank - 1)];
      const int rank = std::min(j, following.segment->up[following.module].rank - 1);
      then[j] = pool_ + following.segment->down[following.module][rank];
    }
    shrink_segment(segment, segment.row_start, segment.row_end, start, start + up.rank, columns);
    for (int row = 0; row < segment.row_end - segment.row_start; ++row)
      expand_whole(segment.low + int64_t(row) * segment.num_ranks + start, up,
                   modules_[module].out, then,
                   segment.updates + int64_t(row) * segment.update_columns +
                       segment.update_starts[module]);
  }

  void share(int task) const {
    int begin = int(int64_t(num_items_) * task / num_shares_);
    int end = int(int64_t(num_items_) * (task + 1) / num_shares_);
    for (const StageSegment<Element>& segment : segments_) {
      if (segment.updates) continue;
      for (int row = segment.row_start; row < segment.row_end; row += kShrinkRows) {
        if (begin < segment.num_ranks && end > 0)
          shrink_segment(segment, row, std::min(row + kShrinkRows, segment.row_end),
                         std::max(begin, 0), std::min(end, segment.num_ranks), nullptr);
        begin -= segment.num_ranks;
        end -= segment.num_ranks;
      }
      if (end <= 0) return;
    }
  }

  // Ranks [begin, end) of one segment, four at a time while the next four are fetched, and in the
  // end `then` (or null).
  void shrink_segment(const StageSegment<Element>& segment, int first_row, int end_row, int begin,
                      int end, const Element* const* then) const {
    const Element* down[8];
    float scales[8];
    int found = find(segment, begin, end, down, scales);
    for (int rank = begin; rank < end; rank += 4) {
      const int num_ranks = std::min(found, 4);
      const int more = find(segment, rank + 4, end, down + 4, scales + 4);
      for (int j = more; j < 4; ++j) down[4 + j] = then ? then[j] : down[j % num_ranks];
      for (int row = first_row; row < end_row;) {
        const int height = same_stride(row, end_row);
        float* low = segment.low + int64_t(row - segment.row_start) * segment.num_ranks + rank;
        shrink_ranks(ShrinkRows<X>{rows_.row(row), row_step(), rows_.stride(row)}, height, count_,
                     down, down + 4, scales, num_ranks, low, segment.num_ranks);
        row += height;
      }
      std::copy(down + 4, down + 8, down);
      std::copy(scales + 4, scales + 8, scales);
      found = more;
    }
  }

  // Elements from one row to the next among rows of one panel.
  int64_t row_step() const { return rows_.tiled ? kDepth : rows_.depth; }

  int same_stride(int row, int end_row) const {
    return rows_.tiled ? std::min((row / kPanel + 1) * kPanel, end_row) - row : end_row - row;
  }

  // Up to four rows of A from `rank` on.
  int find(const StageSegment<Element>& segment, int rank, int end, const Element** down,
           float* scales) const {
    int found = 0, module = 0;
    for (; rank < end && found < 4; ++rank, ++found) {
      while (module < 2 && rank >= segment.rank_starts[module + 1]) ++module;
      down[found] = pool_ + segment.down[module][rank - segment.rank_starts[module]];
      scales[found] = segment.scales[module];
    }
    return found;
  }

  const std::vector<StageSegment<Element>>& segments_;
  const PreparedRows<X> rows_;
  const Element* pool_;
  const PackedWeight* modules_;
  const int count_;
  std::vector<Update> ahead_;
  int num_items_ = 0, num_shares_ = 0;
};

}  // namespace hostelry
