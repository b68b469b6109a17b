// Python's door to stream.h. As in module.cpp, buffers come as addresses that Python has checked.
#include <nanobind/nanobind.h>

#include "stream.h"

namespace nb = nanobind;
using Address = uintptr_t;

namespace {

template <class T>
T* at(Address a) {
  return reinterpret_cast<T*>(a);
}

}  // namespace

void bind_stream(nb::module_& m) {
  using namespace weft;
  m.def("stream_lines", [](Address text, int64_t size) {
    nb::gil_scoped_release free;
    return stream::count_lines(at<const char>(text), size);
  });
  m.def("stream_parse", [](Address text, int64_t size, bool comma, int64_t extra, Address kinds, Address outs, Address source,
                           Address target, Address odd, int64_t room) {
    stream::Parsed found;
    {
      nb::gil_scoped_release free;
      found = stream::parse(at<const char>(text), size, comma, extra, at<const int32_t>(kinds), at<void*>(outs),
                            at<int64_t>(source), at<int64_t>(target), at<int64_t>(odd), room);
    }
    return nb::make_tuple(found.arcs, found.lines, found.odd, found.not_whole);
  });
  m.def("stream_pack", [](Address source, Address target, int64_t count, int64_t limit, Address keys, Address present) {
    nb::gil_scoped_release free;
    return stream::pack(at<const int64_t>(source), at<const int64_t>(target), count, limit, at<uint64_t>(keys),
                        at<uint64_t>(present));
  });
  m.def("stream_sort", [](Address keys, Address scratch, int64_t count, Address index, Address index_scratch) {
    nb::gil_scoped_release free;
    stream::sort(at<uint64_t>(keys), at<uint64_t>(scratch), count, at<uint32_t>(index), at<uint32_t>(index_scratch));
  });
  m.def("stream_unique", [](Address keys, int64_t count, Address first) {
    nb::gil_scoped_release free;
    return stream::unique(at<uint64_t>(keys), count, at<int64_t>(first));
  });
  m.def("stream_count_before", [](Address present, int64_t words, Address before) {
    nb::gil_scoped_release free;
    return stream::count_before(at<const uint64_t>(present), words, at<uint32_t>(before));
  });
  m.def("stream_split_i32", [](Address keys, int64_t count, Address present, Address before, Address columns, Address rows,
                               Address counts) {
    nb::gil_scoped_release free;
    return stream::split(at<const uint64_t>(keys), count, at<const uint64_t>(present), at<const uint32_t>(before),
                         at<int32_t>(columns), at<uint32_t>(rows), at<int64_t>(counts));
  });
  m.def("stream_split_i64", [](Address keys, int64_t count, Address present, Address before, Address columns, Address rows,
                               Address counts) {
    nb::gil_scoped_release free;
    return stream::split(at<const uint64_t>(keys), count, at<const uint64_t>(present), at<const uint32_t>(before),
                         at<int64_t>(columns), at<uint32_t>(rows), at<int64_t>(counts));
  });
}
