"""What others report on these splits, and where."""

from __future__ import annotations

from dataclasses import dataclass

EXAMPLES = "https://github.com/tohtsky/myFM/blob/main/examples"
MYFM = f"[myFM's notebook]({EXAMPLES}/ml-1m-extended.ipynb)"
MYFM_100K = f"[myFM's examples]({EXAMPLES})"
GLOCAL_K = "[Han et al. 2021](https://arxiv.org/abs/2108.12184)"
SPARSE_FC = "Muller et al., ICML 2018"
CF_NADE = "Zheng et al., ICML 2016"
AUTOREC = "Sedhain et al., WWW 2015"
GC_MC = "[van den Berg et al. 2017](https://arxiv.org/abs/1706.02263)"
IGMC = "[Zhang and Chen 2020](https://arxiv.org/abs/1904.12058)"
MG_GAT = "Leng et al. 2020"
IMC_GAE = "Shen et al., CIKM 2021"
PAPER = "the paper, table 2; its split is another one"
ELSEWHERE = "other 90/10 splits"


@dataclass(frozen=True)
class Figure:
    """One published error."""

    part: str
    case: str
    method: str
    rmse: str  # with the digits that were published
    source: str
    rank: str = ""
    sweeps: str = ""
    seconds: str = ""  # on a machine of theirs


FIGURES = [
    Figure("fold", "fold 0", "myFM, ordered probit, dates, both rated sets", "0.8140", MYFM, "32",
           "512", "1403"),
    Figure("fold", "fold 0", "myFM, regression, dates, both rated sets, clipped", "0.8161", MYFM,
           "32", "512", "1183"),
    Figure("fold", ELSEWHERE, "GLocal-K", "0.8227", GLOCAL_K),
    Figure("fold", ELSEWHERE, "Sparse FC", "0.824", SPARSE_FC),
    Figure("fold", ELSEWHERE, "CF-NADE", "0.829", CF_NADE),
    Figure("fold", ELSEWHERE, "I-AutoRec", "0.831", AUTOREC),
    Figure("fold", ELSEWHERE, "GC-MC", "0.832", GC_MC),
    Figure("fold", ELSEWHERE, "IGMC", "0.857", IGMC),
    Figure("ml-100k", "u1", "myFM, ordered probit, dates, attributes", "0.8808", MYFM_100K),
    Figure("ml-100k", "u1", "myFM, regression, dates, attributes", "0.8833", MYFM_100K),
    Figure("ml-100k", "u1", "GLocal-K", "0.889", GLOCAL_K),
    Figure("ml-100k", "u1", "MG-GAT", "0.890", MG_GAT),
    Figure("ml-100k", "u1", "IMC-GAE", "0.897", IMC_GAE),
    Figure("ml-100k", "u1", "IGMC", "0.905", IGMC),
    Figure("ml-100k", "u1", "GC-MC, attributes", "0.905", GC_MC),
    Figure("ml-100k", "u1", "GC-MC", "0.910", GC_MC),
    Figure("paper", "split 0", "the paper, side features, Gibbs sampling", "0.8407", PAPER),
    Figure("paper", "split 0", "the paper, no side features, Gibbs sampling", "0.8452", PAPER),
    Figure("monti", "douban", "IGMC", "0.721", IGMC),
    Figure("monti", "douban", "GC-MC", "0.734", GC_MC),
    Figure("monti", "flixster", "IGMC", "0.872", IGMC),
    Figure("monti", "flixster", "GC-MC", "0.917", GC_MC),
    Figure("monti", "yahoo_music", "IGMC", "19.1", IGMC),
    Figure("monti", "yahoo_music", "GC-MC", "20.5", GC_MC),
]  # fmt: skip
