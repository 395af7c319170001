"""Batches of transitions and windows."""

from __future__ import annotations

from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Scalar

from ..numerics.devices import on_device
from ..numerics.padding import size_class
from .windows import Transitions, Windows


class TransitionBatch(eqx.Module):
    """Single steps: inputs (x, lags, u), increments, lengths; `weights` and `n_data` as in `Batch`."""

    X: Float[Array, "B K"]
    increment: Float[Array, "B D"]
    h: Float[Array, " B"]
    weights: Float[Array, " B"]
    n_data: Scalar


class WindowBatch(eqx.Module):
    """Windows of ticks (`windows.Windows`); `weights` and `n_data` count windows."""

    start: Float[Array, "B pD"]
    variance: Float[Array, "B pD"]
    h: Float[Array, "B T"]
    u: Float[Array, "B T U"]
    y: Float[Array, "B T D"]
    is_seen: Bool[Array, "B T D"]
    is_scored: Bool[Array, "B T"]
    weights: Float[Array, " B"]
    n_data: Scalar

    def repeated(self, times: int) -> WindowBatch:
        """All windows, that many times one after another."""
        return jax.tree.map(lambda x: jnp.tile(x, (times, *([1] * (x.ndim - 1)))) if x.ndim else x, self)


class SeriesBatch(eqx.Module):
    """What a series is scored on: single steps and windows, either of which may be absent."""

    transitions: TransitionBatch | None
    windows: WindowBatch | None


def series_batch(transitions: Transitions | None, windows: Windows | None) -> SeriesBatch:
    """All items, padded to size classes by repeated ones of weight zero."""
    return SeriesBatch(_padded(TransitionBatch, transitions), _padded(WindowBatch, windows))


def masked_batch(transitions: Transitions, is_used: Bool[np.ndarray, " N"]) -> SeriesBatch:
    """Transitions of which some are not used: batches of all of them and of a part have one shape, and one program."""
    found = _padded(TransitionBatch, transitions)
    assert found is not None
    weights = np.zeros(len(found.weights))
    weights[: len(is_used)] = is_used
    used = (on_device(weights), on_device(float(is_used.sum())))
    return SeriesBatch(eqx.tree_at(lambda b: (b.weights, b.n_data), found, used), None)


Padded = TypeVar("Padded", TransitionBatch, WindowBatch)


def _padded(kind: type[Padded], items: Transitions | Windows | None) -> Padded | None:
    if items is None or not len(items):
        return None
    n = len(items)
    index = np.arange(size_class(n)) % n
    weights = on_device((np.arange(len(index)) < n).astype(float))
    arrays = {name: on_device(value[index]) for name, value in vars(items).items() if name != "row"}
    return kind(**arrays, weights=weights, n_data=on_device(float(n)))
