"""From bytes to text, as a browser does it: by what is known from outside, then by the page itself, then by a guess."""

from __future__ import annotations

import codecs
import re
from urllib.parse import urljoin

from charset_normalizer import from_bytes

#: Bytes of a page in which it may name its encoding (WHATWG HTML, "prescan a byte stream").
PRESCAN = 1_024
#: Bytes that a guess looks at.
GUESS = 64 << 10

# The labels of the WHATWG Encoding Standard that mean another codec here than their name says.
_LABELS = {
    label: codec
    for codec, labels in {
        "cp1252": "ascii us-ascii ansi_x3.4-1968 iso-8859-1 iso8859-1 iso88591 iso_8859-1 iso_8859-1:1987 l1 latin1 cp819 ibm819"
        " iso-ir-100 csisolatin1 x-cp1252",
        "cp1254": "iso-8859-9 iso8859-9 iso_8859-9 l5 latin5 csisolatin5 x-cp1254",
        "cp874": "iso-8859-11 iso8859-11 tis-620 dos-874 windows-874",
        "gb18030": "gb2312 gb_2312 gb_2312-80 csgb2312 chinese iso-ir-58 gbk x-gbk csiso58gb231280",
        "big5hkscs": "big5 big5-hkscs cn-big5 csbig5 x-x-big5",
        "cp932": "shift_jis shift-jis sjis x-sjis ms_kanji ms932 windows-31j csshiftjis",
        "cp949": "euc-kr cseuckr korean ks_c_5601-1987 ks_c_5601-1989 ksc5601 ksc_5601 windows-949",
        "euc_jp": "x-euc-jp",
        "iso8859-8": "iso-8859-8-i logical csiso88598i",
        "koi8-r": "koi koi8",
        "koi8-u": "koi8-ru",
        "mac-cyrillic": "x-mac-cyrillic x-mac-ukrainian",
        "mac-roman": "mac macintosh x-mac-roman csmacintosh",
        "utf-8": "utf8 unicode-1-1-utf-8 unicode11utf8 unicode20utf8 x-unicode20utf8",
        "utf-16-le": "utf-16 utf-16le unicode ucs-2 iso-10646-ucs-2 csunicode unicodefeff",
        "utf-16-be": "utf-16be unicodefffe",
    }.items()
    for label in labels.split()
}
_NAMES = re.compile(
    r"utf-8|utf-16-[lb]e|cp(125[0-8]|866|874|932|949)|iso8859-\d+|koi8-[ru]|mac-(roman|cyrillic)|gb18030|big5hkscs|euc_jp|iso2022_jp"
)
_CANDIDATES = ["cp1251", "koi8_r", "cp932", "euc_jp", "gb18030", "big5", "cp949", "cp1253", "cp1255", "cp1256", "cp874", "cp866"]
_META = re.compile(r"charset\s*=\s*[\"']*([^\s\"';/>]+)")


def _c1(error: UnicodeError) -> tuple[str, int]:
    """A byte that the code page does not have is the control character of its number, as in the standard."""
    if isinstance(error, UnicodeDecodeError):
        return "".join(map(chr, error.object[error.start : error.end])), error.end
    raise error


def _character_number(error: UnicodeError) -> tuple[str, int]:
    """A character that the encoding does not have becomes its number, percent-encoded as browsers do."""
    if isinstance(error, UnicodeEncodeError):
        return "".join(f"%26%23{ord(character)}%3B" for character in error.object[error.start : error.end]), error.end
    raise error


codecs.register_error("webloom-c1", _c1)
codecs.register_error("webloom-number", _character_number)


def codec_of(label: str) -> str | None:
    """The codec of a label of the web, or `None` if there is none."""
    label = label.strip().lower()
    name = _LABELS.get(label, label)
    try:
        name = codecs.lookup(name).name
    except (LookupError, ValueError):
        return None
    return name if _NAMES.fullmatch(name) else None


def encoding_of(body: bytes, known: str | None, content_type: str | None) -> str:
    """The codec of a body: the one that is `known`, else its byte order mark, else the `Content-Type`, else a `<meta>` among
    its first 1024 bytes, else UTF-8 if it is that, else a guess."""
    found = codec_of(known) if known else None
    if found is None:
        for mark, name in ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be")):
            if body.startswith(mark):
                return name
    if found is None and content_type:
        parameters = (part.partition("=") for part in content_type.split(";")[1:])
        label = next((value.strip().strip("\"'") for name, _, value in parameters if name.strip().lower() == "charset"), None)
        found = codec_of(label) if label else None
    return found or _named_in_page(body) or _guess(body)


def _named_in_page(body: bytes) -> str | None:
    text = body[:PRESCAN].decode("latin-1").lower()
    at = 0
    while (at := text.find("<", at)) >= 0:
        if text.startswith("<!--", at):
            at = text.find("-->", at + 4)
            if at < 0:
                return None
        elif text.startswith("<meta", at):
            end = text.find(">", at)
            end = len(text) if end < 0 else end
            for label in _META.findall(text[at:end]):
                name = codec_of(label)
                if name:
                    # It was read as ASCII, so it is not UTF-16 (the same in the standard).
                    return "utf-8" if name.startswith("utf-16") else name
            at = end
        else:
            at += 1
    return None


def _guess(body: bytes) -> str:
    try:
        body.decode("utf-8")
        return "utf-8"
    except UnicodeDecodeError:
        pass
    sample = body[:GUESS]
    high = sum(byte > 0x7F for byte in sample)
    letters = high + sum(chr(byte).isalpha() for byte in sample if byte < 0x80)
    if high * 4 < letters:
        return "cp1252"  # letters of the Latin alphabet, some with accents
    best = from_bytes(sample, cp_isolation=_CANDIDATES).best()
    return codec_of(best.encoding) or "cp1252" if best else "cp1252"


def decode(body: bytes, encoding: str) -> str:
    """The text of a body, without its byte order mark."""
    text = body.decode(encoding, "webloom-c1" if encoding.startswith("cp125") else "replace")
    return text[1:] if text.startswith("\ufeff") else text


def join(base: str, link: str, encoding: str) -> str:
    """The URL of a link on a page in this encoding: its query is written in the encoding of the page, all else in UTF-8.

    Raises:
        ValueError: it is not a URL.
    """
    url = urljoin(base, link.strip("\t\n\f\r "))
    if url.isascii() or encoding == "utf-8" or encoding.startswith("utf-16"):
        return url
    before, mark, rest = url.partition("?")
    if not mark or not before.lower().startswith(("http:", "https:")):
        return url
    query, hash_mark, fragment = rest.partition("#")
    raw = query.encode("gbk" if encoding == "gb18030" else encoding, "webloom-number")
    text = "".join(f"%{byte:02X}" if byte <= 0x20 or byte > 0x7E or byte in b"\"'<>#" else chr(byte) for byte in raw)
    return f"{before}?{text}{hash_mark}{fragment}"
