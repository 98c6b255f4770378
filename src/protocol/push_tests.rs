use super::*;

fn push(text: &str) -> Result<RequestBatch, Problem> {
    read_push(Bytes::copy_from_slice(text.as_bytes()))
}

#[test]
fn both_shapes_are_read_and_packed_with_ids() {
    for text in [r#"[{"url":"http://a/","x":{"y":[1]}}]"#, r#" {"requests":[ {"url":"http://a/","x":{"y":[1]}} ]}"#] {
        let batch = push(text).expect("a push");
        let packed = batch.pack(&[0]);
        let back: Vec<serde_json::Value> = serde_json::from_slice(&packed).expect("packed JSON");
        assert_eq!(back[0]["requestId"], batch.requests[0].id.to_string());
        assert_eq!(back[0]["x"]["y"][0], 1, "what nobody knows is kept");
    }
    assert_eq!(push("[]").expect("nothing").pack(&[]), b"[]");
}

#[test]
fn an_array_is_no_object() {
    assert!(read_ack(Bytes::from_static(b"{\"blocks\":[],\"requests\":[]}")).is_ok());
    assert_eq!(read_ack(Bytes::from_static(b" [[],[]]")).err().map(|p| p.status), Some(400));
    assert_eq!(read_object::<Pushed>(b"[[],1,0,0,0,0]").err().map(|p| p.status), Some(400));
}

#[test]
fn an_echo_loses_its_old_id() {
    let batch = push(r#"[{"url":"http://b/"},{"requestId":"00","url":"http://a/","meta":1},{"url":"http://c/"}]"#).expect("a push");
    let back: Vec<Request> = serde_json::from_slice(&batch.pack(&[0, 1, 2])).expect("packed JSON, each member once");
    assert_eq!(back[1].request_id, Some(batch.requests[1].id));
    assert_eq!(back[1].meta, Some(serde_json::json!(1)));
    assert_eq!(back[2].url, "http://c/");
    let packed = push(r#"[{"url":"http://a/","tries":7}]"#).expect("a push").pack(&[0]);
    assert!(!String::from_utf8_lossy(&packed).contains("tries"));
}

#[test]
fn the_same_request_has_the_same_id() {
    let batch = push(
        r##"[{"url":"http://A/x#1"},{"url":"http://a/x","method":"get"},{"url":"http://a/x","method":"POST"},
            {"url":"http://a/1","key":"k"},{"url":"http://a/2","key":"k"},{"url":"http://a/2","key":"k","dontFilter":true},
            {"url":"http://a/3","dontFilter":true},{"url":"http://a/3","dontFilter":true},{"url":"http://a/3"}]"##,
    )
    .expect("a push");
    let ids: Vec<_> = batch.requests.iter().map(|r| r.id).collect();
    assert_eq!(ids[0], ids[1]);
    assert_ne!(ids[0], ids[2]);
    assert_eq!((ids[3], ids[4]), (ids[4], ids[5]), "a call that is sent again has the same keys");
    let of_one_url: std::collections::HashSet<_> = ids[6..].iter().collect();
    assert_eq!(of_one_url.len(), 3, "repetitions are not compared");
}

#[test]
fn the_origins_of_first_requests_are_gathered() {
    let text = r##"[{"url":"http://A:80/x"},{"url":"http://u@a/y","depth":0},{"url":"http://b/","depth":1},{"url":"https://c:1/?x=http://d/"},{"url":"http://a/z"}]"##;
    let origins = push(text).expect("a push").origins;
    assert_eq!(origins.iter().map(|origin| &**origin).collect::<Vec<_>>(), ["http://a", "http://u@a", "https://c:1"]);
}

#[test]
fn percent_encodings_that_mean_the_same_are_the_same() {
    let same = [("/%7Ea", "/~a"), ("/%7ea", "/~a"), ("/c%61se", "/case"), ("/a%2fb", "/a%2Fb"), ("/?q=%7e%c3%a9", "/?q=~%C3%A9")];
    let different = [("/a%2Fb", "/a/b"), ("/a%3Fb", "/a?b"), ("/%41", "/a"), ("/%zz", "/%ZZ"), ("/?a=%26", "/?a=&")];
    let id = |path: &str| push(&format!(r#"[{{"url":"http://a{path}"}}]"#)).expect("a push").requests[0].id;
    for (one, other) in same {
        assert_eq!(id(one), id(other), "{one} {other}");
    }
    for (one, other) in different {
        assert_ne!(id(one), id(other), "{one} {other}");
    }
}

#[test]
fn bad_input_names_the_place() {
    let cases = [
        ("", 400, None),
        ("{}", 400, None),
        ("[1]", 400, Some("requests[0]")),
        (r#"[{"url":"http://a/"},{}]"#, 400, Some("requests[1].url")),
        (r#"[{"url":5}]"#, 400, Some("requests[0].url")),
        (r#"[{"url":"http://a/","depth":-1}]"#, 400, Some("requests[0].depth")),
        (r#"[{"url":"http://a/","priority":"1"}]"#, 400, Some("requests[0].priority")),
        (r#"[{"url":"http://a/","priority":-101}]"#, 422, Some("requests[0].priority")),
        (r#"[{"url":"http://a/","priority":356}]"#, 422, Some("requests[0].priority")),
        (r#"[{"url":"http://a/","headers":{"a":1}}]"#, 400, Some("requests[0].headers.a")),
        (r#"[{"url":"http://a/","idempotent":"yes"}]"#, 400, Some("requests[0].idempotent")),
        (r#"[{"url":"http://a/","proxy":"tor://b"}]"#, 422, Some("requests[0].proxy")),
        (r#"[{"url":"nothing"}]"#, 422, Some("requests[0].url")),
        (r#"[{"url":"http://"}]"#, 422, Some("requests[0].url")),
        (r#"[{"url":"ftp://a/"}]"#, 422, Some("requests[0].url")),
        (r#"[{"url":"http://a/","method":"G T"}]"#, 422, Some("requests[0].method")),
        (r#"[{"url":"http://a/","headers":{"a b":"c"}}]"#, 422, Some("requests[0].headers.a b")),
        (r#"[{"url":"http://a/","headers":{"a":"b\r\nc: d"}}]"#, 422, Some("requests[0].headers.a")),
    ];
    for (text, status, field) in cases {
        let problem = push(text).expect_err(text);
        assert_eq!((problem.status, problem.field.as_deref()), (status, field), "{text}: {problem}");
    }
    let long = format!(r#"[{{"url":"http://a/{}"}}]"#, "x".repeat(MOST_URL));
    assert_eq!(push(&long).expect_err("too long").field.as_deref(), Some("requests[0].url"));
}

#[test]
fn an_acknowledgement_names_blocks_and_what_follows() {
    let (blocks, batch) =
        read_ack(Bytes::from_static(br#"{"blocks":["6f9619ff8b86d0110000000000000007"],"requests":[{"url":"http://a/"}]}"#))
            .expect("an ack");
    assert_eq!((blocks.len(), batch.requests.len()), (1, 1));
    let problem = read_ack(Bytes::from_static(br#"{"blocks":["6f"]}"#)).expect_err("no id");
    assert_eq!((problem.status, problem.field.as_deref()), (400, Some("blocks[0]")));
}
