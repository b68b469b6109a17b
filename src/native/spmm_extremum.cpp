// y[i,c] = max or min over j of a_ij x[j,c], with the winning column, and its gradient.
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
                  I* arg) {
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
    for (int l = 0; l < L; ++l) arg[c + l] = columns[winner[l]];
  }
  for (; c < width; ++c) {
    V best = (values ? values[0] : V(1)) * x[int64_t(columns[0]) * width + c];
    int64_t winner = 0;
    for (int64_t e = 1; e < count; ++e) {
      const V m = (values ? values[e] : V(1)) * x[int64_t(columns[e]) * width + c];
      if (beats<Max>(m, best)) best = m, winner = e;
    }
    y[c] = best, arg[c] = columns[winner];
  }
}

}  // namespace

template <class V, class I>
void spmm_extremum(Csr<V, I> a, const V* x, int64_t width, V* y, I* arg, bool max, int threads) {
  for_rows(a.indptr, a.rows, width, threads, [&](int64_t i) {
    const int64_t begin = a.indptr[i], count = a.indptr[i + 1] - begin;
    const V* values = a.values ? a.values + begin : nullptr;
    if (max) extremum_row<V, I, true>(a.indices + begin, values, count, x, width, y + i * width, arg + i * width);
    else extremum_row<V, I, false>(a.indices + begin, values, count, x, width, y + i * width, arg + i * width);
  });
}

// Each source collects from the rows that it won: no two threads write one row, and the order is fixed.
template <class V, class I>
void spmm_extremum_backward(Csr<V, I> t, const I* labels, const V* dy, const I* arg, int64_t width, V* dx,
                            int threads) {
  for_rows(t.indptr, t.rows, width, threads, [&](int64_t j) {
    V* out = dx + j * width;
    const I label = labels ? labels[j] : I(j);
    for (int64_t c = 0; c < width; ++c) out[c] = V(0);
    for (int64_t e = t.indptr[j]; e < t.indptr[j + 1]; ++e) {
      const int64_t i = t.indices[e];
      const V a = t.values ? t.values[e] : V(1);
      const V* in = dy + i * width;
      const I* winner = arg + i * width;
      for (int64_t c = 0; c < width; ++c) out[c] += winner[c] == label ? a * in[c] : V(0);
    }
  });
}

#define INSTANTIATE(V, I)                                                                                    \
  template void spmm_extremum(Csr<V, I>, const V*, int64_t, V*, I*, bool, int);                              \
  template void spmm_extremum_backward(Csr<V, I>, const I*, const V*, const I*, int64_t, V*, int);
WEFT_FOR_TYPES(INSTANTIATE)

}  // namespace WEFT_ISA
}  // namespace weft
