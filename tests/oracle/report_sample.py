"""A page with something of everything, and drawings for it."""

from __future__ import annotations

import io

import numpy as np
from matplotlib.figure import Figure as Canvas

from bayesmf.report.page import (
    Cell,
    Code,
    Drawing,
    Facts,
    Figure,
    Finding,
    Page,
    Section,
    Table,
    Text,
)

BINS = ("<=25", "26-71", "72-142", "143-193", "194-331", "332-516", "517-837", "838+")


def errors_drawing(transparent: bool = False) -> str:
    """Lines with bands, a hatch and a clip: everything that matplotlib refers to by id."""
    drawing = Canvas(figsize=(7.5, 3.8), layout="constrained")
    axes = drawing.subplots()
    x = np.arange(len(BINS))
    for name, height in (("PMF", 0.92), ("PMF with side features", 0.905)):
        y = height - 0.012 * x + 0.006 * np.cos(x)
        (line,) = axes.plot(x, y, marker="o", label=name)
        axes.fill_between(x, y - 0.006, y + 0.006, alpha=0.2, color=line.get_color())
    axes.bar(x, 0.01, bottom=0.8, hatch="//", fill=False, edgecolor="0.6")
    axes.set_xticks(x, [label.replace("<=", "≤") for label in BINS])
    axes.set_xlabel("ratings of the user")
    axes.set_ylabel("RMSE")
    axes.legend(frameon=False)
    return _svg(drawing, transparent)


def image_drawing() -> str:
    """An image, which matplotlib embeds as data."""
    drawing = Canvas(figsize=(5, 3.6), layout="constrained")
    axes = drawing.subplots()
    shown = axes.imshow(np.add.outer(np.arange(8), np.sin(np.arange(12))), cmap="viridis")
    drawing.colorbar(shown, label="R-hat")
    return _svg(drawing, False)


def _svg(drawing: Drawing, transparent: bool) -> str:
    text = io.StringIO()
    drawing.savefig(text, format="svg", transparent=transparent)
    return text.getvalue()


def sample_page() -> Page:
    return Page(
        title="Bayesian matrix factorization with side features",
        subtitle="What a sample study of ratings looks like: 3 data sets, 5 splits, 4 models",
        findings=[
            Finding(
                "Side features lowered the error of users with at most 25 ratings by 0.9 % "
                "[0.5, 1.3].",
                "seen",
                "Side features help most for users with few ratings.",
            ),
            Finding(
                "Robust precisions lowered the error on two of three data sets.",
                "partly",
                "Robust precisions lower the error on every data set.",
            ),
            Finding(
                "Variational inference and Gibbs sampling ended within 0.1 % of each other; their "
                "intervals overlap.",
                "not seen",
                "Gibbs sampling is more accurate than variational inference by a clear margin.",
            ),
            Finding("The biases alone explain most of what can be explained.", "seen"),
            Finding("All chains had an R-hat below 1.05.", "plain"),
        ],
        sections=[
            Section("errors", "Errors", [_about(), _models(), _errors_figure(), _by_bin()]),
            Section("convergence", "Convergence", [_chains_figure(), _long_names()]),
            Section("how", "How it was run", [_settings(), _commands()]),
        ],
        footer="bayesmf 0.1.0. The tables are also in the files beside this page.",
    )


def _about() -> Text:
    return Text(
        [
            "Each model was fitted to five random splits of each data set. The error is the root "
            "mean squared error of the test ratings, and the interval holds 95 % of the means of "
            "resampled splits. Smaller is better.",
            "Differences are paired: the same split, the same seed, two models. An interval that "
            "holds zero is marked as unsure.",
        ]
    )


def _models() -> Table:
    return Table(
        "models",
        "Test error by model",
        "Mean of five splits with its standard error; the best of each data set is bold.",
        ["Model", "RMSE", "Change, %", "Minutes"],
        [
            ["Biases alone", "0.9012 ± 0.0011", Cell("0.0", 0.0), "1.5"],
            ["PMF", "0.8641 ± 0.0010", Cell("\N{MINUS SIGN}4.1", -4.1, "good"), "10"],
            [
                "PMF, side features",
                Cell("0.8573 ± 0.0009", 0.8573, "best"),
                "\N{MINUS SIGN}4.9",
                "9",
            ],
            ["PMF, robust", "0.8640 ± 0.0012", Cell("\N{MINUS SIGN}4.1", -4.1, "unsure"), "120"],
            ["Side features alone", "0.9104 ± 0.0015", Cell("+1.0", 1.0, "bad"), "2,400"],
            ["PMF, Student-t", Cell("not run", None, "note"), "—", "—"],
        ],
        notes=["Minutes on one thread.", "Changes are against the biases alone."],
    )


def _by_bin() -> Table:
    rows: list[list[Cell | str]] = []
    for row, model in enumerate(("Biases", "PMF", "PMF with side features of users and items")):
        values = [1.05 - 0.02 * column - 0.01 * row for column in range(10)]
        rows.append(
            [model, "ml-1m" if row else "ml-100k"]
            + [Cell(f"{value:.4f}", value, "best" if row == 2 else "") for value in values]
        )
    return Table(
        "by-frequency",
        "Test error by how many ratings the user has",
        "",
        ["Model", "Data", *BINS, "All users", "Spread"],
        rows,
        text_columns=2,
    )


def _long_names() -> Table:
    return Table(
        "chains",
        "Chains",
        "The largest R-hat and the smallest effective sample size of each run.",
        ["Run", "R-hat", "ESS"],
        [
            [f"run-{n}-with-a-name-that-cannot-be-broken", f"{1 + n / 97:.3f}", f"{4000 / n:,.0f}"]
            for n in range(1, 13)
        ],
    )


def _errors_figure() -> Figure:
    return Figure(
        "errors-by-frequency",
        "Error by how many ratings the user has",
        "Bands are 95 % intervals over splits; the hatched bars show how many ratings each has.",
        [
            Drawing(
                errors_drawing(transparent=True),
                "Two falling lines; the one with side features is lower, most so at the left.",
            )
        ],
    )


def _chains_figure() -> Figure:
    return Figure(
        "r-hat",
        "R-hat by chain and quantity",
        "Values over 1.05 would be a warning.",
        [Drawing(image_drawing(), "A grid of colours that grow lighter from top to bottom.")],
    )


def _settings() -> Facts:
    return Facts(
        [
            ("Sweeps", "2,000, of which 500 burn-in"),
            ("Rank", "40"),
            ("Seeds", "0 to 4"),
            ("Folder", "results/a-rather-long-folder-name/with-another-one-inside-of-it/ml-1m"),
        ]
    )


def _commands() -> Code:
    return Code(
        [
            "bayesmf split ml-1m --protocol paper --seed 0 --out split",
            "bayesmf fit split --rank 40 --side user --precision robust --sweeps 2000 --burn-in "
            "500 --out fit",
        ],
        "Two commands repeat a row of the table",
    )
