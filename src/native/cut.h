// From rows of a file to the matrices of a rank, two passes over the arcs. See cut.cpp.
#pragma once
#include <cstdint>

namespace weft::cut {

// Where a vertex stands (parallel/numbering.py): at its own number; as a table says; dealt out to `ranks` in turn.
enum Kind : int64_t { kInOrder = 0, kTable32 = 1, kTable64 = 2, kDealt = 3 };

struct Places {
  int64_t kind;
  const void* table;     // of the vertices, or the turn of each hand
  const int64_t* begin;  // kDealt: where each rank's places begin
  int64_t ranks;
};

// Places begins[j] .. ends[j]-1 are the columns of matrix j, ascending; other places are nobody's here.
struct Stretches {
  int64_t count;
  const int64_t* begins;
  const int64_t* ends;
};

// Some rows as they lie in a graph: row r has ids[indptr[r] - indptr[0]] ..., ascending, and stands for own[r].
template <class I, class W>
struct Raw {
  int64_t rows;
  const int64_t* indptr;
  const I* ids;
  const W* weights;  // or none: all 1
  const int64_t* own;
  bool loops;  // whether a row without its loop gets one, of weight 1
};

// counts[j * stride + r] = entries of row r in matrix j; sums[r] = those of all weights, whoever has the entry;
// the bits of places that are read are set in `marks` where that is given.
template <class I, class W>
void count(const Raw<I, W>& raw, const Places& places, const Stretches& stretches, int64_t* counts, int64_t stride,
           uint64_t* marks, double* sums, int threads);

// The entries, at starts[j * stride + r] on. The column in matrix j is the place, or its number among the marked ones,
// less base[j]. `indices` and `values` are addresses per matrix; of values there may be none.
template <class I, class W, class J>
void fill(const Raw<I, W>& raw, const Places& places, const Stretches& stretches, const int64_t* starts, int64_t stride,
          const uint64_t* marks, const uint32_t* before, const uint8_t* numbered, const int64_t* base, J* const* indices,
          W* const* values, int threads);

// values[e] = by_row[r] * by_column[c] (where given) * values[e] (where `weighted`).
template <class J, class V>
void scale(int64_t rows, const int64_t* indptr, const J* indices, const double* by_row, const double* by_column,
           bool weighted, V* values, int threads);

// The numbers of bits first .. last-1 that are set, less `first`.
template <class J>
int64_t list(const uint64_t* marks, int64_t first, int64_t last, J* out);

// Stretches starts[k] .. ends[k]-1 of items of `size` bytes, one behind the other.
void gather(const char* source, int64_t count, const int64_t* starts, const int64_t* ends, int64_t size, char* out);

}  // namespace weft::cut
