"""Cookies of a shared crawl: a request takes the cookies along that its site has set in the process that yields it."""

from __future__ import annotations

import time
from http.cookiejar import Cookie
from typing import TYPE_CHECKING, Any

from scrapy.downloadermiddlewares.cookies import CookiesMiddleware
from scrapy.http.cookies import CookieJar, WrappedRequest, potential_domain_matches
from scrapy.utils.httpobj import urlparse_cached

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler

_FIELDS = (
    "version", "name", "value", "port", "port_specified", "domain", "domain_specified", "domain_initial_dot", "path",
    "path_specified", "secure", "expires", "discard", "comment", "comment_url", "rfc2109",
)  # fmt: skip


def of(crawler: Crawler, request: Request) -> dict[str, Any] | None:
    """The cookies that the request would be sent with now, for `put` in another process."""
    jar = _jar(crawler, request, make=False)
    if jar is None or not len(jar):
        return None
    wrapped: Any = WrappedRequest(request)
    host = urlparse_cached(request).hostname or ""
    hosts = [host, f".{host}"] if host.replace(".", "").isdigit() else potential_domain_matches(host)
    if "." not in host:
        hosts += potential_domain_matches(f"{host}.local")
    inner: Any = jar.jar
    # As Scrapy does before it writes the header.
    inner._policy._now = inner._now = int(time.time())
    found = [cookie for name in hosts if name in inner._cookies for cookie in inner._cookies_for_domain(name, wrapped)]
    return {"cookies": [[getattr(cookie, field) for field in _FIELDS] for cookie in found]} if found else None


def put(crawler: Crawler, request: Request, extras: dict[str, Any]) -> None:
    """Puts the cookies that came with a request into the jar of this process."""
    jar = _jar(crawler, request, make=True) if extras.get("cookies") else None
    if jar is None:
        return
    for values in extras["cookies"]:
        cookie = Cookie(**dict(zip(_FIELDS, values, strict=True)), rest={})
        jar.set_cookie_if_ok(cookie, request)


def _jar(crawler: Crawler, request: Request, make: bool) -> CookieJar | None:
    if request.meta.get("dont_merge_cookies"):
        return None
    for middleware in crawler.engine.downloader.middleware.middlewares:
        if isinstance(middleware, CookiesMiddleware):
            key = request.meta.get("cookiejar")
            return middleware.jars[key] if make or key in middleware.jars else None
    return None
