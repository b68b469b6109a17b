// fᵀ D of a panel of arcs whose D is one of two numbers by a sign (channels.cpp), by sums of subsets.
//
//   D[e,c] = ds[e,h] (1 where the sign of column c is set, else slope)        g[e,t] = f[e,t] ds[e,h]
//   fᵀ D   = slope Σ_e g[e]  +  (1 - slope) Σ_e g[e] bit[e,c]
//
// Of four arcs the second sum is one of 16 numbers, which fit into a vector of AVX-512; the four bits of a column say
// which. So one lookup and one addition stand for four multiply-adds. Narrower vectors hold too few of them to win.
#pragma once
#include "signs.h"

namespace weft {
namespace WEFT_ISA {
namespace {

#if defined(__AVX512F__)

template <class V>
constexpr bool kSubsets = sizeof(V) == 4;

constexpr int kFour = 4;    // arcs of a table
constexpr int kTables = 16;  // features of an arc whose tables are held at a time

// Whether tables, which are made for each head, are used by enough strips: 4 of a head or more.
inline bool by_subsets(const Strips& strips) {
  return !strips.empty() && strips.vectors() >= 4 * (strips.back().head - strips.front().head + 1);
}

// Tables of some features t < count of four arcs: table[t][s] = slope Σ g[t] + (1 - slope) Σ of those in subset s.
inline void make_tables(const float* const (&f)[kFour], const float (&ds)[kFour], float slope, int64_t t, int64_t count,
                        __m512* table) {
  alignas(64) float part[kFour + 1][kTables];
  const __mmask16 these = __mmask16((1u << count) - 1);
  __m512 all = _mm512_setzero_ps();
  for (int k = 0; k < kFour; ++k) {
    const __m512 g = _mm512_mul_ps(_mm512_maskz_loadu_ps(these, f[k] + t), _mm512_set1_ps(ds[k]));
    all = _mm512_add_ps(all, g);
    _mm512_store_ps(part[k], _mm512_mul_ps(g, _mm512_set1_ps(1 - slope)));
  }
  _mm512_store_ps(part[kFour], _mm512_mul_ps(all, _mm512_set1_ps(slope)));
  for (int64_t s = 0; s < count; ++s) {
    __m512 sum = _mm512_set1_ps(part[kFour][s]);
    sum = _mm512_mask_add_ps(sum, 0xAAAA, sum, _mm512_set1_ps(part[0][s]));
    sum = _mm512_mask_add_ps(sum, 0xCCCC, sum, _mm512_set1_ps(part[1][s]));
    sum = _mm512_mask_add_ps(sum, 0xF0F0, sum, _mm512_set1_ps(part[2][s]));
    table[s] = _mm512_mask_add_ps(sum, 0xFF00, sum, _mm512_set1_ps(part[3][s]));
  }
}

// Which subset of four arcs is set in each column of a strip.
inline __m512i subset_of(const uint8_t* const* signs, int64_t v) {
  const auto bits = [&](int k) { return __mmask16(load<uint16_t>(signs[k] + v * kSignBytes<float>)); };
  __m512i which = _mm512_maskz_set1_epi32(bits(0), 1);
  for (int k = 1; k < kFour; ++k) which = _mm512_mask_or_epi32(which, bits(k), which, _mm512_set1_epi32(1 << k));
  return which;
}

// T rows of fᵀ D in one strip: lookups of all fours of the panel are added up in registers.
template <int T>
inline void add_subsets(const __m512* table, const __m512i* which, int64_t fours, float* out, int64_t across) {
  __m512 sum[T];
  for (int t = 0; t < T; ++t) sum[t] = _mm512_loadu_ps(out + t * across);
  for (int64_t q = 0; q < fours; ++q)
    for (int t = 0; t < T; ++t) sum[t] = _mm512_add_ps(sum[t], _mm512_maskz_permutexvar_ps(0xFFFF, which[q], table[q * kTables + t]));
  for (int t = 0; t < T; ++t) _mm512_storeu_ps(out + t * across, sum[t]);
}

// out [inner, across] += fᵀ D of n arcs, Most at most: f their features beside each other, ds [n, heads].
template <int Most>
inline void add_outer_by_signs(const Strips& strips, const uint8_t* const* signs, const float* f, int64_t inner,
                               const float* ds, int64_t heads, float slope, int64_t n, float* out, int64_t across) {
  static_assert(Most % kFour == 0);
  const int64_t fours = (n + kFour - 1) / kFour, last = strips.vectors();
  const uint8_t* mine[Most];
  for (int64_t e = 0; e < fours * kFour; ++e) mine[e] = signs[e < n ? e : n - 1];
  __m512 table[Most / kFour * kTables];
  __m512i which[Most / kFour];
  for (int64_t t = 0; t < inner; t += kTables) {
    const int64_t count = inner - t < kTables ? inner - t : kTables;
    for (int64_t v = 0; v < last;) {
      const int64_t head = strips[v].head;
      for (int64_t q = 0; q < fours; ++q) {
        const float* rows[kFour];
        float shares[kFour];
        for (int k = 0; k < kFour; ++k) {  // what fills the last four counts nothing
          const int64_t e = q * kFour + k, there = e < n ? e : n - 1;
          rows[k] = f + there * inner, shares[k] = e < n ? ds[e * heads + head] : 0;
        }
        make_tables(rows, shares, slope, t, count, table + q * kTables);
      }
      for (; v < last && strips[v].head == head; ++v) {
        for (int64_t q = 0; q < fours; ++q) which[q] = subset_of(mine + q * kFour, v);
        float* at = out + t * across + v * kLanes<float>;
        int64_t s = 0;
        for (; s + 8 <= count; s += 8) add_subsets<8>(table + s, which, fours, at + s * across, across);
        for (; s < count; ++s) add_subsets<1>(table + s, which, fours, at + s * across, across);
      }
    }
  }
}

#else

template <class V>
constexpr bool kSubsets = false;
inline bool by_subsets(const Strips&) { return false; }
template <int Most, class V>
void add_outer_by_signs(const Strips&, const uint8_t* const*, const V*, int64_t, const V*, int64_t, V, int64_t, V*, int64_t);

#endif

}  // namespace
}  // namespace WEFT_ISA
}  // namespace weft
