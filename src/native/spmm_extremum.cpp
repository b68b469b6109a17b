// y[i,c] = max or min over j of a_ij x[j,c], with the winner's position, and its gradient.
#include "operators.h"
#include "vector.h"

namespace weft {
namespace WEFT_ISA {
namespace {

// NaN wins and stays, as in torch; on a tie the first arc of the row wins.
template <bool Max, class V>
inline bool beats(V candidate, V best) {
  return (Max ? candidate > best : candidate < best) || (candidate != candidate && best == best);
}

template <class V, class I, bool Max>
void extremum_row(const I* columns, const V* values, int64_t count, const V* x, int64_t width, V* y,
                  int32_t* arg) {
  constexpr int L = kLanes<V>;
  if (count == 0) {
    for (int64_t c = 0; c < width; ++c) y[c] = V(0), arg[c] = -1;
    return;
  }
  int64_t c = 0;
  for (; c + L <= width; c += L) {
    const V first = values ? values[0] : V(1);
    Vec<V> best = first * load<Vec<V>>(x + int64_t(columns[0]) * width + c);
    Mask<V> winner = {};
    for (int64_t e = 1; e < count; ++e) {
      const Vec<V> m = (values ? values[e] : V(1)) * load<Vec<V>>(x + int64_t(columns[e]) * width + c);
      const Mask<V> better = (Max ? m > best : m < best) | ((m != m) & (best == best));
      best = better ? m : best;
      winner = better ? (Mask<V>{} + MaskLane<V>(e)) : winner;
    }
    store(y + c, best);
    for (int l = 0; l < L; ++l) arg[c + l] = int32_t(winner[l]);
  }
  for (; c < width; ++c) {
    V best = (values ? values[0] : V(1)) * x[int64_t(columns[0]) * width + c];
    int32_t winner = 0;
    for (int64_t e = 1; e < count; ++e) {
      const V m = (values ? values[e] : V(1)) * x[int64_t(columns[e]) * width + c];
      if (beats<Max>(m, best)) best = m, winner = int32_t(e);
    }
    y[c] = best, arg[c] = winner;
  }
}

}  // namespace

template <class V, class I>
void spmm_extremum(Csr<V, I> a, const V* x, int64_t width, V* y, int32_t* arg, bool max, int threads) {
  for_rows(a.indptr, a.rows, width, threads, [&](int64_t i) {
    const int64_t begin = a.indptr[i], count = a.indptr[i + 1] - begin;
    const V* values = a.values ? a.values + begin : nullptr;
    if (max) extremum_row<V, I, true>(a.indices + begin, values, count, x, width, y + i * width, arg + i * width);
    else extremum_row<V, I, false>(a.indices + begin, values, count, x, width, y + i * width, arg + i * width);
  });
}

// Each source collects from the rows that it won: no two threads write one row, and the order is fixed.
template <class V, class I>
void spmm_extremum_backward(Csr<V, I> t, const int64_t* permutation, const int64_t* indptr, const V* values,
                            const V* dy, const int32_t* arg, int64_t width, V* dx, int threads) {
  for_rows(t.indptr, t.rows, width, threads, [&](int64_t j) {
    V* out = dx + j * width;
    for (int64_t c = 0; c < width; ++c) out[c] = V(0);
    for (int64_t e = t.indptr[j]; e < t.indptr[j + 1]; ++e) {
      const int64_t i = t.indices[e], arc = permutation[e];
      const int32_t position = int32_t(arc - indptr[i]);
      const V a = values ? values[arc] : V(1);
      const V* in = dy + i * width;
      const int32_t* winner = arg + i * width;
      for (int64_t c = 0; c < width; ++c) out[c] += winner[c] == position ? a * in[c] : V(0);
    }
  });
}

#define INSTANTIATE(V, I)                                                                               \
  template void spmm_extremum(Csr<V, I>, const V*, int64_t, V*, int32_t*, bool, int);                   \
  template void spmm_extremum_backward(Csr<V, I>, const int64_t*, const int64_t*, const V*, const V*,   \
                                       const int32_t*, int64_t, V*, int);
WEFT_FOR_TYPES(INSTANTIATE)

}  // namespace WEFT_ISA
}  // namespace weft
