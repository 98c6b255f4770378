//! README.md and docs/ with its folders do what they say: every shell command in them is run, in the order of the page, as
//! somebody would who copies it line by line.
//!
//! A comment in the line before a block tells the test how to run it; readers do not see it:
//!
//! - `<!-- test: background -->`: the block keeps running in a terminal of its own until the end of the page.
//! - `<!-- test: background until "text" -->`: the same, and the page goes on when this text was printed.
//! - `<!-- test: background until watched "name" -->`: the same, and the page goes on when a worker watches this name.
//! - `<!-- test: background until "text", then stop -->`: the block is stopped (Ctrl-C) once the text was printed.
//! - `<!-- test: install -->`: the block installs the program. `clean_system.rs` runs it; the other tests have installed it.
//! - `<!-- test: skip, reason -->`: the block is only checked for the shell's grammar. [`SKIPPED`] counts these.
//! - `<!-- test: fails with 1 -->`: the block must end with this exit code.
//! - `<!-- test: file name -->`: a block of any language is written to this file before the page begins, for its commands.
//! - `<!-- test: stop all -->`, anywhere: what runs in the background is stopped.
//! - `<!-- test: of Prometheus -->`: a block of YAML is of this program, and no file of jobs.
//! - `<!-- test: needs the Python package -->`, anywhere: the page is run if the test command has installed the package.

use crate::support::api::Api;
use crate::support::process::{Broker, WEBLOOM};
use crate::support::site::Site;
use crate::support::{free_port, journey};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Blocks that no test runs, for each page: what they need is not to be had on a test's machine.
const SKIPPED: [(&str, usize); 6] = [
    ("README.md", 2),
    ("docs/guides/alerts.md", 1),
    ("docs/install.md", 9),
    ("docs/operations.md", 5),
    ("docs/python.md", 1),
    ("docs/tutorials/scrapy.md", 1),
];

const STOP: &str = "<!-- test: stop all -->";
const NEEDS_PACKAGE: &str = "<!-- test: needs the Python package -->";

#[derive(Debug)]
struct Block {
    page: String,
    line: usize,
    language: String,
    directive: String,
    text: String,
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// README.md and the pages in docs/ and its folders, without the records of decisions.
fn pages() -> Vec<String> {
    let (mut pages, mut folders) = (Vec::new(), vec!["docs".to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(root().join(&folder)).expect("a folder") {
            let entry = entry.expect("an entry");
            let name = format!("{folder}/{}", entry.file_name().to_string_lossy());
            if name == "docs/adr" {
                continue;
            } else if entry.file_type().expect("a type").is_dir() {
                folders.push(name);
            } else if name.ends_with(".md") {
                pages.push(name);
            }
        }
    }
    pages.sort();
    pages.insert(0, "README.md".into());
    pages
}

fn text_of(page: &str) -> String {
    std::fs::read_to_string(root().join(page)).unwrap_or_else(|error| panic!("{page}: {error}"))
}

fn blocks(page: &str) -> Vec<Block> {
    let text = text_of(page);
    let (mut found, mut open, mut before): (Vec<Block>, bool, &str) = (Vec::new(), false, "");
    for (at, line) in text.lines().enumerate() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            if !open {
                let directive = before.trim().strip_prefix("<!-- test: ").and_then(|rest| rest.strip_suffix(" -->")).unwrap_or_default();
                let (language, directive) = (language.to_owned(), directive.to_owned());
                found.push(Block { page: page.to_owned(), line: at + 1, language, directive, text: String::new() });
            }
            open = !open;
        } else if open {
            let block = found.last_mut().expect("one is open");
            block.text.push_str(line);
            block.text.push('\n');
        } else if line.trim() == STOP {
            let (page, language) = (page.to_owned(), "stop".to_owned());
            found.push(Block { page, line: at + 1, language, directive: String::new(), text: String::new() });
        }
        before = line;
    }
    assert!(!open, "{page}: a block does not end");
    found
}

/// What a page says about machines, put onto this one.
pub struct Stage {
    folder: PathBuf,
    replaced: Vec<(String, String)>,
    /// On a clean system the page's own commands install the program.
    pub installs: bool,
}

impl Stage {
    pub fn new(folder: &Path, site: &str) -> Self {
        let [broker, standby, web, demo] = std::array::from_fn(|_| free_port());
        let data = folder.join("var");
        for own in [&data, &folder.join("deploy")] {
            std::fs::create_dir(own).expect("a folder");
        }
        let examples = Path::new(WEBLOOM).with_file_name("examples");
        let replaced = [
            ("https://example.com/".to_owned(), site.to_owned()),
            ("0.0.0.0:55626".to_owned(), format!("127.0.0.1:{broker}")),
            ("10.0.0.5".to_owned(), "127.0.0.1".to_owned()),
            ("broker.example.com".to_owned(), "localhost".to_owned()),
            ("broker.example".to_owned(), "127.0.0.1".to_owned()),
            ("55626".to_owned(), broker.to_string()),
            ("55627".to_owned(), standby.to_string()),
            ("http.server 8000".to_owned(), format!("http.server {web}")),
            ("localhost:8000".to_owned(), format!("127.0.0.1:{web}")),
            ("/var/lib/webloom".to_owned(), data.display().to_string()),
            ("~/".to_owned(), format!("{}/home/", folder.display())),
            ("cargo run -- demo".to_owned(), format!("webloom demo --listen 127.0.0.1:{demo}")),
        ];
        let mut stage = Self { folder: folder.to_owned(), replaced: replaced.to_vec(), installs: false };
        for example in ["titles", "tasks"] {
            let command = format!("cargo run --example {example} --no-default-features --features sdk");
            stage.replaced.push((command, examples.join(example).display().to_string()));
        }
        // A program is not started on a node with busy processors, and those of a machine under test are.
        stage.replaced.push((" --application ".to_owned(), " --property MaxCpu=101 --application ".to_owned()));
        // The README's commands without an address mean the default one.
        stage.replaced.push(("webloom broker\n".to_owned(), format!("webloom broker --listen 127.0.0.1:{broker}\n")));
        stage.replaced.push(("\u{0}broker".to_owned(), format!("http://127.0.0.1:{broker}")));
        stage
    }

    /// An agent that is root starts programs only as users whom its owner named.
    fn for_root(mut self) -> Self {
        if std::fs::metadata("/proc/self").expect("proc").uid() == 0 {
            self.replaced.push(("agent --applications".to_owned(), "agent --applications --application-users root".to_owned()));
        }
        self
    }

    fn put(&self, text: &str) -> String {
        self.replaced.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
    }

    pub fn broker(&self) -> String {
        self.put("\u{0}broker")
    }
}

/// The shell program of a page.
pub fn script(page: &str, stage: &Stage) -> String {
    let mut program = String::from(PRELUDE);
    let mut skipped = 0;
    for block in blocks(page) {
        if let Some(name) = block.directive.strip_prefix("file ") {
            let file = stage.folder.join(name);
            std::fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
            std::fs::write(file, stage.put(&block.text)).expect("a file");
            continue;
        }
        if !["sh", "stop"].contains(&block.language.as_str()) {
            continue;
        }
        if block.language == "stop" {
            program.push_str("for name in \"${!pids[@]}\"; do stop \"$name\"; done\n");
            continue;
        }
        let text = stage.put(&block.text);
        let place = format!("{}:{}", block.page, block.line);
        program.push_str(&format!("\nplace={place}; echo \"== $place\"\n"));
        let directive = block.directive.as_str();
        let name = place.replace(['/', ':'], "-");
        if directive.is_empty() || directive == "install" && stage.installs {
            program.push_str(&text);
        } else if let Some(how) = directive.strip_prefix("background") {
            let body = format!("in_background {name} <<'END_OF_BLOCK'\n{text}END_OF_BLOCK\n");
            // What a block exports is for what comes after it, too.
            let exports: String = text.lines().filter(|line| line.starts_with("export ")).map(|line| format!("{line}\n")).collect();
            program.push_str(&exports);
            program.push_str(&body);
            if let Some(rest) = how.strip_prefix(" until \"") {
                let (wanted, rest) = rest.split_once('"').unwrap_or_else(|| panic!("{place}: {directive}"));
                program.push_str(&format!("wait_for {name} '{wanted}'\n"));
                match rest {
                    "" => {}
                    ", then stop" => program.push_str(&format!("stop {name}\n")),
                    _ => panic!("{place}: {directive}"),
                }
            } else if let Some(wanted) = how.strip_prefix(" until watched \"").and_then(|rest| rest.strip_suffix('"')) {
                program.push_str(&format!("wait_for_worker {name} '{wanted}'\n"));
            } else {
                assert_eq!(how, "", "{place}");
            }
        } else if let Some(code) = directive.strip_prefix("fails with ") {
            program.push_str(&format!(
                "set +e; (\nset -e\n{text}\n); code=$?; set -e; [ $code = {code} ] || {{ echo \"$place: code $code\"; exit 1; }}\n"
            ));
        } else if directive != "install" {
            assert!(directive.starts_with("skip, "), "{place}: {directive}");
            skipped += 1;
        }
    }
    let expected = SKIPPED.iter().find(|(name, _)| *name == page).map_or(0, |(_, count)| *count);
    assert_eq!(skipped, expected, "{page}: blocks that no test runs");
    program.push_str("\necho all blocks have run\n");
    program
}

const PRELUDE: &str = r#"
set -e -o pipefail
declare -A pids
in_background() {
    local body; body=$(cat)
    set -m
    bash -e -c "$body" >"$LOGS/$1" 2>&1 &
    pids[$1]=$!
    set +m
}
wait_for() {
    local i
    for i in $(seq 1200); do
        if grep -q -- "$2" "$LOGS/$1"; then return 0; fi
        kill -0 "${pids[$1]}" 2>/dev/null || { echo "$1 has ended:"; cat "$LOGS/$1"; exit 1; }
        sleep 0.05
    done
    echo "$1 does not print: $2"; cat "$LOGS/$1"; exit 1
}
wait_for_worker() {
    local i
    for i in $(seq 600); do
        if webloom worker list --output json | grep -q -- "$2"; then return 0; fi
        sleep 0.05
    done
    echo "no worker watches $2"; cat "$LOGS/$1"; exit 1
}
stop() {
    local i
    kill -INT -- "-${pids[$1]}" 2>/dev/null || true
    # A test command in the background of a shell ignores SIGINT, and so does all that it starts.
    for i in $(seq 200); do kill -0 "${pids[$1]}" 2>/dev/null || break; sleep 0.05; done
    kill -TERM -- "-${pids[$1]}" 2>/dev/null || true
    wait "${pids[$1]}" || true
    unset "pids[$1]"
}
end() {
    local code=$? pid
    for pid in "${pids[@]}"; do kill -KILL -- "-$pid" 2>/dev/null || true; done
    if [ $code != 0 ]; then echo "FAILED at ${place:-the beginning}"; for log in "$LOGS"/*; do echo "-- $log"; tail -n 20 "$log"; done; fi
    exit $code
}
trap end EXIT
"#;

/// Runs a page; its output.
fn run(page: &str, stage: &Stage, token: Option<&str>) -> String {
    let logs = stage.folder.join("logs");
    std::fs::create_dir(&logs).expect("a folder");
    let mut path = Path::new(WEBLOOM).parent().expect("a folder").as_os_str().to_owned();
    path.push(":");
    if let Some(python) = std::env::var_os("WEBLOOM_PYTHON") {
        path.push(python);
        path.push(":");
    }
    path.push(std::env::var_os("PATH").unwrap_or_default());
    for folder in ["examples", "docs"] {
        std::os::unix::fs::symlink(root().join(folder), stage.folder.join(folder)).expect("a link");
    }
    let mut command = Command::new("bash");
    command.args(["-c", &script(page, stage)]).current_dir(&stage.folder).process_group(0);
    command.env("PATH", path).env("LOGS", &logs).env("WEBLOOM_BROKER", stage.broker()).env_remove("WEBLOOM_TOKEN");
    command.envs(token.map(|token| ("WEBLOOM_TOKEN", token)));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // Standard error goes where standard output goes, so that a failure reads in order.
    let out = command.arg("bash").output().expect("bash runs");
    let said = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{page} {}:\n{said}", if token.is_some() { "with tokens" } else { "without tokens" });
    assert!(said.contains("all blocks have run"), "{said}");
    said
}

fn package_is_missing(page: &str) -> bool {
    text_of(page).lines().any(|line| line == NEEDS_PACKAGE) && std::env::var_os("WEBLOOM_PYTHON").is_none()
}

fn try_page(page: &'static str, token: Option<&'static str>) {
    journey(async move {
        let site = Site::serve(30);
        let folder = tempfile::tempdir().expect("a folder");
        let stage = Stage::new(folder.path(), &site.url).for_root();
        let said = actix_web::rt::task::spawn_blocking(move || run(page, &stage, token)).await.expect("it runs");
        assert!(said.matches("== ").count() > 0, "{said}");
    });
}

/// A test for each page that has commands, so that they run side by side.
macro_rules! followed {
    ($($name:ident: $page:literal $(, $token:literal)?;)*) => {
        /// Each page with commands, once.
        fn followed_pages() -> Vec<&'static str> {
            let mut all = vec![$($page),*];
            all.sort_unstable();
            all.dedup();
            all
        }

        $(#[test]
        fn $name() {
            if package_is_missing($page) {
                println!("SKIPPED: WEBLOOM_PYTHON does not name the programs of a virtual environment with the Python package");
            } else {
                try_page($page, [$($token)?].first().copied());
            }
        })*
    };
}

followed! {
    the_readme_can_be_followed_without_tokens: "README.md";
    the_readme_can_be_followed_with_tokens: "README.md", "admin:0123456789abcdef";
    the_page_on_installation_can_be_followed: "docs/install.md";
    the_page_on_operations_can_be_followed: "docs/operations.md";
    the_page_on_python_can_be_followed: "docs/python.md";
    the_first_crawl_can_be_followed: "docs/tutorials/first-crawl.md";
    the_first_schedule_can_be_followed: "docs/tutorials/first-schedule.md";
    the_first_task_can_be_followed: "docs/tutorials/first-task.md";
    the_scrapy_project_can_be_followed: "docs/tutorials/scrapy.md";
    the_guide_to_crawls_can_be_followed: "docs/guides/crawl.md";
    the_guide_to_programs_can_be_followed: "docs/guides/programs.md";
    the_guide_to_callbacks_can_be_followed: "docs/guides/callbacks.md";
    the_guide_to_retries_can_be_followed: "docs/guides/retries.md";
    the_guide_to_alerts_can_be_followed: "docs/guides/alerts.md";
    the_guide_to_tokens_can_be_followed: "docs/guides/tokens-and-tls.md";
    the_guide_to_monitoring_can_be_followed: "docs/guides/monitoring.md";
    the_guide_to_recovery_can_be_followed: "docs/guides/recovery.md";
    the_guide_to_workers_can_be_followed_without_tokens: "docs/guides/workers.md";
    the_guide_to_workers_can_be_followed_with_tokens: "docs/guides/workers.md", "admin:0123456789abcdef";
    the_guide_to_the_command_line_can_be_followed_without_tokens: "docs/guides/command-line.md";
    the_guide_to_the_command_line_can_be_followed_with_tokens: "docs/guides/command-line.md", "admin:0123456789abcdef";
    the_way_from_cron_can_be_followed: "docs/migration/cron.md";
    the_way_from_celery_beat_can_be_followed: "docs/migration/celery-beat.md";
    the_way_from_apscheduler_can_be_followed: "docs/migration/apscheduler.md";
    the_way_from_xxl_job_can_be_followed: "docs/migration/xxl-job.md";
    the_way_from_scrapyd_can_be_followed: "docs/migration/scrapyd.md";
}

/// Blocks of other languages are what they say, and no page has a shell block that no test looks at.
#[test]
fn every_block_is_looked_at() {
    let mut shells = Vec::new();
    for page in pages() {
        for block in blocks(&page) {
            let place = format!("{page}:{}", block.line);
            match block.language.as_str() {
                "sh" => {
                    shells.push(page.clone());
                    let status = Command::new("bash").args(["-n", "-c", &block.text]).status().expect("bash runs");
                    assert!(status.success(), "{place}: the shell cannot read it");
                }
                "python" => {
                    let grammar = ["-c", "import ast, sys; ast.parse(sys.argv[1])", &block.text];
                    let status = Command::new("python3").args(grammar).status().expect("python3 runs");
                    assert!(status.success(), "{place}: Python cannot read it");
                }
                "json" => {
                    let values = serde_json::Deserializer::from_str(&block.text).into_iter::<serde_json::Value>();
                    let values: Vec<_> = values.map(|value| value.unwrap_or_else(|error| panic!("{place}: {error}"))).collect();
                    assert!(!values.is_empty(), "{place}");
                }
                "toml" => {
                    let crates: toml::Table = toml::from_str(&block.text).unwrap_or_else(|error| panic!("{place}: {error}"));
                    if crates.get("dependencies").is_none() {
                        continue;
                    }
                    let manifest: toml::Table = toml::from_str(&text_of("Cargo.toml")).expect("a manifest");
                    for feature in crates["dependencies"]["webloom"]["features"].as_array().expect("features") {
                        assert!(manifest["features"].get(feature.as_str().expect("a name")).is_some(), "{place}: {feature}");
                    }
                }
                // Files of other programs, which a page only quotes.
                "yaml" if block.directive.starts_with("of ") => {
                    let read: Result<serde_json::Value, _> = serde_saphyr::from_str(&block.text);
                    assert!(read.is_ok_and(|value| value.is_object()), "{place}: no YAML");
                }
                // Job files: the broker checks them.
                "yaml" => check_jobs(&block.text, &place),
                // Messages, dumps and drawings. tests/docs.rs reads the messages and the dumps.
                "text" | "stop" => {}
                other => panic!("{place}: no test knows what to do with `{other}`"),
            }
        }
    }
    shells.dedup();
    assert_eq!(shells, followed_pages(), "pages with commands, and pages whose commands are run");
}

fn check_jobs(text: &str, place: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("jobs.yaml");
    std::fs::write(&file, text).expect("a file");
    let broker = Broker::start(&[], "");
    let out = Command::new(WEBLOOM).args(["job", "import", "--broker", &broker.url, "-f"]).arg(&file).output().expect("it runs");
    assert!(out.status.success(), "{place}: {}", String::from_utf8_lossy(&out.stderr));
}

/// Each flag of the programs that run for long stands in the tables of settings.
#[test]
fn every_setting_is_described() {
    let text: String = text_of("docs/reference/settings.md").lines().filter(|line| line.starts_with("| `--")).collect();
    for program in ["broker", "agent"] {
        let help = Command::new(WEBLOOM).args([program, "--help"]).output().expect("it runs");
        let help = String::from_utf8(help.stdout).expect("text");
        let flags: Vec<&str> = help
            .lines()
            .filter_map(|line| line.trim_start().split_once("--"))
            .filter(|(before, _)| before.is_empty() || before.ends_with(", "))
            .filter_map(|(_, rest)| rest.split([' ', '<', '=']).next())
            .filter(|flag| !["help", "version"].contains(flag))
            .collect();
        assert!(flags.len() > 10, "{flags:?}");
        for flag in flags {
            assert!(
                text.contains(&format!("`--{flag}`")),
                "`webloom {program} --{flag}` is not in the tables of docs/reference/settings.md"
            );
        }
    }
}

/// Each address of the broker stands on one of the pages, by its last word at least.
#[test]
fn every_address_is_described() {
    journey(async {
        let broker = Broker::start(&[], "");
        let (status, document) = Api::new(&broker.url).get("/api/v1/openapi.json").await;
        assert_eq!(status, 200);
        // The page that is made from this document would prove nothing.
        let text: String = pages().iter().filter(|page| *page != "docs/reference/api.md").map(|page| text_of(page)).collect();
        let paths = document["paths"].as_object().expect("paths");
        assert!(paths.len() > 50, "{}", paths.len());
        for path in paths.keys() {
            let word = path.split('/').rfind(|part| !part.is_empty() && !part.starts_with('{')).unwrap_or("");
            assert!(text.contains(&format!("/{word}")), "{path} is not described");
        }
    });
}
