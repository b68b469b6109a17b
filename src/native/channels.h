// What an arc makes of both its ends and of its own features, column by column, a tile of arcs at a time:
//
//   z[e,c] = row[i,c] + column[j,c] + Σ_t f[e,t] W[t,c]
//
// f W is never stored for all arcs: a tile of it is made where it is used, in memory that stays in the cache.
#pragma once
#include "attention.h"

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
inline void fill_rows(const V* const* base, const V* fixed, const V* const* f, const V* weight, int64_t inner,
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

// dW[t, c] += Σ_e f[e, t] d[e, c] over the arcs of a tile.
template <class V, int T, int N>
inline void outer_block(const V* f, int64_t inner, int64_t n, int64_t width, const V* d, int64_t t, int64_t c, V* dweight) {
  constexpr int L = kLanes<V>;
  Vec<V> sum[T][N];
  for (int s = 0; s < T; ++s)
    for (int k = 0; k < N; ++k) sum[s][k] = load<Vec<V>>(dweight + (t + s) * width + c + k * L);
  for (int64_t e = 0; e < n; ++e) {
    Vec<V> in[N];
    for (int k = 0; k < N; ++k) in[k] = load<Vec<V>>(d + e * width + c + k * L);
    for (int s = 0; s < T; ++s)
      for (int k = 0; k < N; ++k) sum[s][k] += f[e * inner + t + s] * in[k];
  }
  for (int s = 0; s < T; ++s)
    for (int k = 0; k < N; ++k) store(dweight + (t + s) * width + c + k * L, sum[s][k]);
}

template <class V, int T>
inline void outer_rows(const V* f, int64_t inner, int64_t n, int64_t width, const V* d, int64_t t, V* dweight) {
  constexpr int L = kLanes<V>;
  int64_t c = 0;
  for (; c + 2 * L <= width; c += 2 * L) outer_block<V, T, 2>(f, inner, n, width, d, t, c, dweight);
  for (; c + L <= width; c += L) outer_block<V, T, 1>(f, inner, n, width, d, t, c, dweight);
  for (; c < width; ++c)
    for (int64_t e = 0; e < n; ++e)
      for (int s = 0; s < T; ++s) dweight[(t + s) * width + c] += f[e * inner + t + s] * d[e * width + c];
}

template <class V>
inline void add_outer(const V* f, int64_t inner, int64_t n, int64_t width, const V* d, V* dweight) {
  int64_t t = 0;
  for (; t + 4 <= inner; t += 4) outer_rows<V, 4>(f, inner, n, width, d, t, dweight);
  for (; t < inner; ++t) outer_rows<V, 1>(f, inner, n, width, d, t, dweight);
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

template <class V>
inline Channels<V> channels_of(const Attention<V>& at, const int64_t* permutation) {
  return {at.row, at.column, at.features, at.weight, at.feature_width, permutation};
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

// Σ_c mix[c] leaky(z[c]) before its lanes are added up.
template <class V>
inline Vec<V> mixed(const V* z, const V* mix, V slope, int64_t width) {
  constexpr int L = kLanes<V>;
  Vec<V> s0 = {}, s1 = {};
  int64_t c = 0;
  for (; c + 2 * L <= width; c += 2 * L) {
    s0 += load<Vec<V>>(mix + c) * leaky(load<Vec<V>>(z + c), slope);
    s1 += load<Vec<V>>(mix + c + L) * leaky(load<Vec<V>>(z + c + L), slope);
  }
  for (; c + L <= width; c += L) s0 += load<Vec<V>>(mix + c) * leaky(load<Vec<V>>(z + c), slope);
  s0 += s1;
  if (c < width) {
    V rest = 0;
    for (; c < width; ++c) rest += mix[c] * (z[c] > V(0) ? z[c] : z[c] * slope);
    s0[0] += rest;
  }
  return s0;
}

// z becomes its gradient: ds[e, h] mix[c] leaky'(z), h the head of column c.
template <class V>
inline void mixed_backward(const Segments& segments, const V* ds, int64_t heads, const V* mix, V slope, int64_t n,
                           int64_t width, V* z) {
  constexpr int L = kLanes<V>;
  for (int64_t e = 0; e < n; ++e)
    for (const Segment& s : segments) {
      const V d = ds[e * heads + s.head];
      V* at = z + e * width;
      int64_t c = s.begin;
      for (; c + L <= s.end; c += L) {
        const Vec<V> m = d * load<Vec<V>>(mix + c);
        store(at + c, load<Vec<V>>(at + c) > V(0) ? m : m * slope);
      }
      for (; c < s.end; ++c) at[c] = d * mix[c] * (at[c] > V(0) ? V(1) : slope);
    }
}

// dmix[c] += Σ_e ds[e, h] leaky(z[e, c]).
template <class V>
inline void add_mix(const Segments& segments, const V* ds, int64_t heads, V slope, int64_t n, int64_t width, const V* z,
                    V* dmix) {
  constexpr int L = kLanes<V>;
  for (const Segment& s : segments) {
    int64_t c = s.begin;
    for (; c + L <= s.end; c += L) {
      Vec<V> sum = load<Vec<V>>(dmix + c);
      for (int64_t e = 0; e < n; ++e) sum += ds[e * heads + s.head] * leaky(load<Vec<V>>(z + e * width + c), slope);
      store(dmix + c, sum);
    }
    for (; c < s.end; ++c)
      for (int64_t e = 0; e < n; ++e) {
        const V t = z[e * width + c];
        dmix[c] += ds[e * heads + s.head] * (t > V(0) ? t : t * slope);
      }
  }
}

}  // namespace
}  // namespace WEFT_ISA
}  // namespace weft
