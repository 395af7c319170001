"""Who takes part in which works."""

from __future__ import annotations

import dataclasses

from .works import Work

FLOWS = ("diffgp", "wishart_shared", "wishart_independent")
SERIES = ("rollout", "transition", "forecast")
SVGP = ("svgp32", "svgp64")


@dataclasses.dataclass(frozen=True)
class Contender:
    """A worker: its module, the arguments it is started with, and the environment (None: the one of this process)."""

    name: str
    module: str
    works: tuple[str, ...]
    environment: str | None = None
    form: str = "full"

    @property
    def is_ours(self) -> bool:
        return self.environment is None

    @property
    def has_equal_arithmetic(self) -> bool:
        return self.form == "full"

    @property
    def arguments(self) -> tuple[str, ...]:
        return (self.form,) if self.is_ours else ()


def _peer(name: str, works: tuple[str, ...]) -> Contender:
    # Modules end in "_" where they would otherwise have the name of the library they import.
    module = name if name == "torch_loop" else f"{name}_"
    return Contender(name, f"benchmarks.speed.peers.{module}", works, environment=name)


OURS = (
    Contender("ours", "benchmarks.speed.ours", SVGP + FLOWS + SERIES),
    Contender("ours, structured q", "benchmarks.speed.ours", FLOWS + SERIES, form="structured"),
    Contender("ours, diagonal q", "benchmarks.speed.ours", FLOWS + SERIES, form="diagonal"),
)
PEERS = (
    _peer("torch_loop", SVGP + FLOWS + SERIES),
    _peer("gpytorch", SVGP),
    _peer("gpflow", SVGP),
    _peer("gpjax", SVGP),
    _peer("torchsde", ("diffgp",)),
    _peer("diffrax", ("diffgp",)),
)


def contenders_of(work: Work, peers: tuple[str, ...]) -> list[Contender]:
    """Ours first, then those of the named peers that can do the work."""
    chosen = [*OURS, *(peer for peer in PEERS if peer.name in peers)]
    return [contender for contender in chosen if work.name in contender.works]
