# SPDX-FileCopyrightText: The Tenure Authors
# SPDX-License-Identifier: Apache-2.0

"""The errors in which a lock can end, and with which a call can fail."""

from __future__ import annotations

__all__ = [
    "AskedError",
    "ExpiredError",
    "HeldError",
    "LostError",
    "NoSessionsError",
    "NotConfirmedError",
    "ProblemError",
    "ReleasedError",
    "TenureError",
    "UnavailableError",
    "UncertainError",
]


class TenureError(Exception):
    """The base of all errors of this package."""


class HeldError(TenureError):
    """Another holder has the lock, and the wait is over. Not an accident: try again later.

    ``free_in`` is the seconds until the lock can be free at the earliest if its holder shows no
    sign of life, as the server saw it. ``reserved``: the lock is kept for ``holder``, to whom it was
    handed over.
    """

    def __init__(
        self, name: str, holder: str, token: int, free_in: float, reserved: bool, label: str
    ) -> None:
        super().__init__(f'"{name}" is held by {holder!r} (token {token})')
        self.name = name
        self.holder = holder
        self.token = token
        self.free_in = free_in
        self.reserved = reserved
        self.label = label


class LostError(TenureError):
    """The lock is not held any more: stop at once. It never comes back; acquire it again."""


class ExpiredError(LostError):
    """The deadline passed before a heartbeat was confirmed."""


class NotConfirmedError(TenureError):
    """The lock is granted, and no heartbeat of it is confirmed yet: do not act on it."""


class ReleasedError(TenureError):
    """The lock was released, or its release has begun."""


class AskedError(TenureError):
    """The holder was asked to stop. The lock is held until the work has returned.

    ``kind`` is ``step-down`` or ``hand-over``; ``to`` and ``to_label`` say for whom.
    """

    def __init__(self, kind: str, by: str, reason: str, to: str = "", to_label: str = "") -> None:
        text = f"asked to {kind.replace('-', ' ')}"
        if to or to_label:
            text += f" to {to or to_label!r}"
        text += f" by {by!r}" + (f": {reason}" if reason else "")
        super().__init__(text)
        self.kind = kind
        self.by = by
        self.reason = reason
        self.to = to
        self.to_label = to_label


class ProblemError(TenureError):
    """The server refused the call. ``kind`` is the last part of the problem's type."""

    def __init__(self, kind: str, status: int, detail: str) -> None:
        super().__init__(f"{kind} ({status}): {detail}")
        self.kind = kind
        self.status = status
        self.detail = detail


class NoSessionsError(ProblemError):
    """The store of the server keeps no sessions. Acquire each lock by itself, with
    :meth:`Client.acquire`."""

    def __init__(self, kind: str, status: int, detail: str) -> None:
        super().__init__(kind, status, f"{detail}; acquire each lock with Client.acquire")


class UnavailableError(TenureError):
    """No server gave an answer to an acquire or an opening before the wait was over. Nothing is held."""


class UncertainError(TenureError):
    """No answer to the release or the closing came: the lock is released, or expires by itself."""
