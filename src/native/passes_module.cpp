// Python's door to passes.h. As in module.cpp, buffers come as addresses that Python has checked.
#include <nanobind/nanobind.h>

#include <string>

#include "passes.h"

namespace nb = nanobind;
using Address = uintptr_t;

namespace {

template <class T>
T* at(Address a) {
  return reinterpret_cast<T*>(a);
}

template <class I>
void bind(nb::module_& m) {
  using namespace weft::passes;
  const std::string suffix = sizeof(I) == 4 ? "_i32" : "_i64";
  const auto rows = [](int64_t first, int64_t count, Address indptr, Address columns, int64_t extra) {
    return Rows<I>{first, count, at<const int64_t>(indptr), at<const I>(columns), extra};
  };
  m.def(("passes_weigh" + suffix).c_str(), [rows](int64_t first, int64_t count, Address indptr, Address columns,
                                                  int64_t extra, Address work, Address reads) {
    nb::gil_scoped_release free;
    weigh(rows(first, count, indptr, columns, extra), at<int64_t>(work), at<uint64_t>(reads));
  });
  m.def(("passes_join" + suffix).c_str(),
        [rows](int64_t first, int64_t count, Address indptr, Address columns, int64_t extra, Address label, Address size,
               Address reads, int64_t most) {
          nb::gil_scoped_release free;
          return join(rows(first, count, indptr, columns, extra), at<I>(label), at<int64_t>(size),
                      at<const uint64_t>(reads), most);
        });
  m.def(("passes_contract" + suffix).c_str(),
        [rows](int64_t first, int64_t count, Address indptr, Address columns, int64_t extra, Address label,
               int64_t clusters, Address keys, Address times, int64_t slots, int64_t held, int64_t limit, int64_t keep,
               Address work) {
          nb::gil_scoped_release free;
          Pairs pairs{at<uint64_t>(keys), at<uint32_t>(times), slots, held, limit, keep};
          contract(rows(first, count, indptr, columns, extra), at<const I>(label), clusters, pairs, at<int64_t>(work));
          return pairs.held;
        });
  m.def(("passes_move" + suffix).c_str(), [rows](int64_t first, int64_t count, Address indptr, Address columns,
                                                 int64_t extra, Address part, int64_t parts, Address load, int64_t most) {
    nb::gil_scoped_release free;
    return move(rows(first, count, indptr, columns, extra), at<int32_t>(part), parts, at<int64_t>(load), most);
  });
  m.def(("passes_readers" + suffix).c_str(), [rows](int64_t first, int64_t count, Address indptr, Address columns,
                                                    Address part, int64_t low, Address marks) {
    nb::gil_scoped_release free;
    return readers(rows(first, count, indptr, columns, 0), at<const int32_t>(part), low, at<uint64_t>(marks));
  });
}

}  // namespace

void bind_passes(nb::module_& m) {
  bind<int32_t>(m);
  bind<int64_t>(m);
  m.def("passes_lighten", [](Address keys, Address times, int64_t slots, int64_t held, int64_t limit, int64_t keep) {
    nb::gil_scoped_release free;
    weft::passes::Pairs pairs{at<uint64_t>(keys), at<uint32_t>(times), slots, held, limit, keep};
    weft::passes::lighten(pairs);
    return pairs.held;
  });
}
