"""The part of a backend that is about everything it holds: copies, checks, and how long executions are kept.

An engine whose server does this itself implements none of it, and says what to do there instead.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from .._records.printable import url_for_people
from ..errors import UnsupportedFeatureError

if TYPE_CHECKING:
    from .._records.retention import Pruned, Retention
    from .._records.verification import Verification


class Upkeep:
    """Copies, checks and retention of what a backend holds."""

    url: str
    backup_hint: str = "Back up what its server keeps."
    """What to back up where executions are not in a file of ours."""

    async def backup(
        self, to: str | os.PathLike[str], *, force: bool = False, progress: Callable[[int, int], None] | None = None
    ) -> int:
        """Copy everything that is recorded to a new file, while it is in use, and return the size of the copy in bytes.

        The copy is a store like any other: connect to it, or put it in the place of the original. It holds what was committed
        at one moment. Its executions have no owner: one that was running is resumed from its last finished step.

        Args:
            to: The path of the copy. Only its owner can read it. The file has this name once it is complete.
            force: Replace a file that exists.
            progress: Called with the pages that are copied so far, and the number of all pages.

        Raises:
            BackupError: The file exists, or cannot be made.
            UnsupportedFeatureError: Executions are kept by a server; the error says what to back up.
        """
        feature = f"A backup of {url_for_people(self.url)}"
        raise UnsupportedFeatureError(feature, "its executions are not in a file of ours", self.backup_hint)

    async def verify(self, *, progress: Callable[[str], None] | None = None) -> Verification:
        """Check everything that is recorded: pages, every row, references, bytes and statuses. Changes nothing.

        Args:
            progress: Called with what is checked next.

        Raises:
            FormatVersionError: It is not a store, or one of a later version.
            UnsupportedFeatureError: Executions are kept by a server.
        """
        feature = f"Verifying {url_for_people(self.url)}"
        raise UnsupportedFeatureError(
            feature, "its executions are not in a file of ours", "Use the means of its server."
        )

    retention_hint: str = "Set the retention of its server."
    """What keeps executions only for a time where this is not done here."""

    def retain(self, retention: Retention, *, agents: Mapping[str, Retention] | None = None) -> None:
        """Have the workers of this process remove executions that have ended long enough ago, about once an hour.

        One worker of all that use the backend does it at a time. Rules of an earlier call are replaced. Call it before `work`
        or `start`.

        Args:
            retention: How long executions are kept.
            agents: By name of the agent, what applies to its executions instead. It wins over `durable_agent(retention=...)`.

        Raises:
            UnsupportedFeatureError: This engine has its own retention; the error says which.
        """
        feature = f"Retention on {url_for_people(self.url)}"
        raise UnsupportedFeatureError(feature, "its workers do not remove executions", self.retention_hint)

    async def prune(
        self,
        retention: Retention | None = None,
        *,
        agents: Mapping[str, Retention] | None = None,
        dry_run: bool = False,
        rebuild: bool = False,
    ) -> Pruned:
        """Remove executions that have ended long enough ago, now, and return how many were removed.

        What has not ended, and what is held, stays. The id of a removed execution is unknown again.

        Args:
            retention: How long executions are kept; that of `retain` if None.
            agents: By name of the agent, what applies to its executions instead.
            dry_run: Return what would be removed, and remove nothing.
            rebuild: Rewrite the file afterwards, which a file of format 7 or earlier needs once to become smaller. Writers
                wait meanwhile.

        Raises:
            BackendUnavailableError: Another process is removing executions at this moment.
            UnsupportedFeatureError: This engine has its own retention; the error says which.
        """
        feature = f"Retention on {url_for_people(self.url)}"
        raise UnsupportedFeatureError(feature, "its executions are removed by its server", self.retention_hint)
