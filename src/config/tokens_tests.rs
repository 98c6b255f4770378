use super::*;

fn role_of(tokens: &Tokens, text: &str) -> Option<Role> {
    tokens.find(text).map(|granted| granted.role)
}

#[test]
fn roles_are_read_and_secrets_are_not_shown() {
    let tokens = Tokens::parse(&["agent:1234", "readonly:look", "admin:s3cret:with:colons", "bare"]).expect("tokens");
    assert_eq!(role_of(&tokens, "1234"), Some(Role::Agent));
    assert_eq!(role_of(&tokens, "look"), Some(Role::ReadOnly));
    assert_eq!(role_of(&tokens, "s3cret:with:colons"), Some(Role::Admin));
    assert_eq!(role_of(&tokens, "bare"), Some(Role::Admin));
    assert_eq!(role_of(&tokens, ""), None);
    assert!(!format!("{tokens:?}").contains("1234"));
    assert!(Tokens::parse(&["admin:"]).is_err() && Tokens::parse(&["a b c d"]).is_err());
}

#[test]
fn a_client_may_send_the_role_along() {
    let tokens = Tokens::parse(&["agent:1234", "admin:boss"]).expect("tokens");
    assert_eq!(role_of(&tokens, "agent:1234"), Some(Role::Agent));
    assert_eq!(role_of(&tokens, "admin:1234"), None, "a role is not chosen by the client");
    assert_eq!(role_of(&tokens, "agent:agent:1234"), None);
}

#[test]
fn what_is_no_role_is_an_error_and_no_admin() {
    for (text, shown) in
        [("agents:typo-role", "\"agents\""), ("Readonly:abcd", "\"Readonly\""), ("boss:x123", "\"boss\""), (":abcd", "\"\"")]
    {
        let error = Tokens::parse(&[text]).expect_err(text);
        assert_eq!(error, format!("{shown} is not a role. Use admin, editor, operator, readonly, agent or worker."));
    }
    let error = Tokens::parse(&["a-long-secret-with:a-colon"]).expect_err("no role");
    assert!(!error.contains("long-secret"), "{error}");
}

#[test]
fn one_token_has_one_role() {
    let error = Tokens::parse(&["admin:abcdef", "worker:abcdef"]).expect_err("two roles");
    assert_eq!(error, "one token has two roles, admin and worker. Give each role a token of its own.");
    assert!(Tokens::parse(&["abcdef", "agent:abcdef"]).is_err(), "a bare text is an admin's");
    assert!(Tokens::parse(&["abcdef", "admin:abcdef"]).is_ok());
}

#[test]
fn over_a_network_a_token_is_long() {
    let tokens = Tokens::parse(&["agent:0123456789abcdef", "worker:0123456789abcde"]).expect("tokens");
    assert!(tokens.check_length(15).is_ok());
    let error = tokens.check_length(LEAST).expect_err("15 characters");
    assert!(error.contains("role worker") && !error.contains("0123456789abcde"), "{error}");
}

#[test]
fn a_file_is_read_again_and_a_broken_one_changes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tokens");
    let write = |text: &str| std::fs::write(&path, text).expect("a file");
    write("# who may\n\nadmin:first-one\n  agent: spaced \n");
    let tokens = Tokens::read(vec!["worker:by-flag".to_owned()], Some(path.clone())).expect("tokens");
    let copy = tokens.clone();
    assert_eq!(role_of(&copy, "spaced"), Some(Role::Agent));
    write("admin:second-one\n");
    tokens.reload(4).expect("a good file");
    assert_eq!((role_of(&copy, "first-one"), role_of(&copy, "second-one")), (None, Some(Role::Admin)));
    assert_eq!(role_of(&copy, "by-flag"), Some(Role::Worker), "flags stay");
    for (text, why) in [
        ("boss:secret-text\n", "line 1: \"boss\" is not a role"),
        ("admin:second-one\nsecret-text\n", "line 2: expected `role:text`"),
        ("admin:second-one\nworker:second-one\n", "line 2: one token has two roles"),
        ("admin:abc\n", "line 1: a token of role admin is not usable"),
        ("admin:shortish\n", "fewer than 16"),
    ] {
        write(text);
        let error = tokens.reload(LEAST).expect_err(text);
        assert!(error.contains(why) && !error.contains("secret-text"), "{error}");
        assert_eq!(role_of(&copy, "second-one"), Some(Role::Admin));
    }
    write("# nothing\n");
    assert!(Tokens::read(Vec::new(), Some(path.clone())).is_err(), "an empty file does not open the broker");
    assert!(Tokens::read(Vec::new(), Some(folder.path().join("none"))).is_err());
}

#[test]
fn a_sign_is_bound_to_its_node_its_role_and_its_time() {
    let mut tokens = Tokens::parse(&["agent:1234", "readonly:5678"]).expect("tokens");
    let (node, other, now) = (NodeId::random(), NodeId::random(), Timestamp(1_700_000_000_000));
    let judge = |tokens: &Tokens, node: NodeId, sign: &str, at: Option<i64>| match tokens
        .judge(Signed { node, sign, at: at.map(Timestamp) }, now)
    {
        Verdict::Granted(granted) => granted.role.name().to_owned(),
        other => format!("{other:?}"),
    };
    assert_eq!(judge(&tokens, node, &sign("1234", node), None), "agent");
    assert_eq!(judge(&tokens, node, &sign("1234", node).to_uppercase(), None), "agent");
    assert_eq!(judge(&tokens, other, &sign("1234", node), None), "Unknown");
    assert_eq!(judge(&tokens, node, &sign("5678", node), None), "Unknown");
    for (off, expected) in [
        (0, "agent"),
        (SIGN_TOLERANCE_MS, "agent"),
        (-SIGN_TOLERANCE_MS, "agent"),
        (-900_001, "Stale(900001)"),
        (900_001, "Stale(-900001)"),
    ] {
        let at = now.0 + off;
        assert_eq!(judge(&tokens, node, &sign_at("1234", node, Timestamp(at)), Some(at)), expected);
        assert_eq!(judge(&tokens, node, &sign_at("1234", node, Timestamp(at)), Some(at + 1)), "Unknown", "another time");
        assert_eq!(judge(&tokens, node, &sign("1234", node), Some(at)), "Unknown", "a time that is not signed");
    }
    assert_eq!(judge(&tokens, node, &sign_at("1234", node, Timestamp(i64::MIN)), Some(i64::MIN)), format!("Stale({})", i64::MAX));
    tokens.needs_sign_time = true;
    assert_eq!(judge(&tokens, node, &sign("1234", node), None), "Timeless");
    assert_eq!(judge(&tokens, node, &sign_at("1234", node, now), Some(now.0)), "agent");
}

#[tokio::test]
async fn a_reload_withdraws_tokens_also_from_callers_that_it_overtakes() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tokens");
    let write = |text: &str| std::fs::write(&path, text).expect("a file");
    write("admin:the-boss\nworker:changes\nworker:stays\nagent:removed\n");
    let tokens = Tokens::read(Vec::new(), Some(path.clone())).expect("tokens");
    let key = |token: &str| tokens.find(token).expect("a token").key;
    let withdrawn = |token: &str| {
        let (tokens, key) = (tokens.clone(), key(token));
        tokio::spawn(async move { tokens.withdrawn(key, |role| role != Role::ReadOnly).await })
    };
    let (changes, stays, removed, late) = (withdrawn("changes"), withdrawn("stays"), withdrawn("removed"), key("removed"));
    tokio::task::yield_now().await;
    write("admin:the-boss\nreadonly:changes\nworker:stays\n");
    tokens.reload(4).expect("a good file");
    assert_eq!((changes.await.expect("no panic"), removed.await.expect("no panic")), (Some(Role::ReadOnly), None));
    // Checked before the reload, and only now about to wait.
    assert_eq!(tokens.withdrawn(late, |_| true).await, None);
    tokens.reload(4).expect("a good file");
    tokio::task::yield_now().await;
    assert!(!stays.is_finished(), "another reload changes nothing for it");
    stays.abort();
}
