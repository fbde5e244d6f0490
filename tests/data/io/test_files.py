from __future__ import annotations

import bz2
import gzip
import io
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bayesmf import DataError, Ratings, load
from oracle.bad_inputs import CASES, message, table

TRIPLETS = {"users": [1, 1, 2], "items": [10, 11, 10], "ratings": [4, 5, 3]}
PLAIN = Ratings.from_triplets(**TRIPLETS)
TIMED = Ratings.from_triplets(**TRIPLETS, times=[100, 200, 300])


@pytest.fixture
def put(tmp_path: Path):
    def write(content: bytes | str, name: str = "ratings.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.what)
def test_bad_input_gets_one_sentence(case, tmp_path):
    assert message(case, tmp_path) == case.message


def test_the_table_of_bad_input_in_the_docs_is_what_users_see():
    page = Path(__file__).parents[3] / "docs" / "input-errors.md"
    assert table() in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("user,item,rating\n1,10,4\n1,11,5\n2,10,3\n", PLAIN),
        ("user,item,rating\r\n1,10,4\r\n1,11,5\r\n2,10,3\r\n", PLAIN),
        ("\ufeffuser,item,rating\n1,10,4\n1,11,5\n2,10,3", PLAIN),
        ("\ufeff1,10,4\n1,11,5\n2,10,3", PLAIN),
        ("\n\n1,10,4\n\n1,11,5\n2,10,3\n\n", PLAIN),
        ("\n\nuser,item,rating\n\n1,10,4\n\n1,11,5\n2,10,3\n\n", PLAIN),
        ("1::10::4\n1::11::5\n2::10::3\n", PLAIN),
        ("\ufeff1::10::4\r\n1::11::5\r\n2::10::3\r\n", PLAIN),
        ("1::10::4::100\n1::11::5::200\n2::10::3::300\n", TIMED),
        ("1\t10\t4\t100\n1\t11\t5\t200\n2\t10\t3\t300\n", TIMED),
        ("1 10 4\n1 11 5\n2 10 3\n", PLAIN),
        ("  1   10 4 \n1 11   5\r\n2 10 3\n", PLAIN),
        ("1, 10, 4\n1, 11, 5\n 2, 10,3\n", PLAIN),
        ("  \n1,10,4\n1,11,5\n2,10,3\n", PLAIN),
        ('user,item,"rat\ning"\n1,10,4\n1,11,5\n2,10,3\n', None),
        ("1;10;4\n1;11;5\n2;10;3\n", PLAIN),
        ("1|10|4.0|100\n1|11|5.0|200\n2|10|3.0|300\n", TIMED),
        ("rating,title,User-ID,ISBN\n4,a b,1,10\n5,c,1,11\n3,d,2,10\n", PLAIN),
        (
            'score,"review, long","userId",productId\n4,"a\nb",1,10\n5,"""c""",1,11\n3,d,2,10\n',
            PLAIN,
        ),
        (",user_id:token,item_id:token,rating:float\n0,1,10,4\n1,1,11,5\n2,2,10,3\n", PLAIN),
        (
            "user,item,rating,timestamp\n1,10,4,1970-01-01 00:01:40\n"
            "1,11,5,1970-01-01 00:03:20\n2,10,3,1970-01-01 00:05:00\n",
            TIMED,
        ),
    ],
)
def test_layouts(put, content, expected):
    assert load(put(content), **({} if expected else {"rating": 3})) == (expected or PLAIN)


@pytest.mark.parametrize(
    ("content", "options", "expected"),
    [
        ("4,10,2,1\n", {"user": 2, "item": 3, "rating": 1, "time": "none"}, (10, 2, 4)),
        ("4,10,2,1\n", {"user": "3", "rating": 1, "item": 4, "time": "none"}, (2, 1, 4)),
        ("a,b,c\n10,x,4\n", {"user": "b", "item": "a", "rating": "c"}, ("x", 10, 4)),
        ("10,5,4,9,8\n", {"user": 1, "item": 2, "rating": 5}, (10, 5, 8)),
        ("1,2,3\n4,5,6\n", {"header": True, "user": "2", "item": "1", "rating": "3"}, (5, 4, 6)),
        ("user,item,rating,extra\n4,5,6,7\n", {"item": "extra"}, (4, 7, 6)),
        ("1/10/4\n", {"separator": "/"}, (1, 10, 4)),
    ],
)
def test_columns_and_separators_can_be_given(put, content, options, expected):
    user, item, value = expected
    assert load(put(content), **options) == Ratings.from_triplets(
        users=[user], items=[item], ratings=[value]
    )


def test_quotes_escaped_by_backslashes(put):
    text = b'"User-ID";"ISBN";"Book-Rating"\n"1";"34\\"55";"3"\n"2";"b\xe9\\\\";"4"\n'
    assert list(load(put(text)).items) == ['34"55', "b\xe9\\"]
    late = [b"user,item,rating", *(b'%d,"x",3' % k for k in range(200_000)), b'"9","a\\"b",4']
    assert list(load(put(b"\n".join(late)), ids="text").items) == ['a"b', "x"]
    assert list(load(put(b'user,item,rating\n1,"a\\",3\n2,"b",3\n')).items) == ["a\\", "b"]


def test_large_files_are_cut_between_records(put):
    """Over a megabyte of every layout, so that blocks end anywhere."""
    n = 150_000
    users, items = [k % 997 for k in range(n)], [k // 997 for k in range(n)]
    expected = Ratings.from_triplets(
        users=users, items=items, ratings=[1 + k % 5 for k in range(n)]
    )
    rows = [
        (str(u), str(i), str(1 + k % 5)) for k, (u, i) in enumerate(zip(users, items, strict=True))
    ]
    for separator in ("::", "\t", " ", "   "):
        text = "\n".join(separator.join(row) for row in rows)
        assert load(put(text)) == expected
    quoted = "user,note,item,rating\n" + "\n".join(
        f'{u},"a\nb, ""c"" {k}",{i},{1 + k % 5}'
        for k, (u, i) in enumerate(zip(users, items, strict=True))
    )
    assert len(quoted) > 1 << 20
    assert load(put(quoted)) == expected


def test_names_of_columns_may_be_any_text(put):
    text = "usu\u00e1rio,item,rating\n1,10,4\n1,11,5\n2,10,3\n"
    assert load(put(text), user="usu\u00e1rio") == PLAIN
    assert load(put(text.encode("latin-1")), user="usu\u00e1rio") == PLAIN


@pytest.mark.parametrize("name", ["plain.gz", "plain.zst", "plain.bz2", "a[bold].csv"])
def test_a_files_name_means_nothing(put, name):
    path = put("1,10,4\n1,11,5\n2,10,3\n", name)
    assert load(path) == PLAIN


def test_separators_as_typed_in_a_shell(put):
    assert load(put("1\t10\t4\n1\t11\t5\n2\t10\t3\n"), separator="\\t") == PLAIN
    assert load(put("1\u00e910\u00e94\n".encode()), separator="\u00e9").n_users == 1


def test_a_header_can_be_denied(put):
    with pytest.raises(DataError, match="line 1: the rating 'z' is not a number"):
        load(put("x,y,z\n"), header=False)


def test_archives_are_known_by_their_content(put):
    text = b"1::10::4\n1::11::5\n2::10::3\n"
    assert load(put(gzip.compress(text), "ratings.dat")) == PLAIN
    assert load(put(bz2.compress(text), "ratings.dat.bz2")) == PLAIN

    def zipped(**members: bytes) -> bytes:
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in members.items():
                archive.writestr(name.replace("__", "/").replace("_", "."), content)
        return file.getvalue()

    movielens = zipped(ml__README=b"", ml__movies_dat=b"1::a::b\n", ml__ratings_dat=text)
    assert load(put(movielens, "ml.zip")) == PLAIN
    mac = zipped(**{"__MACOSX__._ratings_csv": b"x", ".__ratings_csv": b"1,10,4\n1,11,5\n2,10,3\n"})
    assert load(put(mac, "mac.zip")) == PLAIN
    several = put(zipped(a_csv=b"7,7,7\n", b_csv_gz=gzip.compress(b"1,10,4\n1,11,5\n2,10,3\n")))
    assert load(several, member="b.csv.gz") == PLAIN
    with pytest.raises(DataError, match="no member 'c.csv'; it holds 'a.csv', 'b.csv.gz'"):
        load(several, member="c.csv")
    with pytest.raises(DataError, match="not a zip archive"):
        load(put(text), member="c.csv")


def test_parquet_keeps_types(put):
    table = pa.table(
        {
            "user": ["1", "1", "2"],
            "item": pa.array([10, 11, 10], pa.int16()),
            "rating": pa.array([4, 5, 3], pa.float32()),
        }
    )
    file = io.BytesIO()
    pq.write_table(table, file)
    expected = Ratings.from_triplets(users=["1", "1", "2"], items=[10, 11, 10], ratings=[4, 5, 3])
    assert load(put(file.getvalue(), "ratings.parquet")) == expected
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("ratings.parquet", file.getvalue())
    assert load(put(packed.getvalue(), "r.zip")) == expected
    with pytest.raises(DataError, match="row 2: the rating 5 is not on the scale 1..4"):
        load(put(file.getvalue(), "ratings.parquet"), scale="1:4")


def test_ids_are_kept_as_given(put):
    def users(text: str, **options) -> list:
        return list(load(put(text), **options).users)

    assert users("2,1,3\n-10,1,4\n0,1,4\n") == [-10, 0, 2]
    assert users("007,1,3\n7,1,4\n") == ["007", "7"]
    assert users("-0,1,3\n5,1,4\n") == ["-0", "5"]
    assert users("9223372036854775807,1,3\n-9223372036854775808,1,4\n") == [-(2**63), 2**63 - 1]
    assert users("9223372036854775808,1,3\n1,1,4\n") == ["1", "9223372036854775808"]
    assert users("7,1,3\nx,1,4\n", ids="text") == ["7", "x"]
    assert users("7,1,3\n8,1,4\n", ids="text") == ["7", "8"]
    assert users("a-b,1,3\nb c,1,4\n") == ["a-b", "b c"]


def test_latin_1_is_read(put):
    titles = "user,title,item,rating\n1,Am\xe9lie,10,4\n1,x,11,5\n2,y,10,3\n".encode("latin-1")
    assert load(put(titles)) == PLAIN
    ids = "user,item,rating\nAm\xe9lie,10,4\n".encode("latin-1")
    assert list(load(put(ids)).users) == ["Am\xe9lie"]
    assert list(load(put(ids.decode("latin-1"))).users) == ["Am\xe9lie"]


def test_paths_that_are_no_files(tmp_path):
    with pytest.raises(DataError, match="neither a file nor a data set's name; the names are demo"):
        load(tmp_path / "nothing.csv")
    with pytest.raises(DataError, match="is a folder"):
        load(tmp_path)
    with pytest.raises(DataError, match="ids='number'"):
        load("demo", ids="number")
    with pytest.raises(DataError, match="demo is generated, not read; leave out scale=$"):
        load("demo", scale="1:3")
    with pytest.raises(DataError, match="leave out header=True and ids=$"):
        load("demo", header=True, ids=("text", "auto"))
    assert load("demo", ids=("auto", "auto"), duplicates="error").name == "demo"
    with pytest.raises(DataError, match="neither a file"):
        load("x" * 300)


def test_a_fault_far_down_is_named_by_its_line(put):
    lines = [f"{k},{k % 7},4" for k in range(200_000)]
    lines[150_000] = "5,,4"
    with pytest.raises(DataError, match="line 150001: the item id is empty"):
        load(put("\n".join(lines)))
    lines[150_000] = "5,4"
    with pytest.raises(DataError, match="line 150001: '5,4' has 2 fields"):
        load(put("\n".join(lines)))
