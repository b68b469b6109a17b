// Attention over the arcs of A, a row at a time: scores, stable softmax and the weighted sum in one pass.
//
//   s[e,h]  the score of arc e = (i, j) in head h: given, leaky(u[i,h] + v[j,h]), or row_gain[i,h] gain[j,h] <q[i,h,:], k[j,h,:]>
//   p[e,h]  s itself, or exp(s - m_i) with a running maximum m_i and sum l_i (softmax)
//   y[i,c]  Σ_e keep(e,h) p[e,h] x[j,c], h the head that column c belongs to
//
// A row's arcs are taken in tiles, small enough that the rows of x that a tile reads twice (for the score
// and for the sum) are still in the cache the second time. Nothing is stored per arc and column.
#include <array>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "dots.h"
#include "exponential.h"
#include "operators.h"
#include "vector.h"

namespace weft {
namespace WEFT_ISA {
namespace {

constexpr int kWidest = 16, kMixed = 8;  // vectors of a tile; of one with several heads or two sums
constexpr int64_t kTileBytes = 16384;
constexpr int64_t kLongest = 256;

// <x_i, x_j>, <g_i, x_j> and <x_i, g_j> at once: each piece is read once.
template <class V>
inline void three_products(const V* xi, const V* gi, const V* xj, const V* gj, int64_t width, Vec<V>* out) {
  constexpr int L = kLanes<V>;
  Vec<V> r0 = {}, r1 = {}, o0 = {}, o1 = {}, i0 = {}, i1 = {};
  int64_t c = 0;
  for (; c + 2 * L <= width; c += 2 * L) {
    const Vec<V> a = load<Vec<V>>(xi + c), b = load<Vec<V>>(xj + c);
    r0 += a * b;
    o0 += load<Vec<V>>(gi + c) * b;
    i0 += a * load<Vec<V>>(gj + c);
    const Vec<V> e = load<Vec<V>>(xi + c + L), f = load<Vec<V>>(xj + c + L);
    r1 += e * f;
    o1 += load<Vec<V>>(gi + c + L) * f;
    i1 += e * load<Vec<V>>(gj + c + L);
  }
  out[0] = r0 + r1, out[1] = o0 + o1, out[2] = i0 + i1;
  if (c < width) {
    out[0] += products(xi + c, xj + c, width - c);
    out[1] += products(gi + c, xj + c, width - c);
    out[2] += products(xi + c, gj + c, width - c);
  }
}

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

template <class V, class I, int N = kWidest>
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

template <class V, class I, int N = kMixed>
inline void add_mixed_width(int vectors, const I* columns, const V* weight, int64_t heads, const int64_t* head,
                            int64_t count, int64_t reach, const V* x, int64_t width, int64_t bytes, V* y, bool fresh) {
  if (vectors == N) add_mixed<V, I, N>(columns, weight, heads, head, count, reach, x, width, bytes, y, fresh);
  else if constexpr (N > 1)
    add_mixed_width<V, I, N - 1>(vectors, columns, weight, heads, head, count, reach, x, width, bytes, y, fresh);
}

// y (+)= Σ_e weight[e, head(c)] x[column e, c] over the arcs of a tile. `reach`: arcs that may be looked at;
// rows ahead are fetched on the first walk over the arcs only.
template <class V, class I>
inline void add_rows_of(const Segments& segments, const I* columns, const V* weight, int64_t heads,
                        int64_t count, int64_t reach, const V* x, int64_t width, V* y, bool fresh, bool cached) {
  constexpr int L = kLanes<V>;
  int64_t bytes = cached ? 0 : width * int64_t(sizeof(V));
  if (!segments.head.empty()) {
    const int64_t vectors = int64_t(segments.head.size());
    for (int64_t v = 0; v < vectors; v += kMixed) {
      const int n = int(vectors - v < kMixed ? vectors - v : kMixed);
      add_mixed_width<V, I>(n, columns, weight, heads, segments.head.data() + v, count, reach, x + v * L, width,
                            bytes, y + v * L, fresh);
      bytes = 0;
    }
    return;
  }
  for (const Segment& s : segments) {
    int64_t c = s.begin;
    while (s.end - c >= L) {
      const int vectors = int((s.end - c) / L < kWidest ? (s.end - c) / L : kWidest);
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

template <class V, class I, int N = kMixed>
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
inline void add_and_dot_rows(const Segments& segments, const I* rows, const V* weight, int64_t heads, int64_t count,
                             int64_t reach, const V* g, int64_t width, const V* x, Vec<V>* part, V* dots, V* y,
                             bool fresh) {
  constexpr int L = kLanes<V>;
  int64_t bytes = width * int64_t(sizeof(V));
  for (const Segment& s : segments) {
    int64_t c = s.begin;
    bool first = true;
    while (s.end - c >= L) {
      const int vectors = int((s.end - c) / L < kMixed ? (s.end - c) / L : kMixed);
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

// Like for_rows, with memory for `numbers` numbers of its own for every thread.
template <class V, class F>
inline void for_rows_with(const int64_t* indptr, int64_t rows, int64_t width, int64_t numbers, int threads, F&& row) {
  const RowChunks chunks(indptr, rows, width);
  parallel_for(chunks.chunks, threads, [&](int64_t chunk) {
    static thread_local std::vector<V> memory;
    if (int64_t(memory.size()) < numbers) memory.resize(size_t(numbers));
    V* const scratch = memory.data();
    const int64_t end = chunks.begin(chunk + 1);
    for (int64_t i = chunks.begin(chunk); i < end; ++i) row(i, scratch);
  });
}

}  // namespace

template <class V, class I>
void attend(Csr<V, I> a, Attention<V> at, const V* x, int64_t width, int64_t first, int64_t dim, V* state, V* y,
            bool begin, bool finish, int threads) {
  const int64_t H = at.heads, arcs = a.rows ? a.indptr[a.rows] : 0;
  const Segments segments(width, first, dim, kLanes<V>);
  const bool dots = at.kind == Score::dot, shared = dots && at.column == x && at.inner * H == width;
  const int64_t key_width = at.inner * H, key_bytes = key_width * int64_t(sizeof(V));
  const int64_t tile = dots ? tile_of<V>(width * int64_t(sizeof(V)) + (shared ? 0 : key_bytes)) : kLongest;
  const Heads<V> heads(H, tile);
  for_rows_with<V>(a.indptr, a.rows, width + key_width, heads.room + 2 * heads.period + 2 * H, threads,
                   [&](int64_t i, V* scratch) {
    V* score = scratch;
    V* pattern = score + heads.room;
    V* running = pattern + heads.period;
    V* grow = running + heads.period;
    V* keep = grow + H;
    const int64_t from = a.indptr[i], count = a.indptr[i + 1] - from;
    V* out = y + i * width;
    V* most = state ? state + i * 2 * H : nullptr;
    V* sum = most ? most + H : nullptr;
    if (begin && at.softmax)
      for (int64_t h = 0; h < H; ++h) most[h] = -INFINITY, sum[h] = 0;
    if (begin && count == 0)
      for (int64_t c = 0; c < width; ++c) out[c] = 0;
    for (int64_t t = 0; t < count; t += tile) {
      const int64_t n = count - t < tile ? count - t : tile, numbers = heads.padded(n);
      const I* columns = a.indices + from + t;
      const bool fresh = begin && t == 0;
      if (at.kind == Score::given) {
        for (int64_t e = 0; e < n; ++e) {
          const int64_t arc = at.permutation ? at.permutation[from + t + e] : from + t + e;
          copy_head(score + e * H, at.given + arc * H, H);
        }
      } else if (at.kind == Score::additive) {
        for (int64_t e = 0; e < n; ++e) copy_head(score + e * H, at.column + int64_t(columns[e]) * H, H);
        heads.lay(pattern, at.row + i * at.row_stride);
        heads.each(numbers, [&](int64_t k, int64_t q) {
          store(score + k, leaky(load<Vec<V>>(score + k) + load<Vec<V>>(pattern + q), at.slope));
        });
      } else {
        const V* query = at.row + i * at.row_stride;
        Dots<V> into(score);
        for (int64_t e = 0; e < n; ++e) {
          if (from + t + e + kAhead < arcs)
            prefetch(at.column + int64_t(columns[e + kAhead]) * key_width, key_bytes);
          const V* key = at.column + int64_t(columns[e]) * key_width;
          for (int64_t h = 0; h < H; ++h) into.add(products(query + h * at.inner, key + h * at.inner, at.inner));
        }
        into.flush();
        if (at.gain)
          for (int64_t e = 0; e < n; ++e)
            for (int64_t h = 0; h < H; ++h) score[e * H + h] *= at.gain[int64_t(columns[e]) * H + h];
        if (at.row_gain) {
          heads.lay(pattern, at.row_gain + i * H);
          heads.each(numbers, [&](int64_t k, int64_t q) {
            store(score + k, load<Vec<V>>(score + k) * load<Vec<V>>(pattern + q));
          });
        }
      }
      if (at.softmax) {
        for (int64_t k = n * H; k < numbers; ++k) score[k] = -INFINITY;
        heads.lay(running, most);
        heads.each(numbers, [&](int64_t k, int64_t q) {
          const Vec<V> s = load<Vec<V>>(score + k), r = load<Vec<V>>(running + q);
          store(running + q, s > r ? s : r);
        });
        for (int64_t h = 0; h < H; ++h) grow[h] = running[h];
        for (int64_t k = H; k < heads.period; k += H)
          for (int64_t h = 0; h < H; ++h) grow[h] = running[k + h] > grow[h] ? running[k + h] : grow[h];
        heads.lay(pattern, grow);
        heads.fill(running, V(0));
        heads.each(numbers, [&](int64_t k, int64_t q) {
          const Vec<V> p = exponential<V>(load<Vec<V>>(score + k) - load<Vec<V>>(pattern + q));
          store(score + k, p);
          store(running + q, load<Vec<V>>(running + q) + p);
        });
        bool grew = false;
        for (int64_t h = 0; h < H; ++h) {
          const V factor = fresh ? V(0) : most[h] == grow[h] ? V(1) : std::exp(most[h] - grow[h]);
          grew |= factor != V(1);
          most[h] = grow[h];
          sum[h] *= factor;
          grow[h] = factor;
        }
        heads.add_up(running, sum);
        if (grew && !fresh)
          for (const Segment& s : segments)
            for (int64_t c = s.begin; c < s.end; ++c) out[c] *= grow[s.head];
      }
      if (at.threshold)
        for (int64_t e = 0; e < n; ++e) {
          keep_factors(at, i, int64_t(columns[e]), keep);
          for (int64_t h = 0; h < H; ++h) score[e * H + h] *= keep[h];
        }
      add_rows_of(segments, columns, score, H, n, arcs - from - t, x, width, out, fresh, shared);
    }
    if (finish && at.softmax) {
      for (int64_t h = 0; h < H; ++h) grow[h] = sum[h] != V(0) ? V(1) / sum[h] : V(0);
      for (const Segment& s : segments)
        for (int64_t c = s.begin; c < s.end; ++c) out[c] *= grow[s.head];
    }
  });
}

template <class V, class I>
void attend_backward(Csr<V, I> t, Attention<V> at, const V* stat, const V* g, const V* x, int64_t width, int64_t dim,
                     V* dx, V* dcolumn, V* dgain, V* dscore, int threads) {
  const int64_t H = at.heads, arcs = t.rows ? t.indptr[t.rows] : 0;
  const bool dots = at.kind == Score::dot;
  const int64_t key_width = at.inner * H;
  const Segments segments(width, 0, dim, kLanes<V>);
  const Segments key_segments(dots ? key_width : 0, 0, dots ? at.inner : 1, kLanes<V>);
  const int64_t bytes = width * int64_t(sizeof(V)), row_bytes = (dots ? key_width : H) * int64_t(sizeof(V));
  const int64_t tile = tile_of<V>(bytes + (dots ? row_bytes : 0));
  const Heads<V> heads(H, tile);
  // dx and dcolumn may be one buffer, where the keys are the values: then both are added into it.
  const bool together = dcolumn == dx;
  for_rows_with<V>(t.indptr, t.rows, 2 * (width + key_width), 7 * heads.room + 2 * heads.period, threads,
                   [&](int64_t j, V* scratch) {
    static thread_local std::array<Vec<V>, kLongest> part;
    V* p = scratch;             // the score, then exp(score - log Σ exp)
    V* d = p + heads.room;      // dy · x, then the gradient of the score
    V* sum = d + heads.room;    // additive: u + v; dot: the product without its gain
    V* logs = sum + heads.room;
    V* mean = logs + heads.room;
    V* keep = mean + heads.room;
    V* kept = keep + heads.room;
    V* pattern = kept + heads.room;
    V* running = pattern + heads.period;
    const V* gain = at.gain ? at.gain + j * H : nullptr;
    const int64_t from = t.indptr[j], count = t.indptr[j + 1] - from;
    const V* xj = x + j * width;
    V* out = dx + j * width;
    V* out_column = dcolumn + j * (dots ? key_width : H);
    if (count == 0)
      for (int64_t c = 0; c < width; ++c) out[c] = 0;
    if (!dots)
      for (int64_t h = 0; h < H; ++h) out_column[h] = 0;
    else if (count == 0 && !together)
      for (int64_t c = 0; c < key_width; ++c) out_column[c] = 0;
    if (gain)
      for (int64_t h = 0; h < H; ++h) dgain[j * H + h] = 0;
    for (int64_t begin = 0; begin < count; begin += tile) {
      const int64_t n = count - begin < tile ? count - begin : tile, numbers = heads.padded(n);
      const I* rows = t.indices + from + begin;
      const int64_t* arc = at.permutation + from + begin;
      const int64_t reach = arcs - from - begin;
      // dots: the weights need the products with the keys first; additive: g is read once, further down.
      Dots<V> into(d);
      for (int64_t e = 0; e < n; ++e) {
        const int64_t i = rows[e];
        if (e + kAhead < reach) {
          const int64_t next = rows[e + kAhead];
          prefetch(stat + next * 2 * H, 1);
          prefetch(at.row + next * at.row_stride, row_bytes);
          __builtin_prefetch(dscore + arc[e + kAhead] * H, 1);
          if (dots) prefetch(g + next * width, bytes);
        }
        if (dots)
          for (const Segment& s : segments)
            into.add(products(g + i * width + s.begin, xj + s.begin, s.end - s.begin));
        if (at.softmax) {
          copy_head(logs + e * H, stat + i * 2 * H, H);
          copy_head(mean + e * H, stat + i * 2 * H + H, H);
        }
      }
      into.flush();
      if (dots) {
        const V* key = at.column + j * key_width;
        Dots<V> into_sum(sum);
        for (int64_t e = 0; e < n; ++e)
          for (int64_t h = 0; h < H; ++h)
            into_sum.add(products(at.row + int64_t(rows[e]) * at.row_stride + h * at.inner, key + h * at.inner,
                                  at.inner));
        into_sum.flush();
        if (gain) heads.lay(pattern, gain);
        else heads.fill(pattern, V(1));
        heads.each(numbers, [&](int64_t k, int64_t q) {
          store(p + k, load<Vec<V>>(sum + k) * load<Vec<V>>(pattern + q));
        });
      } else {
        for (int64_t e = 0; e < n; ++e) copy_head(sum + e * H, at.row + int64_t(rows[e]) * at.row_stride, H);
        heads.lay(pattern, at.column + j * H);
        heads.each(numbers, [&](int64_t k, int64_t q) {
          const Vec<V> both = load<Vec<V>>(sum + k) + load<Vec<V>>(pattern + q);
          store(sum + k, both);
          store(p + k, leaky(both, at.slope));
        });
      }
      // What stands beyond the last arc is never read, but must not count in the sums.
      const int64_t used = n * H;
      if (at.softmax) {
        for (int64_t k = used; k < numbers; ++k) p[k] = logs[k] = mean[k] = 0;
        heads.each(numbers, [&](int64_t k, int64_t) {
          store(p + k, exponential<V>(load<Vec<V>>(p + k) - load<Vec<V>>(logs + k)));
        });
      }
      const V* weight = p;  // with dropout's factor
      if (at.threshold) {
        for (int64_t e = 0; e < n; ++e) keep_factors(at, int64_t(rows[e]), j, keep + e * H);
        for (int64_t k = 0; k < used; ++k) kept[k] = p[k] * keep[k];
        weight = kept;
      }
      if (!dots)
        add_and_dot_rows(segments, rows, weight, H, n, reach, g, width, xj, part.data(), d, out, begin == 0);
      if (at.threshold)
        for (int64_t k = 0; k < used; ++k) d[k] *= keep[k];
      if (at.softmax) {
        for (int64_t k = used; k < numbers; ++k) d[k] = 0;
        heads.each(numbers, [&](int64_t k, int64_t) {
          store(d + k, load<Vec<V>>(p + k) * (load<Vec<V>>(d + k) - load<Vec<V>>(mean + k)));
        });
      }
      for (int64_t k = used; k < numbers; ++k) d[k] = sum[k] = 0;
      if (!dots || gain) {
        heads.fill(running, V(0));
        heads.each(numbers, [&](int64_t k, int64_t q) {
          Vec<V> ds = load<Vec<V>>(d + k);
          const Vec<V> plain = load<Vec<V>>(sum + k);
          Vec<V> part = ds * plain;
          if (dots) ds *= load<Vec<V>>(pattern + q);
          else part = ds = plain > V(0) ? ds : ds * at.slope;
          store(d + k, ds);
          store(running + q, load<Vec<V>>(running + q) + part);
        });
        heads.add_up(running, dots ? dgain + j * H : out_column);
      }
      for (int64_t e = 0; e < n; ++e) copy_head(dscore + arc[e] * H, d + e * H, H);
      if (dots) add_rows_of(segments, rows, weight, H, n, reach, g, width, out, begin == 0, true);
      if (dots)
        add_rows_of(key_segments, rows, d, H, n, reach, at.row, at.row_stride, out_column, begin == 0 && !together,
                    true);
    }
  });
}

// With a = row_gain, b = gain and raw = <x_i, x_j>, arc (i, j) has the score a_i b_j raw and arc (j, i) has
// a_j b_i raw: both are at hand when row i meets its neighbour j, so all of row i's gradient is.
//   dx_i = Σ_j (ds_ij a_i b_j + ds_ji a_j b_i) x_j + keep p_ji g_j
// Without dx the gradient of a alone: arcs (j, i) don't count, and no row of g but row i's is read.
template <class V, class I>
void attend_self_backward(Csr<V, I> a, Attention<V> at, const V* stat, const V* g, const V* x, int64_t width, V* dx,
                          V* dgains, int threads) {
  const int64_t H = at.heads, arcs = a.rows ? a.indptr[a.rows] : 0, dim = width / H;
  const Segments segments(width, 0, dim > 0 ? dim : 1, kLanes<V>);
  const int64_t bytes = width * int64_t(sizeof(V));
  const bool both = dx != nullptr;
  const int64_t tile = tile_of<V>(2 * bytes);
  const Heads<V> heads(H, tile);
  for_rows_with<V>(a.indptr, a.rows, 4 * width, 9 * heads.room + 6 * heads.period, threads,
                   [&](int64_t i, V* scratch) {
    V* raw = scratch;
    V* out_dot = raw + heads.room;       // <g_i, x_j>, for arc (i, j)
    V* in_dot = out_dot + heads.room;    // <g_j, x_i>, for arc (j, i)
    V* aj = in_dot + heads.room;
    V* bj = aj + heads.room;
    V* logs = bj + heads.room;
    V* mean = logs + heads.room;
    V* keep_out = mean + heads.room;
    V* keep_in = keep_out + heads.room;
    V* ai = keep_in + heads.room;
    V* bi = ai + heads.period;
    V* log_i = bi + heads.period;
    V* mean_i = log_i + heads.period;
    V* sum_a = mean_i + heads.period;
    V* sum_b = sum_a + heads.period;
    const int64_t from = a.indptr[i], count = a.indptr[i + 1] - from;
    const V* xi = x + i * width;
    const V* gi = g + i * width;
    const V* mine = stat + i * 4 * H;
    V* out = both ? dx + i * width : nullptr;
    if (both && count == 0)
      for (int64_t c = 0; c < width; ++c) out[c] = 0;
    heads.lay(ai, mine), heads.lay(bi, mine + H), heads.lay(log_i, mine + 2 * H), heads.lay(mean_i, mine + 3 * H);
    heads.fill(sum_a, V(0)), heads.fill(sum_b, V(0));
    for (int64_t begin = 0; begin < count; begin += tile) {
      const int64_t n = count - begin < tile ? count - begin : tile, numbers = heads.padded(n);
      const I* columns = a.indices + from + begin;
      const int64_t reach = arcs - from - begin;
      Dots<V> into_raw(raw), into_out(out_dot), into_in(in_dot);
      for (int64_t e = 0; e < n; ++e) {
        if (e + kAhead < reach) {
          const int64_t next = columns[e + kAhead];
          prefetch(x + next * width, bytes);
          if (both) prefetch(g + next * width, bytes);
          prefetch(stat + next * 4 * H, 4 * H * int64_t(sizeof(V)));
        }
        const int64_t j = columns[e];
        const V* xj = x + j * width;
        const V* gj = g + j * width;
        for (const Segment& s : segments) {
          if (!both) {
            into_raw.add(products(xi + s.begin, xj + s.begin, s.end - s.begin));
            into_out.add(products(gi + s.begin, xj + s.begin, s.end - s.begin));
            continue;
          }
          Vec<V> found[3];
          three_products(xi + s.begin, gi + s.begin, xj + s.begin, gj + s.begin, s.end - s.begin, found);
          into_raw.add(found[0]), into_out.add(found[1]), into_in.add(found[2]);
        }
        const V* other = stat + j * 4 * H;
        copy_head(aj + e * H, other, H);
        copy_head(bj + e * H, other + H, H);
        if (both && at.softmax) {
          copy_head(logs + e * H, other + 2 * H, H);
          copy_head(mean + e * H, other + 3 * H, H);
        }
      }
      into_raw.flush(), into_out.flush(), into_in.flush();
      if (at.threshold) {
        for (int64_t e = 0; e < n; ++e) {
          keep_factors(at, i, int64_t(columns[e]), keep_out + e * H);
          if (both) keep_factors(at, int64_t(columns[e]), i, keep_in + e * H);
        }
        for (int64_t k = 0; k < n * H; ++k) out_dot[k] *= keep_out[k];
        for (int64_t k = 0; both && k < n * H; ++k) in_dot[k] *= keep_in[k];
      }
      for (int64_t k = n * H; k < numbers; ++k)
        raw[k] = out_dot[k] = in_dot[k] = aj[k] = bj[k] = logs[k] = mean[k] = 0;
      if (!both) {
        heads.each(numbers, [&](int64_t k, int64_t q) {
          const Vec<V> c = load<Vec<V>>(raw + k) * load<Vec<V>>(bj + k);
          Vec<V> ds = load<Vec<V>>(out_dot + k);
          if (at.softmax)
            ds = exponential<V>(c * load<Vec<V>>(ai + q) - load<Vec<V>>(log_i + q)) *
                 (ds - load<Vec<V>>(mean_i + q));
          store(sum_a + q, load<Vec<V>>(sum_a + q) + ds * c);
        });
        continue;
      }
      // out_dot becomes the weight of x_j, in_dot that of g_j.
      heads.each(numbers, [&](int64_t k, int64_t q) {
        const Vec<V> r = load<Vec<V>>(raw + k), a_j = load<Vec<V>>(aj + k), b_j = load<Vec<V>>(bj + k);
        const Vec<V> a_i = load<Vec<V>>(ai + q), b_i = load<Vec<V>>(bi + q);
        Vec<V> ds_out = load<Vec<V>>(out_dot + k), ds_in = load<Vec<V>>(in_dot + k);
        Vec<V> p_in = r * a_j * b_i;
        if (at.softmax) {
          const Vec<V> p_out = exponential<V>(r * a_i * b_j - load<Vec<V>>(log_i + q));
          p_in = exponential<V>(p_in - load<Vec<V>>(logs + k));
          ds_out = p_out * (ds_out - load<Vec<V>>(mean_i + q));
          ds_in = p_in * (ds_in - load<Vec<V>>(mean + k));
        }
        store(sum_a + q, load<Vec<V>>(sum_a + q) + ds_out * b_j * r);
        store(sum_b + q, load<Vec<V>>(sum_b + q) + ds_in * a_j * r);
        store(out_dot + k, ds_out * a_i * b_j + ds_in * a_j * b_i);
        store(in_dot + k, p_in);
      });
      if (at.threshold)
        for (int64_t k = 0; k < n * H; ++k) in_dot[k] *= keep_in[k];
      add_rows_of(segments, columns, out_dot, H, n, reach, x, width, out, begin == 0, true);
      add_rows_of(segments, columns, in_dot, H, n, reach, g, width, out, false, true);
    }
    V* mine_out = dgains + i * 2 * H;
    for (int64_t h = 0; h < 2 * H; ++h) mine_out[h] = 0;
    heads.add_up(sum_a, mine_out);
    heads.add_up(sum_b, mine_out + H);
  });
}

#define INSTANTIATE(V, I)                                                                                    \
  template void attend_self_backward(Csr<V, I>, Attention<V>, const V*, const V*, const V*, int64_t, V*, V*, int); \
  template void attend(Csr<V, I>, Attention<V>, const V*, int64_t, int64_t, int64_t, V*, V*, bool, bool, int); \
  template void attend_backward(Csr<V, I>, Attention<V>, const V*, const V*, const V*, int64_t, int64_t, V*, \
                                V*, V*, V*, int);
WEFT_FOR_TYPES(INSTANTIATE)

}  // namespace WEFT_ISA
}  // namespace weft
