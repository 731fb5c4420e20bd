// The functions that Python may call, but for the decoder's, which stand at the end of decoder.cpp;
// native/library.py lists them all with their types.
//
// No pointer may be null but where it says so. Types of elements: 0 fp32, 1 bf16 (`dtype`); kinds
// of packed weights: see gemm.h.

#pragma once

#include <cstddef>
#include <cstdint>

#include "gemm.h"
#include "threads.h"

#if defined(_WIN32)
#define HOSTELRY_EXPORT extern "C" __declspec(dllexport)
#else
#define HOSTELRY_EXPORT extern "C" __attribute__((visibility("default")))
#endif

// gemm.cpp

// The instruction set that this library was compiled for.
HOSTELRY_EXPORT const char* hostelry_variant();
// The state of the sources that it was compiled from (variants.py: fingerprint).
HOSTELRY_EXPORT const char* hostelry_fingerprint();

HOSTELRY_EXPORT hostelry::ThreadPool* hostelry_pool_new(int num_threads, int pin);
HOSTELRY_EXPORT void hostelry_pool_free(hostelry::ThreadPool* pool);
// Of its threads, those that compute now (crew.h).
HOSTELRY_EXPORT int hostelry_pool_active(const hostelry::ThreadPool* pool);
// How many of `num_threads` compute after each of `num_steps` steps that took so long,
// their caller running for `cpu_ns` of it.
HOSTELRY_EXPORT void hostelry_crew_sizes(int num_threads, int num_steps, const int64_t* wall_ns,
                                         const int64_t* cpu_ns, int32_t* sizes);
// Nanoseconds that an empty run takes, the mean of `repeats`.
HOSTELRY_EXPORT double hostelry_pool_overhead_ns(hostelry::ThreadPool* pool, int repeats);

HOSTELRY_EXPORT size_t hostelry_packed_bytes(int kind, int out, int in);
HOSTELRY_EXPORT size_t hostelry_prepared_bytes(int kind, int rows, int in);
// Packs `out` rows of `in` elements, `ld` elements apart; `scales` (int8 only, else null).
HOSTELRY_EXPORT void hostelry_pack(hostelry::ThreadPool* pool, int kind, int dtype,
                                   const void* weights, ptrdiff_t ld, int out, int in,
                                   void* packed, float* scales);
// y (rows, out) = x (rows, in) times the weight's transpose, or y + that; `prepared` is scratch.
HOSTELRY_EXPORT void hostelry_gemm(hostelry::ThreadPool* pool,
                                   const hostelry::PackedWeight* weight, const float* x,
                                   ptrdiff_t ldx, int rows, float* y, ptrdiff_t ldy, int add,
                                   void* prepared);

// decoder.cpp

namespace hostelry {
class Decoder;
struct DecoderWeights;
struct StepArguments;
struct Refusal;
}  // namespace hostelry

// Copies the structures of the weights, not what they point to; `pool` outlives the decoder's use.
HOSTELRY_EXPORT hostelry::Decoder* hostelry_decoder_new(hostelry::ThreadPool* pool,
                                                        const hostelry::DecoderWeights* weights);
HOSTELRY_EXPORT void hostelry_decoder_free(hostelry::Decoder* decoder);
// One step; `refusal` says why nothing was done, if so.
HOSTELRY_EXPORT void hostelry_decoder_forward(hostelry::Decoder* decoder,
                                              const hostelry::StepArguments* step,
                                              hostelry::Refusal* refusal);
// Seconds spent in each phase (decoder.h) of all steps so far.
HOSTELRY_EXPORT const double* hostelry_decoder_seconds(const hostelry::Decoder* decoder);
