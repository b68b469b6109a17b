// Partitioning in passes over the rows: the inner loops of weft/partition/passes.py. See passes.cpp.
#pragma once
#include <cstdint>

namespace weft::passes {

// Rows first, first + 1, ... as they lie in a graph, loops among them: row r reads columns[indptr[r]] on, indptr[0] = 0.
// The work of a vertex: the nonzeros of its row of A + I, and `extra`.
template <class I>
struct Rows {
  int64_t first;
  int64_t count;
  const int64_t* indptr;
  const I* columns;
  int64_t extra;
};

// work[r] of each row; the bit of a vertex that reads another is set in `reads`.
template <class I>
void weigh(const Rows<I>& rows, int64_t* work, uint64_t* reads);

// One vertex after the other joins the cluster that most of those it reads are in, where that stays within `most`; it
// stays where as many are. A vertex that reads nothing and is alone joins one that reads it. Returns how many moved.
template <class I>
int64_t join(const Rows<I>& rows, I* label, int64_t* size, const uint64_t* reads, int64_t most);

// Different pairs of clusters, and the arcs between them.
struct Pairs {
  uint64_t* keys;  // [slots], a power of 2: low * clusters + high + 1, 0 where nothing is
  uint32_t* times;
  int64_t slots;
  int64_t held;
  int64_t limit;  // so many at most: then the lightest go, until `keep` are left or fewer
  int64_t keep;
};

template <class I>
void contract(const Rows<I>& rows, const I* label, int64_t clusters, Pairs& pairs, int64_t* work);
void lighten(Pairs& pairs);

// One vertex after the other moves to the part that most of those it reads are in, where that stays within `most`; out of
// a part that is above it, to any of theirs. Returns how many moved.
template <class I>
int64_t move(const Rows<I>& rows, int32_t* part, int64_t parts, int64_t* load, int64_t most);

// readers[v] gets the bit of every part low .. low + 63 that reads v and does not own it; returns arcs between parts, where
// low is 0.
template <class I>
int64_t readers(const Rows<I>& rows, const int32_t* part, int64_t low, uint64_t* readers);

}  // namespace weft::passes
