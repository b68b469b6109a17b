// Python's door to cut.h, and to transposes with their values. As in module.cpp, buffers come as addresses that Python has checked.
#include <nanobind/nanobind.h>

#include <string>

#include "csr.h"
#include "cut.h"

namespace nb = nanobind;
using Address = uintptr_t;

namespace {

template <class T>
T* at(Address a) {
  return reinterpret_cast<T*>(a);
}

template <class I, class W>
void bind_raw(nb::module_& m) {
  using namespace weft::cut;
  const std::string suffix = std::string("_i") + (sizeof(I) == 4 ? "32" : "64") + (sizeof(W) == 4 ? "_f32" : "_f64");
  m.def(("cut_count" + suffix).c_str(),
        [](int64_t rows, Address indptr, Address ids, Address weights, Address own, bool loops, int64_t kind,
           Address table, Address begin, int64_t ranks, int64_t stretches, Address begins, Address ends, Address counts,
           int64_t stride, Address marks, Address sums, int threads) {
          nb::gil_scoped_release free;
          count(Raw<I, W>{rows, at<const int64_t>(indptr), at<const I>(ids), at<const W>(weights),
                          at<const int64_t>(own), loops},
                Places{kind, at<const void>(table), at<const int64_t>(begin), ranks},
                Stretches{stretches, at<const int64_t>(begins), at<const int64_t>(ends)}, at<int64_t>(counts), stride,
                at<uint64_t>(marks), at<double>(sums), threads);
        });
  m.def(("cut_fill" + suffix).c_str(),
        [](int64_t rows, Address indptr, Address ids, Address weights, Address own, bool loops, int64_t kind,
           Address table, Address begin, int64_t ranks, int64_t stretches, Address begins, Address ends, Address starts,
           int64_t stride, Address marks, Address before, Address numbered, Address base, bool wide, Address indices,
           Address values, int threads) {
          nb::gil_scoped_release free;
          const Raw<I, W> raw{rows, at<const int64_t>(indptr), at<const I>(ids), at<const W>(weights),
                              at<const int64_t>(own), loops};
          const Places places{kind, at<const void>(table), at<const int64_t>(begin), ranks};
          const Stretches of{stretches, at<const int64_t>(begins), at<const int64_t>(ends)};
          if (wide)
            fill(raw, places, of, at<const int64_t>(starts), stride, at<const uint64_t>(marks),
                 at<const uint32_t>(before), at<const uint8_t>(numbered), at<const int64_t>(base),
                 at<int64_t* const>(indices), at<W* const>(values), threads);
          else
            fill(raw, places, of, at<const int64_t>(starts), stride, at<const uint64_t>(marks),
                 at<const uint32_t>(before), at<const uint8_t>(numbered), at<const int64_t>(base),
                 at<int32_t* const>(indices), at<W* const>(values), threads);
        });
  m.def(("cut_scale" + suffix).c_str(),
        [](int64_t rows, Address indptr, Address indices, Address by_row, Address by_column, bool weighted,
           Address values, int threads) {
          nb::gil_scoped_release free;
          scale(rows, at<const int64_t>(indptr), at<const I>(indices), at<const double>(by_row),
                at<const double>(by_column), weighted, at<W>(values), threads);
        });
  m.def(("turn" + suffix).c_str(), [](int64_t rows, int64_t columns, Address indptr, Address indices, Address values,
                                       Address t_indptr, Address t_indices, Address t_values) {
    nb::gil_scoped_release free;
    weft::turn(rows, columns, at<const int64_t>(indptr), at<const I>(indices), at<const W>(values),
               at<int64_t>(t_indptr), at<I>(t_indices), at<W>(t_values));
  });
}

template <class I>
void bind_index(nb::module_& m) {
  bind_raw<I, float>(m);
  bind_raw<I, double>(m);
  m.def(sizeof(I) == 4 ? "cut_list_i32" : "cut_list_i64",
        [](Address marks, int64_t first, int64_t last, Address out) {
          nb::gil_scoped_release free;
          return weft::cut::list(at<const uint64_t>(marks), first, last, at<I>(out));
        });
}

}  // namespace

void bind_cut(nb::module_& m) {
  bind_index<int32_t>(m);
  bind_index<int64_t>(m);
  m.def("cut_gather", [](Address source, int64_t count, Address starts, Address ends, int64_t size, Address out) {
    nb::gil_scoped_release free;
    weft::cut::gather(at<const char>(source), count, at<const int64_t>(starts), at<const int64_t>(ends), size,
                      at<char>(out));
  });
}
