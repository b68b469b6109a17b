// What the streaming converter does per arc: lines to numbers, sorts, ranks. See stream.cpp.
#pragma once
#include <cstdint>

namespace weft::stream {

// How a column after the two ids is read.
enum Kind : int32_t { kSkip = 0, kReal = 1, kWhole = 2 };

struct Parsed {
  int64_t arcs = 0;         // lines that were understood
  int64_t lines = 0;        // ends of lines, of any kind
  int64_t odd = 0;          // lines that were not; their offsets are in `odd` as far as there is room
  uint64_t not_whole = 0;   // bit c: column c is kWhole and held a number that is not
};

// Lines `id id [number ...]` of exactly 2 + `extra` columns. Blank lines and comments ('#', '%') are passed over.
// `comma`: columns are separated by one comma; else by blanks and tabs. outs[c] is double* or int64_t*.
Parsed parse(const char* text, int64_t size, bool comma, int64_t extra, const int32_t* kinds, void* const* outs,
             int64_t* source, int64_t* target, int64_t* odd, int64_t room);

int64_t count_lines(const char* text, int64_t size);

// keys[k] = target[k] << 32 | source[k]; sets the bit of both in `present` (of `bits` bits) where that is given.
// Returns how many arcs were packed before an id that is `limit` or more: `count` where all is well.
int64_t pack(const int64_t* source, const int64_t* target, int64_t count, int64_t limit, uint64_t* keys, uint64_t* present);

// Stable, ascending; the result is in `keys`. With `index` that goes along.
void sort(uint64_t* keys, uint64_t* scratch, int64_t count, uint32_t* index, uint32_t* index_scratch);

// Drops repeated keys of a sorted list in place; `first` gets the places of those kept. Either may be asked for.
int64_t unique(uint64_t* keys, int64_t count, int64_t* first);

// before[w] = bits set in words 0..w-1. Returns the number of all.
int64_t count_before(const uint64_t* present, int64_t words, uint32_t* before);

// ids of sorted keys: columns[k] = the lower half, rows and how often each; through ranks where `present` is given.
template <class I>
int64_t split(const uint64_t* keys, int64_t count, const uint64_t* present, const uint32_t* before, I* columns, uint32_t* rows,
              int64_t* counts);

}  // namespace weft::stream
