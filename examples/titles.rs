//! A worker that prints the title of every page of a site, ten links deep at most.
//!
//! ```text
//! cargo run --example titles --no-default-features --features sdk
//! curl localhost:55626/api/v1/jobs -H 'content-type: application/json' -d '{"name": "titles", "jobType": "block",
//!     "properties": {"FullClassName": "demo.Titles", "Arguments": "http://localhost:8000/", "DepthLimit": "10"}}'
//! curl -X POST localhost:55626/api/v1/jobs/THE-ID-THAT-IT-SAID/trigger
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
    Worker::new("http://127.0.0.1:55626").watch(Titles).run_blocking()
}
