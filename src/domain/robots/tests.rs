use super::fetch::{Judgement, LEAST_CACHE_MS};
use super::parse::MOST_BYTES;
use super::pattern::{escaped, target};
use super::*;
use crate::domain::time::Timestamp;
use proptest::prelude::*;
use url::Url;

const T: Timestamp = Timestamp(1_795_356_000_000);

fn line(robots: &str, token: &str, url: &str) -> Option<u32> {
    match Robots::parse(robots.as_bytes(), token).allowed(url) {
        Verdict::Allowed => None,
        Verdict::Disallowed { line } => Some(line),
    }
}

/// A file, and for each URL whether `foobot` may fetch it: `+` or `-` before it.
fn check(robots: &str, urls: &str) {
    for word in urls.split_whitespace() {
        let (sign, url) = word.split_at(1);
        let url = if url.starts_with('/') { format!("http://foo.bar{url}") } else { url.to_owned() };
        assert_eq!(line(robots, "foobot", &url).is_none(), sign == "+", "{url} by\n{robots}");
    }
}

/// What Google publishes as the tests of its parser, as a table.
#[test]
fn the_published_cases_of_googles_parser_pass() {
    for (robots, urls) in [
        ("", "+/"),
        ("user-agent: FooBot\ndisallow: /\n", "-/ -/x/y"),
        // Names of lines.
        ("foo: FooBot\nbar: /\n", "+/x/y"),
        ("user-agent FooBot\ndisallow /\n", "-/x/y"),
        ("USER-AGENT: FooBot\nALLOW: /x/\nDISALLOW: /\n", "+/x/y -/a/b"),
        ("uSeR-aGeNt: FooBot\nAlLoW: /x/\ndIsAlLoW: /\n", "+/x/y -/a/b"),
        // Agents.
        ("User-Agent: FOOBOT extra\nAllow: /x/\nDisallow: /\n", "+/x/y -/a/b"),
        ("User-Agent: *\nDisallow: /\nUser-Agent: FooBot Bar\nAllow: /x/\nDisallow: /\n", "+/x/y"),
        ("user-agent: *\nallow: /\nuser-agent: FooBot\ndisallow: /\n", "-/x/y"),
        ("user-agent: *\ndisallow: /\nuser-agent: BarBot\nallow: /\n", "-/x/y"),
        ("user-agent: BarBot\ndisallow: /\nuser-agent: BazBot\ndisallow: /\n", "+/x/y"),
        ("User-agent: *\nDisallow: /x/\nUser-agent: FooBot\nDisallow: /y/\n", "+/x/page -/y/page"),
        // Case.
        ("user-agent: FooBot\ndisallow: /x/\n", "-/x/y"),
        ("user-agent: FooBot\ndisallow: /X/\n", "+/x/y"),
        // The longest match.
        ("user-agent: FooBot\ndisallow: /x/page.html\nallow: /x/\n", "-/x/page.html"),
        ("user-agent: FooBot\nallow: /x/page.html\ndisallow: /x/\n", "+/x/page.html -/x/"),
        ("user-agent: FooBot\ndisallow: \nallow: \n", "+/x/page.html"),
        ("user-agent: FooBot\ndisallow: /\nallow: /\n", "+/x/page.html"),
        ("user-agent: FooBot\ndisallow: /x\nallow: /x/\n", "-/x +/x/"),
        ("user-agent: FooBot\ndisallow: /x/page.html\nallow: /x/page.html\n", "+/x/page.html"),
        ("user-agent: FooBot\nallow: /page\ndisallow: /*.html\n", "-/page.html +/page"),
        ("user-agent: FooBot\nallow: /x/page.\ndisallow: /*.html\n", "+/x/page.html -/x/y.html"),
        // Encodings.
        (
            "User-agent: FooBot\nDisallow: /\nAllow: /foo/bar?qux=taz&baz=http://foo.bar?tar&par\n",
            "+/foo/bar?qux=taz&baz=http://foo.bar?tar&par",
        ),
        ("User-agent: FooBot\nDisallow: /\nAllow: /foo/bar/ツ\n", "+/foo/bar/%E3%83%84 -/foo/bar/ツ"),
        ("User-agent: FooBot\nDisallow: /\nAllow: /foo/bar/%E3%83%84\n", "+/foo/bar/%E3%83%84 -/foo/bar/ツ"),
        ("User-agent: FooBot\nDisallow: /\nAllow: /foo/bar/%62%61%7A\n", "-/foo/bar/baz +/foo/bar/%62%61%7A"),
        // Special characters.
        ("User-agent: FooBot\nDisallow: /foo/bar/quz\nAllow: /foo/*/qux\n", "-/foo/bar/quz +/foo/quz +/foo//quz +/foo/bax/quz"),
        ("User-agent: FooBot\nDisallow: /foo/bar$\nAllow: /foo/bar/qux\n", "-/foo/bar +/foo/bar/qux +/foo/bar/ +/foo/bar/baz"),
        ("User-agent: FooBot\n# Disallow: /\nDisallow: /foo/quz#qux\nAllow: /\n", "+/foo/bar -/foo/quz"),
        // Google's own.
        ("User-Agent: *\nAllow: /as/index.html\nDisallow: /\n", "+/as/ -/as/index.htm +/as/index.html -/other -/as/x"),
        // Google's documentation.
        (
            "user-agent: FooBot\ndisallow: /\nallow: /fish\n",
            "-/bar +/fish +/fish.html +/fish/salmon.html +/fishheads +/fishheads/yummy.html +/fish.html?id=anything -/Fish.asp -/catfish -/?id=fish",
        ),
        (
            "user-agent: FooBot\ndisallow: /\nallow: /fish*\n",
            "-/bar +/fish +/fish.html +/fish/salmon.html +/fishheads +/fishheads/yummy.html +/fish.html?id=anything -/Fish.bar -/catfish -/?id=fish",
        ),
        (
            "user-agent: FooBot\ndisallow: /\nallow: /fish/\n",
            "-/bar +/fish/ +/fish/salmon +/fish/?salmon +/fish/salmon.html +/fish/?id=anything -/fish -/fish.html -/Fish/Salmon.html",
        ),
        (
            "user-agent: FooBot\ndisallow: /\nallow: /*.php\n",
            "-/bar +/filename.php +/folder/filename.php +/folder/filename.php?parameters +//folder/any.php.file.html +/filename.php/ \
             +/index?f=filename.php/ -/php/ -/index?php -/windows.PHP",
        ),
        (
            "user-agent: FooBot\ndisallow: /\nallow: /*.php$\n",
            "-/bar +/filename.php +/folder/filename.php -/filename.php?parameters -/filename.php/ -/filename.php5 -/php/ -/filename?php \
             -/aaaphpaaa -//windows.PHP",
        ),
        ("user-agent: FooBot\ndisallow: /\nallow: /fish*.php\n", "-/bar +/fish.php +/fishheads/catfish.php?parameters -/Fish.PHP"),
        ("user-agent: FooBot\nallow: /p\ndisallow: /\n", "+/page"),
        ("user-agent: FooBot\nallow: /folder\ndisallow: /folder\n", "+/folder/page"),
        ("user-agent: FooBot\nallow: /page\ndisallow: /*.htm\n", "-/page.htm"),
        ("user-agent: FooBot\nallow: /$\ndisallow: /\n", "+/ -/page.html"),
    ] {
        check(robots, urls);
    }
    assert_eq!(line("user-agent: FooBot\ndisallow: /\n", "", ""), None, "no agent, no group");
    assert_eq!(line("user-agent: FooBot\ndisallow: /\n", "foobot", ""), Some(2));
}

#[test]
fn groups_are_joined_and_rules_outside_of_them_are_ignored() {
    let robots = "allow: /foo/bar/\n\nuser-agent: FooBot\ndisallow: /\nallow: /x/\nuser-agent: BarBot\ndisallow: /\nallow: /y/\n\n\nallow: /w/\n\
                  user-agent: BazBot\n\nuser-agent: FooBot\nallow: /z/\ndisallow: /\n";
    for (token, urls) in
        [("foobot", "+/x/b +/z/d -/y/c -/foo/bar/"), ("barbot", "+/y/c +/w/a -/z/d -/foo/bar/"), ("bazbot", "+/z/d -/foo/bar/")]
    {
        for word in urls.split_whitespace() {
            assert_eq!(line(robots, token, &word[1..]).is_none(), word.starts_with('+'), "{token} {word}");
        }
    }
    assert_eq!((line(robots, "foobot", "/q"), line(robots, "barbot", "/q"), line(robots, "other", "/q")), (Some(4), Some(7), None));
    // RFC 9309, section 2.2.4: other records do not end a group.
    check("User-agent: a\nSitemap: /s.xml\nFoo: bar\nUser-agent: FooBot\nDisallow: /\n", "-/x");
    // A group without rules allows everything, even if another group is for all agents.
    check("User-agent: *\nDisallow: /\n\nUser-agent: FooBot\n", "+/x");
    check("User-agent: FooBot\nUser-agent: *\nDisallow: /a\nUser-agent: *\nDisallow: /b\n", "-/a +/b");
}

#[test]
fn a_token_is_the_start_of_the_user_agent() {
    for (agent, token) in [
        ("FooBot/2.1 (+http://x)", "foobot"),
        ("Foo_Bar-Baz", "foo_bar-baz"),
        (" foo bar", "foo"),
        ("ツ", ""),
        ("", ""),
        ("Mozilla/5.0 (compatible; FooBot)", "foobot"),
        ("Mozilla/5.0 (compatible; Foo-Bot/2.1; +http://x.y/)", "foo-bot"),
        ("Mozilla/5.0 (compatible; 1)", "mozilla"),
        ("Mozilla/5.0 (X11; Linux) FooBot", "mozilla"),
        ("Other/5.0 (compatible; FooBot)", "other"),
    ] {
        assert_eq!(product_token(agent), token);
    }
    // A longer name is a different agent.
    check("User-agent: FooBotNews\nDisallow: /\n", "+/x");
    check("User-agent: Foo\nDisallow: /\n", "+/x");
}

#[test]
fn long_lines_are_cut_and_long_files_end() {
    let most = 2_083 * 8;
    let pattern = format!("/x/{}", "a".repeat(most - "disallow: ".len() - 4 + 1));
    let robots = format!("user-agent: FooBot\ndisallow: {pattern}/qux\n");
    check(&robots, &format!("+/fux -{pattern}/fux"));
    let (a, b) = (format!("/x/{}", "a".repeat(most - 11)), format!("/x/{}", "b".repeat(most - 11)));
    let robots = format!("user-agent: FooBot\ndisallow: /\nallow: {a}/qux\nallow: {b}/qux\n");
    check(&robots, &format!("-/ +{a}/qux +{b}/fux"));
    let filler = "# nothing\n".repeat(51_200);
    check(&format!("user-agent: *\ndisallow: /a\n{filler}disallow: /b\n"), "-/a +/b");
    let cut = "user-agent: *\ndisallow: /a\n#".to_owned() + &"x".repeat(MOST_BYTES - 46) + "\ndisallow: /very";
    assert!(cut.len() < MOST_BYTES && cut.len() + 10 > MOST_BYTES);
    check(&(cut + "/deep/folder\n"), "-/a +/very +/very/deep/folder");
}

#[test]
fn lines_are_counted_whatever_ends_them() {
    for end in ["\n", "\r\n", "\r"] {
        let robots = ["User-Agent: foo", "Allow: /some/path", "User-Agent: FooBot", "", "", "Disallow: /"].join(end);
        assert_eq!(line(&robots, "foobot", "/x"), Some(6), "{end:?}");
        assert_eq!(line(&(robots + end), "foobot", "/x"), Some(6), "{end:?}");
    }
    assert_eq!(line("User-Agent: foo\nAllow: /some/path\r\nUser-Agent: FooBot\n\r\n\nDisallow: /", "foobot", "/x"), Some(6));
}

#[test]
fn a_byte_order_mark_is_skipped_at_the_start_alone() {
    let rest = b"User-agent: foobot\nDisallow: /\n";
    let is_read = |start: &[u8]| Robots::parse(&[start, rest].concat(), "foobot").allowed("/x") != Verdict::Allowed;
    assert!(is_read(b"\xef\xbb\xbf") && is_read(b"\xef\xbb") && is_read(b"\xef") && is_read(b""));
    assert!(!is_read(b"\xef\x11\xbf"));
    check("User-agent: FooBot\n\u{feff}Disallow: /\n", "+/x");
}

/// The table of RFC 9309, section 2.2.2, and its consequences.
#[test]
fn encodings_are_compared_as_the_standard_has_it() {
    for (rule, url) in [
        ("/foo/bar?baz=quz", "/foo/bar?baz=quz"),
        ("/foo/bar?baz=http://foo.bar", "/foo/bar?baz=http://foo.bar"),
        ("/foo/bar?baz=http%3A%2F%2Ffoo.bar", "/foo/bar?baz=http%3a%2f%2ffoo.bar"),
        ("/foo/bar/ツ", "/foo/bar/%e3%83%84"),
        ("/foo/bar/%E3%83%84", "/foo/bar/%E3%83%84"),
        ("/foo/bar/%62%61%7A", "/foo/bar/baz"),
        ("/foo/bar/%62%61%7A", "/foo/bar/%62a%7a"),
        ("/~joe/", "/%7Ejoe/x"),
        ("/%7ejoe/", "/~joe/x"),
        ("/a b", "/a%20b"),
        ("/a{b}", "/a%7Bb%7D"),
        ("/100%", "/100%"),
        ("/a*%24", "/axx%24y"),
        ("/folder/*?x=%2A", "/folder/y?x=%2A"),
    ] {
        check(&format!("User-agent: *\nDisallow: {rule}\n"), &format!("-{url}"));
    }
    for (rule, url) in [("/a%2Fb", "/a/b"), ("/a/b", "/a%2Fb"), ("/a%3Fb", "/a?b"), ("/%", "/x"), ("/a%24", "/a")] {
        check(&format!("User-agent: *\nDisallow: {rule}\n"), &format!("+{url}"));
    }
    check("User-agent: *\nDisallow: /\nAllow: /~joe/\n", "+/%7Ejoe/x +/~joe/x");
    let url = Url::parse("http://foo.bar/foo/bar/ツ?q=é").expect("a url");
    check("User-agent: *\nDisallow: /\nAllow: /foo/bar/ツ?q=é\n", &format!("+{url}"));
}

/// The example of RFC 9309, section 5.
#[test]
fn the_examples_of_the_standard_hold() {
    let robots = "User-Agent: *\nDisallow: *.gif$\nDisallow: /example/\nAllow: /publications/\n\nUser-Agent: foobot\nDisallow:/\nAllow:/example/page.html\n\
                  Allow:/example/allowed.gif\n\nUser-Agent: barbot\nUser-Agent: bazbot\nDisallow: /example/page.html\n\nUser-Agent: quxbot\n";
    for (token, urls) in [
        ("foobot", "-/x +/example/page.html +/example/allowed.gif -/publications/"),
        ("barbot", "-/example/page.html +/example/x +/a.gif"),
        ("bazbot", "-/example/page.html +/x"),
        ("quxbot", "+/example/ +/a.gif"),
        ("other", "-/a.gif +/a.gif?x -/example/x +/publications/x.html -/publications/x.gif"),
    ] {
        for word in urls.split_whitespace() {
            let is_allowed = line(robots, token, &word[1..]).is_none();
            // `/publications/` is longer than `*.gif$`.
            let expected = word.starts_with('+') || (token, word) == ("other", "-/publications/x.gif");
            assert_eq!(is_allowed, expected, "{token} {word}");
        }
    }
    let longest = "User-Agent: foobot\nAllow: /example/page/\nDisallow: /example/page/disallowed.gif\n";
    check(longest, "+/example/page/x -/example/page/disallowed.gif");
    assert_eq!(line(longest, "foobot", "/example/page/disallowed.gif"), Some(3));
}

#[test]
fn common_mistakes_are_forgiven_and_nonsense_is_not_read() {
    for name in ["Dissallow", "dissalow", "Disalow", "diasllow", "disallaw", "disallow "] {
        check(&format!("useragent: FooBot\n{name}: /a\n"), "-/a +/b");
    }
    check("User-agent: FooBot\n : /\n: /\nDisallow\nDisallow: /a : b\n/\nallow /a /b\n<html>\n", "-/a%20:%20b +/x +/a");
    check("User-agent: FooBot\nDisallow: *\n", "-/x");
    check("User-agent: FooBot\nDisallow: $\nDisallow: x\n", "+/ +/x");
    check("User-agent: FooBot\nDisallow: /*$\n", "-/ -/x/y?z");
    check("User-agent: FooBot\nDisallow: /a$b\n", "-/a$b +/a");
    check("User-agent: FooBot\nDisallow: /**a**b\n", "-/xaxb +/xbxa");
    check("User-agent: FooBot\nDisallow: /a*a$\n", "+/a -/aa -/aba +/ab");
}

#[test]
fn the_delay_is_read() {
    let robots = |text: &str| Robots::parse(text.as_bytes(), "foobot");
    let delay = |text: &str| robots(&format!("User-agent: {text}")).crawl_delay_ms();
    assert_eq!(delay("*\nCrawl-delay: 2"), Some(2_000));
    assert_eq!(delay("*\ncrawl-DELAY: 0.25 # s"), Some(250));
    assert_eq!(delay("foobot\nDisallow:\nCrawl-delay: 1\n\nUser-agent: *\nCrawl-delay: 9"), Some(1_000));
    assert_eq!(delay("x\nCrawl-delay: 9\nUser-agent: foobot\nDisallow: /"), None, "it was for the other");
    assert_eq!(delay("*\nCrawl-delay: 1\nCrawl-delay: 5\nCrawl-delay: 3"), Some(5_000), "the slowest");
    assert_eq!(delay("*\nCrawl-delay: 99999999999"), Some(86_400_000));
    for none in ["-1", "soon", "", "NaN", "1 s"] {
        assert_eq!(delay(&format!("*\nCrawl-delay: {none}")), None, "{none}");
    }
}

#[test]
fn only_the_groups_of_the_token_are_kept_and_they_survive_a_restart() {
    let others = "User-agent: other\nDisallow: /a\n".repeat(5_000);
    let text = format!("{others}User-agent: foobot\nDisallow: /secret\nAllow: /secret/é\nCrawl-delay: 3\nSitemap: http://a/s.xml\n");
    let robots = Robots::parse(text.as_bytes(), "foobot");
    assert!(robots.heap_bytes() < 100, "{}", robots.heap_bytes());
    assert_eq!(robots.allowed("/secret/x"), Verdict::Disallowed { line: 10_002 });
    for robots in [robots, Robots::allow_all(), Robots::unreachable()] {
        assert_eq!(Robots::of_text(&robots.to_text()), Some(robots));
    }
    assert_eq!((Robots::of_text("deny 1 /"), Robots::of_text("allow x /"), Robots::of_text("allow 1")), (None, None, None));
}

#[test]
fn a_fetch_decides_for_a_while() {
    let body = b"User-agent: *\nDisallow: /\n".as_slice();
    let answer = |status| judge(Fetched::Answer { status, body, cache_ms: 60_000 }, "foobot", T, 3);
    let says = |judgement: &Judgement| judgement.robots.allowed("/x");
    for status in [200, 206, 299] {
        assert_eq!((says(&answer(status)), answer(status).until), (Verdict::Disallowed { line: 2 }, T.plus_ms(60_000)));
    }
    for status in [304, 301, 400, 401, 403, 404, 410, 429, 451, 499] {
        assert_eq!((says(&answer(status)), answer(status).failures), (Verdict::Allowed, 0), "{status}");
    }
    let failed = [500, 503, 599, 100].map(|status| (Fetched::Answer { status, body, cache_ms: 60_000 }, [60, 120, 3_600, 3_600]));
    for (fetched, expected) in failed.into_iter().chain([(Fetched::Unreachable, [10, 20, 640, 3_600])]) {
        let waits: Vec<i64> = [0, 1, 6, u32::MAX].map(|n| judge(fetched, "foobot", T, n).until.since_ms(T) / 1_000).into();
        assert_eq!(waits, expected);
        assert_eq!(says(&judge(fetched, "foobot", T, 0)), Verdict::Disallowed { line: 0 });
    }
    assert_eq!(says(&judge(Fetched::TooManyRedirects, "foobot", T, 0)), Verdict::Allowed);
    let most = judge(Fetched::Answer { status: 200, body, cache_ms: u32::MAX }, "foobot", T, 0);
    assert_eq!(most.until, T.plus_ms(86_400_000));
}

#[test]
fn headers_say_how_long_a_file_is_kept() {
    const DAY: u32 = 86_400_000;
    let control = |text| cache_ms(Some(text), Some("Sun, 22 Nov 2026 15:00:00 GMT"), Some("10"), T);
    assert_eq!(control("public, Max-Age=\"3600\""), 3_590_000);
    assert_eq!(control("max-age=999999999999999999999999"), DAY);
    assert_eq!([control("max-age=0"), control("no-cache"), control("max-age=60, no-store"), control("max-age=x")], [LEAST_CACHE_MS; 4]);
    assert_eq!(control("public"), 3_600_000, "by its date");
    assert_eq!(cache_ms(None, None, None, T), DAY);
    assert_eq!(cache_ms(None, Some("0"), None, T), LEAST_CACHE_MS);
    assert_eq!(cache_ms(None, Some("Sun, 22 Nov 2020 15:00:00 GMT"), None, T), LEAST_CACHE_MS);
    assert_eq!(cache_ms(None, Some("Mon, 22 Nov 2032 15:00:00 GMT"), None, T), DAY);
}

#[test]
fn the_file_is_at_the_root_of_the_origin() {
    for (url, robots) in [
        ("https://u:p@a.example:8443/x/y?z#f", Some("https://a.example:8443/robots.txt")),
        ("http://[::1]/", Some("http://[::1]/robots.txt")),
        ("ftp://a/", None),
    ] {
        assert_eq!(robots_url(&Url::parse(url).expect("a url")).map(String::from).as_deref(), robots);
    }
}

#[test]
fn the_path_of_a_url_is_found() {
    for (url, path) in [
        ("", "/"),
        ("http://www.example.com", "/"),
        ("http://www.example.com/a/", "/a/"),
        ("http://www.example.com/a/b?c=http://d.e/", "/a/b?c=http://d.e/"),
        ("http://www.example.com/a/b?c=d&e=f#fragment", "/a/b?c=d&e=f"),
        ("http://www.example.com#/x", "/"),
        ("example.com", "/"),
        ("example.com/a/b?c=d&e=f#fragment", "/a/b?c=d&e=f"),
        ("a", "/"),
        ("a/", "/"),
        ("/a", "/a"),
        ("a/b", "/b"),
        ("example.com?a", "/?a"),
        ("example.com/a;b#c", "/a;b"),
        ("//a/b/c", "/b/c"),
    ] {
        assert_eq!(target(url), path, "{url}");
    }
    for (text, expected) in [("http://www.example.com", "http://www.example.com"), ("/a/b/c", "/a/b/c"), ("á", "%C3%A1"), ("%aa", "%AA")] {
        assert_eq!(escaped(text.as_bytes(), true), expected);
    }
}

/// A slow matcher that is obviously correct.
fn matches_slowly(pattern: &[u8], path: &[u8]) -> bool {
    match pattern {
        [] => true,
        [b'$'] => path.is_empty(),
        [b'*', rest @ ..] => (0..=path.len()).any(|at| matches_slowly(rest, &path[at..])),
        [byte, rest @ ..] => path.first() == Some(byte) && matches_slowly(rest, &path[1..]),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..Default::default() })]

    #[test]
    fn matching_is_as_it_is_defined(pattern in "[/ab*$]{0,8}", path in "/[/ab$]{0,8}") {
        prop_assert_eq!(super::pattern::matches(&pattern, &path), matches_slowly(pattern.as_bytes(), path.as_bytes()));
    }

    #[test]
    fn any_bytes_are_read(body in proptest::collection::vec(any::<u8>(), 0..300), url in "\\PC{0,40}") {
        let robots = Robots::parse(&body, "foobot");
        let _ = robots.allowed(&url);
        prop_assert_eq!(Robots::of_text(&robots.to_text()), Some(robots));
    }

    #[test]
    fn what_looks_like_a_file_is_read(
        body in "((User-agent: (foobot|\\*|x)|(Dis)?allow: [/a-c*$%é ]{0,6}|Crawl-delay: [0-9.]{1,4}|Sitemap: [a-z]{0,3})[\r\n]{1,2}){0,12}",
        url in "/[a-c%/]{0,6}",
    ) {
        let robots = Robots::parse(body.as_bytes(), "foobot");
        let again = Robots::of_text(&robots.to_text()).expect("a text");
        prop_assert_eq!(again.allowed(&url), robots.allowed(&url));
        prop_assert_eq!(again, robots);
    }
}
