// Cross entropy of rows and its gradient in one pass.
//
//   loss[i] = log Σ_j exp(x[i, j]) − x[i, label[i]],   dx[i, j] = scale · (exp(x[i, j]) / Σ_k exp(x[i, k]) − [j = label[i]])
#include <cmath>
#include <limits>

#include "exponential.h"
#include "operators.h"
#include "vector.h"

namespace weft {
namespace WEFT_ISA {
namespace {

// f(column, numbers, how many of them count), the last vector filled up with -infinity.
template <class V, class F>
inline void each_vector(const V* x, int64_t width, F&& f) {
  constexpr int L = kLanes<V>;
  int64_t j = 0;
  for (; j + L <= width; j += L) f(j, load<Vec<V>>(x + j), L);
  if (j == width) return;
  Vec<V> rest = Vec<V>{} - std::numeric_limits<V>::infinity();
  std::memcpy(&rest, x + j, sizeof(V) * size_t(width - j));
  f(j, rest, int(width - j));
}

}  // namespace

template <class V>
void cross_entropy(const V* x, const int64_t* label, int64_t count, int64_t width, V scale, V* loss, V* dx, int threads) {
  constexpr int L = kLanes<V>;
  for_range(count, 1 + 8192 / (width < 1 ? 1 : width), threads, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const V* row = x + i * width;
      Vec<V> tops = Vec<V>{} - std::numeric_limits<V>::infinity();
      each_vector(row, width, [&](int64_t, Vec<V> v, int) { tops = v > tops ? v : tops; });
      V top = tops[0];
      for (int l = 1; l < L; ++l) top = tops[l] > top ? tops[l] : top;

      const V at_label = row[label[i]];  // dx may be x
      V* to = dx ? dx + i * width : nullptr;
      Vec<V> sums{};
      each_vector(row, width, [&](int64_t j, Vec<V> v, int n) {
        const Vec<V> e = exponential<V>(v - top);
        sums += e;
        if (to) std::memcpy(to + j, &e, sizeof(V) * size_t(n));
      });
      V sum = 0;
      for (int l = 0; l < L; ++l) sum += sums[l];
      loss[i] = std::log(sum) + (top - at_label);
      if (!to) continue;
      const V share = scale / sum;
      for (int64_t j = 0; j < width; ++j) to[j] *= share;
      to[label[i]] -= scale;
    }
  });
}

#define INSTANTIATE(V) \
  template void cross_entropy(const V*, const int64_t*, int64_t, int64_t, V, V*, V*, int);
INSTANTIATE(float)
INSTANTIATE(double)

}  // namespace WEFT_ISA
}  // namespace weft
