"""The command that encrypts a store again."""

from __future__ import annotations

import asyncio
from dataclasses import asdict

import click

from .._records.rekeyed import Rekeyed
from .json_view import print_json
from .options import BackendTarget, backend_option, json_option
from .prompts import is_terminal


@click.command()
@click.option("--decrypt", is_flag=True, help="Write the contents in plain text instead.")
@click.option("--yes", "-y", is_flag=True, help="With --decrypt: do not ask for confirmation.")
@backend_option
@json_option
def rekey(decrypt: bool, yes: bool, place: BackendTarget, as_json: bool) -> None:
    """Encrypt a store with the current key.

    The keys come from the environment: STRANDS_DURABLE_CIPHER_KEYS (ID=BASE64, the current key first, then the earlier
    ones), or STRANDS_DURABLE_CIPHER (module:object).

    A store that is encrypted with an earlier key is encrypted again beside its workers, which need both keys. A store in plain
    text is encrypted while no other process uses it, and so is one decrypted. Interrupted, it can be run again.

    With --json: an object {outcome, key_id, rows, damaged}.
    """
    if decrypt and not yes:
        _confirm()
    done = asyncio.run(place.visited().rekey(decrypt=decrypt))
    if as_json:
        print_json(asdict(done))
    else:
        click.echo(_said(done))


def _confirm() -> None:
    if not is_terminal():
        raise click.UsageError("stdin is not a terminal. Pass --yes to decrypt without confirmation.")
    click.confirm("Write all contents of the store in plain text?", abort=True, err=True)


def _said(done: Rekeyed) -> str:
    if done.outcome == "unchanged":
        return "Nothing to do: " + (
            f"everything is encrypted with the key {done.key_id!r}." if done.key_id else "nothing is encrypted."
        )
    if done.outcome == "decrypted":
        return f"Decrypted {done.rows} rows. The store is in plain text now."
    left = f" {done.damaged} are damaged and stay as they were: see 'strands-durable verify'." if done.damaged else ""
    return f"Encrypted {done.rows} rows with the key {done.key_id!r}.{left}"
