// Structure of a sparse matrix; nothing here depends on the instruction set.
#pragma once
#include <cstdint>

namespace weft {

// The transpose's row pointers, column indices (the original's rows) and permutation: arc e of the
// transpose is arc permutation[e] of the original. Rows come out ascending.
template <class I>
void transpose(int64_t rows, int64_t columns, const int64_t* indptr, const I* indices, int64_t* t_indptr,
               I* t_indices, int64_t* permutation);

// The transpose with its values, which may be none, and without a permutation: 8 bytes an arc less.
template <class I, class V>
void turn(int64_t rows, int64_t columns, const int64_t* indptr, const I* indices, const V* values, int64_t* t_indptr,
          I* t_indices, V* t_values);

}  // namespace weft
