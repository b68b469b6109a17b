// Vectors of the instruction set at hand, through the compiler's vector extension (GCC, Clang).
// Only for files that are compiled once per instruction set: everything is in that set's namespace, so
// that the linker cannot swap one set's code for another's.
#pragma once
#include <cstdint>
#include <cstring>

#include "kernels.h"
#include "parallel.h"

namespace weft {
namespace WEFT_ISA {
namespace {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif

template <class V>
struct VectorOf;
template <>
struct VectorOf<float> {
  typedef float type __attribute__((vector_size(kVectorBytes)));
  typedef int32_t lane;
  typedef lane mask __attribute__((vector_size(kVectorBytes)));
};
template <>
struct VectorOf<double> {
  typedef double type __attribute__((vector_size(kVectorBytes)));
  typedef int64_t lane;
  typedef lane mask __attribute__((vector_size(kVectorBytes)));
};
template <class V>
using Vec = typename VectorOf<V>::type;
template <class V>
using Mask = typename VectorOf<V>::mask;
template <class V>
using MaskLane = typename VectorOf<V>::lane;
template <class V>
constexpr int kLanes = kVectorBytes / int(sizeof(V));

// What training runs. Float64 checks results, and 64-bit indices are for blocks of more than 2^31 columns: their walks have
// fewer widths of tiles, because each costs seconds of every build.
template <class V, class I>
constexpr bool kOften = sizeof(V) == 4 && sizeof(I) == 4;

template <class T, class V>
inline T load(const V* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
template <class T, class V>
inline void store(V* p, T v) {
  std::memcpy(p, &v, sizeof v);
}

// Rows are handed out in chunks of about equal work (arcs + rows), found by bisection on indptr, so that
// one heavy row does not hold a thread up for long. The cut depends on the matrix only, and a row is
// always summed by one thread in its order: results are the same to the bit for any number of threads.
struct RowChunks {
  const int64_t* indptr;
  int64_t rows, chunks;

  RowChunks(const int64_t* indptr, int64_t rows, int64_t width) : indptr(indptr), rows(rows) {
    const int64_t work = (rows ? indptr[rows] - indptr[0] : 0) + rows;
    const int64_t grain = 16384 / (width < 1 ? 1 : width > 512 ? 512 : width) * 8 + 1;
    chunks = rows ? work / grain + 1 : 0;
  }
  int64_t begin(int64_t chunk) const {
    if (chunk >= chunks) return rows;
    const int64_t total = indptr[rows] - indptr[0] + rows;
    const int64_t goal = int64_t(double(total) * double(chunk) / double(chunks));
    int64_t low = 0, high = rows;
    while (low < high) {
      const int64_t mid = low + (high - low) / 2;
      if (indptr[mid] - indptr[0] + mid < goal) low = mid + 1;
      else high = mid;
    }
    return low;
  }
};

template <class F>
inline void for_chunks(const int64_t* indptr, int64_t rows, int64_t width, int threads, F&& body) {
  const RowChunks chunks(indptr, rows, width);
  parallel_for(chunks.chunks, threads, [&](int64_t chunk) { body(chunks.begin(chunk), chunks.begin(chunk + 1)); });
}

template <class F>
inline void for_rows(const int64_t* indptr, int64_t rows, int64_t width, int threads, F&& row) {
  for_chunks(indptr, rows, width, threads, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) row(i);
  });
}

// Calls body(begin, end) over [0, count) in pieces of `grain`.
template <class F>
inline void for_range(int64_t count, int64_t grain, int threads, F&& body) {
  const int64_t chunks = (count + grain - 1) / grain;
  parallel_for(chunks, threads, [&](int64_t chunk) {
    const int64_t begin = chunk * grain;
    body(begin, begin + grain < count ? begin + grain : count);
  });
}

}  // namespace
}  // namespace WEFT_ISA
}  // namespace weft
