"""`--strategy auto`: what is taken, kept, refused; and what is said when a forecast was off."""

from __future__ import annotations

import dataclasses
import json
import socket
from pathlib import Path

import pytest

from weft.cli import main
from weft.cli.train import is_open
from weft.comm.launch import host_cores
from weft.errors import UserError
from weft.graph import load, write_store
from weft.partition import partition_for_grid
from weft.planner.choose import check_memory, choose, link_doubts, machine_of, off_by, this_profile
from weft.planner.cost import Machine
from weft.planner.cuts import Shape
from weft.planner.default import default_profile
from weft.planner.plan import plan
from weft.planner.profile import Link, path_of, write_profile
from weft.train.config import RunConfig, load_toml
from weft.units import spell_bytes

from .test_foretell import directed, settings


def test_the_choice_is_the_plan_s_best_and_the_same_again():
    graph = directed()
    configs = [settings("gcn", strategy="auto") for _ in range(2)]
    choices = [choose(config, graph, 4) for config in configs]
    assert choices[0] == choices[1]
    options = configs[0].parallel
    assert options.strategy != "auto"
    machine = Machine(default_profile(), 4, threads=1)
    best = plan(Shape.of(graph), settings("gcn"), machine, ["random"]).best
    assert (options.strategy, options.exchange) == (best.candidate.strategy, best.candidate.exchange)
    assert choices[0].seconds == pytest.approx(best.seconds)
    assert choices[0].lines[0].startswith(f"strategy  {best.candidate}")
    assert "no machine profile" in choices[0].lines[1]


def test_an_exchange_that_was_asked_for_stays_and_a_grid_is_refused():
    config = settings("gcn", strategy="auto", exchange="sparse")
    choose(config, directed(), 4)
    assert config.parallel.exchange == "sparse"
    with pytest.raises(UserError, match=r"chooses the grid itself\. Leave out --grid"):
        choose(settings("gcn", strategy="auto", grid="2x2"), directed(), 4)
    with pytest.raises(UserError, match="Leave out --move-adjacency"):
        choose(settings("gcn", strategy="auto", move_adjacency=True), directed(), 4)


def test_one_rank_and_batches_and_inference_need_no_plan():
    config = settings("gcn", strategy="auto")
    assert choose(config, directed(), 1).lines == []
    assert config.parallel.strategy == "1d"
    config = settings("gcn", strategy="auto")
    config.batch.batch_size = 10
    assert choose(config, directed(), 3).lines == ["strategy  1d: batches read rows by their feed"]
    config = settings("gcn", strategy="auto", exchange="sparse")
    assert choose(config, directed(), 3, trains=False).lines == ["strategy  halo: one pass over the graph"]


def test_what_fits_nowhere_is_refused_with_the_number_and_the_remedy():
    shape = Shape(50_000_000, 10**9, 128, 40)
    found = plan(shape, settings("gcn"), Machine(default_profile(), 4, memory_bytes=24 << 30), ["random"])
    with pytest.raises(UserError) as error:
        check_memory(found)
    text = str(error.value)
    assert f"needs {spell_bytes(found.best.bytes)} a rank, 6.44 GB are here" in text
    hosts = -(-found.best.bytes * 4 // (24 << 30))
    assert f"about {hosts} hosts as this" in text
    assert hosts > 1
    roomy = plan(
        shape, settings("gcn"), Machine(default_profile(), 4, hosts=4, memory_bytes=1 << 40), ["random"]
    )
    check_memory(roomy)


def test_a_profile_of_another_machine_is_used_and_doubted():
    write_profile(default_profile(), path_of())
    profile, doubts = this_profile()
    assert profile == default_profile()
    assert "of host default" in doubts
    path_of().write_text("{}")
    with pytest.raises(UserError, match="is no profile: weft_profile is missing"):
        this_profile()


def test_what_is_wrong_with_a_profile_is_said_unasked_and_stops_nobody_who_did_not_ask():
    def lines(asked: bool = False) -> tuple[list[str], float]:
        choice = choose(settings("gcn", strategy="auto"), directed(), 4, asked=asked)
        return choice.lines[1:], choice.seconds

    assert lines() == ([], 0.0)  # there is none, and nobody asked
    foreign = default_profile()
    write_profile(foreign, path_of())
    told, seconds = lines()
    assert told == [f"profile   {foreign.doubts()}"]
    assert seconds == 0.0
    here = dataclasses.replace(foreign, host=socket.gethostname(), cores=len(host_cores()), date="2001-01-01")
    write_profile(here, path_of())
    assert "days old. Use: weft calibrate" in lines()[0][0]
    write_profile(dataclasses.replace(here, date="2999-01-01"), path_of())
    assert lines()[0] == []
    assert lines()[1] > 0
    path_of().write_text("{")
    (line,), seconds = lines()
    assert line.startswith(f"profile   {path_of()} is no profile: ")
    assert line.endswith("Make one: weft calibrate; figures of a machine of two cores stand in")
    assert seconds == 0.0
    with pytest.raises(UserError, match="is no profile"):
        lines(asked=True)


def test_figures_that_stand_in_for_a_link_are_said():
    places = [0, 0, 1, 1]
    here = dataclasses.replace(
        default_profile(), host=socket.gethostname(), cores=len(host_cores()), date="2999-01-01"
    )
    for profile, told in ((None, 0), (here, 1), (dataclasses.replace(here, between=here.inside), 0)):
        if profile is not None:
            write_profile(profile, path_of())
        choice = choose(settings("gcn", strategy="auto"), directed(), 4, places, asked=False)
        assert len(choice.lines) == 1 + told
        assert (choice.seconds > 0) == (profile is not None and not told)
    (line,) = [link_doubts(Machine(default_profile(), 4, 2))]
    assert line.startswith(
        "10 Gbit/s and 50 µs stand in for messages between hosts. Use on these hosts: mpirun"
    )


def test_by_host_needs_hosts_and_says_so_and_what_is_left_out_is_named():
    with pytest.raises(
        UserError, match=r"--by-host on needs two hosts or more .* these have 4\. Leave it out"
    ):
        choose(settings("gcn", strategy="auto", by_host="on"), directed(), 4)
    config = settings("gcn", strategy="auto", by_host="on")
    choose(config, directed(), 4, [0, 0, 1, 1])
    assert config.parallel.by_host == "auto"  # whoever goes on elsewhere may
    machine = Machine(default_profile(), 4, 2)
    config = settings("gcn", by_host="on", exchange="sparse")
    with pytest.raises(UserError, match=r"Leave out --exchange sparse or --by-host on, or use more ranks"):
        plan(Shape.of(directed()), config, machine, ["random"], lambda c: False)


def test_hosts_are_where_the_ranks_are_and_threads_those_they_get():
    config, profile = settings("gcn"), default_profile()
    assert machine_of(profile, config, 4, [0, 0, 0, 1]).places == [0, 0, 0, 1]
    assert machine_of(profile, config, 4, [0, 0, 0, 1]).crowd == 3
    assert machine_of(profile, config, 4, [0, 0, 0, 0]).hosts == 1
    assert machine_of(profile, config, 1, 1, threads=7).threads == 7
    config.train.threads = 3
    assert machine_of(profile, config, 1, 1, threads=7).threads == 3


def test_metis_that_nobody_asked_for_cuts_a_grid_once_and_none_that_cannot_win(monkeypatch):
    made: list[tuple[tuple[int, ...], str]] = []

    def parts(graph, shape, method, options):
        made.append((shape, method))
        return partition_for_grid(graph, shape, method, options)

    monkeypatch.setattr("weft.planner.cuts.partition_for_grid", parts)
    monkeypatch.setattr("weft.planner.choose.CHEAP", 1e9)
    graph = load("sbm:nodes=900,classes=4,features=16")
    config = settings("gcn", strategy="auto")
    config.train.epochs = 100_000
    choose(config, graph, 4, [0, 1, 2, 3], asked=False)
    assert len(set(made)) == len(made) > 0
    assert {method for _, method in made} == {"metis"}
    # Where messages cost nothing, METIS, which saves them alone, is not even tried.
    made.clear()
    free = dataclasses.replace(default_profile(), between=Link.of_bandwidth(1e-15, 1e18))
    write_profile(free, path_of())
    choose(settings("gcn", strategy="auto"), graph, 4, [0, 1, 2, 3], asked=False)
    assert made == []


def test_a_decoder_of_links_is_no_part_of_a_plan_and_no_seconds_are_held_against_it():
    config = settings("gcn", strategy="auto")
    config.train.task = "link"
    assert choose(config, directed(), 4).seconds == 0.0


@pytest.mark.parametrize(
    ("seconds", "off"), [([1, 1.2], False), ([1, 1.3], True), ([1, 0.7], True), ([5], False)]
)
def test_a_quarter_off_is_said_the_first_epoch_left_out(seconds, off):
    assert bool(off_by(1.0, seconds)) == off
    assert off_by(0.0, seconds) == ""


TRAIN = ["train", "g.weft", "--ranks", "3", "--engine", "threads", "--hidden", "5", "--dtype", "float64"]


def test_train_says_what_it_chose_keeps_it_and_gives_the_serial_losses(capsys):
    write_store(load("sbm:nodes=90,classes=3,features=4"), "g.weft")
    assert main([*TRAIN, "--strategy", "auto", "--epochs", "8", "--out", "run", "--json"]) == 0
    shown = capsys.readouterr()
    summary = json.loads(shown.out)
    assert shown.err.startswith(f"strategy  {summary['strategy']}")
    assert summary["planned_epoch_seconds"] > 0
    config = Path("run/config.toml").read_text()
    assert f'strategy = "{summary["strategy"]}"' in config
    assert main([*TRAIN[:2], "--ranks", "1", *TRAIN[6:], "--epochs", "8", "--out", "one", "--json"]) == 0
    alone = json.loads(capsys.readouterr().out)
    assert summary["loss"] == pytest.approx(alone["loss"], rel=1e-9)
    assert "planned_epoch_seconds" not in alone


def test_a_run_that_goes_on_keeps_its_choice_whatever_a_plan_would_say_now(capsys):
    write_store(load("sbm:nodes=90,classes=3,features=4"), "g.weft")
    begun = [*TRAIN, "--strategy", "2d", "--grid", "1x3", "--epochs", "2", "--out", "run"]
    assert main([*begun, "--on-nan", "stop"]) == 0
    Path("run/summary.json").unlink()  # as if it had died
    capsys.readouterr()
    assert main([*TRAIN, "--strategy", "auto", "--epochs", "2", "--out", "run", "--json"]) == 0
    shown = capsys.readouterr()
    assert shown.err.startswith("strategy  2d 1x3, dense, random, as the run began")
    assert json.loads(shown.out)["strategy"] == "2d"


@pytest.mark.parametrize(
    ("words", "message"),
    [(["--grid", "3x1"], "--strategy auto chooses the grid itself. Leave out --grid"),
     (["--ranks", "0"], "0 ranks were asked for"), (["--partition", "metsi"], "unknown partition 'metsi'")],
)  # fmt: skip
def test_mistakes_beside_auto_are_one_line_before_anything_is_loaded(words, message, capsys):
    assert main(["train", "no-such-graph", "--strategy", "auto", "--engine", "threads", *words]) == 2
    assert message in capsys.readouterr().err


def test_several_ranks_are_planned_for_unless_somebody_says_how_the_work_lies(capsys):
    write_store(load("sbm:nodes=90,classes=3,features=4"), "g.weft")
    summaries = []
    for words in (["--strategy", "auto"], [], ["--strategy", "1d"]):
        assert main([*TRAIN, *words, "--epochs", "2", "--json"]) == 0
        shown = capsys.readouterr()
        summaries.append(json.loads(shown.out))
        lines = shown.err.splitlines()
        assert lines[0].startswith("strategy  ") == (words != ["--strategy", "1d"])
        # A profile of no machine's own is mentioned to who asked; its seconds are held against nothing.
        assert any(line.startswith("profile   ") for line in lines) == (words == ["--strategy", "auto"])
        assert ("planned_epoch_seconds" in summaries[-1]) == (words == ["--strategy", "auto"])
    assert summaries[0]["strategy"] == summaries[1]["strategy"]
    assert summaries[2]["strategy"] == "1d"


def test_a_toml_file_may_say_how_the_work_lies_or_leave_it_open():
    for text, is_left in [
        ('[parallel]\nstrategy = "1d"\n', False), ("[parallel]\nranks = 3\n", True),
        ('[parallel]\ngrid = "3x1"\n', False), ('[parallel]\npartition = "block"\n', True),
        ('[batch]\nmemory_budget = "1GB"\n', False),
    ]:  # fmt: skip
        Path("run.toml").write_text(text)
        config = RunConfig()
        load_toml(config, Path("run.toml"))
        assert is_open(config, "run.toml") == is_left, text


def test_what_a_plan_chose_gives_way_where_a_run_goes_on_with_other_ranks(capsys):
    write_store(load("sbm:nodes=90,classes=3,features=4"), "g.weft")
    assert main([*TRAIN, "--strategy", "2d", "--grid", "1x3", "--epochs", "3", "--out", "run"]) == 0
    Path("run/summary.json").unlink()  # as if it had died
    capsys.readouterr()
    assert main(["train", "--resume", "run", "--ranks", "4", "--epochs", "4", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["strategy"], summary["ranks"]) == ("2d", 4)
    predict = ["predict", "run", "--ranks", "5", "--engine", "threads", "--json"]
    assert main(predict) == 0
    capsys.readouterr()
    assert main([*predict, "--grid", "2x2", "--into", "more"]) == 2  # what is asked for now is not forgotten
    assert "2x2" in capsys.readouterr().err


def test_a_choice_that_nobody_asked_for_counts_no_large_graph(monkeypatch):
    monkeypatch.setattr("weft.planner.choose.FEW_ARCS", 50)
    graph = directed()
    assert graph.num_arcs > 50
    lines = []
    for asked in (True, False):
        counted = []
        monkeypatch.setattr("weft.parallel.assign.bare", lambda g, seen=counted: seen.append(g) or g)
        lines.append(choose(settings("gcn", strategy="auto"), graph, 4, asked=asked).lines)
        assert bool(counted) == asked
    assert len(lines[0]) == 2  # the choice, and what is wrong with the profile
    assert len(lines[1]) == 1
