// What the walks of attention share: sums of weighted rows, dropout of arcs, numbers of a tile by head.
#pragma once
#include <array>
#include <cmath>
#include <numeric>
#include <vector>

#include "dots.h"
#include "exponential.h"
#include "operators.h"

namespace weft {
namespace WEFT_ISA {
namespace {

// Vectors of a tile: with several heads or two sums; with one, as many as the registers hold.
template <class V, class I>
constexpr int kMixed = kOften<V, I> ? 8 : 4;
template <class V, class I>
constexpr int kWidest = kOften<V, I> ? (kVectorBytes == 64 ? 16 : 8) : 4;
constexpr int64_t kTileBytes = 16384;
constexpr int64_t kLongest = 256;

// y[0 .. N·L) (+)= Σ_e weight[e · stride] x[column e]
template <class V, class I, int N>
inline void add_vectors(const I* columns, const V* weight, int64_t heads, int64_t count, int64_t reach, const V* x,
                        int64_t width, int64_t bytes, V* y, bool fresh) {
  constexpr int L = kLanes<V>;
  constexpr int S = N <= 1 ? 4 : N <= 4 ? 2 : 1;
  Vec<V> sum[S][N] = {};
  int64_t e = 0;
  for (; e + S <= count; e += S)
    for (int s = 0; s < S; ++s) {
      if (bytes && e + s + kAhead < reach) prefetch(x + int64_t(columns[e + s + kAhead]) * width, bytes);
      const V* in = x + int64_t(columns[e + s]) * width;
      const V w = weight[(e + s) * heads];
      for (int k = 0; k < N; ++k) sum[s][k] += w * load<Vec<V>>(in + k * L);
    }
  for (; e < count; ++e) {
    const V* in = x + int64_t(columns[e]) * width;
    const V w = weight[e * heads];
    for (int k = 0; k < N; ++k) sum[0][k] += w * load<Vec<V>>(in + k * L);
  }
  for (int k = 0; k < N; ++k) {
    Vec<V> out = fresh ? Vec<V>{} : load<Vec<V>>(y + k * L);
    for (int s = 0; s < S; ++s) out += sum[s][k];
    store(y + k * L, out);
  }
}

template <class V, class I, int N = kWidest<V, I>>
inline void add_width(int vectors, const I* columns, const V* weight, int64_t heads, int64_t count, int64_t reach,
                      const V* x, int64_t width, int64_t bytes, V* y, bool fresh) {
  if (vectors == N) add_vectors<V, I, N>(columns, weight, heads, count, reach, x, width, bytes, y, fresh);
  else if constexpr (N > 1)
    add_width<V, I, N - 1>(vectors, columns, weight, heads, count, reach, x, width, bytes, y, fresh);
}

// The same where every vector lies within a head, head[k] that of vector k: all heads in one walk.
template <class V, class I, int N>
inline void add_mixed(const I* columns, const V* weight, int64_t heads, const int64_t* head, int64_t count, int64_t reach,
                      const V* x, int64_t width, int64_t bytes, V* y, bool fresh) {
  constexpr int L = kLanes<V>;
  Vec<V> sum[N] = {};
  for (int64_t e = 0; e < count; ++e) {
    if (bytes && e + kAhead < reach) prefetch(x + int64_t(columns[e + kAhead]) * width, bytes);
    const V* in = x + int64_t(columns[e]) * width;
    const V* w = weight + e * heads;
    for (int k = 0; k < N; ++k) sum[k] += w[head[k]] * load<Vec<V>>(in + k * L);
  }
  for (int k = 0; k < N; ++k) store(y + k * L, fresh ? sum[k] : load<Vec<V>>(y + k * L) + sum[k]);
}

template <class V, class I, int N = kMixed<V, I>>
inline void add_mixed_width(int vectors, const I* columns, const V* weight, int64_t heads, const int64_t* head,
                            int64_t count, int64_t reach, const V* x, int64_t width, int64_t bytes, V* y, bool fresh) {
  if (vectors == N) add_mixed<V, I, N>(columns, weight, heads, head, count, reach, x, width, bytes, y, fresh);
  else if constexpr (N > 1)
    add_mixed_width<V, I, N - 1>(vectors, columns, weight, heads, head, count, reach, x, width, bytes, y, fresh);
}

// y (+)= Σ_e weight[e, head(c)] x[column e, c] over the arcs of a tile. `reach`: arcs that may be looked at;
// rows ahead are fetched on the first walk over the arcs only.
template <class V, class I>
__attribute__((noinline)) void add_rows_of(const Segments& segments, const I* columns, const V* weight, int64_t heads,
                        int64_t count, int64_t reach, const V* x, int64_t width, V* y, bool fresh, bool cached) {
  constexpr int L = kLanes<V>, M = kMixed<V, I>, W = kWidest<V, I>;
  int64_t bytes = cached ? 0 : width * int64_t(sizeof(V));
  if (!segments.head.empty()) {
    const int64_t vectors = int64_t(segments.head.size());
    for (int64_t v = 0; v < vectors; v += M) {
      const int n = int(vectors - v < M ? vectors - v : M);
      add_mixed_width<V, I>(n, columns, weight, heads, segments.head.data() + v, count, reach, x + v * L, width,
                            bytes, y + v * L, fresh);
      bytes = 0;
    }
    return;
  }
  for (const Segment& s : segments) {
    int64_t c = s.begin;
    while (s.end - c >= L) {
      const int vectors = int((s.end - c) / L < W ? (s.end - c) / L : W);
      add_width<V, I>(vectors, columns, weight + s.head, heads, count, reach, x + c, width, bytes, y + c, fresh);
      bytes = 0;
      c += int64_t(vectors) * L;
    }
    if (c < s.end) {
      V rest[L] = {};
      const int tail = int(s.end - c);
      for (int64_t e = 0; e < count; ++e) {
        if (bytes && e + kAhead < reach) prefetch(x + int64_t(columns[e + kAhead]) * width, bytes);
        const V* in = x + int64_t(columns[e]) * width + c;
        const V w = weight[e * heads + s.head];
        for (int t = 0; t < tail; ++t) rest[t] += w * in[t];
      }
      bytes = 0;
      for (int t = 0; t < tail; ++t) y[c + t] = fresh ? rest[t] : y[c + t] + rest[t];
    }
  }
}

// Both at once, where the weights are known before the dot products: y (+)= Σ_e weight[e] g[row e], and
// part[e] (+)= g[row e] · x before its lanes are added up. Each piece of g is read once for both.
template <class V, class I, int N>
inline void add_and_dot(const I* rows, const V* weight, int64_t heads, int64_t count, int64_t reach, const V* g,
                        int64_t width, int64_t bytes, const V* x, Vec<V>* part, bool first, V* y, bool fresh) {
  constexpr int L = kLanes<V>;
  Vec<V> sum[N] = {};
  for (int64_t e = 0; e < count; ++e) {
    if (bytes && e + kAhead < reach) prefetch(g + int64_t(rows[e + kAhead]) * width, bytes);
    const V* in = g + int64_t(rows[e]) * width;
    const V w = weight[e * heads];
    Vec<V> d0 = first ? Vec<V>{} : part[e], d1 = {};
    for (int k = 0; k < N; ++k) {
      const Vec<V> v = load<Vec<V>>(in + k * L);
      sum[k] += w * v;
      if (k % 2) d1 += v * load<Vec<V>>(x + k * L);
      else d0 += v * load<Vec<V>>(x + k * L);
    }
    part[e] = d0 + d1;
  }
  for (int k = 0; k < N; ++k) store(y + k * L, fresh ? sum[k] : load<Vec<V>>(y + k * L) + sum[k]);
}

template <class V, class I, int N = kMixed<V, I>>
inline void add_and_dot_width(int vectors, const I* rows, const V* weight, int64_t heads, int64_t count, int64_t reach,
                              const V* g, int64_t width, int64_t bytes, const V* x, Vec<V>* part, bool first, V* y,
                              bool fresh) {
  if (vectors == N)
    add_and_dot<V, I, N>(rows, weight, heads, count, reach, g, width, bytes, x, part, first, y, fresh);
  else if constexpr (N > 1)
    add_and_dot_width<V, I, N - 1>(vectors, rows, weight, heads, count, reach, g, width, bytes, x, part, first, y,
                                   fresh);
}

// y (+)= Σ_e weight[e, head(c)] g[row e, c] and dots[e, h] = <g[row e], x> in every head.
template <class V, class I>
__attribute__((noinline)) void add_and_dot_rows(const Segments& segments, const I* rows, const V* weight, int64_t heads, int64_t count,
                             int64_t reach, const V* g, int64_t width, const V* x, Vec<V>* part, V* dots, V* y,
                             bool fresh) {
  constexpr int L = kLanes<V>, M = kMixed<V, I>;
  int64_t bytes = width * int64_t(sizeof(V));
  for (const Segment& s : segments) {
    int64_t c = s.begin;
    bool first = true;
    while (s.end - c >= L) {
      const int vectors = int((s.end - c) / L < M ? (s.end - c) / L : M);
      add_and_dot_width<V, I>(vectors, rows, weight + s.head, heads, count, reach, g + c, width, bytes, x + c, part,
                              first, y + c, fresh);
      bytes = 0, first = false;
      c += int64_t(vectors) * L;
    }
    if (c < s.end) {
      V rest[L] = {};
      const int tail = int(s.end - c);
      for (int64_t e = 0; e < count; ++e) {
        const V* in = g + int64_t(rows[e]) * width + c;
        const V w = weight[e * heads + s.head];
        V d = 0;
        for (int t = 0; t < tail; ++t) rest[t] += w * in[t], d += in[t] * x[c + t];
        if (first) part[e] = Vec<V>{};
        part[e][0] += d;
      }
      for (int t = 0; t < tail; ++t) y[c + t] = fresh ? rest[t] : y[c + t] + rest[t];
    }
    for (int64_t e = 0; e < count; e += L) {
      Vec<V> group[L];
      for (int64_t k = 0; k < L; ++k) group[k] = e + k < count ? part[e + k] : Vec<V>{};
      const Vec<V> found = totals<V>(group);
      for (int64_t k = 0; k < L && e + k < count; ++k) dots[(e + k) * heads + s.head] = found[k];
    }
  }
}

// Whether arc (i, j) is kept in head h: a word of Philox4x32-10 at counter (j, i low, i high, 1 + h / 4).
struct Keep {
  uint32_t word[4];
  Keep(uint64_t i, uint64_t j, uint64_t group, uint64_t key) {
    uint32_t c0 = uint32_t(j), c1 = uint32_t(i), c2 = uint32_t(i >> 32);
    uint32_t c3 = uint32_t(1 + group) ^ (uint32_t(j >> 32) << 16);
    uint32_t k0 = uint32_t(key), k1 = uint32_t(key >> 32);
    for (int round = 0; round < 10; ++round) {
      const uint64_t p0 = uint64_t(c0) * 0xD2511F53u, p1 = uint64_t(c2) * 0xCD9E8D57u;
      const uint32_t n0 = uint32_t(p1 >> 32) ^ c1 ^ k0, n2 = uint32_t(p0 >> 32) ^ c3 ^ k1;
      c0 = n0, c1 = uint32_t(p1), c2 = n2, c3 = uint32_t(p0);
      k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    word[0] = c0, word[1] = c1, word[2] = c2, word[3] = c3;
  }
};

// factor[h] = 1 / (1 - p) or 0 for every head of arc (i, j).
template <class V>
inline void keep_factors(const Attention<V>& at, int64_t i, int64_t j, V* factor) {
  const uint64_t row = uint64_t(at.row_names ? at.row_names[i] : i);
  const uint64_t column = uint64_t(at.column_names ? at.column_names[j] : j);
  for (int64_t h = 0; h < at.heads; h += 4) {
    const Keep keep(row, column, uint64_t(h / 4), at.key);
    for (int64_t g = h; g < h + 4 && g < at.heads; ++g)
      factor[g] = keep.word[g - h] >= at.threshold ? at.scale : V(0);
  }
}

template <class V>
inline Vec<V> leaky(Vec<V> t, V slope) {
  return t > V(0) ? t : t * slope;
}

template <class V>
inline int64_t tile_of(int64_t row_bytes) {
  const int64_t fit = kTileBytes / (row_bytes > 0 ? row_bytes : 1);
  return fit < 16 ? 16 : fit > kLongest ? kLongest : fit;
}

// Numbers of a tile lie arc by arc, head by head, in one array. A vector then meets the same heads every
// `period` numbers, the least common multiple of heads and lanes; what belongs to a head is laid out that often.
template <class V>
struct Heads {
  int64_t heads, period, vectors, room;
  Heads(int64_t heads, int64_t tile) : heads(heads), period(std::lcm(heads, int64_t(kLanes<V>))) {
    vectors = period / kLanes<V>;
    room = (tile * heads + period - 1) / period * period + period;
  }
  int64_t padded(int64_t arcs) const { return (arcs * heads + period - 1) / period * period; }
  void lay(V* pattern, const V* by_head) const {
    for (int64_t k = 0; k < period; k += heads)
      for (int64_t h = 0; h < heads; ++h) pattern[k + h] = by_head[h];
  }
  void fill(V* pattern, V value) const {
    for (int64_t k = 0; k < period; ++k) pattern[k] = value;
  }
  void add_up(const V* pattern, V* by_head) const {
    for (int64_t k = 0; k < period; k += heads)
      for (int64_t h = 0; h < heads; ++h) by_head[h] += pattern[k + h];
  }
  // step(k, q): numbers k … k + lanes, whose heads are those of the pattern at q.
  template <class F>
  void each(int64_t numbers, F&& step) const {
    if (vectors == 1)
      for (int64_t k = 0; k < numbers; k += kLanes<V>) step(k, 0);
    else
      for (int64_t k = 0; k < numbers; k += period)
        for (int64_t q = 0; q < period; q += kLanes<V>) step(k + q, q);
  }
};

template <class V>
inline void copy_head(V* to, const V* from, int64_t heads) {
  if (heads == 1) *to = *from;
  else
    for (int64_t h = 0; h < heads; ++h) to[h] = from[h];
}

// Like for_chunks, with memory for `numbers` numbers of its own for every thread.
template <class V, class F>
inline void for_chunks_with(const int64_t* indptr, int64_t rows, int64_t width, int64_t numbers, int threads, F&& body) {
  for_chunks(indptr, rows, width, threads, [&](int64_t begin, int64_t end) {
    static thread_local std::vector<V> memory;
    if (int64_t(memory.size()) < numbers) memory.resize(size_t(numbers));
    body(begin, end, memory.data());
  });
}

// The same, row by row.
template <class V, class F>
inline void for_rows_with(const int64_t* indptr, int64_t rows, int64_t width, int64_t numbers, int threads, F&& row) {
  for_chunks_with<V>(indptr, rows, width, numbers, threads, [&](int64_t begin, int64_t end, V* scratch) {
    for (int64_t i = begin; i < end; ++i) row(i, scratch);
  });
}

}  // namespace
}  // namespace WEFT_ISA
}  // namespace weft
