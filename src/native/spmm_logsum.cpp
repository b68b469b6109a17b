// y[i,c] = log Σ_j e^(a_ij + x[j,c]), a tile of columns at a time: the largest first, then the sum; and its gradient.
#include <cmath>
#include <limits>

#include "exponential.h"
#include "operators.h"

namespace weft {
namespace WEFT_ISA {
namespace {

// A tile's numbers of one row, padded to whole vectors: what lies beyond the width is nobody's.
template <class V, int N>
inline void read(const V* in, int64_t count, Vec<V>* out) {
  constexpr int L = kLanes<V>;
  if (count == N * L) {
    for (int k = 0; k < N; ++k) out[k] = load<Vec<V>>(in + k * L);
    return;
  }
  V room[N * L] = {};
  for (int64_t c = 0; c < count; ++c) room[c] = in[c];
  for (int k = 0; k < N; ++k) out[k] = load<Vec<V>>(room + k * L);
}

template <class V, int N>
inline void write(V* out, int64_t count, const Vec<V>* in) {
  constexpr int L = kLanes<V>;
  V room[N * L];
  for (int k = 0; k < N; ++k) store(room + k * L, in[k]);
  for (int64_t c = 0; c < count; ++c) out[c] = room[c];
}

constexpr int kTile = 4;  // vectors

template <class V, class I>
void tile_of_row(Csr<V, I> a, int64_t i, const V* x, int64_t width, int64_t first, int64_t count, V* y) {
  constexpr int N = kTile, L = kLanes<V>;
  constexpr V lowest = -std::numeric_limits<V>::infinity();
  Vec<V> most[N], sum[N] = {}, in[N];
  for (int k = 0; k < N; ++k) most[k] = Vec<V>{} + lowest;
  for (int64_t e = a.indptr[i]; e < a.indptr[i + 1]; ++e) {
    const V w = a.values ? a.values[e] : V(1);
    read<V, N>(x + int64_t(a.indices[e]) * width + first, count, in);
    for (int k = 0; k < N; ++k) {
      const Vec<V> m = w + in[k];
      most[k] = (m > most[k]) | (m != m) ? m : most[k];
    }
  }
  // Nothing but -inf, or +inf: e^(m - most) would be NaN; the largest is the answer.
  Vec<V> from[N];
  for (int k = 0; k < N; ++k) {
    const Mask<V> finite = (most[k] - most[k]) == Vec<V>{};
    from[k] = finite ? most[k] : Vec<V>{};
  }
  for (int64_t e = a.indptr[i]; e < a.indptr[i + 1]; ++e) {
    const V w = a.values ? a.values[e] : V(1);
    read<V, N>(x + int64_t(a.indices[e]) * width + first, count, in);
    for (int k = 0; k < N; ++k) sum[k] += exponential<V>(w + in[k] - from[k]);
  }
  V tops[N * L], sums[N * L];
  for (int k = 0; k < N; ++k) store(tops + k * L, most[k]), store(sums + k * L, sum[k]);
  for (int64_t c = 0; c < count; ++c) y[c] = tops[c] - tops[c] == V(0) ? tops[c] + std::log(sums[c]) : tops[c];
}

// dx[j] = Σ_i dy[i] e^(a_ij + x[j] - y[i]) over the transpose's row j.
template <class V, class I>
void tile_of_column(Csr<V, I> t, int64_t j, const V* x, const V* y, const V* dy, int64_t width, int64_t first,
                    int64_t count, V* dx) {
  constexpr int N = kTile;
  constexpr V lowest = -std::numeric_limits<V>::infinity();
  Vec<V> own[N], sum[N] = {}, total[N], g[N];
  read<V, N>(x + j * width + first, count, own);
  for (int64_t e = t.indptr[j]; e < t.indptr[j + 1]; ++e) {
    const V w = t.values ? t.values[e] : V(1);
    const int64_t at = int64_t(t.indices[e]) * width + first;
    read<V, N>(y + at, count, total);
    read<V, N>(dy + at, count, g);
    for (int k = 0; k < N; ++k) {
      // Where a row's sum is 0, nobody has a share of it.
      const Vec<V> share = exponential<V>(w + own[k] - total[k]);
      sum[k] += g[k] * (total[k] == lowest ? Vec<V>{} : share);
    }
  }
  write<V, N>(dx, count, sum);
}

template <class F>
inline void for_tiles(int64_t width, int64_t size, F&& body) {
  for (int64_t first = 0; first < width; first += size) body(first, first + size < width ? size : width - first);
}

}  // namespace

template <class V, class I>
void spmm_logsum(Csr<V, I> a, const V* x, int64_t width, V* y, int threads) {
  for_rows(a.indptr, a.rows, 16 * width, threads, [&](int64_t i) {
    for_tiles(width, kTile * kLanes<V>, [&](int64_t first, int64_t count) {
      tile_of_row<V, I>(a, i, x, width, first, count, y + i * width + first);
    });
  });
}

template <class V, class I>
void spmm_logsum_backward(Csr<V, I> t, const V* x, const V* y, const V* dy, int64_t width, V* dx, int threads) {
  for_rows(t.indptr, t.rows, 16 * width, threads, [&](int64_t j) {
    for_tiles(width, kTile * kLanes<V>, [&](int64_t first, int64_t count) {
      tile_of_column<V, I>(t, j, x, y, dy, width, first, count, dx + j * width + first);
    });
  });
}

#define INSTANTIATE(V, I)                                                                 \
  template void spmm_logsum(Csr<V, I>, const V*, int64_t, V*, int);                       \
  template void spmm_logsum_backward(Csr<V, I>, const V*, const V*, const V*, int64_t, V*, int);
WEFT_FOR_TYPES(INSTANTIATE)

}  // namespace WEFT_ISA
}  // namespace weft
