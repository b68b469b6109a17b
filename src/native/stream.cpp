// The inner loops of streaming conversion (weft/graph/stream). Each works on one buffer on one thread: the
// converter runs several beside each other, on segments of the file and on ranges of the arcs.
#include "stream.h"

#include <charconv>
#include <cmath>
#include <cstring>
#include <utility>

namespace weft::stream {
namespace {

inline bool blank(char c) { return c == ' ' || c == '\t'; }
inline bool digit(char c) { return unsigned(c - '0') < 10; }

// A whole number from 0 to 2^63-1. False leaves `at` anywhere.
inline bool whole(const char*& at, const char* end, int64_t& out) {
  const char* first = at;
  uint64_t value = 0;
  while (at < end && digit(*at)) value = value * 10 + uint64_t(*at++ - '0');
  const int64_t digits = at - first;
  if (digits == 0) return false;
  if (digits > 18) {
    while (digits && first < at && *first == '0') ++first;
    if (at - first > 19 || value > uint64_t(INT64_MAX)) return false;  // 19 digits fit into 64 bits
  }
  out = int64_t(value);
  return true;
}

inline bool real(const char*& at, const char* end, double& out) {
  if (at == end || !(digit(*at) || *at == '-' || *at == '.')) return false;
  if (*at == '-' && (at + 1 == end || !(digit(at[1]) || at[1] == '.'))) return false;
  const auto found = std::from_chars(at, end, out);
  if (found.ec != std::errc() || !std::isfinite(out)) return false;
  at = found.ptr;
  return true;
}

// One line without its end. 1: an arc, written at `k`. 0: nothing stands there. -1: odd.
inline int line_at(const char* at, const char* end, bool comma, int64_t extra, const int32_t* kinds, void* const* outs,
                   int64_t* source, int64_t* target, int64_t k, uint64_t& not_whole) {
  while (at < end && blank(*at)) ++at;
  if (end > at && end[-1] == '\r') --end;
  if (at == end || *at == '#' || *at == '%') return 0;
  const auto separator = [&] {
    if (comma) return at < end && *at++ == ',';
    if (at == end || !blank(*at)) return false;
    while (at < end && blank(*at)) ++at;
    return true;
  };
  if (!whole(at, end, source[k]) || !separator() || !whole(at, end, target[k])) return -1;
  uint64_t fractions = 0;
  for (int64_t c = 0; c < extra; ++c) {
    if (!separator()) return -1;
    if (kinds[c] == kSkip) {
      const char* first = at;
      while (at < end && (comma ? *at != ',' : !blank(*at))) ++at;
      if (at == first && !comma) return -1;
      continue;
    }
    if (kinds[c] == kWhole) {
      const char* first = at;
      const bool minus = at < end && *at == '-';
      at += minus;
      int64_t value = 0;
      if (whole(at, end, value) && (at == end || (comma ? *at == ',' : blank(*at)))) {
        static_cast<int64_t*>(outs[c])[k] = minus ? -value : value;
        continue;
      }
      at = first;
      double other;
      if (!real(at, end, other)) return -1;
      fractions |= uint64_t(1) << c;
      continue;
    }
    if (!real(at, end, static_cast<double*>(outs[c])[k])) return -1;
  }
  if (!comma)
    while (at < end && blank(*at)) ++at;
  if (at != end) return -1;
  not_whole |= fractions;
  return 1;
}

// One pass of a radix sort by the byte at `shift`.
template <bool indexed>
void pass(const uint64_t* from, uint64_t* to, int64_t count, int shift, int64_t* place, const uint32_t* index_from,
          uint32_t* index_to) {
  for (int64_t k = 0; k < count; ++k) {
    const int64_t at = place[(from[k] >> shift) & 255]++;
    to[at] = from[k];
    if (indexed) index_to[at] = index_from[k];
  }
}

inline uint64_t rank(const uint64_t* present, const uint32_t* before, uint64_t id) {
  const uint64_t word = present[id >> 6] & ((uint64_t(1) << (id & 63)) - 1);
  return before[id >> 6] + uint64_t(__builtin_popcountll(word));
}

}  // namespace

int64_t count_lines(const char* text, int64_t size) {
  int64_t lines = 0;
  for (const char *at = text, *end = text + size; at < end; ++at, ++lines) {
    at = static_cast<const char*>(std::memchr(at, '\n', size_t(end - at)));
    if (!at) break;
  }
  return lines;
}

Parsed parse(const char* text, int64_t size, bool comma, int64_t extra, const int32_t* kinds, void* const* outs,
             int64_t* source, int64_t* target, int64_t* odd, int64_t room) {
  Parsed found;
  const char* end = text + size;
  for (const char* at = text; at < end;) {
    const char* stop = static_cast<const char*>(std::memchr(at, '\n', size_t(end - at)));
    if (stop) ++found.lines;
    else stop = end;
    const int what = line_at(at, stop, comma, extra, kinds, outs, source, target, found.arcs, found.not_whole);
    if (what > 0) ++found.arcs;
    if (what < 0) {
      if (found.odd < room) odd[found.odd] = at - text;
      ++found.odd;
    }
    at = stop + 1;
  }
  return found;
}

int64_t pack(const int64_t* source, const int64_t* target, int64_t count, int64_t limit, uint64_t* keys,
             uint64_t* present) {
  for (int64_t k = 0; k < count; ++k) {
    const uint64_t s = uint64_t(source[k]), t = uint64_t(target[k]);
    if (s >= uint64_t(limit) || t >= uint64_t(limit)) return k;
    keys[k] = t << 32 | s;
    if (!present) continue;
    for (const uint64_t id : {s, t}) {
      uint64_t* word = present + (id >> 6);
      const uint64_t bit = uint64_t(1) << (id & 63);
      // Other threads set bits of the same words; most are set already, and looking is cheaper.
      if (!(__atomic_load_n(word, __ATOMIC_RELAXED) & bit)) __atomic_fetch_or(word, bit, __ATOMIC_RELAXED);
    }
  }
  return count;
}

void sort(uint64_t* keys, uint64_t* scratch, int64_t count, uint32_t* index, uint32_t* index_scratch) {
  static_assert(sizeof(uint64_t) == 8);
  thread_local int64_t counts[8][256];
  std::memset(counts, 0, sizeof counts);
  bool sorted = true;
  for (int64_t k = 0; k < count; ++k) {
    const uint64_t key = keys[k];
    sorted &= !k || keys[k - 1] <= key;
    for (int b = 0; b < 8; ++b) ++counts[b][(key >> (8 * b)) & 255];
  }
  if (sorted) return;
  uint64_t *from = keys, *to = scratch;
  uint32_t *index_from = index, *index_to = index_scratch;
  for (int b = 0; b < 8; ++b) {
    int64_t* place = counts[b];
    if (place[(keys[0] >> (8 * b)) & 255] == count) continue;  // the same byte everywhere
    for (int64_t d = 0, sum = 0; d < 256; ++d) sum += std::exchange(place[d], sum);
    if (index) pass<true>(from, to, count, 8 * b, place, index_from, index_to);
    else pass<false>(from, to, count, 8 * b, place, nullptr, nullptr);
    std::swap(from, to);
    std::swap(index_from, index_to);
  }
  if (from == keys) return;
  std::memcpy(keys, from, size_t(count) * sizeof *keys);
  if (index) std::memcpy(index, index_from, size_t(count) * sizeof *index);
}

int64_t unique(uint64_t* keys, int64_t count, int64_t* first) {
  int64_t kept = 0;
  for (int64_t k = 0; k < count; ++k) {
    if (k && keys[k] == keys[kept - 1]) continue;
    if (first) first[kept] = k;
    keys[kept++] = keys[k];
  }
  return kept;
}

int64_t count_before(const uint64_t* present, int64_t words, uint32_t* before) {
  int64_t total = 0;
  for (int64_t w = 0; w < words; ++w) {
    before[w] = uint32_t(total);
    total += __builtin_popcountll(present[w]);
  }
  return total;
}

template <class I>
int64_t split(const uint64_t* keys, int64_t count, const uint64_t* present, const uint32_t* before, I* columns,
              uint32_t* rows, int64_t* counts) {
  int64_t last = -1;
  uint64_t row = 0;
  for (int64_t k = 0; k < count; ++k) {
    const uint64_t column = keys[k] & 0xffffffffu, target = keys[k] >> 32;
    columns[k] = I(present ? rank(present, before, column) : column);
    if (last < 0 || target != row) {
      row = target;
      rows[++last] = uint32_t(present ? rank(present, before, target) : target);
      counts[last] = 0;
    }
    ++counts[last];
  }
  return last + 1;
}

template int64_t split<int32_t>(const uint64_t*, int64_t, const uint64_t*, const uint32_t*, int32_t*, uint32_t*, int64_t*);
template int64_t split<int64_t>(const uint64_t*, int64_t, const uint64_t*, const uint32_t*, int64_t*, uint32_t*, int64_t*);

}  // namespace weft::stream
