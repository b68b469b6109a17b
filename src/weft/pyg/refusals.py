"""Modules of PyG that need what no rank has, and why: said beside the function that was refused."""

REASONS = {
    "GPSConv": "GPSConv attends between all pairs of vertices.",
    "PANConv": "PANConv multiplies the adjacency with itself.",
    "WLConv": "WLConv numbers colours in the order in which one process meets them.",
    "DynamicEdgeConv": "DynamicEdgeConv looks for nearest neighbours among all vertices.",
    "GravNetConv": "GravNetConv looks for nearest neighbours among all vertices.",
    "XConv": "XConv looks for nearest neighbours among all vertices.",
    "RGATConv": "Within a relation, RGATConv takes the last vertex with an arc for the last one.",
    "SuperGATConv": "SuperGATConv draws pairs that are no arcs while it trains; in eval() it runs.",
    "MedianAggregation": "A median sorts messages.",
    "MaxAggregation": "With flow=target_to_source a maximum is taken on other ranks.",
    "LSTMAggregation": "An LSTM over neighbours pads to the largest degree of all ranks.",
}
"""Class → one sentence. A module that is not here is refused too, by the function that it calls."""
