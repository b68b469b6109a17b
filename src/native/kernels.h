// The kernels' interface: plain buffers in, plain buffers out, one table per instruction set.
//
// Shapes are row-major and dense. V is float or double, I is int32_t or int64_t.
#pragma once
#include <cstdint>

namespace weft {

// Row i holds the columns indices[indptr[i] .. indptr[i+1]); values may be null (all ones).
template <class V, class I>
struct Csr {
  int64_t rows;
  const int64_t* indptr;
  const I* indices;
  const V* values;
};

// How attention scores an arc (i, j) in each head, and what is done with the scores.
//   channel: Σ over the head's columns of mix[c] leaky(z[c]), z of Channels; bias: a number per arc and head, added.
enum class Score : int { given = 0, additive = 1, dot = 2, channel = 3 };

// What an arc makes of its ends and its features: z[e,c] = row[i,c] + column[j,c] + Σ_t features[e,t] weight[t,c].
template <class V>
struct Channels {
  const V* row;     // [rows, width], may be null
  const V* column;  // [columns, width]
  const V* features;
  const V* weight;  // [inner, width]
  int64_t inner;    // features per arc; 0: none
  const int64_t* permutation;  // in a walk over the transpose: where arc e stands in A
};

// Which columns of z are positive, a bit each, of the arcs begin … end - 1 (signs.h); `at` may be null: not kept.
struct Signs {
  uint8_t* at;
  int64_t begin, end;
};

template <class V>
struct Attention {
  Score kind;
  int64_t heads;
  // given: [arcs, heads], arc e at permutation[e] where that is not null.
  const V* given;
  const int64_t* permutation;
  // additive: u [rows, row_stride >= heads], v [columns, heads];  dot: q, k with `inner` columns per head.
  const V* row;
  int64_t row_stride;
  const V* column;
  int64_t inner;
  // [arcs, heads] in A's order, may be null: added to the score; of additive ones before the LeakyReLU.
  const V* bias;
  // [arcs, heads], may be null: where `attend` leaves the scores, before softmax and dropout.
  V* raw;
  // [arcs, heads], may be null: in backward, added to the gradient of the weight p of each arc.
  const V* extra;
  // channel: the factors [heads · inner] and what the arcs' features are multiplied with.
  const V* mix;
  const V* features;
  const V* weight;
  int64_t feature_width;
  Signs signs;
  // dot: a factor per column and head, [columns, heads], and one per row; each may be null.
  const V* gain;
  const V* row_gain;
  V slope;
  bool softmax;
  // Dropout of arcs by counter; threshold 0 keeps all. Names may be null: row i is vertex i.
  uint32_t threshold;
  V scale;
  uint64_t key;
  const int64_t* row_names;
  const int64_t* column_names;
};

template <class V, class I>
struct Kernels {
  // y[i] (+)= scale_i Σ_j a_ij x[j]; scale_i is 1, or 1 / (arcs of row i) where `mean`.
  void (*spmm)(Csr<V, I> a, const V* x, int64_t width, V* y, bool mean, bool accumulate, int threads);
  // y[i,c] = max or min over j of a_ij ⊗ x[j,c], ⊗ + where `plus`, else ×; arg[i,c] = the winner's column j, -1 where
  // the row is empty (then y is 0). arg may be null. plain: a promise that no a_ij ⊗ x[j,c] is NaN.
  void (*spmm_extremum)(Csr<V, I> a, const V* x, int64_t width, V* y, I* arg, bool max, bool plus, bool plain,
                        int threads);
  // dx[j,c] = Σ_i [arg[i,c] = label of j] a_ij dy[i,c], with `t` the transpose; labels may be null: j itself.
  void (*spmm_extremum_backward)(Csr<V, I> t, const I* labels, const V* dy, const I* arg, int64_t width, V* dx,
                                 int threads);
  // dx[arg[i,c], c] += dy[i,c], from 0, for every i and c that somebody won; dx is [columns, width].
  void (*add_to_winners)(const I* arg, int64_t rows, int64_t width, const V* dy, int64_t columns, V* dx, int threads);
  // y[i,c] = log Σ_j e^(a_ij + x[j,c]); -inf where the row is empty.
  void (*spmm_logsum)(Csr<V, I> a, const V* x, int64_t width, V* y, int threads);
  // dx[j,c] = Σ_i dy[i,c] e^(a_ij + x[j,c] - y[i,c]), with `t` the transpose.
  void (*spmm_logsum_backward)(Csr<V, I> t, const V* x, const V* y, const V* dy, int64_t width, V* dx, int threads);
  // out[e,h] = <left[i], right[j]> over the columns of head h = (first + c) / dim, for every arc e = (i, j).
  void (*sddmm)(Csr<V, I> a, const V* left, const V* right, int64_t width, int64_t first, int64_t dim,
                int64_t heads, V* out, int threads);
  // y[i,c] += Σ_e p[e,h] x[j,c], h = (first + c) / dim; softmax: state [rows, 2 heads] is the running maximum
  // and sum. `begin`: y and state hold nothing yet; `finish`: divide by the sum.
  // slope [rows, width], may be null: that of y in row_gain, for dot products that begin and finish here.
  void (*attend)(Csr<V, I> a, Attention<V> at, const V* x, int64_t width, int64_t first, int64_t dim, V* state,
                 V* y, V* slope, bool begin, bool finish, int threads);
  // A walk over the transpose: dx [columns, width], dcolumn (of v or k), dgain [columns, heads] where there is a
  // gain, dscore [arcs, heads] in A's order. stat [rows, 2 heads]: log of the sum of exponentials, and
  // Σ_c g[i,c] y[i,c]; g = dy [rows, width].
  void (*attend_backward)(Csr<V, I> t, Attention<V> at, const V* stat, const V* g, const V* x, int64_t width,
                          int64_t dim, V* dx, V* dcolumn, V* dgain, V* dscore, int threads);
  // The same for dot products of x with itself, times x, where A has an entry (j, i) for every (i, j): one walk,
  // nothing per arc. stat [rows, 4 heads]: row_gain, gain, log Σ exp, Σ g y; dgains [rows, 2 heads]: of both gains.
  void (*attend_self_backward)(Csr<V, I> a, Attention<V> at, const V* stat, const V* g, const V* x, int64_t width,
                               V* dx, V* dgains, int threads);
  // Bytes of an arc in Signs.
  int64_t (*sign_bytes)(int64_t width, int64_t first, int64_t dim);
  // out[e,h] = Σ over the columns of head h = (first + c) / dim of mix[c] leaky(z[e,c]), out may be null; and the signs
  // of z, where wanted.
  void (*channel_scores)(Csr<V, I> a, Channels<V> ch, const V* mix, V slope, int64_t width, int64_t first, int64_t dim,
                         int64_t heads, Signs signs, V* out, int threads);
  // A walk over rows of A, or over its transpose and there over the arcs of A's rows begin … end - 1 (where `ch` has a
  // permutation), given ds [arcs, heads] in A's order and the signs of those arcs:
  //   D[e,c]   ds[e,h] · (1 where z > 0, else slope)
  //   side[r]  mix ∘ Σ_e D[e], added where `add`;       dmix += Σ_r near[r] ∘ Σ_e D[e], near = ch.row or ch.column
  //   dweight  += mix ∘ fᵀ D and dmix += Σ_t weight ∘ fᵀ D, where dweight is not null (rows of A only)
  void (*channel_scores_backward)(Csr<V, I> m, Channels<V> ch, int64_t begin, int64_t end, Signs signs, const V* ds,
                                  const V* mix, V slope, int64_t width, int64_t first, int64_t dim, int64_t heads,
                                  V* side, bool add, V* dweight, V* dmix, int threads);
  // y[i] (+)= Σ_e max(z, 0), y may be null; and the signs of z, where wanted.
  void (*channel_relu)(Csr<V, I> a, Channels<V> ch, int64_t width, Signs signs, V* y, bool accumulate, int threads);
  // Walks as of channel_scores_backward, with D[e] = g[row of e] where z > 0, else 0: side[r] (+)= Σ_e D[e], may be
  // null; dweight += fᵀ D.
  void (*channel_relu_backward)(Csr<V, I> m, Channels<V> ch, int64_t begin, int64_t end, Signs signs, const V* g,
                                int64_t width, V* side, bool add, V* dweight, int threads);
  // y[i] (+)= Σ_e σ(z) ∘ (x[j] + f[e] value_weight).
  void (*channel_gate)(Csr<V, I> a, Channels<V> ch, const V* x, const V* value_weight, int64_t width, V* y,
                       bool accumulate, int threads);
  // Its gradients, in a walk over A (dfixed: of the row side) or its transpose (of the column side, dx of x).
  void (*channel_gate_backward)(Csr<V, I> m, Channels<V> ch, bool transposed, const V* g, const V* x,
                                const V* value_weight, int64_t width, V* dfixed, V* dx, V* dweight, V* dvalue_weight,
                                int threads);
  // Σ z, Σ z², max z, min z over the arcs of a row, and whose z those were (-1: no arcs, then 0).
  void (*channel_stats)(Csr<V, I> a, Channels<V> ch, int64_t width, V* sum, V* squares, V* most, V* least, I* arg_most,
                        I* arg_least, int threads);
  void (*channel_stats_backward)(Csr<V, I> t, Channels<V> ch, const I* labels, const V* dsum, const V* dsquares,
                                 const V* dmost, const V* dleast, const I* arg_most, const I* arg_least, int64_t width,
                                 V* dcolumn, V* dweight, int threads);
  // out[k] = x[index[k]]
  void (*gather_rows)(const V* x, const I* index, int64_t count, int64_t width, V* out, int threads);
  // x[index[k]] += src[k]; no index occurs twice.
  void (*add_rows)(V* x, const I* index, int64_t count, int64_t width, const V* src, int threads);
  // x[index[k]] += src[k], one after the other; an index may occur twice.
  void (*scatter_rows)(V* x, const I* index, int64_t count, int64_t width, const V* src, int threads);
  // out[k] = x[left[k]] ∘ x[right[k]]
  void (*pair_products)(const V* x, const I* left, const I* right, int64_t count, int64_t width, V* out, int threads);
  // y[left[k]] += g[k] ∘ x[right[k]] and y[right[k]] += g[k] ∘ x[left[k]], pair after pair.
  void (*add_pair_products)(V* y, const V* x, const I* left, const I* right, int64_t count, int64_t width,
                            const V* g, int threads);
};

template <class V>
struct DenseKernels {
  // y = keep ∘ f(x) / (1 - p), f the identity or ReLU; keep is Philox's bit for (key, row, column).
  // rows may be null: then row r is first + r. x and y may be the same buffer.
  void (*dropout)(const V* x, V* y, int64_t count, int64_t width, const int64_t* rows, int64_t first,
                  uint64_t key, uint32_t threshold, V scale, bool relu, int threads);
  // x = x where x > 0, else e^x - 1; in place.
  void (*elu)(V* x, int64_t count, int threads);
  // dx = [y > 0] dy · scale: the mask of ReLU and dropout is read from the output.
  void (*relu_backward)(const V* y, const V* dy, int64_t count, V scale, V* dx, int threads);
  // loss[i] = log Σ_j exp(x[i, j]) − x[i, label[i]], and scale times its gradient in dx, which may be null.
  void (*cross_entropy)(const V* x, const int64_t* label, int64_t count, int64_t width, V scale, V* loss, V* dx,
                        int threads);
};

struct Table {
  Kernels<float, int32_t> f32_i32;
  Kernels<float, int64_t> f32_i64;
  Kernels<double, int32_t> f64_i32;
  Kernels<double, int64_t> f64_i64;
  DenseKernels<float> f32;
  DenseKernels<double> f64;
};

namespace baseline { extern const Table table; }
namespace avx2 { extern const Table table; }
namespace avx512 { extern const Table table; }

}  // namespace weft
