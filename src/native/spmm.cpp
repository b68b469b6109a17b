// y = A x, a row at a time, a tile of columns in registers.
#include "operators.h"
#include "vector.h"

namespace weft {
namespace WEFT_ISA {
namespace {

// Neighbours are read at random: what will be needed this many arcs later is fetched now, also across
// the end of the row (most rows are short). Narrow rows pass faster, so they look further ahead.
constexpr int64_t ahead_of(int vectors) { return vectors <= 2 ? 24 : vectors <= 4 ? 16 : 8; }

// Sums of a narrow tile depend on one another from arc to arc; this many arcs are summed side by side.
constexpr int side_by_side(int vectors) { return vectors <= 1 ? 4 : vectors <= 4 ? 2 : 1; }

template <class V, class I>
struct Row {
  const I* columns;
  const V* values;
  int64_t count;
  int64_t ahead;  // arcs that may be looked at beyond `columns`
};

// One tile: N vectors and, where Tail, the last `tail` < lanes columns.
template <class V, class I, int N, bool Weighted, bool Tail>
struct Tile {
  static constexpr int L = kLanes<V>;
  static constexpr int S = side_by_side(N);
  static constexpr int kLines = (N * kVectorBytes + (Tail ? kVectorBytes : 0) + 63) / 64;
  static constexpr int64_t kAhead = ahead_of(N);

  Vec<V> sum[S][N ? N : 1] = {};
  V rest[L] = {};

  inline void add(int s, V a, const V* in, int tail) {
    for (int k = 0; k < N; ++k) sum[s][k] += Weighted ? a * load<Vec<V>>(in + k * L) : load<Vec<V>>(in + k * L);
    if constexpr (Tail)
      for (int t = 0; t < tail; ++t) rest[t] += Weighted ? a * in[N * L + t] : in[N * L + t];
  }

  static inline void run(const Row<V, I>& row, const V* x, int64_t stride, V* y, V scale, bool accumulate,
                         int tail) {
    Tile tile;
    int64_t e = 0;
    // Two loops, so that the first needs no test of the prefetch's reach.
    const int64_t reach = row.ahead - kAhead - S < row.count - S + 1 ? row.ahead - kAhead - S : row.count - S + 1;
    for (; e < reach; e += S)
      for (int s = 0; s < S; ++s) {
        const char* next = reinterpret_cast<const char*>(x + int64_t(row.columns[e + s + kAhead]) * stride);
        for (int l = 0; l < kLines; ++l) __builtin_prefetch(next + 64 * l);
        tile.add(s, Weighted ? row.values[e + s] : V(1), x + int64_t(row.columns[e + s]) * stride, tail);
      }
    for (; e < row.count; ++e)
      tile.add(0, Weighted ? row.values[e] : V(1), x + int64_t(row.columns[e]) * stride, tail);
    for (int k = 0; k < N; ++k) {
      Vec<V> out = tile.sum[0][k];
      for (int s = 1; s < S; ++s) out += tile.sum[s][k];
      out *= scale;
      if (accumulate) out += load<Vec<V>>(y + k * L);
      store(y + k * L, out);
    }
    if constexpr (Tail)
      for (int t = 0; t < tail; ++t) y[N * L + t] = tile.rest[t] * scale + (accumulate ? y[N * L + t] : V(0));
  }
};

template <class V, class I>
constexpr int kWidest = kOften<V, I> ? 16 : 4;

// All rows, the last tile of the width known at compile time; wide rows take full tiles before it.
template <class V, class I, bool Weighted, int N, bool Tail>
void all_rows(Csr<V, I> a, const V* x, int64_t width, V* y, bool mean, bool accumulate, int threads) {
  constexpr int L = kLanes<V>, W = kWidest<V, I>;
  const int64_t arcs = a.rows ? a.indptr[a.rows] : 0;
  const int tail = int(width % L);
  for_rows(a.indptr, a.rows, width, threads, [&](int64_t i) {
    const int64_t begin = a.indptr[i], count = a.indptr[i + 1] - begin;
    const Row<V, I> row{a.indices + begin, Weighted ? a.values + begin : nullptr, count, arcs - begin};
    const V scale = mean && count ? V(1) / V(count) : V(1);
    V* out = y + i * width;
    int64_t c = 0;
    for (; width - c >= W * L; c += W * L)
      Tile<V, I, W, Weighted, false>::run(row, x + c, width, out + c, scale, accumulate, 0);
    if constexpr (N > 0 || Tail) Tile<V, I, N, Weighted, Tail>::run(row, x + c, width, out + c, scale, accumulate, tail);
  });
}

template <class V, class I, bool Weighted, int N = kWidest<V, I> - 1>
void by_width(Csr<V, I> a, const V* x, int64_t width, V* y, bool mean, bool accumulate, int threads) {
  constexpr int L = kLanes<V>;
  if (width / L % kWidest<V, I> == N) {
    if (width % L) all_rows<V, I, Weighted, N, true>(a, x, width, y, mean, accumulate, threads);
    else all_rows<V, I, Weighted, N, false>(a, x, width, y, mean, accumulate, threads);
  } else if constexpr (N > 0) {
    by_width<V, I, Weighted, N - 1>(a, x, width, y, mean, accumulate, threads);
  }
}

}  // namespace

template <class V, class I>
void spmm(Csr<V, I> a, const V* x, int64_t width, V* y, bool mean, bool accumulate, int threads) {
  if (a.values) by_width<V, I, true>(a, x, width, y, mean, accumulate, threads);
  else by_width<V, I, false>(a, x, width, y, mean, accumulate, threads);
}

#define INSTANTIATE(V, I) template void spmm(Csr<V, I>, const V*, int64_t, V*, bool, bool, int);
WEFT_FOR_TYPES(INSTANTIATE)

}  // namespace WEFT_ISA
}  // namespace weft
