use super::reference::{Case, compare};
use super::*;
use proptest::prelude::*;

type Row = Vec<Option<String>>;

fn dialect(header: bool) -> Dialect {
    Dialect::new(",", "__AWA_NULL__", header).unwrap()
}

/// All rows, each in the order of the reader's columns.
fn rows_of(mut reader: Reader<'_>) -> Result<Vec<Row>> {
    let columns = reader.columns().to_vec();
    let mut rows = Vec::new();
    while let Some(record) = reader.next()? {
        rows.push(columns.iter().map(|column| record.get(*column).map(str::to_owned)).collect());
    }
    Ok(rows)
}

fn with_header(input: impl AsRef<[u8]>) -> Result<Vec<Row>> {
    rows_of(Reader::new(input.as_ref(), dialect(true), None)?)
}

/// Rows of `kind` and `args`, without a header line.
fn pairs(input: impl AsRef<[u8]>) -> Result<Vec<Row>> {
    rows_of(Reader::new(input.as_ref(), dialect(false), Some(vec![Column::Kind, Column::Args]))?)
}

fn row<const N: usize>(values: [&str; N]) -> Row {
    values.into_iter().map(|value| Some(value.to_owned())).collect()
}

/// What a client sees of an error.
fn seen(error: &Error) -> (&'static str, String, String, Option<&'static str>) {
    (error.sqlstate(), error.context().expect("errors in CSV have a place"), error.to_string(), error.column())
}

#[track_caller]
fn refused(outcome: Result<Vec<Row>>, sqlstate: &str, context: &str, message: &str) {
    let error = outcome.expect_err("must be refused");
    let column = context.split_once(", column ").map(|(_, column)| column);
    assert_eq!(seen(&error), (sqlstate, context.to_owned(), message.to_owned(), column));
}

// --- What is taken -------------------------------------------------------------------------------

#[test]
fn each_line_end_ends_a_row() {
    let want = vec![row(["a", "1"]), row(["b", "2"]), row(["c", "3"])];
    for input in ["a,1\nb,2\nc,3\n", "a,1\r\nb,2\r\nc,3\r\n", "a,1\rb,2\rc,3\r", "a,1\nb,2\r\nc,3\r", "a,1\rb,2\nc,3"] {
        assert_eq!(pairs(input).unwrap(), want, "{input:?}");
    }
}

#[test]
fn the_last_line_needs_no_end() {
    assert_eq!(pairs("a,1").unwrap(), [row(["a", "1"])]);
    assert_eq!(pairs("a,").unwrap(), [row(["a", ""])]);
    assert_eq!(pairs("a,\"1\"").unwrap(), [row(["a", "1"])]);
}

#[test]
fn blank_lines_are_left_out() {
    assert_eq!(pairs("\n\r\n\ra,1\n\n\r\rb,2\r\n\r\n\n\n").unwrap(), [row(["a", "1"]), row(["b", "2"])]);
    let one = |input: &str| rows_of(Reader::new(input.as_bytes(), dialect(false), Some(vec![Column::Kind])).unwrap()).unwrap();
    // A line of a quoted nothing, or of spaces, is none.
    assert_eq!(one("\"\"\n\n \n"), [row([""]), row([" "])]);
}

#[test]
fn quoted_fields_keep_delimiters_line_ends_and_quotes() {
    let input = "\"a,\r\n\"\"b\"\"\n\",\"{\"\"k\"\": \"\"v\"\"}\"\n\"\"\"\",\"\"\"\"\"\"\n";
    assert_eq!(pairs(input).unwrap(), [row(["a,\r\n\"b\"\n", "{\"k\": \"v\"}"]), row(["\"", "\"\""])]);
}

#[test]
fn spaces_belong_to_their_field() {
    assert_eq!(pairs(" a , 1 \n").unwrap(), [row([" a ", " 1 "])]);
}

#[test]
fn one_byte_order_mark_is_skipped() {
    assert_eq!(with_header("\u{feff}kind,queue\nk,\u{feff}q\n").unwrap(), [row(["k", "\u{feff}q"])]);
    assert_eq!(with_header("\u{feff}\"kind\"\nk\n").unwrap(), [row(["k"])]);
    assert_eq!(pairs("\u{feff}\u{feff}a,1").unwrap(), [row(["\u{feff}a", "1"])]);
    assert_eq!(pairs("\n\u{feff}a,1").unwrap(), [row(["\u{feff}a", "1"])]);
    assert_eq!(pairs("\u{feff}").unwrap(), Vec::<Row>::new());
}

#[test]
fn other_delimiters_leave_commas_alone() {
    for delimiter in [";", "\t", "|", " ", "\u{1}", "x", "\\", "'"] {
        let input = format!("kind{delimiter}args\na,b{delimiter}\"1{delimiter}2\"\n");
        let dialect = Dialect::new(delimiter, "", true).unwrap();
        let rows = match Reader::new(input.as_bytes(), dialect, None) {
            Ok(reader) => rows_of(reader).unwrap(),
            Err(error) => panic!("{delimiter:?}: {error}"),
        };
        assert_eq!(rows, [row(["a,b", &format!("1{delimiter}2")])]);
    }
}

#[test]
fn the_null_string_is_null_where_it_is_not_quoted() {
    let one = |null: &str, input: &str| {
        let dialect = Dialect::new(",", null, false).unwrap();
        rows_of(Reader::new(input.as_bytes(), dialect, Some(vec![Column::Kind, Column::Queue])).unwrap()).unwrap().remove(0)
    };
    let value = |text: &str| Some(text.to_owned());
    assert_eq!(one("__AWA_NULL__", "__AWA_NULL__,\"__AWA_NULL__\""), [None, value("__AWA_NULL__")]);
    assert_eq!(one("__AWA_NULL__", ",\"\""), [value(""), value("")]);
    assert_eq!(one("__AWA_NULL__", "__AWA_NULL__ ,__awa_null__"), [value("__AWA_NULL__ "), value("__awa_null__")]);
    assert_eq!(one("", ",\"\""), [None, value("")]);
    assert_eq!(one("", "x,"), [value("x"), None]);
    assert_eq!(one("\\N", "\\N,N"), [None, value("N")]);
    assert_eq!(one("leer", "leer,\"leer\""), [None, value("leer")]);
    assert_eq!(one("é", "é,\"é\""), [None, value("é")]);
}

#[test]
fn the_header_names_the_columns_in_any_order() {
    let mut reader = Reader::new(b"priority,\"kind\",uniqueness\n1,k,true\n", dialect(true), None).unwrap();
    assert_eq!(reader.columns(), [Column::Priority, Column::Kind, Column::Uniqueness]);
    let record = reader.next().unwrap().unwrap();
    assert_eq!((record.get(Column::Priority), record.get(Column::Kind)), (Some("1"), Some("k")));
    assert_eq!((record.get(Column::Uniqueness), record.get(Column::Queue)), (Some("true"), None));
    assert_eq!((record.ordinal(), record.line()), (1, 2));
}

#[test]
fn given_columns_stand_instead_of_the_header() {
    let columns = || Some(vec![Column::Queue, Column::Kind]);
    let rows = |input: &[u8], header| rows_of(Reader::new(input, dialect(header), columns()).unwrap()).unwrap();
    assert_eq!(rows(b"x,y,z\nq,k\n", true), [row(["q", "k"])]);
    // One header line may be several lines of the file.
    assert_eq!(rows(b"\"two\nlines\"\nq,k\n", true), [row(["q", "k"])]);
    assert_eq!(rows(b"q,k\n", false), [row(["q", "k"])]);
    assert_eq!(rows(b"x,y\n", true), Vec::<Row>::new());
}

#[test]
fn a_header_with_other_names_is_told_of() {
    let columns = || Some(vec![Column::Queue, Column::Kind]);
    let passed_over =
        |input: &[u8], header| Reader::new(input, dialect(header), columns()).unwrap().passed_over().map(str::to_owned);
    assert_eq!(passed_over(b"queue,kind\na,b\n", true), None);
    assert_eq!(passed_over(b"kind,queue\na,b\n", true).as_deref(), Some("kind"));
    assert_eq!(passed_over(b"a,b\n", true).as_deref(), Some("a"));
    assert_eq!(passed_over(b"queue\na,b\n", true).as_deref(), Some("queue"));
    assert_eq!(passed_over(b"a,b\n", false), None);
    assert_eq!(passed_over(b"", true), None);
}

#[test]
fn without_names_the_columns_are_awas_twelve() {
    let mut reader = Reader::new(b"1,2,3,4,5,6,7,8,9,10,11,12\n", dialect(false), None).unwrap();
    let record = reader.next().unwrap().unwrap();
    assert_eq!((record.get(Column::Kind), record.get(Column::OrderingKey)), (Some("1"), Some("12")));
    assert_eq!(record.get(Column::Uniqueness), None);
}

#[test]
fn no_rows_are_no_jobs() {
    for input in ["", "\n\r\n", "\u{feff}", "kind", "kind,args\n", "\n\nkind\n\n"] {
        assert_eq!(with_header(input).unwrap(), Vec::<Row>::new(), "{input:?}");
    }
    assert_eq!(rows_of(Reader::new(b"", dialect(false), None).unwrap()).unwrap(), Vec::<Row>::new());
    assert_eq!(Reader::new(b"\n", dialect(true), None).unwrap().columns(), []);
}

#[test]
fn a_big_field_is_read_whole_and_the_next_row_behind_it() {
    let big = "x\"y,\n".repeat(800_000);
    let input = format!("kind,args\na,\"{}\"\nb,2\nc\n", big.replace('"', "\"\""));
    let mut reader = Reader::new(input.as_bytes(), dialect(true), None).unwrap();
    assert_eq!(reader.next().unwrap().unwrap().get(Column::Args), Some(big.as_str()));
    assert_eq!(reader.next().unwrap().unwrap().get(Column::Args), Some("2"));
    let error = reader.next().unwrap_err();
    assert_eq!(error.context().unwrap(), "CSV line 800004");
}

// --- What is refused -----------------------------------------------------------------------------

#[test]
fn bad_quoting_is_refused_where_it_starts() {
    let stray = "quote in an unquoted field";
    let behind = "text behind the closing quote of a field";
    let open = "quoted field is not closed";
    let cases = [
        ("a,1\nb,2\"\n", 2, "args", 2, stray),
        ("a\"b\",1\n", 1, "kind", 1, stray),
        ("a, \"1\"\n", 1, "args", 1, stray),
        ("a,1\n\"b\" ,2\n", 2, "kind", 2, behind),
        ("a,\"1\"2\n", 1, "args", 1, behind),
        ("a,\"1\"2\"\n", 1, "args", 1, behind),
        ("a,\"1\"2\"", 1, "args", 1, behind),
        ("a,\"1\"2\"3\"\n", 1, "args", 1, behind),
        ("a,\"\"1\"\"\n", 1, "args", 1, behind),
        ("\"a\n\n\n\",\"1\n\"2\n", 4, "args", 1, behind),
        ("a,1\r\n\r\nb,\"2\r\nc,3\r\nd,4\r\n", 3, "args", 2, open),
        ("a,1\n\n\"b\n\n", 3, "kind", 2, open),
        ("a,\"", 1, "args", 1, open),
        ("a,\"\"\"", 1, "args", 1, open),
        ("a,\"1\"\"\n", 1, "args", 1, open),
    ];
    for (input, line, column, job, what) in cases {
        let error = pairs(input).expect_err(input);
        let want = ("22P04", format!("CSV line {line}, column {column}"), format!("job {job}: {what}"), Some(column));
        assert_eq!(seen(&error), want, "{input:?}");
        assert!(error.hint().is_some());
    }
}

#[test]
fn bad_quoting_in_a_field_too_many_has_no_column() {
    refused(pairs("a,1,\"2\n"), "22P04", "CSV line 1", "job 1: quoted field is not closed");
}

#[test]
fn short_and_long_rows_are_refused() {
    refused(pairs("a,1\nb\n"), "22P04", "CSV line 2", "job 2: must have 2 fields, and has 1");
    refused(pairs("a,1\r\n\r\n\"b\n\",2,3,\r\n"), "22P04", "CSV line 3", "job 2: must have 2 fields, and has 4");
    refused(with_header("kind\ra,\r"), "22P04", "CSV line 2", "job 1: must have 1 field, and has 2");
    // COPY's end of data is a row like any other.
    refused(pairs("a,1\n\\.\n"), "22P04", "CSV line 2", "job 2: must have 2 fields, and has 1");
    let unnamed = rows_of(Reader::new(b"k,q,{}\n", dialect(false), None).unwrap());
    refused(unnamed, "22P04", "CSV line 1", "job 1: must have 12 fields, and has 3");
}

#[test]
fn text_that_the_server_cannot_take_is_refused() {
    refused(pairs(b"a,1\nb,\xff\n"), "22021", "CSV line 2, column args", "job 2: text is not valid UTF-8");
    refused(pairs(b"\"a\n\",\"\n\xc3\"\n"), "22021", "CSV line 2, column args", "job 1: text is not valid UTF-8");
    refused(pairs(b"a\0b,1\n"), "22021", "CSV line 1, column kind", "job 1: text has a NUL byte");
    refused(pairs(b"a,\"\0\"\n"), "22021", "CSV line 1, column args", "job 1: text has a NUL byte");
    // A character's bytes cannot be spread over two fields, nor be a surrogate.
    refused(pairs(b"\xc3,\xa9\n"), "22021", "CSV line 1, column kind", "job 1: text is not valid UTF-8");
    refused(pairs(b"a,\xed\xa0\x80\n"), "22021", "CSV line 1, column args", "job 1: text is not valid UTF-8");
    refused(with_header(b"kind,\xff\n"), "22021", "CSV line 1", "field 2 of the header: text is not valid UTF-8");
    refused(with_header(b"ki\0nd\n"), "22021", "CSV line 1", "field 1 of the header: text has a NUL byte");
}

#[test]
fn a_bad_header_is_refused() {
    let header = |input: &str, context: &str, message: &str| refused(with_header(input), "22P04", context, message);
    header("kind,prio\n", "CSV line 1", "field 2 of the header: unknown column \"prio\"");
    header("kind;args\nk;1\n", "CSV line 1", "field 1 of the header: unknown column \"kind;args\"");
    header("Kind\n", "CSV line 1", "field 1 of the header: unknown column \"Kind\"");
    header("kind, args\n", "CSV line 1", "field 2 of the header: unknown column \" args\"");
    header("kind,\n", "CSV line 1", "field 2 of the header: unknown column \"\"");
    header("\u{feff}\u{feff}kind\n", "CSV line 1", "field 1 of the header: unknown column \"\u{feff}kind\"");
    header("\n\r\nkind,args,kind\n", "CSV line 3, column kind", "field 3 of the header: column kind is named twice");
    header("kind,job_id\nk,1\n", "CSV line 1", "field 2 of the header: column job_id cannot be given");
    header("\"kind\",\"args\nk,1\n", "CSV line 1", "field 2 of the header: quoted field is not closed");
    header("\"k\ni\n\",\"args\"x\n", "CSV line 3", "field 2 of the header: text behind the closing quote of a field");
    header("ki\"nd\"\n", "CSV line 1", "field 1 of the header: quote in an unquoted field");
    let all: Vec<_> = Column::ALL.iter().map(|column| column.name()).collect();
    header(&format!("{},args\n", all.join(",")), "CSV line 1, column args", "field 14 of the header: column args is named twice");
    assert!(with_header(all.join(",")).is_ok());
}

#[test]
fn bad_arguments_are_refused() {
    for delimiter in ["", ",,", "é", "\"", "\n", "\r", "\0"] {
        assert_eq!(Dialect::new(delimiter, "", true).unwrap_err().sqlstate(), "22023", "{delimiter:?}");
    }
    for null in ["a\nb", "\r", "\"", "a;b", "\0"] {
        assert_eq!(Dialect::new(";", null, true).unwrap_err().sqlstate(), "22023", "{null:?}");
    }
    let given = |names: &[Option<&str>]| columns(names.iter().copied());
    assert_eq!(given(&[Some("uniqueness"), Some("kind")]).unwrap(), [Column::Uniqueness, Column::Kind]);
    for names in [&[][..], &[None], &[Some("kind"), Some("kind")], &[Some("job_id")], &[Some("unique")], &[Some("")]] {
        assert_eq!(given(names).unwrap_err().sqlstate(), "22023", "{names:?}");
    }
}

#[test]
fn nothing_is_read_behind_bad_quoting() {
    let mut reader = Reader::new(b"a\"b\nc\nd\n", dialect(false), Some(vec![Column::Kind])).unwrap();
    assert!(reader.next().is_err());
    assert!(reader.next().unwrap().is_none());
}

// --- Places of other errors ----------------------------------------------------------------------

#[test]
fn errors_about_a_row_get_the_line_of_their_column() {
    let input = b"kind,args,priority\n\nk,\"{\r\n}\r\",9\n";
    let mut reader = Reader::new(input, dialect(true), None).unwrap();
    let record = reader.next().unwrap().unwrap();
    let error = |fault: Fault| record.locate(fault.at(record.ordinal()));
    let priority = error(Fault::Priority("9".into()));
    assert_eq!(
        seen(&priority),
        (
            "23514",
            "CSV line 5, column priority".into(),
            "job 1: priority must be between 1 and 4, and is 9".into(),
            Some("priority")
        )
    );
    assert_eq!(priority.constraint(), Some("priority_in_range"));
    let integer = error(Fault::NotAnInteger("priority", "x".into()));
    assert_eq!((integer.sqlstate(), integer.to_string()), ("22P02", "job 1: priority is not an integer: \"x\"".into()));
    assert_eq!(error(Fault::NotAnObject).context().unwrap(), "CSV line 3");
    // The CSV has no such column.
    let tags = error(Fault::TagCount(21));
    assert_eq!((tags.context().unwrap().as_str(), tags.column()), ("CSV line 3", Some("tags")));
}

#[test]
fn places_of_rows_are_found_again() {
    let input = b"\xEF\xBB\xBF\nkind\n\"a\n\"\r\n\nb\rc";
    let mut reader = Reader::new(input, dialect(true), None).unwrap();
    while reader.next().unwrap().is_some() {}
    let lines: Vec<_> = (1..=4).map(|ordinal| reader.place_of(ordinal).map(|place| place.line)).collect();
    assert_eq!(lines, [Some(3), Some(6), Some(7), None]);
    let conflict = Error::UniqueConflict { ordinal: 2, key: "00".into(), holder: None, twin: None }.at(reader.place_of(2).unwrap());
    assert_eq!((conflict.sqlstate(), conflict.context().unwrap().as_str()), ("23505", "CSV line 6"));
    assert!(conflict.constraint().is_some() && conflict.detail().is_some() && conflict.hint().is_some());
}

// --- Against the crate `csv` ---------------------------------------------------------------------

/// Bytes that matter to a reader of CSV, in any order.
fn soup() -> impl Strategy<Value = Vec<u8>> {
    let literal = |text: &'static [u8]| Just(text.to_vec());
    let piece = prop_oneof![
        4 => literal(b"\""), 4 => literal(b","), 2 => literal(b"\n"), 2 => literal(b"\r"), 1 => literal(b"\r\n"),
        2 => literal(b"\"\""), 2 => literal(b"\",\""), 2 => literal(b"\"\n\""), 3 => literal(b"a"), 1 => literal(b"__AWA_NULL__"),
        1 => literal(b"\xEF\xBB\xBF"), 1 => literal("é".as_bytes()), 1 => literal(b"\0"), 1 => literal(b"\xc3"),
        1 => name(), 1 => "[a-z ]{0,200}".prop_map(String::into_bytes),
    ];
    proptest::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    let names = Column::ALL.map(|column| column.name()).into_iter().chain(["job_id"]).collect::<Vec<_>>();
    proptest::sample::select(names).prop_map(|name| name.as_bytes().to_vec())
}

const LINE_ENDS: &[&[u8]] = &[b"\n", b"\r\n", b"\r", b"\n\n"];
const NULLS: &[&[u8]] = &[b"__AWA_NULL__", b"\"__AWA_NULL__\"", b"NULL", b"\"NULL\""];
const BAD_FIELDS: &[&[u8]] = &[b"a\"", b"\"a\"b", b"\"a", b"\"a\"b\"", b"\0", b"\xff"];

fn one_of(texts: &'static [&'static [u8]]) -> impl Strategy<Value = Vec<u8>> {
    proptest::sample::select(texts).prop_map(<[u8]>::to_vec)
}

/// One in twenty is bad.
fn field() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => "[a-z é]{0,5}".prop_map(String::into_bytes),
        6 => "\"([a-z,\r\n]|\"\"){0,5}\"".prop_map(String::into_bytes),
        2 => one_of(NULLS),
        5 => name(),
        1 => one_of(BAD_FIELDS),
    ]
}

/// Rows that mostly have `width` fields.
fn rows(width: usize) -> impl Strategy<Value = Vec<u8>> {
    let width = prop_oneof![19 => Just(width), 1 => 1..4usize];
    let row = width.prop_flat_map(|width| proptest::collection::vec(field(), width)).prop_map(|fields| fields.join(&b","[..]));
    let line = (row, one_of(LINE_ENDS)).prop_map(|(row, end)| [row, end].concat());
    let mark = prop_oneof![Just(""), Just("\u{feff}")];
    (mark, proptest::collection::vec(line, 0..8)).prop_map(|(mark, lines)| [mark.as_bytes(), &lines.concat()].concat())
}

/// Columns for the settings, and rows for the columns.
fn table() -> impl Strategy<Value = (u8, Vec<u8>)> {
    (1..4u8).prop_flat_map(|width| (Just(width), rows(width.into())))
}

/// A [`Case`]'s bytes.
fn case() -> impl Strategy<Value = Vec<u8>> {
    let delimiter = prop_oneof![8 => Just(b','), 1 => Just(b'\t'), 1 => Just(b'a'), 1 => any::<u8>()];
    let named = rows(2).prop_map(|rows| (0, [b"args,kind\n", &rows[..]].concat()));
    let content = prop_oneof![3 => table(), 1 => named, 1 => (0..4u8, soup())];
    (delimiter, 0..8u8, any::<bool>(), any::<bool>(), content).prop_map(|(delimiter, null, header, given, (columns, input))| {
        let columns = if given { columns } else { 0 };
        [&[delimiter, null, columns | if header { 0x20 } else { 0 }][..], &input].concat()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn the_crate_csv_reads_the_same(data in case()) {
        if let Some(case) = Case::of(&data) {
            compare(&case);
        }
    }

    #[test]
    fn what_the_crate_csv_writes_is_read_back(
        rows in proptest::collection::vec(("[^\0]{0,20}", "[a,\"\r\n\u{feff}]{0,9}|__AWA_NULL__"), 0..6),
        always in any::<bool>(),
        crlf in any::<bool>(),
    ) {
        let style = if always { csv::QuoteStyle::Always } else { csv::QuoteStyle::Necessary };
        let end = if crlf { csv::Terminator::CRLF } else { csv::Terminator::Any(b'\n') };
        let mut writer = csv::WriterBuilder::new().quote_style(style).terminator(end).from_writer(Vec::new());
        let header = ("args", "kind");
        for (args, kind) in std::iter::once(header).chain(rows.iter().map(|(args, kind)| (args.as_str(), kind.as_str()))) {
            writer.write_record([args, kind]).unwrap();
        }
        let want: Vec<Row> = rows
            .into_iter()
            .map(|(args, kind)| [args, kind].map(|value| (always || value != "__AWA_NULL__").then_some(value)).to_vec())
            .collect();
        prop_assert_eq!(with_header(writer.into_inner().unwrap()).unwrap(), want);
    }
}
