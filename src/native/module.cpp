// Python's door to the kernels. Buffers come as addresses: weft/kernels/native.py checks dtype, shape,
// device and contiguity before it calls, and keeps the tensors alive meanwhile. So nothing here, and
// nothing below, knows torch.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

#include "csr.h"
#include "fault.h"
#include "kernels.h"
#include "parallel.h"
#include "refine.h"
#include "sampling.h"

namespace nb = nanobind;
using Address = uintptr_t;

void bind_stream(nb::module_& m);  // stream_module.cpp
void bind_cut(nb::module_& m);     // cut_module.cpp
void bind_passes(nb::module_& m);  // passes_module.cpp

namespace {

struct Isa {
  const char* name;
  const weft::Table* table;
};

bool runs_here(const std::string& isa) {
  if (isa == "baseline") return true;
#if defined(WEFT_X86)
  __builtin_cpu_init();
  if (isa == "avx2") return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  if (isa == "avx512")
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
#endif
  return false;
}

// The best set that this machine has; WEFT_ISA names another (for tests and for bug reports).
Isa choose() {
  const Isa all[] = {
#if defined(WEFT_X86)
      {"avx512", &weft::avx512::table},
      {"avx2", &weft::avx2::table},
#endif
      {"baseline", &weft::baseline::table}};
  const char* wanted = std::getenv("WEFT_ISA");
  for (const Isa& isa : all)
    if (runs_here(isa.name) && (!wanted || std::string(wanted) == isa.name)) return isa;
  throw std::runtime_error("WEFT_ISA=" + std::string(wanted) +
                           " does not run on this machine. Unset it, or use baseline.");
}

const Isa& isa() {
  static const Isa chosen = choose();
  return chosen;
}

template <class V, class I>
const weft::Kernels<V, I>& kernels() {
  const weft::Table& t = *isa().table;
  if constexpr (sizeof(V) == 4 && sizeof(I) == 4) return t.f32_i32;
  else if constexpr (sizeof(V) == 4) return t.f32_i64;
  else if constexpr (sizeof(I) == 4) return t.f64_i32;
  else return t.f64_i64;
}

template <class V>
const weft::DenseKernels<V>& dense() {
  if constexpr (sizeof(V) == 4) return isa().table->f32;
  else return isa().table->f64;
}

template <class T>
T* at(Address a) {
  return reinterpret_cast<T*>(a);
}

// weft::Attention as Python fills it, whatever the type of its numbers.
struct Scores {
  int kind = 0;
  int64_t heads = 1;
  Address given = 0, permutation = 0, row = 0;
  int64_t row_stride = 0;
  Address column = 0;
  int64_t inner = 0;
  Address bias = 0, raw = 0, extra = 0, mix = 0, features = 0, weight = 0;
  int64_t feature_width = 0;
  Address signs = 0;  // of the first signs_end arcs
  int64_t signs_end = 0;
  Address gain = 0, row_gain = 0;
  double slope = 1;
  bool softmax = true;
  uint32_t threshold = 0;
  double scale = 1;
  uint64_t key = 0;
  Address row_names = 0, column_names = 0;

  template <class V>
  weft::Attention<V> as() const {
    return {weft::Score(kind), heads, at<const V>(given), at<const int64_t>(permutation), at<const V>(row),
            row_stride, at<const V>(column), inner, at<const V>(bias), at<V>(raw), at<const V>(extra), at<const V>(mix), at<const V>(features),
            at<const V>(weight), feature_width, {at<uint8_t>(signs), 0, signs_end}, at<const V>(gain), at<const V>(row_gain), V(slope), softmax, threshold, V(scale), key,
            at<const int64_t>(row_names), at<const int64_t>(column_names)};
  }
};

// weft::Channels likewise.
struct Channels {
  Address row = 0, column = 0, features = 0, weight = 0;
  int64_t inner = 0;
  Address permutation = 0;

  template <class V>
  weft::Channels<V> as() const {
    return {at<const V>(row), at<const V>(column), at<const V>(features), at<const V>(weight), inner,
            at<const int64_t>(permutation)};
  }
};

// Binds every operator for one pair of types; Python picks by the name's suffix.
template <class V, class I>
void bind_sparse(nb::module_& m, const std::string& suffix) {
  using nb::gil_scoped_release;
  auto csr = [](int64_t rows, Address indptr, Address indices, Address values) {
    return weft::Csr<V, I>{rows, at<const int64_t>(indptr), at<const I>(indices), at<const V>(values)};
  };
  m.def(("spmm_" + suffix).c_str(), [=](int64_t rows, Address indptr, Address indices, Address values, Address x,
                                        int64_t width, Address y, bool mean, bool accumulate, int threads) {
    gil_scoped_release free;
    kernels<V, I>().spmm(csr(rows, indptr, indices, values), at<const V>(x), width, at<V>(y), mean, accumulate,
                         threads);
  });
  m.def(("spmm_extremum_" + suffix).c_str(),
        [=](int64_t rows, Address indptr, Address indices, Address values, Address x, int64_t width, Address y,
            Address arg, bool max, bool plus, bool plain, int threads) {
          gil_scoped_release free;
          kernels<V, I>().spmm_extremum(csr(rows, indptr, indices, values), at<const V>(x), width, at<V>(y),
                                        at<I>(arg), max, plus, plain, threads);
        });
  m.def(("spmm_extremum_backward_" + suffix).c_str(),
        [=](int64_t rows, Address t_indptr, Address t_indices, Address t_values, Address labels, Address dy,
            Address arg, int64_t width, Address dx, int threads) {
          gil_scoped_release free;
          kernels<V, I>().spmm_extremum_backward(csr(rows, t_indptr, t_indices, t_values), at<const I>(labels),
                                                 at<const V>(dy), at<const I>(arg), width, at<V>(dx), threads);
        });
  m.def(("add_to_winners_" + suffix).c_str(),
        [](Address arg, int64_t rows, int64_t width, Address dy, int64_t columns, Address dx, int threads) {
          gil_scoped_release free;
          kernels<V, I>().add_to_winners(at<const I>(arg), rows, width, at<const V>(dy), columns, at<V>(dx), threads);
        });
  m.def(("spmm_logsum_" + suffix).c_str(), [=](int64_t rows, Address indptr, Address indices, Address values, Address x,
                                               int64_t width, Address y, int threads) {
    gil_scoped_release free;
    kernels<V, I>().spmm_logsum(csr(rows, indptr, indices, values), at<const V>(x), width, at<V>(y), threads);
  });
  m.def(("spmm_logsum_backward_" + suffix).c_str(),
        [=](int64_t rows, Address t_indptr, Address t_indices, Address t_values, Address x, Address y, Address dy,
            int64_t width, Address dx, int threads) {
          gil_scoped_release free;
          kernels<V, I>().spmm_logsum_backward(csr(rows, t_indptr, t_indices, t_values), at<const V>(x),
                                               at<const V>(y), at<const V>(dy), width, at<V>(dx), threads);
        });
  m.def(("sddmm_" + suffix).c_str(),
        [=](int64_t rows, Address indptr, Address indices, Address left, Address right, int64_t width,
            int64_t first, int64_t dim, int64_t heads, Address out, int threads) {
          gil_scoped_release free;
          kernels<V, I>().sddmm(csr(rows, indptr, indices, 0), at<const V>(left), at<const V>(right), width, first,
                                dim, heads, at<V>(out), threads);
        });
  m.def(("attend_" + suffix).c_str(),
        [=](int64_t rows, Address indptr, Address indices, const Scores& s, Address x, int64_t width, int64_t first,
            int64_t dim, Address state, Address y, Address slope, bool begin, bool finish, int threads) {
          gil_scoped_release free;
          kernels<V, I>().attend(csr(rows, indptr, indices, 0), s.template as<V>(), at<const V>(x), width, first, dim,
                                 at<V>(state), at<V>(y), at<V>(slope), begin, finish, threads);
        });
  m.def(("attend_backward_" + suffix).c_str(),
        [=](int64_t rows, Address t_indptr, Address t_indices, const Scores& s, Address stat, Address g, Address x,
            int64_t width, int64_t dim, Address dx, Address dcolumn, Address dgain, Address dscore, int threads) {
          gil_scoped_release free;
          kernels<V, I>().attend_backward(csr(rows, t_indptr, t_indices, 0), s.template as<V>(), at<const V>(stat),
                                          at<const V>(g), at<const V>(x), width, dim, at<V>(dx), at<V>(dcolumn),
                                          at<V>(dgain), at<V>(dscore), threads);
        });
  m.def(("attend_self_backward_" + suffix).c_str(),
        [=](int64_t rows, Address indptr, Address indices, const Scores& s, Address stat, Address g, Address x,
            int64_t width, Address dx, Address dgains, int threads) {
          gil_scoped_release free;
          kernels<V, I>().attend_self_backward(csr(rows, indptr, indices, 0), s.template as<V>(), at<const V>(stat),
                                               at<const V>(g), at<const V>(x), width, at<V>(dx), at<V>(dgains),
                                               threads);
        });
  m.def(("sign_bytes_" + suffix).c_str(), [](int64_t width, int64_t first, int64_t dim) {
    return kernels<V, I>().sign_bytes(width, first, dim);
  });
  m.def(("channel_scores_" + suffix).c_str(),
        [=](int64_t rows, Address indptr, Address indices, const Channels& ch, Address mix, double slope, int64_t width,
            int64_t first, int64_t dim, int64_t heads, Address signs, int64_t signs_begin, int64_t signs_end, Address out,
            int threads) {
          gil_scoped_release free;
          kernels<V, I>().channel_scores(csr(rows, indptr, indices, 0), ch.template as<V>(), at<const V>(mix), V(slope),
                                         width, first, dim, heads, {at<uint8_t>(signs), signs_begin, signs_end},
                                         at<V>(out), threads);
        });
  m.def(("channel_scores_backward_" + suffix).c_str(),
        [=](int64_t rows, Address indptr, Address indices, const Channels& ch, int64_t begin, int64_t end, Address signs,
            int64_t signs_begin, int64_t signs_end, Address ds, Address mix, double slope, int64_t width, int64_t first,
            int64_t dim, int64_t heads, Address side, bool add, Address dweight, Address dmix, int threads) {
          gil_scoped_release free;
          kernels<V, I>().channel_scores_backward(
              csr(rows, indptr, indices, 0), ch.template as<V>(), begin, end, {at<uint8_t>(signs), signs_begin, signs_end},
              at<const V>(ds), at<const V>(mix), V(slope), width, first, dim, heads, at<V>(side), add, at<V>(dweight),
              at<V>(dmix), threads);
        });
  m.def(("channel_relu_" + suffix).c_str(),
        [=](int64_t rows, Address indptr, Address indices, const Channels& ch, int64_t width, Address signs,
            int64_t signs_begin, int64_t signs_end, Address y, bool accumulate, int threads) {
          gil_scoped_release free;
          kernels<V, I>().channel_relu(csr(rows, indptr, indices, 0), ch.template as<V>(), width,
                                       {at<uint8_t>(signs), signs_begin, signs_end}, at<V>(y), accumulate, threads);
        });
  m.def(("channel_relu_backward_" + suffix).c_str(),
        [=](int64_t rows, Address indptr, Address indices, const Channels& ch, int64_t begin, int64_t end, Address signs,
            int64_t signs_begin, int64_t signs_end, Address g, int64_t width, Address side, bool add, Address dweight,
            int threads) {
          gil_scoped_release free;
          kernels<V, I>().channel_relu_backward(csr(rows, indptr, indices, 0), ch.template as<V>(), begin, end,
                                                {at<uint8_t>(signs), signs_begin, signs_end}, at<const V>(g), width,
                                                at<V>(side), add, at<V>(dweight), threads);
        });
  m.def(("channel_gate_" + suffix).c_str(),
        [=](int64_t rows, Address indptr, Address indices, const Channels& ch, Address x, Address value_weight,
            int64_t width, Address y, bool accumulate, int threads) {
          gil_scoped_release free;
          kernels<V, I>().channel_gate(csr(rows, indptr, indices, 0), ch.template as<V>(), at<const V>(x),
                                       at<const V>(value_weight), width, at<V>(y), accumulate, threads);
        });
  m.def(("channel_gate_backward_" + suffix).c_str(),
        [=](int64_t rows, Address indptr, Address indices, const Channels& ch, bool transposed, Address g, Address x,
            Address value_weight, int64_t width, Address dfixed, Address dx, Address dweight, Address dvalue_weight,
            int threads) {
          gil_scoped_release free;
          kernels<V, I>().channel_gate_backward(csr(rows, indptr, indices, 0), ch.template as<V>(), transposed,
                                                at<const V>(g), at<const V>(x), at<const V>(value_weight), width,
                                                at<V>(dfixed), at<V>(dx), at<V>(dweight), at<V>(dvalue_weight), threads);
        });
  m.def(("channel_stats_" + suffix).c_str(),
        [=](int64_t rows, Address indptr, Address indices, const Channels& ch, int64_t width, Address sum, Address squares,
            Address most, Address least, Address arg_most, Address arg_least, int threads) {
          gil_scoped_release free;
          kernels<V, I>().channel_stats(csr(rows, indptr, indices, 0), ch.template as<V>(), width, at<V>(sum),
                                        at<V>(squares), at<V>(most), at<V>(least), at<I>(arg_most), at<I>(arg_least),
                                        threads);
        });
  m.def(("channel_stats_backward_" + suffix).c_str(),
        [=](int64_t rows, Address t_indptr, Address t_indices, const Channels& ch, Address labels, Address dsum,
            Address dsquares, Address dmost, Address dleast, Address arg_most, Address arg_least, int64_t width,
            Address dcolumn, Address dweight, int threads) {
          gil_scoped_release free;
          kernels<V, I>().channel_stats_backward(
              csr(rows, t_indptr, t_indices, 0), ch.template as<V>(), at<const I>(labels), at<const V>(dsum),
              at<const V>(dsquares), at<const V>(dmost), at<const V>(dleast), at<const I>(arg_most),
              at<const I>(arg_least), width, at<V>(dcolumn), at<V>(dweight), threads);
        });
  m.def(("gather_rows_" + suffix).c_str(),
        [](Address x, Address index, int64_t count, int64_t width, Address out, int threads) {
          gil_scoped_release free;
          kernels<V, I>().gather_rows(at<const V>(x), at<const I>(index), count, width, at<V>(out), threads);
        });
  m.def(("add_rows_" + suffix).c_str(),
        [](Address x, Address index, int64_t count, int64_t width, Address src, int threads) {
          gil_scoped_release free;
          kernels<V, I>().add_rows(at<V>(x), at<const I>(index), count, width, at<const V>(src), threads);
        });
  m.def(("scatter_rows_" + suffix).c_str(),
        [](Address x, Address index, int64_t count, int64_t width, Address src, int threads) {
          gil_scoped_release free;
          kernels<V, I>().scatter_rows(at<V>(x), at<const I>(index), count, width, at<const V>(src), threads);
        });
  m.def(("pair_products_" + suffix).c_str(),
        [](Address x, Address left, Address right, int64_t count, int64_t width, Address out, int threads) {
          gil_scoped_release free;
          kernels<V, I>().pair_products(at<const V>(x), at<const I>(left), at<const I>(right), count, width, at<V>(out),
                                        threads);
        });
  m.def(("add_pair_products_" + suffix).c_str(), [](Address y, Address x, Address left, Address right, int64_t count,
                                                    int64_t width, Address g, int threads) {
    gil_scoped_release free;
    kernels<V, I>().add_pair_products(at<V>(y), at<const V>(x), at<const I>(left), at<const I>(right), count, width,
                                      at<const V>(g), threads);
  });
}

template <class V>
void bind_dense(nb::module_& m, const std::string& suffix) {
  m.def(("dropout_" + suffix).c_str(), [](Address x, Address y, int64_t count, int64_t width, Address rows,
                                          int64_t first, uint64_t key, uint32_t threshold, double scale,
                                          bool relu, int threads) {
    nb::gil_scoped_release free;
    dense<V>().dropout(at<const V>(x), at<V>(y), count, width, at<const int64_t>(rows), first, key, threshold,
                       V(scale), relu, threads);
  });
  m.def(("elu_" + suffix).c_str(), [](Address x, int64_t count, int threads) {
    nb::gil_scoped_release free;
    dense<V>().elu(at<V>(x), count, threads);
  });
  m.def(("relu_backward_" + suffix).c_str(),
        [](Address y, Address dy, int64_t count, double scale, Address dx, int threads) {
          nb::gil_scoped_release free;
          dense<V>().relu_backward(at<const V>(y), at<const V>(dy), count, V(scale), at<V>(dx), threads);
        });
  m.def(("cross_entropy_" + suffix).c_str(), [](Address x, Address label, int64_t count, int64_t width, double scale,
                                                Address loss, Address dx, int threads) {
    nb::gil_scoped_release free;
    dense<V>().cross_entropy(at<const V>(x), at<const int64_t>(label), count, width, V(scale), at<V>(loss), at<V>(dx),
                             threads);
  });
}

template <class I>
void bind_csr(nb::module_& m, const std::string& suffix) {
  m.def(("transpose_" + suffix).c_str(), [](int64_t rows, int64_t columns, Address indptr, Address indices,
                                            Address t_indptr, Address t_indices, Address permutation) {
    nb::gil_scoped_release free;
    weft::transpose(rows, columns, at<const int64_t>(indptr), at<const I>(indices), at<int64_t>(t_indptr),
                    at<I>(t_indices), at<int64_t>(permutation));
  });
  m.def(("sample_counts_" + suffix).c_str(), [](Address indptr, Address rows, int64_t count, int64_t fanout,
                                                bool replace, bool loops, Address out) {
    nb::gil_scoped_release free;
    return weft::sample_counts(at<const int64_t>(indptr), at<const I>(rows), count, fanout, replace, loops,
                               at<int64_t>(out));
  });
  m.def(("sample_rows_" + suffix).c_str(),
        [](Address indptr, Address indices, Address rows, Address vertex, int64_t count, int64_t fanout,
           bool replace, bool loops, uint64_t key, Address out, Address picked, Address arcs, int threads) {
          nb::gil_scoped_release free;
          weft::sample_rows<I>({at<const int64_t>(indptr), at<const I>(indices), at<const I>(rows),
                                at<const I>(vertex), count, fanout, replace, loops, key, at<const int64_t>(out),
                                at<I>(picked), at<int64_t>(arcs)},
                               threads);
        });
  m.def(("sample_block_" + suffix).c_str(),
        [](Address indptr, Address indices, Address rows, int64_t count, int64_t fanout, bool replace,
           bool loops, uint64_t key, Address out, Address picked, Address arcs, int64_t n, Address place,
           Address sources, Address local, int threads) {
          nb::gil_scoped_release free;
          return weft::sample_block<I>({at<const int64_t>(indptr), at<const I>(indices), at<const I>(rows),
                                        at<const I>(rows), count, fanout, replace, loops, key,
                                        at<const int64_t>(out), at<I>(picked), at<int64_t>(arcs)},
                                       n, at<I>(place), at<I>(sources), at<I>(local), threads);
        });
  m.def(("relabel_" + suffix).c_str(), [](Address targets, int64_t count, Address picked, int64_t arcs,
                                          int64_t n, Address place, Address sources, Address local) {
    nb::gil_scoped_release free;
    return weft::relabel(at<const I>(targets), count, at<const I>(picked), arcs, n, at<I>(place),
                         at<I>(sources), at<I>(local));
  });
}

}  // namespace

NB_MODULE(_native, m) {
  m.doc() = "weft's kernels in C++: raw buffers, no torch.";
  m.def("isa", [] { return std::string(isa().name); });
  m.def("isas", [] {
    nb::list names;
    for (const char* name : {"avx512", "avx2", "baseline"})
      if (runs_here(name)) names.append(name);
    return names;
  });
  m.def("name_bus_errors", &weft::name_bus_errors);
  m.def("refine", [](int64_t n, int64_t columns, int64_t parts, Address starts, Address nets, Address home,
                     Address weights, int64_t most, int64_t send, int64_t receive, double excess,
                     double message, int64_t passes, uint64_t seed, Address owner, Address change) {
    nb::gil_scoped_release free;
    return weft::refine({n, columns, parts, at<const int64_t>(starts), at<const int32_t>(nets),
                         at<const int32_t>(home), at<const int64_t>(weights), most, send, receive, excess,
                         message, passes, seed, at<int32_t>(owner), at<double>(change)});
  });
  m.def("join", [](int64_t n, int64_t columns, Address starts, Address nets, Address weights, Address owner,
                   int64_t most, uint64_t seed, Address label) {
    nb::gil_scoped_release free;
    return weft::join({n, columns, at<const int64_t>(starts), at<const int32_t>(nets),
                       at<const int64_t>(weights), at<const int32_t>(owner), most, seed, at<int32_t>(label)});
  });
  m.def("pool", [] { return std::string(weft::pool_name()); });
  nb::class_<Scores>(m, "Scores")
      .def(nb::init<>())
      .def_rw("kind", &Scores::kind)
      .def_rw("heads", &Scores::heads)
      .def_rw("given", &Scores::given)
      .def_rw("permutation", &Scores::permutation)
      .def_rw("row", &Scores::row)
      .def_rw("row_stride", &Scores::row_stride)
      .def_rw("column", &Scores::column)
      .def_rw("inner", &Scores::inner)
      .def_rw("bias", &Scores::bias)
      .def_rw("raw", &Scores::raw)
      .def_rw("extra", &Scores::extra)
      .def_rw("mix", &Scores::mix)
      .def_rw("features", &Scores::features)
      .def_rw("weight", &Scores::weight)
      .def_rw("feature_width", &Scores::feature_width)
      .def_rw("signs", &Scores::signs)
      .def_rw("signs_end", &Scores::signs_end)
      .def_rw("gain", &Scores::gain)
      .def_rw("row_gain", &Scores::row_gain)
      .def_rw("slope", &Scores::slope)
      .def_rw("softmax", &Scores::softmax)
      .def_rw("threshold", &Scores::threshold)
      .def_rw("scale", &Scores::scale)
      .def_rw("key", &Scores::key)
      .def_rw("row_names", &Scores::row_names)
      .def_rw("column_names", &Scores::column_names);
  nb::class_<Channels>(m, "Channels")
      .def(nb::init<>())
      .def_rw("row", &Channels::row)
      .def_rw("column", &Channels::column)
      .def_rw("features", &Channels::features)
      .def_rw("weight", &Channels::weight)
      .def_rw("inner", &Channels::inner)
      .def_rw("permutation", &Channels::permutation);
  bind_sparse<float, int32_t>(m, "f32_i32");
  bind_sparse<float, int64_t>(m, "f32_i64");
  bind_sparse<double, int32_t>(m, "f64_i32");
  bind_sparse<double, int64_t>(m, "f64_i64");
  bind_dense<float>(m, "f32");
  bind_dense<double>(m, "f64");
  bind_csr<int32_t>(m, "i32");
  bind_csr<int64_t>(m, "i64");
  bind_stream(m);
  bind_cut(m);
  bind_passes(m);
}
