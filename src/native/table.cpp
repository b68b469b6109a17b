// The table of one instruction set.
#include "operators.h"

namespace weft {
namespace WEFT_ISA {

template <class V, class I>
constexpr Kernels<V, I> kernels() {
  return {spmm<V, I>,  spmm_extremum<V, I>, spmm_extremum_backward<V, I>,
          add_to_winners<V, I>, spmm_logsum<V, I>, spmm_logsum_backward<V, I>,
          sddmm<V, I>, attend<V, I>,        attend_backward<V, I>,
          attend_self_backward<V, I>,       sign_bytes<V, I>,    channel_scores<V, I>,
          channel_scores_backward<V, I>,
          channel_relu<V, I>,  channel_relu_backward<V, I>, channel_gate<V, I>,  channel_gate_backward<V, I>,
          channel_stats<V, I>, channel_stats_backward<V, I>, gather_rows<V, I>,    add_rows<V, I>,
          scatter_rows<V, I>,
          pair_products<V, I>,              add_pair_products<V, I>};
}

extern const Table table = {kernels<float, int32_t>(),  kernels<float, int64_t>(),
                            kernels<double, int32_t>(), kernels<double, int64_t>(),
                            {dropout<float>, elu<float>, relu_backward<float>, cross_entropy<float>},
                            {dropout<double>, elu<double>, relu_backward<double>, cross_entropy<double>}};

}  // namespace WEFT_ISA
}  // namespace weft
