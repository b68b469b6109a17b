// y[i,c] = max or min over j of a_ij ⊗ x[j,c], ⊗ a product or a sum, with the winning column, and its gradient.
#include "operators.h"
#include "vector.h"

namespace weft {
namespace WEFT_ISA {
namespace {

template <class V, class I>
struct Row {
  const I* columns;
  const V* values;  // may be null: all ones
  int64_t count;
  int64_t ahead;  // arcs that may be looked at beyond `columns`
};

// NaN wins and stays, as in torch; on a tie the first arc of the row wins.
template <bool Max, class V>
inline bool beats(V candidate, V best) {
  return !(Max ? best >= candidate : best <= candidate) && best == best;
}

// N vectors of columns in registers: the best so far and whose it is, both renewed without a branch. Plain: no message
// is NaN. The first tile of a row fetches `lines` of the rows to come; the others then find them in the cache.
template <class V, class I, int N, bool Max, bool Plus, bool Winners, bool Plain>
inline void tile(const Row<V, I>& row, const V* x, int64_t stride, int64_t lines, V* y, I* arg) {
  constexpr int L = kLanes<V>;
  constexpr int64_t kAhead = 12;
  Vec<V> best[N];
  Mask<V> winner[N] = {};
  Mask<V> now = {};
  const auto message = [&](int64_t e, int k) {
    const V a = row.values ? row.values[e] : V(1);
    const Vec<V> in = load<Vec<V>>(x + int64_t(row.columns[e]) * stride + k * L);
    return Plus ? a + in : a * in;
  };
  const auto take = [&](int64_t e) {
    now += 1;
    for (int k = 0; k < N; ++k) {
      const Vec<V> m = message(e, k);
      Mask<V> better;
      if constexpr (Plain) better = Max ? m > best[k] : m < best[k];
      else better = ~(Max ? best[k] >= m : best[k] <= m) & (best[k] == best[k]);
      if constexpr (Winners) winner[k] = better ? now : winner[k];
      if constexpr (Plain) best[k] = Max ? (m > best[k] ? m : best[k]) : (m < best[k] ? m : best[k]);
      else best[k] = better ? m : best[k];
    }
  };
  for (int k = 0; k < N; ++k) best[k] = message(0, k);
  int64_t e = 1;
  if (lines) {  // two loops, so that the first needs no test of the prefetch's reach
    const int64_t reach = row.ahead - kAhead < row.count ? row.ahead - kAhead : row.count;
    for (; e < reach; ++e) {
      const char* next = reinterpret_cast<const char*>(x + int64_t(row.columns[e + kAhead]) * stride);
      for (int64_t l = 0; l < lines; ++l) __builtin_prefetch(next + 64 * l);
      take(e);
    }
  }
  for (; e < row.count; ++e) take(e);
  for (int k = 0; k < N; ++k) {
    store(y + k * L, best[k]);
    if constexpr (Winners)
      for (int l = 0; l < L; ++l) arg[k * L + l] = row.columns[winner[k][l]];
  }
}

template <class V, class I, bool Max, bool Plus, bool Winners, bool Plain>
void best_of_row(const Row<V, I>& row, const V* x, int64_t width, V* y, I* arg) {
  constexpr int L = kLanes<V>;
  if (row.count == 0) {
    for (int64_t c = 0; c < width; ++c) {
      y[c] = V(0);
      if constexpr (Winners) arg[c] = -1;
    }
    return;
  }
  int64_t c = 0, lines = (width * int64_t(sizeof(V)) + 63) / 64;
#define TILE(N)                                                                                               \
  tile<V, I, N, Max, Plus, Winners, Plain>(row, x + c, width, lines, y + c, Winners ? arg + c : nullptr), \
      c += N * L, lines = 0
  if constexpr (!Winners)
    while (c + 8 * L <= width) TILE(8);
  while (c + 4 * L <= width) TILE(4);
  if (c + 2 * L <= width) TILE(2);
  if (c + L <= width) TILE(1);
#undef TILE
  for (; c < width; ++c) {
    const auto message = [&](int64_t e) {
      const V a = row.values ? row.values[e] : V(1), in = x[int64_t(row.columns[e]) * width + c];
      return Plus ? a + in : a * in;
    };
    V best = message(0);
    int64_t winner = 0;
    for (int64_t e = 1; e < row.count; ++e) {
      const V m = message(e);
      if (beats<Max>(m, best)) best = m, winner = e;
    }
    y[c] = best;
    if constexpr (Winners) arg[c] = row.columns[winner];
  }
}

template <class V, class I, bool Max, bool Plus, bool Winners, bool Plain>
void best_of_rows(Csr<V, I> a, const V* x, int64_t width, V* y, I* arg, int threads) {
  const int64_t arcs = a.rows ? a.indptr[a.rows] : 0;
  for_rows(a.indptr, a.rows, width, threads, [&](int64_t i) {
    const int64_t begin = a.indptr[i], count = a.indptr[i + 1] - begin;
    const Row<V, I> row{a.indices + begin, a.values ? a.values + begin : nullptr, count, arcs - begin};
    best_of_row<V, I, Max, Plus, Winners, Plain>(row, x, width, y + i * width, Winners ? arg + i * width : nullptr);
  });
}

template <class V, class I, bool Max, bool Plus>
void chosen(Csr<V, I> a, const V* x, int64_t width, V* y, I* arg, bool plain, int threads) {
  if (arg && plain) best_of_rows<V, I, Max, Plus, true, true>(a, x, width, y, arg, threads);
  else if (arg) best_of_rows<V, I, Max, Plus, true, false>(a, x, width, y, arg, threads);
  else if (plain) best_of_rows<V, I, Max, Plus, false, true>(a, x, width, y, arg, threads);
  else best_of_rows<V, I, Max, Plus, false, false>(a, x, width, y, arg, threads);
}

}  // namespace

template <class V, class I>
void spmm_extremum(Csr<V, I> a, const V* x, int64_t width, V* y, I* arg, bool max, bool plus, bool plain, int threads) {
  if (max && plus) chosen<V, I, true, true>(a, x, width, y, arg, plain, threads);
  else if (max) chosen<V, I, true, false>(a, x, width, y, arg, plain, threads);
  else if (plus) chosen<V, I, false, true>(a, x, width, y, arg, plain, threads);
  else chosen<V, I, false, false>(a, x, width, y, arg, plain, threads);
}

// Each source collects from the rows that it won: no two threads write one row, and the order is fixed.
template <class V, class I>
void spmm_extremum_backward(Csr<V, I> t, const I* labels, const V* dy, const I* arg, int64_t width, V* dx,
                            int threads) {
  constexpr int64_t kAhead = 8;
  const int64_t arcs = t.rows ? t.indptr[t.rows] : 0;
  for_rows(t.indptr, t.rows, width, threads, [&](int64_t j) {
    V* out = dx + j * width;
    const I label = labels ? labels[j] : I(j);
    for (int64_t c = 0; c < width; ++c) out[c] = V(0);
    for (int64_t e = t.indptr[j]; e < t.indptr[j + 1]; ++e) {
      if (e + kAhead < arcs) {
        const int64_t next = int64_t(t.indices[e + kAhead]) * width;
        for (int64_t c = 0; c < width; c += 64 / int64_t(sizeof(I))) __builtin_prefetch(arg + next + c);
        for (int64_t c = 0; c < width; c += 64 / int64_t(sizeof(V))) __builtin_prefetch(dy + next + c);
      }
      const int64_t i = t.indices[e];
      const V a = t.values ? t.values[e] : V(1);
      const V* in = dy + i * width;
      const I* winner = arg + i * width;
      for (int64_t c = 0; c < width; ++c) out[c] += winner[c] == label ? a * in[c] : V(0);
    }
  });
}

// The same where every winner passes on what it gets as it is: a row's numbers go straight to whom they are for.
// A thread has some columns of all rows, so that no two write one number and each is summed in the order of rows.
template <class V, class I>
void add_to_winners(const I* arg, int64_t rows, int64_t width, const V* dy, int64_t columns, V* dx, int threads) {
  constexpr int64_t kSome = 64 / int64_t(sizeof(V)), kAhead = 4;
  const int64_t slices = (width + kSome - 1) / kSome;
  parallel_for(slices, threads, [&](int64_t slice) {
    const int64_t begin = slice * kSome, end = begin + kSome < width ? begin + kSome : width;
    for (int64_t j = 0; j < columns; ++j)
      for (int64_t c = begin; c < end; ++c) dx[j * width + c] = V(0);
    for (int64_t i = 0; i < rows; ++i) {
      if (i + kAhead < rows)
        for (int64_t c = begin; c < end; ++c) {
          const int64_t j = arg[(i + kAhead) * width + c];
          __builtin_prefetch(dx + (j < 0 ? 0 : j) * width + c, 1);
        }
      for (int64_t c = begin; c < end; ++c) {
        const int64_t j = arg[i * width + c];
        if (j >= 0) dx[j * width + c] += dy[i * width + c];
      }
    }
  });
}

#define INSTANTIATE(V, I)                                                                                    \
  template void spmm_extremum(Csr<V, I>, const V*, int64_t, V*, I*, bool, bool, bool, int);                  \
  template void spmm_extremum_backward(Csr<V, I>, const I*, const V*, const I*, int64_t, V*, int);           \
  template void add_to_winners(const I*, int64_t, int64_t, const V*, int64_t, V*, int);
WEFT_FOR_TYPES(INSTANTIATE)

}  // namespace WEFT_ISA
}  // namespace weft
