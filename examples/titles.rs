//! A worker that prints the title of every page of a site, ten links deep at most. It finds the broker by `WEBLOOM_BROKER` and
//! its token by `WEBLOOM_TOKEN`.
//!
//! ```text
//! cargo run --example titles --no-default-features --features sdk
//! webloom job create --name titles --class demo.Titles --arguments http://localhost:8000/ --property DepthLimit=10
//! webloom job trigger titles
//! ```

#![expect(clippy::print_stdout, reason = "it prints titles")]

use webloom::sdk::{Error, Follow, Page, Request, Result, RunContext, Spider, Worker};

struct Titles;

impl Spider for Titles {
    fn class_name(&self) -> &str {
        "demo.Titles"
    }

    async fn start(&self, run: &RunContext) -> Result<Vec<Request>> {
        Ok(vec![Request::get(run.arguments().ok_or("the job's Arguments are to be a URL")?)])
    }

    async fn page(&self, page: &Page, follow: &mut Follow<'_>) -> Result {
        if page.is_redirect() {
            return Ok(()); // The run requests its target.
        }
        let (text, base) = (page.text(), url::Url::parse(page.final_url())?);
        let title = text.split("<title>").nth(1).and_then(|rest| rest.split('<').next()).unwrap_or("no title");
        println!("{} {} {title}", page.status, page.url());
        let links = text.split("href=\"").skip(1).filter_map(|rest| base.join(rest.split('"').next()?).ok());
        for link in links.filter(|link| link.host() == base.host()) {
            follow.push(Request::get(link));
        }
        Ok(())
    }
}

fn main() -> Result<(), Error> {
    Worker::from_env().watch(Titles).run_blocking()
}
