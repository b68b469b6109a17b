// Neighbours picked at random, and their relabelling; nothing here depends on the instruction set.
#pragma once
#include <cstdint>

namespace weft {

// out[i] = where row i's picks begin: per row min(degree, fanout), all where fanout < 0, fanout where
// `replace` and the row is not empty; one more, the vertex itself, where `loops`. out has count + 1 entries.
// Returns the last, the number of picks.
template <class I>
int64_t sample_counts(const int64_t* indptr, const I* rows, int64_t count, int64_t fanout, bool replace, bool loops,
                      int64_t* out);

// One hop: picked[out[i] ..] = the neighbours of row rows[i], chosen by Philox from (key, vertex[i]) alone; arcs,
// where not null, gets the place of each in `indices` (-1 for the loop). `out` is what sample_counts gave.
template <class I>
struct Hop {
  const int64_t* indptr;
  const I *indices, *rows, *vertex;
  int64_t count, fanout;
  bool replace, loops;
  uint64_t key;
  const int64_t* out;
  I* picked;
  int64_t* arcs;
};

template <class I>
void sample_rows(const Hop<I>& hop, int threads);

// The targets, then every other vertex once, as they first occur in `picked`: sources[local[e]] = picked[e].
// `place` has n + 1 entries, all 0 before its first use. Returns how many sources there are.
template <class I>
int64_t relabel(const I* targets, int64_t count, const I* picked, int64_t arcs, int64_t n, I* place, I* sources,
                I* local);

// Both at once, where the rows are the targets: chunks that are drawn get their labels while others are drawn.
template <class I>
int64_t sample_block(const Hop<I>& hop, int64_t n, I* place, I* sources, I* local, int threads);

}  // namespace weft
