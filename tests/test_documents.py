import logging
import os
import socket
import sys
import threading
import zipfile
from io import BytesIO
from pathlib import Path

import pytest

from offline_summ.documents import _checked_docx, decode_text, read_document
from offline_summ.errors import InputError, UsageError

EXAMPLES = Path(__file__).parents[1] / "examples"
NEEDS_MARKITDOWN = "reads PDF, DOCX and HTML: pip install 'offline-summ[docs]'"


@pytest.fixture
def offline(monkeypatch):
    """Fails the test at the first attempt to open a connection or look up a name."""

    def refuse(*_args, **_kwargs):
        raise AssertionError("a document reader used the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def docx(body, *, relationships=""):
    """Build the smallest Word document with this body."""
    namespaces = (
        'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main" '
        'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships" '
        'xmlns:wp="http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing" '
        'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main" '
        'xmlns:pic="http://schemas.openxmlformats.org/drawingml/2006/picture"'
    )
    packages = "http://schemas.openxmlformats.org/package/2006"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    word = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
    main = f'<Relationship Id="rId1" Type="{office}/officeDocument" Target="word/document.xml"/>'
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{packages}/content-types">'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Override PartName="/word/document.xml" ContentType="{word}"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{packages}/relationships">{main}</Relationships>',
        "word/_rels/document.xml.rels": (
            f'<Relationships xmlns="{packages}/relationships">{relationships}</Relationships>'
        ),
        "word/document.xml": f"<w:document {namespaces}><w:body>{body}</w:body></w:document>",
    }
    file = BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, text in parts.items():
            archive.writestr(name, text)
    return file.getvalue()


def paragraph(text):
    return f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>"


def pdf(content):
    """Build a PDF of one page with this content stream."""
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R "
        b"/Resources << /Font << /F1 5 0 R >> >> >>",
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    ]
    data, offsets = b"%PDF-1.4\n", []
    for number, item in enumerate(objects, start=1):
        offsets.append(len(data))
        data += b"%d 0 obj\n%s\nendobj\n" % (number, item)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    trailer = b"trailer\n<< /Size 6 /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % len(data)
    return data + b"xref\n0 6\n0000000000 65535 f \n" + table + trailer


def written(folder, name, data):
    path = folder / name
    path.write_bytes(data)
    return path


def one_line_error(path):
    with pytest.raises(InputError) as caught:
        read_document(path)
    assert "\n" not in str(caught.value)
    assert repr(str(path)) in caught.value.message
    return caught.value


# --- text --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.log", "a", "a.unknown", ".pdfx"])
def test_every_unknown_ending_is_read_as_utf_8_text(tmp_path, name):
    data = "# Überschrift\n\n図書館 😀 שלום\n".encode()
    assert read_document(written(tmp_path, name, data)) == "# Überschrift\n\n図書館 😀 שלום\n"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", ""),
        (b"  \n", "  \n"),
        (b"\xef\xbb\xbfabc", "abc"),
        ("日本\r\n".encode("utf-16"), "日本\n"),
        (b"\xff\xfea\x00b\x00", "ab"),
        (b"\xfe\xff\x00a\x00b", "ab"),
        (b"one\r\ntwo\rthree\nfour", "one\ntwo\nthree\nfour"),
        (b"tab\tpage\x0cbreak \x1b[1mbold\x1b[0m", "tab\tpage\x0cbreak \x1b[1mbold\x1b[0m"),
        (b"one bell \x07 in a long line of text", "one bell \x07 in a long line of text"),
        ("\ufeff\ufefftwice".encode(), "\ufefftwice"),
    ],
)
def test_text_is_decoded_as_it_is_but_for_byte_order_mark_and_line_ends(data, text):
    assert decode_text(data, "-") == text


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"caf\xe9", "'x' is not UTF-8 text: invalid byte at offset 3."),
        (b"\xef\xbb\xbfcaf\xe9", "'x' is not UTF-8 text: invalid byte at offset 6."),
        ("図書館".encode("cp932"), "'x' is not UTF-8 text: invalid byte at offset 0."),
        (b"\xed\xa0\x80", "'x' is not UTF-8 text: invalid byte at offset 0."),
        (b"cut \xe5\x9b", "'x' is not UTF-8 text: invalid byte at offset 4."),
        (b"\xff\xfea\x00b", "'x' is not UTF-16-LE text: invalid byte at offset 4."),
        (b"ab\x00cd", "'x' is not a text file: it has a NUL byte at offset 2."),
        (b"\xff\xfe\x00\x00a\x00\x00\x00", "'x' is not a text file: it holds too many control characters."),
        (b"\x01\x02\x03\x04abc", "'x' is not a text file: it holds too many control characters."),
        (b"%PDF-1.7\n\xe2\xe3", "'x' is a PDF, but its name does not end in '.pdf'."),
        (b"PK\x03\x04\x14\x00", "'x' is a ZIP archive, not a text file."),
    ],
)
def test_what_is_not_text_is_refused_with_the_place_and_without_the_text(data, message):
    with pytest.raises(InputError) as caught:
        decode_text(data, "x")
    assert caught.value.message == message
    assert caught.value.hint
    assert caught.value.__context__ is None


def test_the_hint_for_another_encoding_is_a_command():
    with pytest.raises(
        InputError, match="Convert it to UTF-8, for example with 'iconv -f CP932 -t UTF-8 OLD > NEW'"
    ):
        decode_text(b"\x90\x7d", "x")


@pytest.mark.parametrize(
    "path", sorted(EXAMPLES.glob("*/*.txt")), ids=lambda path: f"{path.parent.name}-{path.stem}"
)
def test_every_example_text_is_readable_and_ends_in_a_line_end(path):
    text = read_document(path)
    assert text.strip()
    assert text.endswith("\n")


# --- files that are not there, and files that are no files --------------------------------------------------


def test_a_missing_file_is_an_input_error(tmp_path):
    assert one_line_error(tmp_path / "no such\nfile.txt").message.endswith(" does not exist.")


def test_a_dangling_link_is_a_missing_file(tmp_path):
    link = tmp_path / "link.txt"
    link.symlink_to(tmp_path / "gone.txt")
    assert one_line_error(link).message.endswith(" does not exist.")


def test_a_directory_is_an_input_error(tmp_path):
    assert one_line_error(tmp_path).message.endswith(" is a directory, not a document.")


def test_a_file_without_permission_is_an_input_error(tmp_path, monkeypatch):
    path = written(tmp_path, "a.txt", b"x")

    def refuse(_path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)  # chmod does not stop root, as whom many containers run
    assert one_line_error(path).message.endswith(" may not be read.")


def test_a_path_through_a_file_or_with_a_nul_is_an_input_error(tmp_path):
    assert one_line_error(written(tmp_path, "a.txt", b"x") / "b.txt").message.endswith("Not a directory.")
    assert one_line_error(Path("a\0b.txt")).message == "'a\\x00b.txt' cannot be read: not a valid path."


def test_a_device_is_never_read():
    assert one_line_error(Path("/dev/zero")).message == "'/dev/zero' is a device or a socket, not a document."


def test_a_socket_is_never_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the path of a socket is limited to about 100 bytes
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("s")
        assert one_line_error(Path("s")).message == "'s' is a device or a socket, not a document."


def test_a_named_pipe_is_read_to_its_end(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=lambda: path.write_bytes("流れる文".encode()), daemon=True)
    writer.start()
    assert read_document(path) == "流れる文"
    writer.join(timeout=10)


def test_process_substitution_is_read():
    reading, writing = os.pipe()
    try:
        os.write(writing, b"from a pipe\r\n")
        os.close(writing)
        assert read_document(Path(f"/dev/fd/{reading}")) == "from a pipe\n"
    finally:
        os.close(reading)


# --- markitdown --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.pdf", "a.docx", "a.html", "A.HTM"])
def test_without_markitdown_the_error_says_how_to_install_it(tmp_path, monkeypatch, name):
    monkeypatch.setitem(sys.modules, "markitdown", None)
    path = written(tmp_path, name, b"<p>x</p>")
    with pytest.raises(UsageError) as caught:
        read_document(path)
    assert caught.value.message == f"Reading {str(path)!r} needs markitdown, which is not installed."
    assert caught.value.hint == "Install it with: pip install 'offline-summ[docs]'"


@pytest.mark.parametrize("name", ["a.pdf", "a.docx"])
def test_an_empty_pdf_or_docx_is_refused_even_without_markitdown(tmp_path, name):
    assert one_line_error(written(tmp_path, name, b"")).message.endswith("file.")


def test_the_link_to_an_outside_image_never_reaches_the_converter():
    images = "<a:blip r:embed='rId1' r:link = 'rId7'/>" + '<a:blip r:link="rId8" cstate="print"/>'
    with zipfile.ZipFile(BytesIO(_checked_docx(docx(paragraph("Text.") + images)))) as archive:
        document = archive.read("word/document.xml").decode()
    assert paragraph("Text.") + "<a:blip r:embed='rId1'/>" + '<a:blip cstate="print"/>' in document


@pytest.mark.usefixtures("offline")
class TestWithMarkitdown:
    @pytest.fixture(autouse=True)
    def _needs_markitdown(self):
        pytest.importorskip("markitdown", reason=NEEDS_MARKITDOWN)

    def test_a_docx_is_read_with_its_headings_paragraphs_and_tables(self, tmp_path):
        table = (
            f"<w:tbl><w:tr><w:tc>{paragraph('Year')}</w:tc><w:tc>{paragraph('2024')}</w:tc></w:tr></w:tbl>"
        )
        heading = '<w:p><w:pPr><w:pStyle w:val="Heading1"/></w:pPr><w:r><w:t>Mill</w:t></w:r></w:p>'
        body = heading + paragraph("The mill opened. 図書館") + paragraph("It cost 3 million.") + table
        text = read_document(written(tmp_path, "a.DOCX", docx(body)))
        assert "The mill opened. 図書館\n\nIt cost 3 million." in text
        assert "| Year | 2024 |" in text
        assert text.index("Mill") < text.index("The mill opened")

    def test_an_image_linked_from_a_docx_is_not_fetched_and_the_text_is_read(self, tmp_path):
        office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
        target = 'Target="http://192.0.2.1/x.png" TargetMode="External"'
        link = f'<Relationship Id="rId7" Type="{office}/image" {target}/>'
        image = (
            "<w:p><w:r><w:drawing><wp:inline><a:graphic><a:graphicData><pic:pic><pic:blipFill>"
            '<a:blip r:link="rId7"/>'
            "</pic:blipFill></pic:pic></a:graphicData></a:graphic></wp:inline></w:drawing></w:r></w:p>"
        )
        data = docx(paragraph("Before.") + image + paragraph("After."), relationships=link)
        assert read_document(written(tmp_path, "a.docx", data)) == "Before.\n\nAfter."

    def test_html_is_read_as_its_text_and_nothing_is_fetched(self, tmp_path):
        html = (
            "<!doctype html><html><head><title>t</title><script>alert(1)</script>"
            '<link rel="stylesheet" href="http://192.0.2.1/x.css"></head><body><h1>Mill</h1>'
            '<p>It &lt;opened&gt; in März.</p><img src="http://192.0.2.1/x.png" alt="map"></body></html>'
        )
        text = read_document(written(tmp_path, "a.html", html.encode()))
        assert text == "# Mill\n\nIt <opened> in März.\n\n![map](http://192.0.2.1/x.png)"

    @pytest.mark.parametrize(
        ("head", "encoding"),
        [
            ("", "utf-8"),
            ('<meta charset="utf-8">', "utf-8"),
            ('<meta charset="Shift_JIS">', "cp932"),
            ('<meta http-equiv="Content-Type" content="text/html; charset=euc-jp">', "euc-jp"),
            ("<meta charset=gb2312>", "gb18030"),
            ('<meta charset="utf-16">', "utf-8"),
            ("", "utf-16"),
        ],
    )
    def test_html_is_decoded_as_it_declares(self, tmp_path, head, encoding):
        data = f"<html><head>{head}</head><body><p>図書</p></body></html>".encode(encoding)
        assert read_document(written(tmp_path, "a.htm", data)) == "図書"

    @pytest.mark.parametrize(
        ("data", "message"),
        [
            (b"<p>caf\xe9</p>", "is not UTF-8 text: invalid byte at offset 6."),
            (
                b"<meta charset=euc-jp><p>\xff</p>",
                "is not 'euc-jp' as it declares: invalid byte at offset 24.",
            ),
            (b"<meta charset=klingon><p>a</p>", "declares the unknown encoding 'klingon'."),
            (b"<meta charset=hex><p>a</p>", "declares the unknown encoding 'hex'."),
            (b"<meta charset=unicode_escape>\\ud800", "declares the unknown encoding 'unicode_escape'."),
            (b"<p>\x00</p>", "is not a text file: it has a NUL byte at offset 3."),
        ],
    )
    def test_html_in_another_encoding_is_refused(self, tmp_path, data, message):
        assert one_line_error(written(tmp_path, "a.html", data)).message.endswith(message)

    def test_deeply_nested_html_is_read(self, tmp_path):
        path = written(tmp_path, "a.html", b"<div>" * 5000 + b"deep" + b"</div>" * 5000)
        assert read_document(path) == "deep"

    def test_html_without_text_gives_an_empty_text(self, tmp_path):
        assert read_document(written(tmp_path, "a.html", b"")) == ""
        assert read_document(written(tmp_path, "b.html", b"<body><br></body>")) == ""

    def test_a_pdf_is_read_by_its_text_layer(self, tmp_path):
        page = b"BT /F1 12 Tf 72 720 Td (The mill opened in March.) Tj 0 -14 Td (It cost 3 million.) Tj ET"
        text = read_document(written(tmp_path, "a.pdf", pdf(page)))
        assert text.split("\n") == ["The mill opened in March.", "It cost 3 million."]

    def test_a_pdf_without_text_layer_says_that_it_needs_ocr(self, tmp_path):
        error = one_line_error(written(tmp_path, "a.pdf", pdf(b"0 0 100 100 re f")))
        assert error.message.endswith("has no text layer; it probably holds scanned pages.")
        assert error.hint == "Run OCR over it first, for example with ocrmypdf."

    @pytest.mark.parametrize(
        ("name", "data"),
        [
            ("a.pdf", b"secret words, not a PDF"),
            ("a.pdf", b"%PDF-1.4\nsecret words"),
            ("a.docx", b"secret words, not a DOCX"),
            ("a.docx", b"PK\x03\x04secret words"),
            ("a.docx", docx("<w:p>secret words")),
        ],
    )
    def test_a_damaged_document_is_refused_without_its_text(self, tmp_path, name, data):
        error = one_line_error(written(tmp_path, name, data))
        assert "is damaged, encrypted or not of this format." in error.message
        assert "secret" not in str(error)
        assert error.__cause__ is not None

    def test_reading_leaves_logging_as_it_was_and_writes_no_line(self, tmp_path, caplog, capfd):
        before = logging.getLogger("pdfminer").level
        with caplog.at_level(logging.DEBUG):
            read_document(written(tmp_path, "a.pdf", pdf(b"BT /F9 12 Tf 72 720 Td (secret) Tj ET")))
        assert logging.getLogger("pdfminer").level == before
        assert "secret" not in caplog.text
        assert capfd.readouterr() == ("", "")
