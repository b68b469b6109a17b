"""Files of torch.save, and OGB's link sets that are made of them; nothing in them is obeyed."""

from __future__ import annotations

import gzip
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from weft.errors import UserError
from weft.graph import load
from weft.graph.readers.torch_file import read_torch


def test_arrays_and_tensors_come_out_as_they_went_in():
    array, tensor = np.arange(6).reshape(3, 2), torch.arange(8.0).reshape(2, 4)
    torch.save({"edge": array, "weight": tensor, "part": tensor[1], "year": 1999}, "a.pt")
    found = read_torch("a.pt")
    assert found.keys() == {"edge", "weight", "part"}
    assert found["edge"].tolist() == array.tolist()
    assert found["weight"].tolist() == tensor.tolist()
    assert found["part"].tolist() == [4, 5, 6, 7]


def test_the_form_before_torch_1_6_is_read_too():
    torch.save({"edge": np.arange(4).reshape(2, 2)}, "a.pt", _use_new_zipfile_serialization=False)
    assert read_torch("a.pt")["edge"].tolist() == [[0, 1], [2, 3]]


class Evil:
    def __reduce__(self):
        return os.mkdir, ("made",)


def test_a_pickle_that_wants_to_run_something_is_refused_and_damage_is_one_line():
    torch.save({"edge": Evil()}, "evil.pt")
    with pytest.raises(UserError, match=r"evil\.pt: the pickle asks for the forbidden class posix\.mkdir"):
        read_torch("evil.pt")
    assert not Path("made").exists()
    torch.save({"edge": torch.arange(900)}, "a.pt")
    whole = Path("a.pt").read_bytes()
    for damaged in (whole[:700], b"", pickle.dumps(3), b"\x80\x02" + whole[:50]):
        Path("b.pt").write_bytes(damaged)
        with pytest.raises(UserError, match=r"b\.pt"):
            read_torch("b.pt")
    torch.save([1], "list.pt")
    with pytest.raises(UserError, match="holds no table of arrays"):
        read_torch("list.pt")
    torch.save({"edge": torch.arange(6).reshape(2, 3).T}, "turned.pt")
    with pytest.raises(UserError, match="does not lie in order"):
        read_torch("turned.pt")


def test_a_link_set_of_ogb_is_loaded_with_its_pairs():
    for part in ("raw", "split/target"):
        Path("ogbl-ddi", part).mkdir(parents=True)
    for name, text in (("edge", "0,1\n1,2\n3,0\n"), ("num-node-list", "5\n"), ("num-edge-list", "3\n")):
        Path(f"ogbl-ddi/raw/{name}.csv.gz").write_bytes(gzip.compress(text.encode()))
    for name, shift in (("train", 0), ("valid", 1), ("test", 2)):
        pairs = np.array([[0, 2], [1, 2]]) + (shift if shift < 3 else 0)
        torch.save({"edge": pairs % 5, "edge_neg": (pairs + 1) % 5}, f"ogbl-ddi/split/target/{name}.pt")
    graph = load("ogbl-ddi")
    assert (graph.num_nodes, graph.num_arcs, graph.is_symmetric) == (5, 6, True)
    assert graph.val_pairs.tolist() == [[1, 3], [2, 3]]
    assert graph.test_negatives.tolist() == [[3, 0], [4, 0]]
    torch.save({"source_node": np.arange(3)}, "ogbl-ddi/split/target/test.pt")
    with pytest.raises(UserError, match=r"target/test\.pt: edge is not a list of pairs"):
        load("ogbl-ddi")
