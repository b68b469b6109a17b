#include "csr.h"

namespace weft {

template <class I>
void transpose(int64_t rows, int64_t columns, const int64_t* indptr, const I* indices, int64_t* t_indptr,
               I* t_indices, int64_t* permutation) {
  for (int64_t j = 0; j <= columns; ++j) t_indptr[j] = 0;
  const int64_t arcs = indptr[rows];
  for (int64_t e = 0; e < arcs; ++e) ++t_indptr[indices[e] + 1];
  for (int64_t j = 0; j < columns; ++j) t_indptr[j + 1] += t_indptr[j];
  // t_indptr[j] walks to the end of row j while it is filled, and is shifted back afterwards.
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t e = indptr[i]; e < indptr[i + 1]; ++e) {
      const int64_t slot = t_indptr[indices[e]]++;
      t_indices[slot] = I(i);
      permutation[slot] = e;
    }
  for (int64_t j = columns; j > 0; --j) t_indptr[j] = t_indptr[j - 1];
  t_indptr[0] = 0;
}

#define INSTANTIATE(I) \
  template void transpose(int64_t, int64_t, const int64_t*, const I*, int64_t*, I*, int64_t*);
INSTANTIATE(int32_t)
INSTANTIATE(int64_t)

}  // namespace weft
