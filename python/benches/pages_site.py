"""A site for benches: pages of about 8 KB, a tree with links to pages that are known already."""

from __future__ import annotations

import asyncio
import sys


class Pages(asyncio.Protocol):
    """Answers GET /<number>, with keep-alive."""

    pages = 1000

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.data = b""

    def data_received(self, data: bytes) -> None:
        self.data += data
        while (end := self.data.find(b"\r\n\r\n")) >= 0:
            path = self.data[: self.data.index(b" HTTP")].partition(b"/")[2]
            self.data = self.data[end + 4 :]
            body = page(int(path), self.pages) if path.isdigit() else b""
            status = b"200 OK" if body else b"404 Not Found"
            head = b"HTTP/1.1 %s\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: %d\r\n\r\n" % (status, len(body))
            assert isinstance(self.transport, asyncio.Transport)
            self.transport.write(head + body)


def page(number: int, pages: int) -> bytes:
    """Four new links, and eight to pages that have been seen or will be."""
    links = [4 * number + n for n in range(1, 5)] + [(number * 7 + 13 * n) % pages for n in range(8)]
    rows = "".join(f'<li><a href="/{n}">page {n}</a></li>' for n in links if n < pages)
    text = "".join(f'<p class="text">paragraph {n} of page {number}: {"lorem ipsum dolor sit amet " * 10}</p>' for n in range(25))
    return f"<html><head><title>{number}</title></head><body><ul>{rows}</ul>{text}</body></html>".encode()


async def main() -> None:
    Pages.pages = int(sys.argv[1])
    server = await asyncio.get_running_loop().create_server(Pages, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
