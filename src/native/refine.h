// Parts of vertices made better by moves and swaps; weft/partition/refine.py has the objective in words.
#pragma once

#include <cstdint>

namespace weft {

struct Refinement {
  int64_t n, columns, parts;  // vertices or clusters of them; nets
  const int64_t* starts;   // [n + 1]: nets[starts[v] .. starts[v + 1]) are the nets of v, its own among them
  const int32_t* nets;     // [pins]
  const int32_t* home;     // [columns]: who owns each net
  const int64_t* weights;  // [n]: work
  int64_t most;            // work that a part should not exceed
  int64_t send, receive;   // rows that a part may send and receive without a price
  double excess, message;  // what a row above these, and a message, are worth in rows of volume
  int64_t passes;
  uint64_t seed;
  int32_t* owner;          // [n], in and out
  double* change;          // [1]: by how much the cost has changed, as the moves have counted it
};

// How many moves there were; a swap is one.
int64_t refine(const Refinement& r);

struct Joining {
  int64_t n, columns;
  const int64_t* starts;
  const int32_t* nets;
  const int64_t* weights;
  const int32_t* owner;  // [n]: only vertices of one part are joined
  int64_t most;          // work of a cluster
  uint64_t seed;
  int32_t* label;        // [n], out: the cluster of each
};

// Clusters of vertices with many nets in common; how many there are.
int64_t join(const Joining& r);

}  // namespace weft
