// Messages that an arc makes column by column of z (channels.h), summed up by row, and their gradients.
//
//   relu    y[i] = Σ_e max(z, 0)
//   gate    y[i] = Σ_e σ(z) ∘ v,    v[e] = x[j] + f[e] U
//   stats   Σ_e z, Σ_e z², max_e z, min_e z, and who was the largest and the smallest
//   score   s[e,h] = Σ over the columns of head h of mix[c] leaky(z[c])          per arc, not summed
//
// A gradient walks over A (then `fixed` is the row side) or over its transpose (the column side). Those of relu and score
// need of z its signs alone: no product with W is made in them.
#include <algorithm>

#include "channels.h"
#include "subsets.h"

namespace weft {
namespace WEFT_ISA {
namespace {

constexpr int64_t kGroups = 64;  // sums over all arcs are kept for so many groups of rows, then added in order

template <class V>
inline int64_t channel_tile(int64_t width) {
  const int64_t fit = kTileBytes / (width * int64_t(sizeof(V)) + 1);
  return fit < 4 ? 4 : fit > kLongest ? kLongest : fit / 4 * 4;
}

template <class V>
inline Vec<V> sigmoid(Vec<V> z) {
  return V(1) / (V(1) + exponential<V>(-z));
}
template <class V>
inline V sigmoid(V z) {
  return V(1) / (V(1) + std::exp(-z));
}

// body(first row, end, scratch, own) for groups of rows: `own` is the group's own memory, added to total in their order.
template <class V, class I, class F>
inline void for_groups(Csr<V, I> m, int64_t width, int64_t numbers, int64_t own, V* total, int threads, F&& body) {
  RowChunks chunks(m.indptr, m.rows, width);
  if (own && chunks.chunks > kGroups) chunks.chunks = kGroups;
  std::vector<V> partial(size_t(own * chunks.chunks), V(0));
  parallel_for(chunks.chunks, threads, [&](int64_t group) {
    static thread_local std::vector<V> memory;
    if (int64_t(memory.size()) < numbers) memory.resize(size_t(numbers));
    const int64_t begin = chunks.begin(group), end = chunks.begin(group + 1);
    if (begin < end) body(begin, end, memory.data(), partial.data() + own * group);
  });
  for (int64_t g = 0; g < chunks.chunks; ++g)
    for (int64_t k = 0; k < own; ++k) total[k] += partial[size_t(own * g + k)];
}

// body(row, scratch, own) for every row.
template <class V, class I, class F>
inline void for_group_rows(Csr<V, I> m, int64_t width, int64_t numbers, int64_t own, V* total, int threads, F&& body) {
  for_groups<V, I>(m, width, numbers, own, total, threads, [&](int64_t i, int64_t end, V* scratch, V* partial) {
    for (; i < end; ++i) body(i, scratch, partial);
  });
}

template <class V>
inline void gate_row(const V* z, const V* v, int64_t n, int64_t width, V* out) {
  constexpr int L = kLanes<V>;
  int64_t c = 0;
  for (; c + L <= width; c += L) {
    Vec<V> sum = load<Vec<V>>(out + c);
    for (int64_t e = 0; e < n; ++e) sum += sigmoid<V>(load<Vec<V>>(z + e * width + c)) * load<Vec<V>>(v + e * width + c);
    store(out + c, sum);
  }
  for (; c < width; ++c)
    for (int64_t e = 0; e < n; ++e) out[c] += sigmoid(z[e * width + c]) * v[e * width + c];
}

}  // namespace

template <class V, class I>
int64_t sign_bytes(int64_t width, int64_t first, int64_t dim) {
  return sign_stride<V>(Strips(width, first, dim, kLanes<V>).vectors());
}

template <class V, class I>
void channel_scores(Csr<V, I> a, Channels<V> ch, const V* mix, V slope, int64_t width, int64_t first, int64_t dim,
                    int64_t heads, Signs signs, V* out, int threads) {
  const ScorePanels<V, I> panels(a, ch, mix, slope, width, first, dim, heads);
  for_groups<V, I>(a, width, panels.numbers(), 0, nullptr, threads, [&](int64_t i, int64_t end, V* parts, V*) {
    const int64_t last = a.indptr[end];
    for (int64_t from = a.indptr[i]; from < last; from += kPanel) {
      while (a.indptr[i + 1] <= from) ++i;
      panels.of(i, from, last - from < kPanel ? last - from : kPanel, out ? out + from * heads : nullptr, parts, signs);
    }
  });
}

namespace {

// What the arcs of a tile bring to D: a number for each head (scores), or a row (sums of rectified rows).
template <class V>
struct Brought {
  const uint8_t* signs[kPanel];
  const V* rows[kPanel];
  const V* ahead[kPanel];  // rows that a later tile reads, or null
  V* numbers;              // [kPanel, heads]
};

// D in R strips from v on, those of one word: what the arcs from, from + 1 … to - 1 bring where z > 0, elsewhere `slope`
// times that. Summed up in `sum`, and written to tile [arcs, R strips] where that is not null.
template <class V, int R, bool Rows>
inline void signed_strips(const Strips& strips, const Brought<V>& in, int64_t heads, V slope, int64_t from, int64_t to, int64_t v,
                          V* sum, V* tile) {
  constexpr int L = kLanes<V>;
  const int64_t word = v / kStripsPerWord<V> * int64_t(sizeof(V)), column = strips[v].column;
  int64_t head[R];
  Vec<V> total[R];
  for (int r = 0; r < R; ++r) head[r] = strips[v + r].head, total[r] = load<Vec<V>>(sum + (v + r) * L);
  for (int64_t e = from; e < to; ++e) {
    const MaskLane<V> bits = load<MaskLane<V>>(in.signs[e] + word);
    if (Rows && in.ahead[e]) prefetch(in.ahead[e] + column, R * kVectorBytes);
    for (int r = 0; r < R; ++r) {
      const Vec<V> d = Rows ? load_strip<V, false>(strips, in.rows[e], v + r) : Vec<V>{} + in.numbers[e * heads + head[r]];
      const Vec<V> now = by_signs<V>(bits, r, d, Rows ? Vec<V>{} : d * slope);
      total[r] += now;
      if (tile) store(tile + (e * R + r) * L, now);
    }
  }
  for (int r = 0; r < R; ++r) store(sum + (v + r) * L, total[r]);
}

template <class V, bool Rows, int R = kStripsPerWord<V>>
__attribute__((noinline)) void signed_word(int64_t count, const Strips& strips, const Brought<V>& in, int64_t heads, V slope,
                        int64_t from, int64_t to, int64_t v, V* sum, V* tile) {
  if (count == R) signed_strips<V, R, Rows>(strips, in, heads, slope, from, to, v, sum, tile);
  else if constexpr (R > 1) signed_word<V, Rows, R - 1>(count, strips, in, heads, slope, from, to, v, sum, tile);
}

// Walks over rows of A, or over its transpose and there over the arcs of A's rows begin … end - 1, and makes D of arcs
// whose signs are known; what an arc brings is ds [arcs, heads] (Rows: the row of g that the arc leads into).
//   row_done(r, Σ_e D[e], own)    own: the group's memory; there fᵀ D comes first, where `weights`
// A panel of arcs is gone through a word of strips at a time, whatever rows they are of: what is held of D stays in the
// first cache, and fᵀ D meets it there.
template <bool Rows, class V, class I, class F>
inline void signed_walk(Csr<V, I> m, const Channels<V>& ch, const Strips& strips, int64_t begin, int64_t end, Signs signs,
                        const V* brought, int64_t heads, V slope, int64_t width, bool weights, int64_t more, V* total,
                        int threads, F&& row_done) {
  constexpr int64_t kAway = 24;  // arcs between the prefetch of small things and their use
  constexpr int64_t kWord = kStripsPerWord<V> * kLanes<V>;
  const int64_t padded = strips.padded(), stride = sign_stride<V>(strips.vectors()), arcs = m.rows ? m.indptr[m.rows] : 0;
  const int64_t own = (weights ? ch.inner * padded : 0) + more;
  constexpr bool signs_alone = kSubsets<V> && !Rows;
  const bool subsets = signs_alone && by_subsets(strips);  // fᵀ D without D
  const int64_t numbers = kPanel * (padded + heads) + (weights && !subsets ? kPanel * kWord : 0);
  for_groups<V, I>(m, width, numbers, own, total, threads, [&](int64_t r, int64_t stop, V* scratch, V* partial) {
    Brought<V> in;
    V* sums = scratch;  // [rows of a panel, padded]
    in.numbers = sums + kPanel * padded;
    V* tile = weights && !subsets ? in.numbers + kPanel * heads : nullptr;
    const auto take = [&](int64_t k, int64_t e, int64_t r) {
      const int64_t arc = ch.permutation ? ch.permutation[e] : e;
      in.signs[k] = signs.at + (arc - signs.begin) * stride;
      if (ch.permutation && e + kAway < arcs) {
        const int64_t next = ch.permutation[e + kAway];
        if (next >= signs.begin && next < signs.end) prefetch(signs.at + (next - signs.begin) * stride, stride);
        if (!Rows) prefetch(brought + next * heads, 1);
      }
      if constexpr (Rows) {
        in.rows[k] = brought + (ch.permutation ? int64_t(m.indices[e]) : r) * width;
        in.ahead[k] = ch.permutation && e + kPanel < arcs ? brought + int64_t(m.indices[e + kPanel]) * width : nullptr;
      } else {
        copy_head(in.numbers + k * heads, brought + arc * heads, heads);
      }
    };
    int64_t at = 0, to = 0;  // the arcs of row r that are still to come
    const auto enter = [&] {
      if (r == stop) return;
      at = m.indptr[r], to = m.indptr[r + 1];
      if (!ch.permutation) return;
      at = std::lower_bound(m.indices + at, m.indices + to, I(begin)) - m.indices;
      to = std::lower_bound(m.indices + at, m.indices + to, I(end)) - m.indices;
    };
    enter();
    std::fill(sums, sums + padded, V(0));
    while (r < stop) {
      const int64_t first = r, from = at;
      int64_t ends[kPanel], rows = 0, n = 0;
      while (r < stop && rows < kPanel) {
        const int64_t some = std::min(to - at, kPanel - n);
        for (int64_t k = 0; k < some; ++k) take(n + k, at + k, r);
        n += some, at += some, ends[rows++] = n;
        if (at < to) break;  // the panel is full, and the row goes on in the next
        ++r, enter();
      }
      std::fill(sums + padded, sums + rows * padded, V(0));
      for (int64_t v = 0; v < strips.vectors() && n; v += kStripsPerWord<V>) {
        const int64_t count = std::min<int64_t>(strips.vectors() - v, kStripsPerWord<V>);
        for (int64_t q = 0; q < rows; ++q) {
          const int64_t start = q ? ends[q - 1] : 0;
          if (start < ends[q]) signed_word<V, Rows>(count, strips, in, heads, slope, start, ends[q], v, sums + q * padded, tile);
        }
        const int64_t across = count * kLanes<V>;
        if (tile) add_outer(ch.features + from * ch.inner, ch.inner, n, across, tile, across, partial + v * kLanes<V>, padded);
      }
      if constexpr (signs_alone)
        if (subsets && weights && n)
          add_outer_by_signs<kPanel>(strips, in.signs, ch.features + from * ch.inner, ch.inner, in.numbers, heads, slope, n,
                                     partial, padded);
      for (int64_t q = 0; first + q < r; ++q) row_done(first + q, sums + q * padded, partial);
      if (first + rows > r) std::copy_n(sums + (rows - 1) * padded, padded, sums);  // what the row has so far
      else std::fill(sums, sums + padded, V(0));
    }
  });
}

// The gradient of a row's side, out (+)= mix ∘ Σ_e D[e], and what it brings to that of mix: near ∘ Σ_e D[e].
template <class V, bool Whole>
inline void finish_row(const Strips& strips, const V* sum, const V* mix, const V* near, bool add, V* out, V* dmix) {
  constexpr int L = kLanes<V>;
  for (int64_t v = 0; v < strips.vectors(); ++v) {
    const Strip& s = strips[v];
    const Vec<V> d = load<Vec<V>>(sum + v * L);
    Vec<V> now = load_strip<V, Whole>(strips, mix, v) * d;
    if (add) now += load_strip<V, Whole>(strips, out, v);
    std::memcpy(out + s.column, &now, size_t(Whole ? L : s.count) * sizeof(V));
    if (near) store(dmix + v * L, load<Vec<V>>(dmix + v * L) + load_strip<V, Whole>(strips, near, v) * d);
  }
}

}  // namespace

template <class V, class I>
void channel_scores_backward(Csr<V, I> m, Channels<V> ch, int64_t begin, int64_t end, Signs signs, const V* ds,
                             const V* mix, V slope, int64_t width, int64_t first, int64_t dim, int64_t heads, V* side,
                             bool add, V* dweight, V* dmix, int threads) {
  constexpr int L = kLanes<V>;
  const Strips strips(width, first, dim, L);
  const int64_t padded = strips.padded(), inner = dweight ? ch.inner : 0, weights = inner * padded;
  const V* near = ch.permutation ? ch.column : ch.row;
  std::vector<V> sums(size_t(weights + padded), V(0));
  signed_walk<false>(m, ch, strips, begin, end, signs, ds, heads, slope, width, inner > 0, padded, sums.data(), threads,
                     [&](int64_t r, const V* sum, V* own) {
    if (strips.whole) finish_row<V, true>(strips, sum, mix, near ? near + r * width : nullptr, add, side + r * width, own + weights);
    else finish_row<V, false>(strips, sum, mix, near ? near + r * width : nullptr, add, side + r * width, own + weights);
  });
  for (int64_t v = 0; v < strips.vectors(); ++v)
    for (int64_t l = 0; l < strips[v].count; ++l) {
      const int64_t c = strips[v].column + l, k = v * L + l;
      V total = sums[size_t(weights + k)];
      for (int64_t t = 0; t < inner; ++t) {
        const V found = sums[size_t(t * padded + k)];
        dweight[t * width + c] += mix[c] * found;
        total += ch.weight[t * width + c] * found;
      }
      dmix[c] += total;
    }
}

template <class V, class I>
void channel_relu(Csr<V, I> a, Channels<V> ch, int64_t width, Signs signs, V* y, bool accumulate, int threads) {
  const ReluRows<V, I> rows(a, ch, width);
  for_group_rows<V, I>(a, width, 0, 0, nullptr, threads,
                       [&](int64_t i, V*, V*) { rows.of(i, signs, y ? y + i * width : nullptr, accumulate); });
}

template <class V, class I>
void channel_relu_backward(Csr<V, I> m, Channels<V> ch, int64_t begin, int64_t end, Signs signs, const V* g, int64_t width,
                           V* side, bool add, V* dweight, int threads) {
  constexpr int L = kLanes<V>;
  const Strips strips(width, 0, width > 0 ? width : 1, L);
  const int64_t padded = strips.padded(), inner = dweight ? ch.inner : 0;
  std::vector<V> sums(size_t(inner * padded), V(0));
  signed_walk<true>(m, ch, strips, begin, end, signs, g, int64_t(0), V(0), width, inner > 0, 0, sums.data(), threads,
                    [&](int64_t r, const V* sum, V*) {
    V* out = side ? side + r * width : nullptr;
    if (out)
      for (int64_t c = 0; c < width; ++c) out[c] = add ? out[c] + sum[c] : sum[c];
  });
  for (int64_t t = 0; t < inner; ++t)
    for (int64_t c = 0; c < width; ++c) dweight[t * width + c] += sums[size_t(t * padded + c)];
}

template <class V, class I>
void channel_gate(Csr<V, I> a, Channels<V> ch, const V* x, const V* value_weight, int64_t width, V* y, bool accumulate,
                  int threads) {
  const int64_t tile = channel_tile<V>(width), arcs = a.rows ? a.indptr[a.rows] : 0;
  for_group_rows<V, I>(a, width, 2 * tile * width, 0, nullptr, threads, [&](int64_t i, V* z, V*) {
    V* v = z + tile * width;
    const int64_t from = a.indptr[i], count = a.indptr[i + 1] - from;
    V* out = y + i * width;
    if (!accumulate)
      for (int64_t c = 0; c < width; ++c) out[c] = 0;
    for (int64_t t = 0; t < count; t += tile) {
      const int64_t n = count - t < tile ? count - t : tile;
      const I* columns = a.indices + from + t;
      const V* f = features_of(ch, from + t);
      fill_tile(f, ch.inner, ch.weight, ch.row ? ch.row + i * width : nullptr, ch.column, columns, n, arcs - from - t, width,
                z);
      fill_tile(f, value_weight ? ch.inner : 0, value_weight, static_cast<const V*>(nullptr), x, columns, n,
                arcs - from - t, width, v);
      gate_row(z, v, n, width, out);
    }
  });
}

template <class V, class I>
void channel_gate_backward(Csr<V, I> m, Channels<V> ch, bool transposed, const V* g, const V* x, const V* value_weight,
                           int64_t width, V* dfixed, V* dx, V* dweight, V* dvalue_weight, int threads) {
  constexpr int L = kLanes<V>;
  const int64_t tile = channel_tile<V>(width), arcs = m.rows ? m.indptr[m.rows] : 0;
  const int64_t weights = dweight ? ch.inner * width : 0, own = weights + (dvalue_weight ? ch.inner * width : 0);
  std::vector<V> sums(size_t(own), V(0));
  for_group_rows<V, I>(m, width, tile * (2 * width + ch.inner), own, sums.data(), threads, [&](int64_t i, V* z, V* partial) {
    V* v = z + tile * width;
    V* room = v + tile * width;
    const int64_t from = m.indptr[i], count = m.indptr[i + 1] - from;
    const V* near = transposed ? ch.column : ch.row;
    const V* far = transposed ? ch.row : ch.column;
    V* out = dfixed ? dfixed + i * width : nullptr;
    V* out_x = dx ? dx + i * width : nullptr;
    for (int64_t c = 0; c < width; ++c) {
      if (out) out[c] = 0;
      if (out_x) out_x[c] = 0;
    }
    for (int64_t t = 0; t < count; t += tile) {
      const int64_t n = count - t < tile ? count - t : tile, reach = arcs - from - t;
      const I* index = m.indices + from + t;
      const V* f = features_tile(ch, from + t, n, reach, room);
      fill_tile(f, ch.inner, ch.weight, near ? near + i * width : nullptr, far, index, n, reach, width, z);
      fill_tile(f, value_weight ? ch.inner : 0, value_weight, transposed ? x + i * width : nullptr,
                transposed ? nullptr : x, index, n, reach, width, v);
      for (int64_t e = 0; e < n; ++e) {
        if (transposed && e + kAhead < reach) prefetch(g + int64_t(index[e + kAhead]) * width, width * int64_t(sizeof(V)));
        const V* dy = g + (transposed ? int64_t(index[e]) : i) * width;
        V* ze = z + e * width;
        V* ve = v + e * width;
        int64_t c = 0;
        for (; c + L <= width; c += L) {
          const Vec<V> d = load<Vec<V>>(dy + c), t0 = load<Vec<V>>(ze + c);
          const Vec<V> s = sigmoid<V>(t0);
          store(ze + c, s * (V(1) - s) * load<Vec<V>>(ve + c) * d);
          store(ve + c, s * d);
        }
        for (; c < width; ++c) {
          const V s = sigmoid(ze[c]);
          ze[c] = s * (V(1) - s) * ve[c] * dy[c];
          ve[c] = s * dy[c];
        }
      }
      if (out) add_tile(z, n, width, out);
      if (out_x) add_tile(v, n, width, out_x);
      if (weights) add_outer(f, ch.inner, n, width, z, width, partial, width);
      if (dvalue_weight) add_outer(f, ch.inner, n, width, v, width, partial + weights, width);
    }
  });
  for (int64_t k = 0; k < weights; ++k) dweight[k] += sums[size_t(k)];
  for (int64_t k = weights; k < own; ++k) dvalue_weight[k - weights] += sums[size_t(k)];
}

template <class V, class I>
void channel_stats(Csr<V, I> a, Channels<V> ch, int64_t width, V* sum, V* squares, V* most, V* least, I* arg_most,
                   I* arg_least, int threads) {
  constexpr int L = kLanes<V>;
  const int64_t tile = channel_tile<V>(width), arcs = a.rows ? a.indptr[a.rows] : 0;
  for_group_rows<V, I>(a, width, tile * width, 0, nullptr, threads, [&](int64_t i, V* z, V*) {
    const int64_t from = a.indptr[i], count = a.indptr[i + 1] - from, at = i * width;
    for (int64_t c = at; c < at + width; ++c) sum[c] = squares[c] = most[c] = least[c] = 0, arg_most[c] = arg_least[c] = -1;
    for (int64_t t = 0; t < count; t += tile) {
      const int64_t n = count - t < tile ? count - t : tile;
      const I* columns = a.indices + from + t;
      fill_tile(features_of(ch, from + t), ch.inner, ch.weight, ch.row ? ch.row + at : nullptr, ch.column, columns, n,
                arcs - from - t, width, z);
      int64_t c = 0;
      for (; c + L <= width; c += L) {
        Vec<V> s = load<Vec<V>>(sum + at + c), q = load<Vec<V>>(squares + at + c);
        Vec<V> high = t ? load<Vec<V>>(most + at + c) : load<Vec<V>>(z + c);
        Vec<V> low = t ? load<Vec<V>>(least + at + c) : high;
        Mask<V> up = Mask<V>{} - MaskLane<V>(t ? 1 : 0), down = up;  // -1: still the one from before
        for (int64_t e = 0; e < n; ++e) {
          const Vec<V> now = load<Vec<V>>(z + e * width + c);
          s += now, q += now * now;
          const Mask<V> over = (now > high) | ((now != now) & (high == high));
          const Mask<V> under = (now < low) | ((now != now) & (low == low));
          const Mask<V> number = Mask<V>{} + MaskLane<V>(e);
          high = over ? now : high, up = over ? number : up;
          low = under ? now : low, down = under ? number : down;
        }
        store(sum + at + c, s), store(squares + at + c, q), store(most + at + c, high), store(least + at + c, low);
        for (int l = 0; l < L; ++l) {
          if (up[l] >= 0) arg_most[at + c + l] = columns[up[l]];
          if (down[l] >= 0) arg_least[at + c + l] = columns[down[l]];
        }
      }
      for (; c < width; ++c)
        for (int64_t e = 0; e < n; ++e) {
          const V now = z[e * width + c];
          const bool start = t == 0 && e == 0;
          V &high = most[at + c], &low = least[at + c];
          sum[at + c] += now, squares[at + c] += now * now;
          if (start || now > high || (now != now && high == high)) high = now, arg_most[at + c] = columns[e];
          if (start || now < low || (now != now && low == low)) low = now, arg_least[at + c] = columns[e];
        }
    }
  });
}

// dz[e] = dsum[i] + 2 z dsquares[i] + [j was the largest] dmost[i] + [j was the smallest] dleast[i], over the transpose;
// label[j] is the name by which the winners call column j, null: j itself.
template <class V, class I>
void channel_stats_backward(Csr<V, I> t, Channels<V> ch, const I* labels, const V* dsum, const V* dsquares, const V* dmost,
                            const V* dleast, const I* arg_most, const I* arg_least, int64_t width, V* dcolumn, V* dweight,
                            int threads) {
  constexpr int L = kLanes<V>;
  const int64_t tile = channel_tile<V>(width), arcs = t.rows ? t.indptr[t.rows] : 0;
  const int64_t own = dweight ? ch.inner * width : 0;
  for_group_rows<V, I>(t, width, tile * (width + ch.inner), own, dweight, threads, [&](int64_t j, V* z, V* partial) {
    V* room = z + tile * width;
    const int64_t from = t.indptr[j], count = t.indptr[j + 1] - from, bytes = width * int64_t(sizeof(V));
    const I me = labels ? labels[j] : I(j);
    V* out = dcolumn + j * width;
    for (int64_t c = 0; c < width; ++c) out[c] = 0;
    for (int64_t b = 0; b < count; b += tile) {
      const int64_t n = count - b < tile ? count - b : tile, reach = arcs - from - b;
      const I* rows = t.indices + from + b;
      const V* f = features_tile(ch, from + b, n, reach, room);
      fill_tile(f, ch.inner, ch.weight, ch.column + j * width, ch.row, rows, n, reach, width, z);
      for (int64_t e = 0; e < n; ++e) {
        if (e + 2 < reach) {
          const int64_t next = int64_t(rows[e + 2]) * width;
          for (const V* g : {dsum, dsquares, dmost, dleast}) prefetch(g + next, bytes);
          prefetch(arg_most + next, width * int64_t(sizeof(I))), prefetch(arg_least + next, width * int64_t(sizeof(I)));
        }
        const int64_t at = int64_t(rows[e]) * width;
        V* ze = z + e * width;
        int64_t c = 0;
        if constexpr (sizeof(I) == sizeof(V)) {
          const Mask<V> mine = Mask<V>{} + MaskLane<V>(me);
          for (; c + L <= width; c += L) {
            const Vec<V> high = load<Vec<V>>(dmost + at + c), low = load<Vec<V>>(dleast + at + c);
            Vec<V> d = load<Vec<V>>(dsum + at + c) + V(2) * load<Vec<V>>(ze + c) * load<Vec<V>>(dsquares + at + c);
            d += load<Mask<V>>(arg_most + at + c) == mine ? high : Vec<V>{};
            d += load<Mask<V>>(arg_least + at + c) == mine ? low : Vec<V>{};
            store(ze + c, d);
          }
        }
        for (; c < width; ++c)
          ze[c] = dsum[at + c] + V(2) * ze[c] * dsquares[at + c] + (arg_most[at + c] == me ? dmost[at + c] : V(0)) +
                  (arg_least[at + c] == me ? dleast[at + c] : V(0));
      }
      add_tile(z, n, width, out);
      if (own) add_outer(f, ch.inner, n, width, z, width, partial, width);
    }
  });
}

#define INSTANTIATE(V, I)                                                                                              \
  template int64_t sign_bytes<V, I>(int64_t, int64_t, int64_t);                                                        \
  template void channel_scores(Csr<V, I>, Channels<V>, const V*, V, int64_t, int64_t, int64_t, int64_t, Signs, V*,     \
                               int);                                                                                   \
  template void channel_scores_backward(Csr<V, I>, Channels<V>, int64_t, int64_t, Signs, const V*, const V*, V,        \
                                        int64_t, int64_t, int64_t, int64_t, V*, bool, V*, V*, int);                    \
  template void channel_relu(Csr<V, I>, Channels<V>, int64_t, Signs, V*, bool, int);                                   \
  template void channel_relu_backward(Csr<V, I>, Channels<V>, int64_t, int64_t, Signs, const V*, int64_t, V*, bool,    \
                                      V*, int);                                                                        \
  template void channel_gate(Csr<V, I>, Channels<V>, const V*, const V*, int64_t, V*, bool, int);                      \
  template void channel_gate_backward(Csr<V, I>, Channels<V>, bool, const V*, const V*, const V*, int64_t, V*, V*, V*, \
                                      V*, int);                                                                        \
  template void channel_stats(Csr<V, I>, Channels<V>, int64_t, V*, V*, V*, V*, I*, I*, int);                           \
  template void channel_stats_backward(Csr<V, I>, Channels<V>, const I*, const V*, const V*, const V*, const V*,       \
                                       const I*, const I*, int64_t, V*, V*, int);
WEFT_FOR_TYPES(INSTANTIATE)

}  // namespace WEFT_ISA
}  // namespace weft
