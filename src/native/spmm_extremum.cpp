// y[i,c] = max or min over j of a_ij ⊗ x[j,c], ⊗ a product or a sum, with the winning column, and its gradient.
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <memory>
#include <vector>

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

// The larger or smaller, b where they are equal or either is NaN. One instruction on x86; of a comparison and a choice the
// compiler makes three.
template <bool Max, class V>
inline Vec<V> better_of(Vec<V> a, Vec<V> b) {
#if defined(__AVX512F__)
  if constexpr (sizeof(V) == 4) return Vec<V>(Max ? _mm512_max_ps(__m512(a), __m512(b)) : _mm512_min_ps(__m512(a), __m512(b)));
  else return Vec<V>(Max ? _mm512_max_pd(__m512d(a), __m512d(b)) : _mm512_min_pd(__m512d(a), __m512d(b)));
#elif defined(__AVX2__)
  if constexpr (sizeof(V) == 4) return Vec<V>(Max ? _mm256_max_ps(__m256(a), __m256(b)) : _mm256_min_ps(__m256(a), __m256(b)));
  else return Vec<V>(Max ? _mm256_max_pd(__m256d(a), __m256d(b)) : _mm256_min_pd(__m256d(a), __m256d(b)));
#elif defined(__SSE2__)
  if constexpr (sizeof(V) == 4) return Vec<V>(Max ? _mm_max_ps(__m128(a), __m128(b)) : _mm_min_ps(__m128(a), __m128(b)));
  else return Vec<V>(Max ? _mm_max_pd(__m128d(a), __m128d(b)) : _mm_min_pd(__m128d(a), __m128d(b)));
#else
  return Max ? (a > b ? a : b) : (a < b ? a : b);
#endif
}

// What kind of walk: the larger or the smaller, of sums or of products, with who won or without. Plain: no message is NaN.
// Weighted: of plain walks alone; the others look.
template <bool Max_, bool Plus_, bool Winners_, bool Plain_, bool Weighted_>
struct Kind {
  static constexpr bool Max = Max_, Plus = Plus_, Winners = Winners_, Plain = Plain_, Weighted = Weighted_;
  // Vectors of columns in registers at a time: with who won there are two of each, and AVX-512 has 32 registers.
#if defined(__AVX512F__)
  static constexpr int kWidest = 8;
#else
  static constexpr int kWidest = Winners_ ? 4 : 8;
#endif
};

// Whether the winner is kept by its column's name, as `arg` has it, else by its arc's number in the row.
template <class V, class I>
constexpr bool kNamed = sizeof(I) == sizeof(MaskLane<V>);

// Where rows take several tiles, they are walked some arcs at a time: a second tile finds in the cache what the first has
// fetched. 32 rows of 128 float32 are half of it.
constexpr int64_t kSome = 32;

template <class K, class V>
inline Vec<V> message(V a, Vec<V> in) {
  if constexpr (K::Plus) return a + in;
  else if constexpr (K::Weighted || !K::Plain) return a * in;
  else return in;
}

// N vectors of columns in registers, over the arcs begin … end - 1 of a row: the best so far and whose it is (`kNamed`), both
// renewed without a branch. What earlier arcs gave stands in y and who. Lines: of every row to come, fetched; -1: `lines`.
template <class K, class V, class I, int N, int Lines>
inline void tile(const Row<V, I>& row, int64_t begin, int64_t end, const V* x, int64_t stride, int64_t lines, V* y,
                 MaskLane<V>* who) {
  constexpr int L = kLanes<V>;
  const int64_t many = Lines < 0 ? lines : Lines, far = many <= 1 ? 24 : many <= 2 ? 16 : 12;  // narrow rows pass faster
  Vec<V> best[N];
  Mask<V> winner[N], now = Mask<V>{} + MaskLane<V>(begin ? begin - 1 : 0);
  const auto value = [&](int64_t e) { return K::Weighted || (!K::Plain && row.values) ? row.values[e] : V(1); };
  const auto take = [&](int64_t e) {
    const V a = value(e);
    const V* in = x + int64_t(row.columns[e]) * stride;
    if constexpr (K::Winners && kNamed<V, I>) now = Mask<V>{} + MaskLane<V>(row.columns[e]);
    else if constexpr (K::Winners) now += 1;
    for (int k = 0; k < N; ++k) {
      const Vec<V> m = message<K>(a, load<Vec<V>>(in + k * L));
      if constexpr (K::Plain && !K::Winners) {
        best[k] = better_of<K::Max, V>(m, best[k]);
        continue;
      }
      Mask<V> better;
      if constexpr (K::Plain) better = K::Max ? m > best[k] : m < best[k];
      else better = ~(K::Max ? best[k] >= m : best[k] <= m) & (best[k] == best[k]);
      if constexpr (K::Winners) winner[k] = better ? now : winner[k];
      if constexpr (K::Plain) best[k] = better_of<K::Max, V>(m, best[k]);
      else best[k] = better ? m : best[k];
    }
  };
  int64_t e = begin;
  for (int k = 0; k < N; ++k) {
    if (begin) {
      best[k] = load<Vec<V>>(y + k * L);
      if constexpr (K::Winners) winner[k] = load<Mask<V>>(who + k * L);
    } else {
      best[k] = message<K>(value(0), load<Vec<V>>(x + int64_t(row.columns[0]) * stride + k * L));
      winner[k] = Mask<V>{} + MaskLane<V>(kNamed<V, I> ? row.columns[0] : I(0));
    }
  }
  if (!begin) ++e;
  if (many) {  // two loops, so that the first needs no test of the prefetch's reach
    const int64_t reach = row.ahead - far < end ? row.ahead - far : end;
    for (; e < reach; ++e) {
      const char* next = reinterpret_cast<const char*>(x + int64_t(row.columns[e + far]) * stride);
      for (int64_t l = 0; l < many; ++l) __builtin_prefetch(next + 64 * l);
      take(e);
    }
  }
  for (; e < end; ++e) take(e);
  for (int k = 0; k < N; ++k) {
    store(y + k * L, best[k]);
    if constexpr (K::Winners) store(who + k * L, winner[k]);
  }
}

// The columns of a row that fill vectors; whose they are stands in who. Alone: N vectors are all.
template <class K, class V, class I, int Alone>
inline void best_of_vectors(const Row<V, I>& row, const V* x, int64_t width, V* y, MaskLane<V>* who) {
  constexpr int L = kLanes<V>, W = K::kWidest;
  if constexpr (Alone > 0) {
    tile<K, V, I, Alone, (Alone * kVectorBytes + 63) / 64>(row, 0, row.count, x, width, 0, y, who);
  } else {
    const int64_t all = (width * int64_t(sizeof(V)) + 63) / 64;
    for (int64_t begin = 0; begin < row.count; begin += kSome) {
      const int64_t end = row.count - begin < kSome ? row.count : begin + kSome;
      int64_t c = 0, lines = all;
#define TILE(N)                                                                                                          \
  tile<K, V, I, N, -1>(row, begin, end, x + c, width, lines, y + c, K::Winners ? who + c : nullptr), c += N * L, lines = 0
      while (c + W * L <= width) TILE(W);
      if (W > 8 && c + 8 * L <= width) TILE(8);
      if (W > 4 && c + 4 * L <= width) TILE(4);
      if (c + 2 * L <= width) TILE(2);
      if (c + L <= width) TILE(1);
#undef TILE
    }
  }
}

template <class K, class V, class I, int Alone>
inline void best_of_row(const Row<V, I>& row, const V* x, int64_t width, V* y, I* arg, MaskLane<V>* who) {
  constexpr int L = kLanes<V>;
  if (row.count == 0) {
    for (int64_t c = 0; c < width; ++c) {
      y[c] = V(0);
      if constexpr (K::Winners) arg[c] = -1;
    }
    return;
  }
  const int64_t filled = Alone ? Alone * L : width / L * L;
  if constexpr (K::Winners && kNamed<V, I>) who = reinterpret_cast<MaskLane<V>*>(arg);
  if (filled) best_of_vectors<K, V, I, Alone>(row, x, width, y, who);
  if constexpr (K::Winners && !kNamed<V, I>)
    for (int64_t c = 0; c < filled; ++c) arg[c] = row.columns[who[c]];
  for (int64_t c = filled; c < width; ++c) {
    const auto at = [&](int64_t e) {
      const V a = row.values ? row.values[e] : V(1), in = x[int64_t(row.columns[e]) * width + c];
      return K::Plus ? a + in : a * in;
    };
    V best = at(0);
    int64_t winner = 0;
    for (int64_t e = 1; e < row.count; ++e) {
      const V m = at(e);
      if (beats<K::Max>(m, best)) best = m, winner = e;
    }
    y[c] = best;
    if constexpr (K::Winners) arg[c] = row.columns[winner];
  }
}

template <class K, class V, class I, int Alone>
void best_of_rows(Csr<V, I> a, const V* x, int64_t width, V* y, I* arg, int threads) {
  const int64_t arcs = a.rows ? a.indptr[a.rows] : 0;
  for_chunks(a.indptr, a.rows, width, threads, [&](int64_t first, int64_t last) {
    std::vector<MaskLane<V>> who(K::Winners && !kNamed<V, I> ? size_t(width) : 0);
    for (int64_t i = first; i < last; ++i) {
      const int64_t begin = a.indptr[i], count = a.indptr[i + 1] - begin;
      const Row<V, I> row{a.indices + begin, a.values ? a.values + begin : nullptr, count, arcs - begin};
      best_of_row<K, V, I, Alone>(row, x, width, y + i * width, K::Winners ? arg + i * width : nullptr, who.data());
    }
  });
}

// Some widths of float32 that are one tile have a walk of their own, 16, 64 and 128 from AVX2 on; each costs seconds of
// every build.
template <class K, class V, class I>
void by_width(Csr<V, I> a, const V* x, int64_t width, V* y, I* arg, int threads) {
  if constexpr (K::Plain && kOften<V, I>) {
    constexpr int L = kLanes<V>, F = L > 8 ? 1 : 2;
    if (width == F * L) return best_of_rows<K, V, I, F>(a, x, width, y, arg, threads);
    if constexpr (8 * F <= K::kWidest || !K::Winners) {
      if (width == 4 * F * L) return best_of_rows<K, V, I, 4 * F>(a, x, width, y, arg, threads);
      if (width == 8 * F * L) return best_of_rows<K, V, I, 8 * F>(a, x, width, y, arg, threads);
    }
  }
  best_of_rows<K, V, I, 0>(a, x, width, y, arg, threads);
}

template <class V, class I, bool Max, bool Plus>
void chosen(Csr<V, I> a, const V* x, int64_t width, V* y, I* arg, bool plain, int threads) {
  const auto run = [&](auto kind) { by_width<decltype(kind)>(a, x, width, y, arg, threads); };
  if constexpr (!kOften<V, I>) {  // a walk that looks for NaN finds none: the same numbers
    if (arg) run(Kind<Max, Plus, true, false, false>{});
    else run(Kind<Max, Plus, false, false, false>{});
  } else if (!plain && arg) run(Kind<Max, Plus, true, false, false>{});
  else if (!plain) run(Kind<Max, Plus, false, false, false>{});
  else if (a.values && arg) run(Kind<Max, Plus, true, true, true>{});
  else if (a.values) run(Kind<Max, Plus, false, true, true>{});
  else if (arg) run(Kind<Max, Plus, true, true, false>{});
  else run(Kind<Max, Plus, false, true, false>{});
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

// out[j,c] = the sum of what the winners j of some columns of dy get, in the order of rows. Some: how many columns, else 0:
// `columns` says it; out [columns of A, so many].
template <int64_t Some, class V, class I>
void add_columns(const I* arg, const V* dy, int64_t rows, int64_t width, int64_t columns, V* out, int64_t winners) {
  constexpr int64_t kAhead = 4, kFar = 32;  // to whom; and what stands far apart in memory
  const int64_t some = Some ? Some : columns;
  for (int64_t at = 0; at < winners * some; ++at) out[at] = V(0);
  for (int64_t i = 0; i < rows; ++i, arg += width, dy += width) {
    if (i + kFar < rows) __builtin_prefetch(arg + kFar * width), __builtin_prefetch(dy + kFar * width);
    if (i + kAhead < rows)
      for (int64_t c = 0; c < some; ++c) {
        const int64_t j = arg[kAhead * width + c];
        __builtin_prefetch(out + (j < 0 ? 0 : j) * some + c, 1);
      }
    for (int64_t c = 0; c < some; ++c) {
      const int64_t j = arg[c];
      if (j >= 0) out[j * some + c] += dy[c];
    }
  }
}

// The same where every winner passes on what it gets as it is: a row's numbers go straight to whom they are for.
// A thread has some columns of all rows, so that no two write one number. It adds them up where they lie side by side: in
// dx they are a row apart, and such lines fall into few sets of the cache.
template <class V, class I>
void add_to_winners(const I* arg, int64_t rows, int64_t width, const V* dy, int64_t columns, V* dx, int threads) {
  constexpr int64_t kSome = 64 / int64_t(sizeof(V));
  const int64_t slices = (width + kSome - 1) / kSome, workers = slices < threads ? slices : threads;
  parallel_for(workers, threads, [&](int64_t worker) {
    const std::unique_ptr<V[]> apart(slices > 1 ? new V[size_t(columns * kSome)] : nullptr);
    V* const out = slices > 1 ? apart.get() : dx;
    for (int64_t slice = worker; slice < slices; slice += workers) {
      const int64_t c = slice * kSome, some = c + kSome < width ? kSome : width - c;
      if (some == kSome) add_columns<kSome>(arg + c, dy + c, rows, width, some, out, columns);
      else add_columns<0>(arg + c, dy + c, rows, width, some, out, columns);
      if (slices > 1)
        for (int64_t j = 0; j < columns; ++j) std::copy_n(out + j * some, some, dx + j * width + c);
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
