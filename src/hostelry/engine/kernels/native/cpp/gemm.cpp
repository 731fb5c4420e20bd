// The C functions around packing and products.

#include "gemm.h"

#include <chrono>

#include "exports.h"
#include "gemm_lanes.h"
#if defined(__AMX_BF16__)
#include "gemm_tiles.h"
#endif
#include "pack.h"
#include "threads.h"

namespace hostelry {

constexpr int kPrepareRows = 8;  // rows of a task

static void gemm(ThreadPool& pool, const PackedWeight& weight, const float* x, ptrdiff_t ldx,
                 int rows, const Target& target, void* prepared) {
  const Kind kind = static_cast<Kind>(weight.kind);
  pool.run((rows + kPrepareRows - 1) / kPrepareRows, [&](int task, int) {
    const int end = std::min((task + 1) * kPrepareRows, rows);
    for (int row = task * kPrepareRows; row < end; ++row)
      prepare_row(kind, x + row * ldx, weight.in, rows, row, prepared);
  });
  pool.run(num_gemm_tasks(weight, rows), [&](int task, int) {
    gemm_task(weight, prepared, rows, target.y, target.ldy, target.add, task);
  });
}

}  // namespace hostelry

using namespace hostelry;

#if !defined(HOSTELRY_FINGERPRINT)
#define HOSTELRY_FINGERPRINT ""
#endif

const char* hostelry_variant() { return HOSTELRY_VARIANT; }

const char* hostelry_fingerprint() { return HOSTELRY_FINGERPRINT; }

ThreadPool* hostelry_pool_new(int num_threads, int pin) {
  return new ThreadPool(num_threads, pin != 0);
}

void hostelry_pool_free(ThreadPool* pool) { delete pool; }

int hostelry_pool_active(const ThreadPool* pool) { return pool->num_active(); }

void hostelry_crew_sizes(int num_threads, int num_steps, const int64_t* wall_ns,
                         const int64_t* cpu_ns, int32_t* sizes) {
  Crew crew(num_threads);
  for (int i = 0; i < num_steps; ++i) {
    crew.worked(wall_ns[i], cpu_ns[i]);
    sizes[i] = crew.size();
  }
}

double hostelry_pool_overhead_ns(ThreadPool* pool, int repeats) {
  const auto started = std::chrono::steady_clock::now();
  for (int i = 0; i < repeats; ++i) pool->run(pool->num_threads(), [](int, int) {});
  const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - started;
  return took.count() / repeats;
}

size_t hostelry_packed_bytes(int kind, int out, int in) {
  return packed_bytes(static_cast<Kind>(kind), out, in);
}

size_t hostelry_prepared_bytes(int kind, int rows, int in) {
  return prepared_bytes(static_cast<Kind>(kind), rows, in);
}

void hostelry_pack(ThreadPool* pool, int kind, int dtype, const void* weights, ptrdiff_t ld,
                   int out, int in, void* packed, float* scales) {
  const Kind to = static_cast<Kind>(kind);
  if (dtype == 0) {
    pack(*pool, Rows<float>{static_cast<const float*>(weights), ld, out, in}, to, packed, scales);
  } else {
    pack(*pool, Rows<bf16>{static_cast<const bf16*>(weights), ld, out, in}, to, packed, scales);
  }
}

void hostelry_gemm(ThreadPool* pool, const PackedWeight* weight, const float* x, ptrdiff_t ldx,
                   int rows, float* y, ptrdiff_t ldy, int add, void* prepared) {
  gemm(*pool, *weight, x, ldx, rows, {y, ldy, add != 0}, prepared);
}
