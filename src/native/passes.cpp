// Label propagation within sizes, one row after the other, and the graph between clusters.
//
// Labels of the vertices that a row reads lie anywhere in memory: they are fetched some arcs ahead, across rows.
#include "passes.h"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

namespace weft::passes {

namespace {

constexpr int64_t kAhead = 24;

// How often each label was seen, in the order in which they were seen first.
template <class I>
class Tally {
 public:
  struct Entry {
    I label;
    I times;
  };
  void clear(int64_t most) {
    seen_.clear();
    if (static_cast<int64_t>(seen_.capacity()) < most) seen_.reserve(2 * most);
    uint64_t wanted = 16;
    while (wanted < 2 * static_cast<uint64_t>(most)) wanted *= 2;
    if (wanted > slots_.size()) slots_.assign(wanted, 0);
    // Short rows stay in a small table, which the nearest cache holds; what earlier rows left has another turn.
    mask_ = wanted - 1;
    if (!++turn_) {
      std::fill(slots_.begin(), slots_.end(), 0);
      turn_ = 1;
    }
  }
  void add(I label) {
    uint64_t at = (static_cast<uint64_t>(label) * 0x9E3779B97F4A7C15ULL >> 32) & mask_;
    while (true) {
      const uint64_t found = slots_[at];
      if (found >> 32 != turn_) {
        slots_[at] = uint64_t{turn_} << 32 | seen_.size();
        seen_.push_back({label, 1});
        return;
      }
      Entry& e = seen_[static_cast<uint32_t>(found)];
      if (e.label == label) {
        ++e.times;
        return;
      }
      at = (at + 1) & mask_;
    }
  }
  const std::vector<Entry>& seen() const { return seen_; }

 private:
  std::vector<uint64_t> slots_;  // turn, place in `seen_`
  std::vector<Entry> seen_;
  uint64_t mask_ = 0;
  uint32_t turn_ = 0;
};

inline bool bit(const uint64_t* bits, int64_t k) { return bits[k >> 6] >> (k & 63) & 1; }

template <class I, class T>
inline void fetch(const Rows<I>& rows, const T* of, int64_t e, int64_t last) {
  if (e + kAhead < last) __builtin_prefetch(of + rows.columns[e + kAhead]);
}

inline uint64_t mixed(uint64_t key) {
  key ^= key >> 31;
  key *= 0x9E3779B97F4A7C15ULL;
  return key ^ key >> 29;
}

void put(Pairs& pairs, uint64_t key, uint32_t times) {
  const uint64_t mask = pairs.slots - 1;
  uint64_t at = mixed(key) & mask;
  while (pairs.keys[at] != key) {
    if (!pairs.keys[at]) {
      pairs.keys[at] = key;
      pairs.times[at] = times;
      ++pairs.held;
      return;
    }
    at = (at + 1) & mask;
  }
  const uint32_t room = UINT32_MAX - pairs.times[at];
  pairs.times[at] += std::min(times, room);
}

}  // namespace

template <class I>
void weigh(const Rows<I>& rows, int64_t* work, uint64_t* reads) {
  for (int64_t r = 0; r < rows.count; ++r) {
    const int64_t v = rows.first + r;
    int64_t others = 0;
    for (int64_t e = rows.indptr[r]; e < rows.indptr[r + 1]; ++e) others += rows.columns[e] != v;
    work[r] = others + 1 + rows.extra;
    if (others) reads[v >> 6] |= uint64_t{1} << (v & 63);
  }
}

template <class I>
int64_t join(const Rows<I>& rows, I* label, int64_t* size, const uint64_t* reads, int64_t most) {
  const int64_t last = rows.indptr[rows.count];
  Tally<I> tally;
  int64_t moved = 0;
  std::vector<I> quiet;
  for (int64_t r = 0; r < rows.count; ++r) {
    const int64_t v = rows.first + r, begin = rows.indptr[r], end = rows.indptr[r + 1];
    int64_t work = 1 + rows.extra;
    tally.clear(end - begin);
    quiet.clear();
    for (int64_t e = begin; e < end; ++e) {
      fetch(rows, label, e, last);
      const I u = rows.columns[e];
      if (u == v) continue;
      ++work;
      const I of = label[u];
      __builtin_prefetch(size + of);
      tally.add(of);
      if (of == u && !bit(reads, u)) quiet.push_back(u);
    }
    const I own = label[v];
    int64_t score = 1;
    I best = own;
    for (const auto& s : tally.seen())
      if (s.label == own) score = 2 * static_cast<int64_t>(s.times) + 1;
    for (const auto& s : tally.seen()) {
      const int64_t twice = 2 * static_cast<int64_t>(s.times);
      if (twice > score && s.label != own && size[s.label] + work <= most) {
        best = s.label;
        score = twice;
      }
    }
    if (best != own) {
      size[own] -= work;
      size[best] += work;
      label[v] = best;
      ++moved;
    }
    // Its readers are all that is known of a vertex that reads nothing.
    const int64_t alone = 1 + rows.extra;
    for (const I u : quiet) {
      if (u == best || size[u] != alone || size[best] + alone > most) continue;
      size[u] -= alone;
      size[best] += alone;
      label[u] = best;
      ++moved;
    }
  }
  return moved;
}

void lighten(Pairs& pairs) {
  std::vector<uint32_t> all;
  std::vector<std::pair<uint64_t, uint32_t>> kept;
  all.reserve(pairs.held);
  for (int64_t k = 0; k < pairs.slots; ++k)
    if (pairs.keys[k]) all.push_back(pairs.times[k]);
  // All that are heavier than the one that is `keep`-th from above: equals go together, whatever their order.
  const auto edge = all.begin() + pairs.keep;
  std::nth_element(all.begin(), edge, all.end(), std::greater<uint32_t>());
  const uint32_t above = *edge;
  all = {};
  for (int64_t k = 0; k < pairs.slots; ++k) {
    if (!pairs.keys[k]) continue;
    if (pairs.times[k] > above) kept.emplace_back(pairs.keys[k], pairs.times[k]);
    pairs.keys[k] = 0;
  }
  pairs.held = 0;
  for (const auto& [key, times] : kept) put(pairs, key, times);
}

template <class I>
void contract(const Rows<I>& rows, const I* label, int64_t clusters, Pairs& pairs, int64_t* work) {
  constexpr int64_t kSome = 64;
  uint64_t some[kSome];
  int64_t waiting = 0;
  const uint64_t mask = pairs.slots - 1;
  const auto flush = [&] {
    for (int64_t k = 0; k < waiting; ++k) {
      if (pairs.held >= pairs.limit) lighten(pairs);
      put(pairs, some[k], 1);
    }
    waiting = 0;
  };
  const int64_t last = rows.indptr[rows.count];
  for (int64_t r = 0; r < rows.count; ++r) {
    const int64_t v = rows.first + r;
    const I own = label[v];
    int64_t others = 0;
    for (int64_t e = rows.indptr[r]; e < rows.indptr[r + 1]; ++e) {
      fetch(rows, label, e, last);
      const I u = rows.columns[e];
      if (u == v) continue;
      ++others;
      const I other = label[u];
      if (other == own) continue;
      const uint64_t key = static_cast<uint64_t>(std::min(own, other)) * clusters + std::max(own, other) + 1;
      __builtin_prefetch(pairs.keys + (mixed(key) & mask));
      __builtin_prefetch(pairs.times + (mixed(key) & mask));
      some[waiting++] = key;
      if (waiting == kSome) flush();
    }
    work[own] += others + 1 + rows.extra;
  }
  flush();
}

template <class I>
int64_t move(const Rows<I>& rows, int32_t* part, int64_t parts, int64_t* load, int64_t most) {
  const int64_t last = rows.indptr[rows.count];
  std::vector<int64_t> times(parts, 0);
  std::vector<int32_t> seen;
  int64_t moved = 0;
  for (int64_t r = 0; r < rows.count; ++r) {
    const int64_t v = rows.first + r;
    int64_t work = 1 + rows.extra;
    for (int64_t e = rows.indptr[r]; e < rows.indptr[r + 1]; ++e) {
      fetch(rows, part, e, last);
      const I u = rows.columns[e];
      if (u == v) continue;
      ++work;
      const int32_t p = part[u];
      if (!times[p]++) seen.push_back(p);
    }
    const int32_t here = part[v];
    const int64_t stay = times[here];
    const bool leaves = load[here] > most;
    int32_t best = -1;
    for (const int32_t p : seen) {
      if (p == here || load[p] + work > most || !(times[p] > stay || leaves)) continue;
      if (best < 0 || times[p] > times[best] || (times[p] == times[best] && load[p] < load[best])) best = p;
    }
    if (best >= 0) {
      load[here] -= work;
      load[best] += work;
      part[v] = best;
      ++moved;
    }
    for (const int32_t p : seen) times[p] = 0;
    seen.clear();
  }
  return moved;
}

template <class I>
int64_t readers(const Rows<I>& rows, const int32_t* part, int64_t low, uint64_t* readers) {
  const int64_t last = rows.indptr[rows.count];
  int64_t cut = 0;
  for (int64_t r = 0; r < rows.count; ++r) {
    const int64_t here = part[rows.first + r];
    const bool among = here >= low && here < low + 64;
    if (!among && low) continue;
    const uint64_t mark = among ? uint64_t{1} << (here - low) : 0;
    for (int64_t e = rows.indptr[r]; e < rows.indptr[r + 1]; ++e) {
      fetch(rows, part, e, last);
      if (e + kAhead < last) __builtin_prefetch(readers + rows.columns[e + kAhead], 1);
      const I u = rows.columns[e];
      if (part[u] == here) continue;
      ++cut;
      readers[u] |= mark;
    }
  }
  return cut;
}

#define INSTANCES(I)                                                                                \
  template void weigh(const Rows<I>&, int64_t*, uint64_t*);                                         \
  template int64_t join(const Rows<I>&, I*, int64_t*, const uint64_t*, int64_t);                    \
  template void contract(const Rows<I>&, const I*, int64_t, Pairs&, int64_t*);                      \
  template int64_t move(const Rows<I>&, int32_t*, int64_t, int64_t*, int64_t);                      \
  template int64_t readers(const Rows<I>&, const int32_t*, int64_t, uint64_t*);
INSTANCES(int32_t)
INSTANCES(int64_t)

}  // namespace weft::passes
