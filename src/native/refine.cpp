#include "refine.h"

#include <algorithm>
#include <utility>
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

  Pins(const Refinement& r) : begin_(r.columns + 1, 0), table_(r.columns, -1), length_(r.columns, 0) {
    std::vector<int64_t> size(r.columns, 0);
    for (int64_t e = 0; e < r.starts[r.n]; ++e) ++size[r.nets[e]];
    int64_t tables = 0;
    for (int64_t j = 0; j < r.columns; ++j) {
      // One more than the pins: a vertex is in its new part before it leaves the old one.
      begin_[j + 1] = begin_[j] + std::min(size[j] + 1, r.parts);
      if (size[j] > kShort) table_[j] = tables, tables += r.parts;
    }
    entry_.resize(begin_[r.columns]);
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
        rows_(r.parts, 0), own_begin_(r.n + 1, 0), members_(r.parts), place_(r.n), draw_{r.seed},
        heavy_(4 * (1 + r.message + r.excess)) {
    for (int64_t j = 0; j < r.columns; ++j)
      for (auto e = pins_.begin(j); e != pins_.end(j); ++e)
        if (e->part != owner(j)) cross(owner(j), e->part, 1);
    for (int64_t v = 0; v < r.n; ++v) {
      for (int64_t e = r.starts[v]; e < r.starts[v + 1]; ++e)
        if (r.home[r.nets[e]] == v) own_.push_back(r.nets[e]);
      own_begin_[v + 1] = int64_t(own_.size());
    }
    for (int64_t v = 0; v < r.n; ++v) load_[r.owner[v]] += r.weights[v], enter(v);
  }

  int64_t run() {
    int64_t moved = 0;
    for (int64_t pass = 0; pass < r_.passes; ++pass) {
      int64_t now = 0;
      // Those first whom an epoch waits for: of parts that send too much the most read vertices.
      std::vector<std::pair<int64_t, int32_t>> busiest;
      for (int64_t v = 0; v < r_.n; ++v)
        if (sent_[r_.owner[v]] > r_.send)
          if (const int64_t many = readers(v)) busiest.emplace_back(-many, v);
      std::sort(busiest.begin(), busiest.end());
      for (auto& each : busiest) now += improve(each.second);
      std::vector<int32_t> order;
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
  std::vector<int32_t> rows_;                    // that v sends to each part; scratch as well
  std::vector<int32_t> touched_, told_;          // the parts of won_ and lost_, of rows_
  std::vector<int64_t> own_begin_;
  std::vector<int32_t> own_;  // the nets that a vertex owns: its own, or those of all that it stands for
  std::vector<std::vector<int32_t>> members_;
  std::vector<int32_t> place_;
  Draw draw_;
  int64_t tried_ = 0, swapped_ = 0;  // swaps
  std::vector<int32_t> found_;       // parts that have a net of the vertex at hand
  double heavy_;                     // what a unit of work above the bound is worth: more than all else
  double cost_ = 0;                  // by how much it has changed

  int32_t owner(int64_t j) const { return r_.owner[r_.home[j]]; }

  // Rows that others read of v: of all its own nets.
  int64_t readers(int64_t v) const {
    int64_t many = 0;
    for (int64_t i = own_begin_[v]; i < own_begin_[v + 1]; ++i) many += pins_.connectivity(own_[i]) - 1;
    return many;
  }

  // What the part sends of v's own nets.
  void sends_own(int32_t v, int32_t part, int32_t many) {
    for (int64_t i = own_begin_[v]; i < own_begin_[v + 1]; ++i)
      for (auto e = pins_.begin(own_[i]); e != pins_.end(own_[i]); ++e)
        if (e->part != part) cross(part, e->part, many);
  }

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
    sends_own(v, p, -1);
    for (int64_t e = r_.starts[v]; e < r_.starts[v + 1]; ++e) {
      const int32_t j = r_.nets[e];
      const bool left = pins_.remove(j, p) == 0, came = pins_.add(j, q) == 0;
      if (r_.home[j] == v) continue;
      if (left) cross(owner(j), p, -1);
      if (came) cross(owner(j), q, 1);
    }
    leave(v);
    r_.owner[v] = q;
    enter(v);
    sends_own(v, q, 1);
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
      const int32_t j = r_.nets[e], o = owner(j);
      if (r_.home[j] == v) continue;
      const bool goes = pins_.count(j, p) == 1, comes = pins_.count(j, q) == 0;
      if ((goes || comes) && !lost_[o] && !won_[o]) touched_.push_back(o);
      lost_[o] += goes, won_[o] += comes;
      left += goes, came += comes;
    }
    // v's own rows: some p reads still, some q reads already.
    int64_t stays = 0, there = 0, readers = 0;
    told_.clear();
    for (int64_t i = own_begin_[v]; i < own_begin_[v + 1]; ++i) {
      const int32_t j = own_[i];
      readers += pins_.connectivity(j) - 1;
      for (auto e = pins_.begin(j); e != pins_.end(j); ++e) {
        if (e->part == p) stays += e->count > 1;
        else if (!rows_[e->part]++) told_.push_back(e->part);
      }
    }
    there = rows_[q];
    const int64_t then = readers + stays - there;
    double sent = 0;
    auto sends = [&](int32_t o, int64_t more) { sent += over(sent_[o] + more, r_.send) - over(sent_[o], r_.send); };
    // Between p and q both ways; then who writes to them, and whom v writes to.
    const int64_t forth = between_[p * r_.parts + q], back = between_[q * r_.parts + p];
    int64_t messages = (forth + won_[p] - there > 0) - (forth > 0) + (back - lost_[q] + stays > 0) - (back > 0);
    for (int32_t o : touched_) {
      if (o == p || o == q) continue;
      messages -= lost_[o] && to_p[o * r_.parts] == lost_[o];
      messages += won_[o] && to_q[o * r_.parts] == 0;
      sends(o, won_[o] - lost_[o]);
    }
    sends(p, won_[p] - lost_[p] - readers);
    sends(q, won_[q] - lost_[q] + then);
    for (int32_t o : touched_) won_[o] = lost_[o] = 0;
    for (int32_t s : told_) {
      if (s != q) {
        messages -= between_[p * r_.parts + s] == rows_[s];
        messages += between_[q * r_.parts + s] == 0;
      }
      rows_[s] = 0;
    }
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
    const int64_t readers = this->readers(v);
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

int64_t join(const Joining& r) {
  constexpr int64_t kPins = 64;  // nets of more say little about who belongs together
  std::vector<int64_t> begin(r.columns + 1, 0), load(r.weights, r.weights + r.n);
  for (int64_t e = 0; e < r.starts[r.n]; ++e) ++begin[r.nets[e] + 1];
  for (int64_t j = 0; j < r.columns; ++j) begin[j + 1] += begin[j];
  std::vector<int64_t> next(begin.begin(), begin.end() - 1);
  std::vector<int32_t> pin(r.starts[r.n]), order(r.n), many(r.n, 1), found;
  for (int64_t v = 0; v < r.n; ++v)
    for (int64_t e = r.starts[v]; e < r.starts[v + 1]; ++e) pin[next[r.nets[e]]++] = int32_t(v);
  for (int64_t v = 0; v < r.n; ++v) r.label[v] = order[v] = int32_t(v);
  Draw draw{r.seed};
  for (int64_t i = r.n - 1; i > 0; --i) std::swap(order[i], order[draw.below(i + 1)]);
  std::vector<double> near(r.n, 0);
  for (int32_t v : order) {
    if (r.label[v] != v || many[v] > 1) continue;  // it has joined, or is joined
    found.clear();
    for (int64_t e = r.starts[v]; e < r.starts[v + 1]; ++e) {
      const int64_t j = r.nets[e], size = begin[j + 1] - begin[j];
      if (size < 2 || size > kPins) continue;
      for (int64_t i = begin[j]; i < begin[j + 1]; ++i) {
        const int32_t u = pin[i], c = r.label[u];
        if (c == v || r.owner[u] != r.owner[v]) continue;
        if (near[c] == 0) found.push_back(c);
        near[c] += 1.0 / double(size - 1);
      }
    }
    int32_t best = -1;
    for (int32_t c : found)
      if (load[c] + load[v] <= r.most && (best < 0 || near[c] > near[best] || (near[c] == near[best] && c < best)))
        best = c;
    for (int32_t c : found) near[c] = 0;
    if (best < 0) continue;
    r.label[v] = best;
    ++many[best], load[best] += load[v];
  }
  // Whoever was joined stands for himself, so labels are one step deep: now 0, 1, 2 …
  std::vector<int32_t> name(r.n, -1);
  int32_t names = 0;
  for (int64_t v = 0; v < r.n; ++v)
    if (r.label[v] == v) name[v] = names++;
  for (int64_t v = 0; v < r.n; ++v) r.label[v] = name[r.label[v]];
  return names;
}

}  // namespace weft
