// out[k] = x[index[k]], and x[index[k]] += src[k]: packing and unpacking rows.
#include "operators.h"
#include "vector.h"

namespace weft {
namespace WEFT_ISA {
namespace {

constexpr int64_t kAhead = 8;

inline int64_t rows_per_chunk(int64_t width) { return 1 + 16384 / (width < 1 ? 1 : width); }

}  // namespace

template <class V, class I>
void gather_rows(const V* x, const I* index, int64_t count, int64_t width, V* out, int threads) {
  for_range(count, rows_per_chunk(width), threads, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      if (k + kAhead < count) {
        const V* next = x + int64_t(index[k + kAhead]) * width;
        for (int64_t c = 0; c < width; c += 64 / int64_t(sizeof(V))) __builtin_prefetch(next + c);
      }
      std::memcpy(out + k * width, x + int64_t(index[k]) * width, size_t(width) * sizeof(V));
    }
  });
}

template <class V, class I>
void add_rows(V* x, const I* index, int64_t count, int64_t width, const V* src, int threads) {
  for_range(count, rows_per_chunk(width), threads, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      V* to = x + int64_t(index[k]) * width;
      const V* from = src + k * width;
      for (int64_t c = 0; c < width; ++c) to[c] += from[c];
    }
  });
}

#define INSTANTIATE(V, I)                                                              \
  template void gather_rows(const V*, const I*, int64_t, int64_t, V*, int);            \
  template void add_rows(V*, const I*, int64_t, int64_t, const V*, int);
WEFT_FOR_TYPES(INSTANTIATE)

}  // namespace WEFT_ISA
}  // namespace weft
