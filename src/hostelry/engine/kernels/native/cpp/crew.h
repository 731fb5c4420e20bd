// How many threads of a pool compute, from whether the one that calls them had a CPU all the time.
//
// A step is divided many times, and each part ends when its last thread does: a thread that waits
// for its turn behind another process keeps all others waiting. So the caller's own time tells
// whether the machine has CPUs for this many: what it did not run of a step (it slept for a thread
// that was late, or was put aside itself) is lost. Past a fourth, fewer threads are faster; after a
// rest one more is tried, and rests grow while that fails. Whoever is alone and has no whole CPU
// tries nothing.
#pragma once

#include <algorithm>
#include <cstdint>

namespace hostelry {

class Crew {
 public:
  explicit Crew(int most) : most_(std::max(most, 1)), size_(most_) {}

  // The threads that compute, the caller among them.
  int size() const { return size_; }

  // A step took `wall_ns`, of which its caller ran for `cpu_ns`. Time is that of steps only.
  void worked(int64_t wall_ns, int64_t cpu_ns) {
    wall_ns_ += wall_ns;
    lost_ns_ += std::max<int64_t>(wall_ns - cpu_ns, 0);
    const bool bad = lost_ns_ * kMostLost > std::max(wall_ns_, kWindowNs);
    if (!bad && wall_ns_ < kWindowNs) return;
    judge(bad, wall_ns_);
    wall_ns_ = lost_ns_ = 0;
  }

 private:
  static constexpr int64_t kWindowNs = 100'000'000;  // shorter ones mistake a hiccup for a neighbour
  static constexpr int64_t kShortestRestNs = kWindowNs, kLongestRestNs = 16 * kWindowNs;
  static constexpr int kMostLost = 4;  // one of so many nanoseconds

  void judge(bool bad, int64_t window_ns) {
    if (bad) {
      rested_ns_ = 0;
      if (size_ == 1) return;
      rest_ns_ = trying_ ? std::min(2 * rest_ns_, kLongestRestNs) : kShortestRestNs;
      trying_ = false;
      size_ -= std::max(size_ / 4, 1);
      return;
    }
    if (trying_) rest_ns_ = kShortestRestNs;
    trying_ = false;
    rested_ns_ += window_ns;
    if (size_ == most_ || rested_ns_ < rest_ns_) return;
    rested_ns_ = 0;
    trying_ = true;
    ++size_;
  }

  const int most_;
  int size_;
  bool trying_ = false;  // one thread more than was good before
  int64_t wall_ns_ = 0, lost_ns_ = 0, rested_ns_ = 0, rest_ns_ = kShortestRestNs;
};

}  // namespace hostelry
