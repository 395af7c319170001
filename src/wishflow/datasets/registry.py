"""The regression data sets by name: columns, checksums, where the original lies and how it becomes our table.

All are distributed by the UCI Machine Learning Repository, except kin8nm (DELVE, by way of OpenML).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from ..errors import unknown_option
from . import originals

UCI = "https://archive.ics.uci.edu"


@dataclasses.dataclass(frozen=True)
class Original:
    """The file as published: address, SHA-256, the converter, and its name inside a zip archive (None: no archive).

    The archive may hold the file in archives of its own.
    """

    url: str
    sha256: str
    convert: Callable[[bytes, Sequence[str]], str]
    member: str | None = None


@dataclasses.dataclass(frozen=True)
class Table:
    """Our form of a data set: `<folder>/<file>.csv.gz` with these columns; `sha256` is that of the unpacked CSV text.

    The hash of the text, not of the compressed file: compressors differ in their output, the table does not.
    """

    file: str
    columns: tuple[str, ...]
    sha256: str
    page: str
    original: Original | None
    folder: str = "uci"

    @property
    def place(self) -> str:
        """Where the table lies inside a data folder."""
        return f"{self.folder}/{self.file}.csv.gz"


@dataclasses.dataclass(frozen=True)
class Entry:
    """What a name stands for: a table, whose last column is the target, and the columns left out of the inputs."""

    name: str
    table: Table
    description: str
    dropped: tuple[str, ...] = ()
    warning: str | None = None

    @property
    def target(self) -> str:
        return self.table.columns[-1]

    @property
    def features(self) -> tuple[str, ...]:
        return tuple(column for column in self.table.columns[:-1] if column not in self.dropped)


BOSTON = Table(
    file="boston",
    columns=("CRIM", "ZN", "INDUS", "CHAS", "NOX", "RM", "AGE", "DIS", "RAD", "TAX", "PTRATIO", "B", "LSTAT", "MEDV"),
    sha256="ebf8b4a9ceaf375f9591be7b862b3eafc6efc952251e77f09dd6c2df9e216ba0",
    page=f"{UCI}/ml/machine-learning-databases/housing/",
    original=Original(
        url=f"{UCI}/ml/machine-learning-databases/housing/housing.data",
        sha256="baadf72995725d76efe787b664e1f083388c79ba21ef9a7990d87f774184735a",
        convert=originals.from_blanks,
    ),
)
CONCRETE = Table(
    file="concrete",
    columns=(
        *("Cement", "Blast Furnace Slag", "Fly Ash", "Water", "Superplasticizer", "Coarse Aggregate", "Fine Aggregate"),
        *("Age", "Concrete Compressive Strength"),
    ),
    sha256="c4645193db7a7d8eff38dc378f4d4fd4cbe2a2af5eaaf834280aa8ca4472e591",
    page=f"{UCI}/dataset/165/concrete+compressive+strength",
    # UCI's Concrete_Data.xls has more digits than the version used in published comparisons, which has no address.
    original=None,
)
KIN8NM = Table(
    file="kin8nm",
    columns=(*(f"theta{i}" for i in range(1, 9)), "y"),
    sha256="fa953fd4646f0933034f07022dd3b5919be004edc065ac7715582fbb4ef49849",
    page="https://www.openml.org/d/189",
    original=Original(
        url="https://www.openml.org/data/get_csv/3626/dataset_2175_kin8nm.arff",
        sha256="7b9bf0301ac936d88122557a151e1ba8f1ebc278fcf46d9f3c6d462debdbc8ad",
        convert=originals.from_comma_separated,
    ),
)
NAVAL = Table(
    file="naval",
    columns=(
        *("lp", "v", "GTT", "GTn", "GGn", "Ts", "Tp", "T48", "T1", "T2", "P48", "P1", "P2", "Pexh", "TIC", "mf"),
        *("kMt", "kMc"),
    ),
    sha256="3e4065444e52422d79aee9bf71a6ac07eeeb1c943337b8f06120a26f548d60ea",
    page=f"{UCI}/dataset/316/condition+based+maintenance+of+naval+propulsion+plants",
    original=Original(
        url=f"{UCI}/static/public/316/condition+based+maintenance+of+naval+propulsion+plants.zip",
        sha256="de0ea69da1efaab8b9655ffed828547d10dd68c1fb8c6e0163e6a988def393a6",
        convert=originals.from_naval,
        member="data.txt",
    ),
)
POWER = Table(
    file="power",
    columns=("AT", "V", "AP", "RH", "PE"),
    sha256="3c1fc11025f8424f8d95802d8b7086dffd3f73a552c6dcab3d973620986194b2",
    page=f"{UCI}/dataset/294/combined+cycle+power+plant",
    original=Original(
        url=f"{UCI}/static/public/294/combined+cycle+power+plant.zip",
        sha256="ccd490981db2a2f079963b3d9f0aea30d9d338900a0285428dfc6385396f4651",
        convert=originals.from_workbook,
        member="Folds5x2_pp.xlsx",
    ),
)
PROTEIN = Table(
    file="protein",
    columns=(*(f"F{i}" for i in range(1, 10)), "RMSD"),
    sha256="5879f143cf15b2f59e63ddd413bc11417b1cd6ef311ff6f449b0aeb5b861e1f0",
    page=f"{UCI}/dataset/265/physicochemical+properties+of+protein+tertiary+structure",
    original=Original(
        url=f"{UCI}/ml/machine-learning-databases/00265/CASP.csv",
        sha256="4277cfcb4e91a181746cbc654f001b57951c9e6a80f4f795fdb5c807e0848f40",
        convert=originals.from_target_first,
    ),
)
WINE_WHITE = Table(
    file="wine_white",
    columns=(
        *("fixed acidity", "volatile acidity", "citric acid", "residual sugar", "chlorides", "free sulfur dioxide"),
        *("total sulfur dioxide", "density", "pH", "sulphates", "alcohol", "quality"),
    ),
    sha256="d99ea899f7ea892b717e34b0b6eaca33244c52d0d038dc4fcb6c728a64842562",
    page=f"{UCI}/dataset/186/wine+quality",
    original=Original(
        url=f"{UCI}/ml/machine-learning-databases/wine-quality/winequality-white.csv",
        sha256="76c3f809815c17c07212622f776311faeb31e87610d52c26d87d6e361b169836",
        convert=originals.from_semicolon_separated,
    ),
)
BIKE = Table(
    file="bike",
    columns=(
        *("instant", "dteday", "season", "yr", "mnth", "hr", "holiday", "weekday", "workingday", "weathersit"),
        *("temp", "atemp", "hum", "windspeed", "casual", "registered", "cnt"),
    ),
    sha256="b03a2d02e8c10f435c43c7f0b358b7e34a003afea53dbc37f0183f2763295133",
    page=f"{UCI}/dataset/275/bike+sharing+dataset",
    original=Original(
        url=f"{UCI}/static/public/275/bike+sharing+dataset.zip",
        sha256="e03de4ee4ef4dc376ac6e04bf829673c6269e8eba5c60fa121640fa2f829504f",
        convert=originals.from_comma_separated,
        member="hour.csv",
    ),
)

ENTRIES: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry("boston", BOSTON, "Median value of homes in 506 tracts around Boston, in 1000 dollars, capped at 50."),
        Entry("concrete", CONCRETE, "Compressive strength of 1030 concrete samples, in MPa."),
        Entry("kin8nm", KIN8NM, "Distance of the end point of a simulated robot arm with eight joints."),
        Entry(
            "naval",
            NAVAL,
            "Decay of the compressor of a simulated ship's gas turbine. T1 and P1 are constant, Ts and Tp identical.",
            dropped=("kMt",),
        ),
        Entry("power", POWER, "Net hourly electrical output of a combined cycle power plant, in MW."),
        Entry("protein", PROTEIN, "Deviation of protein structures from the native one (RMSD), in Å."),
        Entry("wine_white", WINE_WHITE, "Quality of Portuguese white wines, marks from 3 to 9."),
        Entry(
            "bike",
            BIKE,
            "Bicycles hired in Washington, D.C., hour by hour, from calendar and weather.",
            dropped=("instant", "dteday", "casual", "registered"),
        ),
        Entry(
            "bike_paper",
            BIKE,
            "As `bike`, with the two columns whose sum is the target among the inputs.",
            dropped=("instant", "dteday"),
            warning="bike_paper leaks its target: casual + registered = cnt, and both are inputs. "
            "It exists for comparison with published numbers; use load_uci('bike') for anything else.",
        ),
    )
}


def entry_of(name: str) -> Entry:
    """The entry with this name; an error that lists the names otherwise."""
    if name not in ENTRIES:
        raise unknown_option("name", name, list(ENTRIES))
    return ENTRIES[name]
