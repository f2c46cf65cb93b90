"""Results: read-only views of the documents that the engine writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pandas


class Quantities(dict[str, float]):
    """Numbers by name; the unit at the end of a name may be left out: `terms["tp_comm"]` is `terms["tp_comm_s"]`."""

    __slots__ = ()

    def __missing__(self, name: str) -> float:
        for unit in ("_s", "_gib"):
            if name + unit in self:
                return self[name + unit]
        raise KeyError(name)


class Unread(Sequence[Any]):
    """Documents as texts of JSON, read when the first of them is asked for."""

    __slots__ = ("_documents", "_texts")

    def __init__(self, texts: list[str]) -> None:
        self._texts = texts
        self._documents: list[Any] | None = None

    def _read(self) -> list[Any]:
        if self._documents is None:
            import json

            self._documents = json.loads(f"[{','.join(self._texts)}]")
        return self._documents

    def __len__(self) -> int:
        return len(self._texts)

    def __getitem__(self, at: Any) -> Any:
        return self._read()[at]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._read())

    def __eq__(self, other: object) -> bool:
        return self._read() == (other._read() if isinstance(other, Unread) else other)

    def __repr__(self) -> str:
        return repr(self._read())

    def __reduce__(self) -> tuple[object, ...]:
        return Unread, (self._texts,)

    def __deepcopy__(self, memo: dict[int, Any]) -> list[Any]:
        from copy import deepcopy

        return deepcopy(self._read(), memo)


class Record:
    """Frozen object whose attributes are the entries of a document; quantities carry their unit in the name.

    `to_dict` gives the document itself.
    """

    __slots__ = ("_document",)

    _document: Mapping[str, Any]

    _kinds: ClassVar[Mapping[str, type[Record]]] = {}
    """Class of each entry that is a record, or a list of records."""

    _quantities: ClassVar[frozenset[str]] = frozenset()
    """Entries that map names to numbers."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        object.__setattr__(self, "_document", document)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            value = self._document[name]
        except KeyError:
            absent = f"this {type(self).__name__} has no `{name}`; it has: {', '.join(self._document)}"
            raise AttributeError(absent) from None
        if name in self._quantities:
            return Quantities(value)
        kind = self._kinds.get(name)
        if kind is None or value is None:
            return tuple(value) if isinstance(value, list) else value
        return tuple(map(kind, value)) if isinstance(value, (list, Unread)) else kind(value)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a {type(self).__name__} is read-only")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a {type(self).__name__} is read-only")

    def __dir__(self) -> Iterable[str]:
        return [*super().__dir__(), *self._document]

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other._document == self._document

    def __hash__(self) -> int:
        return hash((type(self), repr(self._document)))

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._document,)

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{key}={value!r}" for key, value in self._document.items() if not isinstance(value, (dict, list, Unread))
        )
        return f"{type(self).__name__}({shown})"

    def to_dict(self) -> dict[str, Any]:
        """The document as plain dicts and lists, apart from this object."""
        from copy import deepcopy

        return deepcopy(dict(self._document))

    def _rows(self) -> Iterator[dict[str, Any]]:
        """Rows of the table that a notebook and pandas show."""
        yield flat(self._document)

    def to_pandas(self) -> pandas.DataFrame:
        """Table of the result, one column for each figure; needs pandas."""
        import pandas

        return pandas.DataFrame.from_records(list(self._rows()))

    def _repr_html_(self) -> str:
        return table(list(self._rows()))


def flat(document: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Entries of a document and of the documents in it, by names joined with dots; lists are left out."""
    entries: dict[str, Any] = {}
    for key, value in document.items():
        if isinstance(value, dict):
            entries.update(flat(value, f"{before}{key}."))
        elif not isinstance(value, list):
            entries[before + key] = value
    return entries


def table(rows: list[dict[str, Any]]) -> str:
    """HTML table of rows that share their keys."""
    from html import escape

    def cell(value: object) -> str:
        return f"<td>{escape(f'{value:.4g}' if isinstance(value, float) else str(value))}</td>"

    columns = list(dict.fromkeys(key for row in rows for key in row))
    head = "".join(f"<th>{escape(key)}</th>" for key in columns)
    body = "".join(f"<tr>{''.join(cell(row.get(key, '')) for key in columns)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
