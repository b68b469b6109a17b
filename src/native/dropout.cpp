// Dropout whose mask is a function of (key, row, column) alone, and ReLU with it in one pass.
//
// The generator is Philox4x32-10 (Salmon et al., SC'11). Columns go in blocks of 32: column c uses word
// (c / 8) % 4 of counter ((c / 32) * 8 + c % 8, row low, row high, 0). So eight counters side by side give
// 32 neighbouring columns with no shuffling, whatever the vector length.
#include "operators.h"
#include "vector.h"

namespace weft {
namespace WEFT_ISA {
namespace {

constexpr int kSide = 8, kBlock = 4 * kSide;

inline void philox(uint32_t first, uint64_t row, uint64_t key, uint32_t* word) {
  uint32_t* c0 = word;
  uint32_t* c1 = word + kSide;
  uint32_t* c2 = word + 2 * kSide;
  uint32_t* c3 = word + 3 * kSide;
  for (int l = 0; l < kSide; ++l) {
    c0[l] = first + uint32_t(l);
    c1[l] = uint32_t(row);
    c2[l] = uint32_t(row >> 32);
    c3[l] = 0;
  }
  uint32_t k0 = uint32_t(key), k1 = uint32_t(key >> 32);
  for (int round = 0; round < 10; ++round) {
    for (int l = 0; l < kSide; ++l) {
      const uint64_t p0 = uint64_t(0xD2511F53u) * c0[l], p1 = uint64_t(0xCD9E8D57u) * c2[l];
      const uint32_t n0 = uint32_t(p1 >> 32) ^ c1[l] ^ k0, n2 = uint32_t(p0 >> 32) ^ c3[l] ^ k1;
      c1[l] = uint32_t(p1), c3[l] = uint32_t(p0), c0[l] = n0, c2[l] = n2;
    }
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
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
          for (int t = 0; t < n; ++t) out[c + t] = word[t] >= threshold ? in[c + t] * scale : V(0);
      }
    }
  });
}

template <class V>
void relu_backward(const V* y, const V* dy, int64_t count, V scale, V* dx, int threads) {
  for_range(count, 32768, threads, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) dx[k] = y[k] > V(0) ? dy[k] * scale : V(0);
  });
}

#define INSTANTIATE(V)                                                                                        \
  template void dropout(const V*, V*, int64_t, int64_t, const int64_t*, int64_t, uint64_t, uint32_t, V, bool, \
                        int);                                                                                 \
  template void relu_backward(const V*, const V*, int64_t, V, V*, int);
INSTANTIATE(float)
INSTANTIATE(double)

}  // namespace WEFT_ISA
}  // namespace weft
