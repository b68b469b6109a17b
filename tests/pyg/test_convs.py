"""Every conv of PyG, unmodified, on virtual ranks: exact, or refused by its name; none silently different."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch_geometric.nn.conv as conv

from weft.pyg import Refused

from .compare import TOLERANCE, worst
from .convs import ABSENT, CASES, Case

REFUSED = {
    "SAGEConv(aggr=median) plain": "MedianAggregation",
    "SAGEConv(aggr=lstm) in_order": "LSTMAggregation",
    "SAGEConv(aggr=max, flow=target_to_source) plain": "MaxAggregation",
    "SuperGATConv(heads=2, attention_type=MX) plain": "SuperGATConv",
    "RGATConv(num_relations=3, num_bases=2, attention_mechanism=within-relation)": "RGATConv",
    "GPSConv": "GPSConv",
    "WLConv()": "WLConv",
    "MeshCNNConv": "MeshCNNConv",
}
"""Start of a case's label → the module that the refusal names."""


def test_every_conv_of_this_pyg_is_a_case_or_cannot_be_made_here():
    tried = {label.split("(")[0] for label, _, _ in CASES}
    assert set(conv.__all__) == tried | ABSENT.keys()
    assert not tried & ABSENT.keys()


@pytest.mark.parametrize("case", CASES, ids=[label for label, _, _ in CASES])
def test_a_conv_on_ranks_is_that_of_one_process_or_refused(case: Case):
    label, make, call = case
    torch.manual_seed(1)
    refused = next((module for start, module in REFUSED.items() if label.startswith(start)), None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyG's own, of options it gives up
        model = make()
        if refused is not None:
            with pytest.raises(Refused, match=refused):
                worst(model, call)
        else:
            assert worst(model, call) < TOLERANCE


@pytest.mark.parametrize("partition", ["block", "metis"])
def test_any_partition_will_do_also_with_a_rank_that_owns_next_to_nothing(partition):
    _, make, call = next(case for case in CASES if case[0].startswith("GATConv(heads=3)"))
    assert worst(make(), call, partition=partition, count=5) < TOLERANCE


def test_a_difference_is_noticed():
    """The comparison is no tautology: one weight that differs by a millionth is seen."""
    _, make, call = CASES[0]
    model = make()

    def spoiled(model, data):
        out = call(model, data)
        return out if data.x.shape[0] == 23 else out * (1 + 1e-6)

    assert worst(model, spoiled) > TOLERANCE
