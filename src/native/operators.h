// The operators of one instruction set, as templates; each .cpp file defines one and instantiates it.
#pragma once
#include "kernels.h"

#define WEFT_FOR_TYPES(MACRO) \
  MACRO(float, int32_t)       \
  MACRO(float, int64_t)       \
  MACRO(double, int32_t)      \
  MACRO(double, int64_t)

namespace weft {
namespace WEFT_ISA {

template <class V, class I>
void spmm(Csr<V, I> a, const V* x, int64_t width, V* y, bool mean, bool accumulate, int threads);
template <class V, class I>
void spmm_extremum(Csr<V, I> a, const V* x, int64_t width, V* y, I* arg, bool max, bool plus, bool plain,
                   int threads);
template <class V, class I>
void spmm_extremum_backward(Csr<V, I> t, const I* labels, const V* dy, const I* arg, int64_t width, V* dx,
                            int threads);
template <class V, class I>
void add_to_winners(const I* arg, int64_t rows, int64_t width, const V* dy, int64_t columns, V* dx, int threads);
template <class V, class I>
void spmm_logsum(Csr<V, I> a, const V* x, int64_t width, V* y, int threads);
template <class V, class I>
void spmm_logsum_backward(Csr<V, I> t, const V* x, const V* y, const V* dy, int64_t width, V* dx, int threads);
template <class V, class I>
void sddmm(Csr<V, I> a, const V* left, const V* right, int64_t width, int64_t first, int64_t dim, int64_t heads,
           V* out, int threads);
template <class V, class I>
void attend(Csr<V, I> a, Attention<V> at, const V* x, int64_t width, int64_t first, int64_t dim, V* state, V* y,
            V* slope, bool begin, bool finish, int threads);
template <class V, class I>
void attend_backward(Csr<V, I> t, Attention<V> at, const V* stat, const V* g, const V* x, int64_t width, int64_t dim,
                     V* dx, V* dcolumn, V* dgain, V* dscore, int threads);
template <class V, class I>
void attend_self_backward(Csr<V, I> a, Attention<V> at, const V* stat, const V* g, const V* x, int64_t width, V* dx,
                          V* dgains, int threads);
template <class V, class I>
int64_t sign_bytes(int64_t width, int64_t first, int64_t dim);
template <class V, class I>
void channel_scores(Csr<V, I> a, Channels<V> ch, const V* mix, V slope, int64_t width, int64_t first, int64_t dim,
                    int64_t heads, Signs signs, V* out, int threads);
template <class V, class I>
void channel_scores_backward(Csr<V, I> m, Channels<V> ch, int64_t begin, int64_t end, Signs signs, const V* ds,
                             const V* mix, V slope, int64_t width, int64_t first, int64_t dim, int64_t heads, V* side,
                             bool add, V* dweight, V* dmix, int threads);
template <class V, class I>
void channel_relu(Csr<V, I> a, Channels<V> ch, int64_t width, Signs signs, V* y, bool accumulate, int threads);
template <class V, class I>
void channel_relu_backward(Csr<V, I> m, Channels<V> ch, int64_t begin, int64_t end, Signs signs, const V* g, int64_t width,
                           V* side, bool add, V* dweight, int threads);
template <class V, class I>
void channel_gate(Csr<V, I> a, Channels<V> ch, const V* x, const V* value_weight, int64_t width, V* y, bool accumulate,
                  int threads);
template <class V, class I>
void channel_gate_backward(Csr<V, I> m, Channels<V> ch, bool transposed, const V* g, const V* x, const V* value_weight,
                           int64_t width, V* dfixed, V* dx, V* dweight, V* dvalue_weight, int threads);
template <class V, class I>
void channel_stats(Csr<V, I> a, Channels<V> ch, int64_t width, V* sum, V* squares, V* most, V* least, I* arg_most,
                   I* arg_least, int threads);
template <class V, class I>
void channel_stats_backward(Csr<V, I> t, Channels<V> ch, const I* labels, const V* dsum, const V* dsquares,
                            const V* dmost, const V* dleast, const I* arg_most, const I* arg_least, int64_t width,
                            V* dcolumn, V* dweight, int threads);
template <class V, class I>
void gather_rows(const V* x, const I* index, int64_t count, int64_t width, V* out, int threads);
template <class V, class I>
void add_rows(V* x, const I* index, int64_t count, int64_t width, const V* src, int threads);
template <class V, class I>
void scatter_rows(V* x, const I* index, int64_t count, int64_t width, const V* src, int threads);
template <class V, class I>
void pair_products(const V* x, const I* left, const I* right, int64_t count, int64_t width, V* out, int threads);
template <class V, class I>
void add_pair_products(V* y, const V* x, const I* left, const I* right, int64_t count, int64_t width, const V* g,
                       int threads);
template <class V>
void dropout(const V* x, V* y, int64_t count, int64_t width, const int64_t* rows, int64_t first, uint64_t key,
             uint32_t threshold, V scale, bool relu, int threads);
template <class V>
void elu(V* x, int64_t count, int threads);
template <class V>
void relu_backward(const V* y, const V* dy, int64_t count, V scale, V* dx, int threads);
template <class V>
void cross_entropy(const V* x, const int64_t* label, int64_t count, int64_t width, V scale, V* loss, V* dx, int threads);

}  // namespace WEFT_ISA
}  // namespace weft
