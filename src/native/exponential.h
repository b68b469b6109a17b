// exp of a vector, for the files that are compiled once per instruction set.
#pragma once
#include "vector.h"

namespace weft {
namespace WEFT_ISA {
namespace {

// exp by 2^n · exp(r), |r| <= ln2 / 2, exp(r) by its series; what is below the normal numbers becomes 0.
template <class V>
struct Exp;
template <>
struct Exp<float> {
  static constexpr int terms = 7, mantissa = 23, bias = 127;
  static constexpr float low = -87.0f, high = 88.0f, magic = 12582912.0f;  // 1.5 · 2^23: rounds to whole
  static constexpr float ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
};
template <>
struct Exp<double> {
  static constexpr int terms = 13, mantissa = 52, bias = 1023;
  static constexpr double low = -708.0, high = 709.0, magic = 6755399441055744.0;  // 1.5 · 2^52
  static constexpr double ln2_high = 6.93145751953125e-1, ln2_low = 1.42860682030941723212e-6;
};

template <class V>
constexpr V inverse_factorial(int k) {
  V f = 1;
  for (int i = 2; i <= k; ++i) f *= V(i);
  return V(1) / f;
}

template <class V>
inline Vec<V> exponential(Vec<V> x) {
  using E = Exp<V>;
  const Mask<V> tiny = x < E::low;
  const Vec<V> bounded = x > E::high ? Vec<V>{} + E::high : x < E::low ? Vec<V>{} + E::low : x;
  const Vec<V> n = (bounded * V(1.44269504088896340736) + E::magic) - E::magic;
  const Vec<V> r = (bounded - n * E::ln2_high) - n * E::ln2_low;
  Vec<V> sum = Vec<V>{} + inverse_factorial<V>(E::terms);
  for (int k = E::terms - 1; k >= 0; --k) sum = sum * r + inverse_factorial<V>(k);
  const Mask<V> power = (__builtin_convertvector(n, Mask<V>) + E::bias) << E::mantissa;
  Vec<V> scale;
  std::memcpy(&scale, &power, sizeof scale);
  const Vec<V> out = tiny ? Vec<V>{} : sum * scale;
  return x != x ? x : out;
}

}  // namespace
}  // namespace WEFT_ISA
}  // namespace weft
