"""From JSON to the classes of `webloom.models`, and back."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any, ClassVar, Literal, TypeVar, Union

M = TypeVar("M", bound="Model")


class Model:
    """A JSON object of the API.

    Members are named as Python names things: `jobType` is `job_type`, `from` is `from_`. What the broker sends and this
    version does not know is kept in `extra`, so that an object can be sent back as it was read.
    """

    _names: ClassVar[dict[str, str]] = {}

    @property
    def extra(self) -> dict[str, Any]:
        """Members that this version does not know, by their names in JSON."""
        found: dict[str, Any] = self.__dict__.setdefault("_extra", {})
        return found

    @classmethod
    def from_json(cls: type[M], value: Mapping[str, Any]) -> M:
        """Reads a JSON object.

        Raises:
            ValueError: a member is missing or of a wrong type.
        """
        if not isinstance(value, Mapping):
            raise ValueError(  # noqa: TRY004, it is the input that is wrong
                f"{cls.__name__}: a JSON object is expected, not {type(value).__name__}"
            )
        plan = _plan(cls)
        known, extra = {}, {}
        for name, member in value.items():
            if name in plan:
                field, kind = plan[name]
                known[field] = decode(kind, member)
            else:
                extra[name] = member
        try:
            made = cls(**known)
        except TypeError as error:
            raise ValueError(f"{cls.__name__}: {error}") from None
        if extra:
            made.__dict__["_extra"] = extra
        return made

    def to_json(self) -> dict[str, Any]:
        """The JSON object. What is `None` is left out."""
        out: dict[str, Any] = {}
        for name, (field, _) in _plan(type(self)).items():
            value = getattr(self, field)
            if value is not None:
                out[name] = encode(value)
        return {**self.__dict__.get("_extra", {}), **out}


def _camel(name: str) -> str:
    first, *rest = name.rstrip("_").split("_")
    return first + "".join(word.capitalize() for word in rest)


_plans: dict[Any, dict[str, tuple[str, Any]]] = {}


def _plan(cls: Any) -> dict[str, tuple[str, Any]]:
    """The field and the type of each member, by its name in JSON."""
    plan = _plans.get(cls)
    if plan is None:
        hints = typing.get_type_hints(cls)
        names: dict[str, str] = cls._names
        plan = {names.get(field.name, _camel(field.name)): (field.name, hints[field.name]) for field in dataclasses.fields(cls)}
        _plans[cls] = plan
    return plan


def decode(kind: Any, value: Any) -> Any:
    """A JSON value as a value of a type. A value that does not fit one of several types stays as it is."""
    if value is None or kind is Any:
        return value
    origin = typing.get_origin(kind)
    if origin is None:
        if isinstance(kind, type):
            if issubclass(kind, Model):
                return kind.from_json(value)
            if kind is datetime:
                return parse_instant(value)
        return value
    arguments = typing.get_args(kind)
    if origin in (Union, types.UnionType):
        options = [option for option in arguments if option is not type(None)]
        if len(options) == 1:
            return decode(options[0], value)
        for option in options:
            if isinstance(option, type) and issubclass(option, Model) and isinstance(value, Mapping):
                try:
                    return option.from_json(value)
                except ValueError:
                    continue
        return value
    if origin is list and isinstance(value, list):
        return [decode(arguments[0], item) for item in value]
    if origin is tuple and isinstance(value, list):
        return tuple(value)
    if origin is dict and isinstance(value, Mapping):
        return {key: decode(arguments[1], item) for key, item in value.items()}
    if origin is Literal:
        return value  # a newer broker may have a word that this version does not know
    return value


def encode(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, Model):
        return value.to_json()
    if isinstance(value, datetime):
        return format_instant(value)
    if isinstance(value, Mapping):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [encode(item) for item in value]
    return value


def parse_instant(text: str) -> datetime:
    """An RFC 3339 instant."""
    return datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith(("Z", "z")) else text)


def format_instant(instant: datetime) -> str:
    """An instant in UTC with milliseconds. One without a zone is in local time, as `datetime` itself has it."""
    text = instant.astimezone(timezone.utc).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")
