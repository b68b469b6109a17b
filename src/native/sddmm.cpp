// out[e,h] = <left[i], right[j]> over the columns of head h, for every arc e = (i, j).
#include "dots.h"
#include "operators.h"

namespace weft {
namespace WEFT_ISA {

template <class V, class I>
void sddmm(Csr<V, I> a, const V* left, const V* right, int64_t width, int64_t first, int64_t dim, int64_t heads,
           V* out, int threads) {
  const int64_t arcs = a.rows ? a.indptr[a.rows] : 0;
  const Segments segments(width, first, dim, kLanes<V>);
  const bool whole = int64_t(segments.size()) == heads;
  for_chunks(a.indptr, a.rows, width, threads, [&](int64_t begin, int64_t end) {
    Dots<V> dots(out + a.indptr[begin] * heads);
    for (int64_t i = begin; i < end; ++i)
      for (int64_t e = a.indptr[i]; e < a.indptr[i + 1]; ++e) {
        if (e + kAhead < arcs) prefetch(right + int64_t(a.indices[e + kAhead]) * width, width * int64_t(sizeof(V)));
        const V* l = left + i * width;
        const V* r = right + int64_t(a.indices[e]) * width;
        if (whole) {
          for (const Segment& s : segments) dots.add(products(l + s.begin, r + s.begin, s.end - s.begin));
          continue;
        }
        for (int64_t h = 0; h < heads; ++h) out[e * heads + h] = 0;  // heads that have no column here
        for (const Segment& s : segments)
          out[e * heads + s.head] = total<V>(products(l + s.begin, r + s.begin, s.end - s.begin));
      }
    dots.finish();
  });
}

#define INSTANTIATE(V, I) \
  template void sddmm(Csr<V, I>, const V*, const V*, int64_t, int64_t, int64_t, int64_t, V*, int);
WEFT_FOR_TYPES(INSTANTIATE)

}  // namespace WEFT_ISA
}  // namespace weft
