//! The robots directives of a page: `X-Robots-Tag` and `<meta name="robots">`.

/// Directives with a value after a colon, which are not names of robots.
const WITH_VALUES: [&str; 5] = ["unavailable_after", "max-snippet", "max-image-preview", "max-video-preview", "notranslate"];

/// The directives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Directives {
    /// The page should not be shown in an index.
    pub noindex: bool,
    /// Its links should not be followed.
    pub nofollow: bool,
}

impl Directives {
    /// Reads a header `X-Robots-Tag` for a product token in lower case: `noindex, nofollow`, or `somebot: noindex, otherbot: none`, where
    /// a name applies until the next one.
    pub fn read_header(&mut self, value: &str, token: &str) {
        let mut is_for_us = true;
        for word in value.split(',') {
            let word = match word.split_once(':') {
                Some((name, _)) if WITH_VALUES.iter().any(|known| known.eq_ignore_ascii_case(name.trim())) => continue,
                Some((name, word)) => {
                    is_for_us = name.trim().eq_ignore_ascii_case(token);
                    word
                }
                None => word,
            };
            if is_for_us {
                self.read_word(word);
            }
        }
    }

    /// Reads an element `meta` with this name and content.
    pub fn read_meta(&mut self, name: &str, content: &str, token: &str) {
        let name = name.trim();
        if name.eq_ignore_ascii_case("robots") || name.eq_ignore_ascii_case(token) {
            content.split(',').for_each(|word| self.read_word(word));
        }
    }

    fn read_word(&mut self, word: &str) {
        let is = |known: &str| word.trim().eq_ignore_ascii_case(known);
        self.noindex |= is("noindex") || is("none");
        self.nofollow |= is("nofollow") || is("none");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_and_elements_are_read() {
        let header = |values: &[&str]| {
            let mut found = Directives::default();
            values.iter().for_each(|value| found.read_header(value, "webloom"));
            (found.noindex, found.nofollow)
        };
        for (values, expected) in [
            (&["noindex"][..], (true, false)),
            (&["NoIndex , NOFOLLOW"], (true, true)),
            (&["none"], (true, true)),
            (&["all", "index, follow"], (false, false)),
            (&["noindex", "nofollow"], (true, true)),
            (&["otherbot: none"], (false, false)),
            (&["otherbot: noindex, nofollow"], (false, false)),
            (&["otherbot: noindex, WebLoom: nofollow"], (false, true)),
            (&["unavailable_after: 25 Jun 2010 15:00:00 PST, nofollow"], (false, true)),
            (&["max-snippet:-1, noindex"], (true, false)),
            (&["nofollowing", "", ",,", ":"], (false, false)),
        ] {
            assert_eq!(header(values), expected, "{values:?}");
        }
        let mut found = Directives::default();
        found.read_meta("otherbot", "none", "webloom");
        assert_eq!(found, Directives::default());
        found.read_meta(" Robots", "noarchive,nofollow", "webloom");
        found.read_meta("WEBLOOM", "noindex", "webloom");
        assert_eq!(found, Directives { noindex: true, nofollow: true });
    }
}
