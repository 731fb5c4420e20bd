// Threads that divide numbered tasks among them, cheap enough to be asked several times a layer.
//
// run() gives each thread a range of neighbouring tasks, since neighbours lie together in memory;
// who has finished its own takes from the others', so that a thread which the system has put aside
// holds up no more than the task it is at. A range is one 64-bit word (next, end), and a task is
// taken by exchanging the word. Whoever succeeds has a task of the run in progress, however late
// it comes, and only then reads what to do; run() returns when all tasks are done, so that this
// cannot change meanwhile. Between runs threads watch a counter for kSpin, then sleep in the
// kernel. Where other processes want the CPUs too, fewer threads compute (crew.h) and the others
// sleep.

#pragma once

#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "crew.h"

#if defined(__linux__)
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#else
#include <condition_variable>
#include <mutex>
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace hostelry {

inline void pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// A counter that can be waited for.
class Signal {
 public:
  uint32_t value() const { return value_.load(std::memory_order_acquire); }

  void set(uint32_t value) {
    value_.store(value, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) > 0) wake();
  }

  // Returns once the value is not `seen`; watches for `spin` before it sleeps.
  void wait_while(uint32_t seen, std::chrono::nanoseconds spin) {
    const auto until = std::chrono::steady_clock::now() + spin;
    do {
      for (int i = 0; i < 16; ++i) {
        if (value() != seen) return;
        pause();
      }
    } while (std::chrono::steady_clock::now() < until);
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    sleep_while(seen);
    sleepers_.fetch_sub(1, std::memory_order_seq_cst);
  }

 private:
#if defined(__linux__)
  void sleep_while(uint32_t seen) {
    while (value_.load(std::memory_order_seq_cst) == seen)
      syscall(SYS_futex, &value_, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
  }
  void wake() { syscall(SYS_futex, &value_, FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr, 0); }
#else
  void sleep_while(uint32_t seen) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return value_.load(std::memory_order_seq_cst) != seen; });
  }
  void wake() {
    std::lock_guard<std::mutex> lock(mutex_);
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
#endif

  std::atomic<uint32_t> value_{0};
  std::atomic<int> sleepers_{0};
};

// The CPUs this process may use, by number; empty where the system does not say.
inline std::vector<int> allowed_cpus() {
  std::vector<int> cpus;
#if defined(__linux__)
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
#endif
  return cpus;
}

// Keeps the calling thread on `cpus`, where the system allows it.
inline void stay_on(const std::vector<int>& cpus) {
#if defined(__linux__)
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int cpu : cpus) CPU_SET(cpu, &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
#else
  (void)cpus;
#endif
}

inline int64_t now_ns(clockid_t clock) {
  timespec time;
  clock_gettime(clock, &time);
  return int64_t(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

class ThreadPool {
 public:
  // `num_threads` counts the caller of run(). With `pin`, and as many threads as allowed CPUs, each
  // of the others stays on one of those while all compute, the caller's being left to it. With
  // fewer threads they are free: other processes would choose the same CPUs.
  ThreadPool(int num_threads, bool pin)
      : num_threads_(std::max(num_threads, 1)),
        ranges_(new Range[num_threads_]),
        cpus_(allowed_cpus()),
        pins_(pin && cpus_.size() == static_cast<size_t>(num_threads_)),
        crew_(num_threads_),
        active_(num_threads_) {
    for (int thread = 1; thread < num_threads_; ++thread)
      threads_.emplace_back([this, thread] { work(thread); });
  }

  ~ThreadPool() {
    stopping_.store(true, std::memory_order_relaxed);
    runs_.set(runs_.value() + 1);
    resized_.set(resized_.value() + 1);
    for (std::thread& thread : threads_) thread.join();
  }

  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return num_threads_; }
  // Of them, those that compute now.
  int num_active() const { return active_.load(std::memory_order_relaxed); }

  // Calls f(), which calls run(); learns from it with how many threads the next is computed.
  template <class F>
  void step(const F& f) {
    if (num_threads_ == 1) return f();
    const int64_t wall_ns = now_ns(CLOCK_MONOTONIC), cpu_ns = now_ns(CLOCK_THREAD_CPUTIME_ID);
    f();
    const int64_t ran_ns = now_ns(CLOCK_THREAD_CPUTIME_ID) - cpu_ns;
    crew_.worked(now_ns(CLOCK_MONOTONIC) - wall_ns, ran_ns);
    if (crew_.size() == num_active()) return;
    first_cpu_.store(place_of_cpu(), std::memory_order_relaxed);
    active_.store(crew_.size(), std::memory_order_seq_cst);
    resized_.set(resized_.value() + 1);
  }

  // Calls f(task, thread) for each task in [0, num_tasks), the caller being thread 0; returns when
  // all are done. One run at a time; f may not call run().
  template <class F>
  void run(int num_tasks, const F& f) {
    const int active = num_active();
    if (active == 1 || num_tasks <= 1) {
      for (int task = 0; task < num_tasks; ++task) f(task, 0);
      return;
    }
    call_ = [](const void* f_, int task, int thread) {
      (*static_cast<const F*>(f_))(task, thread);
    };
    f_ = &f;
    pending_.store(num_tasks, std::memory_order_relaxed);
    for (int thread = 0; thread < active; ++thread) {
      const uint64_t next = uint64_t(num_tasks) * thread / active;
      const uint64_t end = uint64_t(num_tasks) * (thread + 1) / active;
      ranges_[thread].word.store(next << 32 | end, std::memory_order_release);
    }
    runs_.set(runs_.value() + 1);
    take_all(0);
    finished_.wait_while(finished_runs_, kSpin);
    ++finished_runs_;
  }

 private:
  struct alignas(64) Range {
    std::atomic<uint64_t> word{0};
  };

  static constexpr std::chrono::nanoseconds kSpin{60'000};
  static constexpr int kAnyCpu = -1;

  // Where the calling thread is, in cpus_. The others leave that CPU to it: it would not move away
  // by itself for as long as theirs are as busy.
  size_t place_of_cpu() const {
#if defined(__linux__)
    const auto found = std::find(cpus_.begin(), cpus_.end(), sched_getcpu());
    if (found != cpus_.end()) return found - cpus_.begin();
#endif
    return 0;
  }

  int cpu_of(int thread) const {
    const size_t first = first_cpu_.load(std::memory_order_relaxed);
    return cpus_.empty() ? kAnyCpu : cpus_[(first + thread) % cpus_.size()];
  }

  bool take(Range& range, int* task) {
    uint64_t word = range.word.load(std::memory_order_acquire);
    while (static_cast<uint32_t>(word >> 32) < static_cast<uint32_t>(word)) {
      if (range.word.compare_exchange_weak(word, word + (uint64_t{1} << 32),
                                           std::memory_order_acq_rel, std::memory_order_acquire)) {
        *task = static_cast<int>(word >> 32);
        return true;
      }
    }
    return false;
  }

  void take_all(int thread) {
    for (int i = 0; i < num_threads_; ++i) {
      Range& range = ranges_[(thread + i) % num_threads_];
      int task;
      while (take(range, &task)) {
        call_(f_, task, thread);
        if (pending_.fetch_sub(1, std::memory_order_acq_rel) == 1)
          finished_.set(finished_.value() + 1);  // the caller waits for it, once a run
      }
    }
  }

  void work(int thread) {
#if defined(__linux__)
    pthread_setname_np(pthread_self(), "hostelry-kernel");
#endif
    int cpu = kAnyCpu;
    uint32_t seen = 0;
    while (true) {
      const uint32_t size = resized_.value();
      if (stopping_.load(std::memory_order_relaxed)) return;
      const int active = active_.load(std::memory_order_seq_cst);
      if (thread >= active) {
        resized_.wait_while(size, std::chrono::nanoseconds(0));
        continue;
      }
      const int wanted = active == num_threads_ ? cpu_of(thread) : kAnyCpu;
      if (pins_ && wanted != cpu) {
        cpu = wanted;
        stay_on(cpu == kAnyCpu ? cpus_ : std::vector<int>{cpu});
      }
      runs_.wait_while(seen, kSpin);
      seen = runs_.value();
      take_all(thread);
    }
  }

  const int num_threads_;
  std::unique_ptr<Range[]> ranges_;
  const std::vector<int> cpus_;  // those allowed
  const bool pins_;
  Crew crew_;
  std::atomic<int> active_;  // crew_'s size, for the other threads
  std::atomic<size_t> first_cpu_{0};  // the caller's, in cpus_
  void (*call_)(const void*, int, int) = nullptr;
  const void* f_ = nullptr;
  uint32_t finished_runs_ = 0;
  alignas(64) Signal runs_;
  alignas(64) std::atomic<int> pending_{0};
  alignas(64) Signal finished_;
  alignas(64) Signal resized_;
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> threads_;
};

}  // namespace hostelry
