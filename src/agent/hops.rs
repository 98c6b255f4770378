//! One try, including its redirects. Each hop is checked like a separate request, waits for its turn at its host, and gets only the
//! cookies and headers that are meant for that host.

use super::asked::{Asked, header, is_of_framing};
use super::attempt::{Answer, Reading, location, read, send};
use super::clients::{Clients, Needs, Site};
use super::failure::fetch_error;
use super::guard::{Place, refused};
use super::memory::Account;
use super::pace::Gate;
use super::sending::sent;
use crate::domain::ids::Identity;
use crate::domain::origin::{Began, Origin, Scope};
use crate::domain::redirect::{becomes_get, is_harmless, is_of_body, is_redirect, target};
use crate::domain::settings::{CookieMode, DownloadSettings, check_proxy};
use crate::protocol::node::{FetchError, FetchErrorKind};
use reqwest::header::{COOKIE, HeaderMap, HeaderValue, LOCATION, USER_AGENT};
use reqwest::{Method, Request, Response, Url};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::Instant;

/// The common data of the requests of a block that a hop needs.
pub struct Trip<'a> {
    /// The clients of the agent.
    pub clients: &'a Clients,
    /// The run.
    pub run: Identity,
    /// Its settings.
    pub settings: &'a DownloadSettings,
    /// Where its cookies and headers may be sent.
    pub scope: &'a Scope,
    /// The number of this machine's IP address.
    pub address: u64,
    /// The account for the memory of large bodies.
    pub account: &'a Rc<Account>,
    /// The pace of the block, and the index of the request in it.
    pub gate: Option<(&'a Gate, usize)>,
    /// Total wait of the request for its turns.
    pub waited: Cell<Duration>,
}

/// One request in a chain of redirects.
struct Hop<'a> {
    url: Url,
    origin: Origin,
    method: Method,
    body: Option<&'a str>,
    /// Whether the request itself names the target, and not a redirect of a site.
    is_own: bool,
}

enum Next<'a> {
    Hop(Box<Hop<'a>>),
    Answer,
    Error(FetchError),
}

impl Trip<'_> {
    /// Sends the request and follows its redirects. `site` is the site of the request, whose turn was already waited for. Increments
    /// `tries` when something is sent.
    pub async fn make(&self, asked: &Asked, site: &Rc<Site>, tries: &mut u32) -> Answer {
        let mut answer = self.go(asked, site, tries).await;
        if let Some(error) =
            answer.error.as_mut().filter(|error| error.kind == FetchErrorKind::Refused && self.settings.start_origins.is_none())
        {
            // A broker that does not send the origins of a run does not support this kind either.
            error.kind = FetchErrorKind::Invalid;
        }
        answer
    }

    async fn go(&self, asked: &Asked, home: &Rc<Site>, tries: &mut u32) -> Answer {
        let Some(origin) = Origin::of(&asked.url) else { return fetch_error(FetchErrorKind::Invalid, "the URL has no host").into() };
        let first = origin.clone();
        let mut hop = Hop { url: asked.url.clone(), origin, method: asked.method.clone(), body: asked.body.as_deref(), is_own: true };
        let timeout = Duration::from_millis(self.settings.timeout);
        let (mut deadline, mut site) = (Instant::now() + timeout, home.clone());
        // The response with the last redirect.
        let mut before: Option<Answer> = None;
        for redirects in 0..=self.settings.max_redirects {
            let (client, request) = match self.request(&hop, asked, &first, &site, home) {
                Ok(made) => made,
                Err(error) => return Answer { unsent: before.is_none(), error: Some(error), ..before.unwrap_or_default() },
            };
            if let Some((gate, place)) = self.gate {
                let wait = Instant::now();
                if !gate.begin(place).await {
                    return Answer { is_stopped: true, ..before.unwrap_or_default() };
                }
                deadline += self.waited_since(wait);
            }
            if redirects == 0 {
                *tries += 1;
            }
            let sent = sent(&request, &self.clients.common().headers);
            let _in_use = self.clients.connect(self.run, &hop.url, &site);
            let response = match send(&client, request, deadline, timeout).await {
                Ok(response) => response,
                // After a redirect something has been sent.
                Err(answer) => return Answer { unsent: answer.unsent && redirects == 0, ..answer },
            };
            home.keep_cookies(&hop.url, response.headers());
            let mut head = Answer::head(&response, &asked.url, &hop.url);
            head.head.sent = Some(sent);
            match self.next(&hop, &response) {
                Next::Answer => {
                    let (max_body, share) = (self.settings.max_body, self.account.share());
                    let mut answer = read(response, head, Reading { deadline, timeout, max_body, share }).await;
                    if answer.location.as_ref().is_some_and(|location| !location.is_empty()) {
                        // The target counts; a page that describes it may be broken.
                        answer.error = None;
                    }
                    return answer;
                }
                Next::Error(error) => return Answer { error: Some(error), ..head },
                Next::Hop(_) if redirects == self.settings.max_redirects => {
                    let error = fetch_error(FetchErrorKind::Redirect, format!("too many redirects: more than {redirects}"));
                    return Answer { error: Some(error), ..head };
                }
                Next::Hop(next) => {
                    if let Some((gate, _)) = self.gate {
                        gate.answered();
                    }
                    before = Some(head);
                    hop = *next;
                }
            }
            site = self.clients.site(self.run, self.settings, &hop.url);
            if self.gate.is_none() {
                let wait = Instant::now();
                site.turn(self.settings.sleep_time).await;
                deadline += self.waited_since(wait);
            }
        }
        before.unwrap_or_default()
    }

    /// Waiting for a turn is not the site's fault.
    fn waited_since(&self, wait: Instant) -> Duration {
        self.waited.set(self.waited.get() + wait.elapsed());
        wait.elapsed()
    }

    /// The HTTP request of a hop, and its client.
    fn request(
        &self,
        hop: &Hop<'_>,
        asked: &Asked,
        first: &Origin,
        site: &Site,
        home: &Site,
    ) -> Result<(reqwest::Client, Request), FetchError> {
        let target = Place::of(&hop.url);
        let began = Began::at(self.settings.start_origins.as_deref(), &hop.url);
        let all = self.clients.common();
        let targets = &all.targets;
        targets.judge_host(&target.host, target.port, &began).map_err(refused)?;
        let proxy = asked.proxy.as_deref().or(self.settings.site.proxy.as_deref()).filter(|proxy| !proxy.is_empty());
        let proxy = proxy.map(check_proxy).transpose().map_err(|why| fetch_error(FetchErrorKind::Invalid, format!("site.proxy: {why}")))?;
        if let Some(proxy) = &proxy {
            let place = Place::of(proxy);
            let judged = targets.judge_host(&place.host, place.port, &Began::elsewhere());
            judged.map_err(|why| refused(format!("proxy not permitted: {why}")))?;
        }
        let client = site.client(Needs { address: self.address, target, began, proxy }, all)?;
        let mut request = client.request(hop.method.clone(), hop.url.clone()).headers(self.headers(hop, asked, first, home)?);
        if let Some(body) = hop.body {
            request = request.body(body.to_owned());
        }
        let request = request.build().map_err(|e| fetch_error(FetchErrorKind::Invalid, e.without_url().to_string()))?;
        Ok((client, request))
    }

    fn headers(&self, hop: &Hop<'_>, asked: &Asked, first: &Origin, home: &Site) -> Result<HeaderMap, FetchError> {
        let settings = self.settings;
        let invalid = |why: String| fetch_error(FetchErrorKind::Invalid, why);
        let in_scope = self.scope.holds(&hop.origin, first);
        let has_body = hop.body.is_some();
        let mut headers = HeaderMap::new();
        for (name, value) in &asked.headers {
            if (hop.is_own || is_harmless(name.as_str())) && (has_body || hop.method == asked.method || !is_of_body(name.as_str())) {
                headers.append(name, value.clone());
            }
        }
        for (name, value) in &settings.site.headers {
            let (name, value) = header(name, value).map_err(|why| invalid(format!("site.headers: {why}")))?;
            if (in_scope || is_harmless(name.as_str())) && !headers.contains_key(&name) && !is_of_framing(&name) {
                headers.insert(name, value);
            }
        }
        if let Some(agent) = settings.site.user_agent.as_deref().filter(|_| !asked.headers.contains_key(USER_AGENT)) {
            let value =
                HeaderValue::from_bytes(agent.as_bytes()).map_err(|_| invalid("site.userAgent is not a valid header value".to_owned()))?;
            headers.insert(USER_AGENT, value);
        }
        match (settings.cookie_mode, settings.cookies.as_deref()) {
            (CookieMode::Fixed, Some(cookies)) if in_scope => {
                let value = HeaderValue::from_bytes(cookies.as_bytes())
                    .map_err(|_| invalid("the cookies are not a valid header value".to_owned()))?;
                headers.insert(COOKIE, value);
            }
            (CookieMode::Fixed, _) => {}
            (CookieMode::Initial, cookies) => {
                if let Some(value) = home.cookies(&hop.url, cookies, in_scope).filter(|_| !headers.contains_key(COOKIE)) {
                    headers.insert(COOKIE, value);
                }
            }
        }
        Ok(headers)
    }

    /// The next step after a response.
    fn next<'h>(&self, hop: &Hop<'h>, response: &Response) -> Next<'h> {
        let status = response.status().as_u16();
        if !is_redirect(status) || !response.headers().contains_key(LOCATION) || self.settings.max_redirects == 0 {
            return Next::Answer;
        }
        let url = match target(&hop.url, &location(response.headers(), &hop.url)) {
            Ok(url) => url,
            Err(why) => return Next::Error(fetch_error(FetchErrorKind::Redirect, why)),
        };
        if self.gate.is_some() && url.host_str() != hop.url.host_str() {
            // Another site has another pace: report the redirect, so that its target becomes a separate request.
            return Next::Answer;
        }
        let Some(origin) = Origin::of(&url) else { return Next::Answer };
        let is_own = hop.is_own && hop.origin.covers(&origin);
        let becomes_get = becomes_get(status, hop.method.as_str());
        let (method, body) = if becomes_get { (Method::GET, None) } else { (hop.method.clone(), hop.body) };
        Next::Hop(Box::new(Hop { url, origin, method, body, is_own }))
    }
}
