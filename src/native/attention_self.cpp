// The gradient of attention of a matrix with itself, where A has an entry (j, i) for every (i, j): one walk.
#include "attention.h"

namespace weft {
namespace WEFT_ISA {
namespace {

// <x_i, x_j>, <g_i, x_j> and <x_i, g_j> at once: each piece is read once.
template <class V>
inline void three_products(const V* xi, const V* gi, const V* xj, const V* gj, int64_t width, Vec<V>* out) {
  constexpr int L = kLanes<V>;
  Vec<V> r0 = {}, r1 = {}, o0 = {}, o1 = {}, i0 = {}, i1 = {};
  int64_t c = 0;
  for (; c + 2 * L <= width; c += 2 * L) {
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
    out[0] += products(xi + c, xj + c, width - c);
    out[1] += products(gi + c, xj + c, width - c);
    out[2] += products(xi + c, gj + c, width - c);
  }
}

}  // namespace

// With a = row_gain, b = gain and raw = <x_i, x_j>, arc (i, j) has the score a_i b_j raw and arc (j, i) has
// a_j b_i raw: both are at hand when row i meets its neighbour j, so all of row i's gradient is.
//   dx_i = Σ_j (ds_ij a_i b_j + ds_ji a_j b_i) x_j + keep p_ji g_j
// Without dx the gradient of a alone: arcs (j, i) don't count, and no row of g but row i's is read.
template <class V, class I>
void attend_self_backward(Csr<V, I> a, Attention<V> at, const V* stat, const V* g, const V* x, int64_t width, V* dx,
                          V* dgains, int threads) {
  const int64_t H = at.heads, arcs = a.rows ? a.indptr[a.rows] : 0, dim = width / H;
  const Segments segments(width, 0, dim > 0 ? dim : 1, kLanes<V>);
  const int64_t bytes = width * int64_t(sizeof(V));
  const bool both = dx != nullptr;
  const int64_t tile = tile_of<V>(2 * bytes);
  const Heads<V> heads(H, tile);
  for_rows_with<V>(a.indptr, a.rows, 4 * width, 9 * heads.room + 6 * heads.period, threads,
                   [&](int64_t i, V* scratch) {
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
    V* out = both ? dx + i * width : nullptr;
    if (both && count == 0)
      for (int64_t c = 0; c < width; ++c) out[c] = 0;
    heads.lay(ai, mine), heads.lay(bi, mine + H), heads.lay(log_i, mine + 2 * H), heads.lay(mean_i, mine + 3 * H);
    heads.fill(sum_a, V(0)), heads.fill(sum_b, V(0));
    for (int64_t begin = 0; begin < count; begin += tile) {
      const int64_t n = count - begin < tile ? count - begin : tile, numbers = heads.padded(n);
      const I* columns = a.indices + from + begin;
      const int64_t reach = arcs - from - begin;
      Dots<V> into_raw(raw), into_out(out_dot), into_in(in_dot);
      for (int64_t e = 0; e < n; ++e) {
        if (e + kAhead < reach) {
          const int64_t next = columns[e + kAhead];
          prefetch(x + next * width, bytes);
          if (both) prefetch(g + next * width, bytes);
          prefetch(stat + next * 4 * H, 4 * H * int64_t(sizeof(V)));
        }
        const int64_t j = columns[e];
        const V* xj = x + j * width;
        const V* gj = g + j * width;
        for (const Segment& s : segments) {
          if (!both) {
            into_raw.add(products(xi + s.begin, xj + s.begin, s.end - s.begin));
            into_out.add(products(gi + s.begin, xj + s.begin, s.end - s.begin));
            continue;
          }
          Vec<V> found[3];
          three_products(xi + s.begin, gi + s.begin, xj + s.begin, gj + s.begin, s.end - s.begin, found);
          into_raw.add(found[0]), into_out.add(found[1]), into_in.add(found[2]);
        }
        const V* other = stat + j * 4 * H;
        copy_head(aj + e * H, other, H);
        copy_head(bj + e * H, other + H, H);
        if (both && at.softmax) {
          copy_head(logs + e * H, other + 2 * H, H);
          copy_head(mean + e * H, other + 3 * H, H);
        }
      }
      into_raw.flush(), into_out.flush(), into_in.flush();
      if (at.threshold) {
        for (int64_t e = 0; e < n; ++e) {
          keep_factors(at, i, int64_t(columns[e]), keep_out + e * H);
          if (both) keep_factors(at, int64_t(columns[e]), i, keep_in + e * H);
        }
        for (int64_t k = 0; k < n * H; ++k) out_dot[k] *= keep_out[k];
        for (int64_t k = 0; both && k < n * H; ++k) in_dot[k] *= keep_in[k];
      }
      for (int64_t k = n * H; k < numbers; ++k)
        raw[k] = out_dot[k] = in_dot[k] = aj[k] = bj[k] = logs[k] = mean[k] = 0;
      if (!both) {
        heads.each(numbers, [&](int64_t k, int64_t q) {
          const Vec<V> c = load<Vec<V>>(raw + k) * load<Vec<V>>(bj + k);
          Vec<V> ds = load<Vec<V>>(out_dot + k);
          if (at.softmax)
            ds = exponential<V>(c * load<Vec<V>>(ai + q) - load<Vec<V>>(log_i + q)) *
                 (ds - load<Vec<V>>(mean_i + q));
          store(sum_a + q, load<Vec<V>>(sum_a + q) + ds * c);
        });
        continue;
      }
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

#define INSTANTIATE(V, I) \
  template void attend_self_backward(Csr<V, I>, Attention<V>, const V*, const V*, const V*, int64_t, V*, V*, int);
WEFT_FOR_TYPES(INSTANTIATE)

}  // namespace WEFT_ISA
}  // namespace weft
