"""What is done row by row, by every rank with its own: elementwise functions, casts, new tensors.

y[k] = f(x[k], z[k], w)      x, z of one space in the same dim; w the same on every rank
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .call import Call, counts, named, names_of, positive, put, rule
from .naming import shifted
from .space import Count, Names, Space, Tag, everywhere, set_tag, tag_of

UNARY = named(
    "abs neg negative pos positive exp exp2 expm1 log log1p log2 log10 sqrt rsqrt square reciprocal "
    "sigmoid tanh relu relu6 leaky_relu elu selu celu gelu silu mish softplus softsign hardtanh "
    "hardswish hardsigmoid logsigmoid threshold tanhshrink softshrink hardshrink sin cos tan asin acos "
    "atan sinh cosh sign sgn floor ceil round trunc frac clamp clamp_min clamp_max clip isnan isinf "
    "isfinite logical_not bitwise_not invert nan_to_num erf erfc erfinv lgamma digamma double half "
    "bfloat16 fill zero real  zeros_like ones_like empty_like full_like"
)
BINARY = named(
    "add sub subtract mul multiply div divide true_divide truediv floor_divide floordiv remainder fmod "
    "mod pow radd rsub rmul rdiv rtruediv rfloordiv rpow rmod iadd isub imul itruediv idiv ifloordiv "
    "ipow maximum minimum fmax fmin where masked_fill logical_and logical_or logical_xor and or xor ror "
    "rxor iand ior ixor bitwise_and bitwise_or bitwise_xor atan2 lerp addcmul addcdiv hypot xlogy "
    "copysign copy"
)
COMPARISONS = named("eq ne lt le gt ge equal less greater less_equal greater_equal not_equal")
KEEPING = named("data.get clone detach contiguous to long type type_as cpu cuda requires_grad alias")
"""What leaves values as they are: names stay names."""
ABOUT = named(
    "dim ndim ndim.get ndimension dtype.get device.get layout.get requires_grad.get is_leaf.get "
    "grad_fn.get stride is_contiguous is_floating_point is_complex is_sparse.get is_cuda.get is_cpu.get "
    "is_meta.get is_mps.get is_quantized.get is_nested.get is_mkldnn.get is_xpu.get is_mtia.get "
    "is_sparse_csr.get is_inference get_device element_size data_ptr version.get output_nr.get "
    "names.get has_names retain_grad retains_grad.get requires_grad.set grad.set register_hook "
    "register_post_accumulate_grad_hook repr format untyped_storage is_signed is_pinned is_shared "
    "result_type hash storage_offset is_same_size is_conj is_neg is_tensor is_storage set_grad_enabled "
    "is_xla.get is_hpu.get is_vulkan.get is_ipu.get itemsize.get nbytes.get backward_hooks.get"
)
"""Questions that every rank answers for itself."""


@rule(*ABOUT)
def about(call: Call) -> Any:
    return call.run()


@rule(*KEEPING)
def keep(call: Call) -> Any:
    tag = tag_of(call.x)
    return call.run() if tag is None else put(call.run(), tag)


@rule("deepcopy")
def deepcopy(call: Call) -> Any:
    x = call.x
    return put(x.detach().clone().requires_grad_(x.requires_grad), tag_of(x))


@rule("grad.get")
def gradient(call: Call) -> Any:
    found, tag = call.run(), tag_of(call.x)
    return found if found is None or tag is None else put(found, Tag(tag.space, tag.dim))


@rule(*UNARY, *BINARY)
def elementwise(call: Call) -> Any:
    if call.name in ("add", "iadd", "radd") and (moved := shifted(call)) is not None:
        return moved
    call.no_names()
    if call.name == "where" and len(call.args) + len(call.kwargs) == 1:
        raise call.refuse("of a mask alone is not there. Use mask.nonzero()")
    return _by_row(call)


def _by_row(call: Call) -> Any:
    # Numbers of rows become those of all ranks: what they are where one computes with them.
    args, kwargs = tuple(map(everywhere, call.args)), {k: everywhere(v) for k, v in call.kwargs.items()}
    if "out" in kwargs:
        raise call.refuse("is given `out`. Use its result")
    tag = broadcast_tag(call, max(t.dim() for t in call.tensors()))
    return put(call.func(*args, **kwargs), tag)


def broadcast_tag(call: Call, dims: int) -> Tag | None:
    """The tag of what tensors broadcast to: their rows, counted from the last dim, must be the same dim."""
    found = [(t.dim() - tag.dim, tag.space) for t, tag in call.tagged()]
    if not found:
        return None
    if len({back for back, _ in found}) > 1:
        raise call.refuse("mixes tensors whose rows are spread over ranks in different dims")
    back, space = found[0][0], call.one_space([space for _, space in found])
    for t in call.tensors():
        if tag_of(t) is None and t.dim() >= back and t.shape[t.dim() - back] not in (1, space.size):
            raise call.refuse(
                f"mixes rows of {space} with {t.shape[t.dim() - back]} rows that are not spread"
            )
    return Tag(space, dims - back)


@rule(*COMPARISONS)
def compare(call: Call) -> Any:
    """Names are compared as what they name, so that `row < col` asks for vertex numbers."""
    if call.name == "equal" and call.tagged():
        raise call.refuse("asks whether all rows are equal. Use (a == b).all()")
    tagged = call.tagged()
    if all(tag.names is None for _, tag in tagged):
        return _by_row(call)
    if any(names_of(tag) is None for _, tag in tagged) or len(tagged) < 2:
        raise call.refuse("compares vertex numbers of edge_index with numbers that are no vertices'")
    found = [names for _, tag in tagged if (names := names_of(tag)) is not None]
    alike = len({id(n.space) for n in found}) == 1 and len({id(n.halo) for n in found if n.halo}) < 2
    args = call.args
    if not (alike and call.name in ("eq", "ne")):  # names of one space are the same where vertices are
        args = tuple(t if (n := names_of(tag_of(t))) is None else n.numbers(t) for t in args)
    return put(call.func(*args, **call.kwargs), broadcast_tag(call, args[0].dim()))


@rule("isin")
def isin(call: Call) -> Any:
    call.no_names()
    if tag_of(call.get(1, "test_elements")) is not None:
        raise call.refuse("looks among rows that are spread over ranks")
    return put(call.run(), tag_of(call.x))


NEW = named("zeros ones empty full new_zeros new_ones new_empty new_full")


@rule(*NEW)
def new(call: Call) -> Any:
    """A number of rows in the shape makes rows."""
    rest = call.args[1:] if call.name.startswith("new_") else call.args
    shape = rest[0] if rest and isinstance(rest[0], (tuple, list)) else rest
    if not shape:
        shape = call.kwargs.get("size", ())
        shape = shape if isinstance(shape, (tuple, list)) else (shape,)
    return put(call.run(), tag_of_shape(call, shape))


def tag_of_shape(call: Call, shape: Any) -> Tag | None:
    """The tag that a shape asks for, by the number of rows in it."""
    found = [(dim, size) for dim, size in enumerate(shape) if isinstance(size, Count) and size.space]
    if not found:
        return None
    if len(found) > 1:
        raise call.refuse("makes a tensor with two dims that are spread over ranks")
    dim, size = found[0]
    assert size.space is not None
    return Tag(size.space.times(size.each), dim)


@rule("arange")
def arange(call: Call) -> Any:
    """0 … n_own − 1 are the names of own rows."""
    bounds = [a for a in call.args if isinstance(a, int)] + [
        call.kwargs[k] for k in ("start", "end", "step") if k in call.kwargs
    ]
    if (known := numbered(call, bounds)) is not None:
        bounds = [Count(known) if b == known.size and not isinstance(b, Count) else b for b in bounds]
    end = [b for b in bounds if isinstance(b, Count)]
    if not any(b.space for b in end):
        return call.run()
    if len(end) != 1 or any(b not in (0, 1) for b in bounds if b is not end[0]) or end[0].each != 1:
        raise call.refuse("counts rows that are spread over ranks in a way that is not known")
    space = end[0].space
    assert space is not None
    return put(call.run(), Tag(space, 0, Names(space)))


def numbered(call: Call, sizes: Any) -> Space | None:
    """The space whose number of rows was read off an edge_index, and stands here as a plain number."""
    if any(True for _ in counts(sizes)):
        return None
    flat = [s for size in sizes for s in (size if isinstance(size, (tuple, list)) else (size,))]
    return next((space for space in call.home.numbered if space.size > 1 and space.size in flat), None)


RANDOM = named(
    "rand randn randint randperm normal multinomial bernoulli poisson rand_like randn_like randint_like "
    "uniform exponential random geometric cauchy log_normal alpha_dropout feature_alpha_dropout "
    "dropout1d dropout2d dropout3d gumbel_softmax rrelu"
)


@rule(*RANDOM)
def random(call: Call) -> Any:
    given = (*call.args, *call.kwargs.values())
    sizes = [a for a in given if isinstance(a, (int, tuple, list)) and not isinstance(a, bool)]
    if call.tagged() or any(True for _ in counts(given)) or numbered(call, sizes) is not None:
        raise call.refuse("draws random numbers by row, and they would depend on the number of ranks")
    return call.run()


ALONG = named(
    "softmax log_softmax softmin normalize argsort cumsum cumprod logcumsumexp cummax cummin sort topk "
    "kthvalue flip roll diff glu cosine_similarity argmax argmin median mode"
)
_DEFAULT = {
    "normalize": 1, "cosine_similarity": 1, "flip": 0,
    **dict.fromkeys(named("roll argmax argmin median softmax log_softmax softmin")),
}  # fmt: skip
"""Dims that are not named: not the last one; None: all, or one that torch guesses."""
_PLACE = {
    "normalize": (2, "dim"), "cosine_similarity": (2, "dim"), "topk": (2, "dim"), "kthvalue": (2, "dim"),
    "flip": (1, "dims"), "roll": (2, "dims"), "diff": (2, "dim"),
}  # fmt: skip


@rule(*ALONG)
def along(call: Call) -> Any:
    """What looks along a dim is local where that is not the dim of the rows."""
    name, tag = call.name, tag_of(call.x)
    if tag is None or (name != "cosine_similarity" and len(call.tagged()) > 1):
        raise call.refuse("is given rows in a way that is not known")
    place, word = _PLACE.get(name, (1, "dim"))
    dim = call.get(place, word, _DEFAULT.get(name, -1))
    if name == "flip" and len(call.args) > 2:
        dim = call.args[1:]
    dims = [dim] if isinstance(dim, int) else dim
    if dims is None or tag.dim in [positive(d, call.x.dim()) for d in dims]:
        raise call.refuse(f"goes along rows of {tag.space}, which are spread over ranks")
    if isinstance(tag.names, tuple) and name == "flip":  # the arcs turned round: where they are, they stay
        return put(call.run(), Tag(tag.space, tag.dim, (tag.names[1], tag.names[0])))
    call.no_names()
    out = call.run()
    first = out if isinstance(out, Tensor) else out[0]
    gone = first.dim() < call.x.dim() and positive(dims[0], call.x.dim()) < tag.dim
    return put(out, Tag(tag.space, tag.dim - gone))


@rule("one_hot")
def one_hot(call: Call) -> Any:
    call.no_names()
    tag, classes = tag_of(call.x), call.get(1, "num_classes", -1)
    if tag is None:
        return call.run()
    if classes == -1:
        most = torch.stack([call.x.max() if call.x.numel() else call.x.new_tensor(-1)])
        classes = int(call.comm.all_reduce(most, "max", phase="sum")) + 1
    return put(torch.nn.functional.one_hot(call.x, classes), Tag(tag.space, tag.dim))


@rule("pad")
def pad(call: Call) -> Any:
    tag, widths = tag_of(call.x), call.get(1, "pad")
    if tag is None or len(widths) // 2 >= call.x.dim() - tag.dim:
        raise call.refuse("adds rows to those that are spread over ranks")
    call.no_names()
    return put(call.run(), Tag(tag.space, tag.dim))


def adopt(x: Tensor, space: Space, dim: int) -> None:
    """x of this many rows is found to be rows of the space."""
    if tag_of(x) is None and x.shape[dim] == space.size:
        set_tag(x, Tag(space, dim))
