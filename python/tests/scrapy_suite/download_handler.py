"""Scrapy's tests of a download handler, for that of the fleet. `test_scrapy_suite.py` puts this among Scrapy's own modules."""

from http import HTTPStatus

import pytest
from tests.utils.bases import download_handlers_http as scrapys

from webloom.scrapy import FleetDownloadHandler

pytestmark = [pytest.mark.only_asyncio]
#: Of the statuses, which are all the same to the fleet but for 429 and 503.
STATUSES = [HTTPStatus.OK, HTTPStatus.NOT_FOUND, HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE]


class Fleet:
    handler_supports_bindaddress_meta = False

    @property
    def download_handler_cls(self):
        return FleetDownloadHandler

    @property
    def settings_dict(self):
        name = "webloom.scrapy.FleetDownloadHandler"
        return {"DOWNLOAD_HANDLERS": {"http": name, "https": name}}


class TestHttp(Fleet, scrapys.TestHttpBase):
    test_download_has_correct_http_status_code = None

    @pytest.mark.parametrize("status", STATUSES)
    @scrapys.coroutine_test
    async def test_status(self, mockserver, status):
        request = scrapys.Request(mockserver.url(f"/status?n={status.value}"))
        async with self.get_dh() as handler:
            assert (await handler.download_request(request)).status == status.value


class TestHttps(Fleet, scrapys.TestHttpsBase):
    """Only what Scrapy asks beside the tests of HTTP."""


for name in vars(scrapys.TestHttpBase):
    if name.startswith("test_") and name not in ("test_download", *vars(scrapys.TestHttpsBase)):
        setattr(TestHttps, name, None)


class TestHttpsWrongHostname(Fleet, scrapys.TestHttpsWrongHostnameBase): ...


class TestHttpsCustomCiphers(Fleet, scrapys.TestHttpsCustomCiphersBase): ...


class TestHttpWithCrawler(Fleet, scrapys.TestHttpWithCrawlerBase): ...


class TestHttpsWithCrawler(Fleet, scrapys.TestHttpWithCrawlerBase):
    """Only what is special to HTTPS."""

    is_secure = True


for name in vars(scrapys.TestHttpWithCrawlerBase):
    if name.startswith("test_") and "certificate" not in name:
        setattr(TestHttpsWithCrawler, name, None)


class TestHttpProxy(Fleet, scrapys.TestHttpProxyBase):
    expected_http_proxy_request_body = b"http://example.com/"
