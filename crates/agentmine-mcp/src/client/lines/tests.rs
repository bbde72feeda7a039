use proptest::prelude::*;
use serde_json::json;

use super::*;

/// What `Lines` promises, said in one line.
fn reference(all: &[u8], max: usize) -> Result<Vec<Vec<u8>>, TooLong> {
    let mut lines: Vec<Vec<u8>> = all
        .split(|byte| *byte == b'\n')
        .map(<[u8]>::to_vec)
        .collect();
    let long = lines.iter().position(|line| line.len() > max);
    if long.is_some() {
        return Err(TooLong);
    }
    lines.pop();
    Ok(lines)
}

fn cut(all: &[u8], sizes: &[usize], max: usize) -> (Result<Vec<Vec<u8>>, TooLong>, usize) {
    let mut lines = Lines::new(max);
    let (mut out, mut held) = (Vec::new(), 0);
    let (mut rest, mut sizes) = (all, sizes.iter().cycle());
    while !rest.is_empty() {
        let size = sizes.next().copied().unwrap_or(1).min(rest.len());
        let (chunk, more) = rest.split_at(size);
        rest = more;
        if lines.push(chunk, |line| out.push(line.to_vec())).is_err() {
            return (Err(TooLong), held);
        }
        held = held.max(lines.line.capacity());
    }
    (Ok(out), held)
}

/// Bytes that are often nearly the protocol.
fn wire() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        3 => prop::collection::vec(any::<u8>(), 0..40),
        3 => prop::collection::vec(prop::sample::select(b"{}[]\",:\\\n\r 0ae-\x00\xEF\xBB\xBF".to_vec()), 0..40),
        2 => Just(br#"{"jsonrpc":"2.0","id":1,"result":{}}"#.to_vec()),
        1 => Just(br#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":0.5}}"#.to_vec()),
        1 => Just(br#"[{"jsonrpc":"2.0","id":2,"result":{}},3]"#.to_vec()),
        2 => Just(b"\n".to_vec()),
        1 => (1_usize..300).prop_map(|depth| [vec![b'['; depth], vec![b'{'; depth]].concat()),
    ];
    prop::collection::vec(piece, 0..20).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn same_lines_however_the_stream_is_cut(
        all in wire(),
        sizes in prop::collection::vec(1_usize..50, 1..10),
        max in 1_usize..200,
    ) {
        let (lines, held) = cut(&all, &sizes, max);
        prop_assert_eq!(&lines, &reference(&all, max));
        prop_assert!(held <= max.max(8), "{} bytes held", held);
        prop_assert_eq!(lines, cut(&all, &[usize::MAX], max).0);
    }

    #[test]
    fn no_line_makes_the_reader_panic(line in wire()) {
        if let Line::Messages(messages, garbage) = read(&line) {
            prop_assert!(messages.len() + garbage <= MAX_BATCH);
        }
    }

    #[test]
    fn what_fits_by_count_fits_in_truth(line in wire()) {
        // The count never says less than there is.
        if fits(&line) && let Ok(value) = serde_json::from_slice::<Value>(&line) {
            fn count(value: &Value) -> usize {
                1 + match value {
                    Value::Array(it) => it.iter().map(count).sum(),
                    Value::Object(it) => it.values().map(count).sum::<usize>() + it.len(),
                    _ => 0,
                }
            }
            prop_assert!(count(&value) <= MAX_VALUES);
        }
    }
}

fn message(line: &[u8]) -> Option<Value> {
    match read(line) {
        Line::Messages(messages, 0) if messages.len() == 1 => {
            Some(serde_json::to_value(messages.first()).unwrap())
        }
        _ => None,
    }
}

#[test]
fn line_ends_blanks_and_a_byte_order_mark_are_taken_off() {
    let plain = br#"{"jsonrpc":"2.0","id":1,"result":{}}"#.as_slice();
    for line in [
        plain.to_vec(),
        [plain, b"\r"].concat(),
        [b"\xEF\xBB\xBF", plain].concat(),
        [b" \t\xEF\xBB\xBF ", plain, b"  \r"].concat(),
    ] {
        assert_eq!(message(&line), message(plain), "{line:?}");
        assert!(message(&line).is_some());
    }
    for line in [b"".as_slice(), b"  \r", b"\xEF\xBB\xBF"] {
        assert!(matches!(read(line), Line::Empty), "{line:?}");
    }
}

#[test]
fn invalid_utf8_in_an_answer_is_garbage_and_the_failure_of_its_request() {
    let line = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"\xff\"}";
    let Line::Messages(messages, garbage) = read(line) else {
        panic!("no failure");
    };
    assert_eq!(garbage, 1);
    let failure = serde_json::to_value(&messages).unwrap();
    assert_eq!(failure[0]["id"], 1);
    assert!(
        failure[0]["error"]["message"]
            .to_string()
            .contains("0xff at offset 34"),
        "{failure}"
    );
}

#[test]
fn what_is_no_message_is_garbage() {
    for line in [
        b"Starting server...".as_slice(),
        b"\xff\xfe\x00",
        b"\x00{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}",
        b"{\"a\": ",
        b"{}",
        b"5",
        b"\"text\"",
        b"null",
        // An id that is no whole number, none, and a result beside an error.
        br#"{"jsonrpc":"2.0","id":1.5,"result":{}}"#,
        br#"{"jsonrpc":"2.0","id":{},"result":{}}"#,
        br#"{"jsonrpc":"2.0","result":{}}"#,
        br#"{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":""}}"#,
        br#"{"jsonrpc":"2.0","id":1,"result":{}} {}"#,
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}",
        b"{\"jsonrpc\":\"2.0\",\"method\":\"\xff\"}",
        br#"{"jsonrpc":"1.0","id":1,"result":{}}"#,
    ] {
        assert!(
            matches!(read(line), Line::Garbage),
            "{}",
            String::from_utf8_lossy(line)
        );
    }
}

#[test]
fn whole_number_written_as_a_float_is_an_id() {
    let plain = message(br#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
    assert_eq!(message(br#"{"jsonrpc":"2.0","id":1.0,"result":{}}"#), plain);
}

#[test]
fn batch_is_taken_apart() {
    let one = json!({"jsonrpc": "2.0", "id": 1, "result": {}});
    let line = json!([one, one, {"a": 1}, 5, [one]]).to_string();
    let Line::Messages(messages, garbage) = read(line.as_bytes()) else {
        panic!("{line}");
    };
    assert_eq!((messages.len(), garbage), (2, 3));
    let many = json!(vec![one; MAX_BATCH + 1]).to_string();
    assert!(matches!(read(many.as_bytes()), Line::Garbage));
    assert!(matches!(read(b"[1"), Line::Garbage));
    assert!(matches!(read(b"[] []"), Line::Garbage));
}

#[test]
fn deep_or_crowded_message_is_too_much() {
    let nested = |depth: usize| {
        let (open, close) = ("[".repeat(depth), "]".repeat(depth));
        format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"a":{open}{close}}}}}"#)
    };
    assert!(matches!(
        read(nested(MAX_DEPTH - 2).as_bytes()),
        Line::Messages(..)
    ));
    assert!(matches!(
        read(nested(MAX_DEPTH - 1).as_bytes()),
        Line::TooMuch
    ));
    assert!(matches!(read(nested(1_000_000).as_bytes()), Line::TooMuch));
    let crowd = |count: usize| {
        let values = vec!["1"; count].join(",");
        format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"a":[{values}]}}}}"#)
    };
    assert!(matches!(
        read(crowd(MAX_VALUES / 2).as_bytes()),
        Line::Messages(..)
    ));
    assert!(matches!(read(crowd(MAX_VALUES).as_bytes()), Line::TooMuch));
    // Brackets within a string are text.
    let text = json!({"jsonrpc": "2.0", "id": 1, "result": {"a": "[{\"\\".repeat(100_000)}});
    assert!(matches!(
        read(text.to_string().as_bytes()),
        Line::Messages(..)
    ));
}

#[test]
fn half_a_line_is_known_as_one() {
    let mut lines = Lines::new(10);
    lines.push(b"a\nb", |_| {}).unwrap();
    assert!(lines.half());
    lines.push(b"\n", |_| {}).unwrap();
    assert!(!lines.half());
}

#[test]
fn a_result_is_kept_as_it_is_and_one_of_result_and_error_may_be_null() {
    // Fields of rmcp's types with other values, and none of them.
    let result =
        json!({"content": [{"type": "hologram"}], "nextCursor": 3, "isError": "no", "more": null});
    let line = json!({"jsonrpc": "2.0", "id": "5", "result": result}).to_string();
    assert_eq!(message(line.as_bytes()).unwrap()["result"], result);
    for (line, expected) in [
        (
            r#"{"jsonrpc":"2.0","id":1,"result":{"a":1},"error":null}"#,
            Some(json!({"jsonrpc": "2.0", "id": 1, "result": {"a": 1}})),
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"result":null,"error":{"code":-1,"message":"m"}}"#,
            Some(json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -1, "message": "m"}})),
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"result":null}"#,
            Some(json!({"jsonrpc": "2.0", "id": 1, "result": null})),
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":-1,"message":"m"}}"#,
            None,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}"#,
            None,
        ),
        (r#"{"jsonrpc":"1.0","id":1,"result":{}}"#, None),
        (r#"{"jsonrpc":"2.0","id":1.5,"result":{}}"#, None),
        (r#"{"jsonrpc":"2.0","id":null,"result":{}}"#, None),
        (r#"{"jsonrpc":"2.0","id":1,"id":1,"result":{}}"#, None),
        (r#"{"jsonrpc":"2.0","id":1,"result":{}} {}"#, None),
        (
            r#"{"jsonrpc":"2.0","id":null,"result":null,"error":{"code":-1,"message":"m"}}"#,
            Some(json!({"jsonrpc": "2.0", "error": {"code": -1, "message": "m"}})),
        ),
        (
            r#"[{"jsonrpc":"2.0","id":1,"result":{"a":1},"error":null}]"#,
            Some(json!({"jsonrpc": "2.0", "id": 1, "result": {"a": 1}})),
        ),
    ] {
        assert_eq!(message(line.as_bytes()), expected, "{line}");
    }
}
