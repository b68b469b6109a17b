// Neighbours picked at random, and their relabelling; nothing here depends on the instruction set.
#pragma once
#include <cstdint>

namespace weft {

// out[i] = where row i's picks begin: per row min(degree, fanout), all where fanout < 0, fanout where
// `replace` and the row is not empty; one more, the vertex itself, where `loops`. out has count + 1 entries.
template <class I>
void sample_counts(const int64_t* indptr, const I* rows, int64_t count, int64_t fanout, bool replace, bool loops,
                   int64_t* out);

// picked[out[i] ..] = the neighbours of row rows[i], chosen by Philox from (key, vertex[i]) alone; arcs, where
// not null, gets the place of each in `indices` (-1 for the loop).
template <class I>
void sample_rows(const int64_t* indptr, const I* indices, const I* rows, const I* vertex, int64_t count,
                 int64_t fanout, bool replace, bool loops, uint64_t key, const int64_t* out, I* picked,
                 int64_t* arcs, int threads);

// Every vertex once, targets first, then as they first occur in `picked`: sources[local[e]] = picked[e].
// `place` has an entry a vertex, all -1 before and after. Returns how many sources there are.
template <class I>
int64_t relabel(const I* targets, int64_t count, const I* picked, int64_t arcs, I* place, I* sources, I* local);

}  // namespace weft
