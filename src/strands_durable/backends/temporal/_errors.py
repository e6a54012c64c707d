"""Maps Temporal's errors to ours; no other module inspects them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from temporalio.api.errordetails.v1 import NamespaceNotFoundFailure
from temporalio.client import WorkflowUpdateFailedError
from temporalio.service import RPCError, RPCStatusCode

from ...errors import BackendUnavailableError, CipherError, DurableError, ExecutionNotFoundError

_SEALED = "strands-durable-sealed"
_KEYS = "TLS and API keys come from Temporal's own environment variables or config file."
_HINTS = {RPCStatusCode.UNAUTHENTICATED: _KEYS, RPCStatusCode.PERMISSION_DENIED: _KEYS}


@contextmanager
def translated(where: object, execution_id: str | None = None) -> Iterator[None]:
    """Map errors of Temporal in this block to ours; ``execution_id`` is the execution that is asked about, if any."""
    try:
        yield
    except RPCError as error:
        raise error_of(error, where, execution_id) from error
    except KeyError as error:
        if "payload encoding" not in str(error):  # the text of Temporal's converter
            raise
        kind = CipherError if _SEALED in str(error) else BackendUnavailableError
        raise kind(
            str(where),
            f"this client cannot decode what was recorded: {error.args[0]}",
            "Use the cipher, or the data converter and codec, it was recorded with: TemporalBackend(url, cipher=...).",
        ) from error
    except WorkflowUpdateFailedError as error:
        why = error.cause.__cause__  # the worker says that it could not decode the update, because of this
        if _SEALED not in str(why):
            raise
        reason = f"the worker of execution {execution_id!r} has no cipher, and was sent what is encrypted"
        raise CipherError(
            str(where), reason, "Nothing was recorded. Give its workers the keys, and try again."
        ) from error


def error_of(error: RPCError, where: object, execution_id: str | None = None) -> DurableError:
    """Return our error for one of Temporal's."""
    namespace = _missing_namespace(error)
    if namespace is not None:
        hint = "Name another one in the URL (?namespace=...), or create it: temporal operator namespace create."
        return BackendUnavailableError(str(where), f"namespace {namespace!r} does not exist", hint)
    if error.status is RPCStatusCode.NOT_FOUND and execution_id is not None:
        return ExecutionNotFoundError(execution_id, str(where))
    reason = error.message.rstrip(".") or error.status.name
    return BackendUnavailableError(str(where), f"Temporal says: {reason}", _HINTS.get(error.status, ""))


def is_unknown(error: RPCError) -> bool:
    """Return True if Temporal knows no such workflow, or none that is still open."""
    return error.status is RPCStatusCode.NOT_FOUND and _missing_namespace(error) is None


def is_astray(error: RPCError) -> bool:
    """Return True if Temporal no longer accepts the page token of a history, which must be read again from the start."""
    return error.status is RPCStatusCode.INVALID_ARGUMENT


def unreachable(where: object, address: str, error: BaseException) -> BackendUnavailableError:
    """Return the error for a server that cannot be reached."""
    said = str(error).rpartition("Failed client connect: ")[2]
    return BackendUnavailableError(
        str(where),
        f"no Temporal server answers at {address}" + (f" ({said})" if said else ""),
        "Start one ('temporal server start-dev' on your own machine), or fix the address.",
    )


def _missing_namespace(error: RPCError) -> str | None:
    for detail in error.grpc_status.details:
        if detail.Is(NamespaceNotFoundFailure.DESCRIPTOR):
            found = NamespaceNotFoundFailure()
            detail.Unpack(found)
            return found.namespace
    return None
