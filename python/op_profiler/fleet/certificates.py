"""Creates the TLS certificates of a cluster; anyone who has them can run code on every machine of the cluster."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from op_profiler.errors import UsageError, needing
from op_profiler.files import write_whole
from op_profiler.fleet.settings import AUTHORITY, KEY, NODE


def make(folder: Path, hosts: Sequence[str]) -> None:
    """Create a certificate authority, and one certificate signed by it for all machines.

    The authority's key is not stored. Dask checks that both ends of a connection have a certificate of the authority,
    but does not check names.

    Args:
        folder: folder for three files that only their owner can read; the user copies it to every machine.
        hosts: names or addresses to which the certificate is issued.

    Raises:
        UsageError: the folder already has certificates, or a host is not the name of a machine.
        MissingPackageError: trustme is not installed.
    """
    with needing("trustme", "making certificates", extra="fleet"):
        import trustme
    if any((folder / name).exists() for name in (AUTHORITY, NODE, KEY)):
        raise UsageError(f"{folder} has certificates already; new ones would lock out the machines that have the old")
    authority = trustme.CA(organization_name="op_profiler cluster")
    try:
        issued = authority.issue_cert(*hosts)
    except ValueError as error:  # of idna, of a name that no machine can have
        raise UsageError(f"--host {' '.join(hosts)}: no certificate can be issued to that ({error})") from None
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)  # before a key lies in it
    write_whole(folder / AUTHORITY, authority.cert_pem.bytes().decode())
    write_whole(folder / NODE, "".join(part.bytes().decode() for part in issued.cert_chain_pems))
    write_whole(folder / KEY, issued.private_key_pem.bytes().decode())
    for name in (AUTHORITY, NODE, KEY):
        (folder / name).chmod(0o600)
