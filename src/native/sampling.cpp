#include "sampling.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <atomic>
#include <limits>
#include <thread>
#include <vector>

#include "parallel.h"

namespace weft {
namespace {

// Philox4x32-10 (Salmon et al., SC'11): draw t of a vertex is word t % 4 of counter (t / 4, vertex, 0).
// A draw below a bound is (word * bound) >> 32; its bias is below bound / 2^32.
constexpr uint32_t kMul0 = 0xD2511F53u, kMul1 = 0xCD9E8D57u, kWeyl0 = 0x9E3779B9u, kWeyl1 = 0xBB67AE85u;

inline void philox(uint32_t block, uint64_t vertex, uint64_t key, uint32_t* word) {
  uint32_t c0 = block, c1 = uint32_t(vertex), c2 = uint32_t(vertex >> 32), c3 = 0;
  uint32_t k0 = uint32_t(key), k1 = uint32_t(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t(c0) * kMul0, p1 = uint64_t(c2) * kMul1;
    c0 = uint32_t(p1 >> 32) ^ c1 ^ k0;
    c1 = uint32_t(p1);
    c2 = uint32_t(p0 >> 32) ^ c3 ^ k1;
    c3 = uint32_t(p0);
    k0 += kWeyl0, k1 += kWeyl1;
  }
  word[0] = c0, word[1] = c1, word[2] = c2, word[3] = c3;
}

#if defined(__x86_64__)
// The same of four vertices side by side: a 32-bit word in each 64-bit lane, upper halves never looked at.
__attribute__((target("avx2"))) void philox_four(uint32_t block, const uint64_t* vertex, uint64_t key,
                                                 uint32_t* word, int64_t stride) {
  const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(vertex));
  const __m256i m0 = _mm256_set1_epi64x(kMul0), m1 = _mm256_set1_epi64x(kMul1);
  __m256i c0 = _mm256_set1_epi64x(block), c1 = v, c2 = _mm256_srli_epi64(v, 32), c3 = _mm256_setzero_si256();
  uint32_t k0 = uint32_t(key), k1 = uint32_t(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const __m256i p0 = _mm256_mul_epu32(c0, m0), p1 = _mm256_mul_epu32(c2, m1);
    c0 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(p1, 32), c1), _mm256_set1_epi64x(k0));
    c2 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(p0, 32), c3), _mm256_set1_epi64x(k1));
    c1 = p1, c3 = p0;
    k0 += kWeyl0, k1 += kWeyl1;
  }
  alignas(32) uint64_t lanes[4][4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes[0]), c0);
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes[1]), c1);
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes[2]), c2);
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes[3]), c3);
  for (int r = 0; r < 4; ++r)
    for (int w = 0; w < 4; ++w) word[r * stride + w] = uint32_t(lanes[w][r]);
}

bool four_at_once() {
  static const bool there = __builtin_cpu_supports("avx2");
  return there;
}
#endif

// The first `blocks` counters of each vertex: word[r * stride + t] is draw t of vertex r.
void draw(const uint64_t* vertex, int64_t count, int64_t blocks, uint64_t key, uint32_t* word, int64_t stride) {
  int64_t r = 0;
#if defined(__x86_64__)
  if (four_at_once())
    for (; r + 4 <= count; r += 4)
      for (int64_t b = 0; b < blocks; ++b)
        philox_four(uint32_t(b), vertex + r, key, word + r * stride + 4 * b, stride);
#endif
  for (; r < count; ++r)
    for (int64_t b = 0; b < blocks; ++b) philox(uint32_t(b), vertex[r], key, word + r * stride + 4 * b);
}

// The same one by one, for fan-outs that outgrow a buffer.
class Draws {
 public:
  Draws(uint64_t key, uint64_t vertex) : key_(key), vertex_(vertex) {}

  uint32_t next() {
    if (at_ == 4) philox(block_++, vertex_, key_, word_), at_ = 0;
    return word_[at_++];
  }

 private:
  uint64_t key_, vertex_;
  uint32_t block_ = 0, word_[4] = {};
  int at_ = 4;
};

// Floyd: `fanout` distinct positions below `degree`, every set of them equally likely, one draw each: the drawn
// one, or the last allowed where that was drawn before. `list` has room for fanout rounded up to 8.
inline void floyd(const uint32_t* word, int64_t degree, int64_t fanout, int32_t* list) {
  for (int64_t t = 0; t < fanout; ++t) {
    const int32_t last = int32_t(degree - fanout + t);
    const int32_t drawn = int32_t((uint64_t(word[t]) * uint64_t(last + 1)) >> 32);
    bool taken = false;
    for (int64_t u = 0; u < t; ++u) taken |= list[u] == drawn;
    list[t] = taken ? last : drawn;
  }
}

// The same in a row short enough for a bit a position.
constexpr int64_t kBits = 1024;

inline void floyd_bits(const uint32_t* word, int64_t degree, int64_t fanout, int32_t* list) {
  uint64_t bits[kBits / 64];
  for (int64_t w = 0; w <= (degree - 1) / 64; ++w) bits[w] = 0;
  for (int64_t t = 0; t < fanout; ++t) {
    const uint32_t last = uint32_t(degree - fanout + t);
    const uint32_t drawn = uint32_t((uint64_t(word[t]) * (last + 1)) >> 32);
    const uint32_t position = bits[drawn / 64] >> (drawn % 64) & 1 ? last : drawn;
    bits[position / 64] |= uint64_t(1) << (position % 64);
    list[t] = int32_t(position);
  }
}

#if defined(__x86_64__)
// The same where no draw hits an earlier one, as is usual in long rows: then the draws are the positions, and
// they need no order. False where two are equal; `list` is then for `floyd` to fill.
__attribute__((target("avx2"))) bool floyd_distinct(const uint32_t* word, int64_t degree, int64_t fanout,
                                                    int32_t* list) {
  const int64_t vectors = (fanout + 7) / 8;
  for (int64_t t = 0; t < fanout; ++t)
    list[t] = int32_t((uint64_t(word[t]) * uint64_t(degree - fanout + t + 1)) >> 32);
  for (int64_t t = fanout; t < 8 * vectors; ++t) list[t] = -1;  // no position: nothing is compared with it
  for (int64_t v = 0; v < vectors; ++v) {
    const __m256i here = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(list + 8 * v));
    __m256i equal = _mm256_setzero_si256();
    for (int64_t t = 0; t < fanout; ++t)
      equal = _mm256_sub_epi32(equal, _mm256_cmpeq_epi32(here, _mm256_set1_epi32(list[t])));
    // Each position equals itself once.
    if (_mm256_movemask_epi8(_mm256_cmpgt_epi32(equal, _mm256_set1_epi32(1)))) return false;
  }
  return true;
}
#endif

inline int64_t below(uint32_t word, int64_t bound) { return int64_t((uint64_t(word) * uint64_t(bound)) >> 32); }

// Which of many positions were picked.
class Seen {
 public:
  explicit Seen(int64_t fanout) {
    size_t size = 64;
    while (size < size_t(2 * fanout)) size *= 2;
    table_.resize(size);
  }

  void clear() { std::fill(table_.begin(), table_.end(), -1); }

  // Adds a number; false where it was there.
  bool add(int64_t number) {
    const size_t mask = table_.size() - 1;
    for (size_t slot = size_t(number) * 0x9E3779B97F4A7C15u >> 20;; ++slot) {
      int64_t& held = table_[slot & mask];
      if (held == number) return false;
      if (held < 0) return held = number, true;
    }
  }

 private:
  std::vector<int64_t> table_;
};

}  // namespace

template <class I>
int64_t sample_counts(const int64_t* indptr, const I* rows, int64_t count, int64_t fanout, bool replace, bool loops,
                      int64_t* out) {
  int64_t total = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (i + 16 < count) __builtin_prefetch(indptr + rows[i + 16]);
    out[i] = total;
    const int64_t degree = indptr[rows[i] + 1] - indptr[rows[i]];
    total += loops + (fanout < 0 ? degree : replace ? (degree ? fanout : 0) : std::min(degree, fanout));
  }
  return out[count] = total;
}

namespace {

constexpr int64_t kChunk = 32;

int64_t chunks_of(int64_t count) { return (count + kChunk - 1) / kChunk; }

// A chunk of rows goes through in passes: sizes, random words, positions, and last the neighbours, so that
// the cache misses of each pass overlap.
template <class I>
void sample_chunk(const Hop<I>& hop, int64_t chunk) {
  constexpr int64_t kFew = 64, kAhead = 16;
  const auto [indptr, indices, rows, vertex, count, fanout, replace, loops, key, out, picked, arcs] = hop;
  const int64_t stride = (fanout + 3) / 4 * 4;
  const int64_t first = chunk * kChunk, size = std::min(kChunk, count - first);
  int64_t begin[kChunk], degree[kChunk], who[kChunk], drawn = 0;
  int32_t list[kFew];
  uint64_t names[kChunk];
  uint32_t word[kChunk * kFew];
  std::vector<int64_t> places(size_t(out[first + size] - out[first]));
  const int64_t base = out[first];
  for (int64_t r = 0; r < size; ++r) {
    if (r + kAhead < size) __builtin_prefetch(indptr + rows[first + r + kAhead]);
    begin[r] = indptr[rows[first + r]];
    degree[r] = indptr[rows[first + r] + 1] - begin[r];
    int64_t* place = places.data() + (out[first + r] - base);
    if (loops) *place++ = -1;
    if (fanout < 0 || (!replace && degree[r] <= fanout)) {
      for (int64_t t = 0; t < degree[r]; ++t) place[t] = begin[r] + t;
      __builtin_prefetch(indices + begin[r]);
    } else if (degree[r]) {
      who[drawn] = r;
      names[drawn++] = uint64_t(vertex[first + r]);
    }
  }
  const bool few = fanout <= kFew;
  if (few && drawn) draw(names, drawn, stride / 4, key, word, stride);
  std::vector<Seen> seen;
  for (int64_t d = 0; d < drawn; ++d) {
    const int64_t r = who[d];
    int64_t* place = places.data() + (out[first + r] - base) + loops;
    Draws more(key, names[d]);
    const auto next = [&](int64_t t) { return few ? word[d * stride + t] : more.next(); };
    if (replace) {
      for (int64_t t = 0; t < fanout; ++t) place[t] = begin[r] + below(next(t), degree[r]);
    } else if (few && degree[r] < INT32_MAX) {
      const uint32_t* words = word + d * stride;
      bool done = degree[r] <= kBits;
      if (done) floyd_bits(words, degree[r], fanout, list);
#if defined(__x86_64__)
      else done = four_at_once() && floyd_distinct(words, degree[r], fanout, list);
#endif
      if (!done) floyd(words, degree[r], fanout, list);
      for (int64_t t = 0; t < fanout; ++t) place[t] = begin[r] + list[t];
    } else {
      if (seen.empty()) seen.emplace_back(fanout);
      seen[0].clear();
      for (int64_t t = 0; t < fanout; ++t) {
        const int64_t last = degree[r] - fanout + t, drawn_at = below(next(t), last + 1);
        place[t] = begin[r] + (seen[0].add(drawn_at) ? drawn_at : (seen[0].add(last), last));
      }
    }
    for (int64_t t = 0; t < fanout; ++t) __builtin_prefetch(indices + place[t]);
  }
  for (size_t k = 0; k < places.size(); ++k)
    picked[base + int64_t(k)] = places[k] < 0 ? I(-1) : indices[places[k]];
  if (loops)
    for (int64_t r = 0; r < size; ++r) picked[out[first + r]] = vertex[first + r];
  if (arcs) std::copy(places.begin(), places.end(), arcs + base);
}

// Numbers for vertices as they come. `place` holds the number that a vertex got, counted on from use to use, so
// that what earlier uses left is known by being small; place[n] is the last number given.
template <class I>
class Labels {
 public:
  Labels(const I* targets, int64_t count, int64_t arcs, int64_t n, I* place, I* sources)
      : place_(place), last_(place + n), sources_(sources), next_(count) {
    if (int64_t(*last_) > std::numeric_limits<I>::max() - count - arcs) std::fill(place, place + n + 1, I(0));
    before_ = *last_ + 1;
    for (int64_t t = 0; t < count; ++t) {
      sources[t] = targets[t];
      place[targets[t]] = before_ + I(t);
    }
  }

  ~Labels() { *last_ = before_ + I(next_) - 1; }

  // Whether a vertex is new is a coin toss: no branch. sources[next] is written in any case, and kept where it is.
  void add(const I* picked, int64_t arcs, I* local) {
    constexpr int64_t kAhead = 16;
    for (int64_t e = 0; e < arcs; ++e) {
      if (e + kAhead < arcs) __builtin_prefetch(place_ + picked[e + kAhead], 1);
      const I vertex = picked[e], held = place_[vertex] - before_;
      const bool fresh = held < 0;
      const I label = fresh ? I(next_) : held;
      sources_[next_] = vertex;
      place_[vertex] = before_ + label;
      local[e] = label;
      next_ += fresh;
    }
  }

  int64_t size() const { return next_; }

 private:
  I *place_, *last_, *sources_;
  I before_;
  int64_t next_;
};

}  // namespace

template <class I>
void sample_rows(const Hop<I>& hop, int threads) {
  parallel_for(chunks_of(hop.count), threads, [&](int64_t chunk) { sample_chunk(hop, chunk); });
}

template <class I>
int64_t relabel(const I* targets, int64_t count, const I* picked, int64_t arcs, int64_t n, I* place, I* sources,
                I* local) {
  Labels<I> labels(targets, count, arcs, n, place, sources);
  labels.add(picked, arcs, local);
  return labels.size();
}

// Labels follow the order of the picks, so one worker gives them, chunk after chunk, while the others draw; it
// draws where no chunk is ready.
template <class I>
int64_t sample_block(const Hop<I>& hop, int64_t n, I* place, I* sources, I* local, int threads) {
  const int64_t chunks = chunks_of(hop.count);
  std::vector<std::atomic<bool>> ready(chunks);
  std::atomic<int64_t> next{0};
  Labels<I> labels(hop.rows, hop.count, hop.out[hop.count], n, place, sources);
  parallel_for(std::max(1, threads), threads, [&](int64_t worker) {
    int64_t labelled = 0;
    const auto label = [&] {
      const int64_t first = hop.out[labelled * kChunk], end = hop.out[std::min(hop.count, ++labelled * kChunk)];
      labels.add(hop.picked + first, end - first, local + first);
    };
    for (int64_t chunk; (chunk = next.fetch_add(1, std::memory_order_relaxed)) < chunks;) {
      sample_chunk(hop, chunk);
      ready[chunk].store(true, std::memory_order_release);
      while (worker == 0 && labelled < chunks && ready[labelled].load(std::memory_order_acquire)) label();
    }
    while (worker == 0 && labelled < chunks) {
      while (!ready[labelled].load(std::memory_order_acquire)) std::this_thread::yield();
      label();
    }
  });
  return labels.size();
}

#define INSTANTIATE(I)                                                                                    \
  template int64_t sample_counts(const int64_t*, const I*, int64_t, int64_t, bool, bool, int64_t*);        \
  template void sample_rows(const Hop<I>&, int);                                                           \
  template int64_t sample_block(const Hop<I>&, int64_t, I*, I*, I*, int);                                  \
  template int64_t relabel(const I*, int64_t, const I*, int64_t, int64_t, I*, I*, I*);
INSTANTIATE(int32_t)
INSTANTIATE(int64_t)

}  // namespace weft
