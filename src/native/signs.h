// Vectors of the columns of z, and which of its numbers are positive, a bit each.
//
// A strip is a vector's worth of columns of one head; the last of a head may be shorter. Inside the walks, numbers lie
// strip by strip, each as long as a vector. The bits of an arc are those of its strips one after the other, each in
// whole bytes: so a bit is found by one shift.
#pragma once
#include <vector>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "dots.h"

namespace weft {
namespace WEFT_ISA {
namespace {

struct Strip {
  int64_t column, count, head;
};

struct Strips : std::vector<Strip> {
  bool whole = true;  // all as long as a vector, so that strip v begins at column v · lanes
  int64_t lanes;

  Strips(int64_t width, int64_t first, int64_t dim, int64_t lanes) : lanes(lanes) {
    for (int64_t c = 0; c < width;) {
      const int64_t head = (first + c) / dim, end = (head + 1) * dim - first, stop = end < width ? end : width;
      for (; c < stop; c += back().count) push_back({c, stop - c < lanes ? stop - c : lanes, head}), whole &= stop - c >= lanes;
    }
  }
  int64_t vectors() const { return int64_t(size()); }
  int64_t padded() const { return vectors() * lanes; }

  // row [width] laid out strip by strip, 0 where a strip is short.
  template <class V>
  void lay(const V* row, V* out) const {
    for (int64_t v = 0; v < vectors(); ++v)
      for (int64_t l = 0; l < lanes; ++l) out[v * lanes + l] = l < (*this)[v].count ? row[(*this)[v].column + l] : V(0);
  }
};

// The first `count` numbers from p on, and 0 beyond: nothing is read there.
template <class V>
inline Vec<V> load_some(const V* p, int64_t count) {
#if defined(__AVX512F__)
  if constexpr (sizeof(V) == 4) return (Vec<V>)_mm512_maskz_loadu_ps(__mmask16((1u << count) - 1), p);
  else return (Vec<V>)_mm512_maskz_loadu_pd(__mmask8((1u << count) - 1), p);
#elif defined(__AVX2__)
  if constexpr (sizeof(V) == 4) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return (Vec<V>)_mm256_maskload_ps(p, _mm256_cmpgt_epi32(_mm256_set1_epi32(int(count)), lane));
  } else {
    const __m256i lane = _mm256_setr_epi64x(0, 1, 2, 3);
    return (Vec<V>)_mm256_maskload_pd(p, _mm256_cmpgt_epi64(_mm256_set1_epi64x(count), lane));
  }
#else
  Vec<V> out = {};
  std::memcpy(&out, p, size_t(count) * sizeof(V));
  return out;
#endif
}

// The numbers of strip v in a row of the caller's.
template <class V, bool Whole>
inline Vec<V> load_strip(const Strips& strips, const V* row, int64_t v) {
  if constexpr (Whole) return load<Vec<V>>(row + v * kLanes<V>);
  const Strip& s = strips[v];
  return s.count == kLanes<V> ? load<Vec<V>>(row + s.column) : load_some(row + s.column, s.count);
}

template <class V>
constexpr int kSignBytes = kLanes<V> > 8 ? kLanes<V> / 8 : 1;  // of a strip
template <class V>
constexpr int kStripsPerWord = int(sizeof(V)) / kSignBytes<V>;

// Bytes of an arc: whole words, so that the last can be read as one.
template <class V>
inline int64_t sign_stride(int64_t vectors) {
  return (vectors + kStripsPerWord<V> - 1) / kStripsPerWord<V> * int64_t(sizeof(V));
}

// Bit l: whether lane l is set.
template <class V>
inline unsigned lane_bits(Mask<V> m) {
#if defined(__AVX512F__)
  if constexpr (sizeof(V) == 4) return _mm512_movepi32_mask((__m512i)m);
  else return _mm512_movepi64_mask((__m512i)m);
#elif defined(__AVX2__)
  if constexpr (sizeof(V) == 4) return unsigned(_mm256_movemask_ps((__m256)m));
  else return unsigned(_mm256_movemask_pd((__m256d)m));
#elif defined(__SSE2__)
  if constexpr (sizeof(V) == 4) return unsigned(_mm_movemask_ps((__m128)m));
  else return unsigned(_mm_movemask_pd((__m128d)m));
#else
  unsigned bits = 0;
  for (int l = 0; l < kLanes<V>; ++l) bits |= unsigned(m[l] != 0) << l;
  return bits;
#endif
}

// Bit l: whether lane l is positive.
template <class V>
inline unsigned positive_bits(Vec<V> z) {
#if defined(__AVX512F__)
  if constexpr (sizeof(V) == 4) return _mm512_cmp_ps_mask((__m512)z, _mm512_setzero_ps(), _CMP_GT_OQ);
  else return _mm512_cmp_pd_mask((__m512d)z, _mm512_setzero_pd(), _CMP_GT_OQ);
#else
  return lane_bits<V>(z > V(0));
#endif
}

template <class V>
inline void store_signs(uint8_t* at, int64_t v, Vec<V> z) {
  const unsigned bits = positive_bits<V>(z);
  if constexpr (kSignBytes<V> == 1) {
    at[v] = uint8_t(bits);
  } else {
    const uint16_t two = uint16_t(bits);
    static_assert(kSignBytes<V> == sizeof two);
    std::memcpy(at + v * kSignBytes<V>, &two, sizeof two);
  }
}

// The bit of lane l of the r-th strip of a word, moved to the top.
template <class V>
inline Mask<V> top_bits(MaskLane<V> word, int r) {
  typedef typename std::make_unsigned<MaskLane<V>>::type Bits;
  typedef Bits Shift __attribute__((vector_size(kVectorBytes)));
  Shift by;
  for (int l = 0; l < kLanes<V>; ++l) by[l] = Bits(8 * sizeof(V) - 1 - 8 * kSignBytes<V> * r - l);
  return (Mask<V>)(((Shift{} + Bits(word)) << by));
}

// Where a bit of the r-th strip of a word is set, a, elsewhere b.
template <class V>
inline Vec<V> by_signs(MaskLane<V> word, int r, Vec<V> a, Vec<V> b) {
#if defined(__AVX512F__)
  const auto bits = typename std::make_unsigned<MaskLane<V>>::type(word) >> (8 * kSignBytes<V> * r);
  if constexpr (sizeof(V) == 4) return (Vec<V>)_mm512_mask_blend_ps(__mmask16(bits), (__m512)b, (__m512)a);
  else return (Vec<V>)_mm512_mask_blend_pd(__mmask8(bits), (__m512d)b, (__m512d)a);
#else
  return top_bits<V>(word, r) < 0 ? a : b;
#endif
}

}  // namespace
}  // namespace WEFT_ISA
}  // namespace weft
