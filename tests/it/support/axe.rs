//! axe-core (<https://github.com/dequelabs/axe-core>): finds what keeps people who see little, or use a keyboard or a screen reader, from using
//! a page.

use super::browser::Browser;
use serde_json::{Value, json};

/// What is wrong, and where: findings that axe-core calls serious or critical.
const SERIOUS: &str = "return axe.run(document, arguments[0]).then(({ violations }) => \
    violations.filter(({ impact }) => ['serious', 'critical'].includes(impact)).flatMap(({ id, nodes }) => \
    nodes.slice(0, 3).map(({ html, failureSummary }) => `${id}: ${html.slice(0, 200)} ${failureSummary}`)));";

/// Its source text.
pub struct Axe(String);

impl Axe {
    /// The one that `WEBLOOM_AXE` names; none without it.
    #[expect(clippy::print_stdout, reason = "the output of the check names what it skips")]
    pub fn find() -> Option<Self> {
        let Some(path) = std::env::var_os("WEBLOOM_AXE") else {
            println!("SKIPPED: WEBLOOM_AXE is not set, so no page is checked with axe-core");
            return None;
        };
        Some(Self(std::fs::read_to_string(path).expect("axe.min.js")))
    }

    /// Checks the page that is open: all of it in light colors, and the contrast also in dark ones.
    pub async fn check(&self, browser: &Browser, page: &str) {
        browser.run(&self.0, json!([])).await;
        for (scheme, options) in [("light", json!({})), ("dark", json!({ "runOnly": ["color-contrast"] }))] {
            colors(browser, Some(scheme)).await;
            let found = browser.run(SERIOUS, json!([options])).await;
            assert_eq!(found, json!([]), "{page} in {scheme} colors");
        }
        colors(browser, None).await;
    }
}

/// Sets the colors that the person prefers.
async fn colors(browser: &Browser, scheme: Option<&str>) {
    let features: Vec<Value> = scheme.iter().map(|scheme| json!({ "name": "prefers-color-scheme", "value": scheme })).collect();
    browser.devtools("Emulation.setEmulatedMedia", json!({ "features": features })).await;
}
