//! The links and the title of an HTML page.
//!
//! Reads a page once with a tokenizer that follows the HTML standard, so that links in comments and scripts do not count, and entities
//! are decoded. Each link is returned once per page, as written, without its fragment: the caller resolves it.

use crate::protocol::push::MOST_URL;
use html5gum::{Emitter, Error, State, Tokenizer, naive_next_state};
use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;

/// Kinds of `<link>` that do not lead to a page.
const NO_PAGES: [&[u8]; 16] = [
    b"stylesheet",
    b"icon",
    b"apple-touch-icon",
    b"apple-touch-icon-precomposed",
    b"mask-icon",
    b"preload",
    b"modulepreload",
    b"prefetch",
    b"preconnect",
    b"dns-prefetch",
    b"manifest",
    b"search",
    b"pingback",
    b"edituri",
    b"wlwmanifest",
    b"author",
];

/// Common schemes of links that do not lead to a page.
const NO_SCHEMES: [&[u8]; 6] = [b"javascript:", b"mailto:", b"tel:", b"data:", b"sms:", b"about:"];

/// The longest stored title, in bytes.
const MOST_TITLE: usize = 1_024;

/// Maximum number of stored named `meta` elements, and the longest content of one.
const MOST_METAS: usize = 64;
const MOST_META: usize = 512;

/// The data of an HTML page.
#[derive(Debug, Default)]
pub struct Found {
    /// Its first title, with normalized blanks.
    pub title: Option<String>,
    /// The base URL that it declares, if any.
    pub base: Option<String>,
    /// Names and contents of its `meta` elements that may be for robots.
    pub meta: Vec<(String, String)>,
    text: Vec<u8>,
    links: Vec<Range<usize>>,
}

impl Found {
    /// The links, each once, in order.
    pub fn links(&self) -> impl ExactSizeIterator<Item = &str> {
        self.links.iter().map(|range| std::str::from_utf8(&self.text[range.clone()]).unwrap_or_default())
    }
}

/// Parses a page.
#[must_use]
pub fn find(html: &str) -> Found {
    let mut tokenizer = Tokenizer::new_with_emitter(html, Reader::default());
    // The reader emits no tokens: one call runs to the end.
    let Some(found) = tokenizer.next() else { return Found::default() };
    match found {
        Ok(found) => found,
        Err(never) => match never {},
    }
}

/// The tag that is being read, if it is relevant.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Tag {
    #[default]
    Other,
    /// Its `href` is a link: a, area.
    Href,
    /// Its `src` is a link: frame, iframe.
    Src,
    Link,
    Base,
    Meta,
}

/// The role of an attribute in its tag.
enum Attribute {
    Other,
    /// The attribute with the URL: `href`, `src`, `content`.
    Link,
    Rel,
    HttpEquiv,
    Name,
}

#[derive(Default)]
struct Reader {
    found: Found,
    tag: Tag,
    is_end: bool,
    /// Name of the tag, and of the start tag before it.
    name: Vec<u8>,
    last_start: Vec<u8>,
    attribute: Vec<u8>,
    /// The text of the present attribute.
    text: Vec<u8>,
    /// The value of `href`, `src` or `content` of the tag.
    value: Vec<u8>,
    has_value: bool,
    rel: Vec<u8>,
    is_refresh: bool,
    /// The name of a `meta` element.
    meta_name: Vec<u8>,
    /// The title so far, while it is read.
    title: Option<Vec<u8>>,
    /// Hashes of the links so far.
    known: HashSet<u64>,
    hasher: RandomState,
    is_done: bool,
}

impl Emitter for Reader {
    /// The complete result, at the end.
    type Token = Found;

    fn set_last_start_tag(&mut self, name: Option<&[u8]>) {
        self.last_start.clear();
        self.last_start.extend_from_slice(name.unwrap_or_default());
    }
    fn emit_eof(&mut self) {
        self.end_title();
        self.is_done = true;
    }
    fn pop_token(&mut self) -> Option<Found> {
        std::mem::take(&mut self.is_done).then(|| std::mem::take(&mut self.found))
    }
    fn emit_error(&mut self, _: Error) {}
    /// Without errors the tokenizer need not check every byte.
    fn should_emit_errors(&mut self) -> bool {
        false
    }

    fn emit_string(&mut self, text: &[u8]) {
        if let Some(title) = self.title.as_mut().filter(|title| title.len() < 4 * MOST_TITLE) {
            title.extend_from_slice(text);
        }
    }
    fn init_start_tag(&mut self) {
        self.name.clear();
        self.is_end = false;
        self.tag = Tag::Other;
    }
    fn init_end_tag(&mut self) {
        self.name.clear();
        self.is_end = true;
        self.tag = Tag::Other;
    }
    fn push_tag_name(&mut self, name: &[u8]) {
        self.name.extend_from_slice(name);
    }
    fn init_attribute(&mut self) {
        self.end_attribute();
        if !self.is_end {
            self.tag = tag(&self.name);
        }
    }
    fn push_attribute_name(&mut self, name: &[u8]) {
        if self.tag != Tag::Other {
            self.attribute.extend_from_slice(name);
        }
    }
    fn push_attribute_value(&mut self, value: &[u8]) {
        if self.tag != Tag::Other {
            self.text.extend_from_slice(value);
        }
    }
    fn emit_current_tag(&mut self) -> Option<State> {
        self.end_attribute();
        if self.is_end {
            self.end_title();
            self.last_start.clear();
            return None;
        }
        self.close();
        std::mem::swap(&mut self.last_start, &mut self.name);
        match &self.last_start[..] {
            b"title" if self.found.title.is_none() => {
                self.title = Some(Vec::new());
                Some(State::RcData)
            }
            // Scripts and frames are not supported, so their replacement is part of the page.
            b"noscript" | b"noframes" => None,
            name => naive_next_state(name),
        }
    }
    fn current_is_appropriate_end_tag_token(&mut self) -> bool {
        self.is_end && !self.last_start.is_empty() && self.last_start == self.name
    }

    fn init_comment(&mut self) {}
    fn push_comment(&mut self, _: &[u8]) {}
    fn emit_current_comment(&mut self) {}
    fn init_doctype(&mut self) {}
    fn push_doctype_name(&mut self, _: &[u8]) {}
    fn set_doctype_public_identifier(&mut self, _: &[u8]) {}
    fn set_doctype_system_identifier(&mut self, _: &[u8]) {}
    fn push_doctype_public_identifier(&mut self, _: &[u8]) {}
    fn push_doctype_system_identifier(&mut self, _: &[u8]) {}
    fn emit_current_doctype(&mut self) {}
    fn set_self_closing(&mut self) {}
    fn set_force_quirks(&mut self) {}
}

fn tag(name: &[u8]) -> Tag {
    match name {
        b"a" | b"area" => Tag::Href,
        b"frame" | b"iframe" => Tag::Src,
        b"link" => Tag::Link,
        b"base" => Tag::Base,
        b"meta" => Tag::Meta,
        _ => Tag::Other,
    }
}

impl Reader {
    fn end_title(&mut self) {
        if let Some(title) = self.title.take().map(|text| fold(&text)).filter(|title| !title.is_empty()) {
            self.found.title = Some(title);
        }
    }

    fn end_attribute(&mut self) {
        if self.tag == Tag::Other {
            return;
        }
        match attribute(self.tag, &self.attribute) {
            // The first of duplicate attributes counts.
            Attribute::Link if !self.has_value => {
                std::mem::swap(&mut self.value, &mut self.text);
                self.has_value = true;
            }
            Attribute::Rel => std::mem::swap(&mut self.rel, &mut self.text),
            Attribute::HttpEquiv => self.is_refresh = self.text.eq_ignore_ascii_case(b"refresh"),
            Attribute::Name => std::mem::swap(&mut self.meta_name, &mut self.text),
            Attribute::Link | Attribute::Other => {}
        }
        self.attribute.clear();
        self.text.clear();
    }

    fn close(&mut self) {
        let tag = std::mem::take(&mut self.tag);
        if self.has_value {
            let value = std::mem::take(&mut self.value);
            match tag {
                Tag::Href | Tag::Src => self.link(&value),
                Tag::Link if is_page(&self.rel) => self.link(&value),
                Tag::Base if self.found.base.is_none() => self.found.base = Some(String::from_utf8_lossy(value.trim_ascii()).into_owned()),
                Tag::Meta if self.is_refresh => {
                    if let Some(url) = refresh(&value) {
                        self.link(url);
                    }
                }
                Tag::Meta if !self.meta_name.is_empty() && value.len() <= MOST_META && self.found.meta.len() < MOST_METAS => {
                    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                    self.found.meta.push((text(&self.meta_name), text(&value)));
                }
                _ => {}
            }
            self.value = value;
        }
        self.value.clear();
        self.rel.clear();
        self.meta_name.clear();
        (self.has_value, self.is_refresh) = (false, false);
    }

    fn link(&mut self, text: &[u8]) {
        let text = text.split(|byte| *byte == b'#').next().unwrap_or_default().trim_ascii();
        let is_no_page = || NO_SCHEMES.iter().any(|s| text.get(..s.len()).is_some_and(|start| start.eq_ignore_ascii_case(s)));
        if text.is_empty() || text.len() > MOST_URL || is_no_page() || !self.known.insert(self.hasher.hash_one(text)) {
            return;
        }
        let start = self.found.text.len();
        self.found.text.extend_from_slice(text);
        self.found.links.push(start..self.found.text.len());
    }
}

fn attribute(tag: Tag, name: &[u8]) -> Attribute {
    match (tag, name) {
        (Tag::Href | Tag::Link | Tag::Base, b"href") | (Tag::Src, b"src") | (Tag::Meta, b"content") => Attribute::Link,
        (Tag::Link, b"rel") => Attribute::Rel,
        (Tag::Meta, b"http-equiv") => Attribute::HttpEquiv,
        (Tag::Meta, b"name") => Attribute::Name,
        _ => Attribute::Other,
    }
}

/// Whether a `<link>` leads to a page.
fn is_page(rel: &[u8]) -> bool {
    let rel = rel.to_ascii_lowercase();
    !rel.split(u8::is_ascii_whitespace).any(|word| NO_PAGES.contains(&word))
}

/// The URL of `5; url='next.html'`.
fn refresh(content: &[u8]) -> Option<&[u8]> {
    let rest = &content[content.iter().position(|byte| matches!(byte, b';' | b','))? + 1..];
    let rest = rest.trim_ascii_start();
    let rest = match rest.get(..3) {
        Some(word) if word.eq_ignore_ascii_case(b"url") => rest[3..].trim_ascii_start().strip_prefix(b"=")?.trim_ascii(),
        _ => rest.trim_ascii(),
    };
    match rest {
        [quote @ (b'"' | b'\''), rest @ ..] => rest.split(|byte| byte == quote).next(),
        rest => Some(rest),
    }
}

fn fold(text: &[u8]) -> String {
    let mut title = String::from_utf8_lossy(text).split_whitespace().collect::<Vec<_>>().join(" ");
    let end = title.floor_char_boundary(MOST_TITLE);
    title.truncate(end);
    title
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links(html: &str) -> Vec<String> {
        find(html).links().map(str::to_owned).collect()
    }

    #[test]
    fn every_element_that_leads_to_a_page_is_read() {
        let html = r#"<link rel="next" href=a><link rel="Stylesheet" href=no><link rel="shortcut icon" href=no>
            <LINK HREF='b' REL=prev><a class=x href = "c">d</a><area href=e><frame src=f><iframe src='g'><a href=no></iframe>
            <meta http-equiv=Refresh content="5; URL='h'"><meta content="0;url=i" http-equiv=refresh>
            <meta name=refresh content="0;url=no"><noscript><a href=j></noscript><img src=no><script src=no></script><form action=no></form>"#;
        assert_eq!(links(html), ["a", "b", "c", "e", "f", "g", "h", "i", "j"]);
    }

    #[test]
    fn what_is_no_link_is_not_taken_for_one() {
        let html = r##"<!-- <a href=no> --><script>"<a href=no>"</script><style><a href=no></style><textarea><a href=no></textarea>
            <title><a href=no></title><a name=no><a href><a href=""><a href="#part"><a href="JavaScript:go()"><a href=mailto:a@b>
            </a href=no><p href=no><a data-href=no><a title='<a href=no>' href=yes>"##;
        assert_eq!(links(html), ["yes"]);
    }

    #[test]
    fn elements_for_robots_are_given() {
        let found = find(
            "<meta name=Robots content='noindex'><META CONTENT=nofollow NAME=webloom><meta name=x><meta content=y><meta http-equiv=refresh name=r content='0;url=a'>",
        );
        let pairs: Vec<(&str, &str)> = found.meta.iter().map(|(name, content)| (name.as_str(), content.as_str())).collect();
        assert_eq!(pairs, [("Robots", "noindex"), ("webloom", "nofollow")]);
        assert_eq!(found.links().collect::<Vec<_>>(), ["a"]);
    }

    #[test]
    fn links_are_decoded_trimmed_and_given_once() {
        let html = "<a href='?a=1&amp;b=2&copy=3'><a href=' x#1 '><a href=x#2><a href=\"x\" href=no><a href=&#120;><a href='y&#47;z'><a href='\n\tw'>";
        assert_eq!(links(html), ["?a=1&b=2&copy=3", "x", "y/z", "w"]);
        let found = find("<base href=' /b/ '><base href=no><a href=a>");
        assert_eq!(found.base.as_deref(), Some("/b/"));
    }

    #[test]
    fn the_title_is_text_on_one_line() {
        let title = |html: &str| find(html).title;
        assert_eq!(title("<title>\n  A &amp;\tB&eacute; </title><svg><title>no</title></svg>").as_deref(), Some("A & Bé"));
        assert_eq!(title("<title></title><p>no").as_deref(), None);
        assert_eq!(title("<title>cut off").as_deref(), Some("cut off"));
        assert_eq!(title(&format!("<title>{}", "é".repeat(MOST_TITLE))).map(|t| t.len()), Some(MOST_TITLE));
        assert_eq!(title("<p>none"), None);
    }
}
