#include "csr.h"

namespace weft {

namespace {

// put(slot, row, arc) for each arc, by column, within one by row.
template <class I, class F>
void by_column(int64_t rows, int64_t columns, const int64_t* indptr, const I* indices, int64_t* t_indptr, F&& put) {
  for (int64_t j = 0; j <= columns; ++j) t_indptr[j] = 0;
  const int64_t arcs = indptr[rows];
  for (int64_t e = 0; e < arcs; ++e) ++t_indptr[indices[e] + 1];
  for (int64_t j = 0; j < columns; ++j) t_indptr[j + 1] += t_indptr[j];
  // t_indptr[j] walks to the end of row j while it is filled, and is shifted back afterwards.
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t e = indptr[i]; e < indptr[i + 1]; ++e) put(t_indptr[indices[e]]++, i, e);
  for (int64_t j = columns; j > 0; --j) t_indptr[j] = t_indptr[j - 1];
  t_indptr[0] = 0;
}

}  // namespace

template <class I>
void transpose(int64_t rows, int64_t columns, const int64_t* indptr, const I* indices, int64_t* t_indptr,
               I* t_indices, int64_t* permutation) {
  by_column(rows, columns, indptr, indices, t_indptr, [=](int64_t slot, int64_t row, int64_t arc) {
    t_indices[slot] = I(row);
    permutation[slot] = arc;
  });
}

template <class I, class V>
void turn(int64_t rows, int64_t columns, const int64_t* indptr, const I* indices, const V* values, int64_t* t_indptr,
          I* t_indices, V* t_values) {
  by_column(rows, columns, indptr, indices, t_indptr, [=](int64_t slot, int64_t row, int64_t arc) {
    t_indices[slot] = I(row);
    if (values) t_values[slot] = values[arc];
  });
}

#define INSTANTIATE(I)                                                                                          \
  template void transpose(int64_t, int64_t, const int64_t*, const I*, int64_t*, I*, int64_t*);                  \
  template void turn(int64_t, int64_t, const int64_t*, const I*, const float*, int64_t*, I*, float*);           \
  template void turn(int64_t, int64_t, const int64_t*, const I*, const double*, int64_t*, I*, double*);
INSTANTIATE(int32_t)
INSTANTIATE(int64_t)

}  // namespace weft
