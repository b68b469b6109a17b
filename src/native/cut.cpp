// A rank's matrices from rows of a graph: counted, then filled. Nothing of the size of the arcs stands between, and
// nothing is sorted: rows are in their order, and a column's number is where its vertex stands, or how many columns
// that are read stand before it.
#include "cut.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "parallel.h"

namespace weft::cut {
namespace {

struct InOrder {
  int64_t operator()(int64_t v) const { return v; }
};

template <class T>
struct Table {
  const T* table;
  int64_t operator()(int64_t v) const { return table[v]; }
};

struct Dealt {
  const int32_t* turn;
  const int64_t* begin;
  int64_t ranks;
  int64_t operator()(int64_t v) const {
    // Vertices below 2^32 are divided in 32 bits, which is several times faster.
    const int64_t hand = v >> 32 ? v / ranks : int64_t(uint32_t(v) / uint32_t(ranks));
    int64_t owner = v - hand * ranks + turn[hand];
    owner -= owner >= ranks ? ranks : 0;
    return begin[owner] + hand;
  }
};

template <class F>
void with_places(const Places& p, F&& f) {
  switch (p.kind) {
    case kInOrder: return f(InOrder{});
    case kTable32: return f(Table<int32_t>{static_cast<const int32_t*>(p.table)});
    case kTable64: return f(Table<int64_t>{static_cast<const int64_t*>(p.table)});
    default: return f(Dealt{static_cast<const int32_t*>(p.table), p.begin, p.ranks});
  }
}

// Which stretch a place is in, or -1; most often the one of the place before.
struct Finder {
  const Stretches& s;
  int64_t last = 0;

  int64_t operator()(int64_t place) {
    if (place >= s.begins[last] && place < s.ends[last]) return last;
    // Stretches may be empty: of those that begin at one place the last.
    const int64_t j = std::upper_bound(s.begins, s.begins + s.count, place) - s.begins - 1;
    if (j < 0 || place >= s.ends[j]) return -1;
    return last = j;
  }
};

// see(vertex, weight) for the entries of row r in their order, the loop among them.
template <class I, class W, class F>
void walk(const Raw<I, W>& raw, int64_t r, F&& see) {
  const int64_t own = raw.own[r];
  bool lacks = raw.loops;
  for (int64_t e = raw.indptr[r] - raw.indptr[0], end = raw.indptr[r + 1] - raw.indptr[0]; e < end; ++e) {
    const int64_t v = raw.ids[e];
    if (lacks && v >= own) {
      lacks = false;
      if (v != own) see(own, W(1));
    }
    see(v, raw.weights ? raw.weights[e] : W(1));
  }
  if (lacks) see(own, W(1));
}

template <class F>
void over_rows(int64_t rows, const int64_t* indptr, int threads, F&& f) {
  const int64_t chunks = threads > 1 ? std::min<int64_t>(rows, 8 * threads) : 1;
  if (chunks <= 1) return f(0, rows);
  // About as many arcs each.
  const int64_t all = indptr[rows] - indptr[0];
  auto edge = [&](int64_t c) -> int64_t {
    if (c == 0) return 0;
    if (c == chunks) return rows;
    return std::lower_bound(indptr, indptr + rows, indptr[0] + all * c / chunks) - indptr;
  };
  parallel_for(chunks, threads, [&](int64_t c) { f(edge(c), edge(c + 1)); });
}

inline int64_t rank_of(const uint64_t* marks, const uint32_t* before, int64_t place) {
  const uint64_t below = marks[place >> 6] & ((uint64_t(1) << (place & 63)) - 1);
  return int64_t(before[place >> 6]) + __builtin_popcountll(below);
}

}  // namespace

template <class I, class W>
void count(const Raw<I, W>& raw, const Places& places, const Stretches& stretches, int64_t* counts, int64_t stride,
           uint64_t* marks, double* sums, int threads) {
  with_places(places, [&](auto place_of) {
    over_rows(raw.rows, raw.indptr, threads, [&](int64_t begin, int64_t end) {
      Finder find{stretches};
      for (int64_t r = begin; r < end; ++r) {
        double sum = 0;
        walk(raw, r, [&](int64_t v, W weight) {
          sum += double(weight);
          const int64_t place = place_of(v), j = find(place);
          if (j < 0) return;
          ++counts[j * stride + r];
          if (!marks) return;
          uint64_t* word = marks + (place >> 6);
          const uint64_t bit = uint64_t(1) << (place & 63);
          // Most bits are set already; other threads may set their own.
          if (!(__atomic_load_n(word, __ATOMIC_RELAXED) & bit)) __atomic_fetch_or(word, bit, __ATOMIC_RELAXED);
        });
        sums[r] = sum;
      }
    });
  });
}

template <class I, class W, class J>
void fill(const Raw<I, W>& raw, const Places& places, const Stretches& stretches, const int64_t* starts, int64_t stride,
          const uint64_t* marks, const uint32_t* before, const uint8_t* numbered, const int64_t* base, J* const* indices,
          W* const* values, int threads) {
  with_places(places, [&](auto place_of) {
    over_rows(raw.rows, raw.indptr, threads, [&](int64_t begin, int64_t end) {
      Finder find{stretches};
      std::vector<int64_t> next(stretches.count);
      for (int64_t r = begin; r < end; ++r) {
        for (int64_t j = 0; j < stretches.count; ++j) next[j] = starts[j * stride + r];
        walk(raw, r, [&](int64_t v, W weight) {
          const int64_t place = place_of(v), j = find(place);
          if (j < 0) return;
          const int64_t e = next[j]++;
          indices[j][e] = J((numbered[j] ? rank_of(marks, before, place) : place) - base[j]);
          if (values) values[j][e] = weight;
        });
      }
    });
  });
}

template <class J, class V>
void scale(int64_t rows, const int64_t* indptr, const J* indices, const double* by_row, const double* by_column,
           bool weighted, V* values, int threads) {
  over_rows(rows, indptr, threads, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      for (int64_t e = indptr[r]; e < indptr[r + 1]; ++e) {
        const double both = by_column ? by_row[r] * by_column[indices[e]] : by_row[r];
        values[e] = V(weighted ? both * double(values[e]) : both);
      }
  });
}

template <class J>
int64_t list(const uint64_t* marks, int64_t first, int64_t last, J* out) {
  int64_t found = 0;
  for (int64_t w = first >> 6; w << 6 < last; ++w) {
    uint64_t word = marks[w];
    if (w == first >> 6) word &= ~uint64_t(0) << (first & 63);
    if (last - (w << 6) < 64) word &= (uint64_t(1) << (last & 63)) - 1;
    for (; word; word &= word - 1) out[found++] = J((w << 6) + __builtin_ctzll(word) - first);
  }
  return found;
}

void gather(const char* source, int64_t count, const int64_t* starts, const int64_t* ends, int64_t size, char* out) {
  for (int64_t k = 0; k < count; ++k) {
    const int64_t bytes = (ends[k] - starts[k]) * size;
    std::memcpy(out, source + starts[k] * size, size_t(bytes));
    out += bytes;
  }
}

#define OF_VALUES(J, V) \
  template void scale(int64_t, const int64_t*, const J*, const double*, const double*, bool, V*, int);
#define OF_WEIGHTS(I, W)                                                                                           \
  template void count(const Raw<I, W>&, const Places&, const Stretches&, int64_t*, int64_t, uint64_t*, double*, int); \
  template void fill(const Raw<I, W>&, const Places&, const Stretches&, const int64_t*, int64_t, const uint64_t*,   \
                     const uint32_t*, const uint8_t*, const int64_t*, int32_t* const*, W* const*, int);              \
  template void fill(const Raw<I, W>&, const Places&, const Stretches&, const int64_t*, int64_t, const uint64_t*,   \
                     const uint32_t*, const uint8_t*, const int64_t*, int64_t* const*, W* const*, int);
#define OF_INDEX(I)                                                    \
  OF_WEIGHTS(I, float) OF_WEIGHTS(I, double)                           \
  OF_VALUES(I, float) OF_VALUES(I, double)                             \
  template int64_t list(const uint64_t*, int64_t, int64_t, I*);
OF_INDEX(int32_t)
OF_INDEX(int64_t)

}  // namespace weft::cut
