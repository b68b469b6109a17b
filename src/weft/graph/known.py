"""Public data sets that weft knows by name: what they are, under which licence, and where one gets them.

A name here is the one that `weft train NAME` takes. `weft data` shows the table, `weft fetch NAME` follows
it.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.errors import unknown


@dataclass(frozen=True)
class File:
    """A file to download."""

    url: str
    path: str
    """Where it goes, below the set's folder. An archive (.zip) is unpacked there."""
    size: int = 0
    """Bytes; 0 where nobody noted them."""
    sha256: str = ""
    """Of the released bytes; empty where nobody noted it."""


@dataclass(frozen=True)
class Known:
    """A public data set.

    >>> KNOWN["cora"].vertices, KNOWN["cora"].folder, KNOWN["cora"].layout
    (2708, 'planetoid/Cora/raw', 'planetoid')
    """

    name: str
    """As the command line takes it, in small letters."""
    what: str
    vertices: int
    arcs: int
    """As weft loads it: both directions of an undirected edge count."""
    size: int
    """Bytes to download, about."""
    licence: str
    layout: str
    """The form of its files, a key of `LAYOUTS`."""
    folder: str
    """Where its files stand below WEFT_DATA."""
    page: str
    """The page that offers it: terms, citation, files."""
    files: tuple[File, ...] = ()
    """What `weft fetch` downloads; empty where the page's files must be taken by hand."""


LAYOUTS = {
    "planetoid": "ind.NAME.x, .y, .tx, .ty, .allx, .ally, .graph, .test.index",
    "npz": "NAME.npz, a matrix in CSR form with features and labels",
    "edge list": "NAME.txt.gz, an arc a line",
    "matrix market": "NAME.mtx",
    "ogb link": "train_edges.csv.gz and valid_test.npz",
    "ogb node": "raw/ and split/ as OGB's archive has them",
    "graphsaint": "adj_full.npz, feats.npy, class_map.json, role.json",
    "reddit": "reddit_graph.npz and reddit_data.npz",
    "webgraph": "NAME.graph and NAME.properties",
}
"""Layout → the files that a folder of it holds."""

UNREAD: frozenset[str] = frozenset()
"""Layouts without a reader so far: such a set is converted to one of the others by hand."""

_PLANETOID = "https://github.com/kimiyoung/planetoid/raw/master/data/"
_SHCHUR = "https://github.com/shchur/gnn-benchmark/raw/master/data/npz/"
_SNAP = "https://snap.stanford.edu/data/"
_OGB = "https://snap.stanford.edu/ogb/data/"
_UNSTATED = "none stated"


def _planetoid(name: str, folder: str, what: str, vertices: int, arcs: int, sums: dict[str, tuple[int, str]]
               ) -> Known:  # fmt: skip
    files = tuple(
        File(f"{_PLANETOID}ind.{name}.{part}", f"ind.{name}.{part}", size, sha256)
        for part, (size, sha256) in sums.items()
    )
    return Known(
        name, what, vertices, arcs, sum(file.size for file in files), _UNSTATED + " (the code: MIT)",
        "planetoid", f"planetoid/{folder}/raw", "https://github.com/kimiyoung/planetoid", files,
    )  # fmt: skip


def _shchur(name: str, released: str, what: str, vertices: int, arcs: int, size: int) -> Known:
    file = File(f"{_SHCHUR}{released}.npz", f"{name}.npz")
    page = "https://github.com/shchur/gnn-benchmark"
    return Known(name, what, vertices, arcs, size, "MIT", "npz", "npz", page, (file,))


def _snap(name: str, file: str, what: str, vertices: int, arcs: int, size: int, sha256: str = "",
          community: str = "") -> Known:  # fmt: skip
    page, under = (
        f"{_SNAP}{community or file.split('.')[0]}.html",
        "bigdata/communities/" if community else "",
    )
    exact = size if sha256 else 0
    files = (File(f"{_SNAP}{under}{file}", file, exact, sha256),)
    return Known(name, what, vertices, arcs, size, _UNSTATED, "edge list", "snap", page, files)


def _ogb(name: str, kind: str, archive: str, what: str, vertices: int, arcs: int, size: int, licence: str
         ) -> Known:  # fmt: skip
    room, layout = {"node": ("nodeprop", "ogb node"), "link": ("linkprop", "ogb link")}[kind]
    page = f"https://ogb.stanford.edu/docs/{room}/#{name}"
    file = File(f"{_OGB}{room}pred/{archive}.zip", f"{archive}.zip")
    return Known(name, what, vertices, arcs, size, licence, layout, name, page, (file,))


def _saint(name: str, what: str, vertices: int, arcs: int, size: int) -> Known:
    page = "https://github.com/GraphSAINT/GraphSAINT#datasets"
    return Known(name, what, vertices, arcs, size, _UNSTATED, "graphsaint", f"graphsaint/{name}", page)


def _suitesparse(name: str, group: str, released: str, what: str, vertices: int, arcs: int, size: int
                 ) -> Known:  # fmt: skip
    page = f"https://sparse.tamu.edu/{group}/{released}"
    return Known(name, what, vertices, arcs, size, "CC BY 4.0", "matrix market", "suitesparse", page)


def _law(name: str, what: str, vertices: int, arcs: int, size: int) -> Known:
    base = "http://data.law.di.unimi.it/webdata/"
    files = tuple(File(f"{base}{name}/{name}.{end}", f"{name}.{end}") for end in ("graph", "properties"))
    page = f"https://law.di.unimi.it/webdata/{name}/"
    return Known(
        name, what, vertices, arcs, size, _UNSTATED + " (cite the authors)", "webgraph", name, page, files
    )


KNOWN: dict[str, Known] = {
    known.name: known
    for known in (
        _planetoid("cora", "Cora", "citations of papers, 7 topics", 2708, 10556, {
            "x": (22119, "23cfa55d91c6f624233f5eb7b6e3f141f1bd2b2ae39608a63cf5d084bb27baab"),
            "y": (4054, "94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1"),
            "tx": (148025, "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a"),
            "ty": (28135, "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad"),
            "allx": (257305, "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543"),
            "ally": (47959, "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71"),
            "graph": (59847, "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d"),
            "test.index": (5000, "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875"),
        }),
        _planetoid("citeseer", "CiteSeer", "citations of papers, 6 topics", 3327, 9104, {
            "x": (31087, "d20de19150741e555de0ed037195630fc194114ebc7fd72ced62810148aa22f6"),
            "y": (3014, "8ba87e515d8e3ee3cf52f6d2c5b86aa73f11ecad825a808455209ec26cd54924"),
            "tx": (260321, "539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21"),
            "ty": (24135, "55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce"),
            "allx": (595021, "2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668"),
            "ally": (55623, "f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95"),
            "graph": (61987, "d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7"),
            "test.index": (5000, "2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4"),
        }),
        _planetoid("pubmed", "PubMed", "citations of papers on diabetes, 3 kinds", 19717, 88648, {
            "x": (23172, "fbe9cb5c47200d1b7769a26e579be3b7130b556831f9d850e77c4c74f2599b33"),
            "y": (854, "e6c807633307a07ed659249006536a147c7999c797f11a2560752990181b41b3"),
            "tx": (405505, "4eb5f5d0f30f26497eb0ac6ac9719d09c67e284f1ed0385c93f3ef27a671da3d"),
            "ty": (12135, "ee2e0d4819d9fbcc403689c3bf2e49face401b605932f093bc58ab6461130fdd"),
            "allx": (7578385, "508e538e2abdccdd54c4d3e9f49d638b4af7107d85845f66ddea5a5152658b7e"),
            "ally": (224739, "0c37bbe3b5014ec365e9d393cf4791925e5ed94fb194305d74f064a8d7b50f0e"),
            "graph": (471808, "5b89f0036ca22909471f1e6558eb42fa06e0c730a577bde5b058b40638f81dc9"),
            "test.index": (6000, "b101d421688bbaecbd82e8a18f1e282378d6830f3a37666f28ebc47f844341b5"),
        }),
        _shchur("amazon_photo", "amazon_electronics_photo", "goods bought together, 8 kinds",
                7650, 143663, 5_800_000),
        _shchur("amazon_computers", "amazon_electronics_computers", "goods bought together, 10 kinds",
                13752, 287209, 11_700_000),
        _shchur("coauthor_cs", "ms_academic_cs", "authors of papers together, 15 fields",
                18333, 163788, 6_200_000),
        _shchur("coauthor_physics", "ms_academic_phy", "authors of papers together, 5 fields",
                34493, 495924, 17_700_000),
        _snap("soc-slashdot0902", "soc-Slashdot0902.txt.gz", "friends and foes of a forum", 82168, 948464,
              3246522, "65072f0a2d98a444967bf3b8379a87e03292f2f9f8924f4fe470ddd047c95553"),
        _snap("com-dblp", "com-dblp.ungraph.txt.gz", "authors of papers together", 317080, 2099732, 4138463,
              "9eb0bd30312ddd04e2624f7c36c0983a2e99b116f0385be5a7fce6d6170f4cb3", "com-DBLP"),
        _snap("email-enron", "email-Enron.txt.gz", "mails between addresses", 36692, 367662, 1054970,
              "e4611471ed181699b36e2aafc313e077fb25d16ed67ec5a81591eb8d8b40a5bc"),
        _snap("amazon0601", "amazon0601.txt.gz", "goods bought together, June 2003", 403394, 3387388,
              13_000_000),
        _snap("cit-patents", "cit-Patents.txt.gz", "citations of patents", 3774768, 16518948, 85_000_000),
        _snap("roadnet-ca", "roadNet-CA.txt.gz", "roads of California", 1965206, 5533214, 18_000_000),
        _snap("com-amazon", "com-amazon.ungraph.txt.gz", "goods bought together", 334863, 1851744, 4_000_000,
              "", "com-Amazon"),
        _snap("com-youtube", "com-youtube.ungraph.txt.gz", "friends of a video site", 1134890, 5975248,
              11_000_000, "", "com-Youtube"),
        _snap("com-orkut", "com-orkut.ungraph.txt.gz", "friends of a social network", 3072441, 234370166,
              447_000_000, "", "com-Orkut"),
        _snap("com-friendster", "com-friendster.ungraph.txt.gz", "friends of a social network", 65608366,
              3612134270, 8_700_000_000, "", "com-Friendster"),
        _ogb("ogbn-arxiv", "node", "arxiv", "citations of papers, 40 subjects", 169343, 1166243,
             81_000_000, "ODC-BY"),
        _ogb("ogbn-products", "node", "products", "goods bought together, 47 kinds", 2449029, 123718280,
             1_380_000_000, "Amazon's"),
        _ogb("ogbn-proteins", "node", "proteins", "proteins and how they meet, 112 functions", 132534,
             79122504, 216_000_000, "CC0"),
        _ogb("ogbn-mag", "node", "mag", "papers, authors, fields, institutions; 349 venues", 1939743,
             21111007, 413_000_000, "ODC-BY"),
        _ogb("ogbn-papers100m", "node", "papers100M-bin", "citations of papers, 172 subjects", 111059956,
             1615685872, 57_000_000_000, "ODC-BY"),
        _ogb("ogbl-ddi", "link", "ddi", "drugs that act on each other", 4267, 2135822, 47_000_000, "CC0"),
        _saint("flickr", "pictures with common traits, 7 kinds", 89250, 899756, 190_000_000),
        _saint("reddit", "posts with common commenters, 41 forums", 232965, 23213838, 1_200_000_000),
        Known("reddit-dgl", "the same posts, all that share a commenter", 232965, 114615892, 1_400_000_000,
              _UNSTATED, "reddit", "reddit-dgl", "https://snap.stanford.edu/graphsage/",
              (File("https://data.dgl.ai/dataset/reddit.zip", "reddit.zip"),)),
        _saint("yelp", "reviewers and their friends, 100 kinds of shop", 716847, 13954819, 2_200_000_000),
        _saint("amazon", "goods with common buyers, 107 kinds", 1569960, 264339468, 4_800_000_000),
        _suitesparse("copapersdblp", "DIMACS10", "coPapersDBLP", "papers with an author in common", 540486,
                     30491458, 40_000_000),
        _suitesparse("gleich-flickr", "Gleich", "flickr", "who links to whom among pictures' owners", 820878,
                     9837214, 30_000_000),
        _law("cnr-2000", "pages of an Italian institute", 325557, 3216152, 1_300_000),
        _law("uk-2002", "pages of the .uk domain", 18520486, 298113762, 90_000_000),
        _law("uk-2006-05", "pages of the .uk domain", 77741046, 2965197340, 700_000_000),
        _law("uk-union-2006-06-2007-05", "pages of the .uk domain over a year", 133633040, 5507679822,
             1_300_000_000),
    )
}  # fmt: skip
"""Name → data set."""


def known(name: str) -> Known:
    """The data set called so; capitals don't matter.

    >>> known("Cora").what
    'citations of papers, 7 topics'
    >>> known("cra")
    Traceback (most recent call last):
        ...
    weft.errors.UserError: unknown data set 'cra'. Did you mean 'cora'?
    >>> known("my-own")
    Traceback (most recent call last):
        ...
    weft.errors.UserError: unknown data set 'my-own'. See weft data.
    """
    if name.lower() not in KNOWN:
        raise unknown("data set", name, KNOWN, see="weft data")
    return KNOWN[name.lower()]
