"""An address that cannot be right is refused at the first call, with its cause, however patient the store is."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from saga_engine.errors import StoreRefused, StoreUnavailable
from saga_engine.stores import open_store
from saga_engine.testing.proxy import CuttingProxy
from tests.support.ports import free_ports
from tests.support.servers import DebianRedis

#: Whoever waits for this long instead of naming the cause hangs.
PATIENCE_S = 3600.0
#: Each kind of address finds it.
SCHEMES = ["", "+sentinel", "+cluster"]


class Certificates:
    """A CA, another one, and a certificate for 127.0.0.1 that the first one signed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("ca", "other"):
            self._openssl("req", "-x509", "-nodes", "-days", "2", "-subj", f"/CN={name}", *self._new(name))
        self._openssl("req", "-nodes", "-subj", "/CN=server", *self._new("server", "csr"))
        (folder / "names").write_text("subjectAltName=IP:127.0.0.1")
        signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "names")
        self._openssl("x509", "-req", "-days", "2", "-in", "server.csr", "-out", "server.pem", *signed)

    def _new(self, name: str, end: str = "pem") -> list[str]:
        curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
        return [*curve, "-keyout", f"{name}.key", "-out", f"{name}.{end}"]

    def _openssl(self, *command: str) -> None:
        subprocess.run(["openssl", *command], cwd=self.folder, check=True, capture_output=True)

    def __getitem__(self, name: str) -> str:
        return str(self.folder / name)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("tls"))


class TlsRedis(DebianRedis):
    """A server with a plain port and a TLS port."""

    def __init__(self, certificates: Certificates, clients: str = "no") -> None:
        (self.tls_port,) = free_ports(1)
        super().__init__(
            tcp=True,
            tls_port=str(self.tls_port),
            tls_cert_file=certificates["server.pem"],
            tls_key_file=certificates["server.key"],
            tls_ca_cert_file=certificates["ca.pem"],
            tls_auth_clients=clients,
        )


@pytest.fixture(scope="module")
def server(certificates: Certificates) -> Iterator[TlsRedis]:
    with TlsRedis(certificates) as server:
        yield server


async def refused(url: str) -> StoreRefused:
    """The error of a store that cannot be opened, after the first call."""
    store = open_store(url, patience_s=PATIENCE_S)
    with pytest.raises(StoreRefused) as caught:
        await store.open()
    with pytest.raises(StoreRefused) as again:
        await store.open()
    await store.close()
    assert str(again.value) == str(caught.value)
    assert caught.value.hint
    return caught.value


def address(scheme: str, kind: str, port: int, options: str = "") -> str:
    """``redis`` or ``rediss``, of a server, of Sentinels or of a cluster."""
    return f"{scheme}{kind}://127.0.0.1:{port}{'/main' if kind == '+sentinel' else ''}{options}"


async def test_the_right_address_is_opened(server: TlsRedis, certificates: Certificates) -> None:
    """The server of these tests can be used over TLS, and without."""
    for url in (
        address("rediss", "", server.tls_port, f"?ssl_ca_certs={certificates['ca.pem']}"),
        address("redis", "", server.port),
    ):
        store = open_store(url)
        await store.open()
        await store.close()


@pytest.mark.parametrize("kind", SCHEMES)
async def test_a_certificate_that_is_not_accepted(server: TlsRedis, certificates: Certificates, kind: str) -> None:
    """Another CA, or none, is named as that."""
    for options in (f"?ssl_ca_certs={certificates['other.pem']}", ""):
        error = await refused(address("rediss", kind, server.tls_port, options))
        assert "has a certificate that is not accepted" in error.message
        assert "ssl_ca_certs" in str(error.hint)


@pytest.mark.parametrize("kind", SCHEMES)
@pytest.mark.parametrize("file", ["nowhere.pem", "names"])
async def test_a_file_that_is_no_certificate(
    server: TlsRedis, certificates: Certificates, kind: str, file: str
) -> None:
    """A file that is missing, or no PEM file, is no reason to wait for a server."""
    error = await refused(address("rediss", kind, server.tls_port, f"?ssl_ca_certs={certificates[file]}"))
    assert "a file of its ssl_… options cannot be used" in error.message


@pytest.mark.parametrize("kind", SCHEMES)
async def test_tls_to_a_plain_port_and_plain_to_a_tls_port(server: TlsRedis, kind: str) -> None:
    """The address names the wrong one of two ways to talk; which one is right is said."""
    error = await refused(address("rediss", kind, server.port))
    assert "does not speak TLS" in error.message
    error = await refused(address("redis", kind, server.tls_port))
    assert "speaks TLS" in error.message
    assert "rediss" in str(error.hint)


async def test_a_server_that_wants_a_certificate_of_its_client(certificates: Certificates) -> None:
    """The alert of the server is passed on, with the options that answer it; with them it opens."""
    with TlsRedis(certificates, clients="yes") as server:
        url = address("rediss", "", server.tls_port, f"?ssl_ca_certs={certificates['ca.pem']}")
        error = await refused(url)
        assert "does not accept this client" in error.message
        assert "ssl_certfile" in str(error.hint)
        files = f"&ssl_certfile={certificates['server.pem']}&ssl_keyfile={certificates['server.key']}"
        store = open_store(url + files)
        await store.open()
        await store.close()


@pytest.mark.parametrize("kind", SCHEMES)
async def test_a_server_of_another_protocol(kind: str) -> None:
    """What answers is shown, so that a wrong port is recognised."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(64)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    web = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with web:
        error = await refused(address("redis", kind, web.sockets[0].getsockname()[1]))
    assert "is no Redis or Valkey server: it says 'HTTP/1.1 400 Bad Request'" in error.message


@asynccontextmanager
async def without_scripts(upstream: DebianRedis, answer: bytes, denied: tuple[bytes, ...]) -> AsyncIterator[str]:
    """The address of a proxy that answers so to some commands, or closes the connection, and passes on all others."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, onward = await asyncio.open_unix_connection(str(upstream.socket))

        async def back() -> None:
            while said := await there.read(65536):
                writer.write(said)

        passing = asyncio.create_task(back())
        try:
            while head := await reader.readline():
                parts = [head]
                for _ in range(int(head[1:]) if head.startswith(b"*") else 0):
                    size = await reader.readline()
                    parts += [size, await reader.readexactly(int(size[1:]) + 2)]
                name = (parts[2] if len(parts) > 2 else head.split()[0]).strip().upper()
                if name not in denied:
                    onward.write(b"".join(parts))
                elif answer:
                    writer.write(answer % name)
                else:
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client has closed it
        finally:
            passing.cancel()
            onward.close()
            writer.close()

    proxy = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with proxy:
        yield f"redis://127.0.0.1:{proxy.sockets[0].getsockname()[1]}"


SCRIPTS = (b"EVAL", b"EVALSHA")
TOLD = (b"INFO", b"CONFIG", b"CLIENT")


@pytest.mark.parametrize("denied", [SCRIPTS, (*SCRIPTS, *TOLD)], ids=["scripts", "scripts-and-settings"])
@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"-ERR unknown command '%s'\r\n", "runs no scripts: unknown command 'EVAL'"),
        (b"-ERR unsupported command '%s'\r\n", "runs no scripts: unsupported command 'EVAL'"),
        (b"-ERR %s is not supported by this proxy\r\n", "runs no scripts: EVAL is not supported"),
        (b"", "closes the connection when it gets a script (EVAL)"),
    ],
    ids=["unknown", "unsupported", "not-supported", "closes"],
)
async def test_a_proxy_without_scripts(server: TlsRedis, answer: bytes, said: str, denied: tuple[bytes, ...]) -> None:
    """It is refused for its scripts, also if it shows no settings: no setting would mend it."""
    async with without_scripts(server, answer, denied) as url:
        error = await refused(url)
    assert said in error.message
    assert "EVAL" in str(error.hint)


@pytest.mark.parametrize("rules", ["-evalsha", "-@scripting +eval"])
async def test_scripts_are_sent_whole_where_only_that_is_allowed(server: TlsRedis, rules: str) -> None:
    """A user may have EVAL and not EVALSHA; one with neither is told so."""
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "whole", "reset", "on", ">s", "~*", "&*", "+@all", *rules.split())
        client.execute_command("ACL", "SETUSER", "none", "reset", "on", ">s", "~*", "&*", "+@all", "-@scripting")
    store = open_store(f"redis://whole:s@127.0.0.1:{server.port}?namespace=whole")
    await store.open()
    assert await store.open_lease("A", 60_000)
    assert await store.renew("A", 60_000)
    await store.close_lease("A")
    await store.close()
    error = await refused(f"redis://none:s@127.0.0.1:{server.port}")
    assert "NOPERM" in error.message


@pytest.mark.parametrize("answer", [b"-ERR unknown command '%s'\r\n", b"-NOPERM no permissions to run '%s'\r\n"])
async def test_a_proxy_that_passes_on_whole_scripts_alone(server: TlsRedis, answer: bytes) -> None:
    """A server whose operator has removed EVALSHA, or a proxy that knows EVAL alone, is used with EVAL."""
    async with without_scripts(server, answer, (b"EVALSHA",)) as url:
        store = open_store(f"{url}?namespace=evalsha", patience_s=PATIENCE_S)
        await store.open()
        await store.open_lease("A", 60_000)
        await store.close_lease("A")
        await store.close()


@pytest.mark.parametrize("kind", SCHEMES)
async def test_a_server_that_is_away_is_waited_for(kind: str) -> None:
    """Silence and a closed port are no evidence against an address."""
    (port,) = free_ports(1)
    store = open_store(address("redis", kind, port), patience_s=0.3)
    with pytest.raises(StoreUnavailable):
        await store.open()
    await store.close()


async def test_connections_that_are_cut_at_first_are_made_again(server: TlsRedis) -> None:
    """A server that closes its first connections, as one does that restarts, is no proxy without scripts."""
    async with CuttingProxy(server.tcp_url, tcp=True) as proxy:
        proxy.cut("before", times=3, matching=b"")
        store = open_store(f"{proxy.url}?namespace=cut", patience_s=PATIENCE_S)
        await store.open()
        await store.close()
    assert proxy.made == 3
