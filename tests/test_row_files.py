"""Files, folders and standard input to rows."""

import gzip
import io
import json
import os
from types import SimpleNamespace

import pyarrow
import pyarrow.parquet
import pytest
from backports import zstd

from offline_summ.errors import InputError, UsageError
from offline_summ.row_files import count_rows, read_rows
from offline_summ.rows import Columns

GOOD = b'{"id":"a","source":"S.","summary":"T."}\n'


def rows_of(path, data, **more):
    path.write_bytes(data)
    return list(read_rows(str(path), **more))


def good(rows):
    return [(row.number, row.source, row.summary) for row in rows if row.problem is None]


def problems(rows):
    return {row.number: row.problem for row in rows if row.problem is not None}


class TestJsonLines:
    def test_lines_are_numbered_and_blank_ones_left_out(self, tmp_path):
        data = b'\xef\xbb\xbf{"source":"S.","summary":"T."}\r\n\r\n\n{"source":"U.","summary":"V."}'
        assert good(rows_of(tmp_path / "a.jsonl", data)) == [(1, "S.", "T."), (4, "U.", "V.")]

    @pytest.mark.parametrize(
        ("line", "said"),
        [
            (b'{"source":"S.","summ', "Its line is not JSON: unterminated string"),
            (b'{"source":"S.","summary":"\xff"}', "Its line is not UTF-8: invalid byte at offset 26."),
            (b'\xef\xbb\xbf{"source":"S.","summary":"T."}', "Its line is not JSON: unexpected utf-8 bom"),
            (b'{"source":"S.\0","summary":"T."}', "Its line is not JSON: invalid control character"),
            (b'{"source":"S.\\u0000","summary":"T."}', "Column 'source' holds NUL"),
            (b"[" * 100_000, "Its line is JSON that is nested too deep"),
            (b'{"id":' + b"1" * 5000 + b',"source":"S.","summary":"T."}', "Its line is JSON that is nested"),
            (b'["S.", "T."]', "It is no object with columns, but of type list."),
            (b"nul", "Its line is not JSON: expecting value in column 1."),
        ],
    )
    def test_a_bad_line_costs_itself(self, tmp_path, line, said):
        found = rows_of(tmp_path / "a.jsonl", GOOD + line + b"\n" + GOOD.replace(b'"a"', b'"b"'))
        assert good(found) == [(1, "S.", "T."), (3, "S.", "T.")]
        assert problems(found)[2].startswith(said)
        assert len(found) == 3

    def test_an_array_is_refused_with_what_to_do(self, tmp_path):
        for data in (b'[\n{"source":"S."}\n]', b'[{"source":"S."}]'):
            with pytest.raises(InputError, match="one JSON array, not JSON Lines"):
                rows_of(tmp_path / "a.json", data)

    @pytest.mark.parametrize(
        ("data", "said"),
        [
            (b'{\n "source": "S.",\n "summary": "T."\n}', "JSON over several lines"),
            (GOOD.decode().encode("utf-16"), "is UTF-16 text"),
        ],
    )
    def test_what_would_be_one_failure_after_the_other_is_refused(self, tmp_path, data, said):
        with pytest.raises(InputError, match=said):
            rows_of(tmp_path / "a.jsonl", data)

    def test_a_line_without_end_is_not_read_into_memory(self, tmp_path, monkeypatch):
        monkeypatch.setattr("offline_summ.row_files._LONGEST_LINE", 1000)
        long = b'{"source":"' + b"x" * 5000 + b'","summary":"T."}\n'
        found = rows_of(tmp_path / "a.jsonl", long + GOOD)
        assert problems(found)[1].startswith("Its line is longer than")
        assert good(found) == [(2, "S.", "T.")]

    def test_a_second_row_of_an_id_is_refused(self, tmp_path):
        found = rows_of(tmp_path / "a.jsonl", GOOD + GOOD)
        assert good(found) == [(1, "S.", "T.")]
        assert problems(found) == {2: "Its id 'a' is that of an earlier row."}

    def test_standard_input(self, monkeypatch):
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(GOOD)))
        assert good(read_rows("-")) == [(1, "S.", "T.")]

    def test_a_huge_text_is_a_row_like_any_other(self, tmp_path):
        text = "x" * 5_000_000
        found = rows_of(tmp_path / "a.jsonl", json.dumps({"source": text, "summary": "T."}).encode())
        assert good(found) == [(1, text, "T.")]


class TestTables:
    def test_csv_with_quoted_line_breaks_and_a_byte_order_mark(self, tmp_path):
        data = '\ufeffid,source,summary\r\na,"One.\r\nTwo, ""three"".",T.\r\n\r\nb,日本,要約 😀\r\n'
        found = rows_of(tmp_path / "a.csv", data.encode())
        assert good(found) == [(1, 'One.\r\nTwo, "three".', "T."), (2, "日本", "要約 😀")]
        assert [row.id for row in found] == ["a", "b"]

    def test_tsv(self, tmp_path):
        found = rows_of(tmp_path / "a.tsv", b"summary\tsource\nT.\tS, with comma.\n")
        assert good(found) == [(1, "S, with comma.", "T.")]

    @pytest.mark.parametrize(
        ("line", "said"),
        [
            (b"S.\n", "It has 1 columns, but the first line has 2."),
            (b"S.,T.,U.\n", "It has 3 columns, but the first line has 2."),
            (b"S.,\xff\n", "It holds bytes that are not UTF-8."),
            (b"S.,T\0\n", "Column 'summary' holds NUL"),
            (b'S.,"T."x\n', "It is no record of a table: ',' expected"),
        ],
    )
    def test_a_bad_record_costs_itself(self, tmp_path, line, said):
        found = rows_of(tmp_path / "a.csv", b"source,summary\nS.,T.\n" + line + b"U.,V.\n")
        assert good(found) == [(1, "S.", "T."), (3, "U.", "V.")]
        assert problems(found)[2].startswith(said)

    def test_a_quotation_mark_that_is_never_closed_is_said_to_take_the_rest(self, tmp_path):
        found = rows_of(tmp_path / "a.csv", b'source,summary\nS.,T.\n"U.,V.\nW.,X.\n')
        assert good(found) == [(1, "S.", "T.")]
        assert problems(found) == {
            2: "Its quotation mark is never closed, so that all that follows belongs to it."
        }

    def test_semicolons_and_blank_lines_before_the_header(self, tmp_path):
        found = rows_of(tmp_path / "a.csv", "\n\nsource;summary\nS, S.;T.\n".encode("utf-8-sig"))
        assert good(found) == [(1, "S, S.", "T.")]

    def test_utf_16_is_refused(self, tmp_path):
        with pytest.raises(InputError, match="is UTF-16 text"):
            rows_of(tmp_path / "a.csv", "source,summary\nS.,T.\n".encode("utf-16"))

    def test_a_field_of_five_megabytes(self, tmp_path):
        found = rows_of(tmp_path / "a.csv", b"source,summary\n" + b"x" * 5_000_000 + b",T.\n")
        assert good(found) == [(1, "x" * 5_000_000, "T.")]

    def test_a_table_without_a_column_or_with_one_twice_is_refused(self, tmp_path):
        with pytest.raises(InputError, match="no column 'summary'"):
            rows_of(tmp_path / "a.csv", b"source,text\nS.,T.\n")
        with pytest.raises(InputError, match="two columns 'source'"):
            rows_of(tmp_path / "a.csv", b"source,source,summary\nS.,T.,U.\n")
        with pytest.raises(InputError, match="is empty"):
            rows_of(tmp_path / "a.csv", b"")

    def test_columns_of_the_users_own(self, tmp_path):
        columns = Columns("text", "abstract", "key", "asked")
        data = b"key,text,abstract,asked\n1,S.,T.,Q?\n"
        row = rows_of(tmp_path / "a.csv", data, columns=columns)[0]
        assert (row.id, row.source, row.summary, row.questions) == ("1", "S.", "T.", ("Q?",))


class TestParquet:
    def write(self, path, **columns):
        pyarrow.parquet.write_table(pyarrow.table(columns), path)
        return str(path)

    def test_rows_with_lists_and_missing_values(self, tmp_path):
        name = self.write(
            tmp_path / "a.parquet",
            id=[1, 2, 3],
            source=["S.", None, "U."],
            summary=["T.", "T.", "V."],
            questions=[["Q?"], None, None],
        )
        found = list(read_rows(name))
        assert good(found) == [(1, "S.", "T."), (3, "U.", "V.")]
        assert problems(found) == {2: "Column 'source' is empty."}
        assert [row.id for row in found] == ["1", "2", "3"]
        assert found[0].questions == ("Q?",)

    def test_numbers_in_place_of_texts(self, tmp_path):
        found = list(read_rows(self.write(tmp_path / "a.parquet", source=[1.5], summary=["T."])))
        assert problems(found) == {1: "Column 'source' is of type number, not a text."}

    def test_a_file_that_is_none(self, tmp_path):
        with pytest.raises(InputError, match="no Parquet file"):
            rows_of(tmp_path / "a.parquet", b"PAR1 and nothing")

    def test_a_missing_column(self, tmp_path):
        with pytest.raises(InputError, match="no column 'summary'"):
            list(read_rows(self.write(tmp_path / "a.parquet", source=["S."])))

    def test_not_from_standard_input(self):
        with pytest.raises(UsageError, match="Parquet cannot be read from '-'"):
            list(read_rows("-", format="parquet"))


class TestCompression:
    def test_gzip_and_zstd(self, tmp_path):
        assert good(rows_of(tmp_path / "a.jsonl.gz", gzip.compress(GOOD))) == [(1, "S.", "T.")]
        packed = zstd.compress(b"source,summary\nS.,T.\n")
        assert good(rows_of(tmp_path / "a.csv.zst", packed)) == [(1, "S.", "T.")]

    @pytest.mark.parametrize(("ending", "pack"), [("gz", gzip.compress), ("zst", zstd.compress)])
    def test_what_breaks_off_costs_what_is_missing(self, tmp_path, ending, pack):
        lines = b"".join(b'{"source":"S%d.","summary":"T."}\n' % n for n in range(20_000))
        found = rows_of(tmp_path / f"a.jsonl.{ending}", pack(lines)[:-200])
        assert len(found) > 1000
        assert problems(found) == {len(found): "The input is damaged here and cannot be read any further."}

    def test_a_table_that_is_damaged_at_once(self, tmp_path):
        with pytest.raises(InputError, match="is damaged"):
            rows_of(tmp_path / "a.csv.gz", b"no gzip")


class TestFolder:
    def make(self, folder, **files):
        for name, text in files.items():
            path = folder / name.replace("__", "/").replace("_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return list(read_rows(str(folder)))

    def test_pairs_beside_each_other(self, tmp_path):
        found = self.make(
            tmp_path, a_source_txt="S.", a_summary_txt="T.", b_summary_md="V.", b_source_txt="U."
        )
        assert good(found) == [(1, "S.", "T."), (2, "U.", "V.")]
        assert [row.id for row in found] == ["a.summary.txt", "b.summary.md"]

    def test_a_source_with_its_summaries_in_a_folder(self, tmp_path):
        found = self.make(
            tmp_path, x__source_txt="S.", x__good_txt="T.", x__bad_txt="U.", y__source_md="V.", y__a_txt="W."
        )
        assert [(row.id, row.source, row.summary) for row in found] == [
            ("x/bad.txt", "S.", "U."),
            ("x/good.txt", "S.", "T."),
            ("y/a.txt", "V.", "W."),
        ]

    def test_what_has_no_partner(self, tmp_path):
        found = self.make(
            tmp_path, a_source_txt="S.", b_summary_txt="T.", c_source_txt="U.", c_summary_txt="V."
        )
        assert good(found) == [(3, "U.", "V.")]
        assert problems(found) == {
            1: "No summary belongs to this source.",
            2: "No source belongs to this summary.",
        }

    def test_a_document_that_cannot_be_read(self, tmp_path):
        (tmp_path / "a.summary.txt").write_bytes(b"\xff\xfe\x00")
        found = self.make(tmp_path, a_source_txt="S.")
        assert "a.summary.txt" in problems(found)[1]

    def test_names_that_cannot_be_ids_are_replaced(self, tmp_path):
        for name in (b"\xff.summary.txt", b"a\nb.summary.txt"):
            (tmp_path / os.fsdecode(name)).write_text("T.")
        found = list(read_rows(str(tmp_path)))
        assert [row.id for row in found] == ["a\ufffdb.summary.txt", "\ufffd.summary.txt"]

    def test_links_in_a_circle(self, tmp_path):
        (tmp_path / "sub").mkdir()
        (tmp_path / "sub" / "loop").symlink_to("..")
        (tmp_path / "b.summary.txt").symlink_to("nowhere")
        assert good(self.make(tmp_path, a_source_txt="S.", a_summary_txt="T.")) == [(1, "S.", "T.")]

    def test_other_files_and_hidden_ones_are_left_out(self, tmp_path):
        (tmp_path / ".hidden.summary.txt").write_text("x")
        found = self.make(tmp_path, README_md="x", a_source_txt="S.", a_summary_txt="T.")
        assert good(found) == [(1, "S.", "T.")]

    def test_a_folder_without_a_summary(self, tmp_path):
        with pytest.raises(InputError, match="holds no summary"):
            self.make(tmp_path, README_md="x")

    def test_a_folder_has_no_format(self, tmp_path):
        with pytest.raises(UsageError, match="which has no format 'csv'"):
            read_rows(str(tmp_path), format="csv")


def test_a_table_without_a_header_is_refused_without_its_text(tmp_path):
    table = tmp_path / "a.csv"
    table.write_text("Patient Smith was ill,He got it\nfoo,bar\n")
    with pytest.raises(InputError) as refused:
        list(read_rows(str(table)))
    assert "no column 'source' among the 2 of its first line" in str(refused.value)
    assert "Smith" not in str(refused.value)


def test_an_ending_that_says_nothing_needs_a_format(tmp_path):
    with pytest.raises(UsageError, match="Give --format, one of jsonl, csv, tsv, parquet"):
        rows_of(tmp_path / "a.txt", GOOD)
    assert good(rows_of(tmp_path / "a.txt", GOOD, format="jsonl")) == [(1, "S.", "T.")]


def test_a_file_that_is_not_there(tmp_path):
    for name in ("a.jsonl", "a.csv", "a.parquet", "a.jsonl.gz", "a.what"):
        with pytest.raises(InputError, match="does not exist"):
            list(read_rows(str(tmp_path / name)))


@pytest.mark.parametrize(
    ("name", "data", "count"),
    [
        ("a.jsonl", GOOD * 3, 3),
        ("a.jsonl", GOOD + GOOD.rstrip(), 2),
        ("a.jsonl", b"", 0),
        ("a.csv", b'source,summary\n"S\nS",T\nU,V\n', 2),
        ("a.jsonl.gz", gzip.compress(GOOD * 2), 2),
    ],
)
def test_rows_are_counted(tmp_path, name, data, count):
    (tmp_path / name).write_bytes(data)
    assert count_rows(str(tmp_path / name)) == count
