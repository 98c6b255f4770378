//! What is made of the program to install it: the Debian package, the crate, and the files for containers.

use crate::support::api::Api;
use crate::support::process::{Process, WEBLOOM};
use crate::support::site::Site;
use crate::support::{journey, journey_within, until};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::{Permissions, read_dir, read_to_string, write};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const PACKAGING: &str = "packaging/debian";

/// Runs a command to its end; its output.
fn run(command: &mut Command) -> String {
    let out = command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{command:?}: {said}");
    said
}

/// The package of the program under test; `None` without cargo-deb, which tests/run.sh installs.
fn debian_package(folder: &Path) -> Option<PathBuf> {
    let cargo_deb = std::env::var_os("WEBLOOM_CARGO_DEB")?;
    let package = folder.join("webloom.deb");
    let target = Path::new(WEBLOOM).ancestors().nth(2).expect("target");
    let mut build = Command::new("bash");
    build.arg("packaging/deb.sh").arg(&package).env("CARGO_DEB", cargo_deb).env("CARGO_TARGET_DIR", target);
    run(build.env("PROFILE", "dev").env("NO_BUILD", "1"));
    Some(package)
}

/// A folder with a package database of its own, as the root of a machine.
struct Root {
    folder: PathBuf,
}

impl Root {
    fn new(folder: PathBuf) -> Self {
        std::fs::create_dir_all(folder.join("var/lib/dpkg/updates")).expect("a folder");
        write(folder.join("var/lib/dpkg/status"), "").expect("written");
        write(folder.join("var/lib/dpkg/available"), "").expect("written");
        Self { folder }
    }

    /// `dpkg` on this root. Who is not root is root of a namespace of his own.
    fn dpkg(&self, args: &[&str]) -> String {
        let is_root = std::fs::metadata("/proc/self").expect("proc").uid() == 0;
        let mut dpkg = Command::new(if is_root { "env" } else { "unshare" });
        if !is_root {
            dpkg.args(["--map-root-user", "env"]);
        }
        dpkg.args(["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive", "dpkg", "--log=/dev/null"]);
        // Its dependencies are not in this folder, and neither is a shell for its scripts.
        dpkg.args(["--force-depends", "--force-script-chrootless", "--force-confold"]);
        run(dpkg.arg(format!("--root={}", self.folder.display())).args(args))
    }

    fn path(&self, path: &str) -> PathBuf {
        self.folder.join(path.trim_start_matches('/'))
    }

    fn mode(&self, path: &str) -> u32 {
        self.path(path).metadata().unwrap_or_else(|error| panic!("{path}: {error}")).permissions().mode() & 0o7777
    }

    /// The command of a unit, with the settings of the package. Paths and the port are those of this root.
    fn service(&self, name: &str, replaced: &[(&str, &str)]) -> Command {
        let unit = read_to_string(self.path(&format!("lib/systemd/system/webloom-{name}.service"))).expect("a unit");
        let line = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).expect("a command");
        let mut words = line.split(' ').map(|word| if word.starts_with('/') { self.path(word) } else { PathBuf::from(word) });
        let settings = self.path(&format!("etc/webloom/{name}.toml"));
        let text = read_to_string(&settings).expect("settings");
        let replaced = replaced.iter().fold(text, |text, (from, to)| {
            assert!(text.contains(from), "{from} is not in {text}");
            text.replace(from, to)
        });
        write(&settings, replaced).expect("written");
        let mut command = Command::new(words.next().expect("a program"));
        command.args(words).env_remove("WEBLOOM_TOKEN").stdin(Stdio::null());
        command
    }
}

#[test]
fn the_debian_package_is_installed_started_upgraded_and_purged() {
    // It strips, packs and installs the program: minutes, when others use the processors.
    journey_within(Duration::from_secs(600), async {
        let home = tempfile::tempdir().expect("a folder");
        let Some(package) = debian_package(home.path()) else {
            println!("SKIPPED: WEBLOOM_CARGO_DEB does not name cargo-deb");
            return;
        };
        let package = package.to_str().expect("text").to_owned();
        let fields = run(Command::new("dpkg-deb").args(["--info", &package]));
        assert!(fields.contains("Depends: ") && fields.contains("libc6") && fields.contains("adduser"), "{fields}");

        let root = Root::new(home.path().join("root"));
        root.dpkg(&["--install", &package]);
        for path in [
            "usr/share/man/man1/webloom.1.gz",
            "usr/share/man/man1/webloom-broker.1.gz",
            "usr/share/bash-completion/completions/webloom",
            "usr/share/zsh/vendor-completions/_webloom",
            "usr/share/fish/vendor_completions.d/webloom.fish",
        ] {
            assert!(root.path(path).metadata().is_ok_and(|file| file.len() > 0), "{path}");
        }
        assert_eq!(
            (root.mode("usr/bin/webloom"), root.mode("etc/webloom/tokens"), root.mode("etc/webloom/agent.env")),
            (0o755, 0o600, 0o600)
        );
        assert!(!root.path("etc/systemd/system").exists(), "the installation enables nothing");
        let tokens = read_to_string(root.path("etc/webloom/tokens")).expect("tokens");
        let token = |role: &str| tokens.lines().find_map(|line| line.strip_prefix(&format!("{role}:"))).expect("a token").to_owned();
        assert_eq!(token("admin").len(), 48);
        assert_ne!(token("admin"), token("agent"));

        // As it was installed, but for folder and port.
        let data = root.path("var/lib/webloom");
        std::fs::create_dir_all(&data).expect("systemd makes it");
        let (data, etc) = (data.display().to_string(), root.path("etc/webloom").display().to_string());
        let mut broker = root.service(
            "broker",
            &[("127.0.0.1:55626", "127.0.0.1:0"), ("/var/lib/webloom", &data), ("/etc/webloom/tokens", &format!("{etc}/tokens"))],
        );
        let mut broker = Process(broker.stdout(Stdio::piped()).spawn().expect("it starts"));
        let line = BufReader::new(broker.0.stdout.take().expect("piped")).lines().next().expect("a line").expect("text");
        let url = line.strip_prefix("listening on ").unwrap_or_else(|| panic!("unexpected: {line}"));
        let mut api = Api::new(url);
        assert_eq!(api.get("/healthz").await.0, 200);
        assert_eq!(api.get("/api/v1/nodes").await.0, 401, "a fresh installation is not open");
        api.token = Some(token("admin"));
        let mut agent = root.service("agent", &[("http://127.0.0.1:55626/", url), ("/var/lib/webloom-agent", &data)]);
        // As systemd reads it from agent.env.
        let agent = Process(agent.env("WEBLOOM_TOKEN", token("agent")).spawn().expect("it starts"));
        until("the agent", || async {
            let (_, nodes) = api.get("/api/v1/nodes").await;
            (nodes["items"][0]["isOnline"] == true).then_some(())
        })
        .await;
        drop(agent);
        assert!(broker.terminate().success());

        // Another version over it changes neither settings nor tokens.
        let settings = read_to_string(root.path("etc/webloom/broker.toml")).expect("settings");
        root.dpkg(&["--install", &package]);
        assert_eq!(read_to_string(root.path("etc/webloom/broker.toml")).expect("settings"), settings);
        assert_eq!(read_to_string(root.path("etc/webloom/tokens")).expect("tokens"), tokens);
        root.dpkg(&["--remove", "webloom"]);
        assert!(!root.path("usr/bin/webloom").exists() && root.path("etc/webloom/tokens").exists());
        assert!(root.path("var/lib/webloom/webloom.db").exists(), "only purge removes data");
        root.dpkg(&["--purge", "webloom"]);
        assert!(!root.path("etc/webloom").exists() && !root.path("var/lib/webloom").exists());
    });
}

/// systemd takes the units, and finds them well closed.
#[test]
fn the_units_are_valid_and_hardened() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        println!("SKIPPED: systemd-analyze is not there");
        return;
    }
    let home = tempfile::tempdir().expect("a folder");
    let folder = home.path().join("lib/systemd/system");
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::create_dir_all(home.path().join("usr/bin")).expect("a folder");
    // Their programs must be there.
    for program in ["usr/bin/webloom", "usr/bin/kill", "bin/kill"] {
        std::fs::create_dir_all(home.path().join(program).parent().expect("a folder")).expect("a folder");
        write(home.path().join(program), "").expect("written");
        std::fs::set_permissions(home.path().join(program), std::fs::Permissions::from_mode(0o755)).expect("ours");
    }
    let root = format!("--root={}", home.path().display());
    for (unit, threshold) in [("webloom-broker.service", "20"), ("webloom-agent.service", "25")] {
        std::fs::copy(Path::new(PACKAGING).join(unit), folder.join(unit)).expect("copied");
        let said = run(Command::new("systemd-analyze").args(["verify", "--man=no", "--recursive-errors=no", &root, unit]));
        assert!(!said.contains("webloom"), "{said}");
        run(Command::new("systemd-analyze").args([
            "security",
            "--offline=yes",
            "--no-pager",
            &root,
            &format!("--threshold={threshold}"),
            unit,
        ]));
    }
}

/// The crate holds what the build reads, and not the tests.
#[test]
fn the_crate_is_complete_and_small() {
    let listed = run(Command::new(env!("CARGO")).args(["package", "--list", "--allow-dirty", "--locked", "--offline", "--quiet"]));
    let listed: BTreeSet<&str> = listed.lines().collect();
    let mut needed = vec![
        "Cargo.toml".to_owned(),
        "Cargo.lock".into(),
        "build.rs".into(),
        "README.md".into(),
        "LICENSE-MIT".into(),
        "LICENSE-APACHE".into(),
    ];
    for folder in ["src", "static", "migrations"] {
        files(Path::new(folder), &mut needed);
    }
    for file in &needed {
        assert!(listed.contains(file.as_str()), "{file} is not in the crate");
    }
    let foreign: Vec<&&str> = listed
        .iter()
        .filter(|file| ["tests/", "docs/", "python/", "packaging/", "deploy/"].iter().any(|no| file.starts_with(no)))
        .collect();
    assert!(foreign.is_empty(), "{foreign:?}");
}

fn files(folder: &Path, found: &mut Vec<String>) {
    for entry in read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.expect("an entry").path();
        if path.is_dir() { files(&path, found) } else { found.push(path.display().to_string()) }
    }
}

/// The documents of a YAML file.
fn yaml(path: &str) -> Vec<Value> {
    let text = read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    text.split("\n---\n").map(|text| serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{path}: {error}"))).collect()
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().expect("a list").iter().map(|text| text.as_str().expect("text").to_owned()).collect()
}

/// Parses a command line as the program does: with a flag that it does not know, or a value that it does not take, it fails.
fn is_command_line(args: &[String], place: &str) {
    let out = Command::new(WEBLOOM).args(args).arg("--help").env_remove("WEBLOOM_TOKEN").output().expect("it runs");
    assert!(out.status.success(), "{place}: {args:?}: {}", String::from_utf8_lossy(&out.stderr));
}

/// A variable of the environment that the command reads.
fn is_variable(command: &str, name: &str, place: &str) {
    let help = run(Command::new(WEBLOOM).args([command, "--help"]));
    let is_read = [format!("[env: {name}="), format!("[env: {name}]")].iter().any(|text| help.contains(text));
    assert!(is_read, "{place}: `webloom {command}` does not read {name}");
}

#[test]
fn the_compose_file_starts_what_the_program_knows() {
    let place = "deploy/compose.yaml";
    let compose = &yaml(place)[0];
    let services = compose["services"].as_object().expect("services");
    assert_eq!(services.keys().collect::<Vec<_>>(), ["agent-1", "agent-2", "broker", "prometheus"]);
    for (name, service) in services {
        for volume in texts(&service["volumes"]) {
            let source = volume.split(':').next().expect("a source");
            let is_known = match source.strip_prefix("./") {
                Some(file) => Path::new("deploy").join(file).exists(),
                None => compose["volumes"].as_object().expect("volumes").contains_key(source),
            };
            assert!(is_known, "{name}: {volume}");
        }
        if name == "prometheus" {
            continue;
        }
        let args = texts(&service["command"]);
        is_command_line(&args, place);
        for variable in service["environment"].as_object().expect("variables").keys() {
            is_variable(&args[0], variable, place);
        }
    }
    let check = texts(&services["broker"]["healthcheck"]["test"]);
    assert_eq!(check[..2], ["CMD", "/usr/bin/webloom"]);
    is_command_line(&check[2..], place);

    // Prometheus asks the broker, with the token that it is given.
    let prometheus = &yaml("deploy/prometheus.yaml")[0];
    let scrape = &prometheus["scrape_configs"][0];
    assert_eq!(
        (&scrape["static_configs"][0]["targets"][0], &scrape["metrics_path"]),
        (&Value::from("broker:55626"), &Value::from("/metrics"))
    );
    let secret = texts(&services["prometheus"]["secrets"]).remove(0);
    assert_eq!(scrape["authorization"]["credentials_file"], format!("/run/secrets/{secret}"));
    assert!(compose["secrets"][&secret]["environment"].is_string());
}

#[test]
fn the_manifests_start_what_the_program_knows() {
    let of =
        |kind: &str, objects: &[Value]| objects.iter().find(|object| object["kind"] == kind).unwrap_or_else(|| panic!("no {kind}")).clone();
    let folder = "deploy/kubernetes";
    let mut objects = Vec::new();
    for entry in read_dir(folder).expect("a folder") {
        objects.extend(yaml(entry.expect("an entry").path().to_str().expect("text")));
    }
    let secret = of("Secret", &objects);
    for kind in ["StatefulSet", "Deployment"] {
        let object = of(kind, &objects);
        let template = &object["spec"]["template"];
        assert_eq!(object["spec"]["selector"]["matchLabels"], template["metadata"]["labels"]);
        let container = &template["spec"]["containers"][0];
        let args = texts(&container["args"]);
        is_command_line(&args, kind);
        for variable in container["env"].as_array().expect("variables") {
            is_variable(&args[0], variable["name"].as_str().expect("a name"), kind);
            let key = &variable["valueFrom"]["secretKeyRef"];
            if let Some(name) = key["name"].as_str() {
                assert_eq!(secret["metadata"]["name"], name);
                assert!(secret["stringData"][key["key"].as_str().expect("a key")].is_string(), "{key}");
            }
        }
        let volumes = template["spec"]["volumes"].as_array().into_iter().chain(object["spec"]["volumeClaimTemplates"].as_array()).flatten();
        let volumes: BTreeSet<&str> =
            volumes.filter_map(|volume| volume["name"].as_str().or(volume["metadata"]["name"].as_str())).collect();
        for mount in container["volumeMounts"].as_array().expect("mounts") {
            assert!(volumes.contains(mount["name"].as_str().expect("a name")), "{mount}");
        }
    }
    let (service, broker) = (of("Service", &objects), of("StatefulSet", &objects));
    assert_eq!(service["spec"]["selector"], broker["spec"]["template"]["metadata"]["labels"]);
    let host = format!("http://{}:55626", service["metadata"]["name"].as_str().expect("a name"));
    assert!(texts(&of("Deployment", &objects)["spec"]["template"]["spec"]["containers"][0]["args"]).contains(&host));

    // The tokens of the file are not for use: beyond loopback the broker refuses those below 16 characters.
    for token in secret["stringData"]["broker"].as_str().expect("tokens").split(',') {
        assert!(token.split_once(':').expect("a role").1.len() < 16, "{token}");
    }
}

/// The programs of these tests name no commit, so the build script runs here by itself.
#[test]
fn a_program_names_the_commit_that_it_is_made_of() {
    let folder = tempfile::tempdir().expect("a folder");
    let call = |program: &str, args: &[&str]| {
        let mut command = Command::new(program);
        command.args(args).current_dir(folder.path()).env("CARGO_MANIFEST_DIR", folder.path()).env_remove("CARGO_FEATURE_FAULTS");
        run(&mut command)
    };
    call("rustc", &["--edition", "2024", "-o", "script", concat!(env!("CARGO_MANIFEST_DIR"), "/build.rs")]);
    assert!(call("./script", &[]).contains("WEBLOOM_COMMIT=\n"), "outside a repository");
    write(folder.path().join(".cargo_vcs_info.json"), r#"{"git":{"sha1":"0123456789abcdef"}}"#).expect("written");
    assert!(call("./script", &[]).contains("WEBLOOM_COMMIT=0123456\n"), "a published package");
    call("git", &["init", "-q"]);
    call("git", &["-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-q", "--allow-empty", "-m", "first"]);
    let commit = call("git", &["log", "-1", "--format=%h %cs"]);
    let output = call("./script", &[]);
    assert!(output.contains(&format!("WEBLOOM_COMMIT={commit}")) && output.contains("rerun-if-changed=.git/"), "{output}");
}

/// Enters a folder that holds nothing but the program, `/dev/null`, `/proc` and `/tmp`, as a user without privileges.
const ALONE: &str = r#"
set -e
touch "$1/dev/null"
mount --bind /dev/null "$1/dev/null"
mount -t proc proc "$1/proc"
exec chroot --userspec=1000:1000 --groups= "$@"
"#;

#[test]
fn the_static_program_needs_nothing_of_the_system() {
    let Some(program) = std::env::var_os("WEBLOOM_STATIC_PROGRAM") else {
        return println!("SKIPPED: WEBLOOM_STATIC_PROGRAM does not name a program of packaging/static.sh");
    };
    journey(async {
        let site = Site::serve(20);
        let root = tempfile::tempdir().expect("a folder");
        for folder in ["dev", "proc", "tmp"] {
            std::fs::create_dir(root.path().join(folder)).expect("a folder");
        }
        std::fs::set_permissions(root.path(), Permissions::from_mode(0o755)).expect("readable");
        std::fs::set_permissions(root.path().join("tmp"), Permissions::from_mode(0o777)).expect("for all");
        std::fs::copy(program, root.path().join("webloom")).expect("copied");
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-c", ALONE, "sh"]).arg(root.path());
        command.args(["/webloom", "crawl", &site.url, "--limit", "10", "--output", "/tmp/pages.jsonl"]);
        actix_web::rt::task::spawn_blocking(move || run(&mut command)).await.expect("it runs");
        let pages = read_to_string(root.path().join("tmp/pages.jsonl")).expect("pages");
        assert_eq!(pages.lines().count(), 10, "{pages}");
    });
}
