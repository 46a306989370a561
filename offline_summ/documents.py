"""Reads one document from disk as text: plain text and Markdown itself, PDF, DOCX and HTML with markitdown.

Whatever cannot be read faithfully is refused with an `InputError`, never read approximately: nothing is
decoded with replacement characters, and no encoding is guessed. Nothing is fetched from the network. Knows
nothing of scoring or judges.
"""

import json
import logging
import os
import re
import stat
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, Literal
from xml.parsers import expat

from offline_summ.errors import InputError, UsageError

__all__ = ["decode_text", "parse_json", "read_document"]

_Format = Literal["pdf", "docx", "html"]
_FORMATS: dict[str, _Format] = {".pdf": "pdf", ".docx": "docx", ".html": "html", ".htm": "html"}

_BOMS = ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))
_MAX_CONTROL_SHARE = 0.1
_CONTROL = re.compile(r"[\x01-\x08\x0e-\x1a\x1c-\x1f\x7f]")  # terminal logs and page breaks are text
_NOT_TEXT = re.compile("[\ud800-\udfff\0]")
_HTML_CHARSET = re.compile(
    rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([A-Za-z0-9_:.-]{1,40})""", re.IGNORECASE
)
_HTML_CHARSET_MEANS = {
    "ascii": "cp1252",
    "us-ascii": "cp1252",
    "iso-8859-1": "cp1252",
    "latin1": "cp1252",
    "shift_jis": "cp932",
    "shift-jis": "cp932",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "euc-kr": "cp949",
    "utf-16": "utf-8",
    "utf-16le": "utf-8",
    "utf-16be": "utf-8",
}  # the supersets that browsers read under these names, https://encoding.spec.whatwg.org/#names-and-labels
_HTML_HEAD_BYTES = 1024  # how far the HTML standard looks for a declared encoding

_CONVERT_HINT = (
    "Convert it to UTF-8, for example with 'iconv -f CP932 -t UTF-8 OLD > NEW' for Japanese "
    "(WINDOWS-1252 for Western European, GB18030 for Chinese)."
)
_DOCX_TEXT = re.compile(r"word/document\d*\.xml")
_LINKED_IMAGE = re.compile(rb"""(<(?:[\w.-]+:)?blip\b[^>]*?)\s[\w.-]+:link\s*=\s*(?:"[^"]*"|'[^']*')""")
_DOCX_ERRORS = (expat.ExpatError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)
_NOISY_LOGGERS = ("pdfminer", "pdfplumber", "mammoth", "markitdown", "bs4", "charset_normalizer")


def read_document(path: Path) -> str:
    """Return the text of a document.

    `.pdf`, `.docx`, `.html` and `.htm` are converted to Markdown by markitdown (extra `docs`); every other
    ending is text, see `decode_text`. Pipes and process substitution (`<(...)`) are read like files.

    Args:
        path: the document. An empty text file gives `""`.

    Raises:
        InputError: it cannot be opened, is neither a file nor a pipe, or holds no readable text.
        UsageError: markitdown is needed and not installed.
    """
    data = _read_bytes(path)
    name = str(path)
    kind = _FORMATS.get(path.suffix.lower())
    if kind is None:
        return decode_text(data, name)
    if kind == "html":
        data = _decode_html(data, name).encode("utf-8")
    elif not data:
        raise InputError(f"{name!r} is empty, so it is no {kind.upper()} file.", "Export the document again.")
    text = _convert(data, kind, name)
    if kind == "pdf" and not text.strip():
        raise InputError(
            f"{name!r} has no text layer; it probably holds scanned pages.",
            "Run OCR over it first, for example with ocrmypdf.",
        )
    return text


def decode_text(data: bytes, name: str) -> str:
    r"""Decode the bytes of a text file strictly: UTF-8, or UTF-16 if it begins with a byte-order mark.

    A byte-order mark is removed, and `\r\n` and `\r` become `\n`, as when Python reads a text file; the
    rest is unchanged. Character offsets in results refer to the text returned here.

    Args:
        data: the whole file.
        name: what to call it in an error, such as its path.

    Raises:
        InputError: it is binary, or not in that encoding; the message has the byte offset, never the text.
    """
    _refuse_known_binary(data, name)
    bom, encoding = next(((mark, enc) for mark, enc in _BOMS if data.startswith(mark)), (b"", "utf-8"))
    if encoding == "utf-8" and (offset := data.find(b"\0")) >= 0:
        raise InputError(
            f"{name!r} is not a text file: it has a NUL byte at offset {offset}.",
            "Give a text, PDF, DOCX or HTML file; UTF-16 text must begin with a byte-order mark.",
        )
    text = _decode_strictly(data, bom, encoding, name)
    if "\0" in text or len(_CONTROL.findall(text)) > _MAX_CONTROL_SHARE * len(text):
        raise InputError(
            f"{name!r} is not a text file: it holds too many control characters.",
            "Give a text, PDF, DOCX or HTML file.",
        )
    return text.replace("\r\n", "\n").replace("\r", "\n")


def parse_json(text: str, name: str) -> Any:
    """Parse the JSON text of a file.

    Args:
        text: the whole file.
        name: what to call the file in an error.

    Raises:
        InputError: it is not JSON; the message says where, and quotes nothing.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        what = error.msg.lower().removesuffix(" at")
        raise InputError(
            f"{name!r} is not JSON: {what} in line {error.lineno}, column {error.colno}.",
            "Give a file with one JSON object.",
        ) from None
    except (RecursionError, ValueError):
        raise InputError(f"{name!r} is JSON that is nested too deep or holds a number too long.") from None


def _read_bytes(path: Path) -> bytes:
    name = str(path)
    try:
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            raise InputError(f"{name!r} is a directory, not a document.", "Name one file.")
        if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):
            raise InputError(
                f"{name!r} is a device or a socket, not a document.",
                "Name a file, or '-' for standard input.",
            )
        return path.read_bytes()
    except FileNotFoundError as error:
        raise InputError(f"{name!r} does not exist.", "Check the path.") from error
    except PermissionError as error:
        raise InputError(f"{name!r} may not be read.", "Check its permissions.") from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "not a valid path"
        raise InputError(f"{name!r} cannot be read: {reason}.", "Check the path.") from error


def _refuse_known_binary(data: bytes, name: str) -> None:
    if data.startswith(b"%PDF-"):
        raise InputError(f"{name!r} is a PDF, but its name does not end in '.pdf'.", "Rename it.")
    if data.startswith(b"PK\x03\x04"):
        raise InputError(
            f"{name!r} is a ZIP archive, not a text file.",
            "If it is a Word document, rename it to end in '.docx'.",
        )


def _decode_strictly(data: bytes, bom: bytes, encoding: str, name: str) -> str:
    try:
        return data[len(bom) :].decode(encoding)
    except UnicodeDecodeError as error:
        offset = len(bom) + error.start
    # Raised outside the handler: UnicodeDecodeError holds the whole document, and would travel along.
    raise InputError(
        f"{name!r} is not {encoding.upper()} text: invalid byte at offset {offset}.", _CONVERT_HINT
    )


def _decode_html(data: bytes, name: str) -> str:
    """Decode HTML strictly with its byte-order mark, its declared encoding, or UTF-8, in this order."""
    declared = _HTML_CHARSET.search(data[:_HTML_HEAD_BYTES])
    if declared is None or any(data.startswith(mark) for mark, _ in _BOMS):
        return decode_text(data, name)
    charset = declared[1].decode("ascii").lower()
    try:
        recoded = data.decode(_HTML_CHARSET_MEANS.get(charset, charset)).encode("utf-8")
    except UnicodeDecodeError as error:
        offset = error.start
    except (LookupError, ValueError) as error:
        raise InputError(f"{name!r} declares the unknown encoding {charset!r}.", _CONVERT_HINT) from error
    else:
        return decode_text(recoded, name)
    raise InputError(
        f"{name!r} is not {charset!r} as it declares: invalid byte at offset {offset}.", _CONVERT_HINT
    )


def _convert(data: bytes, kind: _Format, name: str) -> str:
    """Convert with one markitdown converter only: the others would read a broken file as something else."""
    missing = f"Reading {name!r} needs markitdown, which is not installed."
    hint = "Install it with: pip install 'offline-summ[docs]'"
    try:
        from markitdown import MarkItDown, MarkItDownException, StreamInfo
        from markitdown.converters import DocxConverter, HtmlConverter, PdfConverter
    except ImportError as error:
        raise UsageError(missing, hint) from error
    converters = {"pdf": PdfConverter, "docx": DocxConverter, "html": HtmlConverter}
    reader = MarkItDown(enable_builtins=False, enable_plugins=False)
    reader.register_converter(converters[kind]())
    info = StreamInfo(extension=f".{kind}", charset="utf-8" if kind == "html" else None)
    try:
        with _silenced():
            safe = _checked_docx(data) if kind == "docx" else data
            markdown = str(reader.convert_stream(BytesIO(safe), stream_info=info).markdown)
    except (MarkItDownException, *_DOCX_ERRORS) as error:
        if "MissingDependencyException" in str(error):
            raise UsageError(missing, hint) from error
        raise InputError(
            f"{name!r} cannot be read as {kind.upper()}: it is damaged, encrypted or not of this format.",
            "Open it in its own program and export it again, or save it as text.",
        ) from error
    return _NOT_TEXT.sub("\ufffd", markdown.replace("\f", "\n")).strip()


def _checked_docx(docx: bytes) -> bytes:
    """Refuse a DOCX with malformed XML, which markitdown would repair, and drop its links to outside images.

    markitdown reads DOCX with mammoth, and releases of it before 1.11 open those links (seen with 1.9.1).
    """
    with zipfile.ZipFile(BytesIO(docx)) as archive:
        parts = {item.filename: archive.read(item) for item in archive.infolist()}
    for name, part in parts.items():
        if _DOCX_TEXT.fullmatch(name):
            expat.ParserCreate().Parse(part, True)
    linked = {name: _LINKED_IMAGE.sub(rb"\1", part) for name, part in parts.items() if name.endswith(".xml")}
    if all(parts[name] == part for name, part in linked.items()):
        return docx
    rebuilt = BytesIO()
    with zipfile.ZipFile(rebuilt, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, part in {**parts, **linked}.items():
            archive.writestr(name, part)
    return rebuilt.getvalue()


@contextmanager
def _silenced() -> Iterator[None]:
    """Keep the converters quiet: their warnings and log lines can quote the document."""
    loggers = [logging.getLogger(name) for name in _NOISY_LOGGERS]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL + 1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
