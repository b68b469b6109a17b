// out[e] = <left[i], right[j]> for every arc e = (i, j): a product of two dense matrices, only where A is.
#include "operators.h"
#include "vector.h"

namespace weft {
namespace WEFT_ISA {
namespace {

constexpr int64_t kAhead = 8;

template <class V>
inline V dot(const V* a, const V* b, int64_t width) {
  constexpr int L = kLanes<V>;
  Vec<V> s0 = {}, s1 = {}, s2 = {}, s3 = {};
  int64_t c = 0;
  for (; c + 4 * L <= width; c += 4 * L) {
    s0 += load<Vec<V>>(a + c) * load<Vec<V>>(b + c);
    s1 += load<Vec<V>>(a + c + L) * load<Vec<V>>(b + c + L);
    s2 += load<Vec<V>>(a + c + 2 * L) * load<Vec<V>>(b + c + 2 * L);
    s3 += load<Vec<V>>(a + c + 3 * L) * load<Vec<V>>(b + c + 3 * L);
  }
  for (; c + L <= width; c += L) s0 += load<Vec<V>>(a + c) * load<Vec<V>>(b + c);
  s0 = (s0 + s1) + (s2 + s3);
  V sum = 0;
  for (int l = 0; l < L; ++l) sum += s0[l];
  for (; c < width; ++c) sum += a[c] * b[c];
  return sum;
}

}  // namespace

template <class V, class I>
void sddmm(Csr<V, I> a, const V* left, const V* right, int64_t width, V* out, int threads) {
  const int64_t arcs = a.rows ? a.indptr[a.rows] : 0;
  const int64_t bytes = width * int64_t(sizeof(V));
  for_rows(a.indptr, a.rows, width, threads, [&](int64_t i) {
    for (int64_t e = a.indptr[i]; e < a.indptr[i + 1]; ++e) {
      if (e + kAhead < arcs) {
        const char* next = reinterpret_cast<const char*>(right + int64_t(a.indices[e + kAhead]) * width);
        for (int64_t b = 0; b < bytes && b < 1024; b += 64) __builtin_prefetch(next + b);
      }
      out[e] = dot(left + i * width, right + int64_t(a.indices[e]) * width, width);
    }
  });
}

#define INSTANTIATE(V, I) template void sddmm(Csr<V, I>, const V*, const V*, int64_t, V*, int);
WEFT_FOR_TYPES(INSTANTIATE)

}  // namespace WEFT_ISA
}  // namespace weft
