// What an arc makes of both its ends and of its own features, column by column, a tile of arcs at a time:
//
//   z[e,c] = row[i,c] + column[j,c] + Σ_t f[e,t] W[t,c]
//
// f W is never stored for all arcs: a tile of it is made where it is used, in memory that stays in the cache.
#pragma once
#include <limits>

#include "attention.h"
#include "signs.h"

namespace weft {
namespace WEFT_ISA {
namespace {

// E rows of z, N vectors of each: fixed + base[e] + Σ_t f[e][t] W[t].
template <class V, int E, int N>
inline void fill_block(const V* const* base, const V* fixed, const V* const* f, const V* weight, int64_t inner,
                       int64_t width, int64_t c, V* z) {
  constexpr int L = kLanes<V>;
  Vec<V> sum[E][N];
  for (int k = 0; k < N; ++k) {
    const Vec<V> start = fixed ? load<Vec<V>>(fixed + c + k * L) : Vec<V>{};
    for (int e = 0; e < E; ++e) sum[e][k] = base[e] ? start + load<Vec<V>>(base[e] + c + k * L) : start;
  }
  for (int64_t t = 0; t < inner; ++t) {
    Vec<V> w[N];
    for (int k = 0; k < N; ++k) w[k] = load<Vec<V>>(weight + t * width + c + k * L);
    for (int e = 0; e < E; ++e)
      for (int k = 0; k < N; ++k) sum[e][k] += f[e][t] * w[k];
  }
  for (int e = 0; e < E; ++e)
    for (int k = 0; k < N; ++k) store(z + e * width + c + k * L, sum[e][k]);
}

template <class V, int E>
__attribute__((noinline)) void fill_rows(const V* const* base, const V* fixed, const V* const* f, const V* weight, int64_t inner,
                      int64_t width, V* z) {
  constexpr int L = kLanes<V>;
  int64_t c = 0;
  for (; c + 2 * L <= width; c += 2 * L) fill_block<V, E, 2>(base, fixed, f, weight, inner, width, c, z);
  for (; c + L <= width; c += L) fill_block<V, E, 1>(base, fixed, f, weight, inner, width, c, z);
  for (; c < width; ++c)
    for (int e = 0; e < E; ++e) {
      V sum = (fixed ? fixed[c] : V(0)) + (base[e] ? base[e][c] : V(0));
      for (int64_t t = 0; t < inner; ++t) sum += f[e][t] * weight[t * width + c];
      z[e * width + c] = sum;
    }
}

// The features of an arc, by its number in the walk.
template <class V>
inline const V* features_of(const Channels<V>& ch, int64_t arc) {
  return ch.inner ? ch.features + (ch.permutation ? ch.permutation[arc] : arc) * ch.inner : nullptr;
}

// The features of n arcs from number `from` on, beside each other: where they stand, or copied to `room`.
template <class V>
inline const V* features_tile(const Channels<V>& ch, int64_t from, int64_t n, int64_t reach, V* room) {
  if (!ch.inner || !ch.permutation) return features_of(ch, from);
  const size_t bytes = size_t(ch.inner) * sizeof(V);
  for (int64_t e = 0; e < n; ++e) {
    if (e + 2 * kAhead < reach) prefetch(features_of(ch, from + e + 2 * kAhead), int64_t(bytes));
    std::memcpy(room + e * ch.inner, features_of(ch, from + e), bytes);
  }
  return room;
}

// z of n arcs whose far ends are index[0 .. n) and whose features are f [n, inner]: [n, width].
template <class V, class I>
inline void fill_tile(const V* f_tile, int64_t inner, const V* weight, const V* fixed, const V* other, const I* index,
                      int64_t n, int64_t reach, int64_t width, V* z) {
  constexpr int E = 4;
  const int64_t bytes = width * int64_t(sizeof(V));
  const V* base[E];
  const V* f[E];
  int64_t e = 0;
  for (; e < n; e += E) {
    const int64_t some = n - e < E ? n - e : E;
    for (int64_t k = 0; k < some; ++k) {
      base[k] = other ? other + int64_t(index[e + k]) * width : nullptr;
      f[k] = inner ? f_tile + (e + k) * inner : nullptr;
      if (other && e + k + kAhead < reach) prefetch(other + int64_t(index[e + k + kAhead]) * width, bytes);
    }
    if (some == E) fill_rows<V, E>(base, fixed, f, weight, inner, width, z + e * width);
    else
      for (int64_t k = 0; k < some; ++k) fill_rows<V, 1>(base + k, fixed, f + k, weight, inner, width, z + (e + k) * width);
  }
}

// dW[t, c] += Σ_e f[e, t] d[e, c] over the arcs of a tile; a row of d is `stride` numbers long, one of dW `across`.
template <class V, int T, int N>
inline void outer_block(const V* f, int64_t inner, int64_t n, int64_t across, const V* d, int64_t stride, int64_t t, int64_t c,
                        V* dweight) {
  constexpr int L = kLanes<V>;
  Vec<V> sum[T][N];
  for (int s = 0; s < T; ++s)
    for (int k = 0; k < N; ++k) sum[s][k] = load<Vec<V>>(dweight + (t + s) * across + c + k * L);
  for (int64_t e = 0; e < n; ++e) {
    Vec<V> in[N];
    for (int k = 0; k < N; ++k) in[k] = load<Vec<V>>(d + e * stride + c + k * L);
    for (int s = 0; s < T; ++s)
      for (int k = 0; k < N; ++k) sum[s][k] += f[e * inner + t + s] * in[k];
  }
  for (int s = 0; s < T; ++s)
    for (int k = 0; k < N; ++k) store(dweight + (t + s) * across + c + k * L, sum[s][k]);
}

template <class V, int T>
__attribute__((noinline)) void outer_rows(const V* f, int64_t inner, int64_t n, int64_t width, const V* d, int64_t stride,
                                          int64_t t, V* dweight, int64_t across) {
  constexpr int L = kLanes<V>;
  int64_t c = 0;
  for (; c + 2 * L <= width; c += 2 * L) outer_block<V, T, 2>(f, inner, n, across, d, stride, t, c, dweight);
  for (; c + L <= width; c += L) outer_block<V, T, 1>(f, inner, n, across, d, stride, t, c, dweight);
  for (; c < width; ++c)
    for (int64_t e = 0; e < n; ++e)
      for (int s = 0; s < T; ++s) dweight[(t + s) * across + c] += f[e * inner + t + s] * d[e * stride + c];
}

template <class V>
inline void add_outer(const V* f, int64_t inner, int64_t n, int64_t width, const V* d, int64_t stride, V* dweight,
                      int64_t across) {
  int64_t t = 0;
  for (; t + 4 <= inner; t += 4) outer_rows<V, 4>(f, inner, n, width, d, stride, t, dweight, across);
  for (; t < inner; ++t) outer_rows<V, 1>(f, inner, n, width, d, stride, t, dweight, across);
}

// out[c] (+)= Σ_e d[e, c].
template <class V>
inline void add_tile(const V* d, int64_t n, int64_t width, V* out) {
  constexpr int L = kLanes<V>;
  int64_t c = 0;
  for (; c + L <= width; c += L) {
    Vec<V> s0 = load<Vec<V>>(out + c), s1 = {};
    int64_t e = 0;
    for (; e + 2 <= n; e += 2) {
      s0 += load<Vec<V>>(d + e * width + c);
      s1 += load<Vec<V>>(d + (e + 1) * width + c);
    }
    if (e < n) s0 += load<Vec<V>>(d + e * width + c);
    store(out + c, s0 + s1);
  }
  for (; c < width; ++c)
    for (int64_t e = 0; e < n; ++e) out[c] += d[e * width + c];
}

// score[e, h] += bias[arc, h] of n arcs from number `from` of the walk on.
template <class V>
inline void add_bias(const Attention<V>& at, int64_t from, const int64_t* permutation, int64_t n, V* score) {
  if (!at.bias) return;
  for (int64_t e = 0; e < n; ++e) {
    const V* b = at.bias + (permutation ? permutation[from + e] : from + e) * at.heads;
    for (int64_t h = 0; h < at.heads; ++h) score[e * at.heads + h] += b[h];
  }
}

// All lines of what is read a panel later, into the second cache: vectors of AVX-512 are a line each.
template <int Bytes, class V>
inline void prefetch_later(const V* at) {
  for (int b = 0; b < Bytes; b += 64) __builtin_prefetch(reinterpret_cast<const char*>(at) + b, 0, 2);
}

constexpr int64_t kPanel = 48;  // arcs whose scores are made together, whatever rows they are of
constexpr int kGroup = 6;       // of them at a time in registers, two strips each

template <class V>
struct PanelOf {
  const V* near[kPanel];   // the arcs' rows, columns and features; beyond the last one it stands again
  const V* far[kPanel];
  const V* f[kPanel];
  const V* later[kPanel];  // the columns of the panel after this one; beyond the last arc of all those of this one
};

// W [inner, width] by pairs of strips: of each pair all rows beside each other, so that a walk over it meets all sets of
// the cache and not those of one column only.
template <class V>
inline std::vector<V> pack(const Strips& strips, const V* weight, int64_t inner, int64_t width) {
  constexpr int L = kLanes<V>;
  std::vector<V> row(size_t(strips.padded())), out(size_t(inner * strips.padded()));
  for (int64_t t = 0; t < inner; ++t) {
    strips.lay(weight + t * width, row.data());
    for (int64_t v = 0; v < strips.vectors(); ++v) {
      const int64_t pair = v / 2 * 2, beside = pair + 1 < strips.vectors() ? 2 : 1;
      std::memcpy(&out[size_t((pair * inner + t * beside + v - pair) * L)], &row[size_t(v * L)], sizeof(Vec<V>));
    }
  }
  return out;
}

// z of kGroup arcs in N strips from v on.
template <class V, int N, bool Whole>
inline void z_block(const Strips& strips, const V* const* near, const V* const* far, const V* const* f, const V* weight,
                    int64_t inner, int64_t v, Vec<V> (&z)[kGroup][N]) {
  constexpr int L = kLanes<V>;
  const int64_t pair = v / 2 * 2, beside = pair + 1 < strips.vectors() ? 2 : 1;
  for (int e = 0; e < kGroup; ++e)
    for (int k = 0; k < N; ++k) z[e][k] = load_strip<V, Whole>(strips, near[e], v + k);
  const V* w = weight + (pair * inner + v - pair) * L;
  for (int64_t t = 0; t < inner; ++t, w += beside * L) {
    Vec<V> in[N];
    for (int k = 0; k < N; ++k) in[k] = load<Vec<V>>(w + k * L);
    for (int e = 0; e < kGroup; ++e)
      for (int k = 0; k < N; ++k) z[e][k] += f[e][t] * in[k];
  }
  // The other ends last: they may still be on their way while the product is made.
  for (int e = 0; e < kGroup; ++e)
    for (int k = 0; k < N; ++k) z[e][k] += load_strip<V, Whole>(strips, far[e], v + k);
}

// The signs of a group's z, of those of its arcs that are among the `marked` first.
template <class V, int N>
inline void mark(const Vec<V> (&z)[kGroup][N], uint8_t* marks, int64_t marked, int64_t e, int64_t v, int64_t stride) {
  if (e + kGroup <= marked) {
    for (int k = 0; k < kGroup; ++k)
      for (int q = 0; q < N; ++q) store_signs<V>(marks + (e + k) * stride, v + q, z[k][q]);
  } else {
    for (int k = 0; e + k < marked; ++k)
      for (int q = 0; q < N; ++q) store_signs<V>(marks + (e + k) * stride, v + q, z[k][q]);
  }
}

// y[i] = Σ_e max(z, 0), row by row.
template <class V, class I>
struct ReluRows {
  const Csr<V, I>& a;
  const Channels<V>& ch;
  const Strips strips;
  const int64_t width, arcs, stride;
  std::vector<V> weight, nothing, never, blank;  // W packed; rows of 0 and of the least number; features of 0

  ReluRows(const Csr<V, I>& a, const Channels<V>& ch, int64_t width)
      : a(a), ch(ch), strips(width, 0, width > 0 ? width : 1, kLanes<V>), width(width), arcs(a.rows ? a.indptr[a.rows] : 0),
        stride(sign_stride<V>(strips.vectors())), weight(pack(strips, ch.weight, ch.inner, width)), nothing(size_t(width), V(0)),
        never(size_t(width), std::numeric_limits<V>::lowest()), blank(size_t(ch.inner), V(0)) {}

  // out may be null: signs alone.
  void of(int64_t i, const Signs& signs, V* out, bool accumulate) const {
    if (out && !accumulate) std::memset(out, 0, size_t(width) * sizeof(V));
    const int64_t from = a.indptr[i], count = a.indptr[i + 1] - from;
    PanelOf<V> p;
    for (int64_t t = 0; t < count; t += kPanel) {
      const int64_t n = count - t < kPanel ? count - t : kPanel, here = from + t;
      const int64_t marked = signs.at && here < signs.end ? (signs.end - here < n ? signs.end - here : n) : 0;
      uint8_t* marks = marked ? signs.at + (here - signs.begin) * stride : nullptr;
      for (int64_t e = 0; e < n; ++e) {
        p.near[e] = ch.row ? ch.row + i * width : nothing.data();
        p.far[e] = ch.column + int64_t(a.indices[here + e]) * width;
        p.f[e] = ch.inner ? ch.features + (here + e) * ch.inner : nullptr;
        p.later[e] = here + e + kPanel < arcs ? ch.column + int64_t(a.indices[here + e + kPanel]) * width : p.far[e];
      }
      // What fills the last group is below 0 in every column, so that it adds nothing.
      for (int64_t e = n; e % kGroup; ++e) p.near[e] = nothing.data(), p.far[e] = p.later[e] = never.data(), p.f[e] = blank.data();
      if (strips.whole) all<true>(p, n, marks, marked, out);
      else all<false>(p, n, marks, marked, out);
    }
  }

 private:
  template <bool Whole>
  void all(const PanelOf<V>& p, int64_t n, uint8_t* marks, int64_t marked, V* out) const {
    int64_t v = 0;
    for (; v + 2 <= strips.vectors(); v += 2) some<2, Whole>(p, n, v, marks, marked, out);
    if (v < strips.vectors()) some<1, Whole>(p, n, v, marks, marked, out);
  }

  template <int N, bool Whole>
  void some(const PanelOf<V>& p, int64_t n, int64_t v, uint8_t* marks, int64_t marked, V* out) const {
    constexpr int L = kLanes<V>;
    Vec<V> sum[N] = {};
    for (int64_t e = 0; e < n; e += kGroup) {
      for (int k = 0; k < kGroup; ++k) prefetch_later<N * kVectorBytes>(p.later[e + k] + v * L);
      if (e + kGroup < n)
        for (int k = 0; k < kGroup; ++k) prefetch(p.far[e + kGroup + k] + v * L, N * kVectorBytes);
      Vec<V> z[kGroup][N];
      z_block<V, N, Whole>(strips, p.near + e, p.far + e, p.f + e, weight.data(), ch.inner, v, z);
      mark<V, N>(z, marks, marked, e, v, stride);
      for (int k = 0; k < kGroup; ++k)
        for (int q = 0; q < N; ++q) sum[q] += z[k][q] > V(0) ? z[k][q] : Vec<V>{};
    }
    if (!out) return;
    for (int q = 0; q < N; ++q) {
      const Strip& s = strips[v + q];
      sum[q] += load_strip<V, Whole>(strips, out, v + q);
      std::memcpy(out + s.column, &sum[q], size_t(Whole ? L : s.count) * sizeof(V));
    }
  }
};

// Scores of arcs by channel, a panel of them at a time: s[e,h] = Σ over the strips of head h of mix leaky(z).
template <class V, class I>
struct ScorePanels {
  const Csr<V, I>& a;
  const Channels<V>& ch;
  const Strips strips;
  const V slope;
  const int64_t heads, width, arcs, stride;
  std::vector<V> weight, mix, nothing;  // W packed, the mix strip by strip

  ScorePanels(const Csr<V, I>& a, const Channels<V>& ch, const V* mix_, V slope, int64_t width, int64_t first,
              int64_t dim, int64_t heads)
      : a(a), ch(ch), strips(width, first, dim, kLanes<V>), slope(slope), heads(heads), width(width),
        arcs(a.rows ? a.indptr[a.rows] : 0), stride(sign_stride<V>(strips.vectors())),
        weight(pack(strips, ch.weight, ch.inner, width)), mix(size_t(strips.padded())), nothing(size_t(width), V(0)) {
    strips.lay(mix_, mix.data());
  }

  int64_t numbers() const { return kPanel * heads * (1 + kLanes<V>) + kLanes<V>; }  // of scratch

  // The scores of n <= kPanel arcs from number `from` on, the first of them of row i; then their signs, where wanted.
  void of(int64_t i, int64_t from, int64_t n, V* score, V* parts, const Signs& signs) const {
    PanelOf<V> p;
    for (int64_t e = 0; e < n; ++e) {
      while (from + e >= a.indptr[i + 1]) ++i;
      p.near[e] = ch.row ? ch.row + i * width : nothing.data();
      p.far[e] = ch.column + int64_t(a.indices[from + e]) * width;
      p.f[e] = ch.inner ? ch.features + (from + e) * ch.inner : nullptr;
      p.later[e] = from + e + kPanel < arcs ? ch.column + int64_t(a.indices[from + e + kPanel]) * width : p.far[e];
    }
    for (int64_t e = n; e % kGroup; ++e)
      p.near[e] = p.near[n - 1], p.far[e] = p.far[n - 1], p.f[e] = p.f[n - 1], p.later[e] = p.far[n - 1];
    std::memset(parts, 0, size_t((n + kGroup - 1) / kGroup * kGroup * heads) * sizeof(Vec<V>));
    Marks marks = {nullptr, 0};
    if (signs.at && from < signs.end)
      marks = {signs.at + (from - signs.begin) * stride, signs.end - from < n ? signs.end - from : n};
    if (strips.whole) all<true>(p, n, parts, marks);
    else all<false>(p, n, parts, marks);
    if (!score) return;
    for (int64_t k = 0; k < n * heads; k += kLanes<V>) {
      Vec<V> group[kLanes<V>];
      for (int64_t l = 0; l < kLanes<V>; ++l)
        group[l] = k + l < n * heads ? load<Vec<V>>(parts + (k + l) * kLanes<V>) : Vec<V>{};
      const Vec<V> found = totals<V>(group);
      for (int64_t l = 0; l < kLanes<V> && k + l < n * heads; ++l) score[k + l] = found[l];
    }
  }

 private:
  struct Marks {
    uint8_t* at;
    int64_t arcs;
  };

  template <bool Whole>
  void all(const PanelOf<V>& p, int64_t n, V* parts, Marks marks) const {
    const int64_t last = strips.vectors() - 1;
    for (int64_t e = 0; e < n; e += kGroup) {
      Vec<V> sum[kGroup] = {};
      for (int64_t v = 0; v <= last;) {
        const int64_t head = strips[v].head;
        const bool two = v % 2 == 0 && v < last && strips[v + 1].head == head;  // W is packed by pairs
        if (two) some<2, Whole>(p, n, e, v, marks, sum);
        else some<1, Whole>(p, n, e, v, marks, sum);
        v += two ? 2 : 1;
        if (v <= last && strips[v].head == head) continue;
        for (int k = 0; k < kGroup; ++k) store(parts + ((e + k) * heads + head) * kLanes<V>, sum[k]), sum[k] = Vec<V>{};
      }
    }
  }

  // N strips of one head, of a group of arcs.
  template <int N, bool Whole>
  inline void some(const PanelOf<V>& p, int64_t n, int64_t e, int64_t v, Marks marks, Vec<V> (&sum)[kGroup]) const {
    constexpr int L = kLanes<V>;
    const int64_t column = strips[v].column;
    for (int k = 0; k < kGroup; ++k) prefetch_later<N * kVectorBytes>(p.later[e + k] + column);
    if (e + kGroup < n)
      for (int k = 0; k < kGroup; ++k) prefetch(p.far[e + kGroup + k] + column, N * kVectorBytes);
    Vec<V> z[kGroup][N];
    z_block<V, N, Whole>(strips, p.near + e, p.far + e, p.f + e, weight.data(), ch.inner, v, z);
    mark<V, N>(z, marks.at, marks.arcs, e, v, stride);
    for (int q = 0; q < N; ++q) {
      const Vec<V> share = load<Vec<V>>(mix.data() + (v + q) * L);
      for (int k = 0; k < kGroup; ++k) sum[k] += share * leaky(z[k][q], slope);
    }
  }
};

}  // namespace
}  // namespace WEFT_ISA
}  // namespace weft
