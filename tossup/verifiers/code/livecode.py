"""LiveCodeBench's test cases: JSON text, or for private ones base64 of zlib of a pickled string of JSON.

The pickle comes from a data set on the internet, so it is read by an unpickler that may build nothing but a string.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
import pickle
import zlib
from typing import Any

MAX_BYTES = 512 << 20
"""Of the unpacked private tests; the largest real ones have some 100 MB."""


class _StringUnpickler(pickle.Unpickler):
    """Loads text and other built-in values; refuses to look up any class or function."""

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        raise pickle.UnpicklingError(f"the private tests refer to {module_name}.{global_name}; only text is read")


def test_cases(field: str | list[Any] | None) -> list[dict[str, str]]:
    """The cases (`input`, `output`, `testtype`) of one field of a problem.

    Raises:
        ValueError: it is neither JSON nor packed JSON, or it is too large.
    """
    if not field:
        return []
    value: Any = field
    if isinstance(field, str):
        try:
            value = json.loads(field)
        except ValueError:
            value = json.loads(unpacked(field))
    if not isinstance(value, list) or not all(isinstance(c, dict) and {"input", "output"} <= c.keys() for c in value):
        raise ValueError("LiveCodeBench test cases: expected a list of objects with input and output")
    return value


def unpacked(text: str) -> str:
    """The JSON text in a packed field.

    Raises:
        ValueError: it is not packed as described above, or it is too large.
    """
    try:
        unpacker = zlib.decompressobj()
        data = unpacker.decompress(base64.b64decode(text, validate=True), MAX_BYTES)
        if unpacker.unconsumed_tail:
            raise ValueError(f"private tests of more than {MAX_BYTES >> 20} MB")
        value = _StringUnpickler(io.BytesIO(data)).load()
    except (binascii.Error, zlib.error, pickle.UnpicklingError, EOFError, IndexError) as e:
        raise ValueError(f"private tests that cannot be read: {e}") from e
    if not isinstance(value, str):
        raise ValueError(f"private tests that cannot be read: expected packed text, got a {type(value).__name__}")
    return value
