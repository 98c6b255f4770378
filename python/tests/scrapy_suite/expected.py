"""Which of Scrapy's own tests fail on the fleet, and why. docs/python.md says the same to users."""

_NODE_HEADERS = "a node sends headers of its own: Accept, Accept-Encoding, User-Agent"
_ONE_VALUE = "several headers of one name are sent as one, with commas"
_UNPACKED = "a node unpacks bodies and takes Content-Encoding and Content-Length away"
_LENGTH = "a node sends no Content-Length with a POST that has no body"
_RESOLVED = "the node resolves names: the test replaces the resolver of this process"
_NODE_TEXT = "the node refuses the body, in words of its own"
_NO_PART = "a node does not report a part of a body"
_KIND = "a connection that breaks before an answer is reported as one that was refused"
_BIND = "the node chooses the address from which it connects"
_NODE_TLS = "TLS is the node's: Scrapy's settings do not reach it"
_CHECKED = "a node always checks certificates"
_TRUSTED = "this node was started with the site's certificate as a trusted one"

EXPECTED = {
    "downloads": {
        "TestHttp::test_request_header_duplicate": _ONE_VALUE,
        "TestHttp::test_server_receives_no_extra_headers": _NODE_HEADERS,
        "TestHttp::test_download_has_correct_response_headers": _UNPACKED,
        "TestHttp::test_download_is_not_automatically_gzip_decoded": _UNPACKED,
        "TestHttp::test_idna_rejected_hostname": _RESOLVED,
        "TestHttp::test_content_length_zero_bodyless_post_request_headers": _LENGTH,
        "TestHttp::test_content_length_zero_bodyless_post_only_one": _LENGTH,
        "TestHttp::test_download_with_maxsize": _NODE_TEXT,
        "TestHttp::test_download_with_maxsize_very_large_file": _NODE_TEXT,
        "TestHttp::test_download_allow_data_loss_broken": _NO_PART,
        "TestHttp::test_download_allow_data_loss_broken_chunked": _NO_PART,
        "TestHttp::test_download_allow_data_loss_via_setting": _NO_PART,
        "TestHttp::test_download_conn_aborted": _KIND,
        "TestHttp::test_download_bind_address_setting": _BIND,
        "TestHttps::test_tls_logging": _NODE_TLS,
        "TestHttps::test_keylog": _NODE_TLS,
        "TestHttps::test_keylog_unwritable": _NODE_TLS,
        "TestHttps::test_verify_certs": _TRUSTED,
        "TestHttps::test_verify_certs_deprecated": _TRUSTED,
        "TestHttpsWrongHostname::test_download": _CHECKED,
        "TestHttpsCustomCiphers::test_download": _NODE_TLS,
        "TestHttpsWithCrawler::test_response_ssl_certificate": "`response.certificate` is not there",
        "TestHttpsWithCrawler::test_response_ssl_certificate_empty_body": "`response.certificate` is not there",
    },
    "scheduler": {},
}

_SLOW = "it waits for DOWNLOAD_TIMEOUT (180 s): limits of one request do not reach the node"
_SIGNALS = "headers_received and bytes_received are not sent, so the test waits for a page that never ends"
_TIMES = "it measures times, which a busy machine cannot keep"

#: Tests that are not run.
LEFT_OUT = {
    "downloads": {
        "TestHttp::test_timeout_download_from_spider_nodata_rcvd": _SLOW,
        "TestHttp::test_timeout_download_from_spider_server_hangs": _SLOW,
        "TestHttpWithCrawler::test_download_with_content_length": _SLOW,
        "TestHttpProxy::test_download_with_proxy_https_timeout": _SLOW,
        "TestHttpWithCrawler::test_bytes_received_stop_download_callback": _SIGNALS,
        "TestHttpWithCrawler::test_bytes_received_stop_download_errback": _SIGNALS,
        "TestHttpWithCrawler::test_headers_received_stop_download_callback": _SIGNALS,
        "TestHttpWithCrawler::test_headers_received_stop_download_errback": _SIGNALS,
    },
    "scheduler": {
        "TestCrawl::test_fixed_delay": _TIMES,
        "TestCrawl::test_randomized_delay": _TIMES,
        "TestCrawl::test_timeout_success": _TIMES,
        "TestCrawl::test_timeout_failure": _TIMES,
    },
}
