// The gradient of attention of a matrix with itself, where A has an entry (j, i) for every (i, j): one walk.
#include "attention.h"

namespace weft {
namespace WEFT_ISA {
namespace {

// <x_i, x_j>, <g_i, x_j> and <x_i, g_j> at once: each piece is read once. The rows of a later arc are fetched
// a line at a time: in one go they would block the loads of this one.
template <class V>
inline void three_products(const V* xi, const V* gi, const V* xj, const V* gj, int64_t width, const V* next_x,
                           const V* next_g, Vec<V>* out) {
  constexpr int L = kLanes<V>;
  constexpr int lines = 2 * kVectorBytes / 64 > 1 ? 2 * kVectorBytes / 64 : 1;
  Vec<V> r0 = {}, r1 = {}, o0 = {}, o1 = {}, i0 = {}, i1 = {};
  int64_t c = 0;
  for (; c + 2 * L <= width; c += 2 * L) {
    for (int l = 0; l < lines; ++l) {
      __builtin_prefetch(next_x + c + l * L);
      __builtin_prefetch(next_g + c + l * L);
    }
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
    __builtin_prefetch(next_x + c);
    __builtin_prefetch(next_g + c);
    out[0] += products(xi + c, xj + c, width - c);
    out[1] += products(gi + c, xj + c, width - c);
    out[2] += products(xi + c, gj + c, width - c);
  }
}

// With a = row_gain, b = gain and raw = <x_i, x_j>, arc (i, j) has the score a_i b_j raw and arc (j, i) has
// a_j b_i raw: both are at hand when row i meets its neighbour j, so all of row i's gradient is.
//   dx_i = Σ_j (ds_ij a_i b_j + ds_ji a_j b_i) x_j + keep p_ji g_j
// kOne: there is one head, which the compiler then knows.
template <bool kOne, class V, class I>
void self_backward(Csr<V, I> a, Attention<V> at, const V* stat, const V* g, const V* x, int64_t width, V* dx, V* dgains,
                   int threads) {
  const int64_t arcs = a.rows ? a.indptr[a.rows] : 0, dim = width / at.heads;
  const Segments segments(width, 0, dim > 0 ? dim : 1, kLanes<V>);
  const int64_t tile = tile_of<V>(2 * width * int64_t(sizeof(V)));
  const Heads<V> laid(at.heads, tile);
  // By value: what is captured by reference would be read anew after every store.
  for_rows_with<V>(a.indptr, a.rows, 4 * width, 9 * laid.room + 6 * laid.period, threads,
                   [=, &segments](int64_t i, V* scratch) {
    const int64_t H = kOne ? 1 : at.heads;
    const Heads<V> heads = laid;
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
    V* out = dx + i * width;
    if (count == 0)
      for (int64_t c = 0; c < width; ++c) out[c] = 0;
    heads.lay(ai, mine), heads.lay(bi, mine + H), heads.lay(log_i, mine + 2 * H), heads.lay(mean_i, mine + 3 * H);
    heads.fill(sum_a, V(0)), heads.fill(sum_b, V(0));
    for (int64_t begin = 0; begin < count; begin += tile) {
      const int64_t n = count - begin < tile ? count - begin : tile, numbers = heads.padded(n);
      const I* columns = a.indices + from + begin;
      const int64_t reach = arcs - from - begin;
      Dots<V> into_raw(raw), into_out(out_dot), into_in(in_dot);
      for (int64_t e = 0; e < n; ++e) {
        const int64_t j = columns[e], next = columns[e + kAhead < reach ? e + kAhead : e];
        prefetch(stat + next * 4 * H, 4 * H * int64_t(sizeof(V)));
        const V* xj = x + j * width;
        const V* gj = g + j * width;
        const V* next_x = x + next * width;
        const V* next_g = g + next * width;
        auto multiply = [&](int64_t first, int64_t last) {
          Vec<V> found[3];
          three_products(xi + first, gi + first, xj + first, gj + first, last - first, next_x + first,
                         next_g + first, found);
          into_raw.add(found[0]), into_out.add(found[1]), into_in.add(found[2]);
        };
        if (kOne) multiply(0, width);
        else
          for (const Segment& s : segments) multiply(s.begin, s.end);
        const V* other = stat + j * 4 * H;
        copy_head(aj + e * H, other, H);
        copy_head(bj + e * H, other + H, H);
        if (at.softmax) {
          copy_head(logs + e * H, other + 2 * H, H);
          copy_head(mean + e * H, other + 3 * H, H);
        }
      }
      into_raw.flush(), into_out.flush(), into_in.flush();
      if (at.threshold) {
        for (int64_t e = 0; e < n; ++e) {
          keep_factors(at, i, int64_t(columns[e]), keep_out + e * H);
          keep_factors(at, int64_t(columns[e]), i, keep_in + e * H);
        }
        for (int64_t k = 0; k < n * H; ++k) out_dot[k] *= keep_out[k], in_dot[k] *= keep_in[k];
      }
      for (int64_t k = n * H; k < numbers; ++k)
        raw[k] = out_dot[k] = in_dot[k] = aj[k] = bj[k] = logs[k] = mean[k] = 0;
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

}  // namespace

template <class V, class I>
void attend_self_backward(Csr<V, I> a, Attention<V> at, const V* stat, const V* g, const V* x, int64_t width, V* dx,
                          V* dgains, int threads) {
  if (at.heads == 1) self_backward<true>(a, at, stat, g, x, width, dx, dgains, threads);
  else self_backward<false>(a, at, stat, g, x, width, dx, dgains, threads);
}

#define INSTANTIATE(V, I) \
  template void attend_self_backward(Csr<V, I>, Attention<V>, const V*, const V*, const V*, int64_t, V*, V*, int);
WEFT_FOR_TYPES(INSTANTIATE)

}  // namespace WEFT_ISA
}  // namespace weft
