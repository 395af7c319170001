"""Who takes part in which works."""

from __future__ import annotations

import dataclasses

from .works import Work

FLOWS = ("diffgp", "wishart_shared", "wishart_independent")
SERIES = ("rollout", "transition", "forecast")
SVGP = ("svgp32", "svgp64")


@dataclasses.dataclass(frozen=True)
class Contender:
    """A worker: its module, its environment (None: the one of this process) and the arguments it is started with."""

    name: str
    module: str
    works: tuple[str, ...]
    environment: str | None = None
    arguments: tuple[str, ...] = ()
    form: str = "full"


def _ours(name: str, works: tuple[str, ...], form: str) -> Contender:
    return Contender(name, f"{__package__}.ours", works, arguments=(form,), form=form)


def _peer(name: str, works: tuple[str, ...]) -> Contender:
    # Modules end in "_" where they would otherwise have the name of the library they import.
    module = name if name == "torch_loop" else f"{name}_"
    return Contender(name, f"{__package__}.peers.{module}", works, environment=name)


# Forms of q other than the full one: beyond equal arithmetic.
OURS = (
    _ours("ours", SVGP + FLOWS + SERIES, "full"),
    _ours("ours, structured q", FLOWS + SERIES, "structured"),
    _ours("ours, rotated q", FLOWS + SERIES, "rotated"),
    _ours("ours, diagonal q", FLOWS + SERIES, "diagonal"),
)
PEERS = (
    _peer("torch_loop", SVGP + FLOWS + SERIES),
    _peer("gpytorch", SVGP),
    dataclasses.replace(_peer("gpflow", SVGP), arguments=("graph",)),
    dataclasses.replace(_peer("gpflow", SVGP), name="gpflow, XLA", arguments=("xla",)),
    _peer("gpjax", SVGP),
    _peer("torchsde", ("diffgp",)),
    _peer("diffrax", ("diffgp",)),
)


PEER_NAMES = tuple(dict.fromkeys(peer.environment for peer in PEERS if peer.environment))


def contenders_of(work: Work, peers: tuple[str, ...]) -> list[Contender]:
    """Ours first, then those of the named libraries that can do the work."""
    chosen = [*OURS, *(peer for peer in PEERS if peer.environment in peers)]
    return [contender for contender in chosen if work.name in contender.works]
