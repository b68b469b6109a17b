#include "sampling.h"

#include <algorithm>
#include <vector>

#include "parallel.h"

namespace weft {
namespace {

// Philox4x32-10 (Salmon et al., SC'11): draw t of a vertex is word t % 4 of counter (t / 4, vertex, 0).
class Draws {
 public:
  Draws(uint64_t key, uint64_t vertex) : key_(key), vertex_(vertex) {}

  // A number in 0 .. bound-1; its bias is below bound / 2^32.
  uint64_t below(uint64_t bound) {
    if (at_ == 4) refill();
    return (uint64_t(word_[at_++]) * bound) >> 32;
  }

 private:
  void refill() {
    uint32_t c0 = next_++, c1 = uint32_t(vertex_), c2 = uint32_t(vertex_ >> 32), c3 = 0;
    uint32_t k0 = uint32_t(key_), k1 = uint32_t(key_ >> 32);
    for (int round = 0; round < 10; ++round) {
      const uint64_t p0 = uint64_t(c0) * 0xD2511F53u, p1 = uint64_t(c2) * 0xCD9E8D57u;
      c0 = uint32_t(p1 >> 32) ^ c1 ^ k0;
      c1 = uint32_t(p1);
      c2 = uint32_t(p0 >> 32) ^ c3 ^ k1;
      c3 = uint32_t(p0);
      k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    word_[0] = c0, word_[1] = c1, word_[2] = c2, word_[3] = c3;
    at_ = 0;
  }

  uint64_t key_, vertex_;
  uint32_t next_ = 0, word_[4] = {};
  int at_ = 4;
};

// The picks of one row so far: a scan of few, a table of many.
class Seen {
 public:
  void begin(int64_t fanout) {
    few_ = fanout <= kFew;
    count_ = 0;
    if (few_) return;
    size_t size = 64;
    while (size < size_t(2 * fanout)) size *= 2;
    table_.assign(size, -1);
  }

  // Adds a number; false where it was there.
  bool add(int64_t number) {
    if (few_) {
      for (int64_t t = 0; t < count_; ++t)
        if (list_[t] == number) return false;
      list_[count_++] = number;
      return true;
    }
    const size_t mask = table_.size() - 1;
    for (size_t slot = size_t(number) * 0x9E3779B97F4A7C15u >> 20;; ++slot) {
      int64_t& held = table_[slot & mask];
      if (held == number) return false;
      if (held < 0) return held = number, true;
    }
  }

 private:
  static constexpr int64_t kFew = 64;
  bool few_ = true;
  int64_t count_ = 0;
  int64_t list_[kFew] = {};
  std::vector<int64_t> table_;
};

}  // namespace

template <class I>
void sample_counts(const int64_t* indptr, const I* rows, int64_t count, int64_t fanout, bool replace, bool loops,
                   int64_t* out) {
  int64_t total = 0;
  for (int64_t i = 0; i < count; ++i) {
    out[i] = total;
    const int64_t degree = indptr[rows[i] + 1] - indptr[rows[i]];
    total += loops + (fanout < 0 ? degree : replace ? (degree ? fanout : 0) : std::min(degree, fanout));
  }
  out[count] = total;
}

template <class I>
void sample_rows(const int64_t* indptr, const I* indices, const I* rows, const I* vertex, int64_t count,
                 int64_t fanout, bool replace, bool loops, uint64_t key, const int64_t* out, I* picked,
                 int64_t* arcs, int threads) {
  constexpr int64_t kChunk = 128, kAhead = 4;
  parallel_for((count + kChunk - 1) / kChunk, threads, [&](int64_t chunk) {
    Seen seen;
    int64_t positions[64];
    for (int64_t i = chunk * kChunk; i < std::min(count, (chunk + 1) * kChunk); ++i) {
      if (i + kAhead < count) __builtin_prefetch(indices + indptr[rows[i + kAhead]]);
      const int64_t begin = indptr[rows[i]], degree = indptr[rows[i] + 1] - begin;
      int64_t at = out[i];
      const auto put = [&](int64_t position) {
        picked[at] = indices[begin + position];
        if (arcs) arcs[at] = begin + position;
        ++at;
      };
      if (loops) {
        picked[at] = vertex[i];
        if (arcs) arcs[at] = -1;
        ++at;
      }
      if (fanout < 0 || (!replace && degree <= fanout)) {
        for (int64_t t = 0; t < degree; ++t) put(t);
        continue;
      }
      if (degree == 0) continue;
      Draws draws(key, uint64_t(vertex[i]));
      if (replace) {
        for (int64_t t = 0; t < fanout; ++t) put(int64_t(draws.below(uint64_t(degree))));
        continue;
      }
      // Floyd: every set of `fanout` positions is equally likely, with one draw each. The positions first,
      // so that the cache misses of reading the neighbours overlap.
      seen.begin(fanout);
      for (int64_t last = degree - fanout; last < degree; ++last) {
        const int64_t drawn = int64_t(draws.below(uint64_t(last + 1)));
        const int64_t position = seen.add(drawn) ? drawn : (seen.add(last), last);
        if (fanout <= 64) {
          positions[last - degree + fanout] = position;
          __builtin_prefetch(indices + begin + position);
        } else {
          put(position);
        }
      }
      if (fanout <= 64)
        for (int64_t t = 0; t < fanout; ++t) put(positions[t]);
    }
  });
}

template <class I>
int64_t relabel(const I* targets, int64_t count, const I* picked, int64_t arcs, I* place, I* sources, I* local) {
  constexpr int64_t kAhead = 16;
  int64_t next = 0;
  for (; next < count; ++next) {
    sources[next] = targets[next];
    place[targets[next]] = I(next);
  }
  for (int64_t e = 0; e < arcs; ++e) {
    if (e + kAhead < arcs) __builtin_prefetch(place + picked[e + kAhead], 1);
    const I vertex = picked[e];
    I& held = place[vertex];
    if (held < 0) {
      held = I(next);
      sources[next++] = vertex;
    }
    local[e] = held;
  }
  for (int64_t s = 0; s < next; ++s) place[sources[s]] = -1;
  return next;
}

#define INSTANTIATE(I)                                                                                         \
  template void sample_counts(const int64_t*, const I*, int64_t, int64_t, bool, bool, int64_t*);                \
  template void sample_rows(const int64_t*, const I*, const I*, const I*, int64_t, int64_t, bool, bool,         \
                            uint64_t, const int64_t*, I*, int64_t*, int);                                       \
  template int64_t relabel(const I*, int64_t, const I*, int64_t, I*, I*, I*);
INSTANTIATE(int32_t)
INSTANTIATE(int64_t)

}  // namespace weft
