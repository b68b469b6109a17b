// Dot products of rows, head by head: what SDDMM and attention share.
#pragma once
#include <utility>
#include <vector>

#include "vector.h"

namespace weft {
namespace WEFT_ISA {
namespace {

constexpr int64_t kAhead = 8;  // arcs between a prefetch and its use

// The sum of a · b before its lanes are added up; what does not fill a vector goes to lane 0.
template <class V>
inline Vec<V> products(const V* a, const V* b, int64_t width) {
  constexpr int L = kLanes<V>;
  Vec<V> s0 = {}, s1 = {}, s2 = {}, s3 = {};
  int64_t c = 0;
  for (; c + 4 * L <= width; c += 4 * L) {
    s0 += load<Vec<V>>(a + c) * load<Vec<V>>(b + c);
    s1 += load<Vec<V>>(a + c + L) * load<Vec<V>>(b + c + L);
    s2 += load<Vec<V>>(a + c + 2 * L) * load<Vec<V>>(b + c + 2 * L);
    s3 += load<Vec<V>>(a + c + 3 * L) * load<Vec<V>>(b + c + 3 * L);
  }
  for (; c + L <= width; c += L) s0 += load<Vec<V>>(a + c) * load<Vec<V>>(b + c);
  s0 = (s0 + s1) + (s2 + s3);
  if (c < width) {
    V rest = 0;
    for (; c < width; ++c) rest += a[c] * b[c];
    s0[0] += rest;
  }
  return s0;
}

// One step of adding up the lanes of L vectors at once: pairs of vectors become one, in groups of 2M lanes.
template <int M, class T, int... lane>
inline T add_pairs(T a, T b, std::integer_sequence<int, lane...>) {
  constexpr int L = sizeof...(lane);
  return __builtin_shufflevector(a, b, (lane - lane % (2 * M) + lane % M + (lane % (2 * M) < M ? 0 : L))...) +
         __builtin_shufflevector(a, b, (lane - lane % (2 * M) + lane % M + M + (lane % (2 * M) < M ? 0 : L))...);
}

// Lane k of the result is the sum of the lanes of v[k].
template <class V, int M = 1>
inline Vec<V> totals(const Vec<V>* v) {
  constexpr int L = kLanes<V>;
  if constexpr (M == L) {
    return v[0];
  } else {
    Vec<V> half[L / (2 * M) > 0 ? L / (2 * M) : 1];
    for (int i = 0; i < L / (2 * M); ++i)
      half[i] = add_pairs<M>(v[2 * i], v[2 * i + 1], std::make_integer_sequence<int, L>());
    return totals<V, 2 * M>(half);
  }
}

template <class V>
inline V total(Vec<V> v) {
  V sum = 0;
  for (int l = 0; l < kLanes<V>; ++l) sum += v[l];
  return sum;
}

// Dot products one after the other, written out a vector at a time.
template <class V>
struct Dots {
  Vec<V> waiting[kLanes<V>];
  int count = 0;
  V* out;
  explicit Dots(V* out) : out(out) {}
  inline void add(Vec<V> v) {
    waiting[count++] = v;
    if (count == kLanes<V>) flush();
  }
  // May write up to a vector beyond the last one.
  inline void flush() {
    if (count == 0) return;
    store(out, rest());
    out += count;
    count = 0;
  }
  // Writes what waits and nothing beyond: the place may be another thread's.
  inline void finish() {
    const Vec<V> last = rest();
    for (int k = 0; k < count; ++k) out[k] = last[k];
  }

 private:
  inline Vec<V> rest() {
    for (int k = count; k < kLanes<V>; ++k) waiting[k] = Vec<V>{};
    return totals<V>(waiting);
  }
};

inline void prefetch(const void* row, int64_t bytes) {
  const char* at = static_cast<const char*>(row);
  for (int64_t b = 0; b < bytes && b < 1024; b += 64) __builtin_prefetch(at + b);
}

// Columns of one head: [begin, end) of the local width.
struct Segment {
  int64_t begin, end, head;
};

struct Segments : std::vector<Segment> {
  std::vector<int64_t> head;  // of every vector of `lanes` columns, where there are several heads and none is cut

  Segments(int64_t width, int64_t first, int64_t dim, int64_t lanes) {
    bool whole = width % lanes == 0;
    for (int64_t c = 0; c < width;) {
      const int64_t h = (first + c) / dim, end = (h + 1) * dim - first;
      push_back({c, end < width ? end : width, h});
      c = back().end;
      whole &= c % lanes == 0;
    }
    if (whole && size() > 1)
      for (int64_t c = 0; c < width; c += lanes) head.push_back((first + c) / dim);
  }
};

}  // namespace
}  // namespace WEFT_ISA
}  // namespace weft
