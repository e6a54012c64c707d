"""How activities of the workflow fail, and what it fails with itself. Imported into the sandbox."""

from __future__ import annotations

from typing import Any

from temporalio.exceptions import ActivityError, ApplicationError

from ._protocol import GONE, MALFORMED, TOO_LARGE, Commit, commit_of


def is_of(error: ActivityError, kind: str) -> bool:
    """Return True if an activity has failed with an error of this type."""
    return isinstance(error.cause, ApplicationError) and error.cause.type == kind


def is_gone(error: ActivityError) -> bool:
    """Return True if a worker has given up an execution, so that another one resumes it."""
    return is_of(error, GONE)


def is_too_large(error: ActivityError) -> bool:
    """Return True if a worker has more to report than Temporal accepts; no other worker could report it either."""
    return is_of(error, TOO_LARGE)


def too_large(error: ActivityError) -> ApplicationError:
    """Return the failure of a workflow whose worker has more to report than Temporal accepts."""
    assert isinstance(error.cause, ApplicationError)
    return ApplicationError(error.cause.message, type=TOO_LARGE, non_retryable=True)


def overflow(execution_id: str, size: int, history: int, events: int) -> ApplicationError:
    """Return the failure that ends a workflow before Temporal does: a failed workflow can be resumed."""
    text = (
        f"Execution {execution_id!r}: its conversation has {size:,} bytes, too many for a new run of the workflow, and its "
        f"history has {history:,} bytes in {events:,} events, where Temporal ends workflows. Name a place for large payloads "
        "in the URL of workers and clients (payloads=), and resume it there."
    )
    return ApplicationError(text, type=TOO_LARGE, non_retryable=True)


def failure(execution_id: str, error: dict[str, Any]) -> ApplicationError:
    """Return the failure of a workflow whose execution has failed."""
    text = f"Execution {execution_id!r} failed: {error.get('text', '')}"
    return ApplicationError(text, error, type=str(error.get("type", "")), non_retryable=True)


def committed(given: Any) -> Commit:
    """Return the commit of a client; fail its update if it is malformed."""
    found = commit_of(given)
    if found is None:
        text = "This update takes one object, with base ([epoch, number]) and rows; the execution is as it was"
        raise ApplicationError(text, type=MALFORMED, non_retryable=True)
    return found
