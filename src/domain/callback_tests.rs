use super::super::job::JobKind;
use super::super::run::RunState;
use super::super::time::Timestamp;
use super::*;

fn run(arguments: &str) -> Run {
    Run {
        job_name: "a \"job\"\r\n".to_owned(),
        arguments: Some(arguments.to_owned()),
        state: RunState::Running,
        attempt: 3,
        trace_id: Some("ab".repeat(16)),
        planned_at: Some(Timestamp(0)),
        ..Run::sample(JobKind::Callback, Timestamp(5))
    }
}

fn callback(url: &str, content_type: Option<&str>, body: &str) -> Callback {
    let headers = [("X-Job".to_owned(), "{jobName}{other}".to_owned())].into_iter();
    let kind = content_type.map(|kind| ("Content-Type".to_owned(), kind.to_owned()));
    Callback { url: url.to_owned(), headers: headers.chain(kind).collect(), body: Some(body.to_owned()), ..Callback::default() }
}

#[test]
fn a_value_is_never_more_than_a_value() {
    let run = run("x\"}&?#/../{runId}\u{e9}");
    let url = "http://a.example/{jobId}/x?n={attempt}&a={arguments}&t={fireTime}&{no}";
    let filled = callback(url, None, r#"{"a":"{arguments}","t":"{traceId}"}"#).filled(&run);
    let job = run.job_id;
    assert_eq!(
        filled.url,
        format!("http://a.example/{job}/x?n=3&a=x%22%7D%26%3F%23%2F..%2F%7BrunId%7D%C3%A9&t=1970-01-01T00%3A00%3A00.000Z&{{no}}")
    );
    assert_eq!(filled.headers, [("X-Job".to_owned(), "a \"job\"  {other}".to_owned())]);
    let body: serde_json::Value = serde_json::from_str(filled.body.as_deref().expect("a body")).expect("still JSON");
    assert_eq!(body["a"], "x\"}&?#/../{runId}\u{e9}");
    assert_eq!(body["t"], "ab".repeat(16));
}

#[test]
fn a_body_is_escaped_by_its_kind() {
    let run = run("a&b\"c");
    let of = |kind| callback("http://a.example/", Some(kind), "v={arguments}").filled(&run).body.expect("a body");
    assert_eq!(of("application/x-www-form-urlencoded"), "v=a%26b%22c");
    assert_eq!(of("text/plain"), "v=a&b\"c");
    assert_eq!(of("application/vnd.x+JSON; charset=utf-8"), "v=a&b\\\"c");
}

#[test]
fn what_cannot_be_sent_is_refused() {
    let with = |name: &str, value: &str| {
        let headers = [(name.to_owned(), value.to_owned())].into_iter().collect();
        Callback { url: "http://a.example/".to_owned(), headers, ..Callback::default() }.check().map_err(|(part, _)| part)
    };
    assert_eq!(with("X-Ok", "a\tb"), Ok(()));
    for (name, value) in [("X", "a\r\nb"), ("X Y", "a"), ("", "a"), ("Host", "b"), ("content-length", "1"), ("Webloom-Run", "1")] {
        assert_eq!(with(name, value), Err("headers"), "{name}");
    }
    for url in ["", "/x", "ftp://a.example/", "http://u:p@a.example/", "http://{arguments}/", "http://a.{jobName}.example/", "http://"] {
        let callback = Callback { url: url.to_owned(), ..Callback::default() };
        assert_eq!(callback.check().map_err(|(part, _)| part), Err("url"), "{url}");
    }
}
