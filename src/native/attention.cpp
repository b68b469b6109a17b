// Attention over the arcs of A, a row at a time: scores, stable softmax and the weighted sum in one pass.
//
//   s[e,h]  the score of arc e = (i, j) in head h: given; leaky(u[i,h] + v[j,h] + bias[e,h]);
//           row_gain[i,h] gain[j,h] <q[i,h,:], k[j,h,:]> + bias[e,h]; or Σ_c mix[c] leaky(z[e,c]) + bias[e,h] (channels.h)
//   p[e,h]  s itself, or exp(s - m_i) with a running maximum m_i and sum l_i (softmax)
//   y[i,c]  Σ_e keep(e,h) p[e,h] x[j,c], h the head that column c belongs to
//
// The slope of y in row_gain, where that alone is learned, needs no walk back: with c = s / row_gain it is
//   t[i]    Σ_e keep p (c - Σ_e p c) x[j]      (no softmax: Σ_e keep c x[j])
// which is summed up beside y, from the same rows of x.
//
// A row's arcs are taken in tiles, small enough that the rows of x that a tile reads twice (for the score
// and for the sum) are still in the cache the second time. Nothing is stored per arc and column.
#include "channels.h"

namespace weft {
namespace WEFT_ISA {

template <class V, class I>
void attend(Csr<V, I> a, Attention<V> at, const V* x, int64_t width, int64_t first, int64_t dim, V* state, V* y,
            V* slope, bool begin, bool finish, int threads) {
  const int64_t H = at.heads, arcs = a.rows ? a.indptr[a.rows] : 0;
  const Segments segments(width, first, dim, kLanes<V>);
  const bool channel = at.kind == Score::channel, wide = channel || at.kind == Score::dot;
  const bool shared = wide && at.column == x && at.inner * H == width;
  const int64_t key_width = at.inner * H, key_bytes = key_width * int64_t(sizeof(V));
  const int64_t tile = channel ? kPanel : wide ? tile_of<V>(width * int64_t(sizeof(V)) + (shared ? 0 : key_bytes)) : kLongest;
  const Heads<V> heads(H, tile);
  const Channels<V> ch = {at.row, at.column, at.features, at.weight, at.feature_width, nullptr};
  const ScorePanels<V, I> panels(a, ch, at.mix, at.slope, channel ? key_width : 0, 0, at.inner > 0 ? at.inner : 1, H);
  const int64_t numbers_of_panels = channel ? kPanel * H + panels.numbers() : 0;
  for_chunks_with<V>(a.indptr, a.rows, width + key_width,
                     2 * heads.room + 2 * heads.period + 3 * H + numbers_of_panels, threads,
                     [&](int64_t first_row, int64_t last_row, V* scratch) {
    int64_t known_from = 0, known = 0;  // channel: the arcs whose scores stand in `coming`
    for (int64_t i = first_row; i < last_row; ++i) {
      V* score = scratch;
      V* plain = score + heads.room;  // c, then keep p c
      V* pattern = plain + heads.room;
      V* running = pattern + heads.period;
      V* grow = running + heads.period;
      V* keep = grow + H;
      V* mean = keep + H;  // Σ p c
      V* coming = mean + H;
      V* out_slope = slope ? slope + i * width : nullptr;
      const int64_t from = a.indptr[i], count = a.indptr[i + 1] - from;
      V* out = y + i * width;
      V* most = state ? state + i * 2 * H : nullptr;
      V* sum = most ? most + H : nullptr;
      if (begin && at.softmax)
        for (int64_t h = 0; h < H; ++h) most[h] = -INFINITY, sum[h] = 0;
      if (begin && count == 0)
        for (int64_t c = 0; c < width; ++c) out[c] = 0;
      if (slope && count == 0)
        for (int64_t c = 0; c < width; ++c) out_slope[c] = 0;
      for (int64_t h = 0; h < H; ++h) mean[h] = 0;
      for (int64_t t = 0, n; t < count; t += n) {
        n = count - t < tile ? count - t : tile;
        if (channel) {
          if (from + t >= known) {
            const int64_t left = a.indptr[last_row] - from - t;
            known_from = from + t, known = known_from + (left < kPanel ? left : kPanel);
            panels.of(i, known_from, known - known_from, coming, coming + kPanel * H, at.signs);
          }
          if (from + t + n > known) n = known - from - t;
        }
        const int64_t numbers = heads.padded(n);
        const I* columns = a.indices + from + t;
        const bool fresh = begin && t == 0;
        if (at.kind == Score::given) {
          for (int64_t e = 0; e < n; ++e) {
            const int64_t arc = at.permutation ? at.permutation[from + t + e] : from + t + e;
            copy_head(score + e * H, at.given + arc * H, H);
          }
        } else if (at.kind == Score::additive) {
          for (int64_t e = 0; e < n; ++e) copy_head(score + e * H, at.column + int64_t(columns[e]) * H, H);
          add_bias(at, from + t, nullptr, n, score);
          heads.lay(pattern, at.row + i * at.row_stride);
          heads.each(numbers, [&](int64_t k, int64_t q) {
            store(score + k, leaky(load<Vec<V>>(score + k) + load<Vec<V>>(pattern + q), at.slope));
          });
        } else if (channel) {
          std::memcpy(score, coming + (from + t - known_from) * H, size_t(n * H) * sizeof(V));
          add_bias(at, from + t, nullptr, n, score);
        } else {
          const V* query = at.row + i * at.row_stride;
          Dots<V> into(score);
          for (int64_t e = 0; e < n; ++e) {
            if (from + t + e + kAhead < arcs)
              prefetch(at.column + int64_t(columns[e + kAhead]) * key_width, key_bytes);
            const V* key = at.column + int64_t(columns[e]) * key_width;
            for (int64_t h = 0; h < H; ++h) into.add(products(query + h * at.inner, key + h * at.inner, at.inner));
          }
          into.flush();
          if (at.gain)
            for (int64_t e = 0; e < n; ++e)
              for (int64_t h = 0; h < H; ++h) score[e * H + h] *= at.gain[int64_t(columns[e]) * H + h];
          if (slope) {
            for (int64_t k = n * H; k < numbers; ++k) score[k] = 0;
            std::memcpy(plain, score, size_t(numbers) * sizeof(V));
          }
          if (at.row_gain) {
            heads.lay(pattern, at.row_gain + i * H);
            heads.each(numbers, [&](int64_t k, int64_t q) {
              store(score + k, load<Vec<V>>(score + k) * load<Vec<V>>(pattern + q));
            });
          }
          add_bias(at, from + t, nullptr, n, score);
        }
        if (at.raw) std::memcpy(at.raw + (from + t) * H, score, size_t(n * H) * sizeof(V));
        if (at.softmax) {
          for (int64_t k = n * H; k < numbers; ++k) score[k] = -INFINITY;
          heads.lay(running, most);
          heads.each(numbers, [&](int64_t k, int64_t q) {
            const Vec<V> s = load<Vec<V>>(score + k), r = load<Vec<V>>(running + q);
            store(running + q, s > r ? s : r);
          });
          for (int64_t h = 0; h < H; ++h) grow[h] = running[h];
          for (int64_t k = H; k < heads.period; k += H)
            for (int64_t h = 0; h < H; ++h) grow[h] = running[k + h] > grow[h] ? running[k + h] : grow[h];
          // Where all scores so far are -inf, they count nothing: -inf - 0 is well defined, -inf - -inf is not.
          for (int64_t h = 0; h < H; ++h) keep[h] = grow[h] == V(-INFINITY) ? V(0) : grow[h];
          heads.lay(pattern, keep);
          heads.fill(running, V(0));
          heads.each(numbers, [&](int64_t k, int64_t q) {
            const Vec<V> p = exponential<V>(load<Vec<V>>(score + k) - load<Vec<V>>(pattern + q));
            store(score + k, p);
            store(running + q, load<Vec<V>>(running + q) + p);
          });
          bool grew = false;
          for (int64_t h = 0; h < H; ++h) {
            const V factor = fresh ? V(0) : most[h] == grow[h] ? V(1) : std::exp(most[h] - grow[h]);
            grew |= factor != V(1);
            most[h] = grow[h];
            sum[h] *= factor;
            mean[h] *= factor;
            grow[h] = factor;
          }
          heads.add_up(running, sum);
          if (grew && !fresh)
            for (const Segment& s : segments)
              for (int64_t c = s.begin; c < s.end; ++c) {
                out[c] *= grow[s.head];
                if (slope) out_slope[c] *= grow[s.head];
              }
          if (slope) {
            heads.fill(running, V(0));
            heads.each(numbers, [&](int64_t k, int64_t q) {
              const Vec<V> part = load<Vec<V>>(score + k) * load<Vec<V>>(plain + k);
              store(plain + k, part);
              store(running + q, load<Vec<V>>(running + q) + part);
            });
            heads.add_up(running, mean);
          }
        }
        if (at.threshold)
          for (int64_t e = 0; e < n; ++e) {
            keep_factors(at, i, int64_t(columns[e]), keep);
            for (int64_t h = 0; h < H; ++h) {
              score[e * H + h] *= keep[h];
              if (slope) plain[e * H + h] *= keep[h];
            }
          }
        add_rows_of(segments, columns, score, H, n, arcs - from - t, x, width, out, fresh, shared);
        if (slope) add_rows_of(segments, columns, plain, H, n, arcs - from - t, x, width, out_slope, fresh, true);
      }
      if (finish && at.softmax) {
        for (int64_t h = 0; h < H; ++h) grow[h] = sum[h] != V(0) ? V(1) / sum[h] : V(0);
        for (const Segment& s : segments)
          for (int64_t c = s.begin; c < s.end; ++c) {
            out[c] *= grow[s.head];
            if (slope) out_slope[c] = grow[s.head] * (out_slope[c] - mean[s.head] * out[c]);
          }
      }
    }
  });
}

template <class V, class I>
void attend_backward(Csr<V, I> t, Attention<V> at, const V* stat, const V* g, const V* x, int64_t width, int64_t dim,
                     V* dx, V* dcolumn, V* dgain, V* dscore, int threads) {
  const int64_t H = at.heads, arcs = t.rows ? t.indptr[t.rows] : 0;
  const bool dots = at.kind == Score::dot, additive = at.kind == Score::additive;  // or given
  const int64_t key_width = dots ? at.inner * H : 0;
  const Segments segments(width, 0, dim, kLanes<V>);
  const Segments key_segments(key_width, 0, dots ? at.inner : 1, kLanes<V>);
  const int64_t bytes = width * int64_t(sizeof(V)), row_bytes = (dots ? key_width : H) * int64_t(sizeof(V));
  const int64_t tile = tile_of<V>(bytes + (dots ? row_bytes : 0));
  const Heads<V> heads(H, tile);
  // dx and dcolumn may be one buffer, where the keys are the values: then both are added into it.
  const bool together = dcolumn == dx;
  for_rows_with<V>(t.indptr, t.rows, 2 * (width + key_width), 7 * heads.room + 2 * heads.period, threads,
                   [&](int64_t j, V* scratch) {
    static thread_local std::array<Vec<V>, kLongest> part;
    V* p = scratch;             // the score, then exp(score - log Σ exp)
    V* d = p + heads.room;      // dy · x, then the gradient of the score
    V* sum = d + heads.room;    // additive: u + v; dot: the product without its gain
    V* logs = sum + heads.room;
    V* mean = logs + heads.room;
    V* keep = mean + heads.room;
    V* kept = keep + heads.room;
    V* pattern = kept + heads.room;
    V* running = pattern + heads.period;
    const V* gain = at.gain ? at.gain + j * H : nullptr;
    const int64_t from = t.indptr[j], count = t.indptr[j + 1] - from;
    const V* xj = x + j * width;
    V* out = dx + j * width;
    V* out_column = dcolumn + j * (dots ? key_width : H);
    if (count == 0)
      for (int64_t c = 0; c < width; ++c) out[c] = 0;
    if (additive)
      for (int64_t h = 0; h < H; ++h) out_column[h] = 0;
    else if (dots && count == 0 && !together)
      for (int64_t c = 0; c < key_width; ++c) out_column[c] = 0;
    if (gain)
      for (int64_t h = 0; h < H; ++h) dgain[j * H + h] = 0;
    for (int64_t begin = 0; begin < count; begin += tile) {
      const int64_t n = count - begin < tile ? count - begin : tile, numbers = heads.padded(n);
      const I* rows = t.indices + from + begin;
      const int64_t* arc = at.permutation + from + begin;
      const int64_t reach = arcs - from - begin;
      // dots: the weights need the products with the keys first; else g is read once, further down.
      Dots<V> into(d);
      for (int64_t e = 0; e < n; ++e) {
        const int64_t i = rows[e];
        if (e + kAhead < reach) {
          const int64_t next = rows[e + kAhead];
          prefetch(stat + next * 2 * H, 1);
          if (at.row) prefetch(at.row + next * at.row_stride, row_bytes);
          if (at.given) prefetch(at.given + arc[e + kAhead] * H, 1);
          __builtin_prefetch(dscore + arc[e + kAhead] * H, 1);
          if (dots) prefetch(g + next * width, bytes);
        }
        if (dots)
          for (const Segment& s : segments)
            into.add(products(g + i * width + s.begin, xj + s.begin, s.end - s.begin));
        if (at.softmax) {
          copy_head(logs + e * H, stat + i * 2 * H, H);
          copy_head(mean + e * H, stat + i * 2 * H + H, H);
        }
      }
      into.flush();
      if (dots) {
        const V* key = at.column + j * key_width;
        Dots<V> into_sum(sum);
        for (int64_t e = 0; e < n; ++e)
          for (int64_t h = 0; h < H; ++h)
            into_sum.add(products(at.row + int64_t(rows[e]) * at.row_stride + h * at.inner, key + h * at.inner,
                                  at.inner));
        into_sum.flush();
        if (gain) heads.lay(pattern, gain);
        else heads.fill(pattern, V(1));
        heads.each(numbers, [&](int64_t k, int64_t q) {
          store(p + k, load<Vec<V>>(sum + k) * load<Vec<V>>(pattern + q));
        });
        add_bias(at, from + begin, at.permutation, n, p);
      } else if (!additive) {
        for (int64_t e = 0; e < n; ++e) copy_head(p + e * H, at.given + arc[e] * H, H);
      } else {
        for (int64_t e = 0; e < n; ++e) copy_head(sum + e * H, at.row + int64_t(rows[e]) * at.row_stride, H);
        add_bias(at, from + begin, at.permutation, n, sum);
        heads.lay(pattern, at.column + j * H);
        heads.each(numbers, [&](int64_t k, int64_t q) {
          const Vec<V> both = load<Vec<V>>(sum + k) + load<Vec<V>>(pattern + q);
          store(sum + k, both);
          store(p + k, leaky(both, at.slope));
        });
      }
      // What stands beyond the last arc is never read, but must not count in the sums.
      const int64_t used = n * H;
      if (at.softmax) {
        for (int64_t k = used; k < numbers; ++k) p[k] = logs[k] = mean[k] = 0;
        heads.each(numbers, [&](int64_t k, int64_t) {
          store(p + k, exponential<V>(load<Vec<V>>(p + k) - load<Vec<V>>(logs + k)));
        });
      }
      const V* weight = p;  // with dropout's factor
      if (at.threshold) {
        for (int64_t e = 0; e < n; ++e) keep_factors(at, int64_t(rows[e]), j, keep + e * H);
        for (int64_t k = 0; k < used; ++k) kept[k] = p[k] * keep[k];
        weight = kept;
      }
      if (!dots)
        add_and_dot_rows(segments, rows, weight, H, n, reach, g, width, xj, part.data(), d, out, begin == 0);
      if (at.extra)
        for (int64_t e = 0; e < n; ++e)
          for (int64_t h = 0; h < H; ++h) d[e * H + h] += at.extra[arc[e] * H + h];
      if (at.threshold)
        for (int64_t k = 0; k < used; ++k) d[k] *= keep[k];
      if (at.softmax) {
        for (int64_t k = used; k < numbers; ++k) d[k] = 0;
        heads.each(numbers, [&](int64_t k, int64_t) {
          store(d + k, load<Vec<V>>(p + k) * (load<Vec<V>>(d + k) - load<Vec<V>>(mean + k)));
        });
      }
      for (int64_t k = used; k < numbers; ++k) d[k] = sum[k] = 0;
      if (additive || gain) {
        heads.fill(running, V(0));
        heads.each(numbers, [&](int64_t k, int64_t q) {
          Vec<V> ds = load<Vec<V>>(d + k);
          const Vec<V> plain = load<Vec<V>>(sum + k);
          Vec<V> part = ds * plain;
          if (dots) ds *= load<Vec<V>>(pattern + q);
          else part = ds = plain > V(0) ? ds : ds * at.slope;
          store(d + k, ds);
          store(running + q, load<Vec<V>>(running + q) + part);
        });
        heads.add_up(running, dots ? dgain + j * H : out_column);
      }
      for (int64_t e = 0; e < n; ++e) copy_head(dscore + arc[e] * H, d + e * H, H);
      if (dots) {
        add_rows_of(segments, rows, weight, H, n, reach, g, width, out, begin == 0, true);
        add_rows_of(key_segments, rows, d, H, n, reach, at.row, at.row_stride, out_column, begin == 0 && !together,
                    true);
      }
    }
  });
}

#define INSTANTIATE(V, I)                                                                                    \
  template void attend(Csr<V, I>, Attention<V>, const V*, int64_t, int64_t, int64_t, V*, V*, V*, bool, bool, \
                       int);                                                                                 \
  template void attend_backward(Csr<V, I>, Attention<V>, const V*, const V*, const V*, int64_t, int64_t, V*, \
                                V*, V*, V*, int);
WEFT_FOR_TYPES(INSTANTIATE)

}  // namespace WEFT_ISA
}  // namespace weft
