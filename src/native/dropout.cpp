// Dropout whose mask is a function of (key, row, column) alone, and ReLU with it in one pass.
//
// The generator is Philox4x32-10 (Salmon et al., SC'11). Columns go in blocks of 32: column c uses word
// (c / 8) % 4 of counter ((c / 32) * 8 + c % 8, row low, row high, 0). So eight counters side by side give
// 32 neighbouring columns with no shuffling, whatever the vector length.
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <cmath>

#include "exponential.h"
#include "operators.h"
#include "vector.h"

namespace weft {
namespace WEFT_ISA {
namespace {

// Below this size the series of expm1 with eight terms is exact to rounding.
template <class V>
constexpr double kNear = sizeof(V) == 4 ? 0.25 : 0.02;

constexpr int kSide = 8, kBlock = 4 * kSide;

// A 32-bit word in each 64-bit lane; what stands in a lane's upper half is never looked at.
typedef uint64_t Words __attribute__((vector_size(kVectorBytes)));
typedef uint32_t Narrow __attribute__((vector_size(kVectorBytes / 2)));
constexpr int kLane = kVectorBytes / 8, kVectors = kSide / kLane;

// The full product of the lower halves.
inline Words multiply(Words a, Words b) {
#if defined(__AVX512F__)
  return Words(_mm512_mul_epu32(__m512i(a), __m512i(b)));
#elif defined(__AVX2__)
  return Words(_mm256_mul_epu32(__m256i(a), __m256i(b)));
#elif defined(__SSE2__)
  return Words(_mm_mul_epu32(__m128i(a), __m128i(b)));
#else
  return (a & 0xFFFFFFFFu) * (b & 0xFFFFFFFFu);
#endif
}

inline void philox(uint32_t first, uint64_t row, uint64_t key, uint32_t* word) {
  Words c0[kVectors], c1[kVectors], c2[kVectors], c3[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    uint64_t column[kLane];
    for (int l = 0; l < kLane; ++l) column[l] = first + uint32_t(v * kLane + l);
    c0[v] = load<Words>(column);
    c1[v] = Words{} + (row & 0xFFFFFFFFu);
    c2[v] = Words{} + (row >> 32);
    c3[v] = Words{};
  }
  const Words m0 = Words{} + 0xD2511F53u, m1 = Words{} + 0xCD9E8D57u;
  uint32_t k0 = uint32_t(key), k1 = uint32_t(key >> 32);
  for (int round = 0; round < 10; ++round) {
    for (int v = 0; v < kVectors; ++v) {
      const Words p0 = multiply(c0[v], m0), p1 = multiply(c2[v], m1);
      c0[v] = (p1 >> 32) ^ c1[v] ^ uint64_t(k0);
      c2[v] = (p0 >> 32) ^ c3[v] ^ uint64_t(k1);
      c1[v] = p1, c3[v] = p0;
    }
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
  for (int v = 0; v < kVectors; ++v) {
    store(word + v * kLane, __builtin_convertvector(c0[v], Narrow));
    store(word + kSide + v * kLane, __builtin_convertvector(c1[v], Narrow));
    store(word + 2 * kSide + v * kLane, __builtin_convertvector(c2[v], Narrow));
    store(word + 3 * kSide + v * kLane, __builtin_convertvector(c3[v], Narrow));
  }
}

}  // namespace

template <class V>
void dropout(const V* x, V* y, int64_t count, int64_t width, const int64_t* rows, int64_t first, uint64_t key,
             uint32_t threshold, V scale, bool relu, int threads) {
  for_range(count, 1 + 8192 / (width < 1 ? 1 : width), threads, [&](int64_t begin, int64_t end) {
    alignas(64) uint32_t word[kBlock];
    for (int64_t r = begin; r < end; ++r) {
      const uint64_t row = uint64_t(rows ? rows[r] : first + r);
      const V* in = x + r * width;
      V* out = y + r * width;
      for (int64_t c = 0; c < width; c += kBlock) {
        philox(uint32_t(c / kBlock * kSide), row, key, word);
        const int n = int(width - c < kBlock ? width - c : kBlock);
        if (relu)
          for (int t = 0; t < n; ++t) {
            const V v = in[c + t] * scale;
            out[c + t] = word[t] >= threshold && !(v <= V(0)) ? v : V(0);
          }
        else
          for (int t = 0; t < n; ++t) {
            const V v = in[c + t] * scale;  // before the choice: a choice of values needs no branch
            out[c + t] = word[t] >= threshold ? v : V(0);
          }
      }
    }
  });
}

template <class V>
void elu(V* x, int64_t count, int threads) {
  constexpr int L = kLanes<V>;
  for_range(count, 32768, threads, [&](int64_t begin, int64_t end) {
    int64_t k = begin;
    for (; k + L <= end; k += L) {
      const Vec<V> v = load<Vec<V>>(x + k);
      // Near 0, e^x - 1 loses its digits: there the series of expm1 takes over.
      Vec<V> near = Vec<V>{} + inverse_factorial<V>(8);
      for (int t = 7; t >= 1; --t) near = near * v + inverse_factorial<V>(t);
      near *= v;
      const Vec<V> below = v > V(-kNear<V>) ? near : exponential<V>(v) - V(1);
      store(x + k, v > V(0) ? v : v != v ? v : below);
    }
    for (; k < end; ++k) x[k] = x[k] > V(0) ? x[k] : std::expm1(x[k]);
  });
}

template <class V>
void relu_backward(const V* y, const V* dy, int64_t count, V scale, V* dx, int threads) {
  for_range(count, 32768, threads, [&](int64_t begin, int64_t end) {
    // The product is made in any case: a select vectorises, a branch on a random mask is often guessed wrong.
    for (int64_t k = begin; k < end; ++k) {
      const V g = dy[k] * scale;
      dx[k] = y[k] > V(0) ? g : V(0);
    }
  });
}

#define INSTANTIATE(V)                                                                                        \
  template void dropout(const V*, V*, int64_t, int64_t, const int64_t*, int64_t, uint64_t, uint32_t, V, bool, \
                        int);                                                                                 \
  template void elu(V*, int64_t, int);                                                                        \
  template void relu_backward(const V*, const V*, int64_t, V, V*, int);
INSTANTIATE(float)
INSTANTIATE(double)

}  // namespace WEFT_ISA
}  // namespace weft
