use super::*;

fn a_callback() -> Callback {
    Callback {
        url: "https://example.com/hook?at={fireTime}&key=KEY1&flag".to_owned(),
        headers: [("Authorization", "Bearer BEARER1"), ("content-type", "text/plain"), ("X-Any", "ANY1")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        body: Some("{\"password\":\"BODY1\"}".to_owned()),
        ..Callback::default()
    }
}

fn properties() -> Properties {
    let pairs = [
        ("FullClassName", "a.B"),
        ("ThreadNum", "4"),
        ("COOKIES", "session=COOKIE1"),
        ("CookieMode", "fixed"),
        ("Environment", "{ \"PASS\": \"ENV1\",  \"USER\":\"ENV2\" }"),
        ("Files", "{\"etc/key.pem\":\"FILE1\"}"),
        ("Site", "{\"userAgent\":\"x\",\"headers\":{\"X-Key\":\"SITE1\",\"Accept\":\"*/*\"},\"proxy\":\"http://me:PROXY1@10.0.0.1:3128\"}"),
        ("Package", "https://u:PACK1@example.com/a.zip?sig=PACK2"),
        ("api_key", "APIKEY1"),
    ];
    Properties(pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
}

fn hidden() -> (Callback, Properties) {
    let (mut callback, mut properties) = (a_callback(), properties());
    Secrets { callback: Some(&mut callback), properties: &mut properties }.hide();
    (callback, properties)
}

fn restore(callback: &mut Callback, new: &mut Properties) -> Result<(), Unknown> {
    let (mut old_callback, mut old) = (a_callback(), properties());
    Secrets { callback: Some(callback), properties: new }.restore(Secrets { callback: Some(&mut old_callback), properties: &mut old })
}

#[test]
fn no_secret_is_left_and_the_rest_is() {
    let (callback, properties) = hidden();
    let shown = format!("{callback:?} {properties:?}");
    for secret in ["KEY1", "BEARER1", "ANY1", "BODY1", "COOKIE1", "ENV1", "ENV2", "FILE1", "SITE1", "PROXY1", "PACK1", "PACK2", "APIKEY1"] {
        assert!(!shown.contains(secret), "{secret} in {shown}");
    }
    for plain in
        ["{fireTime}", "text/plain", "a.B", "fixed", "PASS", "etc/key.pem", "*/*", "me:", "10.0.0.1:3128", "example.com/a.zip", "userAgent"]
    {
        assert!(shown.contains(plain), "{plain} in {shown}");
    }
    assert_eq!(callback.url, format!("https://example.com/hook?at={{fireTime}}&key={MASK}&{MASK}"));
}

#[test]
fn what_comes_back_masked_is_what_was_stored() {
    let (mut callback, mut new) = hidden();
    restore(&mut callback, &mut new).expect("all is stored");
    assert_eq!((callback, new), (a_callback(), properties()));
}

#[test]
fn one_value_of_several_can_be_changed() {
    let (mut callback, mut new) = hidden();
    callback.headers.insert("X-Any".to_owned(), "other".to_owned());
    callback.headers.remove("content-type");
    new.0.insert("Environment".to_owned(), format!("{{\"USER\":\"{MASK}\",\"PASS\":\"new\"}}"));
    new.0.insert("Site".to_owned(), format!("{{\"proxy\":\"http://me:{MASK}@10.0.0.1:3128\"}}"));
    restore(&mut callback, &mut new).expect("all is stored");
    assert_eq!(callback.headers["X-Any"], "other");
    assert_eq!(callback.headers["Authorization"], "Bearer BEARER1");
    assert_eq!(new.0["Environment"], "{\"PASS\":\"new\",\"USER\":\"ENV2\"}");
    assert_eq!(new.0["Site"], "{\"proxy\":\"http://me:PROXY1@10.0.0.1:3128\"}");
}

#[test]
fn a_mask_that_stands_for_nothing_is_no_value() {
    let path = |change: fn(&mut Callback, &mut Properties)| {
        let (mut callback, mut new) = (a_callback(), properties());
        change(&mut callback, &mut new);
        restore(&mut callback, &mut new).map_err(|Unknown(path)| path).err()
    };
    assert_eq!(path(|_, _| {}), None);
    assert_eq!(path(|c, _| drop(c.headers.insert("X-New".into(), MASK.into()))).as_deref(), Some("callback.headers.x-new"));
    // The secret must not go to another host.
    let url = |c: &mut Callback, _: &mut Properties| c.url = format!("https://other.example/?key={MASK}");
    assert_eq!(path(url).as_deref(), Some("callback.url"));
    let moved = |c: &mut Callback, _: &mut Properties| {
        c.url = "https://other.example/".to_owned();
        c.headers.insert("Authorization".to_owned(), MASK.to_owned());
    };
    assert_eq!(path(moved).as_deref(), Some("callback.headers.authorization"));
    let proxy =
        |_: &mut Callback, p: &mut Properties| drop(p.0.insert("Site".into(), format!("{{\"proxy\":\"http://me:{MASK}@10.0.0.2\"}}")));
    assert_eq!(path(proxy).as_deref(), Some("properties.Site.proxy"));
    let file = |_: &mut Callback, p: &mut Properties| drop(p.0.insert("Files".into(), format!("{{\"b\":\"{MASK}\"}}")));
    assert_eq!(path(file).as_deref(), Some("properties.Files.b"));
    assert_eq!(path(|_, p| drop(p.0.insert("Password".into(), MASK.into()))).as_deref(), Some("properties.Password"));
}

#[test]
fn urls_are_cut_where_secrets_are() {
    for (url, shown) in [
        ("http://h/a", "http://h/a"),
        ("http://h", "http://h"),
        ("socks5://user@h:1", "socks5://**hidden**@h:1"),
        ("http://u:p@ss@h/x@y", "http://u:**hidden**@h/x@y"),
        ("http://h/?a=1#t=2", "http://h/?a=**hidden**#**hidden**"),
        ("u:p@h:1", "**hidden**"),
        ("/api/v1/packages/00", "/api/v1/packages/00"),
        ("http://h?{runId}&b={jobId}x", "http://h?{runId}&b=**hidden**"),
    ] {
        assert_eq!(mask_url(url), shown);
        assert_eq!(mask_url(&mask_url(url)), shown, "twice is as once");
    }
    assert_eq!(mask_webhook("https://hooks.example.com/services/T0/B0/xyz?a"), "https://hooks.example.com/**hidden**");
}

#[test]
fn the_response_of_a_callback_is_masked_but_not_its_status() {
    let mut response = serde_json::json!({ "status": 200, "durationMs": 3, "attempt": 1, "body": "", "url": "https://me:pw@x.test/a?key=1",
        "headers": { "content-type": "text/plain", "location": "https://x.test/?session=s", "x-other": "o" } });
    mask_response(&mut response);
    let expected = serde_json::json!({ "status": 200, "durationMs": 3, "attempt": 1, "body": MASK,
        "url": format!("https://me:{MASK}@x.test/a?key={MASK}"),
        "headers": { "content-type": "text/plain", "location": format!("https://x.test/?session={MASK}"), "x-other": MASK } });
    assert_eq!(response, expected);
    assert_eq!(mask_request("POST https://x.test/?key=1"), format!("POST https://x.test/?key={MASK}"));
}

#[test]
fn arguments_are_masked_where_their_names_say_that_they_are_secret() {
    let mut arguments =
        serde_json::json!([{ "apiKey": "x", "who": "Ada", "db": { "DB_PASSWORD": { "old": 1 }, "token": null, "port": 5 } }, "text"]);
    mask_arguments(&mut arguments);
    let expected = serde_json::json!([{ "apiKey": MASK, "who": "Ada", "db": { "DB_PASSWORD": MASK, "token": null, "port": 5 } }, "text"]);
    assert_eq!(arguments, expected);
}
