"""The check of memory: a machine's share of the work against its memory."""

from __future__ import annotations

import pytest

from weft.comm import run_ranks
from weft.errors import UserError
from weft.graph import guard
from weft.train import Trainer
from weft.train.links import need_of_links
from weft.train.need import Need
from weft.train.tasks import TASKS, check_task

from .graphs import config, small


def test_rows_are_shared_by_all_ranks_and_weights_are_on_each():
    assert Need(shared=1000, each=7, what="").on_host(ranks=1, hosts=1) == 1007
    assert Need(shared=1000, each=7, what="").on_host(ranks=4, hosts=1) == 1028
    assert Need(shared=1000, each=7, what="").on_host(ranks=4, hosts=4) == 257
    assert Need(shared=1000, each=7, what="").on_host(ranks=5, hosts=2) == 621  # three on the fuller one


@pytest.mark.parametrize("task", ["node", "link"])
def test_what_one_machine_has_no_room_for_several_have(task, monkeypatch):
    graph, settings = small(), config(task=task, model_hidden=20000)
    if task == "link":
        need = need_of_links(graph, settings)
        monkeypatch.setitem(TASKS, "link", TASKS["link"].__class__(
            TASKS["link"].make, lambda *_: None, need=need_of_links
        ))  # fmt: skip
    else:
        need = TASKS["node"].need(graph, settings)
    monkeypatch.setattr(guard, "free_bytes", lambda: need.on_host(8, 4))
    check_task(graph, settings, ranks=8, hosts=4)
    with pytest.raises(UserError, match=r"on each of 2 hosts: .* GB needed.*Use more hosts"):
        check_task(graph, settings, ranks=8, hosts=2)
    with pytest.raises(UserError, match=r"vertices: .* GB needed.*Use more hosts"):
        check_task(graph, settings, ranks=8)


def test_virtual_ranks_are_on_one_machine(monkeypatch):
    graph, settings = small(), config(model_hidden=20000)
    need = TASKS["node"].need(graph, settings)
    monkeypatch.setattr(guard, "free_bytes", lambda: need.on_host(1, 1) - 1)
    with pytest.raises(UserError, match="Use more hosts"):
        run_ranks(lambda comm: Trainer(graph, settings, comm), 2, "threads")
