from __future__ import annotations

import threading

import torch

from weft.kernels import linear
from weft.meter import Meter, metered

from .kernels.matrices import random_csr


def test_work_is_counted_by_kind_while_the_meter_is_open():
    a, x = random_csr(5, 5, 0.5, seed=0, dtype=torch.float32), torch.ones(5, 3)
    with Meter() as meter:
        a @ linear(x, torch.ones(3, 3))
        a @ x
    a @ x
    assert [kind for kind, _, _ in meter.events] == ["dense", "spmm", "spmm"]
    assert meter.seconds.keys() == {"dense", "spmm"}


def test_an_inner_meter_counts_beside_the_outer_one():
    work = metered("work")(lambda: None)
    with Meter() as outer:
        work()
        with Meter() as inner:
            work()
    assert (len(outer.events), len(inner.events)) == (2, 1)


def test_another_threads_work_is_not_counted():
    work = metered("work")(lambda: None)
    with Meter() as meter:
        other = threading.Thread(target=work)
        other.start()
        other.join()
    assert not meter.events
