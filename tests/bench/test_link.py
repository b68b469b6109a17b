from __future__ import annotations

from weft.bench.link import bench_link
from weft.graph import hold_out, load
from weft.train import RunConfig


def test_mini_batches_are_what_is_benchmarked_where_they_are_asked_for():
    config = RunConfig()
    config.train.task, config.train.epochs, config.link.hits, config.model.hidden = "link", 2, 3, 4
    config.model.name, config.parallel.ranks = "sage", 1
    (whole,) = bench_link(lambda _: hold_out(load("karate")), config, 1)
    config.batch.batch_size, config.batch.fanouts = 5, "1,1"
    (sampled,) = bench_link(lambda _: hold_out(load("karate")), config, 1)
    assert whole["test_auc"] != sampled["test_auc"]
