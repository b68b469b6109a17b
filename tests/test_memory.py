from __future__ import annotations

import gc
import os
import subprocess
import sys

import pytest
import torch

from weft.kernels import Stream, linear, relu_dropout_, spmm
from weft.memory import Pool, empty, pool

from .kernels.matrices import random_csr


def test_a_block_is_used_again_after_the_last_reference_dies():
    pool = Pool()
    a = pool.empty((512, 1024), torch.float32)
    a.fill_(7)
    row = a[3]
    address = a.data_ptr()
    del a
    assert pool.empty((512, 1024), torch.float32).data_ptr() != address  # `row` still holds it
    assert float(row.sum()) == 7 * 1024
    del row
    assert pool.blocks == 2
    both = [pool.empty((512, 1024), torch.float32) for _ in range(2)]
    assert {b.data_ptr() for b in both} >= {address}
    assert pool.blocks == 2
    del both
    pool.trim()
    assert (pool.blocks, pool.bytes) == (0, 0)


def test_tensors_alive_at_once_never_share_memory():
    pool = Pool()
    tensors = [pool.empty((300, 1000), torch.float64).fill_(k) for k in range(5)]
    del tensors[1], tensors[2]
    tensors += [pool.empty((300, 1000), torch.float64).fill_(k) for k in (8, 9)]
    assert [float(t.mean()) for t in tensors] == [0, 2, 4, 8, 9]
    assert pool.blocks == 5


def test_a_much_smaller_request_does_not_waste_a_block():
    pool = Pool()
    pool.empty((4, 1 << 20), torch.float32)
    pool.empty((1 << 20,), torch.float32)
    assert pool.blocks == 2


def test_a_block_may_come_back_while_another_is_taken():
    """The collector of cycles runs where it likes, also inside the pool."""
    pool = Pool()
    with pool._lock:
        assert pool._lock.acquire(blocking=False)
        pool._lock.release()


def test_two_gradients_of_one_tensor_are_added_up_in_the_pools_memory():
    made = []

    class Ones(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.shape = x.shape
            return x.sum()

        @staticmethod
        def backward(ctx, dy):
            dx = empty(*ctx.shape, like=dy).fill_(1)
            made.append(dx.data_ptr())
            return dx

    x = torch.zeros(512, 1024, requires_grad=True)
    (grad,) = torch.autograd.grad(Ones.apply(x) + Ones.apply(x), x)
    assert bool((grad == 2).all())
    assert grad.data_ptr() in made  # not in new memory, whose pages would have to be mapped first


def test_large_tensors_train_like_small_ones_and_later_epochs_allocate_nothing():
    a = random_csr(4000, 4000, 0.002, seed=0, dtype=torch.float32)
    w = torch.randn(96, 96, requires_grad=True)
    x = torch.randn(4000, 96)
    assert x.nbytes > 1 << 20  # large enough for the pool

    def step() -> torch.Tensor:
        h = relu_dropout_(a @ linear(x, w), 0.5, Stream(0, 0, 1))
        y = spmm(a, linear(h, w))
        (g,) = torch.autograd.grad(y.square().sum(), w)
        return g

    first = step()
    gc.collect()
    blocks = pool.blocks
    assert torch.equal(step(), first)
    assert pool.blocks == blocks
    keep = relu_dropout_(torch.ones(4000, 96), 0.5, Stream(0, 0, 1)) > 0
    dense = a.dense()
    h = (dense @ x @ w).relu() * keep * 2
    (wanted,) = torch.autograd.grad((dense @ h @ w).square().sum(), w)
    torch.testing.assert_close(first, wanted, rtol=1e-3, atol=1e-3 * float(wanted.abs().max()))


def test_small_tensors_come_from_torch():
    assert empty(3, 4, like=torch.ones(1, dtype=torch.float64)).dtype == torch.float64


@pytest.mark.parametrize(("said", "found"), [(None, "1"), ("0", "0")])
def test_torch_is_asked_for_huge_pages_unless_told_otherwise(said, found):
    place = {key: value for key, value in os.environ.items() if key != "THP_MEM_ALLOC_ENABLE"}
    place |= {} if said is None else {"THP_MEM_ALLOC_ENABLE": said}
    code = "import weft, os; print(os.environ['THP_MEM_ALLOC_ENABLE'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=place, check=True)
    assert done.stdout.strip() == found
