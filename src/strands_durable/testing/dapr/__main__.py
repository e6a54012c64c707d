"""`python -m strands_durable.testing.dapr`: find or build the programs of Dapr, and print where they are."""

from __future__ import annotations

import sys

from ...errors import BackendUnavailableError
from ._binaries import build

try:
    print(build().folder)
except BackendUnavailableError as error:
    sys.exit(str(error))
