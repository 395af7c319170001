"""What a user asks for: frozen dataclasses of plain Python values, with JSON both ways. No JAX here.

A spec says what a part is (`RBF(lengthscale=2.0)`), not its arrays; the builder that is registered for it makes the
arrays once the shapes of the data are known. Every spec is hashable, so it can be a static argument of a compiled
program.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from typing import Any, ClassVar

from ..errors import OptionError, unknown_option


@dataclasses.dataclass(frozen=True)
class Spec:
    """Base of all specs: equality, hash and JSON come from the fields.

    `is_part` says whether it is a spec of a part that users can add (`wishflow.register`).
    """

    is_part: ClassVar[bool] = False

    def to_json(self) -> dict[str, Any]:
        """Return a dictionary of plain values.

        Returns
        -------
        dict
            The class name under "kind", then the fields.
        """
        fields = {f.name: _value_to_json(getattr(self, f.name)) for f in dataclasses.fields(self)}
        return {"kind": type(self).__name__, **fields}

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> Spec:
        """Make the spec from the fields of a file, which an older version may have written.

        Parameters
        ----------
        fields : dict of str to object
            Values of the fields by name.

        Returns
        -------
        Spec
            The spec.
        """
        return cls(**fields)


def _value_to_json(value: Any) -> Any:
    if isinstance(value, Spec):
        return value.to_json()
    if isinstance(value, tuple):
        return [_value_to_json(item) for item in value]
    return value


def check_types(spec: Spec) -> None:
    """Refuse a spec of a file whose fields are not of the types of their annotations; numbers must be finite."""
    hints = typing.get_type_hints(type(spec))
    for field in dataclasses.fields(spec):
        value = getattr(spec, field.name)
        if not _is_of(value, hints[field.name]):
            raise OptionError(
                f"{field.name}={str(value)[:100]} of {type(spec).__name__} is a {type(value).__name__}; expected "
                f"{field.type} with finite numbers: save the model again."
            )


def _is_of(value: Any, hint: Any) -> bool:
    """Whether a value of JSON, with tuples for lists, is of a type; types that JSON does not have are not judged."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_is_of(value, part) for part in parts)
    if origin is tuple:
        inner = parts[:1] if parts[-1] is ... else None
        return isinstance(value, tuple) and (inner is None or all(_is_of(item, inner[0]) for item in value))
    if hint in (int, float):
        is_number = isinstance(value, int | hint) and not isinstance(value, bool)
        return is_number and (isinstance(value, int) or math.isfinite(value))
    is_plain = hint in (bool, str, type(None)) or (isinstance(hint, type) and issubclass(hint, Spec))
    return isinstance(value, hint) if is_plain else True


def resolve(option: str, value: Any, names: dict[str, Any], base: type[Spec]) -> Any:
    """The spec meant by a name or a spec; an error that lists the names otherwise."""
    if isinstance(value, base):
        return value
    if isinstance(value, str) and value in names:
        return names[value]
    if isinstance(value, str):
        raise unknown_option(option, value, list(names))
    raise OptionError(
        f"{option}={value!r} is a {type(value).__name__}; expected one of {list(names)} or a {base.__name__}."
    )
