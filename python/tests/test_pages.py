"""Responses: text, links, and the formats of the wire."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from webloom import ProtocolError, Request, Response
from webloom._bulk import Result, read_deliveries
from webloom._charset import _guess, codec_of, decode, encoding_of, join

PROTOCOL = Path(__file__).parents[2] / "docs" / "protocol.md"


def response(body: bytes = b"", content_type: str = "text/html", **request: Any) -> Response:
    head = {"headers": [["Content-Type", content_type], ["Set-Cookie", "a"], ["set-cookie", "b"]], "targetUrl": "http://a/b/c?d"}
    return Response(Result({"url": "http://a/", **request}, {"requestId": "0" * 24, "status": 200, "time": 1500}, head, body))


@pytest.mark.parametrize(
    ("body", "known", "content_type", "text"),
    [
        (b"caf\xc3\xa9", None, None, "café"),
        (b"caf\xe9", None, 'text/html; Charset="ISO-8859-1"', "café"),
        (b"caf\xc3\xa9", "utf-8", "text/html; charset=iso-8859-1", "café"),
        (b"caf\xe9", "no such thing", "text/html; charset=iso-8859-1", "café"),
        (b"\xef\xbb\xbfcaf\xc3\xa9", None, "text/html; charset=iso-8859-1", "café"),
        (b"\xff\xfen\x00\xe9\x00", None, "text/html", "né"),
        (b"<!-- <meta charset=koi8-r> --><meta charset = 'windows-1251'>\xe0", None, None, "а"),
        (b"<META http-equiv=Content-Type content='text/html; charset=koi8-r'>\xc1", None, None, "а"),
        (b"<meta charset=utf-16>\xc3\xa9", None, None, "é"),
        (b"<meta charset=", None, None, "<meta charset="),
        (b"<p>caf\xe9 cr\xe8me, d\xe9j\xe0 vu", None, "text/html", "<p>café crème, déjà vu"),
        (b"\x83\x65\x83\x58\x83\x67\x82\xc5\x82\xb7", "shift_jis", None, "テストです"),
        (b"\x93\x80\x81", "windows-1252", None, "“€\x81"),
        (b"\xff\xfe\xfd", "utf-8", None, "\ufffd\ufffd\ufffd"),
        (b"", None, None, ""),
    ],
)
def test_each_word_about_the_encoding_counts_in_its_turn(
    body: bytes, known: str | None, content_type: str | None, text: str
) -> None:
    found = decode(body, encoding_of(body, known, content_type))
    assert found == text or re.sub(r"^(<!--.*?-->|<[^>]*>)+", "", found) == text


def test_a_late_meta_does_not_count() -> None:
    body = b" " * 1024 + b"<meta charset=koi8-r>\xc3\xa9"
    assert decode(body, encoding_of(body, None, None)).endswith("é")


@pytest.mark.parametrize(
    ("codec", "text"),
    [
        ("cp1251", "Съешь ещё этих мягких французских булок, да выпей чаю. "),
        ("koi8_r", "Съешь ещё этих мягких французских булок, да выпей чаю. "),
        ("cp932", "日本語のテキストです。これは長い文章です。"),
        ("euc_jp", "日本語のテキストです。これは長い文章です。"),
        ("gb18030", "这是一个中文网页的内容,没有说明它的编码。"),
        ("cp949", "한국어 문장입니다. 이 페이지는 인코딩을 말하지 않습니다."),
        ("cp1252", "Größe und Käse für Müller, voilà."),
    ],
)
def test_text_without_a_word_is_guessed(codec: str, text: str) -> None:
    body = (text * 4).encode(codec)
    assert decode(body, _guess(body)) == text * 4


def test_labels_of_the_web_only_are_encodings() -> None:
    assert codec_of(" UTF8 ") == "utf-8"
    assert codec_of("GB2312") == "gb18030"
    assert codec_of("iso-8859-2") == "iso8859-2"
    for label in ("", "utf-7", "idna", "rot13", "base64", "unicode_escape", "no such thing", "\x00"):
        assert codec_of(label) is None


@pytest.mark.parametrize(
    ("encoding", "link", "path"),
    [
        ("cp932", "q?k=日本語", "/d/q?k=%93%FA%96{%8C%EA"),
        ("gb18030", "q?k=中文", "/d/q?k=%D6%D0%CE%C4"),
        ("cp949", "q?k=한글", "/d/q?k=%C7%D1%B1%DB"),
        ("cp1251", "?к=Я&b=c d", "/d/?%EA=%DF&b=c%20d"),
        ("cp1252", "?π=é€☃", "/d/?%26%23960%3B=%E9%80%26%239731%3B"),
        ("iso2022_jp", "?日π", "/d/?%1B$BF|&P%1B(B"),
        ("utf-16-le", "?é", "/d/?é"),
        ("utf-8", "?é", "/d/?é"),
        ("cp932", "/x?a=%93%FA&b", "/x?a=%93%FA&b"),
        ("cp1252", "?a#é", "/d/?a#é"),
    ],
)
def test_the_query_of_a_link_is_in_the_encoding_of_its_page(encoding: str, link: str, path: str) -> None:
    assert join("http://a/d/", link, encoding) == f"http://a{path}"


def test_a_response_has_what_a_page_has() -> None:
    page = response(b"<title>T</title><a href='x?y'>z</a>", meta=[1], depth=2, callback="other")
    assert (page.url, page.status, page.ok, page.time, page.depth, page.meta) == ("http://a/b/c?d", 200, True, 1.5, 2, [1])
    assert page.headers["content-type"] == page.headers.get("CONTENT-TYPE") == "text/html"
    assert page.headers.get_all("set-cookie") == ["a", "b"]
    assert len(page.headers) == 2
    assert page.css("title::text").get() == "T"
    assert page.xpath("//a/@href").getall() == ["x?y"]
    assert page.follow("x?y", "other", meta=3) == Request("http://a/b/x?y", "other", meta=3)
    assert page.request.callback == "other"
    assert response(b'{"a": 1}').json() == {"a": 1}
    assert response(b"<a><b>x</b></a>", "application/xml").xpath("/a/b/text()").get() == "x"


def test_a_request_says_only_what_there_is_to_say() -> None:
    assert Request("http://a/").to_json(0) == {"url": "http://a/"}
    request = Request("http://a/", "other", method="POST", body="b", key="k", priority=-7, meta={"m": 1}, headers={"A": "b"})
    said = request.to_json(3)
    assert said.pop("depth") == 3
    assert Request.from_json(said) == request
    # A repetition has a key of its own, so that a call that is sent again does not put it into the queue twice.
    again = Request("http://a/", key="k", dont_filter=True)
    first, second = again.to_json(0), again.to_json(0)
    assert first.pop("key") != second.pop("key")
    assert first == second == {"url": "http://a/", "dontFilter": True}
    for wrong in ("ftp://a/", "http://", "/a", "mailto:a@b", "http://a/" + "x" * 9000, "http://[a"):
        with pytest.raises(ValueError):  # noqa: PT011, the text differs
            Request(wrong).to_json(0)


def _dump(after: str) -> bytes:
    """The bytes of a dump of docs/protocol.md."""
    text = PROTOCOL.read_text().split(after, 1)[1].split("```text\n", 2)
    dump = next(part for part in text[1:] if part.startswith("0000"))
    lines = dump.split("```")[0].splitlines()
    return b"".join(bytes.fromhex(line[6:].split("  ")[0]) for line in lines)


def test_the_delivery_of_the_page_on_the_wire_is_read() -> None:
    data = _dump("### A delivery")
    for copies in (1, 2):
        blocks = read_deliveries(data * copies)
        assert len(blocks) == copies
        (result,) = blocks[0].results
        assert (blocks[0].block_id, result.body) == ("0f8fad5bd9cb469f0000000000000007", b"<p>hi</p>")
        assert result.request["url"] == "http://example.com/"
        assert Response(result).headers["content-type"] == "text/html"
    for cut in (1, 4, 60, 200, len(data) - 1):
        with pytest.raises(ProtocolError):
            read_deliveries(data[:cut])
