#include "refine.h"

#include <algorithm>
#include <vector>

namespace weft {
namespace {

// SplitMix64: the same numbers everywhere.
struct Draw {
  uint64_t state;
  uint64_t operator()() {
    uint64_t z = (state += 0x9E3779B97F4A7C15ull);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
  }
  int64_t below(int64_t bound) { return int64_t((unsigned __int128)((*this)()) * uint64_t(bound) >> 64); }
};

// The parts that have pins of each net, with how many. A net of few pins is a short list that is searched;
// one of many has besides a table, part -> place in the list.
class Pins {
 public:
  struct Entry {
    int32_t part, count;
  };

  Pins(const Refinement& r) : begin_(r.n + 1, 0), table_(r.n, -1), length_(r.n, 0) {
    std::vector<int64_t> size(r.n, 0);
    for (int64_t e = 0; e < r.starts[r.n]; ++e) ++size[r.nets[e]];
    int64_t tables = 0;
    for (int64_t j = 0; j < r.n; ++j) {
      // One more than the pins: a vertex is in its new part before it leaves the old one.
      begin_[j + 1] = begin_[j] + std::min(size[j] + 1, r.parts);
      if (size[j] > kShort) table_[j] = tables, tables += r.parts;
    }
    entry_.resize(begin_[r.n]);
    place_.assign(tables, -1);
    for (int64_t v = 0; v < r.n; ++v)
      for (int64_t e = r.starts[v]; e < r.starts[v + 1]; ++e) add(r.nets[e], r.owner[v]);
  }

  const Entry* begin(int64_t j) const { return &entry_[begin_[j]]; }
  const Entry* end(int64_t j) const { return begin(j) + length_[j]; }
  int32_t connectivity(int64_t j) const { return length_[j]; }

  int32_t count(int64_t j, int32_t part) const {
    const int32_t at = find(j, part);
    return at < 0 ? 0 : begin(j)[at].count;
  }

  int32_t add(int64_t j, int32_t part) {  // how many there were
    const int32_t at = find(j, part);
    if (at >= 0) return entry_[begin_[j] + at].count++;
    const int32_t last = length_[j]++;
    entry_[begin_[j] + last] = {part, 1};
    if (table_[j] >= 0) place_[table_[j] + part] = last;
    return 0;
  }

  int32_t remove(int64_t j, int32_t part) {  // how many there are
    const int32_t at = find(j, part);
    Entry* const first = &entry_[begin_[j]];
    if (--first[at].count) return first[at].count;
    const int32_t last = --length_[j];
    if (table_[j] >= 0) place_[table_[j] + first[last].part] = at, place_[table_[j] + part] = -1;
    first[at] = first[last];
    return 0;
  }

 private:
  static constexpr int64_t kShort = 24;
  std::vector<int64_t> begin_, table_;
  std::vector<int32_t> length_;
  std::vector<Entry> entry_;
  std::vector<int32_t> place_;

  int32_t find(int64_t j, int32_t part) const {
    if (table_[j] >= 0) return place_[table_[j] + part];
    const Entry* const first = begin(j);
    for (int32_t at = 0; at < length_[j]; ++at)
      if (first[at].part == part) return at;
    return -1;
  }
};

struct Move {
  int32_t to = -1;
  double cost = 0;
};

class Search {
 public:
  Search(const Refinement& r)
      : r_(r), pins_(r), between_(r.parts * r.parts, 0), sent_(r.parts, 0), received_(r.parts, 0),
        load_(r.parts, 0), messages_(r.parts, 0), connected_(r.parts, 0), won_(r.parts, 0), lost_(r.parts, 0),
        members_(r.parts), place_(r.n), draw_{r.seed}, heavy_(4 * (1 + r.message + r.excess)) {
    for (int64_t j = 0; j < r.n; ++j)
      for (auto e = pins_.begin(j); e != pins_.end(j); ++e)
        if (e->part != r.owner[j]) cross(r.owner[j], e->part, 1);
    for (int64_t v = 0; v < r.n; ++v) load_[r.owner[v]] += r.weights[v], enter(v);
  }

  int64_t run() {
    int64_t moved = 0;
    for (int64_t pass = 0; pass < r_.passes; ++pass) {
      int64_t now = 0;
      // Those first whom an epoch waits for: of parts that send too much the most read vertices.
      std::vector<int32_t> order;
      for (int64_t v = 0; v < r_.n; ++v)
        if (sent_[r_.owner[v]] > r_.send && pins_.connectivity(v) > 1) order.push_back(v);
      std::stable_sort(order.begin(), order.end(),
                       [&](int32_t a, int32_t b) { return pins_.connectivity(a) > pins_.connectivity(b); });
      for (int32_t v : order) now += improve(v);
      order.clear();
      for (int64_t v = 0; v < r_.n; ++v)
        if (boundary(v)) order.push_back(v);
      for (int64_t i = int64_t(order.size()) - 1; i > 0; --i) std::swap(order[i], order[draw_.below(i + 1)]);
      for (int32_t v : order) now += improve(v);
      moved += now;
      if (now * 1000 < r_.n) break;
    }
    *r_.change = cost_;
    return moved;
  }

 private:
  static constexpr int kFew = 6, kSwaps = 6, kWide = 48;
  static constexpr double kLeast = 1e-9;  // below it is rounding

  const Refinement& r_;
  Pins pins_;
  std::vector<int32_t> between_;
  std::vector<int64_t> sent_, received_, load_;
  std::vector<int32_t> messages_;                // that a part sends
  std::vector<int32_t> connected_, won_, lost_;  // scratch, 0 between calls
  std::vector<int32_t> touched_;
  std::vector<std::vector<int32_t>> members_;
  std::vector<int32_t> place_;
  Draw draw_;
  int64_t tried_ = 0, swapped_ = 0;  // swaps
  std::vector<int32_t> found_;       // parts that have a net of the vertex at hand
  double heavy_;                     // what a unit of work above the bound is worth: more than all else
  double cost_ = 0;                  // by how much it has changed

  void enter(int32_t v) {
    auto& mine = members_[r_.owner[v]];
    place_[v] = int32_t(mine.size());
    mine.push_back(v);
  }
  void leave(int32_t v) {
    auto& mine = members_[r_.owner[v]];
    mine[place_[v]] = mine.back();
    place_[mine.back()] = place_[v];
    mine.pop_back();
  }

  void cross(int32_t from, int32_t to, int32_t many) {
    int32_t& rows = between_[from * r_.parts + to];
    messages_[from] -= rows > 0;
    rows += many;
    messages_[from] += rows > 0;
    sent_[from] += many, received_[to] += many;
  }

  bool boundary(int64_t v) const {
    for (int64_t e = r_.starts[v]; e < r_.starts[v + 1]; ++e)
      if (pins_.connectivity(r_.nets[e]) > 1) return true;
    return false;
  }

  // What it costs to be heavier by w: nothing below the bound, above it more than any volume.
  double heavier(int64_t load, int64_t w) const { return over(load + w, r_.most) - over(load, r_.most); }

  double over(int64_t rows, int64_t bound) const { return rows > bound ? double(rows - bound) : 0; }

  void move(int32_t v, int32_t q) {
    const int32_t p = r_.owner[v];
    for (auto e = pins_.begin(v); e != pins_.end(v); ++e)
      if (e->part != p) cross(p, e->part, -1);
    for (int64_t e = r_.starts[v]; e < r_.starts[v + 1]; ++e) {
      const int32_t j = r_.nets[e];
      const bool left = pins_.remove(j, p) == 0, came = pins_.add(j, q) == 0;
      if (j == v) continue;
      if (left) cross(r_.owner[j], p, -1);
      if (came) cross(r_.owner[j], q, 1);
    }
    leave(v);
    r_.owner[v] = q;
    enter(v);
    for (auto e = pins_.begin(v); e != pins_.end(v); ++e)
      if (e->part != q) cross(q, e->part, 1);
    load_[p] -= r_.weights[v], load_[q] += r_.weights[v];
  }

  // The exact change of the cost where v goes to q.
  double change(int32_t v, int32_t q) {
    const int32_t p = r_.owner[v];
    const int32_t* const to_p = &between_[p];  // [from * parts]: rows that p receives
    const int32_t* const to_q = &between_[q];
    int64_t came = 0, left = 0;  // columns of others that q will receive, that p will not
    touched_.clear();
    for (int64_t e = r_.starts[v]; e < r_.starts[v + 1]; ++e) {
      const int32_t j = r_.nets[e], o = r_.owner[j];
      if (j == v) continue;
      const bool goes = pins_.count(j, p) == 1, comes = pins_.count(j, q) == 0;
      if ((goes || comes) && !lost_[o] && !won_[o]) touched_.push_back(o);
      lost_[o] += goes, won_[o] += comes;
      left += goes, came += comes;
    }
    // v's own row: p reads it still, q reads it already.
    const bool stays = pins_.count(v, p) > 1, there = pins_.count(v, q) > 0;
    const int64_t readers = pins_.connectivity(v) - 1, then = readers + stays - there;
    double sent = 0;
    int64_t messages = 0;
    auto sends = [&](int32_t o, int64_t more) { sent += over(sent_[o] + more, r_.send) - over(sent_[o], r_.send); };
    for (int32_t o : touched_) {
      messages -= lost_[o] && to_p[o * r_.parts] == lost_[o];
      messages += won_[o] && to_q[o * r_.parts] == 0;
      if (o != p && o != q) sends(o, won_[o] - lost_[o]);
    }
    sends(p, won_[p] - lost_[p] - readers);
    sends(q, won_[q] - lost_[q] + then);
    const int32_t p_to_q = won_[p], q_to_p = lost_[q];
    for (int32_t o : touched_) won_[o] = lost_[o] = 0;
    for (auto e = pins_.begin(v); e != pins_.end(v); ++e) {
      const int32_t s = e->part;
      if (s == p) continue;
      messages -= between_[p * r_.parts + s] == 1 && !(s == q && p_to_q);
      messages += s != q && between_[q * r_.parts + s] == 0;
    }
    // q sends v to p, which is a new message where it sent nothing else, or nothing else any more.
    messages += stays && to_p[q * r_.parts] == q_to_p;
    auto receives = [&](int32_t s, int64_t more) {
      return over(received_[s] + more, r_.receive) - over(received_[s], r_.receive);
    };
    const double received = receives(q, came - there) + receives(p, stays - left);
    const double weight = heavier(load_[q], r_.weights[v]) + heavier(load_[p], -r_.weights[v]);
    return double(came - left + then - readers) + r_.excess * (sent + received) +
           r_.message * double(messages) + heavy_ * weight;
  }

  struct Choice {
    double cost;
    int32_t part;
    bool operator<(const Choice& o) const { return cost < o.cost || (cost == o.cost && part < o.part); }
  };
  // The least few, in order.
  struct Few {
    Choice choice[kFew];
    int many = 0;
    void offer(double cost, int32_t part) {
      const Choice made{cost, part};
      if (many == kFew && !(made < choice[many - 1])) return;
      int at = many < kFew ? many++ : many - 1;
      for (; at > 0 && made < choice[at - 1]; --at) choice[at] = choice[at - 1];
      choice[at] = made;
    }
  };

  void least(int32_t v, const Few& few, Move& made) {
    for (int i = 0; i < few.many; ++i) {
      const double cost = change(v, few.choice[i].part);
      if (made.to < 0 || cost < made.cost) made = {few.choice[i].part, cost};
    }
  }

  // The best part for v of those that have room; and, where `full` is given, of those that have none.
  // Parts are chosen by an estimate, which takes no notice of nets that nearly everybody has; of the few
  // best the cost is exact.
  Move best(int32_t v, Move* full) {
    const int32_t p = r_.owner[v];
    const int64_t first = r_.starts[v], last = r_.starts[v + 1], weight = r_.weights[v];
    int64_t left = 0, seen = 0;
    found_.clear();
    for (int64_t e = first; e < last; ++e) {
      const int32_t j = r_.nets[e];
      left += pins_.count(j, p) == 1;
      if (pins_.connectivity(j) > kWide) continue;
      ++seen;
      for (auto i = pins_.begin(j); i != pins_.end(j); ++i)
        if (!connected_[i->part]++) found_.push_back(i->part);
    }
    const int64_t readers = pins_.connectivity(v) - 1;
    const bool busy = sent_[p] > r_.send || received_[p] > r_.receive || load_[p] > r_.most;
    Few roomy, crowded, known;
    if (left || busy) {
      for (int32_t q : found_) {
        if (q == p) continue;
        const double cost = double(seen - connected_[q] - left) +
                            r_.excess * (over(sent_[q] + readers, r_.send) - over(sent_[q], r_.send));
        if (load_[q] + weight <= r_.most) roomy.offer(cost, q);
        else if (full) crowded.offer(cost, q);
      }
      if (busy && readers > 1)
        // Whoever writes to many already: the rows of v then need few new messages.
        for (int32_t q = 0; q < r_.parts; ++q)
          if (q != p && sent_[q] + readers <= r_.send && load_[q] + weight <= r_.most)
            known.offer(double(seen - connected_[q] - left) -
                            r_.message * messages_[q] * double(readers) / double(r_.parts), q);
    }
    for (int32_t q : found_) connected_[q] = 0;
    Move made;
    least(v, roomy, made);
    least(v, known, made);
    if (full) least(v, crowded, *full);
    return made;
  }

  bool improve(int32_t v) {
    Move full;
    const Move free = best(v, &full);
    if (full.to >= 0) {
      // What makes room pays the price of the weight back: without it the wish may be worth a try.
      const double bare = full.cost - heavy_ * heavier(load_[full.to], r_.weights[v]);
      if (bare < -kLeast && (free.to < 0 || bare < free.cost) && swap(v, full)) return true;
    }
    if (free.to < 0 || free.cost >= -kLeast) return false;
    move(v, free.to);
    cost_ += free.cost;
    return true;
  }

  // v goes where there is no room, and another vertex makes room. Where that seldom helps, it is seldom tried.
  bool swap(int32_t v, const Move& wish) {
    if (++tried_ > 1000 && swapped_ * 20 < tried_ && tried_ % 8) return false;
    const int32_t p = r_.owner[v], q = wish.to;
    const int64_t need = load_[q] + r_.weights[v] - r_.most, most = 4 * r_.weights[v] + 16;
    move(v, q);
    const auto& mine = members_[q];
    Move taken;
    int32_t who = -1;
    for (int t = 0; t < kSwaps; ++t) {
      const int32_t u = mine[draw_.below(int64_t(mine.size()))];
      if (u == v || r_.weights[u] < need || r_.weights[u] > most) continue;
      Move other = best(u, nullptr);
      if (load_[p] + r_.weights[u] <= r_.most) {
        const double back = change(u, p);
        if (other.to < 0 || back < other.cost) other = {p, back};
      }
      if (other.to >= 0 && (who < 0 || other.cost < taken.cost)) taken = other, who = u;
    }
    if (who >= 0 && wish.cost + taken.cost < -kLeast) {
      move(who, taken.to);
      cost_ += wish.cost + taken.cost;
      ++swapped_;
      return true;
    }
    move(v, p);
    return false;
  }
};

}  // namespace

int64_t refine(const Refinement& r) { return Search(r).run(); }

}  // namespace weft
