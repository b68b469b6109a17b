"""Every conv of PyG, unmodified, on virtual ranks: exact, or refused by its name; none silently different."""

from __future__ import annotations

import warnings
from pathlib import Path

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


def test_the_readme_counts_them():
    whole = {label for label, _, _ in CASES if not any(label.startswith(start) for start in REFUSED)}
    exact = {label.split("(")[0] for label in whole}
    never = {label.split("(")[0] for label, _, _ in CASES} - exact
    text = " ".join((Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8").split())
    assert f"{len(conv.__all__)} names in `torch_geometric.nn.conv`" in text
    assert f"{len(exact)} are exact to 1e-10 in {len(whole)} cases of their options" in text
    assert f"{len(never)} are refused ({', '.join(sorted(never))}), {len(ABSENT)} need packages" in text


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


SOME = (
    "GCNConv(improved", "GATConv(heads=2, edge_dim=3", "GATv2Conv(heads=2", "TransformerConv(heads=2, concat",
    "SAGEConv(aggr=max) plain", "EdgeConv() plain", "GINConv(batch norm", "ChebConv(normalization=rw",
)  # fmt: skip
"""Layers that weft's kernels do, and others; data of arcs, norms over all rows."""


@pytest.mark.parametrize(("grid", "count"), [("2x1x2", 4), ("1x1x3", 3), ("2x2x2", 8)])
@pytest.mark.parametrize("start", SOME)
def test_on_a_grid_with_a_feature_axis_a_conv_is_that_of_one_process(start, grid, count):
    _, make, call = next(case for case in CASES if case[0].startswith(start))
    torch.manual_seed(1)
    assert worst(make(), call, count=count, grid=grid) < TOLERANCE


def test_a_difference_is_noticed():
    """The comparison is no tautology: one weight that differs by a millionth is seen."""
    _, make, call = CASES[0]
    model = make()

    def spoiled(model, data):
        out = call(model, data)
        return out if data.x.shape[0] == 23 else out * (1 + 1e-6)

    assert worst(model, spoiled) > TOLERANCE
