"""Webhooks: a notification as a signed HTTP request.

The signature is over the time and the body, so that neither can be changed or sent again later unnoticed. Redirects are not
followed: the receiver of a signed request is the one that was named.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from ..._records.notifications import EVENTS, Event, Notification

ID_HEADER = "Strands-Durable-Id"
TIMESTAMP_HEADER = "Strands-Durable-Timestamp"
SIGNATURE_HEADER = "Strands-Durable-Signature"
_MIN_SECRET = 16


@dataclass(frozen=True)
class Webhook:
    """A URL that receives notifications, each signed with a secret that the receiver knows.

    Args:
        url: An ``https://`` or ``http://`` URL. Any answer of 2xx means that the notification was received.
        secret: At least 16 characters; the key of the signature.
        events: What to report: ``suspended``, ``failed``, ``completed``.
        timeout_seconds: How long to wait for an answer.
    """

    url: str = field(repr=False)
    secret: str = field(repr=False)
    events: Iterable[Event] = tuple(EVENTS)
    timeout_seconds: float = 10.0

    def __post_init__(self) -> None:
        _refuse_url(self.url)
        if len(self.secret) < _MIN_SECRET:
            raise ValueError(f"The secret of a webhook must have at least {_MIN_SECRET} characters")
        events = tuple(self.events)
        if not events or set(events) - set(EVENTS):
            raise ValueError(f"events={list(events)}: a webhook reports {', '.join(EVENTS)}")
        object.__setattr__(self, "events", events)

    def __str__(self) -> str:
        return f"webhook at {urlsplit(self.url).hostname}"  # the rest may be a secret

    def send(self, notification: Notification) -> None:
        """Send a notification, or raise OSError."""
        body = json.dumps(notification.to_json(), separators=(",", ":"), default=str).encode()
        stamp = str(int(time.time()))
        headers = {
            "Content-Type": "application/json",
            ID_HEADER: notification.notification_id,
            TIMESTAMP_HEADER: stamp,
            SIGNATURE_HEADER: signature(self.secret, stamp, body),
        }
        request = urllib.request.Request(self.url, body, headers, method="POST")
        try:
            _opener.open(request, timeout=self.timeout_seconds).close()
        except urllib.error.HTTPError as error:
            error.close()
            raise OSError(f"it answered {error.code}") from None
        except urllib.error.URLError as error:
            raise OSError(f"it cannot be reached: {error.reason}") from None
        except ConnectionError:
            raise
        except (http.client.HTTPException, UnicodeError) as error:  # whose text may have a part of the URL
            raise OSError(f"it did not answer as an HTTP server does ({type(error).__name__})") from None


def _refuse_url(url: str) -> None:
    """Raise if no request can be sent to a URL. The error does not show the URL: a part of it may be a secret."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("The URL of a webhook must begin with https:// or http:// and name a host")
    if "@" in parts.netloc:
        raise ValueError("The URL of a webhook must not have a user or a password: the signature shows who sends")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise ValueError("The URL of a webhook must be percent-encoded: no blanks, and only printable ASCII characters")
    try:
        has_port = parts.port != 0
    except ValueError:
        has_port = False
    if not has_port:
        raise ValueError("The port of a webhook's URL must be a number from 1 to 65535")


def signature(secret: str, timestamp: str, body: bytes) -> str:
    """Return the value of the signature header."""
    return "v1=" + hmac.new(secret.encode(), f"{timestamp}.".encode() + body, hashlib.sha256).hexdigest()


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


_opener = urllib.request.build_opener(_NoRedirect)
