// Rows by number: packed, unpacked, and multiplied in pairs.
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

template <class V, class I>
void pair_products(const V* x, const I* left, const I* right, int64_t count, int64_t width, V* out, int threads) {
  for_range(count, rows_per_chunk(width), threads, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      const V* a = x + int64_t(left[k]) * width;
      const V* b = x + int64_t(right[k]) * width;
      V* to = out + k * width;
      for (int64_t c = 0; c < width; ++c) to[c] = a[c] * b[c];
    }
  });
}

// An index may occur twice, so a thread takes some columns of all rows: every sum has one order.
template <class V, class I>
void scatter_rows(V* x, const I* index, int64_t count, int64_t width, const V* src, int threads) {
  if (width == 0) return;
  constexpr int64_t line = 64 / int64_t(sizeof(V));
  const int64_t share = (width + threads - 1) / threads;
  const int64_t grain = (share + line - 1) / line * line;  // whole cache lines, where there are enough
  for_range(width, threads == 1 ? width : grain < width ? grain : share, threads, [&](int64_t begin, int64_t end) {
    for (int64_t k = 0; k < count; ++k) {
      if (k + kAhead < count) {
        const V* next = x + int64_t(index[k + kAhead]) * width;
        for (int64_t c = begin; c < end; c += line) __builtin_prefetch(next + c, 1);
      }
      V* to = x + int64_t(index[k]) * width;
      const V* from = src + k * width;
      for (int64_t c = begin; c < end; ++c) to[c] += from[c];
    }
  });
}

// Many pairs may share a row, so a thread takes some columns of all pairs: every sum has one order.
template <class V, class I>
void add_pair_products(V* y, const V* x, const I* left, const I* right, int64_t count, int64_t width, const V* g,
                       int threads) {
  constexpr int L = kLanes<V>;
  constexpr int64_t line = 64 / int64_t(sizeof(V));
  if (width == 0) return;
  const int64_t share = (width + threads - 1) / threads;
  for_range(width, (share + line - 1) / line * line, threads, [&](int64_t begin, int64_t end) {
    for (int64_t k = 0; k < count; ++k) {
      const int64_t a = int64_t(left[k]) * width, b = int64_t(right[k]) * width;
      const V* by = g + k * width;
      int64_t c = begin;
      for (; c + L <= end; c += L) {  // a may be b: the first sum is stored before the second is read
        const Vec<V> factor = load<Vec<V>>(by + c);
        store(y + a + c, load<Vec<V>>(y + a + c) + factor * load<Vec<V>>(x + b + c));
        store(y + b + c, load<Vec<V>>(y + b + c) + factor * load<Vec<V>>(x + a + c));
      }
      for (; c < end; ++c) {
        y[a + c] += by[c] * x[b + c];
        y[b + c] += by[c] * x[a + c];
      }
    }
  });
}

#define INSTANTIATE(V, I)                                                                        \
  template void gather_rows(const V*, const I*, int64_t, int64_t, V*, int);                      \
  template void add_rows(V*, const I*, int64_t, int64_t, const V*, int);                         \
  template void scatter_rows(V*, const I*, int64_t, int64_t, const V*, int);                     \
  template void pair_products(const V*, const I*, const I*, int64_t, int64_t, V*, int);          \
  template void add_pair_products(V*, const V*, const I*, const I*, int64_t, int64_t, const V*, int);
WEFT_FOR_TYPES(INSTANTIATE)

}  // namespace WEFT_ISA
}  // namespace weft
