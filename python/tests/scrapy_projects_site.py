"""The sites that the projects in tests/scrapy_projects crawl: quotes on pages, a directory of websites, a shop of books."""

from __future__ import annotations

import http.server

QUOTES, DIRECTORY, BOOKS = 30, 24, 24
#: Of the directory; the project drops those about gambling.
GAMBLING = DIRECTORY // 4


def page(path: str) -> str | None:
    """The body of a page; None if there is none."""
    section, _, rest = path.strip("/").partition("/")
    if section == "quotes":
        number = int(rest.partition("/")[2] or 1)
        body = "".join(
            f'<div class="quote"><span class="text">“Quote {quote} – ünïcode”</span>'
            f' by <small class="author">A. {quote % 7}</small>'
            f'<div class="tags"><a class="tag">t{quote % 3}</a><a class="tag">all</a></div></div>'
            for quote in range(10 * number - 10, 10 * number)
        )
        return body + (f'<li class="next"><a href="/quotes/page/{number + 1}/">Next</a></li>' if number * 10 < QUOTES else "")
    if section == "directory":
        first = DIRECTORY // 3 * ("books", "resources", "tools").index(rest.strip("/"))
        sites = "".join(
            f'<li> <a href="http://{site}.example/"> Site {site} </a>\n'
            f" - About {'gambling' if site % 4 == 0 else 'parsers'} {site}</li>"
            for site in range(first, first + DIRECTORY // 3)
        )
        return f'<ul class="directory-url">{sites}</ul>'
    if section == "books":
        number = int(rest.partition("-")[2].partition(".")[0] or 1)
        books = "".join(
            f'<article class="product_pod"><h3><a href="/book/{book}.html">Book {book}</a></h3></article>'
            for book in range(8 * number - 8, 8 * number)
        )
        return books + (f'<li class="next"><a href="/books/page-{number + 1}.html">next</a></li>' if number * 8 < BOOKS else "")
    if section == "book":
        book = int(rest.partition(".")[0])
        return (
            f'<ul class="breadcrumb"><li><a href="/">Books</a></li><li><a href="/">Category {book % 5}</a></li>'
            f'<li class="active">Book {book}</li></ul><div class="product_main"><h1>Book {book}</h1>'
            f'<p class="price_color">£{book}.99</p></div><div id="product_description"></div><p>Of “{book}”, and so on</p>'
        )
    return None


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = page(self.path)
        raw = f"<html><body>{body}</body></html>".encode()
        self.send_response(404 if body is None else 200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, format: str, *args: object) -> None: ...
